// What the user does with several jobs at once: asked about where work could be lost, and told when it failed.

import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';

import { resubmitArray } from './api';
import { nameOf, rangesOf } from './arraywords';
import { ownJobs } from './state';
import { store } from './store';
import { trans } from './translation';
import { JobView } from './wire';
import { canBeHeld, isFinal, isHeld } from './words';

const AT_ONCE = 8;

/** Cancel these jobs, or what is left of an array of this name, after one question; `send` if one request can. */
export async function cancelAll(views: readonly JobView[], array = '', send?: () => Promise<void>): Promise<void> {
  const going = views.filter(view => !isFinal(view));
  if (!going.length) {
    return;
  }
  const running = going.filter(view => view.phase !== 'queued').length;
  const many = going.length;
  const one = many === 1 && !array;
  const { button } = await showDialog({
    title: array
      ? trans._n('Cancel the array %2 (%1 job)?', 'Cancel the array %2 (%1 jobs)?', many, array)
      : one
        ? trans.__('Cancel %1?', going[0]?.name ?? '')
        : trans._n('Cancel %1 job?', 'Cancel %1 jobs?', many),
    body: one
      ? running
        ? trans.__('It has started: what it has not saved is lost.')
        : trans.__('It has not started yet.')
      : running
        ? trans._n(
            '%1 has started: what it has not saved is lost.',
            '%1 have started: what they have not saved is lost.',
            running
          )
        : trans.__('None of them has started.'),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Keep') }),
      Dialog.warnButton({ label: trans._n('Cancel job', 'Cancel jobs', many) })
    ]
  });
  if (button.accept) {
    await (send ? send() : each(going, view => store.cancel(view.id)));
  }
}

/** Queue the same work again as a job by itself. */
export async function resubmitOne(view: JobView): Promise<boolean> {
  return each([view], ({ id }) => store.resubmit(id));
}

/** Queue the same work again, elements of an array as an array; true when all of it was queued. */
export async function resubmitAll(views: readonly JobView[]): Promise<boolean> {
  const lots = new Map<string, JobView[]>();
  for (const view of views) {
    const of = view.array_index === null ? view.id : (view.array_id ?? view.id);
    lots.set(of, lots.get(of) ?? []);
    lots.get(of)?.push(view);
  }
  return each([...lots], ([id, lot]) => {
    const numbers = lot.flatMap(view => view.array_index ?? []);
    return id === lot[0]?.id ? store.resubmit(id) : resubmitArray(id, `[${rangesOf(numbers)}]`);
  });
}

/** Those that wait do not start until they are released. */
export async function holdAll(views: readonly JobView[]): Promise<boolean> {
  return each(views.filter(canBeHeld), view => store.hold(view.id));
}

export async function releaseAll(views: readonly JobView[]): Promise<boolean> {
  return each(views.filter(isHeld), view => store.release(view.id));
}

/** Put a waiting job, or all of an array that waits, beside another; what to say of it. */
export async function moveTo(id: string, other: string, side: 'before' | 'after'): Promise<string> {
  const [moved, others] = [waitingOf(id), waitingOf(other)];
  const anchor = side === 'before' ? others[0] : others[others.length - 1];
  let where = anchor && { [side]: anchor.id };
  let first: number | null = null;
  try {
    for (const view of where ? moved : []) {
      const { position } = await store.reorder(view.id, where as { after: string });
      first ??= position;
      where = { after: view.id };
    }
  } catch (error) {
    Notification.error(wordsOf(error), { autoClose: 5000 });
    return wordsOf(error);
  }
  return first ? trans.__('%1 is now number %2 in the queue.', nameOf(moved), first) : '';
}

/** Put them before all others of this user. */
export async function moveFirst(views: readonly JobView[]): Promise<void> {
  const ids = new Set(views.map(view => view.id));
  const [first] = inOrder([...ownJobs(store.state()).values()].filter(view => view.phase === 'queued' && !ids.has(view.id)));
  const [one] = views;
  if (first && one) {
    await moveTo(views.length > 1 ? (one.array_id ?? one.id) : one.id, first.id, 'before');
  }
}

/** Those that wait of the job or array of this id, in their order. */
function waitingOf(id: string): JobView[] {
  const { jobs } = store.state();
  const one = jobs.get(id);
  const named = one ? [one] : [...jobs.values()].filter(view => view.array_id === id);
  return inOrder(named.filter(view => view.phase === 'queued'));
}

function inOrder(views: JobView[]): JobView[] {
  return views.sort((a, b) => (a.position ?? 0) - (b.position ?? 0));
}

export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** All of them, a few at once, so that a sweep of thousands leaves room for other requests. */
async function each<Item>(views: readonly Item[], act: (view: Item) => Promise<unknown>): Promise<boolean> {
  const failed: string[] = [];
  for (let at = 0; at < views.length; at += AT_ONCE) {
    const results = await Promise.allSettled(views.slice(at, at + AT_ONCE).map(act));
    failed.push(...results.flatMap(result => (result.status === 'rejected' ? [wordsOf(result.reason)] : [])));
  }
  if (failed.length) {
    const first = failed[0] ?? '';
    Notification.error(failed.length === 1 ? first : trans.__('%1 of %2 failed: %3', failed.length, views.length, first), {
      autoClose: false
    });
  }
  return !failed.length;
}
