// Which rows of a list are chosen and at which one the keys are, as in JupyterLab's file browser:
// a click chooses one, with Ctrl one more, with Shift all between; arrow keys go, Space chooses.

import * as React from 'react';

export interface Selection {
  readonly active: string | null;
  readonly chosen: ReadonlySet<string>;
  /** Changes with each step of the keys: then the focus goes along. */
  readonly moved: number;
  clear: () => void;
  /** The focus has come to this row by itself. */
  reach: (id: string) => void;
  /** `box`: its checkbox was clicked, so that the others stay as they are. */
  click: (id: string, event: { shiftKey: boolean; ctrlKey: boolean; metaKey: boolean }, box: boolean) => void;
  /** True when it was a key of the list; `page` is how many rows a page has. */
  key: (event: React.KeyboardEvent, page: number) => boolean;
}

interface Where {
  readonly active: string | null;
  readonly anchor: string | null;
  readonly chosen: ReadonlySet<string>;
  readonly moved: number;
}

export function useSelection(ids: readonly string[]): Selection {
  const [where, setWhere] = React.useState<Where>({ active: null, anchor: null, chosen: new Set(), moved: 0 });
  const latest = React.useRef(ids);
  latest.current = ids;
  const present = React.useMemo(() => new Set(ids), [ids]);
  const active = where.active !== null && present.has(where.active) ? where.active : (ids[0] ?? null);

  const click = React.useCallback<Selection['click']>((id, event, box) => {
    setWhere(old => {
      if (event.shiftKey && old.anchor !== null) {
        return { ...old, active: id, chosen: between(latest.current, old.anchor, id) };
      }
      const more = box || event.ctrlKey || event.metaKey;
      return { ...old, active: id, anchor: id, chosen: more ? toggled(old.chosen, id) : new Set() };
    });
  }, []);
  const reach = React.useCallback(
    (id: string) => setWhere(old => (old.active === id ? old : { ...old, active: id, anchor: id })),
    []
  );
  const clear = React.useCallback(() => setWhere(old => ({ ...old, chosen: new Set() })), []);

  const key = (event: React.KeyboardEvent, page: number): boolean => {
    const at = active === null ? -1 : ids.indexOf(active);
    const last = ids.length - 1;
    const goes: Record<string, number> = {
      ArrowDown: Math.min(last, at + 1),
      ArrowUp: Math.max(0, at - 1),
      PageDown: Math.min(last, at + page),
      PageUp: Math.max(0, at - page),
      Home: 0,
      End: last
    };
    const to = event.altKey ? undefined : goes[event.key];
    const id = to === undefined ? undefined : ids[to];
    if (id !== undefined) {
      const anchor = event.shiftKey ? (where.anchor ?? active) : id;
      const chosen = event.shiftKey && anchor !== null ? between(ids, anchor, id) : where.chosen;
      setWhere({ active: id, anchor, chosen, moved: where.moved + 1 });
      return true;
    }
    if (event.key === ' ' && active !== null) {
      setWhere({ ...where, active, anchor: active, chosen: toggled(where.chosen, active) });
      return true;
    }
    if (event.key === 'a' && (event.ctrlKey || event.metaKey)) {
      setWhere({ ...where, chosen: new Set(ids) });
      return true;
    }
    if (event.key === 'Escape' && where.chosen.size) {
      clear();
      return true;
    }
    return false;
  };
  return { active, chosen: where.chosen, moved: where.moved, clear, reach, click, key };
}

export function between(ids: readonly string[], one: string, other: string): Set<string> {
  const [first, last] = [ids.indexOf(one), ids.indexOf(other)].sort((a, b) => a - b) as [number, number];
  return new Set(first < 0 ? [other] : ids.slice(first, last + 1));
}

function toggled(chosen: ReadonlySet<string>, id: string): Set<string> {
  const changed = new Set(chosen);
  if (!changed.delete(id)) {
    changed.add(id);
  }
  return changed;
}
