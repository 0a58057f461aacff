// The outputs of one job as they come: read on from where the last reading stopped, while the card can be seen.

import * as React from 'react';

import * as api from './api';
import { Folding } from './folding';
import { useOnScreen, usePart } from './hooks';
import { JobView } from './wire';
import { isFinal } from './words';

const JOURNALED = new Set(['cell', 'notebook', 'function']);
const NEWEST_TEXT_BYTES = 64 * 1024;
const NEWEST_BYTES = 4 * 1024 * 1024;
const LINES_OF_A_DOCUMENT = 5000;
const LOOK_AGAIN_MS = 1000;

export class Reading {
  folding: Folding;
  shortened = false;
  private _attempt = 0;
  private _cursor = 0;
  private _busy = false;

  constructor(private _whole: boolean) {
    this.folding = this._fold();
  }

  /** Read what is new; true when there was anything. Raises what `api.outputs` raises. */
  async read(view: JobView): Promise<boolean> {
    const attempt = view.attempts[view.attempts.length - 1]?.number;
    if (!attempt) {
      return false;
    }
    if (this._busy) {
      return true; // what came since that reading began is still to be read
    }
    this._busy = true;
    try {
      if (attempt !== this._attempt) {
        this._begin(attempt);
      }
      return await this._readOn(view);
    } finally {
      this._busy = false;
    }
  }

  private _begin(attempt: number): void {
    this._attempt = attempt;
    this._cursor = 0;
    this.shortened = false;
    this.folding = this._fold();
  }

  private _fold(): Folding {
    return new Folding(this._whole ? LINES_OF_A_DOCUMENT : undefined);
  }

  private async _readOn(view: JobView): Promise<boolean> {
    const journaled = JOURNALED.has(view.kind);
    const newest = this._whole || journaled ? NEWEST_BYTES : NEWEST_TEXT_BYTES;
    const { items, next, left_out } = await api.outputs(view.id, this._attempt, this._cursor, newest);
    if (left_out) {
      this.folding = this._fold(); // more came than is ever shown
      this.shortened = true;
    }
    const before = this._cursor;
    this._cursor = next;
    items.forEach(output => this.folding.take(output));
    return next > before;
  }
}

/** The outputs as far as they have come; read on whenever the server says that there is more and `box` can be seen. */
export function useOutputs(view: JobView, box: React.RefObject<HTMLElement>, whole: boolean): Reading {
  const reading = React.useRef<Reading | null>(null);
  reading.current ??= new Reading(whole);
  const [, redraw] = React.useReducer((n: number) => n + 1, 0);
  const latest = React.useRef(view);
  latest.current = view;
  const over = isFinal(view);
  const reach = usePart(({ reaches }) => reaches.get(view.id));
  const connected = usePart(state => state.connected);
  const seen = useOnScreen(box);
  const attempts = view.attempts.length;
  React.useEffect(() => {
    if (!seen) {
      return;
    }
    let timer = 0;
    let gone = false;
    const read = async (): Promise<void> => {
      let again = false;
      try {
        if ((await reading.current?.read(latest.current)) && !gone) {
          redraw();
          again = true; // there may be more
        }
      } catch (error) {
        again = true;
        console.debug('jupyter-gpusched: the outputs did not come', error);
      }
      if (again && !gone) {
        timer = window.setTimeout(() => void read(), LOOK_AGAIN_MS);
      }
    };
    void read();
    return () => {
      gone = true;
      window.clearTimeout(timer);
    };
  }, [view.id, over, attempts, reach, connected, seen]);
  return reading.current;
}
