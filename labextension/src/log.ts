// The text that a job prints, as it comes: the end of its log, read on from where the last reading stopped.

import * as api from './api';
import { Terminal } from './terminal';
import { JobView } from './wire';

const SHOWN_BYTES = 64 * 1024;
const CHUNK_BYTES = 256 * 1024;

export class LogTail {
  terminal = new Terminal();
  /** Whether earlier text is left out. */
  shortened = false;
  private _attempt = 0;
  private _offset = 0;
  private _decoder = new TextDecoder();
  private _reading = false;

  /** Read what is new; true when there was anything. Raises what `api.log` raises. */
  async read(view: JobView): Promise<boolean> {
    const attempt = view.attempts[view.attempts.length - 1]?.number;
    if (!attempt || this._reading) {
      return false;
    }
    this._reading = true;
    try {
      if (attempt !== this._attempt) {
        await this._begin(view.id, attempt);
      }
      return await this._readOn(view.id);
    } finally {
      this._reading = false;
    }
  }

  private async _begin(id: string, attempt: number): Promise<void> {
    const { size } = await api.log(id, attempt, 0, 0);
    this._attempt = attempt;
    this._skipTo(Math.max(0, size - SHOWN_BYTES));
  }

  private async _readOn(id: string): Promise<boolean> {
    const before = this._offset;
    const { bytes, size, next } = await api.log(id, this._attempt, this._offset, CHUNK_BYTES);
    if (size - this._offset > CHUNK_BYTES) {
      this._skipTo(size - SHOWN_BYTES); // more came than is ever shown
      return true;
    }
    this._offset = next;
    this.terminal.write(this._decoder.decode(bytes, { stream: true }));
    return this._offset > before;
  }

  private _skipTo(offset: number): void {
    this.shortened = offset > 0;
    this._offset = offset;
    this._decoder = new TextDecoder();
    this.terminal = new Terminal();
  }
}
