// The queue as rows, and which of them can be seen.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { GROUP_PX, JOB_PX, Row, rowsOf, TALL_PX, topsOf, visible } from '../src/rows';
import { between } from '../src/selection';
import { job } from './views';

function names(rows: readonly Row[]): string[] {
  return rows.map(row => (row.kind === 'group' ? `# ${row.group} ${row.count}` : row.view.id));
}

const JOBS = [
  job('done', { phase: 'succeeded', ended_at: 1000, tags: ['Vision'] }),
  job('old', { phase: 'failed', ended_at: 10, name: 'Train big' }),
  job('second', { position: 2 }),
  job('first', { position: 1, name: 'train small' }),
  job('runs', { phase: 'running', started_at: 5 }),
  job('ends', { phase: 'stopping', started_at: 3 })
];

test('running jobs come first, then those that wait in their order, then those of today and earlier ones', () => {
  assert.deepEqual(names(rowsOf(JOBS, 'all', '', 500)), [
    '# running 2', 'ends', 'runs', '# waiting 2', 'first', 'second', '# today 1', 'done', '# earlier 1', 'old'
  ]);
});

test('a filter and words narrow the list, whatever their case', () => {
  assert.deepEqual(names(rowsOf(JOBS, 'waiting', '', 500)), ['# waiting 2', 'first', 'second']);
  assert.deepEqual(names(rowsOf(JOBS, 'failed', '', 500)), ['# earlier 1', 'old']);
  assert.deepEqual(names(rowsOf(JOBS, 'all', 'TRAIN big', 500)), ['# earlier 1', 'old']);
  assert.deepEqual(names(rowsOf(JOBS, 'all', 'vision', 500)), ['# today 1', 'done']);
  assert.deepEqual(rowsOf(JOBS, 'all', 'nothing like it', 500), []);
});

test('rows with a sentence are taller', () => {
  assert.deepEqual(topsOf(rowsOf([JOBS[2] ?? job('x'), JOBS[4] ?? job('y')], 'all', '', 0)), [
    0, GROUP_PX, GROUP_PX + JOB_PX, 2 * GROUP_PX + JOB_PX, 2 * GROUP_PX + JOB_PX + TALL_PX
  ]);
});

test('of thousands of rows only those in sight are on the page', () => {
  const rows = rowsOf(Array.from({ length: 5000 }, (_, n) => job(`j${n}`, { position: n + 1 })), 'all', '', 0);
  const tops = topsOf(rows);
  for (const top of [0, 1234, 100_000, tops[5000] ?? 0]) {
    const [first, end] = visible(tops, top, 600, 0);
    assert.ok((tops[first] ?? 0) <= top, 'nothing is missing above');
    assert.ok(end === rows.length || (tops[end] ?? 0) >= top + 600, 'nothing is missing below');
    assert.ok(end - first <= 600 / JOB_PX + 3);
  }
});

test('an empty list has no rows in sight', () => {
  assert.deepEqual(visible(topsOf([]), 0, 600), [0, 0]);
});

test('thousands of jobs are sorted and searched within a frame or two', () => {
  const many = Array.from({ length: 5000 }, (_, n) => job(`j${n}`, { position: n + 1, name: `sweep ${n}` }));
  const begun = performance.now();
  const rows = rowsOf(many, 'all', 'sweep', 0);
  topsOf(rows);
  assert.equal(rows.length, 5001);
  assert.ok(performance.now() - begun < 1000);
});

test('what lies between two rows is chosen, in either direction', () => {
  assert.deepEqual([...between(['a', 'b', 'c', 'd'], 'c', 'a')], ['a', 'b', 'c']);
  assert.deepEqual([...between(['a', 'b'], 'gone', 'b')], ['b']);
});
