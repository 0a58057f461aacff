// The card of one job below the cell that submitted it: live from the server, so that it needs no kernel.
// What a job or a notebook's author wrote is shown as text; a job's rich outputs go through JupyterLab's renderers.

import { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import * as React from 'react';

import { Actions } from './actions';
import { ArrayRuns } from './arraycard';
import { isJobId } from './api';
import { Simulated } from './bars';
import { h } from './element';
import { useNow, usePart } from './hooks';
import { JobFiles } from './jobfiles';
import { LiveWidget } from './live';
import { openLog } from './logview';
import { MemoryBar } from './memory';
import { Outputs } from './outputs';
import { Held, Phase, Why } from './phase';
import { ProgressBar } from './progressbar';
import { ResubmitForm } from './resubmit';
import { savedArray, savedView } from './saved';
import { Standing } from './standing';
import { repeatsOf } from './state';
import { store } from './store';
import { said, trans } from './translation';
import { JobView } from './wire';
import { expected, isFinal, lasted, seconds, sentence, wants } from './words';

export const MIME = 'application/vnd.gpusched.job+json';

const LONGEST_CHAIN = 20;

export class JobRenderer extends LiveWidget implements IRenderMime.IRenderer {
  private _data: unknown = null;
  private _trusted = false;

  constructor() {
    super();
    this.addClass('gpusched-output');
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._data = model.data[MIME];
    this._trusted = model.trusted;
    this.update();
    return this.renderPromise ?? Promise.resolve();
  }

  protected draw(): JSX.Element {
    const { id, view, array } = (this._data ?? {}) as { id?: unknown; view?: unknown; array?: unknown };
    if (!isJobId(id)) {
      return <p className="gpusched-trouble">{trans.__('This output does not name a job.')}</p>;
    }
    return (
      <Guard key={id} id={id}>
        {array ? (
          <ArrayRuns
            id={id}
            saved={savedArray(array)}
            cardOf={element => <Runs key={element} id={element} saved={null} trusted={this._trusted} />}
          />
        ) : (
          <Runs id={id} saved={savedView(view, id)} trusted={this._trusted} />
        )}
      </Guard>
    );
  }
}

/** A card that cannot be drawn says so, and leaves the id to go on with. */
class Guard extends React.Component<{ id: string; children: React.ReactNode }, { failed: boolean }> {
  state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  render(): React.ReactNode {
    return this.state.failed ? (
      <p className="gpusched-trouble">{trans.__('The card of job %1 cannot be drawn.', this.props.id)}</p>
    ) : (
      this.props.children
    );
  }
}

/** The job, and below it those that were made of it by running it again. */
function Runs(props: { id: string; saved: JobView | null; trusted: boolean }): JSX.Element {
  const [known, setKnown] = React.useState<string[]>([]);
  const again = React.useCallback((newId: string): void => {
    store.want(newId);
    setKnown(before => [...before, newId]);
  }, []);
  const made = usePart(({ jobs }) => repeatsOf(jobs, props.id).join(' '));
  const ids = [props.id, ...new Set([...made.split(' ').filter(Boolean), ...known])].slice(-LONGEST_CHAIN);
  return (
    <>
      {ids.map(id => (
        <JobCard key={id} id={id} saved={id === props.id ? props.saved : null} trusted={props.trusted} onAgain={again} />
      ))}
    </>
  );
}

interface CardProps {
  id: string;
  saved: JobView | null;
  trusted: boolean;
  onAgain: (newId: string) => void;
}

/** Follows its own job alone, so that frames about others cost it nothing. */
const JobCard = React.memo(function JobCard({ id, saved, trusted, onAgain }: CardProps): JSX.Element {
  React.useEffect(() => store.want(id), [id]);
  const live = usePart(({ jobs }) => jobs.get(id));
  const connected = usePart(state => state.connected);
  const known = usePart(state => state.known);
  const unknown = usePart(state => !live && state.unknown.has(id));
  const view = live ?? saved;
  return (
    <article
      className="gpusched-card"
      data-testid="gpusched-card"
      data-job-id={id}
      aria-label={trans.__('Job %1', id)}
    >
      {view ? (
        <Body view={view} live={!!live} trusted={trusted} onAgain={onAgain} />
      ) : (
        <code>{id}</code>
      )}
      <Standing connected={connected} known={known} unknown={unknown} />
    </article>
  );
});

interface BodyProps {
  view: JobView;
  live: boolean;
  trusted: boolean;
  onAgain: (newId: string) => void;
}

function Body({ view, live, trusted, onAgain }: BodyProps): JSX.Element {
  const now = useNow(live && !isFinal(view));
  const [following, setFollowing] = React.useState(true);
  const [resubmitting, setResubmitting] = React.useState(false);
  const files = React.useMemo(() => new JobFiles(view.id), [view.id]);
  const why = sentence(view);
  const done = (newId: string): void => {
    setResubmitting(false);
    onAgain(newId);
  };
  return (
    <>
      <div className="gpusched-head">
        <span className="gpusched-name" title={view.name}>
          {view.name}
        </span>
        <Phase phase={view.phase} />
        <Held view={view} />
        {view.simulated && <Simulated />}
        <span className="gpusched-space" />
        {live && (
          <Actions
            view={view}
            trusted={trusted}
            following={following}
            onFollow={setFollowing}
            resubmitting={resubmitting}
            onResubmit={() => setResubmitting(!resubmitting)}
          />
        )}
      </div>
      <div className="gpusched-facts" data-testid="gpusched-facts">
        <code>{view.id}</code> · {factsOf(view, live || isFinal(view) ? now : null)}
      </div>
      {why && <Why view={view} words={[why, expected(view, now)].filter(Boolean).join(' · ')} />}
      {live && view.progress && !isFinal(view) && <ProgressBar progress={view.progress} />}
      {live && <MemoryBar view={view} files={files} />}
      {view.advice && (
        <div className="gpusched-facts" data-testid="gpusched-advice">
          {said(view.advice)}
        </div>
      )}
      {resubmitting && <ResubmitForm view={view} onDone={done} onClose={() => setResubmitting(false)} />}
      {live && (
        <Outputs
          view={view}
          trusted={trusted}
          following={following}
          onFollow={setFollowing}
          openWhole={() => openLog(view.id, view.name, trusted)}
        />
      )}
    </>
  );
}

function factsOf(view: JobView, now: number | null): string {
  const facts = [said(view.kind), wants(view), ...view.gpus.map(gpu => `GPU ${gpu.index} (${gpu.name})`)];
  if (now !== null) {
    facts.push(lasted(view, now), remaining(view, now));
  }
  return facts.filter(Boolean).join(' · ');
}

function remaining(view: JobView, now: number): string {
  return view.time_limit_s === null || view.started_at === null || isFinal(view)
    ? ''
    : trans.__('%1 left of %2', seconds(view.started_at + view.time_limit_s - now), seconds(view.time_limit_s));
}
