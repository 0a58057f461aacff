// What is kept of one job beyond its view: what was submitted, what happened to it, its memory over time.
// Asked for by whoever shows it, and again when the job has moved on; views draw from `state()`.

import * as api from './api';

export type Topic = 'spec' | 'events' | 'memory';

export interface Kept {
  readonly spec?: api.Spec;
  /** Null where this host does not tell. */
  readonly events?: api.JobEvent[] | null;
  readonly memory?: { at: number; used_mib: number | null }[] | null;
  readonly trouble: string | null;
}

export class JobFiles {
  private _kept: Kept = { trouble: null };
  private _viewers = new Set<() => void>();
  private _asking = new Set<Topic>();

  constructor(readonly id: string) {}

  readonly subscribe = (viewer: () => void): (() => void) => {
    this._viewers.add(viewer);
    return () => this._viewers.delete(viewer);
  };

  readonly state = (): Kept => this._kept;

  ask(topic: Topic): void {
    if (!this._asking.has(topic)) {
      this._asking.add(topic);
      void this._read(topic);
    }
  }

  private async _read(topic: Topic): Promise<void> {
    try {
      this._set({ [topic]: await api[topic](this.id), trouble: null });
    } catch (error) {
      this._set({ trouble: error instanceof Error ? error.message : String(error) });
    } finally {
      this._asking.delete(topic);
    }
  }

  private _set(change: Partial<Kept>): void {
    this._kept = { ...this._kept, ...change };
    this._viewers.forEach(viewer => viewer());
  }
}
