// The button that ends a job. What already runs is asked about once more: hours of work may hang on it.

import * as React from 'react';

import { store } from './store';
import { JobView } from './wire';
import { isFinal } from './words';

const ASKED_FOR_MS = 4000;

export function CancelButton({ view }: { view: JobView }): JSX.Element | null {
  const [asked, setAsked] = React.useState(false);
  const [sent, setSent] = React.useState(false);
  const [trouble, setTrouble] = React.useState<string | null>(null);
  React.useEffect(() => {
    const timer = asked ? window.setTimeout(() => setAsked(false), ASKED_FOR_MS) : 0;
    return () => window.clearTimeout(timer);
  }, [asked]);
  if (isFinal(view)) {
    return null;
  }
  const end = (): void => {
    setSent(true);
    setTrouble(null);
    store.cancel(view.id).catch((error: unknown) => {
      setSent(false);
      setTrouble(error instanceof Error ? error.message : String(error));
    });
  };
  const sure = asked || view.phase === 'queued';
  const ending = sent || view.phase === 'stopping';
  return (
    <>
      <button
        className={`gpusched-cancel${asked ? ' gpusched-asked' : ''}`}
        data-testid="gpusched-cancel"
        disabled={ending}
        onClick={() => (sure ? end() : setAsked(true))}
        aria-label={asked ? `Really cancel job ${view.id}` : `Cancel job ${view.id}`}
      >
        {ending ? 'Cancelling' : asked ? 'Really cancel?' : 'Cancel'}
      </button>
      {trouble && (
        <span className="gpusched-trouble" role="alert">
          {trouble}
        </span>
      )}
    </>
  );
}
