// What a person gives with a job (VRAM, GPUs, time, name), as text in a form; empty means the default. Pure.

import type { Spec } from './api';
import { split } from './shellwords';
import { trans } from './translation';

export interface Terms {
  vram: string;
  gpus: string;
  time: string;
  name: string;
}

/** The same for a file or a command, and what is to be run of it. */
export interface TermsOfFile extends Terms {
  command: string;
  args: string;
}

export type What = 'script' | 'notebook' | 'command';

export const NO_TERMS: Terms = { vram: '', gpus: '', time: '', name: '' };

const MEMORY = /^(\d+(\.\d+)?[MGT](i?B)?|auto)$/i;
const SPAN = /^\d+(\.\d+)?[smhd]$/i;

/** What is wrong with the terms, in a sentence; empty when nothing is. The server has the last word. */
export function fault(terms: Terms): string {
  const { vram, gpus, time } = trimmed(terms);
  if (vram && !MEMORY.test(vram)) {
    return trans.__('VRAM: write an amount such as 4G or 512M.');
  }
  if (gpus && !/^\d{1,4}$/.test(gpus)) {
    return trans.__('GPUs: write a whole number; 0 is none.');
  }
  if (vram && Number(gpus || 1) === 0) {
    return trans.__('A job without a GPU takes no VRAM.');
  }
  return time && !SPAN.test(time) ? trans.__('Time: write a span such as 90s, 15m or 2h.') : '';
}

export function trimmed<Some extends Terms>(terms: Some): Some {
  return Object.fromEntries(Object.entries(terms).map(([key, text]) => [key, (text as string).trim()])) as unknown as Some;
}

/** What is to be queued for a file or a command; raises in a sentence what is wrong with the terms. */
export function specOf(given: TermsOfFile, what: What): Spec {
  const { command, args, vram, gpus, time, name } = trimmed(given);
  const words = split(args);
  const wrong = words ? fault(given) : trans.__('Arguments: a quotation is not closed.');
  if (wrong) {
    throw new Error(wrong);
  }
  return {
    ...(what === 'command' && { argv: command, kind: 'command' }),
    ...(what === 'script' && words?.length && { args: words }),
    ...(vram && { vram }),
    ...(time && { time_limit: time }),
    ...(name && { name }),
    gpus: Number(gpus || 1)
  };
}
