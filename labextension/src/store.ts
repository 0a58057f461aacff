// The one store of a browser tab, fed by one WebSocket: views subscribe and are given a new frozen state.
// The socket is open while somebody looks, and closed while the tab is in the background.

import * as api from './api';
import { apply, endedBetween, Frame, isStrange, merge, NOTHING, Sample, State, withHistory } from './state';
import { JobView } from './wire';
import { isFinal } from './words';

export type { State } from './state';

const RECENT = 200;
const MOST_ELEMENTS = 1000;
const ARRAYS_EVERY_MS = 1000;
/** Nothing tells of jobs of others: those that an administrator looks at are asked for. */
const STRANGERS_EVERY_MS = 3000;
const MOST_ASKED_SINGLY = 20;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;
const FRAME_MS = 100;
const HISTORY_S = 300;
/** The server speaks at least every 15 s; one that is silent for this long is gone without a word. */
const SILENCE_MS = 45_000;

/** A question about a job that is on its way, and whether the stream has told of that job since it was asked. */
interface Question {
  readonly id: string;
  overtaken: boolean;
}

export class Store {
  private _state = NOTHING;
  private _viewers = new Set<() => void>();
  private _listeners = new Set<(ended: JobView[]) => void>();
  private _socket: WebSocket | null = null;
  private _retry = 0;
  private _silence = 0;
  private _pauseMs = FIRST_PAUSE_MS;
  private _wanted = new Set<string>();
  private _arrays = new Map<string, number>(); // those that are shown, each with the timer to ask for it
  private _listed = new Set<string>(); // those of them whose elements are wanted
  private _pending: Frame[] = [];
  private _questions = new Set<Question>();
  private _drawing = 0;
  private _inBackground = false;
  private _strangers = 0;
  private _historyAsked = false;

  constructor() {
    document.addEventListener('visibilitychange', () => this._attend());
  }

  readonly subscribe = (viewer: () => void): (() => void) => {
    this._viewers.add(viewer);
    this._attend();
    return () => {
      this._viewers.delete(viewer);
      this._attend();
    };
  };

  readonly state = (): State => this._state;

  /** Be told of jobs that have ended; this alone keeps no connection. */
  onEnded(listener: (ended: JobView[]) => void): void {
    this._listeners.add(listener);
  }

  /** Whether to stay connected while the tab is in the background, so that the user can be told of ends there. */
  stayInBackground(stay: boolean): void {
    this._inBackground = stay;
    this._attend();
  }

  /** Make sure that this job is known, or known to be unknown, however old it is. */
  want(id: string): void {
    this._wanted.add(id);
    if (!this._state.jobs.has(id)) {
      void this._ask(id);
    }
  }

  /** Make sure that this array is known, with its elements if they are wanted, or known to be unknown. */
  wantArray(id: string, elements = true): void {
    if (!this._arrays.has(id) || (elements && !this._listed.has(id))) {
      this._arrays.set(id, this._arrays.get(id) ?? 0);
      if (elements) {
        this._listed.add(id);
      }
      void this._askArray(id);
    }
  }

  /** Have the minutes before this page was opened fetched, once, as far as the host knows them. */
  wantHistory(): void {
    if (!this._historyAsked) {
      this._historyAsked = true;
      void this._askHistory();
    }
  }

  async cancel(id: string): Promise<void> {
    await this._answered(id, api.cancel(id));
  }

  async hold(id: string): Promise<void> {
    await this._answered(id, api.hold(id));
  }

  async release(id: string): Promise<void> {
    await this._answered(id, api.release(id));
  }

  /** Queue the same work again; returns the new job's id. */
  async resubmit(id: string, changes: api.Spec = {}): Promise<string> {
    const fresh = await api.resubmit(id, changes);
    await this._ask(fresh);
    return fresh;
  }

  /** Queue a job; returns its id. */
  async submit(spec: api.Spec): Promise<string> {
    const fresh = await api.submit(spec);
    await this._ask(fresh);
    return fresh;
  }

  async reorder(id: string, where: { before: string } | { after: string }): Promise<JobView> {
    return this._answered(id, api.reorder(id, where));
  }

  /**
   * Take in the answer to a question about a job, unless the stream has told of the job meanwhile: then the answer may
   * be the older of the two, and if it is not, the stream will tell what it says.
   */
  private async _answered(id: string, answer: Promise<JobView>): Promise<JobView> {
    const question = { id, overtaken: false };
    this._questions.add(question);
    try {
      const view = await answer;
      if (!question.overtaken) {
        this._set(merge(this._state, [view], 'newer', this._wanted));
      }
      return view;
    } finally {
      this._questions.delete(question);
    }
  }

  private _followStrangers(): void {
    const { jobs, health } = this._state;
    const live = [...this._wanted].filter(id => {
      const view = jobs.get(id);
      return !!view && !isFinal(view) && isStrange(view, health);
    });
    if (live.length && this._socket && !this._strangers) {
      this._strangers = window.setTimeout(() => {
        this._strangers = 0;
        live.forEach(id => void this._ask(id));
      }, STRANGERS_EVERY_MS);
    }
  }

  private _overtake(frame: Frame): void {
    const told = frame.type === 'job' ? [frame.job] : frame.type === 'snapshot' ? frame.jobs : [];
    this._questions.forEach(question => {
      question.overtaken ||= told.some(view => view.id === question.id);
    });
  }

  private _set(state: State, frames: readonly Frame[] = []): void {
    const before = this._state;
    this._state = state;
    const ended = endedBetween(before, state, frames).filter(view => !isStrange(view, state.health));
    if (ended.length) {
      this._listeners.forEach(listener => listener(ended));
    }
    this._followStrangers();
    this._viewers.forEach(viewer => viewer());
  }

  private async _ask(id: string): Promise<void> {
    try {
      await this._answered(id, api.job(id));
    } catch (error) {
      // 403: another's server, or one that is not ours at all (Voilà): nothing more will be heard of the job.
      if (error instanceof api.Refused && (error.status === 404 || error.status === 403)) {
        this._set({ ...this._state, unknown: new Set(this._state.unknown).add(id) });
      }
    }
  }

  private async _askArray(id: string): Promise<void> {
    try {
      const [whole, elements] = await Promise.all([
        api.array(id),
        this._listed.has(id) ? api.elements(id, MOST_ELEMENTS) : []
      ]);
      elements.forEach(view => this._wanted.add(view.id));
      this._set(merge(this._state, elements, 'older', this._wanted));
      this._set({ ...this._state, arrays: new Map(this._state.arrays).set(id, whole) });
    } catch (error) {
      if (error instanceof api.Refused && (error.status === 404 || error.status === 403)) {
        this._set({ ...this._state, unknown: new Set(this._state.unknown).add(id) });
      }
    }
  }

  /** An array of which more elements exist than are known here has to be counted by its host. */
  private _recount(frames: readonly Frame[]): void {
    for (const [id, timer] of this._arrays) {
      if (!timer && frames.some(frame => frame.type === 'job' && frame.job.array_id === id)) {
        const ask = async (): Promise<void> => {
          this._arrays.set(id, 0);
          const whole = await api.array(id);
          this._set({ ...this._state, arrays: new Map(this._state.arrays).set(id, whole) });
        };
        this._arrays.set(id, window.setTimeout(() => void ask().catch(() => undefined), ARRAYS_EVERY_MS));
      }
    }
  }

  private async _askHistory(): Promise<void> {
    try {
      const found = await api.gpuHistory(Date.now() / 1000 - HISTORY_S);
      const older = new Map<string, Sample[]>();
      for (const { uuid, at, used_mib, utilization_pct } of found ?? []) {
        older.set(uuid, [...(older.get(uuid) ?? []), { at, used_mib, utilization_pct }]);
      }
      this._set(withHistory(this._state, older));
    } catch (error) {
      this._historyAsked = false;
      console.debug('jupyter-gpusched: the history of the cards did not come', error);
    }
  }

  private async _askHealth(): Promise<void> {
    try {
      const health = await api.health();
      this._set({ ...this._state, health });
    } catch (error) {
      console.debug('jupyter-gpusched: the host did not say who it is', error);
    }
  }

  // --- frames: those that come within one picture are taken in together -------------------

  private _take(frame: Frame): void {
    this._overtake(frame);
    this._pending.push(frame);
    this._drawing ||= window.setTimeout(() => this._draw(), document.hidden ? FRAME_MS : 16);
  }

  private _draw(): void {
    this._drawing = 0;
    const frames = this._pending;
    this._pending = [];
    const snapshot = frames.reduce<Extract<Frame, { type: 'snapshot' }> | null>(
      (last, frame) => (frame.type === 'snapshot' ? frame : last),
      null
    );
    const before = this._state;
    this._set(apply(before, frames, this._wanted), frames);
    this._recount(frames);
    if (!before.connected && this._state.connected) {
      void this._askHealth(); // it may be another host than before
    }
    if (snapshot) {
      const live = new Set(snapshot.jobs.map(view => view.id));
      const left = [...before.jobs.values()].filter(view => !isFinal(view) && !live.has(view.id));
      void this._fillIn(new Set(left.map(view => view.id)));
      this._arrays.forEach((_, id) => void this._askArray(id));
    }
  }

  /** After a snapshot: jobs that ended lately, `left` among them, which ended while we were away. */
  private async _fillIn(left: Set<string>): Promise<void> {
    try {
      const recent = await api.endedJobs(RECENT);
      if (recent.length >= RECENT) {
        this._set({ ...this._state, older: true });
      }
      const away = recent.filter(view => left.delete(view.id));
      this._set(merge(merge(this._state, recent, 'older', this._wanted), away, 'newer', this._wanted));
      const wanted = [...this._wanted].filter(id => !this._state.jobs.has(id));
      [...wanted, ...[...left].slice(0, MOST_ASKED_SINGLY)].forEach(id => void this._ask(id));
      this._drop([...left].slice(MOST_ASKED_SINGLY));
    } catch (error) {
      console.debug('jupyter-gpusched: the list of recent jobs did not come', error);
    }
  }

  /** Too many ended while we were away to ask for each: those that nobody shows are forgotten. */
  private _drop(ids: string[]): void {
    if (ids.length) {
      const jobs = new Map(this._state.jobs);
      ids.filter(id => !this._wanted.has(id)).forEach(id => jobs.delete(id));
      this._set({ ...this._state, jobs });
    }
  }

  // --- the socket ---------------------------------------------------------------------------

  /** Open or close the socket as is right now. */
  private _attend(): void {
    const looked = this._viewers.size > 0 && (!document.hidden || this._inBackground);
    if (looked && !this._socket && !this._retry) {
      this._open();
    } else if (!looked) {
      this._close();
    }
  }

  private _open(): void {
    this._retry = 0;
    const socket = api.openStream(this._state.known ? this._state.seq : null);
    socket.onmessage = message => {
      this._pauseMs = FIRST_PAUSE_MS;
      this._listen();
      this._take(JSON.parse(String(message.data)) as Frame);
    };
    socket.onclose = () => this._lost();
    this._socket = socket;
    this._listen();
  }

  private _listen(): void {
    window.clearTimeout(this._silence);
    this._silence = window.setTimeout(() => this._lost(), SILENCE_MS);
  }

  private _lost(): void {
    this._close();
    this._take({ type: 'status', connected: false });
    this._retry = window.setTimeout(() => this._open(), this._pauseMs);
    this._pauseMs = Math.min(LONGEST_PAUSE_MS, 2 * this._pauseMs);
  }

  private _close(): void {
    window.clearTimeout(this._retry);
    window.clearTimeout(this._silence);
    this._retry = 0;
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
