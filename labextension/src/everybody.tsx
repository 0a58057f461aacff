// Everybody's jobs that have not ended, for administrators: whose they are, what they hold, and their end if need be.

import * as React from 'react';

import { cancelAll } from './acts';
import { everybodys } from './api';
import { elementOf } from './arraywords';
import { useAnswer } from './asking';
import { h } from './element';
import { useNow } from './hooks';
import { Missing } from './missing';
import { Held, Phase } from './phase';
import { trans } from './translation';
import { JobView } from './wire';
import { lasted, wants, where } from './words';

const PHASES = ['running', 'starting', 'stopping', 'queued'];
const MOST = 200;
const EVERY_MS = 3000;

async function live(): Promise<JobView[]> {
  return (await Promise.all(PHASES.map(phase => everybodys(phase, MOST)))).flat();
}

export function Everybody({ open }: { open: (id: string) => void }): JSX.Element {
  const { answer, trouble, ask } = useAnswer(live, EVERY_MS);
  const now = useNow(true);
  if (!answer) {
    return <Missing trouble={trouble} />;
  }
  if (!answer.length) {
    return <p className="gpusched-none">{trans.__('Nobody has a job that runs or waits.')}</p>;
  }
  return (
    <>
      {trouble && <p className="gpusched-trouble">{trouble}</p>}
      <table className="gpusched-grid-table" data-testid="gpusched-everybody">
        <thead>
          <tr>
            <th scope="col">{trans.__('User')}</th>
            <th scope="col">{trans.__('Job')}</th>
            <th scope="col">{trans.__('Phase')}</th>
            <th scope="col">{trans.__('GPUs')}</th>
            <th scope="col">{trans.__('Time')}</th>
            <th scope="col" aria-label={trans.__('Actions')} />
          </tr>
        </thead>
        <tbody>
          {answer.map(view => (
            <tr key={view.id}>
              <td>{view.user}</td>
              <td>
                <button type="button" className="gpusched-link" title={view.name} onClick={() => open(view.id)}>
                  {[view.name, elementOf(view)].filter(Boolean).join(' ')}
                </button>{' '}
                <code>{view.id}</code>
              </td>
              <td>
                <Phase phase={view.phase} /> <Held view={view} />
              </td>
              <td>{[where(view), wants(view)].filter(Boolean).join(' · ')}</td>
              <td>{lasted(view, now)}</td>
              <td>
                <button
                  type="button"
                  className="gpusched-button"
                  aria-label={trans.__('Cancel job %1', view.id)}
                  onClick={() => void cancelAll([view]).then(ask)}
                >
                  {trans.__('Cancel')}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {PHASES.some(phase => answer.filter(view => view.phase === phase).length >= MOST) && (
        <p className="gpusched-hint">{trans.__('Of each phase the newest %1 are listed.', MOST)}</p>
      )}
    </>
  );
}
