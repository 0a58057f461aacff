// Who schedules here, in one quiet line.

import * as React from 'react';

import { trans } from './translation';
import { Health } from './wire';

export function HostLine({ health }: { health: Health }): JSX.Element {
  const where = trans.__('version %1, state in %2', health.version, health.state_dir);
  return (
    <p className="gpusched-facts" title={`${whoOf(health)} · ${where}`} data-testid="gpusched-host">
      {whoOf(health)}
    </p>
  );
}

function whoOf({ kind, pid }: Health): string {
  switch (kind) {
    case 'server':
      return trans.__('Scheduler: Jupyter server, pid %1', pid);
    case 'daemon':
      return trans.__('Scheduler: daemon, pid %1', pid);
    case 'serve':
      return trans.__('Scheduler: gpusched serve, pid %1', pid);
    default:
      return trans.__('Scheduler: %1, pid %2', kind, pid);
  }
}
