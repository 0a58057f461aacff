// Generated from jupyter_gpusched/wire.py by labextension/generate_wire.py; edit that, not this.

export const PREFIX = "/gpusched/api/v1";

export interface Alert {
  id: string;
  kind: string;
  message: string;
  since: number;
  gpu_uuid: string | null;
  gpu_index: number | null;
  job_id: string | null;
  user: string | null;
  hint: string | null;
  severity: string;
}

export interface ArrayView {
  id: string;
  name: string;
  user: string;
  kind: string;
  count: number;
  phases: Record<string, number>;
  held: number;
  throttle: number | null;
  submitted_at: number;
}

export interface AttemptView {
  number: number;
  outcome: string | null;
  reason: string | null;
  message: string | null;
  gpus: GpuRef[];
  started_at: number | null;
  ended_at: number | null;
  exit_code: number | null;
  signal: number | null;
  peak_vram_mib: number | null;
  placement: string | null;
}

export interface DeviceUser {
  pid: number;
  program: string | null;
  user: string | null;
}

export interface Drained {
  since: number;
  by: string;
  cause: string;
}

export interface ErrorBody {
  error: ErrorDetail;
}

export interface ErrorDetail {
  code: string;
  message: string;
  field: string | null;
  hint: string | null;
}

export interface GpuRef {
  uuid: string;
  index: number;
  name: string;
}

export interface GpuView {
  uuid: string;
  index: number;
  name: string;
  parent_uuid: string | null;
  total_mib: number;
  reserved_mib: number;
  used_mib: number | null;
  free_mib: number | null;
  promised_mib: number;
  foreign_mib: number | null;
  available_mib: number | null;
  utilization_pct: number | null;
  temperature_c: number | null;
  power_w: number | null;
  compute_mode: string | null;
  health: HealthOfGpu;
  simulated: boolean;
  sampled_at: number;
  holders: Holder[];
  unattributed_mib: number | null;
  device_file: string | null;
  opened_by: DeviceUser[];
  reservations: Reservation[];
}

export interface Health {
  status: string;
  version: string;
  api: number;
  instance: string;
  pid: number;
  state_dir: string;
  simulated: string | null;
  causes: string[];
  cpus: number;
  memory_mib: number;
  kind: string;
  epoch: number;
  socket: string;
  gpu_cause: string | null;
  ending: string;
  notices: string[];
  isolation: string;
  host_limits: string;
  drained: Drained | null;
  live_jobs: number;
  user: string;
  admin: boolean;
  administrators: string;
  unseen: string | null;
}

export interface HealthOfGpu {
  status: string;
  cause: string | null;
  since: number | null;
  by: string | null;
}

export interface HeldView {
  by: string;
  cause: string | null;
  since: number;
}

export interface Holder {
  kind: string;
  state: string | null;
  job_id: string | null;
  user: string | null;
  pid: number | null;
  vram_mib: number | null;
  estimated: boolean;
  promised_mib: number | null;
  since: number | null;
  notebook: string | null;
  mine: boolean;
  name: string | null;
}

export interface JobView {
  id: string;
  kind: string;
  name: string;
  user: string;
  phase: string;
  reason: string | null;
  message: string | null;
  waiting: string | null;
  explanation: string[] | null;
  position: number | null;
  in_line: boolean;
  estimated_start: number | null;
  estimated_start_range: number[] | null;
  vram_mib: number | null;
  gpus_requested: number;
  gpus: GpuRef[];
  cpus: number | null;
  memory_mib: number | null;
  priority: string;
  submitted_at: number;
  started_at: number | null;
  ended_at: number | null;
  exit_code: number | null;
  signal: number | null;
  used_vram_mib: number | null;
  peak_vram_mib: number | null;
  overuse_mib: number | null;
  cap: string | null;
  peak_rss_mib: number | null;
  progress: Progress | null;
  time_limit_s: number | null;
  advice: string | null;
  attempts: AttemptView[];
  notebook: string | null;
  parent_id: string | null;
  array_id: string | null;
  tags: string[];
  simulated: boolean;
  held: HeldView | null;
  after: string[];
  array_index: number | null;
  sweep: Record<string, unknown> | null;
}

export interface Progress {
  fraction: number | null;
  done: number | null;
  total: number | null;
  text: string;
  remaining_s: number | null;
}

export interface Report {
  since: number;
  until: number;
  items: UserReport[];
  next_cursor: string | null;
}

export interface Reservation {
  id: string;
  user: string | null;
  count: number;
  gpus: GpuRef[];
  start: number;
  end: number;
  zone: string;
  by: string;
  cause: string | null;
  active: boolean;
  reaching_in: number;
  mine: boolean;
}

export interface UserReport {
  user: string;
  jobs: number;
  queued: number;
  running: number;
  succeeded: number;
  failed: number;
  cancelled: number;
  timeout: number;
  lost: number;
  gpu_hours: number;
  mean_wait_s: number | null;
  longest_wait_s: number | null;
  idle_share: number | null;
}
