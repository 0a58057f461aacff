// The button that ends a job, and for a few seconds the one that takes it back: hours of work may hang on it.

import * as React from 'react';

import { h } from './element';
import { useNow } from './hooks';
import { trans } from './translation';
import * as undo from './undo';
import { JobView } from './wire';
import { isFinal } from './words';

export function CancelButton({ view }: { view: JobView }): JSX.Element | null {
  const wish = React.useSyncExternalStore(undo.subscribe, undo.current).get(view.id);
  const pending = typeof wish?.due === 'number';
  const now = useNow(pending);
  if (isFinal(view)) {
    return null;
  }
  const ending = view.phase === 'stopping' || (!!wish && !pending && !wish.trouble);
  const left = pending ? Math.max(1, Math.ceil((wish?.due ?? 0) / 1000 - now)) : 0;
  return (
    <>
      <button
        className={`gpusched-cancel${pending ? ' gpusched-asked' : ''}`}
        data-testid="gpusched-cancel"
        disabled={ending}
        onClick={() => (pending ? undo.takeBack(view.id) : undo.wishToCancel(view.id))}
        aria-label={
          pending ? trans.__('Undo: do not cancel job %1', view.id) : trans.__('Cancel job %1', view.id)
        }
      >
        {ending ? trans.__('Cancelling') : pending ? trans.__('Undo (%1)', left) : trans.__('Cancel')}
      </button>
      {wish?.trouble && (
        <span className="gpusched-trouble" role="alert">
          {wish.trouble}
        </span>
      )}
    </>
  );
}
