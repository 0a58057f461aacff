// How a card's memory is divided: who holds how much of it, in MiB, what a job of this user could get, and what is
// free and yet kept back. Pure.

import { trans } from './translation';
import { GpuView, Holder } from './wire';

export type Kind = 'own' | 'others' | 'lease' | 'foreign' | 'releasing' | 'kept' | 'free';

export const KINDS: readonly Kind[] = ['own', 'others', 'lease', 'foreign', 'releasing', 'kept', 'free'];

/** One part of a card's bar; `holder` is null for what nobody admits to, and for what nobody holds. */
export interface Share {
  readonly kind: Kind;
  readonly mib: number;
  readonly holder: Holder | null;
}

/** The parts of a card's bar in the order in which they are drawn; what has no size is left out. */
export function sharesOf(gpu: GpuView, drained = false): Share[] {
  const held: Share[] = gpu.holders.map(holder => ({ kind: kindOf(holder), mib: amountOf(holder), holder }));
  const known = sum(held.filter(share => share.kind === 'foreign'));
  const unnamed = Math.max(0, (gpu.foreign_mib ?? 0) - known);
  const left = Math.max(0, gpu.total_mib - sum(held) - unnamed);
  const free = drained ? 0 : Math.min(left, roomFor(gpu) ?? 0);
  return [
    ...held,
    { kind: 'foreign', mib: unnamed, holder: null } as const,
    { kind: 'kept', mib: left - free, holder: null } as const,
    { kind: 'free', mib: free, holder: null } as const
  ]
    .filter(share => share.mib > 0)
    .sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind));
}

/** What a job of this user could be given on this card now; null where nobody knows. */
export function roomFor(gpu: GpuView): number | null {
  return gpu.health.status !== 'ok' || keptForOthers(gpu) ? 0 : gpu.available_mib;
}

/** Why what nobody holds is not free for a job. */
export function whyKept(gpu: GpuView, drained = false): string {
  return gpu.health.status !== 'ok'
    ? trans.__('this card gets no jobs')
    : drained
      ? trans.__('nothing new starts on this machine')
      : keptForOthers(gpu)
        ? trans.__('reserved')
        : gpu.available_mib === null
          ? trans.__('what is in use is not known')
          : trans.__('for the driver and as headroom');
}

/** Hosts of before do not say what is reserved. */
function keptForOthers(gpu: GpuView): boolean {
  return (gpu.reservations ?? []).some(one => one.active && !one.mine);
}

function kindOf(holder: Holder): Kind {
  if (holder.kind === 'foreign') {
    return 'foreign';
  }
  if (holder.state === 'releasing') {
    return 'releasing';
  }
  if (holder.kind === 'lease') {
    return 'lease';
  }
  return holder.mine ? 'own' : 'others';
}

/** What a grant takes from others: its promise, or what it uses beyond that. */
function amountOf(holder: Holder): number {
  const used = holder.vram_mib ?? 0;
  return holder.state === 'releasing' ? used : Math.max(used, holder.promised_mib ?? 0);
}

function sum(shares: readonly Share[]): number {
  return shares.reduce((total, share) => total + share.mib, 0);
}
