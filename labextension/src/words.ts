// Jobs and GPUs in plain words; the same words as jupyter_gpusched/describe.py.
// Missing values are "n/a", never 0.

import { GpuView, JobView } from './wire';

const FINAL = new Set(['succeeded', 'failed', 'cancelled', 'timeout', 'lost']);

export const SIMULATED = 'SIMULATED';

export function isFinal(view: JobView): boolean {
  return FINAL.has(view.phase);
}

export function mib(amount: number | null): string {
  return amount === null ? 'n/a' : `${(amount / 1024).toFixed(1)}G`;
}

export function seconds(span: number): string {
  const whole = Math.max(0, Math.round(span));
  const two = (n: number): string => String(n).padStart(2, '0');
  if (whole < 60) {
    return `${whole}s`;
  }
  if (whole < 3600) {
    return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  }
  if (whole < 86400) {
    return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
  }
  return `${Math.floor(whole / 86400)}d${two(Math.floor((whole % 86400) / 3600))}h`;
}

/** What it asks for: `4.0G on 1 GPU`, `2 whole GPUs`, `no GPU`. */
export function wants(view: JobView): string {
  const count = view.gpus_requested;
  if (!count) {
    return 'no GPU';
  }
  const cards = count > 1 ? 'GPUs' : 'GPU';
  if (view.vram_mib === null) {
    return `${count} whole ${cards}`;
  }
  return `${mib(view.vram_mib)} on ${count} ${cards}${count > 1 ? ' each' : ''}`;
}

export function where(view: JobView): string {
  return view.gpus.map(gpu => `GPU ${gpu.index}`).join(', ');
}

/** How long it has run or ran, or has waited if it has not started; `now` in seconds. */
export function lasted(view: JobView, now: number): string {
  if (view.started_at !== null) {
    return `${isFinal(view) ? 'ran' : 'for'} ${seconds((view.ended_at ?? now) - view.started_at)}`;
  }
  return view.phase === 'queued' ? `waiting for ${seconds(now - view.submitted_at)}` : '';
}

/** Why it waits, or how it ended. */
export function sentence(view: JobView): string {
  if (view.phase === 'queued') {
    return `${view.waiting ?? 'waiting'}${view.position ? ` (number ${view.position} in the queue)` : ''}`;
  }
  return isFinal(view) && view.phase !== 'succeeded' ? ending(view) : '';
}

function ending(view: JobView): string {
  const code = view.exit_code !== null ? `exit code ${view.exit_code}` : signalOf(view);
  const why = view.message ?? view.reason ?? '';
  return [why.includes(code) ? '' : code, why].filter(Boolean).join(': ');
}

function signalOf(view: JobView): string {
  return view.signal !== null ? `signal ${view.signal}` : '';
}

export function figures(gpu: GpuView): string {
  const parts = [
    `${mib(gpu.used_mib)} of ${mib(gpu.total_mib)} used`,
    `${mib(gpu.promised_mib)} promised`,
    `${mib(gpu.available_mib)} available`
  ];
  if (gpu.utilization_pct !== null) {
    parts.push(`load ${Math.round(gpu.utilization_pct)} %`);
  }
  if (gpu.temperature_c !== null) {
    parts.push(`${Math.round(gpu.temperature_c)} °C`);
  }
  return parts.join(' · ');
}
