// How views follow the store and the clock, and only while they can be seen.

import * as React from 'react';

import { State, store } from './store';

/** Whether the widget around a view is shown; a tab behind another one is not. */
export const Shown = React.createContext(true);

/** The state as it is; followed only while the view is shown: one that nobody sees asks for nothing. */
export function useStore(): State {
  return usePart(whole);
}

/** A part of the state: the view is drawn anew only when that part is another value. */
export function usePart<Part>(part: (state: State) => Part): Part {
  const shown = React.useContext(Shown);
  return React.useSyncExternalStore(shown ? store.subscribe : still, () => part(store.state()));
}

/** Seconds since the epoch, moving on once a second while something on the page counts. */
export function useNow(counting: boolean): number {
  const [now, setNow] = React.useState(Date.now() / 1000);
  const going = React.useContext(Shown) && counting;
  React.useEffect(() => {
    if (!going) {
      return;
    }
    const timer = window.setInterval(() => document.hidden || setNow(Date.now() / 1000), 1000);
    return () => window.clearInterval(timer);
  }, [going]);
  return now;
}

const LIVE_S = 5;

/**
 * How many seconds old a figure of this moment is; null while newer ones keep coming. That none comes is seen by this
 * machine's clock alone, since the other's may be wrong.
 */
export function useAge(at: number): number | null {
  const now = useNow(true);
  const came = React.useRef({ at, when: now });
  if (came.current.at !== at) {
    came.current = { at, when: Date.now() / 1000 };
  }
  const waited = now - came.current.when;
  return waited < LIVE_S ? null : Math.max(waited, now - at);
}

/** Whether `box` is on the screen, in a tab that is looked at. */
export function useOnScreen(box: React.RefObject<HTMLElement>): boolean {
  const [onScreen, setOnScreen] = React.useState(false);
  const visible = React.useSyncExternalStore(hidings, () => !document.hidden);
  React.useEffect(() => {
    const around = box.current?.parentElement; // the box itself has no size while it is empty
    if (!around) {
      return;
    }
    const observer = new IntersectionObserver(found => setOnScreen(found.some(one => one.isIntersecting)));
    observer.observe(around);
    return () => observer.disconnect();
  }, [box]);
  return onScreen && visible;
}

function whole(state: State): State {
  return state;
}

function hidings(look: () => void): () => void {
  document.addEventListener('visibilitychange', look);
  return () => document.removeEventListener('visibilitychange', look);
}

function still(): () => void {
  return () => undefined;
}
