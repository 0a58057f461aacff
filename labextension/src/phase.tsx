// How a job stands: its phase as a small label, and why it stands so in a sentence. Colour never is all that tells it.

import * as React from 'react';

import { Counts, hasFailed, standing, tallied } from './arraywords';
import { h } from './element';
import { trans } from './translation';
import { JobView } from './wire';
import { isFinal, isHeld, phaseName } from './words';

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

/** Beside the phase of a waiting job that does not start until it is released. */
export function Held({ view }: { view: JobView }): JSX.Element | null {
  return isHeld(view) ? (
    <span className="gpusched-phase gpusched-held" title={view.held?.cause ?? undefined} data-testid="gpusched-held">
      {trans.__('held')}
    </span>
  ) : null;
}

/** How the elements of an array stand, what failed as a label at the front. */
export function Stand({ counts }: { counts: Counts }): JSX.Element {
  const failed = tallied(counts).filter(([phase]) => hasFailed({ phase }));
  const rest = standing(counts).split(' · ').slice(failed.length).join(' · ');
  return (
    <>
      {failed.map(([phase, words], index) => (
        <React.Fragment key={phase}>
          {index > 0 && ' · '}
          <span className="gpusched-phase gpusched-is-failed">{words}</span>
        </React.Fragment>
      ))}
      {failed.length > 0 && rest && ' · '}
      {rest}
    </>
  );
}

/** A sentence on why it waits, how it ended, or that it uses more than it asked for; told when it changes. */
export function Why({ view, words }: { view: JobView; words: string }): JSX.Element {
  return (
    <div role="status">
      <QuietWhy view={view} words={words} />
    </div>
  );
}

/** The same in a list, where nothing is told aloud. */
export function QuietWhy({ view, words }: { view: JobView; words: string }): JSX.Element {
  const over = !!view.overuse_mib && !isFinal(view);
  return (
    <div
      className={`gpusched-why${over ? ' gpusched-overuse' : ''}`}
      title={words}
      data-testid={over ? 'gpusched-overuse' : 'gpusched-why'}
    >
      {words}
    </div>
  );
}
