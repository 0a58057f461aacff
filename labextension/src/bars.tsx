// One bar per GPU: what is promised to your jobs and to others', used by strangers, being released, and free.

import * as React from 'react';

import { GpuView, Holder } from './wire';
import { figures, mib, SIMULATED } from './words';

type Part = 'own' | 'others' | 'foreign' | 'releasing' | 'free';

const NAMES: Record<Part, string> = {
  own: 'your jobs',
  others: "others' jobs",
  foreign: 'outside the queue',
  releasing: 'being freed',
  free: 'free'
};

const ORDER: Part[] = ['own', 'others', 'foreign', 'releasing', 'free'];

export function Bars(props: { gpus: readonly GpuView[]; cause: string | null }): JSX.Element {
  if (!props.gpus.length) {
    return (
      <p className="gpusched-none" data-testid="gpusched-no-gpu">
        No GPU can be used here: {props.cause ?? 'none was found.'}
      </p>
    );
  }
  const present = new Set(props.gpus.flatMap(gpu => [...parts(gpu).keys()]));
  return (
    <>
      <ul className="gpusched-gpus">
        {props.gpus.map(gpu => (
          <Bar key={gpu.uuid} gpu={gpu} />
        ))}
      </ul>
      <Legend parts={ORDER.filter(part => present.has(part))} />
    </>
  );
}

function Bar({ gpu }: { gpu: GpuView }): JSX.Element {
  const shares = parts(gpu);
  const words = [...shares].map(([part, amount]) => `${NAMES[part]} ${mib(amount)}`).join(', ');
  const titleId = `gpusched-${gpu.uuid}`;
  return (
    <li className="gpusched-gpu" data-testid="gpusched-gpu" data-uuid={gpu.uuid} aria-labelledby={titleId}>
      <div className="gpusched-head">
        <span id={titleId}>
          <b>GPU {gpu.index}</b> {gpu.name}
        </span>
        {gpu.simulated && <Simulated />}
      </div>
      <div className="gpusched-bar" role="img" aria-label={words} title={words}>
        {[...shares].map(([part, amount]) => (
          <span key={part} className={`gpusched-part gpusched-${part}`} style={{ flexGrow: amount }} />
        ))}
      </div>
      <div className="gpusched-facts">{figures(gpu)}</div>
      {gpu.health.status !== 'ok' && (
        <div className="gpusched-trouble" role="status">
          {gpu.health.status}
          {gpu.health.cause && `: ${gpu.health.cause}`}
        </div>
      )}
    </li>
  );
}

function Legend(props: { parts: Part[] }): JSX.Element {
  return (
    <div className="gpusched-legend" aria-hidden="true">
      {props.parts.map(part => (
        <span key={part}>
          <i className={`gpusched-key gpusched-${part}`} /> {NAMES[part]}
        </span>
      ))}
    </div>
  );
}

export function Simulated(): JSX.Element {
  return (
    <span className="gpusched-simulated" title="This card does not exist; it is simulated.">
      {SIMULATED}
    </span>
  );
}

/** How a card's memory is divided, in MiB; what has no share is left out. */
function parts(gpu: GpuView): Map<Part, number> {
  const shares: Record<Part, number> = { own: 0, others: 0, foreign: 0, releasing: 0, free: 0 };
  for (const holder of gpu.holders) {
    shares[partOf(holder)] += amountOf(holder);
  }
  shares.foreign = Math.max(shares.foreign, gpu.foreign_mib ?? 0);
  const taken = shares.own + shares.others + shares.foreign + shares.releasing;
  shares.free = Math.max(0, gpu.total_mib - taken);
  return new Map(ORDER.filter(part => shares[part] > 0).map(part => [part, shares[part]]));
}

function partOf(holder: Holder): Part {
  if (holder.kind === 'foreign') {
    return 'foreign';
  }
  if (holder.state === 'releasing') {
    return 'releasing';
  }
  return holder.job_id ? 'own' : 'others';
}

function amountOf(holder: Holder): number {
  const used = holder.vram_mib ?? 0;
  return holder.state === 'releasing' ? used : Math.max(used, holder.promised_mib ?? 0);
}
