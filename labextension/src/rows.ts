// The queue as rows of a list: in groups, filtered and searched; and which of thousands of rows can be seen.
// Pure, so that it can be tested without a page.

import { elementOf, hasFailed } from './arraywords';
import { JobView } from './wire';
import { hasSentence, isFinal } from './words';

export type Group = 'running' | 'waiting' | 'today' | 'earlier';
export type Filter = 'all' | 'running' | 'waiting' | 'ended' | 'failed';

export type Row =
  | {
      readonly kind: 'group';
      readonly group: Group;
      readonly count: number;
      /** Jobs of other users that stand before the last of those that wait. */
      readonly others: number;
      /** Whether there are more than are listed, which ended before them. */
      readonly older: boolean;
    }
  | {
      /** The elements of an array, in their order, as one row that can be opened. */
      readonly kind: 'array';
      readonly group: Group;
      readonly id: string;
      readonly views: readonly JobView[];
      /** Whether it stands for all of the array, however few of its elements are known: nothing is filtered out. */
      readonly whole: boolean;
      readonly open: boolean;
    }
  /** `element` is what a job is called below its array; null where it stands by itself. */
  | { readonly kind: 'job'; readonly group: Group; readonly view: JobView; readonly element: string | null };

const GROUPS: readonly Group[] = ['running', 'waiting', 'today', 'earlier'];

export const GROUP_PX = 30;
export const JOB_PX = 48;
/** A row that also says why its job waits, or how it ended. */
export const TALL_PX = 84;

/**
 * Running jobs, waiting ones in their order, those that ended since `today` (seconds), and earlier ones.
 * The elements of an array stand where the liveliest of them does, below it where the array is `open`.
 * With `older`, jobs that ended before all of these are left out.
 */
export function rowsOf(
  views: Iterable<JobView>,
  filter: Filter,
  search: string,
  today: number,
  open: ReadonlySet<string> = new Set(),
  older = false
): Row[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const groups: Record<Group, JobView[]> = { running: [], waiting: [], today: [], earlier: [] };
  const line = new Set<number>();
  let last = 0;
  for (const view of views) {
    if (view.phase === 'queued' && view.in_line && view.position !== null) {
      line.add(view.position);
      last = Math.max(last, view.position);
    }
    if (passes(view, filter) && words.every(word => named(view).includes(word))) {
      groups[groupOf(view, today)].push(view);
    }
  }
  const others = last - line.size;
  const arrays = arraysOf(groups);
  const never = Number.MAX_SAFE_INTEGER;
  groups.running.sort((a, b) => (a.started_at ?? never) - (b.started_at ?? never));
  groups.waiting.sort((a, b) => (a.position ?? never) - (b.position ?? never) || a.submitted_at - b.submitted_at);
  groups.today.sort(newestFirst);
  groups.earlier.sort(newestFirst);
  const told = new Set<string>();
  const whole = filter === 'all' && !words.length;
  const oldest = groups.earlier.length ? 'earlier' : 'today';
  return GROUPS.flatMap((group): Row[] => {
    const rows: Row[] = [];
    for (const view of groups[group]) {
      const id = view.array_id;
      const elements = id === null ? undefined : arrays.get(id);
      if (id === null || !elements || elements.length < 2) {
        rows.push({ kind: 'job', group, view, element: null });
      } else if (!told.has(id)) {
        told.add(id);
        rows.push({ kind: 'array', group, id, views: elements, whole, open: open.has(id) });
        if (open.has(id)) {
          elementRows(elements, element => groupOf(element, today)).forEach(row => rows.push(row));
        }
      }
    }
    const head = {
      kind: 'group',
      group,
      count: groups[group].length,
      others: group === 'waiting' ? others : 0,
      older: older && group === oldest
    } as const;
    return rows.length ? [head, ...rows] : [];
  });
}

/** The elements of an array as rows: called by number and values where all have one name. */
export function elementRows(elements: readonly JobView[], groupOfView: (view: JobView) => Group): Row[] {
  const alike = elements.every(({ name }) => name === elements[0]?.name);
  return elements.map(view => {
    const element = (alike && elementOf(view)) || view.name;
    return { kind: 'job', group: groupOfView(view), view, element };
  });
}

/** The next row up or down that a waiting one can change places with: jobs and arrays with such, elements among themselves. */
export function besides(rows: readonly Row[], row: Row, up: boolean): Row | undefined {
  const level = (one: Row): string => (one.kind === 'job' && one.element !== null ? (one.view.array_id ?? '') : '');
  const alike = rows.filter(one => one.kind !== 'group' && one.group === 'waiting' && level(one) === level(row));
  const at = alike.indexOf(row);
  return at < 0 ? undefined : alike[at + (up ? -1 : 1)];
}

/** What a row is known by to selection and focus: the id of its job or array; groups have none. */
export function idOf(row: Row): string | null {
  return row.kind === 'group' ? null : row.kind === 'array' ? row.id : row.view.id;
}

function arraysOf(groups: Record<Group, JobView[]>): Map<string, JobView[]> {
  const arrays = new Map<string, JobView[]>();
  for (const view of GROUPS.flatMap(group => groups[group])) {
    if (view.array_id !== null) {
      const elements = arrays.get(view.array_id);
      if (elements) {
        elements.push(view);
      } else {
        arrays.set(view.array_id, [view]);
      }
    }
  }
  arrays.forEach(views => views.sort((a, b) => (a.array_index ?? 0) - (b.array_index ?? 0)));
  return arrays;
}

export function heightOf(row: Row): number {
  if (row.kind === 'group') {
    return GROUP_PX;
  }
  const told = row.kind === 'array' ? row.views.some(hasFailed) : hasSentence(row.view);
  return told ? TALL_PX : JOB_PX;
}

/** Where each row begins, and at the end where the list ends. */
export function topsOf(rows: readonly Row[]): number[] {
  const tops = [0];
  for (const row of rows) {
    tops.push((tops[tops.length - 1] ?? 0) + heightOf(row));
  }
  return tops;
}

/** The first row that can be seen, and the one after the last, with some beyond the edges. */
export function visible(tops: readonly number[], scrollTop: number, height: number, beyond = 6): [number, number] {
  const count = tops.length - 1;
  const first = Math.max(0, lastAtOrBefore(tops, scrollTop) - beyond);
  const end = Math.min(count, lastAtOrBefore(tops, scrollTop + height) + 1 + beyond);
  return [Math.min(first, end), end];
}

function lastAtOrBefore(tops: readonly number[], at: number): number {
  let low = 0;
  let high = tops.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((tops[middle] ?? Infinity) <= at) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

function groupOf(view: JobView, today: number): Group {
  if (isFinal(view)) {
    return (view.ended_at ?? 0) >= today ? 'today' : 'earlier';
  }
  return view.phase === 'queued' ? 'waiting' : 'running';
}

function passes(view: JobView, filter: Filter): boolean {
  switch (filter) {
    case 'running':
      return !isFinal(view) && view.phase !== 'queued';
    case 'waiting':
      return view.phase === 'queued';
    case 'ended':
      return isFinal(view);
    case 'failed':
      return isFinal(view) && view.phase !== 'succeeded' && view.phase !== 'cancelled';
    default:
      return true;
  }
}

function named(view: JobView): string {
  const element = [view.array_id ?? '', elementOf(view)];
  return [view.id, view.name, view.kind, view.phase, view.notebook ?? '', ...view.tags, ...element].join('\n').toLowerCase();
}

function newestFirst(a: JobView, b: JobView): number {
  return (b.ended_at ?? 0) - (a.ended_at ?? 0);
}
