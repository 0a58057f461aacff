// What the status bar says of the cards as a whole. Pure.

import { State } from './state';
import { trans } from './translation';
import { GpuView } from './wire';
import { mib } from './words';

/** The memory that a job of this user could be given now; nothing where nothing new starts. */
export function freeWords({ gpus, alerts }: Pick<State, 'gpus' | 'alerts'>): string {
  if (alerts.some(alert => alert.kind === 'drained')) {
    return trans.__('drained');
  }
  if (!gpus.length) {
    return trans.__('no GPU');
  }
  const known = gpus.filter(gpu => gpu.available_mib !== null);
  const open = known.filter(gpu => gpu.health.status === 'ok' && !keptForOthers(gpu));
  const free = open.reduce((total, gpu) => total + (gpu.available_mib ?? 0), 0);
  return trans.__('%1 free', mib(known.length ? free : null));
}

/** Hosts of before do not say what is reserved. */
function keptForOthers(gpu: GpuView): boolean {
  return (gpu.reservations ?? []).some(one => one.active && !one.mine);
}
