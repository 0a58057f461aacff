// Your jobs as a list that bears thousands: only what can be seen is on the page. Filter and search above it;
// rows are chosen, opened, cancelled, run again and put in another order by mouse and by keys alike.

import { HTMLSelect } from '@jupyterlab/ui-components';
import * as React from 'react';

import { cancelAll, moveTo } from './acts';
import { ArrayRow } from './arrayrow';
import { nameOf, toRepeat } from './arraywords';
import { Chosen } from './chosen';
import { h } from './element';
import { Entry } from './entry';
import { useNow } from './hooks';
import { besides, Filter, Group, idOf, Row, rowsOf, topsOf } from './rows';
import { shownOf, useFocus, useWindow } from './scrolling';
import { useSelection } from './selection';
import { trans } from './translation';
import { JobView } from './wire';
import { isFinal } from './words';

export interface Asked {
  readonly filter: Filter;
  readonly search: string;
}

interface Props {
  jobs: ReadonlyMap<string, JobView>;
  /** Whether there are jobs that ended before these. */
  older: boolean;
  open: (id: string) => void;
}

export function Queue({ jobs, older, open }: Props): JSX.Element {
  const [asked, setAsked] = React.useState<Asked>({ filter: 'all', search: '' });
  const now = useNow([...jobs.values()].some(view => !isFinal(view)));
  const today = startOfDay(now);
  const [opened, setOpened] = React.useState<ReadonlySet<string>>(new Set());
  const toggle = React.useCallback((id: string) => setOpened(old => toggled(old, id)), []);
  const rows = React.useMemo(
    () => rowsOf(jobs.values(), asked.filter, asked.search, today, opened, older),
    [jobs, asked, today, opened, older]
  );
  return (
    <div className="gpusched-queue">
      <Search asked={asked} ask={setAsked} />
      {rows.length ? (
        <List rows={rows} now={now} open={open} toggle={toggle} />
      ) : (
        <p className="gpusched-none" data-testid="gpusched-no-jobs">
          {jobs.size ? (
            older ? (
              trans.__('None of the newest jobs is like that; %1 has all.', 'jupyter gpusched ls')
            ) : (
              trans.__('No job is like that.')
            )
          ) : (
            <>
              {trans.__('You have no jobs here. This on top of a cell queues one:')} <code>%%gpujob --vram 4G</code>
            </>
          )}
        </p>
      )}
    </div>
  );
}

function Search({ asked, ask }: { asked: Asked; ask: (asked: Asked) => void }): JSX.Element {
  const filters: [Filter, string][] = [
    ['all', trans.__('All jobs')],
    ['running', trans.__('Running')],
    ['waiting', trans.__('Waiting')],
    ['ended', trans.__('Finished')],
    ['failed', trans.__('Failed')]
  ];
  return (
    <div className="gpusched-search">
      <input
        type="search"
        className="jp-mod-styled"
        placeholder={trans.__('Search')}
        aria-label={trans.__('Search jobs')}
        value={asked.search}
        onChange={event => ask({ ...asked, search: event.target.value })}
        data-testid="gpusched-search"
      />
      <HTMLSelect
        className="gpusched-select"
        aria-label={trans.__('Which jobs are shown')}
        value={asked.filter}
        onChange={event => ask({ ...asked, filter: event.target.value as Filter })}
        data-testid="gpusched-filter"
      >
        {filters.map(([filter, name]) => (
          <option key={filter} value={filter}>
            {name}
          </option>
        ))}
      </HTMLSelect>
    </div>
  );
}

interface ListProps {
  rows: readonly Row[];
  now: number;
  open: (id: string) => void;
  /** Show the elements of an array, or hide them again. */
  toggle: (id: string) => void;
}

/** Rows that are chosen, opened and acted upon, of which only those that can be seen are on the page. */
export function List({ rows, now, open, toggle }: ListProps): JSX.Element {
  const box = React.useRef<HTMLDivElement>(null);
  const view = useWindow(box);
  const tops = React.useMemo(() => topsOf(rows), [rows]);
  const ids = React.useMemo(() => rows.flatMap(row => idOf(row) ?? []), [rows]);
  const selection = useSelection(ids);
  const [said, say] = React.useState('');
  const indexes = shownOf(rows, tops, view, selection.active);
  useFocus(box, rows, tops, selection);

  const chosen = chosenOf(rows, selection.chosen);
  const act = (event: React.KeyboardEvent): void => {
    if ((event.target as HTMLElement).getAttribute('role') !== 'row') {
      return; // a button in a row has keys of its own
    }
    const active = rows.find(row => selection.active !== null && idOf(row) === selection.active);
    const taken =
      active?.kind === 'job'
        ? keyedToMove(event, active, rows, say) || keyed(event, active.view, chosen, open)
        : active?.kind === 'array' && (keyedToMove(event, active, rows, say) || keyedArray(event, active, chosen, toggle));
    if (taken) {
      event.preventDefault();
      event.stopPropagation();
    } else if (selection.key(event, Math.max(1, Math.floor(view.height / 60)))) {
      event.preventDefault();
      event.stopPropagation();
    }
  };
  return (
    <>
      <Chosen chosen={chosen} again={chosenOf(rows, selection.chosen, toRepeat)} clear={selection.clear} />
      <div
        ref={box}
        className="gpusched-list"
        role="grid"
        aria-label={trans.__('Jobs')}
        aria-multiselectable="true"
        aria-rowcount={rows.length}
        onKeyDown={act}
        data-testid="gpusched-list"
      >
        <div role="rowgroup" className="gpusched-rows" style={{ height: tops[rows.length] }}>
          {indexes.map(index => {
            const row = rows[index];
            if (row === undefined) {
              return null;
            }
            if (row.kind === 'group') {
              return <Heading key={row.group} row={row} top={tops[index] ?? 0} index={index} />;
            }
            return row.kind === 'array' ? (
              <ArrayRow
                key={row.id}
                row={row}
                top={tops[index] ?? 0}
                height={(tops[index + 1] ?? 0) - (tops[index] ?? 0)}
                index={index}
                active={row.id === selection.active}
                chosen={selection.chosen.has(row.id)}
                choose={selection.click}
                reach={selection.reach}
                toggle={toggle}
                say={say}
              />
            ) : (
              <Entry
                key={row.view.id}
                view={row.view}
                group={row.group}
                element={row.element}
                top={tops[index] ?? 0}
                height={(tops[index + 1] ?? 0) - (tops[index] ?? 0)}
                index={index}
                now={now}
                active={row.view.id === selection.active}
                chosen={selection.chosen.has(row.view.id)}
                choose={selection.click}
                reach={selection.reach}
                open={open}
                say={say}
              />
            );
          })}
        </div>
      </div>
      <div className="gpusched-unseen" role="status" aria-live="polite" data-testid="gpusched-said">
        {said}
      </div>
    </>
  );
}

/** Alt and an arrow: before or after the next row of its kind; true when it was that. */
function keyedToMove(event: React.KeyboardEvent, row: Row, rows: readonly Row[], say: (words: string) => void): boolean {
  if (!event.altKey || (event.key !== 'ArrowUp' && event.key !== 'ArrowDown')) {
    return false;
  }
  const up = event.key === 'ArrowUp';
  const [id, other] = [idOf(row), idOf(besides(rows, row, up) ?? row)];
  if (id !== null && other !== null && id !== other) {
    void moveTo(id, other, up ? 'before' : 'after').then(say);
  }
  return true;
}

/** Keys that act on jobs; true when it was one. */
function keyed(
  event: React.KeyboardEvent,
  view: JobView,
  chosen: JobView[],
  open: (id: string) => void
): boolean {
  if (event.altKey || event.ctrlKey || event.metaKey) {
    return false;
  }
  if (event.key === 'Enter') {
    open(view.id);
    return true;
  }
  if (event.key === 'Delete' || event.key === 'Backspace') {
    void cancelAll(chosen.length ? chosen : [view]);
    return true;
  }
  return false;
}

/** Keys on the row of an array; true when it was one. */
function keyedArray(
  event: React.KeyboardEvent,
  row: Extract<Row, { kind: 'array' }>,
  chosen: JobView[],
  toggle: (id: string) => void
): boolean {
  if (event.altKey || event.ctrlKey || event.metaKey) {
    return false;
  }
  if (event.key === 'Enter' || event.key === (row.open ? 'ArrowLeft' : 'ArrowRight')) {
    toggle(row.id);
    return true;
  }
  if (event.key === 'Delete' || event.key === 'Backspace') {
    void (chosen.length ? cancelAll(chosen) : cancelAll(row.views, nameOf(row.views)));
    return true;
  }
  return false;
}

/** The jobs that are chosen, each once: an array that is chosen is all of its elements, or those that are `meant`. */
function chosenOf(
  rows: readonly Row[],
  ids: ReadonlySet<string>,
  meant: (views: readonly JobView[]) => readonly JobView[] = views => views
): JobView[] {
  const found = new Map<string, JobView>();
  for (const row of rows) {
    if (row.kind === 'job' && ids.has(row.view.id)) {
      found.set(row.view.id, row.view);
    } else if (row.kind === 'array' && ids.has(row.id)) {
      meant(row.views).forEach(view => found.set(view.id, view));
    }
  }
  return [...found.values()];
}

function toggled(ids: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const changed = new Set(ids);
  if (!changed.delete(id)) {
    changed.add(id);
  }
  return changed;
}

function Heading(props: { row: Extract<Row, { kind: 'group' }>; top: number; index: number }): JSX.Element {
  const { group, count, others, older } = props.row;
  const names: Record<Group, string> = {
    running: trans.__('Running'),
    waiting: trans.__('Waiting'),
    today: trans.__('Finished today'),
    earlier: trans.__('Finished earlier')
  };
  const all = trans.__('the newest; %1 has all', 'jupyter gpusched ls');
  return (
    <div className="gpusched-group" role="row" aria-rowindex={props.index + 1} style={{ top: props.top }}>
      <span role="rowheader">
        {names[group]} <span className="gpusched-count">{older ? `${count}+` : count}</span>
      </span>
      {older && (
        <span role="gridcell" className="gpusched-facts" title={all} data-testid="gpusched-older">
          {all}
        </span>
      )}
      {others > 0 && (
        <span
          role="gridcell"
          className="gpusched-facts"
          title={trans.__('Jobs of others that stand before or between them')}
          data-testid="gpusched-others"
        >
          {trans.__('and %1 of others', others)}
        </span>
      )}
    </div>
  );
}

function startOfDay(now: number): number {
  const date = new Date(now * 1000);
  date.setHours(0, 0, 0, 0);
  return date.getTime() / 1000;
}
