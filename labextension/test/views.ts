// Views for tests, with the fields that matter given.

import { GpuView, Holder, JobView } from '../src/wire';

export function job(id: string, more: Partial<JobView> = {}): JobView {
  return {
    id,
    kind: 'command',
    name: id,
    user: 'ann',
    phase: 'queued',
    reason: null,
    message: null,
    waiting: null,
    explanation: null,
    position: null,
    in_line: true,
    estimated_start: null,
    estimated_start_range: null,
    vram_mib: 4096,
    gpus_requested: 1,
    gpus: [],
    cpus: null,
    memory_mib: null,
    priority: 'normal',
    submitted_at: 100,
    started_at: null,
    ended_at: null,
    exit_code: null,
    signal: null,
    used_vram_mib: null,
    peak_vram_mib: null,
    overuse_mib: null,
    cap: null,
    peak_rss_mib: null,
    progress: null,
    time_limit_s: null,
    advice: null,
    attempts: [],
    notebook: null,
    parent_id: null,
    array_id: null,
    held: null,
    after: [],
    array_index: null,
    sweep: null,
    tags: [],
    simulated: true,
    ...more
  };
}

export function gpu(more: Partial<GpuView> = {}): GpuView {
  return {
    uuid: 'GPU-0',
    index: 0,
    name: 'Card',
    parent_uuid: null,
    total_mib: 24576,
    reserved_mib: 0,
    used_mib: 0,
    free_mib: 24576,
    promised_mib: 0,
    foreign_mib: 0,
    available_mib: 24576,
    utilization_pct: null,
    temperature_c: null,
    power_w: null,
    compute_mode: null,
    health: { status: 'ok', cause: null, since: null, by: null },
    simulated: true,
    sampled_at: 1,
    unattributed_mib: null,
    device_file: null,
    opened_by: [],
    reservations: [],
    holders: [],
    ...more
  };
}

export function holder(more: Partial<Holder> = {}): Holder {
  return {
    kind: 'job',
    state: 'held',
    job_id: null,
    user: 'ann',
    pid: null,
    vram_mib: null,
    estimated: false,
    promised_mib: null,
    since: null,
    notebook: null,
    mine: false,
    name: null,
    ...more
  };
}
