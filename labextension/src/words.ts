// Jobs and GPUs in plain words; the same words as jupyter_gpusched/describe.py.
// Missing values are "n/a", never 0.

import { roomFor } from './shares';
import { said, trans } from './translation';
import { GpuView, Holder, JobView, Reservation } from './wire';

const FINAL = new Set(['succeeded', 'failed', 'cancelled', 'timeout', 'lost']);

export function isFinal(view: Pick<JobView, 'phase'>): boolean {
  return FINAL.has(view.phase);
}

/** Whether it waits because somebody, or the scheduler, wants it to; hosts of before tell nothing of that. */
export function isHeld(view: Pick<JobView, 'phase' | 'held'>): boolean {
  return view.phase === 'queued' && !!view.held;
}

export function canBeHeld(view: Pick<JobView, 'phase' | 'held'>): boolean {
  return view.phase === 'queued' && !view.held;
}

/** The phase for a person; one that this version does not know is shown as it is. */
export function phaseName(phase: string): string {
  const names: Record<string, string> = {
    queued: trans.__('queued'),
    starting: trans.__('starting'),
    running: trans.__('running'),
    stopping: trans.__('stopping'),
    succeeded: trans.__('succeeded'),
    failed: trans.__('failed'),
    cancelled: trans.__('cancelled'),
    timeout: trans.__('timeout'),
    lost: trans.__('lost')
  };
  return names[phase] ?? phase;
}

export function mib(amount: number | null): string {
  return amount === null ? trans.__('n/a') : `${(amount / 1024).toFixed(1)}G`;
}

/** An amount that may be far below one GiB. */
export function little(amount: number): string {
  return amount < 1024 ? `${Math.round(amount)} MiB` : mib(amount);
}

export function seconds(span: number): string {
  const whole = Math.max(0, Math.round(span));
  const two = (n: number): string => String(n).padStart(2, '0');
  if (whole < 60) {
    return `${whole}s`;
  }
  if (whole < 3600) {
    return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  }
  if (whole < 86400) {
    return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
  }
  return `${Math.floor(whole / 86400)}d${two(Math.floor((whole % 86400) / 3600))}h`;
}

/** A moment in the reader's own time: the hour today, with the day before that; `exact` ones have seconds. */
export function moment(at: number, now: number, exact = false): string {
  const date = new Date(at * 1000);
  const two = '2-digit' as const;
  const time = date.toLocaleTimeString([], { hour: two, minute: two, ...(exact && { second: two }) });
  return date.toDateString() === new Date(now * 1000).toDateString() ? time : `${date.toLocaleDateString()} ${time}`;
}

/** What it asks for: `4.0G on 1 GPU`, `2 whole GPUs`, `no GPU`. */
export function wants(view: Pick<JobView, 'gpus_requested' | 'vram_mib'>): string {
  const count = view.gpus_requested;
  if (!count) {
    return trans.__('no GPU');
  }
  if (view.vram_mib === null) {
    return trans._n('%1 whole GPU', '%1 whole GPUs', count);
  }
  return trans._n('%2 on %1 GPU', '%2 on each of %1 GPUs', count, mib(view.vram_mib));
}

export function where(view: JobView): string {
  return view.gpus.map(gpu => `GPU ${gpu.index}`).join(', ');
}

/** How long it has run or ran, or has waited if it has not started; `now` in seconds. */
export function lasted(view: JobView, now: number): string {
  if (view.started_at !== null) {
    const span = seconds((view.ended_at ?? now) - view.started_at);
    return isFinal(view) ? trans.__('ran %1', span) : trans.__('for %1', span);
  }
  return view.phase === 'queued' ? trans.__('waiting for %1', seconds(now - view.submitted_at)) : '';
}

/** How far a running job says it has come. */
export function progressed(view: JobView): string {
  const fraction = isFinal(view) ? null : (view.progress?.fraction ?? null);
  if (fraction === null) {
    return '';
  }
  const percent = `${Math.round(100 * fraction)} %`;
  const left = view.progress?.remaining_s ?? null;
  return left === null ? percent : trans.__('%1, %2 left', percent, seconds(left));
}

/** Why it waits, what is wrong with it, or how it ended. */
export function sentence(view: JobView): string {
  if (view.phase === 'queued') {
    const why = view.waiting === null ? trans.__('waiting') : said(view.waiting);
    return view.position && view.in_line ? trans.__('%1 (number %2 in the queue)', why, view.position) : why;
  }
  if (isFinal(view)) {
    return view.phase === 'succeeded' ? '' : ending(view);
  }
  return view.overuse_mib ? trans.__('uses %1 more than it asked for', mib(view.overuse_mib)) : '';
}

/** Whether there is a sentence; without making it, since it is asked of each of thousands whenever one of them changes. */
export function hasSentence(view: JobView): boolean {
  if (view.phase === 'queued') {
    return view.waiting !== '' || !!(view.position && view.in_line);
  }
  if (isFinal(view)) {
    const why = view.message ?? view.reason;
    return view.phase !== 'succeeded' && (view.exit_code !== null || view.signal !== null || !!why);
  }
  return !!view.overuse_mib;
}

/** When it is expected to start, and between which moments, if anybody can say. */
export function expected(view: JobView, now: number): string {
  const at = view.phase === 'queued' ? view.estimated_start : null;
  const [earliest, latest] = view.estimated_start_range ?? [];
  if (at === null || earliest === undefined || latest === undefined) {
    return '';
  }
  const [from, to] = [moment(earliest, at), moment(latest, at)];
  const about = trans.__('starts at about %1', moment(at, now));
  return from === to ? about : trans.__('%1 (%2 to %3)', about, from, to);
}

/** For whom a card is kept, from when to when and why, and who may still be there then. */
export function reserved(one: Reservation, now: number): string {
  const until = moment(one.end, now);
  const when = one.active ? trans.__('until %1', until) : trans.__('%1 to %2', moment(one.start, now), until);
  const who =
    one.user === null
      ? trans.__('Reserved for work outside the queue, %1', when)
      : trans.__('Reserved for %1, %2', one.user, when);
  const staying = one.reaching_in
    ? trans._n('%1 other job may still run there', '%1 other jobs may still run there', one.reaching_in)
    : '';
  return [who, one.cause ?? '', staying].filter(Boolean).join(' · ');
}

function ending(view: JobView): string {
  const code = view.exit_code !== null ? trans.__('exit code %1', view.exit_code) : signalOf(view);
  const why = said(view.message ?? view.reason ?? '');
  return [why.includes(code) ? '' : code, why].filter(Boolean).join(': ');
}

function signalOf(view: JobView): string {
  return view.signal !== null ? trans.__('signal %1', view.signal) : '';
}

/** Who holds how much of a card since when. */
export function holding(holder: Holder, amount: number, now: number): string {
  const id = holder.job_id ?? '';
  const what = {
    job: holder.mine ? trans.__('your job %1', id) : [trans.__('a job of %1', someone(holder)), id].filter(Boolean).join(' · '),
    lease: holder.mine ? trans.__('your lease %1', id) : trans.__('a lease of %1', someone(holder)),
    foreign: trans.__('outside the queue: %1', outsider(holder))
  }[holder.kind];
  const parts = [what ?? `${holder.kind} ${someone(holder)}`, mib(amount)];
  if (holder.state === 'releasing') {
    parts.push(trans.__('being freed'));
  } else if (holder.vram_mib !== null && holder.promised_mib !== null && !holder.estimated) {
    parts.push(trans.__('uses %1', mib(holder.vram_mib)));
  }
  if (holder.notebook) {
    parts.push(holder.notebook);
  }
  if (holder.since !== null) {
    parts.push(trans.__('since %1', moment(holder.since, now)));
  }
  return parts.join(' · ');
}

function someone(holder: Holder): string {
  return holder.user ?? trans.__('somebody');
}

function outsider(holder: Holder): string {
  const parts = [holder.user ?? '', holder.pid === null ? '' : trans.__('process %1', holder.pid)].filter(Boolean);
  return parts.join(', ') || trans.__('unknown');
}

/** What is used, promised and to be had by a job of this user. */
export function figures(gpu: GpuView, drained: boolean): string {
  return [
    trans.__('%1 of %2 used', mib(gpu.used_mib), mib(gpu.total_mib)),
    trans.__('%1 promised', mib(gpu.promised_mib)),
    trans.__('%1 available', mib(drained ? 0 : roomFor(gpu)))
  ].join(' · ');
}

/** A value of any kind as text; nothing for none. */
export function textOf(value: unknown): string {
  if (value === null || value === undefined) {
    return '';
  }
  return typeof value === 'string' ? value : JSON.stringify(value);
}
