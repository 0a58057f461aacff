// Small pictures of one job: how far it is, what it has of the memory it asked for, and how that went over time.

import * as React from 'react';

import * as calls from './calls';
import { Point, Sparkline } from './sparkline';
import { trans } from './translation';
import { GpuView, JobView, Progress } from './wire';
import { isFinal, mib, seconds } from './words';

const POINTS = 300;

export function ProgressBar({ progress }: { progress: Progress }): JSX.Element {
  const percent = progress.fraction === null ? null : Math.floor(100 * progress.fraction);
  const left = progress.remaining_s === null || progress.remaining_s < 1 ? '' : trans.__('about %1 to go', seconds(progress.remaining_s));
  const words = [percent === null ? '' : `${percent} %`, progress.text, left].filter(Boolean).join(' · ');
  return (
    <div className="gpusched-progress" data-testid="gpusched-progress">
      <div
        className="gpusched-track"
        role="progressbar"
        aria-label={trans.__('Progress')}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={percent ?? undefined}
        aria-valuetext={words}
      >
        <div
          className={`gpusched-fill${percent === null ? ' gpusched-unknown' : ''}`}
          style={{ width: percent === null ? '100%' : `${percent}%` }}
        />
      </div>
      <span className="gpusched-facts">{words}</span>
    </div>
  );
}

/** Memory promised, used now and at most, per GPU; nothing for a job that has no figure yet. */
export function Memory({ view, gpus }: { view: JobView; gpus: readonly GpuView[] }): JSX.Element | null {
  const used = isFinal(view) ? null : usedNow(view, gpus);
  const curve = useCurve(view, used, gpus);
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

/** What the job's record says, and from now on what is measured; empty where neither is to be had. */
function useCurve(view: JobView, used: number | null, gpus: readonly GpuView[]): Point[] {
  const [curve, setCurve] = React.useState<Point[]>([]);
  const over = isFinal(view);
  React.useEffect(() => {
    let gone = false;
    calls
      .memory(view.id)
      .then(samples => !gone && setCurve(thinned(samples.map(({ at, used_mib }) => ({ at, value: used_mib })))))
      .catch(() => undefined); // the record is a nicety: an older server has none
    return () => {
      gone = true;
    };
  }, [view.id, over]); // once more at the end, for all of it
  React.useEffect(() => {
    if (used !== null) {
      const at = Math.max(...gpus.map(gpu => gpu.sampled_at));
      setCurve(before => thinned([...before, { at, value: used }]));
    }
  }, [gpus, used]); // each frame is a sample, also one that brings nothing new
  return curve;
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
  return maxOf(...holdersOf(view, gpus).map(holder => holder.vram_mib));
}

function promisedTo(view: JobView, gpus: readonly GpuView[]): number | null {
  return view.vram_mib ?? maxOf(...holdersOf(view, gpus).map(holder => holder.promised_mib));
}

function maxOf(...amounts: (number | null)[]): number | null {
  const known = amounts.filter((amount): amount is number => amount !== null);
  return known.length ? Math.max(...known) : null;
}
