// All about one job, in a tab of the main area: what it asked for, what it runs, its attempts, what happened to it,
// what it printed, and its memory over time. Everything that a user wrote is shown as text.

import { MainAreaWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { cancelAll, resubmitAll } from './acts';
import { Simulated } from './bars';
import { useNow, useStore } from './hooks';
import { gpuIcon } from './icons';
import { JobFiles, Kept, Topic } from './jobfiles';
import { LiveWidget } from './live';
import { Outputs } from './outputs';
import { Phase } from './phase';
import { Sparkline } from './sparkline';
import { store } from './store';
import { trans } from './translation';
import { AttemptView, JobView } from './wire';
import { expected, isFinal, lasted, mib, moment, phaseName, seconds, sentence, wants } from './words';

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

  protected render(): JSX.Element {
    return <Job files={this._files} active={this.isVisible} call={this._call} />;
  }
}

type Page = 'overview' | 'source' | 'output' | 'events' | 'memory';

function Job(props: { files: JobFiles; active: boolean; call: (name: string) => void }): JSX.Element {
  const { files, active, call } = props;
  const { id } = files;
  const state = useStore(active);
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
      <Pages page={page} go={setPage} />
      <div
        className="gpusched-page"
        role="tabpanel"
        id={`gpusched-page-${id}`}
        aria-label={nameOf(page)}
        tabIndex={0}
        data-testid={`gpusched-page-${page}`}
      >
        <Shown page={page} view={view} files={files} active={active} />
      </div>
    </>
  );
}

function Head({ view, connected }: { view: JobView; connected: boolean }): JSX.Element {
  const now = useNow(!isFinal(view));
  const why = sentence(view);
  const facts = [view.kind, wants(view), ...view.gpus.map(gpu => `GPU ${gpu.index} (${gpu.name})`)];
  return (
    <header className="gpusched-details-head">
      <div className="gpusched-head">
        <h1 title={view.name}>{view.name}</h1>
        <Phase phase={view.phase} />
        {view.simulated && <Simulated />}
        <span className="gpusched-space" />
        {!isFinal(view) && (
          <button type="button" className="gpusched-button" onClick={() => void cancelAll([view])}>
            {trans.__('Cancel')}
          </button>
        )}
        <button
          type="button"
          className="gpusched-button"
          onClick={() => void resubmitAll([view])}
          data-testid="gpusched-resubmit"
        >
          {trans.__('Resubmit')}
        </button>
        <button type="button" className="gpusched-button" onClick={() => void navigator.clipboard.writeText(view.id)}>
          {trans.__('Copy id')}
        </button>
      </div>
      <div className="gpusched-facts">
        <code>{view.id}</code> · {[...facts, lasted(view, now), expected(view, now)].filter(Boolean).join(' · ')}
      </div>
      {why && <div className="gpusched-why">{why}</div>}
      {view.advice && <div className="gpusched-why gpusched-advice">{view.advice}</div>}
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

function Pages({ page, go }: { page: Page; go: (page: Page) => void }): JSX.Element {
  const row = React.useRef<HTMLDivElement>(null);
  const turn = (event: React.KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      const at = (PAGES.indexOf(page) + step + PAGES.length) % PAGES.length;
      go(PAGES[at] ?? 'overview');
      (row.current?.children[at] as HTMLElement | undefined)?.focus();
    }
  };
  return (
    <div ref={row} className="gpusched-tabs" role="tablist" onKeyDown={turn}>
      {PAGES.map(each => (
        <button
          key={each}
          type="button"
          role="tab"
          aria-selected={each === page}
          tabIndex={each === page ? 0 : -1}
          onClick={() => go(each)}
          data-testid={`gpusched-tab-${each}`}
        >
          {nameOf(each)}
        </button>
      ))}
    </div>
  );
}

function Shown(props: { page: Page; view: JobView; files: JobFiles; active: boolean }): JSX.Element {
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
      return <Memory {...props} />;
  }
}

interface OfJob {
  readonly view: JobView;
  readonly files: JobFiles;
  readonly active: boolean;
}

/** What is kept of a job about this topic, asked for anew whenever its view has changed. */
function useKept({ view, files, active }: OfJob, topic: Topic): Kept {
  const stage = topic === 'spec' ? '' : `${view.phase} ${view.attempts.length} ${view.peak_vram_mib}`;
  React.useEffect(() => {
    if (active) {
      files.ask(topic);
    }
  }, [files, topic, active, stage]);
  return React.useSyncExternalStore(files.subscribe, files.state);
}

function Overview(props: OfJob): JSX.Element {
  const { view } = props;
  const { spec } = useKept(props, 'spec');
  const now = useNow(false);
  const at = (moment_s: number | null): string => (moment_s === null ? '' : moment(moment_s, now));
  const facts: [string, string][] = [
    [trans.__('Submitted'), at(view.submitted_at)],
    [trans.__('Started'), at(view.started_at)],
    [trans.__('Ended'), at(view.ended_at)],
    [trans.__('Owner'), view.user],
    [trans.__('Asks for'), wants(view)],
    [trans.__('CPUs'), view.cpus === null ? '' : String(view.cpus)],
    [trans.__('Host memory'), view.memory_mib === null ? '' : mib(view.memory_mib)],
    [trans.__('Uses now'), view.used_vram_mib === null ? '' : mib(view.used_vram_mib)],
    [trans.__('Peak VRAM'), view.peak_vram_mib === null ? '' : mib(view.peak_vram_mib)],
    [trans.__('Peak host memory'), view.peak_rss_mib === null ? '' : mib(view.peak_rss_mib)],
    [trans.__('Priority'), view.priority],
    [trans.__('Time limit'), textOf(spec?.['time_limit'])],
    [trans.__('Retries'), textOf(spec?.['retries'] || '')],
    [trans.__('Folder'), textOf(spec?.['cwd'])],
    [trans.__('Notebook'), view.notebook ?? ''],
    [trans.__('Repeats job'), view.parent_id ?? ''],
    [trans.__('Tags'), view.tags.join(', ')]
  ];
  return (
    <>
      <dl className="gpusched-table">
        {facts
          .filter(([, value]) => value)
          .map(([name, value]) => (
            <React.Fragment key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </React.Fragment>
          ))}
      </dl>
      {view.attempts.length > 0 && <Attempts attempts={view.attempts} now={now} />}
    </>
  );
}

function Attempts({ attempts, now }: { attempts: readonly AttemptView[]; now: number }): JSX.Element {
  return (
    <>
      <h2>{trans.__('Attempts')}</h2>
      <table className="gpusched-grid-table">
        <thead>
          <tr>
            <th scope="col">{trans.__('Number')}</th>
            <th scope="col">{trans.__('Outcome')}</th>
            <th scope="col">{trans.__('Started')}</th>
            <th scope="col">{trans.__('Ran')}</th>
            <th scope="col">{trans.__('GPUs')}</th>
            <th scope="col">{trans.__('Peak VRAM')}</th>
            <th scope="col">{trans.__('Why it ended')}</th>
          </tr>
        </thead>
        <tbody>
          {attempts.map(attempt => (
            <tr key={attempt.number}>
              <td>{attempt.number}</td>
              <td>{attempt.outcome === null ? trans.__('under way') : phaseName(attempt.outcome)}</td>
              <td>{attempt.started_at === null ? '' : moment(attempt.started_at, now)}</td>
              <td>
                {attempt.started_at === null ? '' : seconds((attempt.ended_at ?? Date.now() / 1000) - attempt.started_at)}
              </td>
              <td>{attempt.gpus.map(gpu => gpu.index).join(', ')}</td>
              <td>{mib(attempt.peak_vram_mib)}</td>
              <td>{attempt.message ?? attempt.reason ?? ''}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** What runs, as it was submitted, and the rest of the submission but for the environment. */
function Source(props: OfJob): JSX.Element {
  const { spec, trouble } = useKept(props, 'spec');
  if (!spec) {
    return <Missing trouble={trouble} />;
  }
  const { source, env, argv, path, args, ...rest } = spec;
  const variables = Object.keys((env as object | null) ?? {}).length;
  return (
    <>
      <pre className="gpusched-code" data-testid="gpusched-source">
        {typeof source === 'string' ? source : commandOf(argv, path, args)}
      </pre>
      <h2>{trans.__('Submission')}</h2>
      <pre className="gpusched-code">{JSON.stringify(rest, null, 2)}</pre>
      {variables > 0 && (
        <p className="gpusched-facts">
          {trans._n('%1 environment variable came along.', '%1 environment variables came along.', variables)}
        </p>
      )}
    </>
  );
}

function commandOf(argv: unknown, path: unknown, args: unknown): string {
  const words = (list: unknown): string[] => (Array.isArray(list) ? list.map(String) : []);
  if (typeof argv === 'string') {
    return argv;
  }
  return [...(typeof path === 'string' ? [path] : []), ...words(argv), ...words(args)].map(quoted).join(' ');
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** No notebook that somebody has trusted is around it here: what could act is shown in its harmless form. */
function Output({ view }: OfJob): JSX.Element {
  const [following, follow] = React.useState(true);
  return view.attempts.length ? (
    <Outputs view={view} trusted={false} following={following} onFollow={follow} />
  ) : (
    <p>{trans.__('It has not started yet.')}</p>
  );
}

function Events(props: OfJob): JSX.Element {
  const { events, trouble } = useKept(props, 'events');
  if (!events) {
    return <Missing trouble={events === null ? trans.__('This server keeps no list of events.') : trouble} />;
  }
  const now = Date.now() / 1000;
  return (
    <table className="gpusched-grid-table">
      <thead>
        <tr>
          <th scope="col">{trans.__('When')}</th>
          <th scope="col">{trans.__('What')}</th>
          <th scope="col">{trans.__('More')}</th>
        </tr>
      </thead>
      <tbody>
        {events.map(event => (
          <tr key={event.seq}>
            <td>{moment(event.at, now)}</td>
            <td>{event.kind}</td>
            <td>{moreOf(event.detail)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function moreOf(detail: Record<string, unknown> | null): string {
  return Object.entries(detail ?? {})
    .filter(([, value]) => value !== null && value !== '')
    .map(([name, value]) => `${name} ${textOf(value)}`)
    .join(' · ');
}

function Memory(props: OfJob): JSX.Element {
  const { view } = props;
  const { memory, trouble } = useKept(props, 'memory');
  if (!memory) {
    return <Missing trouble={memory === null ? trans.__('This server keeps no memory curve.') : trouble} />;
  }
  const first = memory[0];
  const last = memory[memory.length - 1];
  if (!first || !last) {
    return <p>{trans.__('No memory of it has been measured.')}</p>;
  }
  const peak = Math.max(...memory.map(sample => sample.used_mib ?? 0));
  const most = Math.max(peak, view.vram_mib ?? 0);
  return (
    <figure className="gpusched-curve">
      <div className="gpusched-curve-box">
        <Sparkline
          points={memory.map(({ at, used_mib }) => ({ at, value: used_mib }))}
          from={first.at}
          to={Math.max(last.at, first.at + 1)}
          most={most}
          className="gpusched-of-memory"
          label={trans.__('Memory over %1, at most %2', seconds(last.at - first.at), mib(peak))}
        />
        {view.vram_mib !== null && (
          <div
            className="gpusched-promise"
            style={{ bottom: `${(100 * view.vram_mib) / Math.max(1, most)}%` }}
            title={trans.__('promised: %1', mib(view.vram_mib))}
          />
        )}
      </div>
      <figcaption className="gpusched-facts">
        {trans.__('at most %1 in %2', mib(peak), seconds(last.at - first.at))}
        {view.vram_mib !== null && ` · ${trans.__('promised: %1', mib(view.vram_mib))}`}
      </figcaption>
    </figure>
  );
}

function Missing({ trouble }: { trouble: string | null }): JSX.Element {
  return (
    <p className="gpusched-none" role="status">
      {trouble ?? trans.__('One moment.')}
    </p>
  );
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) {
    return '';
  }
  return typeof value === 'string' ? value : JSON.stringify(value);
}
