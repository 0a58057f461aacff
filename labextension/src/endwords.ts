// What there is to tell of jobs that have ended: one thing of each array when its last element ends, and one of many
// jobs that end at once. Pure: `ended` shows it.

import { countsOf, nameOf, tally } from './arraywords';
import { trans } from './translation';
import { JobView } from './wire';
import { isFinal, phaseName, sentence } from './words';

const TOLD_SINGLY = 3;

export interface News {
  readonly words: string;
  readonly type: 'success' | 'warning' | 'error';
  /** The job whose details say more. */
  readonly job: string | null;
}

/**
 * What to tell now, and the ended elements of arrays of which others still go on, to be given here again with the next.
 * An array is told of when one of its ends is `wanted`, and then with all of its elements that are in `known` too.
 */
export function newsOf(
  ended: readonly JobView[],
  known: Iterable<JobView>,
  wanted: (view: JobView) => boolean
): { news: News[]; kept: JobView[] } {
  const arrays = new Map<string, Map<string, JobView>>();
  const singles: JobView[] = [];
  for (const view of ended) {
    if (view.array_id === null) {
      singles.push(view);
    } else {
      arrays.set(view.array_id, (arrays.get(view.array_id) ?? new Map<string, JobView>()).set(view.id, view));
    }
  }
  const whole = new Map([...arrays].map(([id, elements]) => [id, new Map(elements)]));
  for (const view of arrays.size ? known : []) {
    whole.get(view.array_id ?? '')?.set(view.id, view);
  }
  const news: News[] = [];
  const kept: JobView[] = [];
  for (const [id, elements] of whole) {
    const views = [...elements.values()];
    const ends = [...(arrays.get(id)?.values() ?? [])];
    if (!views.every(isFinal)) {
      kept.push(...ends);
    } else if (ends.some(wanted)) {
      news.push(views.length === 1 ? ofOne(views[0] as JobView) : ofArray(views));
    }
  }
  const told = singles.filter(wanted);
  return { news: [...news, ...(told.length > TOLD_SINGLY ? [ofMany(told)] : told.map(ofOne))], kept };
}

function ofOne(view: JobView): News {
  const why = sentence(view);
  const words = trans.__('GPU job %1: %2', view.name, phaseName(view.phase)) + (why ? ` (${why})` : '');
  return { words, type: view.phase === 'succeeded' ? 'success' : 'error', job: view.id };
}

function ofMany(views: readonly JobView[]): News {
  const words = trans.__('%1 GPU jobs have ended; %2.', views.length, outcome(views));
  return { words, type: typeOf(views), job: null };
}

function ofArray(views: readonly JobView[]): News {
  const words = trans.__('Array %1: %2 jobs have ended, %3', nameOf(views), views.length, outcome(views));
  return { words, type: typeOf(views), job: views.find(view => view.phase !== 'succeeded')?.id ?? null };
}

function outcome(views: readonly JobView[]): string {
  return views.every(view => view.phase === 'succeeded') ? trans.__('all succeeded') : tally(countsOf(views)).join(', ');
}

function typeOf(views: readonly JobView[]): News['type'] {
  return views.every(view => view.phase === 'succeeded') ? 'success' : 'warning';
}
