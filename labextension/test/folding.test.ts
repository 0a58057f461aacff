// A job's output lines folded into what a cell would show.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { JobOutput } from '../src/api';
import { Folding } from '../src/folding';

function folded(...outputs: Record<string, unknown>[]): Folding {
  const folding = new Folding();
  outputs.forEach(output => folding.take(output as JobOutput));
  return folding;
}

function shown(folding: Folding): string[] {
  return folding.parts.map(part =>
    part.kind === 'text'
      ? part.terminal.lines().map(line => line.map(piece => piece.text).join('')).join('\n')
      : JSON.stringify(part.output['data'] ?? part.output['ename'])
  );
}

const stream = (text: unknown, more = {}): Record<string, unknown> => ({
  output_type: 'stream',
  name: 'stdout',
  text,
  ...more
});
const display = (data: unknown, display_id?: string): Record<string, unknown> => ({
  output_type: 'display_data',
  data,
  metadata: {},
  transient: { display_id }
});

test('text joins, whatever stream it came by, and rich outputs stand between', () => {
  const folding = folded(stream('a'), stream(['b', '\n'], { name: 'stderr' }), display({ x: 1 }), stream('c'));
  assert.deepEqual(shown(folding), ['ab\n', '{"x":1}', 'c']);
});

test('carriage returns and colours that come in two halves are applied', () => {
  assert.deepEqual(shown(folded(stream('10%\r'), stream('20%\x1b['), stream('31m!'))), ['20%!']);
});

test('an update changes the display of its id and its place in the page', () => {
  const folding = folded(display({ x: 1 }, 'one'), display({ x: 2 }, 'two'));
  const before = folding.parts[0]?.key;
  folding.take({ ...display({ x: 3 }, 'one'), output_type: 'update_display_data' });
  assert.deepEqual(shown(folding), ['{"x":3}', '{"x":2}']);
  assert.notEqual(folding.parts[0]?.key, before);
});

test('clearing is of one cell, now or when something else comes', () => {
  const clear = { output_type: 'clear_output', wait: true, cell: 1 };
  const folding = folded(stream('one', { cell: 1 }), stream('two', { cell: 2 }), clear);
  assert.deepEqual(shown(folding), ['one', 'two']);
  folding.take(stream('new', { cell: 1 }) as unknown as JobOutput);
  assert.deepEqual(shown(folding), ['two', 'new']);
  folding.take({ ...clear, wait: false });
  assert.deepEqual(shown(folding), ['two']);
});

test('outputs of no known kind and without text do no harm', () => {
  assert.deepEqual(shown(folded({ output_type: 'other' }, stream(undefined), { output_type: 'error', ename: 'E' })), [
    '',
    '"E"'
  ]);
});

test('a job that displays without end is bounded and said to be shortened', () => {
  const folding = folded(...Array.from({ length: 150 }, (_, n) => display({ n })));
  assert.equal(folding.parts.length, 100);
  assert.ok(folding.shortened);
  assert.equal(shown(folding)[99], '{"n":149}');
});
