// Who schedules here, in one quiet line.

import * as React from 'react';

import { h } from './element';
import { trans } from './translation';
import { Health } from './wire';

export function HostLine({ health, administer }: { health: Health; administer: () => void }): JSX.Element {
  const where = trans.__('pid %1, version %2, state in %3', health.pid, health.version, health.state_dir);
  return (
    <>
      {health.unseen && (
        <p className="gpusched-facts" data-testid="gpusched-unseen">
          {unseenBy(health.unseen)}
        </p>
      )}
      <p className="gpusched-facts" title={`${whoOf(health)} · ${where}`}>
        <span data-testid="gpusched-host">{whoOf(health)}</span>
        {health.admin && (
          <button type="button" className="gpusched-link" onClick={administer} data-testid="gpusched-administer">
            {trans.__('Administer')}
          </button>
        )}
      </p>
    </>
  );
}

/** The remedy is the doctor's to tell. */
function unseenBy(whose: string): string {
  return whose === 'containers'
    ? trans.__('This container sees only its own promises on the cards.')
    : trans.__('Another user’s scheduler promises these cards, too, unseen by this one.');
}

function whoOf({ kind }: Health): string {
  switch (kind) {
    case 'server':
      return trans.__('Scheduler: Jupyter server');
    case 'daemon':
      return trans.__('Scheduler: daemon');
    case 'serve':
      return trans.__('Scheduler: gpusched serve');
    case 'system':
      return trans.__('Scheduler: system service');
    case 'hub':
      return trans.__('Scheduler: Hub service');
    default:
      return trans.__('Scheduler: %1', kind);
  }
}
