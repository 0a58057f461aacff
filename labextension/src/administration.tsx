// For administrators, in a tab of the main area: the machine and its cards, everybody's jobs, and what users had.

import { InputDialog, MainAreaWidget, Notification } from '@jupyterlab/apputils';
import * as React from 'react';

import { wordsOf } from './acts';
import { operate } from './api';
import { h } from './element';
import { Everybody } from './everybody';
import { useStore } from './hooks';
import { gpuIcon } from './icons';
import { LiveWidget } from './live';
import { Usage } from './reportpage';
import { State } from './state';
import { Tabs } from './tabs';
import { said, trans } from './translation';
import { GpuView } from './wire';

type Open = (id: string) => void;

export class Administration extends MainAreaWidget<Contents> {
  constructor(open: Open) {
    super({ content: new Contents(open) });
    this.id = 'jupyter-gpusched-administration';
    this.title.icon = gpuIcon;
    this.title.label = trans.__('GPU administration');
    this.title.closable = true;
    this.toolbar.hide();
  }
}

class Contents extends LiveWidget {
  constructor(private readonly _open: Open) {
    super();
    this.addClass('gpusched-details');
    this.node.dataset['testid'] = 'gpusched-administration';
  }

  protected draw(): JSX.Element {
    return <Pages open={this._open} />;
  }
}

type Page = 'machine' | 'jobs' | 'report';
const PAGES: readonly Page[] = ['machine', 'jobs', 'report'];

function nameOf(page: Page): string {
  return { machine: trans.__('Machine'), jobs: trans.__("Everybody's jobs"), report: trans.__('Report') }[page];
}

function Pages({ open }: { open: Open }): JSX.Element {
  const state = useStore();
  const [page, go] = React.useState<Page>('machine');
  if (!state.health?.admin) {
    return (
      <p className="gpusched-none" role="status">
        {state.health ? trans.__('Only administrators run this machine.') : trans.__('Connecting to the GPU scheduler.')}
      </p>
    );
  }
  return (
    <>
      <header className="gpusched-details-head">
        <h1>{trans.__('GPU administration')}</h1>
      </header>
      <Tabs pages={PAGES} page={page} go={go} nameOf={nameOf} />
      <div className="gpusched-page" role="tabpanel" aria-label={nameOf(page)} tabIndex={0}>
        {page === 'machine' && <Machine state={state} />}
        {page === 'jobs' && <Everybody open={open} />}
        {page === 'report' && <Usage />}
      </div>
    </>
  );
}

function Machine({ state }: { state: State }): JSX.Element {
  const drained = state.alerts.find(alert => alert.kind === 'drained');
  return (
    <>
      <div className="gpusched-row" data-testid="gpusched-drain">
        <span>{drained ? said(drained.message) : trans.__('Jobs start here as soon as they fit.')}</span>
        {drained ? (
          <Act label={trans.__('Resume')} act={() => operate('resume', {})} />
        ) : (
          <Act
            label={trans.__('Drain…')}
            act={() => withCause(trans.__('Start nothing new on this machine?'), cause => operate('drain', { cause }))}
          />
        )}
      </div>
      <p className="gpusched-hint">
        {trans.__('While it is drained, jobs that run go on; what is submitted is taken and waits.')}
      </p>
      <h2>{trans.__('GPUs')}</h2>
      <table className="gpusched-grid-table" data-testid="gpusched-cards">
        <thead>
          <tr>
            <th scope="col">{trans.__('GPU')}</th>
            <th scope="col">{trans.__('State')}</th>
            <th scope="col" aria-label={trans.__('Actions')} />
          </tr>
        </thead>
        <tbody>
          {state.gpus.map(gpu => (
            <CardRow key={gpu.uuid} gpu={gpu} />
          ))}
        </tbody>
      </table>
    </>
  );
}

function CardRow({ gpu }: { gpu: GpuView }): JSX.Element {
  const { status, cause } = gpu.health;
  const names: Record<string, string> = {
    ok: trans.__('gets jobs'),
    quarantined: trans.__('quarantined'),
    lost: trans.__('lost'),
    unknown: trans.__('state unknown')
  };
  const state = [names[status] ?? status, said(cause ?? '')].filter(Boolean).join(' · ');
  const named = { gpu: gpu.uuid };
  return (
    <tr>
      <td>{`${gpu.index} · ${gpu.name}`}</td>
      <td>{state}</td>
      <td>
        {status === 'quarantined' ? (
          <Act
            label={trans.__('Back into use')}
            of={`GPU ${gpu.index}`}
            act={() => operate('quarantine', { ...named, release: true })}
          />
        ) : (
          <Act
            label={trans.__('Quarantine…')}
            of={`GPU ${gpu.index}`}
            act={() =>
              withCause(trans.__('Give GPU %1 no jobs?', gpu.index), cause => operate('quarantine', { ...named, cause }))
            }
          />
        )}
      </td>
    </tr>
  );
}

/** A button whose refusal is told. */
function Act({ label, of, act }: { label: string; of?: string; act: () => Promise<unknown> }): JSX.Element {
  return (
    <button
      type="button"
      className="gpusched-button"
      aria-label={of && `${label} ${of}`}
      onClick={() => void act().catch((error: unknown) => Notification.error(wordsOf(error), { autoClose: 5000 }))}
    >
      {label}
    </button>
  );
}

/** Do it after it was said why, since everybody is told; not at all if that is called off. */
async function withCause(title: string, act: (cause: string | null) => Promise<void>): Promise<void> {
  const { button, value } = await InputDialog.getText({ title, label: trans.__('Why, for everybody to see:') });
  if (button.accept) {
    await act(value?.trim() || null);
  }
}
