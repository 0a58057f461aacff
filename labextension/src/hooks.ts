// How views follow the store and the clock.

import * as React from 'react';

import { State, store } from './store';

export function useStore(): State {
  return React.useSyncExternalStore(store.subscribe, store.state);
}

/** Seconds since the epoch, moving on once a second while something on the page counts. */
export function useNow(counting: boolean): number {
  const [now, setNow] = React.useState(Date.now() / 1000);
  React.useEffect(() => {
    if (!counting) {
      return;
    }
    const timer = window.setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => window.clearInterval(timer);
  }, [counting]);
  return now;
}
