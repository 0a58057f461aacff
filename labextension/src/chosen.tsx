// What can be done with the rows of the queue that are chosen.

import { cancelAll, holdAll, releaseAll, resubmitAll } from './acts';
import { h } from './element';
import { trans } from './translation';
import { JobView } from './wire';
import { canBeHeld, isFinal, isHeld } from './words';

interface Props {
  chosen: JobView[];
  /** Those that run again if it is asked for. */
  again: JobView[];
  clear: () => void;
}

export function Chosen({ chosen, again, clear }: Props): JSX.Element | null {
  if (!chosen.length) {
    return null;
  }
  const going = chosen.filter(view => !isFinal(view));
  return (
    <div className="gpusched-chosen" role="toolbar" aria-label={trans.__('Chosen jobs')} data-testid="gpusched-chosen">
      <span>{trans._n('%1 job chosen', '%1 jobs chosen', chosen.length)}</span>
      <span className="gpusched-space" />
      <button
        type="button"
        className="gpusched-button"
        disabled={!going.length}
        onClick={() => void cancelAll(going)}
        data-testid="gpusched-cancel-chosen"
      >
        {trans.__('Cancel')}
      </button>
      {chosen.some(canBeHeld) && (
        <button
          type="button"
          className="gpusched-button"
          title={trans.__('Those that wait do not start until they are released')}
          onClick={() => void holdAll(chosen)}
          data-testid="gpusched-hold-chosen"
        >
          {trans.__('Hold')}
        </button>
      )}
      {chosen.some(isHeld) && (
        <button
          type="button"
          className="gpusched-button"
          onClick={() => void releaseAll(chosen)}
          data-testid="gpusched-release-chosen"
        >
          {trans.__('Release')}
        </button>
      )}
      <button
        type="button"
        className="gpusched-button"
        disabled={!again.length}
        onClick={() => void resubmitAll(again).then(done => done && clear())}
        data-testid="gpusched-resubmit-chosen"
      >
        {trans.__('Run %1 again', again.length)}
      </button>
      <button type="button" className="gpusched-button" onClick={clear}>
        {trans.__('Clear')}
      </button>
    </div>
  );
}
