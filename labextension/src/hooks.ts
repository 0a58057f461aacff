// How views follow the store and the clock.

import * as React from 'react';

import { State, store } from './store';

/** The state as it is; followed only while `active`, since a view that nobody sees asks for nothing. */
export function useStore(active = true): State {
  return React.useSyncExternalStore(active ? store.subscribe : still, store.state);
}

/** Seconds since the epoch, moving on once a second while something on the page counts. */
export function useNow(counting: boolean): number {
  const [now, setNow] = React.useState(Date.now() / 1000);
  React.useEffect(() => {
    if (!counting) {
      return;
    }
    const timer = window.setInterval(() => document.hidden || setNow(Date.now() / 1000), 1000);
    return () => window.clearInterval(timer);
  }, [counting]);
  return now;
}

function still(): () => void {
  return () => undefined;
}
