// Tells the user that own jobs have ended: in JupyterLab's notification centre, and by the browser if allowed.
// A sweep that ends at once is told in one line.

import { Notification } from '@jupyterlab/apputils';

import { store } from './store';
import { trans } from './translation';
import { JobView } from './wire';
import { phaseName, sentence } from './words';

export interface Wishes {
  readonly notify: 'all' | 'failed' | 'none';
  readonly browser: boolean;
}

const GATHERED_MS = 1500;
const TOLD_SINGLY = 3;

export class EndTeller {
  private _wishes: Wishes = { notify: 'all', browser: false };
  private _ended: JobView[] = [];
  private _timer = 0;

  constructor(private readonly _open: (id: string) => void) {
    store.onEnded(ended => this._gather(ended));
  }

  set wishes(wishes: Wishes) {
    this._wishes = wishes;
    if (wishes.browser && 'Notification' in window && window.Notification.permission === 'default') {
      void window.Notification.requestPermission().then(() => this._stay());
    }
    this._stay();
  }

  /** In the background nobody looks; only who wants to be told there stays connected. */
  private _stay(): void {
    store.stayInBackground(this._wishes.browser && this._allowed() && this._wishes.notify !== 'none');
  }

  private _allowed(): boolean {
    return 'Notification' in window && window.Notification.permission === 'granted';
  }

  private _gather(ended: JobView[]): void {
    const told = ended.filter(view => this._wants(view));
    if (told.length) {
      this._ended.push(...told);
      this._timer ||= window.setTimeout(() => this._tell(), GATHERED_MS);
    }
  }

  /** What the user has cancelled is no news. */
  private _wants(view: JobView): boolean {
    const { notify } = this._wishes;
    return view.phase !== 'cancelled' && (notify === 'all' || (notify === 'failed' && view.phase !== 'succeeded'));
  }

  private _tell(): void {
    const ended = this._ended;
    this._ended = [];
    this._timer = 0;
    if (ended.length > TOLD_SINGLY) {
      const failed = ended.filter(view => view.phase !== 'succeeded').length;
      const words = trans.__('%1 GPU jobs have ended, %2 of them failed.', ended.length, failed);
      Notification.emit(words, failed ? 'warning' : 'success', { autoClose: 5000 });
      this._tellInBackground(words, 'jupyter-gpusched');
      return;
    }
    for (const view of ended) {
      const why = sentence(view);
      const words = trans.__('GPU job %1: %2', view.name, phaseName(view.phase)) + (why ? ` (${why})` : '');
      Notification.emit(words, view.phase === 'succeeded' ? 'success' : 'error', {
        autoClose: 5000,
        actions: [{ label: trans.__('Details'), callback: () => this._open(view.id) }]
      });
      this._tellInBackground(words, view.id);
    }
  }

  private _tellInBackground(words: string, tag: string): void {
    if (this._wishes.browser && document.hidden && this._allowed()) {
      new window.Notification('JupyterLab', { body: words, tag });
    }
  }
}
