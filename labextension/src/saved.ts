// What a notebook's file says of a job. It may hold anything: only what has the shape that the card reads is taken.

import { ArrayView, JobView } from './wire';

export function savedView(data: unknown, id: string): JobView | null {
  if (!isSavedView(data, id)) {
    return null;
  }
  const { time_limit_s: limit, advice }: { time_limit_s?: unknown; advice?: unknown } = data; // missing in older cards
  return {
    ...data,
    time_limit_s: typeof limit === 'number' ? limit : null,
    advice: typeof advice === 'string' ? advice : null,
    held: null,
    sweep: null,
    overuse_mib: null,
    explanation: null,
    progress: null,
    estimated_start: null,
    estimated_start_range: null
  };
}

/** What it says of an array as a whole: enough to be read where nobody knows the array. */
export type SavedArray = Pick<ArrayView, 'name' | 'count' | 'phases' | 'held'>;

export function savedArray(data: unknown): SavedArray | null {
  const { name, count, phases, held } = (data ?? {}) as Partial<Record<keyof SavedArray, unknown>>;
  const counted = Object.entries(Object(phases) as Record<string, unknown>);
  return typeof name === 'string' && typeof count === 'number' && typeof held === 'number' && counted.every(isCount)
    ? { name, count, held, phases: Object.fromEntries(counted) as Record<string, number> }
    : null;
}

function isCount([, many]: [string, unknown]): boolean {
  return typeof many === 'number';
}

function isSavedView(data: unknown, id: string): data is JobView {
  const view = data as Partial<Record<keyof JobView, unknown>> | null;
  return (
    !!view &&
    view.id === id &&
    typeof view.name === 'string' &&
    typeof view.phase === 'string' &&
    typeof view.kind === 'string' &&
    typeof view.gpus_requested === 'number' &&
    isNumberOrNull(view.vram_mib) &&
    isNumberOrNull(view.peak_vram_mib) &&
    isNumberOrNull(view.started_at) &&
    isNumberOrNull(view.ended_at) &&
    isNumberOrNull(view.exit_code) &&
    isNumberOrNull(view.signal) &&
    isTextOrNull(view.waiting) &&
    isTextOrNull(view.message) &&
    isTextOrNull(view.reason) &&
    Array.isArray(view.gpus) &&
    view.gpus.every(isGpu) &&
    Array.isArray(view.attempts)
  );
}

function isGpu(data: unknown): boolean {
  const gpu = data as { index?: unknown; name?: unknown } | null;
  return typeof gpu?.index === 'number' && typeof gpu.name === 'string';
}

function isNumberOrNull(value: unknown): boolean {
  return value === null || typeof value === 'number';
}

function isTextOrNull(value: unknown): boolean {
  return value === null || typeof value === 'string';
}
