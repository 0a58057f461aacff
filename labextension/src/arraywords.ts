// The elements of an array as a whole, in plain words.

import { trans } from './translation';
import { JobView } from './wire';
import { isHeld, phaseName, textOf } from './words';

/** What the names of its elements have in common, without the figures that they end with where they differ. */
export function nameOf(views: readonly JobView[]): string {
  const first = views[0]?.name ?? '';
  let common = first.length;
  for (const { name } of views) {
    while (!name.startsWith(first.slice(0, common))) {
      common -= 1;
    }
  }
  const same = views.every(({ name }) => name === first);
  return same ? first : first.slice(0, common).replace(/[\s\d[({=_.,:#-]+$/, '') || first;
}

/** Which element of its array a job is, and the values that it was given there: `#2, lr=0.1`. */
export function elementOf(view: Pick<JobView, 'array_id' | 'array_index' | 'sweep'>): string {
  const values = Object.entries(view.sweep ?? {}).map(([name, value]) => `${name}=${textOf(value)}`);
  const index = view.array_id === null || (view.array_index ?? null) === null ? [] : [`#${view.array_index}`];
  return [...index, ...values].join(', ');
}

const ORDER = ['running', 'starting', 'stopping', 'queued', 'succeeded', 'failed', 'timeout', 'lost', 'cancelled'];

/** How many of its elements are in which phase; those that are held by themselves. */
export function standing(views: readonly JobView[]): string {
  const held = views.filter(isHeld).length;
  return [...tally(views), ...(held ? [trans.__('%1 held', held)] : [])].join(' · ');
}

/** How many jobs are in which phase, without those that are held. */
export function tally(views: readonly JobView[]): string[] {
  const counts = new Map<string, number>();
  for (const view of views) {
    if (!isHeld(view)) {
      counts.set(view.phase, (counts.get(view.phase) ?? 0) + 1);
    }
  }
  const place = (phase: string): number => (ORDER.indexOf(phase) + ORDER.length + 1) % (ORDER.length + 1);
  return [...counts].sort(([a], [b]) => place(a) - place(b)).map(([phase, many]) => `${many} ${phaseName(phase)}`);
}
