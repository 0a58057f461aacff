// What a browser tab knows, as one frozen value, and how frames from the server change it.
// Pure: no clock, no network, no page; `store` has those.

import { Alert, ArrayView, GpuView, Health, JobView } from './wire';
import { isFinal } from './words';

/** One look at a card. */
export interface Sample {
  readonly at: number;
  readonly used_mib: number | null;
  readonly utilization_pct: number | null;
}

/** A waiting job's id, position, estimated start, which of the frame's texts says what it waits for, and its range. */
export type Place = readonly [string, number | null, number | null, number | null, number[] | null];

export type Frame =
  | {
      type: 'snapshot';
      seq: number | null;
      jobs: readonly JobView[];
      gpus: readonly GpuView[];
      alerts?: readonly Alert[];
      connected: boolean;
      cause?: string | null;
    }
  | { type: 'job'; seq: number; event: string; job: JobView }
  | { type: 'gpus'; gpus: readonly GpuView[] }
  | { type: 'queue'; places: readonly Place[]; waiting: readonly string[] }
  | {
      type: 'outputs';
      job_id: string;
      attempt: number;
      next: number;
      log_size: number;
      progress?: JobView['progress'];
    }
  | { type: 'alert'; event: string; alert: Alert }
  | { type: 'status'; connected: boolean; cause?: string | null };

export interface State {
  /** Whether a snapshot has come since the page was opened. */
  readonly known: boolean;
  /** Whether the server and the scheduler behind it can be reached now. */
  readonly connected: boolean;
  /** Why not, where there is more to say than that it will come back. */
  readonly cause: string | null;
  /** The last event that is taken in: the server is asked for what comes after it. */
  readonly seq: number | null;
  readonly jobs: ReadonlyMap<string, JobView>;
  /** Whether there are jobs that ended before those that are known. */
  readonly older: boolean;
  /** Arrays that somebody shows as a whole. */
  readonly arrays: ReadonlyMap<string, ArrayView>;
  readonly gpus: readonly GpuView[];
  /** The last minutes of each card, oldest first, by UUID. */
  readonly history: ReadonlyMap<string, readonly Sample[]>;
  readonly alerts: readonly Alert[];
  /** How far the outputs of running jobs reach: a text that changes when there is more to read. */
  readonly reaches: ReadonlyMap<string, string>;
  /** Who schedules here and what is to be known of it; null until it has said so. */
  readonly health: Health | null;
  /** Ids that were asked for and that the server does not know. */
  readonly unknown: ReadonlySet<string>;
}

export const NOTHING: State = {
  known: false,
  connected: false,
  cause: null,
  seq: null,
  jobs: new Map(),
  older: false,
  arrays: new Map(),
  gpus: [],
  history: new Map(),
  alerts: [],
  reaches: new Map(),
  health: null,
  unknown: new Set()
};

export const MOST_ENDED = 500;
/** Samples of a card that are kept: five minutes at one a second. */
export const MOST_SAMPLES = 300;

const owns = new WeakMap<State['jobs'], { health: Health | null; own: State['jobs'] }>();

/** The user's own jobs: administrators may have looked at those of others as well. The same map while nothing changes. */
export function ownJobs({ jobs, health }: State): State['jobs'] {
  const known = owns.get(jobs);
  if (known?.health === health) {
    return known.own;
  }
  const strange = [...jobs.values()].some(view => isStrange(view, health));
  const own = strange ? new Map([...jobs].filter(([, view]) => !isStrange(view, health))) : jobs;
  const found = { health, own };
  owns.set(jobs, found);
  return found.own;
}

export function isStrange({ user }: JobView, health: Health | null): boolean {
  return !!health?.user && health.user !== user;
}

const made = new WeakMap<State['jobs'], ReadonlyMap<string, readonly JobView[]>>();

/** The jobs that were made of this one by running it again, of those again and so on, oldest first. */
export function repeatsOf(jobs: State['jobs'], first: string): string[] {
  let children = made.get(jobs);
  if (!children) {
    const found = new Map<string, JobView[]>();
    for (const view of jobs.values()) {
      if (view.parent_id !== null) {
        found.set(view.parent_id, [...(found.get(view.parent_id) ?? []), view]);
      }
    }
    made.set(jobs, (children = found));
  }
  const later = new Set<JobView>();
  const open = [first];
  for (let id = open.pop(); id !== undefined; id = open.pop()) {
    for (const view of children.get(id) ?? []) {
      if (!later.has(view)) {
        later.add(view);
        open.push(view.id);
      }
    }
  }
  return [...later].sort((a, b) => a.submitted_at - b.submitted_at).map(view => view.id);
}

type Draft = { -readonly [Key in keyof State]: State[Key] } & { jobs: Map<string, JobView> };

/** The state after these frames. `kept` are ended jobs that are shown somewhere and must not be forgotten. */
export function apply(state: State, frames: readonly Frame[], kept: ReadonlySet<string> = new Set()): State {
  const draft: Draft = { ...state, jobs: new Map(state.jobs) };
  let jobsChanged = false;
  for (const frame of frames) {
    switch (frame.type) {
      case 'snapshot':
        takeSnapshot(draft, frame);
        jobsChanged = true;
        break;
      case 'job':
        jobsChanged = takeJob(draft, frame) || jobsChanged;
        break;
      case 'gpus':
        takeGpus(draft, frame.gpus);
        break;
      case 'queue':
        jobsChanged = takeQueue(draft.jobs, frame.places, frame.waiting) || jobsChanged;
        break;
      case 'outputs':
        jobsChanged = takeReach(draft, frame) || jobsChanged;
        break;
      case 'alert':
        draft.alerts = draft.alerts.filter(alert => alert.id !== frame.alert.id);
        if (frame.event !== 'resolved') {
          draft.alerts = [...draft.alerts, frame.alert];
        }
        break;
      case 'status':
        draft.connected = frame.connected;
        draft.cause = frame.cause ?? null;
    }
  }
  if (!jobsChanged) {
    return { ...draft, jobs: state.jobs };
  }
  forget(draft, kept);
  return draft;
}

/** The state with views that were asked for; with `older` a view that is known already is the newer one. */
export function merge(
  state: State,
  views: readonly JobView[],
  known: 'newer' | 'older',
  kept: ReadonlySet<string> = new Set()
): State {
  const draft: Draft = { ...state, jobs: new Map(state.jobs) };
  for (const view of views) {
    if (known === 'newer' || !draft.jobs.has(view.id)) {
      draft.jobs.set(view.id, view);
    }
  }
  forget(draft, kept);
  return draft;
}

/** Jobs that were going on in one state, or in the frames that led to the other, and have ended in that. */
export function endedBetween(before: State, after: State, frames: readonly Frame[] = []): JobView[] {
  if (before.jobs === after.jobs) {
    return [];
  }
  const begun = begunIn(frames, before.seq);
  return [...after.jobs.values()].filter(view => {
    const was = before.jobs.get(view.id);
    return isFinal(view) && (was === undefined ? begun.has(view.id) : !isFinal(was));
  });
}

/** A quick job is submitted and ends within frames that are taken in together. */
function begunIn(frames: readonly Frame[], after: number | null): Set<string> {
  const begun = new Set<string>();
  let seq = after;
  for (const frame of frames) {
    if (frame.type === 'snapshot') {
      seq = frame.seq;
    } else if (frame.type === 'job' && (seq === null || frame.seq > seq) && !isFinal(frame.job)) {
      begun.add(frame.job.id);
    }
  }
  return begun;
}

/** A card's older samples put before those that are known already. */
export function withHistory(state: State, older: ReadonlyMap<string, readonly Sample[]>): State {
  const history = new Map(state.history);
  for (const [uuid, samples] of older) {
    const known = history.get(uuid) ?? [];
    const first = known[0]?.at ?? Infinity;
    history.set(uuid, [...samples.filter(sample => sample.at < first), ...known].slice(-MOST_SAMPLES));
  }
  return { ...state, history };
}

function takeSnapshot(draft: Draft, frame: Extract<Frame, { type: 'snapshot' }>): void {
  draft.known = true;
  draft.connected = frame.connected;
  draft.cause = frame.cause ?? null;
  draft.seq = frame.seq;
  draft.alerts = frame.alerts ?? [];
  frame.jobs.forEach(view => draft.jobs.set(view.id, view));
  takeGpus(draft, frame.gpus);
}

function takeJob(draft: Draft, frame: Extract<Frame, { type: 'job' }>): boolean {
  if (draft.seq !== null && frame.seq <= draft.seq) {
    return false; // it is an echo of what a snapshot has told already
  }
  draft.seq = frame.seq;
  if (frame.event === 'deleted') {
    return draft.jobs.delete(frame.job.id);
  }
  draft.jobs.set(frame.job.id, frame.job);
  return true;
}

/** Fresh words on waiting jobs; a job that has moved on since keeps its newer view. */
function takeQueue(jobs: Map<string, JobView>, places: readonly Place[], texts: readonly string[]): boolean {
  let changed = false;
  for (const [id, position, estimated_start, text, range] of places) {
    const view = jobs.get(id);
    if (view?.phase === 'queued') {
      const waiting = text === null ? null : (texts[text] ?? null);
      jobs.set(id, { ...view, position, estimated_start, estimated_start_range: range, waiting });
      changed = true;
    }
  }
  return changed;
}

function takeReach(draft: Draft, frame: Extract<Frame, { type: 'outputs' }>): boolean {
  draft.reaches = new Map(draft.reaches).set(frame.job_id, `${frame.attempt} ${frame.next} ${frame.log_size}`);
  const view = draft.jobs.get(frame.job_id);
  const progress = frame.progress ?? null;
  if (!view || isFinal(view) || (!view.progress && !progress)) {
    return false;
  }
  draft.jobs.set(view.id, { ...view, progress });
  return true;
}

function takeGpus(draft: Draft, gpus: readonly GpuView[]): void {
  draft.gpus = gpus;
  const history = new Map<string, readonly Sample[]>();
  for (const gpu of gpus) {
    const known = draft.history.get(gpu.uuid) ?? [];
    const newest = known[known.length - 1];
    const sample = { at: gpu.sampled_at, used_mib: gpu.used_mib, utilization_pct: gpu.utilization_pct };
    history.set(gpu.uuid, newest && newest.at >= sample.at ? known : [...known, sample].slice(-MOST_SAMPLES));
  }
  draft.history = history;
}

/** Keeps the newest of the ended jobs, and those that are shown somewhere. */
function forget(draft: Draft, kept: ReadonlySet<string>): void {
  const ended = [...draft.jobs.values()].filter(view => isFinal(view) && !kept.has(view.id));
  if (ended.length > MOST_ENDED) {
    ended.sort((a, b) => (b.ended_at ?? 0) - (a.ended_at ?? 0));
    ended.slice(MOST_ENDED).forEach(view => draft.jobs.delete(view.id));
    draft.older = true;
  }
  if ([...draft.reaches.keys()].some(id => !draft.jobs.has(id))) {
    draft.reaches = new Map([...draft.reaches].filter(([id]) => draft.jobs.has(id)));
  }
}

