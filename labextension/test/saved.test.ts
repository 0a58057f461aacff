// What a notebook's file says of a job is taken only in the shape that the card reads.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { savedView } from '../src/saved';

const VIEW = {
  id: 'zzzzzzzz', name: 'n', phase: 'failed', kind: 'cell', gpus_requested: 1, vram_mib: 1024, peak_vram_mib: null,
  started_at: 1, ended_at: 2, exit_code: 1, signal: null, waiting: null, message: null, reason: null, gpus: [],
  attempts: []
};

test('a card of an older version is taken, and what it lacks is unknown', () => {
  const view = savedView(VIEW, 'zzzzzzzz');
  assert.equal(view?.time_limit_s, null);
  assert.equal(view?.advice, null);
  assert.equal(view?.progress, null);
});

test('what has another shape is left out', () => {
  const bad = [null, 7, 'x', [], { ...VIEW, id: 'other' }, { ...VIEW, name: {} }, { ...VIEW, gpus: [null] },
    { ...VIEW, gpus: 'x' }, { ...VIEW, attempts: null }, { ...VIEW, vram_mib: '1' }];
  for (const data of bad) {
    assert.equal(savedView(data, 'zzzzzzzz'), null, JSON.stringify(data));
  }
});

test('fields that are read without a look at their kind are made harmless', () => {
  const view = savedView({ ...VIEW, progress: { fraction: {} }, advice: {}, time_limit_s: '1', estimated_start: [] }, 'zzzzzzzz');
  assert.deepEqual([view?.progress, view?.advice, view?.time_limit_s, view?.estimated_start], [null, null, null, null]);
});
