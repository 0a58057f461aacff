// The seconds in which the end of a job can be taken back: nothing is sent until they are over.
// Kept here and not in a button, since a card may be drawn anew or scrolled away meanwhile. A page
// that is left sends at once what it was asked for.

import { cancelOnLeaving } from './api';
import { store } from './store';

export const UNDO_S = 5;

interface Wish {
  /** Milliseconds since the epoch; null once it was sent. */
  readonly due: number | null;
  readonly timer: number;
  readonly trouble: string | null;
}

let wishes: ReadonlyMap<string, Wish> = new Map();
const viewers = new Set<() => void>();

export function subscribe(viewer: () => void): () => void {
  viewers.add(viewer);
  return () => viewers.delete(viewer);
}

export function current(): ReadonlyMap<string, Wish> {
  return wishes;
}

export function wishToCancel(id: string): void {
  const wish = wishes.get(id);
  if (!wish || wish.trouble !== null) {
    const timer = window.setTimeout(() => void send(id), UNDO_S * 1000);
    note(id, { due: Date.now() + UNDO_S * 1000, timer, trouble: null });
  }
}

export function takeBack(id: string): void {
  window.clearTimeout(wishes.get(id)?.timer);
  note(id, null);
}

async function send(id: string): Promise<void> {
  note(id, { due: null, timer: 0, trouble: null });
  try {
    await store.cancel(id);
    note(id, null);
  } catch (error) {
    note(id, { due: null, timer: 0, trouble: error instanceof Error ? error.message : String(error) });
  }
}

function note(id: string, wish: Wish | null): void {
  const changed = new Map(wishes);
  changed.delete(id);
  if (wish) {
    changed.set(id, wish);
  }
  wishes = changed;
  viewers.forEach(viewer => viewer());
}

window.addEventListener('pagehide', () => {
  for (const [id, wish] of wishes) {
    if (wish.due !== null) {
      cancelOnLeaving(id);
      takeBack(id);
    }
  }
});
