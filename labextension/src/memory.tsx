// What a job has of the memory it asked for, and how that went over time: small in its card, large in its details.
// The server's record of it comes through `JobFiles`; what is measured from now on is added here.

import * as React from 'react';

import { h } from './element';
import { useAge, usePart } from './hooks';
import { JobFiles, useKept } from './jobfiles';
import { Missing } from './missing';
import { Point, Sparkline } from './sparkline';
import { trans } from './translation';
import { GpuView, JobView } from './wire';
import { isFinal, mib, seconds } from './words';

const POINTS = 300;

interface OfMemory {
  readonly view: JobView;
  readonly files: JobFiles;
}

/** Memory promised, used now and at most, per GPU; nothing for a job that has no figure yet. */
export function MemoryBar(props: OfMemory): JSX.Element | null {
  const { view } = props;
  const gpus = useCards(view);
  const used = usedNow(view, gpus);
  const { curve } = useCurve(props, gpus, used);
  const age = useAge(lookedAt(gpus));
  const promised = promisedTo(view, gpus);
  const peak = maxOf(view.peak_vram_mib, ...curve.map(point => point.value));
  if (!view.gpus_requested || (used === null && peak === null)) {
    return null;
  }
  const scale = Math.max(promised ?? 0, used ?? 0, peak ?? 0, 1);
  const over = promised !== null && (used ?? peak ?? 0) > promised;
  const words = [
    promised === null ? '' : trans.__('%1 promised', mib(promised)),
    used === null ? '' : trans.__('%1 used', mib(used)),
    used === null || age === null ? '' : trans.__('as of %1 ago', seconds(age)),
    peak === null ? '' : trans.__('peak %1', mib(peak))
  ]
    .filter(Boolean)
    .join(' · ');
  return (
    <div className="gpusched-memory" data-testid="gpusched-memory">
      <span className="gpusched-facts">{trans.__('VRAM')}</span>
      <div className="gpusched-track" role="img" aria-label={words} title={words}>
        <div
          className={`gpusched-fill${over ? ' gpusched-over' : ''}`}
          style={{ width: `${(100 * (used ?? peak ?? 0)) / scale}%` }}
        />
        {peak !== null && <div className="gpusched-tick" style={{ left: `${(100 * peak) / scale}%` }} />}
      </div>
      {changes(curve) && (
        <Sparkline
          points={curve}
          from={curve[0]?.at ?? 0}
          to={curve[curve.length - 1]?.at ?? 0}
          most={scale}
          label={trans.__('Memory over time')}
          className="gpusched-spark"
        />
      )}
      <span className="gpusched-facts">{words}</span>
    </div>
  );
}

/** The whole life of the job, with the line of what it was promised. */
export function MemoryCurve(props: OfMemory): JSX.Element {
  const { view } = props;
  const gpus = useCards(view);
  const { curve, trouble } = useCurve(props, gpus, usedNow(view, gpus));
  const first = curve[0];
  const last = curve[curve.length - 1];
  if (!first || !last) {
    return <Missing trouble={trouble} />;
  }
  const promised = promisedTo(view, gpus);
  const peak = maxOf(...curve.map(point => point.value)) ?? 0;
  const most = Math.max(peak, promised ?? 0, 1);
  return (
    <figure className="gpusched-curve">
      <div className="gpusched-curve-box">
        <Sparkline
          points={curve}
          from={first.at}
          to={Math.max(last.at, first.at + 1)}
          most={most}
          className="gpusched-of-memory"
          label={trans.__('Memory over %1, at most %2', seconds(last.at - first.at), mib(peak))}
        />
        {promised !== null && (
          <div
            className="gpusched-promise"
            style={{ bottom: `${(100 * promised) / most}%` }}
            title={trans.__('promised: %1', mib(promised))}
          />
        )}
      </div>
      <figcaption className="gpusched-facts">
        {trans.__('at most %1 in %2', mib(peak), seconds(last.at - first.at))}
        {promised !== null && ` · ${trans.__('promised: %1', mib(promised))}`}
      </figcaption>
    </figure>
  );
}

/** What the job's record says, and what has been measured since; `trouble` is why there is nothing. */
function useCurve(
  props: OfMemory,
  gpus: readonly GpuView[],
  used: number | null
): { curve: readonly Point[]; trouble: string | null } {
  const { memory, trouble } = useKept(props, 'memory');
  const [since, setSince] = React.useState<readonly Point[]>([]);
  React.useEffect(() => {
    if (used !== null) {
      const at = lookedAt(gpus);
      setSince(before => thinned([...before, { at, value: used }]));
    }
  }, [gpus, used]); // each frame is a sample, also one that brings nothing new
  const curve = React.useMemo(() => {
    const recorded = (memory ?? []).map(({ at, used_mib }) => ({ at, value: used_mib }));
    const end = recorded[recorded.length - 1]?.at ?? 0;
    return thinned([...recorded, ...since.filter(point => point.at > end)]);
  }, [memory, since]);
  return { curve, trouble: trouble ?? whyNone(memory) };
}

const NONE: readonly GpuView[] = [];

/** The cards as last seen; of no interest to a job that has ended. */
function useCards(view: JobView): readonly GpuView[] {
  const over = isFinal(view);
  return usePart(({ gpus }) => (over ? NONE : gpus));
}

function lookedAt(gpus: readonly GpuView[]): number {
  return Math.max(0, ...gpus.map(gpu => gpu.sampled_at));
}

function whyNone(memory: readonly unknown[] | null | undefined): string | null {
  if (memory === undefined) {
    return null; // it has been asked for
  }
  return memory === null
    ? trans.__('This server keeps no memory curve.')
    : trans.__('No memory of it has been measured.');
}

/** A flat line says nothing that the figures do not. */
function changes(curve: readonly Point[]): boolean {
  return curve.some(point => point.value !== curve[0]?.value);
}

/** The whole life of the job in a bounded number of points: every other one goes when there are too many. */
function thinned(curve: Point[]): Point[] {
  return curve.length > 2 * POINTS ? curve.filter((_, n) => n % 2 === 0 || n === curve.length - 1) : curve;
}

function holdersOf(view: JobView, gpus: readonly GpuView[]): GpuView['holders'] {
  return gpus.flatMap(gpu => gpu.holders).filter(holder => holder.job_id === view.id && holder.state !== 'releasing');
}

/** The most that it uses on one of its cards, as last measured. */
function usedNow(view: JobView, gpus: readonly GpuView[]): number | null {
  return isFinal(view) ? null : maxOf(...holdersOf(view, gpus).map(holder => holder.vram_mib));
}

function promisedTo(view: JobView, gpus: readonly GpuView[]): number | null {
  return view.vram_mib ?? maxOf(...holdersOf(view, gpus).map(holder => holder.promised_mib));
}

function maxOf(...amounts: (number | null)[]): number | null {
  const known = amounts.filter((amount): amount is number => amount !== null);
  return known.length ? Math.max(...known) : null;
}
