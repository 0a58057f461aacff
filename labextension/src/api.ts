// What this front end asks of the server: by REST and one WebSocket, with the server's own login.
// Ids come from notebooks that anybody may have written: they are checked before they reach a URL.

import { ServerConnection } from '@jupyterlab/services';

import { ErrorBody, GpuView, Health, JobView, PREFIX, Progress } from './wire';

export interface StoredLog {
  bytes: Uint8Array;
  size: number;
}

export interface OutputsFrame {
  type: 'outputs';
  job_id: string;
  attempt: number;
  next: number;
  log_size: number;
  progress: Progress | null;
}

export type Frame =
  | { type: 'snapshot'; jobs: JobView[]; gpus: GpuView[]; connected: boolean }
  | { type: 'job'; job: JobView }
  | { type: 'gpus'; gpus: GpuView[] }
  | { type: 'queue'; jobs: JobView[] }
  | OutputsFrame
  | { type: 'status'; connected: boolean };

/** An answer that is no success; `message` is one for a person. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string
  ) {
    super(message);
  }
}

export function isJobId(text: unknown): text is string {
  return typeof text === 'string' && /^[a-z0-9]{8}$/.test(text);
}

export async function job(id: string): Promise<JobView> {
  return (await ask(pathOf(id))).json() as Promise<JobView>;
}

export async function recentJobs(limit: number): Promise<JobView[]> {
  const page = (await (await ask(`jobs?limit=${limit}`)).json()) as { items: JobView[] };
  return page.items;
}

export async function health(): Promise<Health> {
  return (await ask('health')).json() as Promise<Health>;
}

export async function cancel(id: string): Promise<JobView> {
  const answer = await ask(`${pathOf(id)}/cancel`, { method: 'POST', body: '{}' });
  return answer.json() as Promise<JobView>;
}

export async function log(id: string, attempt: number, offset: number, limit: number): Promise<StoredLog> {
  const answer = await ask(`${pathOf(id)}/log?attempt=${attempt}&offset=${offset}&limit=${limit}`);
  return {
    bytes: new Uint8Array(await answer.arrayBuffer()),
    size: Number(answer.headers.get('X-Gpusched-Log-Size') ?? 0)
  };
}

export function openStream(): WebSocket {
  const settings = ServerConnection.makeSettings();
  const token = settings.appendToken && settings.token ? `?token=${encodeURIComponent(settings.token)}` : '';
  return new settings.WebSocket(`${withoutSlash(settings.wsUrl)}${PREFIX}/stream${token}`);
}

export function pathOf(id: string): string {
  if (!isJobId(id)) {
    throw new Refused(404, 'This is not the id of a job.');
  }
  return `jobs/${encodeURIComponent(id)}`;
}

export async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const settings = ServerConnection.makeSettings();
  const url = `${withoutSlash(settings.baseUrl)}${PREFIX}/${path}`;
  const answer = await ServerConnection.makeRequest(url, init, settings);
  if (!answer.ok) {
    throw new Refused(answer.status, await reasonOf(answer));
  }
  return answer;
}

async function reasonOf(answer: Response): Promise<string> {
  try {
    const { error } = (await answer.json()) as ErrorBody;
    return [error.message, error.hint].filter(Boolean).join(' ');
  } catch {
    return `The server answered with status ${answer.status}.`;
  }
}

function withoutSlash(url: string): string {
  return url.replace(/\/+$/, '');
}
