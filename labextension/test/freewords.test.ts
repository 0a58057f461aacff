// What the status bar says of the cards.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { freeByCard, freeWords } from '../src/freewords';
import { Alert, Reservation } from '../src/wire';
import { gpu } from './views';

function reservation(more: Partial<Reservation> = {}): Reservation {
  return {
    id: 'r', user: 'bob', count: 1, gpus: [], start: 0, end: 1, zone: 'UTC', by: 'root', cause: null,
    active: true, reaching_in: 0, mine: false, ...more
  };
}

function free(...reservations: Reservation[]): string {
  return freeWords({ gpus: [gpu({ available_mib: 12288 }), gpu({ index: 1, reservations })], alerts: [] });
}

test('a card that is kept for others now is not free, one that is kept for me or kept later is', () => {
  assert.equal(free(), '24.0G free on GPU 1');
  assert.equal(free(reservation()), '12.0G free on GPU 0');
  assert.equal(free(reservation({ user: null })), '12.0G free on GPU 0');
  assert.equal(free(reservation({ mine: true })), '24.0G free on GPU 1');
  assert.equal(free(reservation({ active: false })), '24.0G free on GPU 1');
});

test('a card that gets no jobs has nothing free', () => {
  const health = { status: 'quarantined', cause: 'a fan is loud', since: 1, by: 'root' };
  assert.equal(freeWords({ gpus: [gpu({ health }), gpu({ index: 1 })], alerts: [] }), '24.0G free on GPU 1');
});

test('nothing is called free on a machine where nothing new starts', () => {
  const alert: Alert = {
    id: 'drained', kind: 'drained', message: 'm', since: 1, gpu_uuid: null, gpu_index: null, job_id: null, user: null,
    hint: null, severity: 'warning'
  };
  assert.equal(freeWords({ gpus: [gpu()], alerts: [alert] }), 'drained');
  assert.equal(freeWords({ gpus: [gpu()], alerts: [{ ...alert, kind: 'overuse' }] }), '24.0G free');
});

test('where no card has room, none is named; where one points, each says what it has', () => {
  const gpus = [gpu({ available_mib: 0 }), gpu({ index: 1, available_mib: 0 })];
  assert.equal(freeWords({ gpus, alerts: [] }), '0.0G free');
  const kept = gpu({ index: 1, reservations: [reservation()] });
  const told = freeByCard({ gpus: [gpu({ available_mib: 2048 }), kept, gpu({ index: 2, available_mib: null })] });
  assert.equal(told, 'GPU 0: 2.0G free\nGPU 1: 0.0G free\nGPU 2: n/a free');
});

test('without cards, or with cards that say nothing, no figure is made up', () => {
  assert.equal(freeWords({ gpus: [], alerts: [] }), 'no GPU');
  assert.equal(freeWords({ gpus: [gpu({ available_mib: null })], alerts: [] }), 'n/a free');
});
