// What the status bar says of the cards as a whole. Pure.

import { roomFor } from './shares';
import { State } from './state';
import { trans } from './translation';
import { GpuView } from './wire';
import { mib } from './words';

/** The memory that a job of this user could be given on one card now; nothing where nothing new starts. */
export function freeWords({ gpus, alerts }: Pick<State, 'gpus' | 'alerts'>): string {
  if (isDrained(alerts)) {
    return trans.__('drained');
  }
  if (!gpus.length) {
    return trans.__('no GPU');
  }
  const known = gpus.filter(gpu => gpu.available_mib !== null);
  const best = known.reduce<GpuView | null>((a, b) => (room(b) > (a ? room(a) : 0) ? b : a), null);
  const free = mib(known.length ? (best ? room(best) : 0) : null);
  return best && gpus.length > 1 ? trans.__('%1 free on GPU %2', free, best.index) : trans.__('%1 free', free);
}

/** What is free on each card, in a line for each. */
export function freeByCard({ gpus }: Pick<State, 'gpus'>): string {
  return gpus.map(gpu => `GPU ${gpu.index}: ${trans.__('%1 free', mib(roomFor(gpu)))}`).join('\n');
}

function room(gpu: GpuView): number {
  return roomFor(gpu) ?? 0;
}

/** Whether nothing new starts on this machine. */
export function isDrained(alerts: State['alerts']): boolean {
  return alerts.some(alert => alert.kind === 'drained');
}
