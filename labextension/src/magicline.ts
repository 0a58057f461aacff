// The line `%%gpujob ...` of a cell, read into the terms of the form and written back.
// The notebook is the truth: whatever else the line says stays as it was written.

import { quoted, unquoted, written } from './shellwords';
import type { Terms } from './terms';

export const LOAD = '%load_ext jupyter_gpusched';

const OPTIONS: Record<string, keyof Terms> = {
  '--vram': 'vram',
  '--gpus': 'gpus',
  '--time': 'time',
  '--name': 'name'
};
const ORDER: (keyof Terms)[] = ['vram', 'gpus', 'time', 'name'];

export interface MagicCell {
  readonly terms: Terms;
  /** What the line says beside the terms, word by word as written. */
  readonly others: readonly string[];
  /** The cell below the line. */
  readonly body: string;
}

/** The cell in its parts; null when it begins with another cell magic, which cannot be combined with ours. */
export function readCell(source: string): MagicCell | null {
  const cell = source.replace(/^(?:[ \t]*\r?\n)+/, '');
  const [first = '', ...rest] = cell.split('\n');
  const own = /^%%gpujob(?:\s+(.*))?$/.exec(first.trimEnd());
  if (own) {
    return { ...readLine(own[1] ?? ''), body: rest.join('\n') };
  }
  return first.startsWith('%%') ? null : { ...readLine(''), body: source };
}

export function writeCell(cell: MagicCell, terms: Terms): string {
  const given = ORDER.filter(key => terms[key]).map(key => `--${key} ${quoted(terms[key].replace(/\n/g, ' '))}`);
  return [['%%gpujob', ...given, ...cell.others].join(' '), cell.body].join('\n');
}

/** Whether one of these cells makes the magic known. */
export function isLoaded(sources: string[]): boolean {
  return sources.some(source => /^[ \t]*%(?:re)?load_ext[ \t]+jupyter_gpusched\b/m.test(source));
}

function readLine(line: string): Pick<MagicCell, 'terms' | 'others'> {
  const terms: Terms = { vram: '', gpus: '', time: '', name: '' };
  const others: string[] = [];
  const words = written(line);
  for (let n = 0; n < words.length; n++) {
    const word = words[n] ?? '';
    const [, option = word, joined] = /^(--\w+)=(.*)$/s.exec(word) ?? [];
    const key = OPTIONS[option];
    const value = joined ?? words[n + 1];
    if (key && value !== undefined) {
      terms[key] = unquoted(value);
      n += joined === undefined ? 1 : 0;
    } else {
      others.push(word);
    }
  }
  return { terms, others };
}
