// The magic line of a cell, read into the form and written back.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { isLoaded, readCell, writeCell } from '../src/magicline';

const NOTHING = { vram: '', gpus: '', time: '', name: '' };

function read(source: string): NonNullable<ReturnType<typeof readCell>> {
  const cell = readCell(source);
  assert.ok(cell);
  return cell;
}

function reread(source: string): string {
  return writeCell(read(source), read(source).terms);
}

test('a plain cell has no terms and is the body', () => {
  const cell = read('print(1)\nprint(2)');
  assert.deepEqual(cell, { terms: NOTHING, others: [], body: 'print(1)\nprint(2)' });
  assert.equal(writeCell(cell, { ...NOTHING, vram: '4G' }), '%%gpujob --vram 4G\nprint(1)\nprint(2)');
  assert.equal(writeCell(cell, NOTHING), '%%gpujob\nprint(1)\nprint(2)');
});

test('what the line says is read into the terms', () => {
  const cell = read('%%gpujob --vram 4G --gpus=2 --time 15m --name "a b"\nx');
  assert.deepEqual(cell.terms, { vram: '4G', gpus: '2', time: '15m', name: 'a b' });
  assert.equal(cell.body, 'x');
});

test('all else on the line is kept as it was written', () => {
  const source = "%%gpujob --vram 4G --tag 'two words' --in a,b --wait --env A=\"b c\"\nx";
  assert.deepEqual(read(source).others, ['--tag', "'two words'", '--in', 'a,b', '--wait', '--env', 'A="b c"']);
  assert.equal(reread(source), source);
  assert.equal(
    writeCell(read(source), { ...NOTHING, vram: '5G' }),
    "%%gpujob --vram 5G --tag 'two words' --in a,b --wait --env A=\"b c\"\nx"
  );
});

test('names with quotation marks and blanks survive', () => {
  for (const name of ["it's mine", 'a "b" c', 'ü 中文', '$HOME \\ x', "''", 'a;b|c&d', '%%x']) {
    const written = writeCell(read('x'), { ...NOTHING, name });
    assert.equal(read(written).terms.name, name, written);
  }
});

test('a line break in a name cannot begin another line of code', () => {
  assert.equal(writeCell(read('x'), { ...NOTHING, name: 'a\nimport os' }).split('\n').length, 2);
});

test('blank lines before the magic do not hide it', () => {
  assert.equal(read('\n  \n%%gpujob --vram 4G\nx').terms.vram, '4G');
});

test('an option without its value and a lone quotation mark do no harm', () => {
  assert.equal(read('%%gpujob --vram\nx').terms.vram, '');
  assert.equal(read("%%gpujob --name 'open\nx").body, 'x');
});

test('another cell magic cannot be combined', () => {
  assert.equal(readCell('%%time\nx'), null);
  assert.equal(readCell('%%gpujobs\nx'), null);
  assert.ok(readCell('%time x'));
});

test('whether the extension is loaded is seen in the cells above', () => {
  assert.ok(isLoaded(['x', 'import os\n%load_ext jupyter_gpusched']));
  assert.ok(isLoaded(['  %reload_ext  jupyter_gpusched']));
  assert.ok(!isLoaded(['# %load_ext jupyter_gpusched', '%load_ext jupyter_gpusched_other', '']));
});
