// What the user does with several jobs at once: asked about where work could be lost, and told when it failed.

import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';

import { store } from './store';
import { trans } from './translation';
import { JobView } from './wire';
import { canBeHeld, isFinal, isHeld } from './words';

const AT_ONCE = 8;

/** Cancel these jobs after one question; `send` if all of them can be ended by one request. */
export async function cancelAll(views: readonly JobView[], send?: () => Promise<void>): Promise<void> {
  const going = views.filter(view => !isFinal(view));
  if (!going.length) {
    return;
  }
  const running = going.filter(view => view.phase !== 'queued').length;
  const named = going.length === 1 ? (going[0]?.name ?? '') : '';
  const { button } = await showDialog({
    title: named ? trans.__('Cancel %1?', named) : trans._n('Cancel %1 job?', 'Cancel %1 jobs?', going.length),
    body: running
      ? trans._n(
          '%1 of them has started: what it has not saved is lost.',
          '%1 of them have started: what they have not saved is lost.',
          running
        )
      : trans.__('None of them has started.'),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Keep') }),
      Dialog.warnButton({ label: trans._n('Cancel job', 'Cancel %1 jobs', going.length) })
    ]
  });
  if (button.accept) {
    await (send ? send() : each(going, view => store.cancel(view.id)));
  }
}

/** Queue the same work again; true when all of it was queued. */
export async function resubmitAll(views: readonly JobView[]): Promise<boolean> {
  return each(views, view => store.resubmit(view.id));
}

/** Those that wait do not start until they are released. */
export async function holdAll(views: readonly JobView[]): Promise<boolean> {
  return each(views.filter(canBeHeld), view => store.hold(view.id));
}

export async function releaseAll(views: readonly JobView[]): Promise<boolean> {
  return each(views.filter(isHeld), view => store.release(view.id));
}

/** Put a waiting job beside another; what to say of it. */
export async function moveJob(
  job: Pick<JobView, 'id' | 'name'>,
  other: Pick<JobView, 'id'>,
  side: 'before' | 'after'
): Promise<string> {
  try {
    const where = side === 'before' ? { before: other.id } : { after: other.id };
    const { position } = await store.reorder(job.id, where);
    return position ? trans.__('%1 is now number %2 in the queue.', job.name, position) : '';
  } catch (error) {
    Notification.error(wordsOf(error), { autoClose: 5000 });
    return wordsOf(error);
  }
}

export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** All of them, a few at once, so that a sweep of thousands leaves room for other requests. */
async function each(views: readonly JobView[], act: (view: JobView) => Promise<unknown>): Promise<boolean> {
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
