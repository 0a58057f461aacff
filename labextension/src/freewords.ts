// What the status bar says of the cards as a whole. Pure.

import { State } from './state';
import { trans } from './translation';
import { GpuView } from './wire';
import { mib } from './words';

/** The memory that a job of this user could be given on one card now; nothing where nothing new starts. */
export function freeWords({ gpus, alerts }: Pick<State, 'gpus' | 'alerts'>): string {
  if (alerts.some(alert => alert.kind === 'drained')) {
    return trans.__('drained');
  }
  if (!gpus.length) {
    return trans.__('no GPU');
  }
  const known = gpus.filter(gpu => gpu.available_mib !== null);
  const open = known.filter(gpu => !closed(gpu));
  const best = open.reduce<GpuView | null>((a, b) => (room(b) > (a ? room(a) : 0) ? b : a), null);
  const free = mib(known.length ? (best ? room(best) : 0) : null);
  return best && gpus.length > 1 ? trans.__('%1 free on GPU %2', free, best.index) : trans.__('%1 free', free);
}

/** What is free on each card, in a line for each. */
export function freeByCard({ gpus }: Pick<State, 'gpus'>): string {
  return gpus.map(gpu => `GPU ${gpu.index}: ${trans.__('%1 free', mib(closed(gpu) ? 0 : gpu.available_mib))}`).join('\n');
}

function room(gpu: GpuView): number {
  return gpu.available_mib ?? 0;
}

/** Nothing of this user starts there now, whatever is free. */
function closed(gpu: GpuView): boolean {
  return gpu.health.status !== 'ok' || keptForOthers(gpu);
}

/** Hosts of before do not say what is reserved. */
function keptForOthers(gpu: GpuView): boolean {
  return (gpu.reservations ?? []).some(one => one.active && !one.mine);
}
