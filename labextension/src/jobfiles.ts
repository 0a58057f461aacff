// What is kept of one job beyond its view: what was submitted, what happened to it, its memory over time.
// Asked for by whoever shows it, and again when the job has moved on; views draw from `state()`.

import * as React from 'react';

import * as api from './api';
import { Shown } from './hooks';
import { JobView } from './wire';
import { isFinal } from './words';

export type Topic = 'spec' | 'events' | 'memory';

export interface Kept {
  readonly spec?: api.Spec;
  /** Null where this host does not tell. */
  readonly events?: api.JobEvent[] | null;
  readonly memory?: api.MemorySample[] | null;
  readonly trouble: string | null;
}

/** A job, and what is kept of it. */
export interface OfJob {
  readonly view: JobView;
  readonly files: JobFiles;
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

/** What is kept of a job about this topic, asked for anew whenever the job has moved on. */
export function useKept({ view, files }: OfJob, topic: Topic): Kept {
  const stage = stageOf(view, topic);
  const active = React.useContext(Shown);
  React.useEffect(() => {
    if (active) {
      files.ask(topic);
    }
  }, [files, topic, active, stage]);
  return React.useSyncExternalStore(files.subscribe, files.state);
}

/** Changes when there is more to be had. */
function stageOf(view: JobView, topic: Topic): string {
  switch (topic) {
    case 'spec':
      return '';
    case 'events':
      return `${view.phase} ${view.attempts.length} ${view.peak_vram_mib}`;
    case 'memory':
      return `${isFinal(view)} ${view.attempts.length}`;
  }
}
