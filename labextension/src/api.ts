// What this front end asks of the server: by REST and one WebSocket, with the server's own login.
// Ids come from notebooks that anybody may have written: they are checked before they reach a URL.

import { IOutput } from '@jupyterlab/nbformat';
import { ServerConnection } from '@jupyterlab/services';

import { Sample } from './state';
import { ArrayView, ErrorBody, Health, JobView, PREFIX, Report } from './wire';

/** What was submitted, as the journal has it; only what is shown is named here. */
export type Spec = Record<string, unknown>;

/** Something that happened to a job. */
export interface JobEvent {
  seq: number;
  at: number;
  kind: string;
  detail: Record<string, unknown> | null;
}

export interface MemorySample {
  at: number;
  used_mib: number | null;
}

/** An output of a job as nbformat has it, and which cell it is of. */
export type JobOutput = IOutput & {
  output_type: string;
  cell?: number;
  wait?: boolean;
  transient?: { display_id?: string };
};

/** A part of a job's outputs; `left_out` when older ones were passed over. */
export interface Outputs {
  items: JobOutput[];
  next: number;
  final: boolean;
  left_out: boolean;
}

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

export async function array(id: string): Promise<ArrayView> {
  return (await ask(pathOf(id, 'arrays'))).json() as Promise<ArrayView>;
}

/** Elements of an array, the newest first. */
export async function elements(id: string, limit: number): Promise<JobView[]> {
  return isJobId(id) ? items<JobView>(`jobs?array=${id}&limit=${limit}`) : [];
}

/** Act on all of an array; what comes of it is told by the stream. */
export async function actOnArray(id: string, act: 'cancel' | 'release'): Promise<void> {
  await ask(`${pathOf(id)}/${act}`, { method: 'POST', body: '{}' });
}

/** Queue those elements again that did not succeed, or these; the id of the array that they make. */
export async function resubmitArray(id: string, elements = ''): Promise<string> {
  const answer = await ask(`${pathOf(id)}${encodeURIComponent(elements)}/resubmit`, { method: 'POST', body: JSON.stringify(keyed({})) });
  return ((await answer.json()) as { array_id: string }).array_id;
}

/** Jobs that have ended, the newest first. */
export async function endedJobs(limit: number): Promise<JobView[]> {
  return items<JobView>(`jobs?ended=1&limit=${limit}`);
}

export async function health(): Promise<Health> {
  return (await ask('health')).json() as Promise<Health>;
}

export async function cancel(id: string): Promise<JobView> {
  const answer = await ask(`${pathOf(id)}/cancel`, { method: 'POST', body: '{}' });
  return answer.json() as Promise<JobView>;
}

/** As the page is left: the browser sends it although nobody is there to read the answer. */
export function cancelOnLeaving(id: string): void {
  ask(`${pathOf(id)}/cancel`, { method: 'POST', body: '{}', keepalive: true }).catch(() => undefined);
}

/** Queue a job; its id. */
export async function submit(spec: Spec): Promise<string> {
  const answer = await ask('jobs', { method: 'POST', body: JSON.stringify(keyed(spec)) });
  return ((await answer.json()) as { id: string }).id;
}

/** Queue the same work again, with changes if any; the new job's id. */
export async function resubmit(id: string, changes: Spec = {}): Promise<string> {
  const answer = await ask(`${pathOf(id)}/resubmit`, { method: 'POST', body: JSON.stringify(keyed(changes)) });
  return ((await answer.json()) as { id: string }).id;
}

/** A waiting job does not start until it is released. */
export async function hold(id: string): Promise<JobView> {
  const answer = await ask(`${pathOf(id)}/hold`, { method: 'POST', body: '{}' });
  return answer.json() as Promise<JobView>;
}

export async function release(id: string): Promise<JobView> {
  const answer = await ask(`${pathOf(id)}/release`, { method: 'POST', body: '{}' });
  return answer.json() as Promise<JobView>;
}

/** What an administrator does with the machine. */
export async function operate(act: 'drain' | 'resume' | 'quarantine', body: object): Promise<void> {
  await ask(`admin/${act}`, { method: 'POST', body: JSON.stringify(body) });
}

/** What each user had of the jobs submitted since then. */
export async function report(since: number): Promise<Report> {
  return (await ask(`admin/report?since=${Math.floor(since)}`)).json() as Promise<Report>;
}

/** Everybody's jobs in this phase, the newest first. */
export async function everybodys(phase: string, limit: number): Promise<JobView[]> {
  return items<JobView>(`jobs?all_users=1&phase=${phase}&limit=${limit}`);
}

/** Put a waiting job right before or after another one. */
export async function reorder(id: string, where: { before: string } | { after: string }): Promise<JobView> {
  const answer = await ask(pathOf(id), { method: 'PATCH', body: JSON.stringify(where) });
  return answer.json() as Promise<JobView>;
}

export async function spec(id: string): Promise<Spec> {
  return (await ask(`${pathOf(id)}/spec`)).json() as Promise<Spec>;
}

/** What happened to a job, oldest first; null where the host does not tell. */
export async function events(id: string): Promise<JobEvent[] | null> {
  return unlessUnknown(items<JobEvent>(`${pathOf(id)}/events`));
}

/** How much memory a job used in the course of its life; null where the host does not tell. */
export async function memory(id: string): Promise<MemorySample[] | null> {
  return unlessUnknown(items(`${pathOf(id)}/memory`));
}

export async function outputs(id: string, attempt: number, after: number, newest: number): Promise<Outputs> {
  const answer = await ask(`${pathOf(id)}/outputs?attempt=${attempt}&after=${after}&newest=${newest}`);
  return answer.json() as Promise<Outputs>;
}

/** The address of all that a job printed, for a tab of the browser. */
export function logUrl(id: string): string {
  return urlOf(`${pathOf(id)}/log`);
}

/** The last minutes of all cards; null where the host does not tell. */
export async function gpuHistory(since: number): Promise<(Sample & { uuid: string })[] | null> {
  return unlessUnknown(items(`gpus/history?since=${Math.floor(since)}`));
}

export function openStream(after: number | null): WebSocket {
  const settings = ServerConnection.makeSettings();
  const query = new URLSearchParams(after === null ? {} : { after: String(after) });
  if (settings.appendToken && settings.token) {
    query.set('token', settings.token);
  }
  return new settings.WebSocket(`${withoutSlash(settings.wsUrl)}${PREFIX}/stream?${query}`);
}

function pathOf(id: string, kind = 'jobs'): string {
  if (!isJobId(id)) {
    throw new Refused(404, 'This is not the id of a job.');
  }
  return `${kind}/${encodeURIComponent(id)}`;
}

/** A submission that may be sent twice and is queued once. */
function keyed(spec: Spec): Spec {
  return { idempotency_key: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, ...spec };
}

async function items<Item>(path: string): Promise<Item[]> {
  return ((await (await ask(path)).json()) as { items: Item[] }).items;
}

async function unlessUnknown<Answer>(answer: Promise<Answer>): Promise<Answer | null> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Refused && error.status === 404) {
      return null;
    }
    throw error;
  }
}

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const settings = ServerConnection.makeSettings();
  const answer = await ServerConnection.makeRequest(urlOf(path), init, settings);
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

function urlOf(path: string): string {
  return `${withoutSlash(ServerConnection.makeSettings().baseUrl)}${PREFIX}/${path}`;
}

function withoutSlash(url: string): string {
  return url.replace(/\/+$/, '');
}
