// A job's output lines folded into what a cell would show: text as a terminal has it, and rich outputs between.
// The same rules as jupyter_gpusched/outputs.py; bounded, whatever a job puts out.

import { JobOutput } from './api';
import { Terminal } from './terminal';

export interface TextPart {
  readonly kind: 'text';
  readonly key: number;
  readonly cell: number | null;
  readonly terminal: Terminal;
}

export interface RichPart {
  readonly kind: 'rich';
  readonly key: number;
  readonly cell: number | null;
  readonly displayId: string | null;
  readonly output: JobOutput;
}

export type Part = TextPart | RichPart;

const MOST_PARTS = 100;

export class Folding {
  parts: Part[] = [];
  /** Whether earlier parts are left out. */
  shortened = false;
  private _key = 0;
  private _clearAtNext = new Set<number | null>();

  constructor(private _mostLines?: number) {}

  take(output: JobOutput): void {
    const cell = output.cell ?? null;
    if (output.output_type === 'clear_output') {
      if (output.wait) {
        this._clearAtNext.add(cell);
      } else {
        this._clear(cell);
      }
    } else if (output.output_type === 'update_display_data') {
      this._update(output);
    } else {
      if (this._clearAtNext.has(cell)) {
        this._clear(cell);
      }
      this._append(output, cell);
    }
  }

  private _clear(cell: number | null): void {
    this.parts = this.parts.filter(part => part.cell !== cell);
    this._clearAtNext.delete(cell);
  }

  private _append(output: JobOutput, cell: number | null): void {
    if (output.output_type === 'stream') {
      this._write(textOf(output['text']), cell);
    } else if (['display_data', 'execute_result', 'error'].includes(output.output_type)) {
      this._push({ kind: 'rich', key: this._key++, cell, displayId: output.transient?.display_id ?? null, output });
    }
  }

  private _write(text: string, cell: number | null): void {
    const last = this.parts[this.parts.length - 1];
    if (last?.kind === 'text' && last.cell === cell) {
      last.terminal.write(text);
      return;
    }
    const terminal = new Terminal(this._mostLines);
    terminal.write(text);
    this._push({ kind: 'text', key: this._key++, cell, terminal });
  }

  private _push(part: Part): void {
    this.parts.push(part);
    if (this.parts.length > MOST_PARTS) {
      this.parts.shift();
      this.shortened = true;
    }
  }

  private _update(update: JobOutput): void {
    const wanted = update.transient?.display_id;
    this.parts = this.parts.map(part =>
      part.kind === 'rich' && wanted && part.displayId === wanted
        ? { ...part, key: this._key++, output: { ...part.output, data: update['data'], metadata: update['metadata'] } }
        : part
    );
  }
}

/** nbformat allows a list of lines. */
function textOf(text: unknown): string {
  return Array.isArray(text) ? text.join('') : typeof text === 'string' ? text : '';
}
