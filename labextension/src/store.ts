// What this browser tab knows of jobs and cards: one store, fed by one WebSocket.
// Views subscribe and are given a new frozen state; the socket is open while anybody looks.

import * as api from './api';
import { GpuView, JobView } from './wire';
import { isFinal } from './words';

export interface State {
  /** Whether a snapshot has come since the page was opened. */
  readonly known: boolean;
  /** Whether the server and the scheduler behind it can be reached now. */
  readonly connected: boolean;
  readonly jobs: ReadonlyMap<string, JobView>;
  readonly gpus: readonly GpuView[];
  /** Why there is no GPU. */
  readonly gpuCause: string | null;
  /** How far the outputs of running jobs reach: a text that changes when there is more to read. */
  readonly reaches: ReadonlyMap<string, string>;
  /** Ids that were asked for and that the server does not know. */
  readonly unknown: ReadonlySet<string>;
}

const RECENT = 20;
const MOST_ENDED = 200;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;

const NOTHING: State = {
  known: false,
  connected: false,
  jobs: new Map(),
  gpus: [],
  gpuCause: null,
  reaches: new Map(),
  unknown: new Set()
};

export class Store {
  private _state = NOTHING;
  private _viewers = new Set<() => void>();
  private _socket: WebSocket | null = null;
  private _retry = 0;
  private _pauseMs = FIRST_PAUSE_MS;
  private _wanted = new Set<string>();

  readonly subscribe = (viewer: () => void): (() => void) => {
    this._viewers.add(viewer);
    if (this._viewers.size === 1) {
      this._open();
    }
    return () => {
      this._viewers.delete(viewer);
      if (!this._viewers.size) {
        this._close();
      }
    };
  };

  readonly state = (): State => this._state;

  /** Make sure that this job is known, or known to be unknown, however old it is. */
  want(id: string): void {
    this._wanted.add(id);
    if (!this._state.jobs.has(id)) {
      void this._ask(id);
    }
  }

  async cancel(id: string): Promise<void> {
    this._merge([await api.cancel(id)]);
  }

  private _set(change: Partial<State>): void {
    this._state = { ...this._state, ...change };
    this._viewers.forEach(viewer => viewer());
  }

  private _merge(views: JobView[], known: 'newer' | 'older' = 'newer'): void {
    const jobs = new Map(this._state.jobs);
    for (const view of views) {
      if (known === 'newer' || !jobs.has(view.id)) {
        jobs.set(view.id, view);
      }
    }
    this._set({ jobs: this._bounded(jobs) });
  }

  /** The newest of the ended jobs, and those that a card on the page shows. */
  private _bounded(jobs: Map<string, JobView>): Map<string, JobView> {
    const ended = [...jobs.values()].filter(view => isFinal(view) && !this._wanted.has(view.id));
    ended.sort((a, b) => (b.ended_at ?? 0) - (a.ended_at ?? 0));
    ended.slice(MOST_ENDED).forEach(view => jobs.delete(view.id));
    return jobs;
  }

  private async _ask(id: string): Promise<void> {
    try {
      this._merge([await api.job(id)]);
    } catch (error) {
      if (error instanceof api.Refused && error.status === 404) {
        this._set({ unknown: new Set(this._state.unknown).add(id) });
      }
    }
  }

  private _take(frame: api.Frame): void {
    if (frame.type === 'snapshot') {
      this._takeSnapshot(frame.jobs, frame.gpus, frame.connected);
    } else if (frame.type === 'job') {
      this._merge([frame.job]);
    } else if (frame.type === 'gpus') {
      this._set({ gpus: frame.gpus });
    } else if (frame.type === 'queue') {
      this._takeQueue(frame.jobs);
    } else if (frame.type === 'outputs') {
      this._takeReach(frame);
    } else if (frame.type === 'status') {
      this._set({ connected: frame.connected });
    }
  }

  private _takeSnapshot(views: JobView[], gpus: GpuView[], connected: boolean): void {
    const live = new Set(views.map(view => view.id));
    const left = [...this._state.jobs.values()].filter(view => !isFinal(view) && !live.has(view.id));
    this._set({ known: true, connected, gpus });
    this._merge(views);
    left.forEach(view => void this._ask(view.id)); // ended while we were away
    [...this._wanted].filter(id => !this._state.jobs.has(id)).forEach(id => void this._ask(id));
    void this._fillIn();
  }

  private _takeReach(frame: api.OutputsFrame): void {
    const reaches = new Map(this._state.reaches);
    reaches.set(frame.job_id, `${frame.attempt} ${frame.next} ${frame.log_size}`);
    this._set({ reaches });
    const view = this._state.jobs.get(frame.job_id);
    if (view && !isFinal(view) && (view.progress || frame.progress)) {
      this._merge([{ ...view, progress: frame.progress }]);
    }
  }

  /** Fresh words on waiting jobs; a job that has moved on since keeps its newer view. */
  private _takeQueue(views: JobView[]): void {
    this._merge(views.filter(view => (this._state.jobs.get(view.id) ?? view).phase === 'queued'));
  }

  private async _fillIn(): Promise<void> {
    try {
      this._merge(await api.recentJobs(RECENT), 'older');
      if (!this._state.gpus.length) {
        this._set({ gpuCause: (await api.health()).gpu_cause });
      }
    } catch (error) {
      console.debug('jupyter-gpusched: the list of recent jobs did not come', error);
    }
  }

  private _open(): void {
    const socket = api.openStream();
    socket.onmessage = message => {
      this._pauseMs = FIRST_PAUSE_MS;
      this._take(JSON.parse(String(message.data)) as api.Frame);
    };
    socket.onclose = () => this._lost();
    this._socket = socket;
  }

  private _lost(): void {
    this._set({ connected: false });
    this._retry = window.setTimeout(() => this._open(), this._pauseMs);
    this._pauseMs = Math.min(LONGEST_PAUSE_MS, 2 * this._pauseMs);
  }

  private _close(): void {
    window.clearTimeout(this._retry);
    if (this._socket) {
      this._socket.onclose = null;
      this._socket.onmessage = null;
      this._socket.close();
    }
    this._socket = null;
  }
}

/** The one of this tab: panel and cards share it. */
export const store = new Store();
