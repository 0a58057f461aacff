// What a click with the other mouse button offers on a row of the queue: for its job, or for all of its array.

import { JupyterFrontEnd } from '@jupyterlab/application';

import { cancelAll, holdAll, moveFirst, releaseAll, resubmitAll, resubmitOne } from './acts';
import { nameOf, toRepeat } from './arraywords';
import { store } from './store';
import { trans } from './translation';
import { JobView } from './wire';
import { canBeHeld, isFinal, isHeld } from './words';

const SELECTOR = '#jupyter-gpusched-panel .gpusched-entry';

interface Offer {
  readonly label: (views: JobView[], array: string) => string;
  /** Which of the jobs it is for; it is offered if there are any. */
  readonly of: (views: JobView[]) => JobView[];
  /** What to do with those, and with an array of this name if it is one. */
  readonly act: (views: JobView[], array: string) => unknown;
}

export function addContextMenu(app: JupyterFrontEnd, open: (id: string) => void): void {
  const those = (fits: (view: JobView) => boolean) => (views: JobView[]) => views.filter(fits);
  const ended = (views: JobView[]): JobView[] => (views.length > 1 ? toRepeat(views) : views.filter(isFinal));
  const offers: Record<string, Offer> = {
    'gpusched:context-open': {
      label: () => trans.__('Details'),
      of: views => (views.length > 1 ? [] : views),
      act: views => open(views[0]?.id ?? '')
    },
    'gpusched:context-first': { label: () => trans.__('Move to the front'), of: those(view => view.phase === 'queued'), act: moveFirst },
    'gpusched:context-hold': { label: () => trans.__('Hold'), of: those(canBeHeld), act: holdAll },
    'gpusched:context-release': { label: () => trans.__('Release'), of: those(isHeld), act: releaseAll },
    'gpusched:context-resubmit': {
      label: (views, array) => (array ? trans.__('Run %1 again', views.length) : trans.__('Run again')),
      of: ended,
      act: (views, array) => (array ? resubmitAll(views) : views.map(resubmitOne))
    },
    'gpusched:context-cancel': {
      label: () => trans.__('Cancel…'),
      of: those(view => !isFinal(view)),
      act: (views, array) => cancelAll(views, array)
    }
  };
  const clicked = (): JobView[] => {
    const id = app.contextMenuHitTest(node => node.classList.contains('gpusched-entry'))?.dataset['jobId'];
    const jobs = store.state().jobs;
    const job = id === undefined ? undefined : jobs.get(id);
    return job ? [job] : [...jobs.values()].filter(view => id !== undefined && view.array_id === id);
  };
  const arrayOf = (views: JobView[]): string => (views.length > 1 ? nameOf(views) : '');
  Object.entries(offers).forEach(([command, { label, of, act }], rank) => {
    app.commands.addCommand(command, {
      label: () => label(of(clicked()), arrayOf(clicked())),
      isVisible: () => of(clicked()).length > 0,
      execute: () => void act(of(clicked()), arrayOf(clicked()))
    });
    app.contextMenu.addItem({ command, selector: SELECTOR, rank });
  });
}
