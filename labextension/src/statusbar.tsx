// In the status bar: what is free on the cards, and how many of your jobs run and wait. A click opens the panel.

import { h } from './element';
import { freeByCard, freeWords } from './freewords';
import { useStore } from './hooks';
import { gpuIcon } from './icons';
import { LiveWidget } from './live';
import { ownJobs, State } from './state';
import { trans } from './translation';
import { isFinal } from './words';

export class StatusItem extends LiveWidget {
  constructor(private readonly _open: () => void) {
    super();
    this.addClass('gpusched-status');
  }

  protected draw(): JSX.Element {
    return <Item open={this._open} />;
  }
}

function Item({ open }: { open: () => void }): JSX.Element {
  const state = useStore();
  const words = state.known ? summary(state) : [];
  const standing = !state.known
    ? trans.__('Connecting to the GPU scheduler.')
    : !state.connected
      ? trans.__('Reconnecting to the GPU scheduler.')
      : '';
  return (
    <button
      type="button"
      className={`gpusched-status-button${standing ? ' gpusched-away' : ''}`}
      title={standing || [freeByCard(state), trans.__('GPUs and jobs: click to open the panel')].filter(Boolean).join('\n')}
      onClick={open}
      data-testid="gpusched-status"
    >
      <gpuIcon.react tag="span" className="gpusched-status-icon" />
      {standing && !state.known ? trans.__('GPU …') : words.join(' · ')}
      {state.alerts.length > 0 && (
        <span className="gpusched-badge">{trans._n('%1 alert', '%1 alerts', state.alerts.length)}</span>
      )}
    </button>
  );
}

function summary(state: State): string[] {
  const jobs = [...ownJobs(state).values()];
  const waiting = jobs.filter(view => view.phase === 'queued').length;
  const running = jobs.filter(view => view.phase !== 'queued' && !isFinal(view)).length;
  return [
    freeWords(state),
    ...(running ? [trans.__('%1 running', running)] : []),
    ...(waiting ? [trans.__('%1 waiting', waiting)] : [])
  ];
}
