// What is told of jobs that have ended.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { newsOf } from '../src/endwords';
import { JobView } from '../src/wire';
import { job } from './views';

const notCancelled = (view: JobView): boolean => view.phase !== 'cancelled';

function elements(...phases: string[]): JobView[] {
  return phases.map((phase, n) => job(`e${n}`, { name: `sweep [${n}]`, array_id: 'array', array_index: n, phase }));
}

function words(ended: readonly JobView[], known: readonly JobView[] = ended): string[] {
  return newsOf(ended, known, notCancelled).news.map(one => one.words);
}

test('the elements of an array that end one after the other are told of once, when the last has ended', () => {
  let kept: JobView[] = [];
  const told: string[] = [];
  for (let n = 0; n < 6; n++) {
    const known = elements(...Array.from({ length: 6 }, (_, at) => (at <= n ? 'succeeded' : 'queued')));
    const found = newsOf([...kept, known[n] as JobView], known, notCancelled);
    kept = found.kept;
    told.push(...found.news.map(one => one.words));
  }
  assert.deepEqual(told, ['Array sweep: 6 jobs have ended, all succeeded']);
  assert.deepEqual(kept, []);
});

test('an array counts elements that the page knows no more, and those that had ended before it was opened', () => {
  const all = elements('succeeded', 'failed', 'succeeded', 'succeeded');
  const { news } = newsOf(all.slice(0, 2), all.slice(1), notCancelled);
  assert.deepEqual(news, [
    { words: 'Array sweep: 4 jobs have ended, 1 failed, 3 succeeded', type: 'warning', job: 'e1' }
  ]);
});

test('an array whose last elements the user cancelled is told of only if another end is news', () => {
  assert.deepEqual(words(elements('cancelled', 'cancelled')), []);
  assert.deepEqual(words(elements('succeeded', 'cancelled')), [
    'Array sweep: 2 jobs have ended, 1 succeeded, 1 cancelled'
  ]);
});

test('an array of one is told of as the job that it is', () => {
  assert.deepEqual(words(elements('succeeded')), ['GPU job sweep [0]: succeeded']);
});

test('a few jobs are told of singly and many that end at once together', () => {
  const many = [1, 2, 3, 4, 5].map(n => job(`j${n}`, { phase: 'succeeded' }));
  assert.equal(words(many.slice(0, 3)).length, 3);
  assert.deepEqual(words(many), ['5 GPU jobs have ended; all succeeded.']);
  const some = [...many.slice(0, 4), job('x', { phase: 'failed' })];
  assert.deepEqual(words(some), ['5 GPU jobs have ended; 1 failed, 4 succeeded.']);
});
