// The queue as rows, and which of them can be seen.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { countsOf, elementOf, failedWords, nameOf, rangesOf, standing, toRepeat } from '../src/arraywords';
import { besides, elementRows, Filter, GROUP_PX, idOf, JOB_PX, Row, rowsOf, TALL_PX, topsOf, visible } from '../src/rows';
import { between } from '../src/selection';
import { JobView } from '../src/wire';
import { job } from './views';

function names(rows: readonly Row[]): string[] {
  return rows.map(row => (row.kind === 'group' ? `# ${row.group} ${row.count}` : (idOf(row) ?? '')));
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

test('that older jobs are left out is said where they would stand, and an array is whole where nothing is filtered out', () => {
  const saidBy = (views: JobView[], older: boolean): string[] =>
    rowsOf(views, 'all', '', 500, new Set(), older).flatMap(row => (row.kind === 'group' && row.older ? [row.group] : []));
  assert.deepEqual(saidBy(JOBS, true), ['earlier']);
  assert.deepEqual(saidBy(JOBS.filter(view => view.id !== 'old'), true), ['today']);
  assert.deepEqual(saidBy(JOBS, false), []);
  const wholes = (filter: Filter, search: string): boolean[] =>
    rowsOf(ELEMENTS, filter, search, 500).flatMap(row => (row.kind === 'array' ? [row.whole] : []));
  assert.deepEqual([wholes('all', ' '), wholes('all', 'lr')], [[true], [false]]);
});

const ELEMENTS = [
  job('e2', { array_id: 'sweep', array_index: 2, position: 3, name: 'lr [2]' }),
  job('e0', { array_id: 'sweep', array_index: 0, phase: 'failed', ended_at: 1000, name: 'lr [0]' }),
  job('e1', { array_id: 'sweep', array_index: 1, phase: 'running', started_at: 4, name: 'lr [1]' })
];

test('the elements of an array are one row where the liveliest of them stands, and come below it when it is opened', () => {
  const all = [...JOBS, ...ELEMENTS];
  assert.deepEqual(names(rowsOf(all, 'all', '', 500)), [
    '# running 3', 'ends', 'sweep', 'runs', '# waiting 3', 'first', 'second', '# today 2', 'done', '# earlier 1', 'old'
  ]);
  const opened = rowsOf(all, 'all', '', 500, new Set(['sweep']));
  assert.deepEqual(names(opened).slice(1, 7), ['ends', 'sweep', 'e0', 'e1', 'e2', 'runs']);
  assert.deepEqual(opened.filter(row => row.kind === 'job' && row.element !== null).map(row => row.group), ['today', 'running', 'waiting']);
});

test('elements that have one name are called by number and values', () => {
  const called = (views: JobView[]): unknown[] =>
    elementRows(views, () => 'running').map(row => (row.kind === 'job' ? row.element : null));
  const alike = [0, 1].map(n => job(`a${n}`, { name: 'fit', array_id: 'x', array_index: n, sweep: { lr: n } }));
  assert.deepEqual(called(alike), ['#0, lr=0', '#1, lr=1']);
  assert.deepEqual(called(ELEMENTS), ['lr [2]', 'lr [0]', 'lr [1]']);
  assert.deepEqual(called([job('b', { name: 'of a batch', array_id: 'x' })]), ['of a batch']);
});

test('an array of which one element is left by a filter is that job', () => {
  assert.deepEqual(names(rowsOf(ELEMENTS, 'waiting', '', 500)), ['# waiting 1', 'e2']);
});

test('an array says how its elements stand; held ones are told by themselves', () => {
  const held = job('e3', { array_id: 'sweep', held: { by: 'ann', cause: null, since: 1 } });
  assert.equal(standing(countsOf([...ELEMENTS, held])), '1 failed · 1 running · 1 queued · 1 held');
  assert.equal(nameOf(ELEMENTS), 'lr');
  assert.equal(nameOf([job('a', { name: 'resnet50' }), job('b', { name: 'resnet50' })]), 'resnet50');
  assert.equal(nameOf([job('a', { name: '0.1' }), job('b', { name: '0.01' })]), '0.1');
  assert.equal(elementOf(job('a', { array_id: 'x', array_index: 0, sweep: { lr: 0.1, kind: 'sgd' } })), '#0, lr=0.1, kind=sgd');
  assert.equal(elementOf(job('a')), '');
});

test('an array names what failed of it, with the reason of the first, and how many more', () => {
  const failed = (index: number): JobView =>
    job(`f${index}`, { array_id: 'sweep', array_index: index, phase: 'failed', exit_code: 3, message: 'no' });
  const two = [...ELEMENTS.slice(2), failed(3), failed(4)];
  assert.equal(failedWords(two, countsOf(two)), 'failed: #3 (exit code 3: no), #4');
  const counted = { count: 900, phases: { failed: 40, timeout: 2 }, held: 0 };
  assert.equal(failedWords(two, counted), 'failed: #3 (exit code 3: no), #4 and 40 more');
  assert.equal(failedWords(ELEMENTS.slice(2), countsOf(ELEMENTS.slice(2))), '');
});

test('what runs again of an array is what ended and did not succeed, named by number', () => {
  const ends = ['succeeded', 'failed', 'running', 'cancelled', 'queued'].map((phase, n) => job(`p${n}`, { phase }));
  assert.deepEqual(toRepeat(ends).map(view => view.id), ['p1', 'p3']);
  assert.equal(rangesOf([12, 0, 3, 2, 1, 9]), '0-3,9,12');
  assert.equal(rangesOf([7]), '7');
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

test('how many jobs of others stand before or between those that wait makes their numbers understood', () => {
  const others = (...views: JobView[]): number[] =>
    rowsOf(views, 'all', '', 500).flatMap(row => (row.kind === 'group' && row.group === 'waiting' ? [row.others] : []));
  assert.deepEqual(others(job('a', { position: 1 }), job('b', { position: 2 })), [0]);
  assert.deepEqual(others(job('a', { position: 3 }), job('b', { position: 5 })), [3]);
  const held = job('c', { position: 9, in_line: false });
  assert.deepEqual(others(job('a', { position: 2 }), held), [1], 'what is held stands in no line');
});

test('an array changes places with jobs and arrays as a whole, its elements with each other', () => {
  const waits = [2, 1].map(n => job(`w${n}`, { array_id: 'grid', array_index: n, position: n + 1, name: `w [${n}]` }));
  const rows = rowsOf([job('first', { position: 1 }), ...waits, job('last', { position: 4 })], 'all', '', 500, new Set(['grid']));
  const beside = (id: string, up: boolean): string | null => {
    const row = rows.find(one => idOf(one) === id) as Row;
    const other = besides(rows, row, up);
    return other === undefined ? null : idOf(other);
  };
  assert.deepEqual([beside('grid', true), beside('grid', false)], ['first', 'last']);
  assert.deepEqual([beside('first', true), beside('first', false)], [null, 'grid']);
  assert.deepEqual([beside('w1', true), beside('w1', false)], [null, 'w2']);
});
