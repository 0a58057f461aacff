// What a card asks of the server beyond the store: a job's outputs and memory, and to run it again.

import { IOutput } from '@jupyterlab/nbformat';
import { ServerConnection } from '@jupyterlab/services';
import { URLExt } from '@jupyterlab/coreutils';

import { ask, pathOf } from './api';
import { PREFIX } from './wire';

export type JobOutput = IOutput & {
  output_type: string;
  cell?: number;
  wait?: boolean;
  transient?: { display_id?: string };
};

export interface Outputs {
  items: JobOutput[];
  next: number;
  final: boolean;
  left_out: boolean;
}

export interface MemorySample {
  at: number;
  used_mib: number | null;
}

/** What may be given anew when a job is run again; null stands for the default. */
export interface Changes {
  name?: string;
  vram?: string | null;
  gpus?: number;
  time_limit?: string | null;
}

export async function outputs(id: string, attempt: number, after: number, newest: number): Promise<Outputs> {
  const answer = await ask(`${pathOf(id)}/outputs?attempt=${attempt}&after=${after}&newest=${newest}`);
  return answer.json() as Promise<Outputs>;
}

/** The memory a job has used so far; raises `Refused` where the server keeps no record of it. */
export async function memory(id: string): Promise<MemorySample[]> {
  const page = (await (await ask(`${pathOf(id)}/memory`)).json()) as { items: MemorySample[] };
  return page.items;
}

export async function resubmit(id: string, changes: Changes): Promise<string> {
  const answer = await ask(`${pathOf(id)}/resubmit`, { method: 'POST', body: JSON.stringify(changes) });
  return ((await answer.json()) as { id: string }).id;
}

/** As the page is left: the browser sends it although nobody is there to read the answer. */
export function cancelOnLeaving(id: string): void {
  ask(`${pathOf(id)}/cancel`, { method: 'POST', body: '{}', keepalive: true }).catch(() => undefined);
}

/** The address of all that a job printed, for a tab of the browser. */
export function logUrl(id: string): string {
  return URLExt.join(ServerConnection.makeSettings().baseUrl, PREFIX, pathOf(id), 'log');
}
