// The phase of a job as a small label: its colour never is all that tells it.

import * as React from 'react';

import { phaseName } from './words';

export function Phase({ phase }: { phase: string }): JSX.Element {
  return (
    <span
      className={`gpusched-phase gpusched-is-${phase.replace(/[^a-z]/g, '')}`}
      data-testid="gpusched-phase"
      data-phase={phase}
    >
      {phaseName(phase)}
    </span>
  );
}
