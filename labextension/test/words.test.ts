// Jobs and cards in plain words.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { sharesOf, whyKept } from '../src/shares';
import { speak, trans } from '../src/translation';
import { GpuView } from '../src/wire';
import { expected, hasSentence, holding, lasted, little, mib, moment, phaseName, progressed, reserved, seconds, sentence, wants } from '../src/words';
import { gpu, holder, job } from './views';

test('missing is n/a and never zero', () => {
  assert.equal(mib(null), 'n/a');
  assert.equal(mib(0), '0.0G');
  assert.equal(little(17), '17 MiB');
  assert.equal(little(2048), '2.0G');
});

test('spans are told as a person would', () => {
  assert.deepEqual([5, 65, 3700, 90000].map(seconds), ['5s', '1m05s', '1h01m', '1d01h']);
});

test('a moment has its day where that is not today, and seconds where they are asked for', () => {
  const at = new Date(2026, 2, 2, 19, 32, 7).getTime() / 1000;
  assert.match(moment(at, at), /^\d+:32\b(?!:)/);
  assert.match(moment(at, at, true), /^\d+:32:07\b/);
  assert.match(moment(at, at + 86400, true), /2026.* \d+:32:07\b/);
});

test('what a job asks for', () => {
  assert.equal(wants(job('a')), '4.0G on 1 GPU');
  assert.equal(wants(job('a', { gpus_requested: 2 })), '4.0G on each of 2 GPUs');
  assert.equal(wants(job('a', { gpus_requested: 2, vram_mib: null })), '2 whole GPUs');
  assert.equal(wants(job('a', { gpus_requested: 0 })), 'no GPU');
});

test('whether there is something to say is known without saying it', () => {
  const views = [
    job('a', { waiting: null }),
    job('a', { waiting: '', position: null }),
    job('a', { waiting: '', position: 3 }),
    job('a', { waiting: '', position: 3, in_line: false }),
    job('a', { phase: 'running' }),
    job('a', { phase: 'running', overuse_mib: 12 }),
    job('a', { phase: 'succeeded', exit_code: 0, message: 'well' }),
    job('a', { phase: 'failed', exit_code: null }),
    job('a', { phase: 'failed', exit_code: null, message: '', reason: 'lost' }),
    job('a', { phase: 'failed', exit_code: 3 }),
    job('a', { phase: 'cancelled', exit_code: null, signal: 9 }),
    job('a', { phase: 'lost', exit_code: null, reason: 'rebooted' })
  ];
  assert.deepEqual(views.map(hasSentence), views.map(view => sentence(view) !== ''));
  assert.equal(new Set(views.map(hasSentence)).size, 2);
});

test('a waiting job says why, where it stands and when it is expected to start', () => {
  const waits = job('a', { waiting: 'needs 4G', position: 3, estimated_start: 160 });
  assert.equal(sentence(waits), 'needs 4G (number 3 in the queue)');
  const held = job('a', { waiting: 'held by ann', position: 4, in_line: false, held: { by: 'ann', cause: null, since: 1 } });
  assert.equal(sentence(held), 'held by ann');
  const at = new Date(2026, 2, 2, 14, 20).getTime() / 1000;
  const told = job('a', { estimated_start: at, estimated_start_range: [at - 1800, at + 3000] });
  const [about, from, to] = [at, at - 1800, at + 3000].map(one => moment(one, at));
  assert.equal(expected(told, at), `starts at about ${about} (${from} to ${to})`);
  const tomorrow = expected(told, at - 86400);
  assert.equal(tomorrow, `starts at about ${moment(at, at - 86400)} (${from} to ${to})`, 'the day is said once');
  const one = job('a', { estimated_start: at, estimated_start_range: [at, at + 20] });
  assert.equal(expected(one, at), `starts at about ${about}`, 'one minute is no range');
  assert.equal(expected(job('a', { estimated_start: null }), at), '');
  assert.equal(lasted(waits, 130), 'waiting for 30s');
});

test('an ended job says how, and one that succeeded need not', () => {
  assert.equal(sentence(job('a', { phase: 'failed', exit_code: 3, message: 'no such file' })), 'exit code 3: no such file');
  assert.equal(sentence(job('a', { phase: 'failed', exit_code: 3, message: 'ended with exit code 3' })), 'ended with exit code 3');
  assert.equal(sentence(job('a', { phase: 'lost', signal: 9, reason: 'vanished' })), 'signal 9: vanished');
  assert.equal(sentence(job('a', { phase: 'succeeded', exit_code: 0 })), '');
});

test('a running job says how far it has come, and one that has ended no more', () => {
  const progress = { fraction: 0.425, done: 4, total: 9, text: '', remaining_s: 90 };
  assert.equal(progressed(job('a', { phase: 'running', progress })), '43 %, 1m30s left');
  assert.equal(progressed(job('a', { phase: 'running', progress: { ...progress, remaining_s: null } })), '43 %');
  assert.equal(progressed(job('a', { phase: 'failed', progress })), '');
});

test('a phase of a newer server is shown as it is', () => {
  assert.equal(phaseName('hibernating'), 'hibernating');
});

test('a card is divided among its holders, and of what is left only what a job could get is free', () => {
  const card = gpu({
    available_mib: 11000,
    foreign_mib: 3072,
    holders: [
      holder({ kind: 'foreign', state: null, pid: 7, vram_mib: 1024 }),
      holder({ job_id: 'mine0001', mine: true, promised_mib: 4096, vram_mib: 6144 }),
      holder({ user: 'bob', promised_mib: 2048, vram_mib: 100 }),
      holder({ kind: 'lease', promised_mib: 1024 }),
      holder({ state: 'releasing', promised_mib: 9999, vram_mib: 512 })
    ]
  });
  assert.deepEqual(
    sharesOf(card).map(share => [share.kind, share.mib]),
    [['own', 6144], ['others', 2048], ['lease', 1024], ['foreign', 1024], ['foreign', 2048], ['releasing', 512], ['kept', 776], ['free', 11000]]
  );
});

test('where no job of this user starts, nothing is free, and it is said why', () => {
  const parts = (card: GpuView, drained = false): string => sharesOf(card, drained).map(({ kind }) => kind).join();
  const ill = gpu({ health: { status: 'quarantined', cause: 'a fan is loud', since: 1, by: 'root' } });
  assert.equal(parts(gpu()), 'free');
  assert.equal(parts(ill), 'kept');
  assert.equal(whyKept(ill), 'this card gets no jobs');
  assert.equal(parts(gpu(), true), 'kept');
  assert.equal(whyKept(gpu(), true), 'nothing new starts on this machine');
  const unread = gpu({ available_mib: null });
  assert.equal(parts(unread), 'kept');
  assert.equal(whyKept(unread), 'what is in use is not known');
  assert.equal(whyKept(gpu()), 'for the driver and as headroom');
});

test("another user's holding has the name of the user and of nothing else", () => {
  const words = holding(holder({ user: 'bob', promised_mib: 2048, vram_mib: 1024 }), 2048, 0);
  assert.equal(words, 'a job of bob · 2.0G · uses 1.0G');
  assert.match(holding(holder({ kind: 'foreign', pid: 42, user: null, vram_mib: 1 }), 1024, 0), /outside the queue: process 42/);
});

test('words come in the language of the page, with numbers put in', () => {
  const german = { __: (text: string, ...args: string[]) => `de:${text}:${args.join()}`, _n: () => 'viele' };
  speak({ load: () => german } as never);
  assert.equal(trans.__('%1 free', 3), 'de:%1 free:3');
  assert.equal(trans._n('%1 job', '%1 jobs', 2), 'viele');
  speak(null);
  assert.equal(trans._n('%1 job', '%1 jobs', 2), '2 jobs');
});

test('a reservation says for whom, when and why, and who may still be there', () => {
  const at = new Date(2026, 2, 2, 13, 0).getTime() / 1000;
  const one = {
    id: 'r', user: 'ann', count: 1, gpus: [], start: at, end: at + 4 * 3600, zone: 'UTC', by: 'root', cause: 'demo',
    active: false, reaching_in: 0, mine: false
  };
  const [from, to] = [one.start, one.end].map(moment_ => moment(moment_, at));
  assert.equal(reserved(one, at), `Reserved for ann, ${from} to ${to} · demo`);
  assert.equal(
    reserved({ ...one, user: null, cause: null, active: true, reaching_in: 2 }, at),
    `Reserved for work outside the queue, until ${to} · 2 other jobs may still run there`
  );
});
