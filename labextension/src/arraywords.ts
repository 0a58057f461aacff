// The elements of an array as a whole, in plain words.

import { trans } from './translation';
import { JobView } from './wire';
import { isHeld, phaseName } from './words';

/** The name that its elements have in common. */
export function nameOf(views: readonly JobView[]): string {
  return (views[0]?.name ?? '').replace(/\s*\[\d+\]$/, '');
}

const ORDER = ['running', 'starting', 'stopping', 'queued', 'succeeded', 'failed', 'timeout', 'lost', 'cancelled'];

/** How many of its elements are in which phase; those that are held by themselves. */
export function standing(views: readonly JobView[]): string {
  const counts = new Map<string, number>();
  for (const view of views) {
    if (!isHeld(view)) {
      counts.set(view.phase, (counts.get(view.phase) ?? 0) + 1);
    }
  }
  const held = views.filter(isHeld).length;
  const place = (phase: string): number => (ORDER.indexOf(phase) + ORDER.length + 1) % (ORDER.length + 1);
  const told = [...counts].sort(([a], [b]) => place(a) - place(b)).map(([phase, many]) => `${many} ${phaseName(phase)}`);
  return [...told, ...(held ? [trans.__('%1 held', held)] : [])].join(' · ');
}
