// What a person gives in a form, and what is queued for it.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { split } from '../src/shellwords';
import { specOf, TermsOfFile } from '../src/terms';

const GIVEN: TermsOfFile = { vram: '4G', gpus: '1', time: '', name: '', command: '', args: '' };

test('words are split as a shell does', () => {
  assert.deepEqual(split(`--data "My File.txt" 'it is' a\\ b "x\\"y"`), ['--data', 'My File.txt', 'it is', 'a b', 'x"y']);
  assert.deepEqual(split('  '), []);
  assert.equal(split('--name "open'), null);
});

test('arguments with blanks in them arrive whole', () => {
  assert.deepEqual(specOf({ ...GIVEN, args: '--in "My File.txt"' }, 'script')['args'], ['--in', 'My File.txt']);
  assert.throws(() => specOf({ ...GIVEN, args: 'it"s' }, 'script'), /quotation/);
});

test('an emptied number of GPUs is the default, and keeps the VRAM', () => {
  assert.deepEqual(specOf({ ...GIVEN, gpus: ' ' }, 'notebook'), { vram: '4G', gpus: 1 });
});

test('half a GPU is refused, not made a whole one', () => {
  assert.throws(() => specOf({ ...GIVEN, gpus: '1.5' }, 'script'), /whole number/);
  assert.throws(() => specOf({ ...GIVEN, gpus: '0' }, 'script'), /no VRAM/);
  assert.deepEqual(specOf({ ...GIVEN, gpus: '0', vram: '' }, 'script'), { gpus: 0 });
});
