// What a terminal would show.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Piece, Terminal } from '../src/terminal';

function shown(...texts: string[]): string[] {
  return written(texts).lines().map(line => line.map(({ text }) => text).join(''));
}

function written(texts: string[], mostLines = 500): Terminal {
  const terminal = new Terminal(mostLines);
  texts.forEach(text => terminal.write(text));
  return terminal;
}

function styled(text: string): Pick<Piece, 'classes' | 'colour' | 'background'> {
  const { classes, colour, background } = written([text]).lines()[0]?.[0] as Piece;
  return { classes, colour, background };
}

test('a carriage return writes over what stands there, and what is longer stays', () => {
  assert.deepEqual(shown('epoch 10\repoch 9'), ['epoch 90']);
  assert.deepEqual(shown('ab\bc\n'), ['ac', '']);
});

test('lines are erased to their end, from their beginning and as a whole', () => {
  assert.deepEqual(shown('abcdef\r\x1b[3C\x1b[K'), ['abc']);
  assert.deepEqual(shown('abcdef\r\x1b[2C\x1b[1K'), ['   def']);
  assert.deepEqual(shown('abcdef\x1b[2Kx'), ['      x']);
  assert.deepEqual(shown('a\nb\nc\x1b[2A\r\x1b[J'), ['']);
});

test('the cursor moves up, down, forth and back, and never out', () => {
  assert.deepEqual(shown('one\ntwo\x1b[1A\r1\x1b[1B\r2'), ['1ne', '2wo']);
  assert.deepEqual(shown('one\ntwo\x1b[9F1\x1b[9E2'), ['1ne', '2wo']);
  assert.deepEqual(shown('abc\x1b[2Dx\x1b[1Gy'), ['yxc']);
  assert.deepEqual(shown('a\x1b[9A\x1b[9D\x1b[3Cb'), ['a  b']);
});

test('a code that comes in two parts is one code', () => {
  assert.deepEqual(shown('a\x1b', '[3', '1mb', '\x1b[0m'), ['ab']);
  assert.equal(written(['a\x1b[3', '1mb']).lines()[0]?.[1]?.classes, 'ansi-red-fg');
});

test('titles, links and what else is no text leave nothing behind', () => {
  assert.deepEqual(shown('\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b]8;;\x1b\\\x00c'), ['abc']);
});

test('a line is cut off where nobody reads on, and only the last lines are kept', () => {
  assert.equal(shown('x'.repeat(5000))[0]?.length, 4000);
  const terminal = written(Array.from({ length: 9 }, (_, n) => `${n}\n`), 4);
  assert.deepEqual(terminal.lines().map(line => line[0]?.text ?? ''), ['6', '7', '8', '']);
  terminal.write('\x1b[99A\rup');
  assert.equal(terminal.lines()[0]?.[0]?.text, 'up');
});

test('the sixteen colours have the classes of the theme, also by their number of 256', () => {
  assert.equal(styled('\x1b[31;44mx').classes, 'ansi-red-fg ansi-blue-bg');
  assert.equal(styled('\x1b[91;107mx').classes, 'ansi-red-intense-fg ansi-white-intense-bg');
  assert.equal(styled('\x1b[38;5;2;48;5;9mx').classes, 'ansi-green-fg ansi-red-intense-bg');
});

test('other colours are computed, before and behind', () => {
  assert.deepEqual(styled('\x1b[38;5;208;48;5;240mx'), { classes: '', colour: 'rgb(255,135,0)', background: 'rgb(88,88,88)' });
  assert.deepEqual(styled('\x1b[38;2;1;2;3;48;2;4;5;6mx'), { classes: '', colour: 'rgb(1,2,3)', background: 'rgb(4,5,6)' });
  assert.equal(styled('\x1b[38:2::1:2:3mx').colour, 'rgb(1,2,3)');
  assert.deepEqual(styled('\x1b[48;5;208;1;49mx'), { classes: 'ansi-bold', colour: null, background: null });
});

test('inverse exchanges both colours, and has its own where there are none', () => {
  assert.equal(styled('\x1b[7mx').classes, 'ansi-default-inverse-fg ansi-default-inverse-bg');
  assert.deepEqual(styled('\x1b[31;48;2;1;2;3;7mx'), { classes: 'ansi-red-bg', colour: 'rgb(1,2,3)', background: null });
  assert.equal(styled('\x1b[31;7;27mx').classes, 'ansi-red-fg');
});

test('dim, italic, bold and underlined begin and end by themselves', () => {
  assert.equal(styled('\x1b[1;2;3;4mx').classes, 'ansi-bold gpusched-dim gpusched-italic ansi-underline');
  assert.equal(styled('\x1b[1;2;3;4;22mx').classes, 'gpusched-italic ansi-underline');
  assert.equal(styled('\x1b[1;3;4;23;24mx').classes, 'ansi-bold');
  assert.deepEqual(styled('\x1b[1;31;7;48;5;99m\x1b[mx'), { classes: '', colour: null, background: null });
});

test('a job that paints for ever without an end costs nothing and stays right', () => {
  const terminal = new Terminal();
  for (let n = 0; n < 500; n++) {
    terminal.write('\x1b[38;5;208m.\r');
  }
  assert.equal(terminal.lines()[0]?.[0]?.colour, 'rgb(255,135,0)');
});
