// Tells the user that own jobs have ended: in JupyterLab's notification centre, and by the browser if allowed.
// What is told of them, and what together, is for `endwords` to say.

import { Notification } from '@jupyterlab/apputils';

import { newsOf } from './endwords';
import { store } from './store';
import { trans } from './translation';
import { JobView } from './wire';

export interface Wishes {
  readonly notify: 'all' | 'failed' | 'none';
  readonly browser: boolean;
}

const GATHERED_MS = 1500;

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

  /** Elements of arrays all count, whatever is wanted, for what is told of their array in the end. */
  private _gather(ended: JobView[]): void {
    const told = ended.filter(view => view.array_id !== null || this._wants(view));
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
    const { news, kept } = newsOf(this._ended, store.state().jobs.values(), view => this._wants(view));
    this._ended = kept;
    this._timer = 0;
    for (const { words, type, job } of news) {
      const actions = job === null ? [] : [{ label: trans.__('Details'), callback: () => this._open(job) }];
      Notification.emit(words, type, { autoClose: 5000, actions });
      this._tellInBackground(words, job ?? 'jupyter-gpusched');
    }
  }

  private _tellInBackground(words: string, tag: string): void {
    if (this._wishes.browser && document.hidden && this._allowed()) {
      new window.Notification('JupyterLab', { body: words, tag });
    }
  }
}
