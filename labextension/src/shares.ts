// How a card's memory is divided: who holds how much of it, in MiB, and what is free. Pure.

import { GpuView, Holder } from './wire';

export type Kind = 'own' | 'others' | 'lease' | 'foreign' | 'releasing' | 'free';

export const KINDS: readonly Kind[] = ['own', 'others', 'lease', 'foreign', 'releasing', 'free'];

/** One part of a card's bar; `holder` is null for what nobody admits to, and for what is free. */
export interface Share {
  readonly kind: Kind;
  readonly mib: number;
  readonly holder: Holder | null;
}

/** The parts of a card's bar in the order in which they are drawn; what has no size is left out. */
export function sharesOf(gpu: GpuView): Share[] {
  const held: Share[] = gpu.holders.map(holder => ({ kind: kindOf(holder), mib: amountOf(holder), holder }));
  const known = sum(held.filter(share => share.kind === 'foreign'));
  const unnamed = Math.max(0, (gpu.foreign_mib ?? 0) - known);
  const taken = sum(held) + unnamed;
  return [
    ...held,
    { kind: 'foreign', mib: unnamed, holder: null } as const,
    { kind: 'free', mib: Math.max(0, gpu.total_mib - taken), holder: null } as const
  ]
    .filter(share => share.mib > 0)
    .sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind));
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
