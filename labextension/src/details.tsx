// All about one job, in a tab of the main area: what it asked for, what it runs, its attempts, what happened to it,
// what it printed, and its memory over time. Everything that a user wrote is shown as text.

import { Clipboard, MainAreaWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { holdAll, releaseAll, resubmitOne } from './acts';
import { Simulated } from './bars';
import { CancelButton } from './cancel';
import { h } from './element';
import { useNow, useStore } from './hooks';
import { gpuIcon } from './icons';
import { JobFiles, OfJob } from './jobfiles';
import { LiveWidget } from './live';
import { openLog } from './logview';
import { MemoryCurve } from './memory';
import { Outputs } from './outputs';
import { Overview } from './overview';
import { Held, Phase, Why } from './phase';
import { Events, Source } from './record';
import { store } from './store';
import { Tabs } from './tabs';
import { said, trans } from './translation';
import { JobView } from './wire';
import { canBeHeld, expected, isFinal, isHeld, lasted, sentence, wants } from './words';

export class Details extends MainAreaWidget<Contents> {
  constructor(readonly jobId: string) {
    super({ content: new Contents(jobId, name => (this.title.label = name)) });
    this.id = `jupyter-gpusched-job-${jobId}`;
    this.title.icon = gpuIcon;
    this.title.label = trans.__('Job %1', jobId);
    this.title.caption = trans.__('GPU job %1', jobId);
    this.title.closable = true;
    this.toolbar.hide();
  }
}

class Contents extends LiveWidget {
  private readonly _files: JobFiles;

  constructor(
    id: string,
    private readonly _call: (name: string) => void
  ) {
    super();
    this._files = new JobFiles(id);
    this.addClass('gpusched-details');
    this.node.dataset['testid'] = 'gpusched-details';
  }

  protected draw(): JSX.Element {
    return <Job files={this._files} call={this._call} />;
  }
}

type Page = 'overview' | 'source' | 'output' | 'events' | 'memory';

function Job({ files, call }: { files: JobFiles; call: (name: string) => void }): JSX.Element {
  const { id } = files;
  const state = useStore();
  React.useEffect(() => store.want(id), [id]);
  const [page, setPage] = React.useState<Page>('overview');
  const view = state.jobs.get(id);
  const name = view?.name;
  React.useEffect(() => {
    if (name) {
      call(name);
    }
  }, [name, call]);
  if (!view) {
    return (
      <p className="gpusched-none" role="status">
        {state.unknown.has(id)
          ? trans.__('This server does not know job %1; it may be of another machine, or deleted.', id)
          : trans.__('Looking for job %1.', id)}
      </p>
    );
  }
  return (
    <>
      <Head view={view} connected={state.connected} />
      <Tabs pages={PAGES} page={page} go={setPage} nameOf={nameOf} />
      <div
        className="gpusched-page"
        role="tabpanel"
        id={`gpusched-page-${id}`}
        aria-label={nameOf(page)}
        tabIndex={0}
        data-testid={`gpusched-page-${page}`}
      >
        <Shown page={page} view={view} files={files} />
      </div>
    </>
  );
}

function Head({ view, connected }: { view: JobView; connected: boolean }): JSX.Element {
  const now = useNow(!isFinal(view));
  const why = sentence(view);
  const facts = [said(view.kind), wants(view), ...view.gpus.map(gpu => `GPU ${gpu.index} (${gpu.name})`)];
  return (
    <header className="gpusched-details-head">
      <div className="gpusched-head">
        <h1 title={view.name}>{view.name}</h1>
        <Phase phase={view.phase} />
        <Held view={view} />
        {view.simulated && <Simulated />}
        <span className="gpusched-space" />
        <CancelButton view={view} />
        {canBeHeld(view) && (
          <button type="button" className="gpusched-button" onClick={() => void holdAll([view])}>
            {trans.__('Hold')}
          </button>
        )}
        {isHeld(view) && (
          <button type="button" className="gpusched-button" onClick={() => void releaseAll([view])}>
            {trans.__('Release')}
          </button>
        )}
        <button
          type="button"
          className="gpusched-button"
          onClick={() => void resubmitOne(view)}
          data-testid="gpusched-resubmit"
        >
          {trans.__('Run again')}
        </button>
        <button type="button" className="gpusched-button" onClick={() => Clipboard.copyToSystem(view.id)}>
          {trans.__('Copy id')}
        </button>
      </div>
      <div className="gpusched-facts">
        <code>{view.id}</code> · {[...facts, lasted(view, now), expected(view, now)].filter(Boolean).join(' · ')}
      </div>
      {why && <Why view={view} words={why} />}
      {view.advice && <div className="gpusched-why gpusched-advice" data-testid="gpusched-advice">{said(view.advice)}</div>}
      {!connected && (
        <p className="gpusched-trouble" role="status">
          {trans.__('Reconnecting; below is what was known last.')}
        </p>
      )}
    </header>
  );
}

const PAGES: readonly Page[] = ['overview', 'source', 'output', 'events', 'memory'];

function nameOf(page: Page): string {
  return {
    overview: trans.__('Overview'),
    source: trans.__('Source'),
    output: trans.__('Output'),
    events: trans.__('Events'),
    memory: trans.__('Memory')
  }[page];
}

function Shown(props: OfJob & { page: Page }): JSX.Element {
  switch (props.page) {
    case 'overview':
      return <Overview {...props} />;
    case 'source':
      return <Source {...props} />;
    case 'output':
      return <Output {...props} />;
    case 'events':
      return <Events {...props} />;
    case 'memory':
      return <MemoryCurve {...props} />;
  }
}

/** No notebook that somebody has trusted is around it here: what could act is shown in its harmless form. */
function Output({ view }: OfJob): JSX.Element {
  const [following, follow] = React.useState(true);
  return view.attempts.length ? (
    <Outputs
      view={view}
      trusted={false}
      following={following}
      onFollow={follow}
      openWhole={() => openLog(view.id, view.name, false)}
    />
  ) : (
    <p>{trans.__('It has not started yet.')}</p>
  );
}
