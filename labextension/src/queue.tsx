// Your jobs in the order that matters: what runs, what waits in its order, what ended last.

import * as React from 'react';

import { CancelButton } from './cancel';
import { useNow } from './hooks';
import { JobView } from './wire';
import { isFinal, lasted, sentence, wants, where } from './words';

const MOST_WAITING = 100;
const MOST_ENDED = 10;

export function Queue(props: { jobs: ReadonlyMap<string, JobView> }): JSX.Element {
  const { running, waiting, ended } = sorted([...props.jobs.values()]);
  const now = useNow(running.length + waiting.length > 0);
  if (!props.jobs.size) {
    return (
      <p className="gpusched-none" data-testid="gpusched-no-jobs">
        You have no jobs here. <code>%%gpujob --vram 4G</code> on a cell queues one.
      </p>
    );
  }
  return (
    <>
      <Group title="Running" jobs={running} now={now} />
      <Group title="Waiting" jobs={waiting.slice(0, MOST_WAITING)} of={waiting.length} now={now} />
      <Group title="Ended" jobs={ended.slice(0, MOST_ENDED)} now={now} />
    </>
  );
}

function Group(props: { title: string; jobs: JobView[]; of?: number; now: number }): JSX.Element | null {
  if (!props.jobs.length) {
    return null;
  }
  const more = (props.of ?? 0) - props.jobs.length;
  return (
    <section aria-label={props.title}>
      <h3 className="gpusched-group">
        {props.title} ({props.of ?? props.jobs.length})
      </h3>
      <ul className="gpusched-jobs">
        {props.jobs.map(view => (
          <Entry key={view.id} view={view} now={props.now} />
        ))}
      </ul>
      {more > 0 && <p className="gpusched-facts">and {more} more</p>}
    </section>
  );
}

function Entry({ view, now }: { view: JobView; now: number }): JSX.Element {
  const why = sentence(view);
  const facts = [wants(view), where(view), lasted(view, now)].filter(Boolean).join(' · ');
  return (
    <li className="gpusched-entry" data-testid="gpusched-entry" data-job-id={view.id}>
      <div className="gpusched-head">
        <span className="gpusched-name" title={view.name}>
          {view.name}
        </span>
        <Phase phase={view.phase} />
      </div>
      <div className="gpusched-facts">
        <code>{view.id}</code> · {facts}
      </div>
      {why && <div className="gpusched-why">{why}</div>}
      <CancelButton view={view} />
    </li>
  );
}

export function Phase({ phase }: { phase: string }): JSX.Element {
  return (
    <span className={`gpusched-phase gpusched-is-${phase.replace(/[^a-z]/g, '')}`} data-testid="gpusched-phase">
      {phase}
    </span>
  );
}

function sorted(views: JobView[]): Record<'running' | 'waiting' | 'ended', JobView[]> {
  const last = Number.MAX_SAFE_INTEGER;
  return {
    running: views
      .filter(view => !isFinal(view) && view.phase !== 'queued')
      .sort((a, b) => (a.started_at ?? last) - (b.started_at ?? last)),
    waiting: views
      .filter(view => view.phase === 'queued')
      .sort((a, b) => (a.position ?? last) - (b.position ?? last) || a.submitted_at - b.submitted_at),
    ended: views.filter(isFinal).sort((a, b) => (b.ended_at ?? 0) - (a.ended_at ?? 0))
  };
}
