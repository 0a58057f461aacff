// Which part of the list can be seen, and where the focus is in it: rows come and go, and it is never lost.

import * as React from 'react';

import { idOf, Row, visible } from './rows';
import { useSelection } from './selection';

/** What of the list can be seen, in pixels. */
export interface Window {
  readonly top: number;
  readonly height: number;
}

export function useWindow(box: React.RefObject<HTMLElement>): Window {
  const [view, setView] = React.useState<Window>({ top: 0, height: 600 });
  React.useLayoutEffect(() => {
    const node = box.current;
    if (!node) {
      return;
    }
    const look = (): void => setView({ top: node.scrollTop, height: node.clientHeight });
    look();
    node.addEventListener('scroll', look, { passive: true });
    const observer = new ResizeObserver(look);
    observer.observe(node);
    return () => {
      node.removeEventListener('scroll', look);
      observer.disconnect();
    };
  }, [box]);
  return view;
}

/** The rows that can be seen, and the one that the keys are at, so that the focus is never lost. */
export function shownOf(rows: readonly Row[], tops: readonly number[], view: Window, active: string | null): number[] {
  const [first, end] = visible(tops, view.top, view.height);
  const shown = Array.from({ length: end - first }, (_, at) => first + at);
  const at = active === null ? -1 : rows.findIndex(row => idOf(row) === active);
  return at < 0 || (at >= first && at < end) ? shown : [...shown, at].sort((a, b) => a - b);
}

/** After a key the row it went to has the focus and can be seen. */
export function useFocus(
  box: React.RefObject<HTMLElement>,
  rows: readonly Row[],
  tops: readonly number[],
  selection: ReturnType<typeof useSelection>
): void {
  const { active, moved } = selection;
  const held = box.current?.querySelector(':focus')?.getAttribute('data-job-id') ?? null;
  React.useLayoutEffect(() => {
    // A row that changes its place may be taken out and put in again, which costs it the focus.
    if (held !== null && !box.current?.querySelector(':focus')) {
      rowOf(box, held)?.focus({ preventScroll: true });
    }
  });
  React.useLayoutEffect(() => {
    const node = box.current;
    const at = active === null ? -1 : rows.findIndex(row => idOf(row) === active);
    if (!node || at < 0 || !moved) {
      return;
    }
    const top = tops[at] ?? 0;
    const bottom = tops[at + 1] ?? top;
    if (top < node.scrollTop) {
      node.scrollTop = top;
    } else if (bottom > node.scrollTop + node.clientHeight) {
      node.scrollTop = bottom - node.clientHeight;
    }
    rowOf(box, active)?.focus({ preventScroll: true });
  }, [moved, active]); // eslint-disable-line react-hooks/exhaustive-deps -- only a key moves the focus, never a new row
}

function rowOf(box: React.RefObject<HTMLElement>, id: string | null): HTMLElement | null {
  return id === null ? null : (box.current?.querySelector<HTMLElement>(`[data-job-id="${CSS.escape(id)}"]`) ?? null);
}
