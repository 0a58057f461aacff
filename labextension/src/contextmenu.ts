// What a click with the other mouse button offers on a row of the queue: for its job, or for all of its array.

import { JupyterFrontEnd } from '@jupyterlab/application';

import { cancelAll, holdAll, releaseAll, resubmitAll } from './acts';
import { store } from './store';
import { trans } from './translation';
import { JobView } from './wire';
import { canBeHeld, isFinal, isHeld } from './words';

const SELECTOR = '#jupyter-gpusched-panel .gpusched-entry';

interface Offer {
  readonly label: string;
  /** Which of the jobs it is for; it is offered if there are any. */
  readonly fits: (view: JobView) => boolean;
  readonly act: (views: JobView[]) => unknown;
}

export function addContextMenu(app: JupyterFrontEnd, open: (id: string) => void): void {
  const offers: Record<string, Offer> = {
    'gpusched:context-open': { label: trans.__('Details'), fits: () => true, act: views => open(views[0]?.id ?? '') },
    'gpusched:context-hold': { label: trans.__('Hold'), fits: canBeHeld, act: holdAll },
    'gpusched:context-release': { label: trans.__('Release'), fits: isHeld, act: releaseAll },
    'gpusched:context-resubmit': { label: trans.__('Resubmit'), fits: isFinal, act: resubmitAll },
    'gpusched:context-cancel': { label: trans.__('Cancel…'), fits: view => !isFinal(view), act: cancelAll }
  };
  const clicked = (): JobView[] => {
    const id = app.contextMenuHitTest(node => node.classList.contains('gpusched-entry'))?.dataset['jobId'];
    const jobs = store.state().jobs;
    const job = id === undefined ? undefined : jobs.get(id);
    return job ? [job] : [...jobs.values()].filter(view => id !== undefined && view.array_id === id);
  };
  Object.entries(offers).forEach(([command, { label, fits, act }], rank) => {
    app.commands.addCommand(command, {
      label,
      isVisible: () => clicked().some(fits),
      execute: () => void act(clicked().filter(fits))
    });
    app.contextMenu.addItem({ command, selector: SELECTOR, rank });
  });
}
