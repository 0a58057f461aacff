// The elements of an array as a whole, in plain words.

import { trans } from './translation';
import { ArrayView, JobView } from './wire';
import { isFinal, isHeld, phaseName, sentence, textOf } from './words';

/** What the names of its elements have in common, without the figures that they end with where they differ. */
export function nameOf(views: readonly JobView[]): string {
  const first = views[0]?.name ?? '';
  let common = first.length;
  for (const { name } of views) {
    while (!name.startsWith(first.slice(0, common))) {
      common -= 1;
    }
  }
  const same = views.every(({ name }) => name === first);
  return same ? first : first.slice(0, common).replace(/[\s\d[({=_.,:#-]+$/, '') || first;
}

/** Which element of its array a job is, and the values that it was given there: `#2, lr=0.1`. */
export function elementOf(view: Pick<JobView, 'array_id' | 'array_index' | 'sweep'>): string {
  const values = Object.entries(view.sweep ?? {}).map(([name, value]) => `${name}=${textOf(value)}`);
  const index = view.array_id === null || (view.array_index ?? null) === null ? [] : [`#${view.array_index}`];
  return [...index, ...values].join(', ');
}

/** What failed comes first: it is what is not to be missed where words are cut off. */
const ORDER = ['failed', 'timeout', 'lost', 'running', 'starting', 'stopping', 'queued', 'succeeded', 'cancelled'];

/** How many of its elements there are, how many in which phase, and how many of those that wait are held. */
export type Counts = Pick<ArrayView, 'count' | 'phases' | 'held'>;

export function countsOf(views: readonly JobView[]): Counts {
  const phases: Record<string, number> = {};
  for (const { phase } of views) {
    phases[phase] = (phases[phase] ?? 0) + 1;
  }
  return { count: views.length, phases, held: views.filter(isHeld).length };
}

/** How its elements stand; those that are held by themselves. */
export function standing(counts: Counts): string {
  return [...tally(counts), ...(counts.held ? [trans.__('%1 held', counts.held)] : [])].join(' · ');
}

/** How many jobs are in which phase, without those that are held. */
export function tally(counts: Counts): string[] {
  return tallied(counts).map(([, words]) => words);
}

/** The same, each beside the name of its phase. */
export function tallied({ phases, held }: Counts): [string, string][] {
  const place = (phase: string): number => (ORDER.indexOf(phase) + ORDER.length + 1) % (ORDER.length + 1);
  return Object.entries(phases)
    .map(([phase, many]): [string, number] => [phase, phase === 'queued' ? many - held : many])
    .filter(([, many]) => many > 0)
    .sort(([a], [b]) => place(a) - place(b))
    .map(([phase, many]) => [phase, `${many} ${phaseName(phase)}`]);
}

export function endedOf({ phases }: Counts): number {
  return Object.entries(phases).reduce((sum, [phase, many]) => sum + (isFinal({ phase }) ? many : 0), 0);
}

const NAMED = 5;

export function hasFailed({ phase }: Pick<JobView, 'phase'>): boolean {
  return phase === 'failed' || phase === 'timeout' || phase === 'lost';
}

/** Those that ended otherwise than succeeded. */
export function toRepeat(views: readonly JobView[]): JobView[] {
  return views.filter(view => isFinal(view) && view.phase !== 'succeeded');
}

/** Numbers of elements as their host reads them: `0-2,5`. */
export function rangesOf(numbers: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = runs[runs.length - 1];
    if (last && number <= last[1] + 1) {
      last[1] = number;
    } else {
      runs.push([number, number]);
    }
  }
  return runs.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join();
}

/** Which of its elements failed: the first of them, with the reason of the very first, and how many more. */
export function failedWords(views: readonly JobView[], counts: Counts): string {
  const failed = views.filter(hasFailed);
  const named = failed.slice(0, NAMED).map((view, index) => {
    const why = index ? '' : sentence(view);
    return (elementOf(view) || view.id) + (why ? ` (${why})` : '');
  });
  const all = ['failed', 'timeout', 'lost'].reduce((sum, phase) => sum + (counts.phases[phase] ?? 0), 0);
  const more = all - named.length;
  const list = named.join(', ');
  return !list ? '' : more > 0 ? trans.__('failed: %1 and %2 more', list, more) : trans.__('failed: %1', list);
}
