// What frames make of a tab's picture of the queue.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { apply, endedBetween, Frame, merge, MOST_ENDED, MOST_SAMPLES, NOTHING, repeatsOf, State, withHistory } from '../src/state';
import { Alert } from '../src/wire';
import { gpu, job } from './views';

function snapshot(more: Partial<Extract<Frame, { type: 'snapshot' }>> = {}): Frame {
  return { type: 'snapshot', seq: 5, jobs: [], gpus: [gpu()], connected: true, ...more };
}

function begun(...jobs: ReturnType<typeof job>[]): State {
  return apply(NOTHING, [snapshot({ jobs })]);
}

test('a snapshot makes everything known', () => {
  const state = begun(job('a'));
  assert.equal(state.known, true);
  assert.equal(state.connected, true);
  assert.equal(state.seq, 5);
  assert.deepEqual([...state.jobs.keys()], ['a']);
});

test('a frame never changes the state it is applied to', () => {
  const before = begun(job('a'));
  apply(before, [{ type: 'job', seq: 6, event: 'placed', job: job('a', { phase: 'running' }) }]);
  assert.equal(before.jobs.get('a')?.phase, 'queued');
});

test('an event is taken in once, however often it comes', () => {
  const state = apply(begun(job('a', { phase: 'running' })), [
    { type: 'job', seq: 4, event: 'submitted', job: job('a') },
    { type: 'job', seq: 5, event: 'submitted', job: job('a') }
  ]);
  assert.equal(state.jobs.get('a')?.phase, 'running');
  assert.equal(state.seq, 5);
});

test('a deleted job is gone', () => {
  const state = apply(begun(job('a')), [{ type: 'job', seq: 6, event: 'deleted', job: job('a') }]);
  assert.equal(state.jobs.size, 0);
});

test('fresh words reach waiting jobs only', () => {
  const state = apply(begun(job('a'), job('b', { phase: 'running' })), [
    { type: 'queue', waiting: ['no room'], places: [['a', 2, 90, 0, [80, 120]], ['b', 1, null, 0, null], ['c', 3, null, null, null]] }
  ]);
  assert.deepEqual(
    [state.jobs.get('a')?.waiting, state.jobs.get('a')?.position, state.jobs.get('a')?.estimated_start],
    ['no room', 2, 90]
  );
  assert.deepEqual(state.jobs.get('a')?.estimated_start_range, [80, 120]);
  assert.equal(state.jobs.get('b')?.waiting, null);
  assert.equal(state.jobs.has('c'), false);
});

test('frames that say nothing of jobs leave their map as it is, so that lists are not drawn anew', () => {
  const before = begun(job('a'));
  const after = apply(before, [{ type: 'gpus', gpus: [gpu({ sampled_at: 2 })] }]);
  assert.equal(after.jobs, before.jobs);
});

test('the newest ended jobs are kept, and those that are shown', () => {
  const ended = Array.from({ length: MOST_ENDED + 10 }, (_, n) => job(`j${n}`, { phase: 'succeeded', ended_at: n }));
  const state = merge(NOTHING, [...ended, job('w')], 'newer', new Set(['j0']));
  assert.equal(state.jobs.size, MOST_ENDED + 2);
  assert.ok(state.older);
  assert.ok(!begun(job('a')).older);
  assert.deepEqual([state.jobs.has('j0'), state.jobs.has('j1'), state.jobs.has('w')], [true, false, true]);
});

test('an older answer does not overwrite what is known', () => {
  const state = merge(begun(job('a', { phase: 'running' })), [job('a'), job('b')], 'older');
  assert.deepEqual([state.jobs.get('a')?.phase, state.jobs.get('b')?.phase], ['running', 'queued']);
});

test('ends are told of jobs that were seen going on', () => {
  const before = begun(job('a', { phase: 'running' }), job('b'), job('c', { phase: 'failed' }));
  const after = apply(before, [
    { type: 'job', seq: 6, event: 'exited', job: job('a', { phase: 'succeeded' }) },
    { type: 'job', seq: 7, event: 'exited', job: job('c', { phase: 'failed' }) },
    { type: 'job', seq: 8, event: 'exited', job: job('new', { phase: 'failed' }) }
  ]);
  assert.deepEqual(endedBetween(before, after).map(view => view.id), ['a']);
});

test('the end of a job that began and ended in frames taken in together is told too, but not that of an echo', () => {
  const frames: Frame[] = [
    { type: 'job', seq: 6, event: 'submitted', job: job('quick') },
    { type: 'job', seq: 7, event: 'exited', job: job('quick', { phase: 'failed' }) }
  ];
  const before = begun();
  assert.deepEqual(endedBetween(before, apply(before, frames), frames).map(view => view.id), ['quick']);
  const told = snapshot({ seq: 7, jobs: [job('quick', { phase: 'failed' })] });
  assert.deepEqual(endedBetween(NOTHING, apply(NOTHING, [told, ...frames]), [told, ...frames]), []);
});

test('samples of cards are gathered, bounded, and each once', () => {
  const frames: Frame[] = Array.from({ length: MOST_SAMPLES + 50 }, (_, n) => ({
    type: 'gpus',
    gpus: [gpu({ sampled_at: n, used_mib: n })]
  }));
  const state = apply(begun(), [...frames, ...frames.slice(-1)]);
  const samples = state.history.get('GPU-0') ?? [];
  assert.equal(samples.length, MOST_SAMPLES);
  assert.equal(samples[samples.length - 1]?.at, MOST_SAMPLES + 49);
  assert.equal(new Set(samples.map(sample => sample.at)).size, MOST_SAMPLES);
});

test('what the host remembers of a card comes before what this tab has seen', () => {
  const state = withHistory(begun(), new Map([['GPU-0', [
    { at: 0, used_mib: 7, utilization_pct: null },
    { at: 1, used_mib: 8, utilization_pct: null }
  ]]]));
  assert.deepEqual(state.history.get('GPU-0')?.map(sample => [sample.at, sample.used_mib]), [[0, 7], [1, 0]]);
});

test('an alert stands until it is resolved, and a snapshot tells all of them', () => {
  const alert: Alert = {
    id: 'x', kind: 'driver', message: 'm', since: 1, gpu_uuid: null, gpu_index: null, job_id: null, user: null,
    hint: null, severity: 'error'
  };
  const raised = apply(begun(), [{ type: 'alert', event: 'raised', alert }, { type: 'alert', event: 'raised', alert }]);
  assert.equal(raised.alerts.length, 1);
  assert.equal(apply(raised, [{ type: 'alert', event: 'resolved', alert }]).alerts.length, 0);
  assert.equal(apply(raised, [snapshot()]).alerts.length, 0);
});

test('an hour of frames leaves no more than a bounded state', () => {
  let state = begun();
  for (let n = 0; n < 3600; n++) {
    state = apply(state, [
      { type: 'gpus', gpus: [gpu({ sampled_at: n })] },
      { type: 'job', seq: 10 + n, event: 'exited', job: job(`j${n}`, { phase: 'succeeded', ended_at: n }) },
      { type: 'outputs', job_id: `j${n}`, attempt: 1, next: n, log_size: n }
    ]);
  }
  assert.equal(state.jobs.size, MOST_ENDED);
  assert.ok(state.reaches.size <= MOST_ENDED + 1);
  assert.equal(state.history.get('GPU-0')?.length, MOST_SAMPLES);
});

test('what was made of a job by running it again is found over all generations, oldest first', () => {
  const again = (id: string, parent_id: string, submitted_at: number): [string, ReturnType<typeof job>] =>
    [id, job(id, { parent_id, submitted_at })];
  const jobs = new Map([['a', job('a')], again('c', 'b', 9), again('b', 'a', 5), again('x', 'y', 1), again('d', 'a', 7)]);
  assert.deepEqual(repeatsOf(jobs, 'a'), ['b', 'd', 'c']);
  assert.deepEqual(repeatsOf(jobs, 'x'), []);
});
