// The first page of a job's details: its facts, and its attempts.

import * as React from 'react';

import { elementOf } from './arraywords';
import { h } from './element';
import { useNow } from './hooks';
import { OfJob, useKept } from './jobfiles';
import { said, trans } from './translation';
import { AttemptView } from './wire';
import { little, mib, moment, phaseName, seconds, textOf, wants } from './words';

/** Who, when, what it asked for, what it used, and how its attempts went. */
export function Overview(props: OfJob): JSX.Element {
  const { view } = props;
  const { spec } = useKept(props, 'spec');
  const now = useNow(false);
  const at = (moment_s: number | null): string => (moment_s === null ? '' : moment(moment_s, now, true));
  const facts: [string, string][] = [
    [trans.__('Submitted'), at(view.submitted_at)],
    [trans.__('Started'), at(view.started_at)],
    [trans.__('Ended'), at(view.ended_at)],
    [trans.__('Owner'), view.user],
    [trans.__('Asks for'), wants(view)],
    [trans.__('Cap'), view.cap === null ? '' : capOf(view.cap)],
    [trans.__('CPUs'), view.cpus === null ? '' : String(view.cpus)],
    [trans.__('Host memory'), view.memory_mib === null ? '' : mib(view.memory_mib)],
    [trans.__('Uses now'), view.used_vram_mib === null ? '' : mib(view.used_vram_mib)],
    [trans.__('Peak VRAM'), view.peak_vram_mib === null ? '' : mib(view.peak_vram_mib)],
    [trans.__('Peak host memory'), view.peak_rss_mib === null ? '' : little(view.peak_rss_mib)],
    [trans.__('Priority'), said(view.priority)],
    [trans.__('Time limit'), textOf(spec?.['time_limit'])],
    [trans.__('Retries'), textOf(spec?.['retries'] || '')],
    [trans.__('Folder'), textOf(spec?.['cwd'])],
    [trans.__('Notebook'), view.notebook ?? ''],
    [trans.__('Array'), view.array_id === null ? '' : [view.array_id, elementOf(view)].filter(Boolean).join(', ')],
    [trans.__('Starts after'), (view.after ?? []).join(', ')],
    [trans.__('Repeats job'), view.parent_id ?? ''],
    [trans.__('Tags'), view.tags.join(', ')]
  ];
  const placed = view.attempts[view.attempts.length - 1]?.placement ?? null;
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
      {placed && <p data-testid="gpusched-placement">{placed}</p>}
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
              <td>{attempt.started_at === null ? '' : moment(attempt.started_at, now, true)}</td>
              <td>
                {attempt.started_at === null ? '' : seconds((attempt.ended_at ?? Date.now() / 1000) - attempt.started_at)}
              </td>
              <td title={attempt.placement ?? undefined}>{attempt.gpus.map(gpu => gpu.index).join(', ')}</td>
              <td>{mib(attempt.peak_vram_mib)}</td>
              <td>{said(attempt.message ?? attempt.reason ?? '')}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** What keeps the job within its promise, in words. */
function capOf(cap: string): string {
  return cap === 'cooperative'
    ? trans.__('cooperative: frameworks are asked, not forced, to stay within what it asks for')
    : cap;
}
