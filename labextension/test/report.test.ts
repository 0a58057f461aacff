// What users had, in any order and as CSV.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { columns, csv, sorted } from '../src/report';
import { isStrange, NOTHING, ownJobs } from '../src/state';
import { Health, UserReport } from '../src/wire';
import { job } from './views';

function user(name: string, more: Partial<UserReport> = {}): UserReport {
  return {
    user: name, jobs: 1, queued: 0, running: 0, succeeded: 1, failed: 0, cancelled: 0, timeout: 0, lost: 0,
    gpu_hours: 0, mean_wait_s: null, longest_wait_s: null, idle_share: null, ...more
  };
}

const USERS = [user('bob', { gpu_hours: 2 }), user('ann', { gpu_hours: 2, mean_wait_s: 5 }), user('eve', { mean_wait_s: 70 })];

function order(column: string, down: boolean): string[] {
  const by = columns().find(({ name }) => name === column);
  return sorted(USERS, by, down).map(one => one.user);
}

test('a report is sorted by any column, equals by name, and what is not known comes last', () => {
  assert.deepEqual(order('GPU hours', true), ['ann', 'bob', 'eve']);
  assert.deepEqual(order('User', false), ['ann', 'bob', 'eve']);
  assert.deepEqual(order('Mean wait', true), ['eve', 'ann', 'bob']);
  assert.deepEqual(order('Mean wait', false), ['ann', 'eve', 'bob']);
});

test('failures are all that did not end well by themselves, and unknown waits are no zero', () => {
  const shown = columns().map(({ shown: show }) => show(user('x', { failed: 1, timeout: 2, lost: 3 })));
  assert.deepEqual(shown, ['x', '0.0', 'n/a', '1', '6', '0', '0', 'n/a', 'n/a']);
});

test('a CSV keeps hostile names in their cell and from being a formula', () => {
  const lines = csv([user('=cmd|x'), user('a,"b"\n'), user('ann', { mean_wait_s: 1.5, idle_share: 0.25 })]).split('\r\n');
  assert.equal(lines[0], 'User,GPU hours,Idle,Jobs,Failed,Running,Waiting,Mean wait,Longest wait');
  assert.equal(lines[1], "'=cmd|x,0,,1,0,0,0,,");
  assert.equal(lines[2], '"a,""b""\n",0,,1,0,0,0,,');
  assert.equal(lines[3], 'ann,0,0.25,1,0,0,0,1.5,');
});

test("others' jobs that an administrator has looked at are not among the own ones", () => {
  const health = { user: 'ann' } as Health;
  const jobs = new Map([job('mine'), job('his', { user: 'bob' })].map(view => [view.id, view]));
  assert.equal(isStrange(job('his', { user: 'bob' }), null), false);
  assert.deepEqual([...ownJobs({ ...NOTHING, jobs, health }).keys()], ['mine']);
  assert.equal(ownJobs({ ...NOTHING, jobs, health }), ownJobs({ ...NOTHING, jobs, health }));
  assert.equal(ownJobs({ ...NOTHING, jobs }), jobs);
});
