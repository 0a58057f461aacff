// What this front end asks of the server: by REST and one WebSocket, with the server's own login.
// Ids come from notebooks that anybody may have written: they are checked before they reach a URL.

import { ServerConnection } from '@jupyterlab/services';

import { Sample } from './state';
import { ErrorBody, Health, JobView, PREFIX } from './wire';

/** What was submitted, as the journal has it; only what is shown is named here. */
export type Spec = Record<string, unknown>;

/** Something that happened to a job. */
export interface JobEvent {
  seq: number;
  at: number;
  kind: string;
  detail: Record<string, unknown> | null;
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

export async function recentJobs(limit: number): Promise<JobView[]> {
  return items<JobView>(`jobs?limit=${limit}`);
}

export async function health(): Promise<Health> {
  return (await ask('health')).json() as Promise<Health>;
}

export async function cancel(id: string): Promise<JobView> {
  const answer = await ask(`${pathOf(id)}/cancel`, { method: 'POST', body: '{}' });
  return answer.json() as Promise<JobView>;
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
export async function memory(id: string): Promise<{ at: number; used_mib: number | null }[] | null> {
  return unlessUnknown(items(`${pathOf(id)}/memory`));
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

export function pathOf(id: string): string {
  if (!isJobId(id)) {
    throw new Refused(404, 'This is not the id of a job.');
  }
  return `jobs/${encodeURIComponent(id)}`;
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
