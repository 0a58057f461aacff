// Your jobs as a list that bears thousands: only what can be seen is on the page. Filter and search above it;
// rows are chosen, opened, cancelled, run again and put in another order by mouse and by keys alike.

import * as React from 'react';

import { cancelAll, moveJob, resubmitAll } from './acts';
import { Entry } from './entry';
import { useNow } from './hooks';
import { Filter, Group, Row, rowsOf, topsOf } from './rows';
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
  open: (id: string) => void;
}

export function Queue({ jobs, open }: Props): JSX.Element {
  const [asked, setAsked] = React.useState<Asked>({ filter: 'all', search: '' });
  const now = useNow([...jobs.values()].some(view => !isFinal(view)));
  const today = startOfDay(now);
  const rows = React.useMemo(() => rowsOf(jobs.values(), asked.filter, asked.search, today), [jobs, asked, today]);
  return (
    <div className="gpusched-queue">
      <Search asked={asked} ask={setAsked} />
      {rows.length ? (
        <List rows={rows} now={now} open={open} />
      ) : (
        <p className="gpusched-none" data-testid="gpusched-no-jobs">
          {jobs.size ? (
            trans.__('No job is like that.')
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
        placeholder={trans.__('Search by name, id or tag')}
        aria-label={trans.__('Search jobs')}
        value={asked.search}
        onChange={event => ask({ ...asked, search: event.target.value })}
        data-testid="gpusched-search"
      />
      <select
        className="jp-mod-styled"
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
      </select>
    </div>
  );
}

function List({ rows, now, open }: { rows: readonly Row[]; now: number; open: (id: string) => void }): JSX.Element {
  const box = React.useRef<HTMLDivElement>(null);
  const view = useWindow(box);
  const tops = React.useMemo(() => topsOf(rows), [rows]);
  const ids = React.useMemo(() => rows.flatMap(row => (row.kind === 'job' ? [row.view.id] : [])), [rows]);
  const selection = useSelection(ids);
  const [said, say] = React.useState('');
  const indexes = shownOf(rows, tops, view, selection.active);
  useFocus(box, rows, tops, selection);

  const chosen = rows.flatMap(row => (row.kind === 'job' && selection.chosen.has(row.view.id) ? [row.view] : []));
  const act = (event: React.KeyboardEvent): void => {
    if ((event.target as HTMLElement).getAttribute('role') !== 'row') {
      return; // a button in a row has keys of its own
    }
    const active = rows.find(row => row.kind === 'job' && row.view.id === selection.active);
    if (active?.kind === 'job' && keyed(event, active.view, rows, chosen, open, say)) {
      event.preventDefault();
      event.stopPropagation();
    } else if (selection.key(event, Math.max(1, Math.floor(view.height / 60)))) {
      event.preventDefault();
      event.stopPropagation();
    }
  };
  return (
    <>
      <Chosen chosen={chosen} clear={selection.clear} />
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
            return row === undefined ? null : row.kind === 'group' ? (
              <Heading key={row.group} row={row} top={tops[index] ?? 0} index={index} />
            ) : (
              <Entry
                key={row.view.id}
                view={row.view}
                group={row.group}
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

/** Keys that act on jobs; true when it was one. */
function keyed(
  event: React.KeyboardEvent,
  view: JobView,
  rows: readonly Row[],
  chosen: JobView[],
  open: (id: string) => void,
  say: (words: string) => void
): boolean {
  if (event.altKey && (event.key === 'ArrowUp' || event.key === 'ArrowDown')) {
    const waiting = rows.flatMap(row => (row.kind === 'job' && row.group === 'waiting' ? [row.view] : []));
    const at = waiting.indexOf(view);
    const other = waiting[at + (event.key === 'ArrowUp' ? -1 : 1)];
    if (at >= 0 && other) {
      void moveJob(view, other, event.key === 'ArrowUp' ? 'before' : 'after').then(say);
    }
    return true;
  }
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

/** What can be done with the rows that are chosen. */
function Chosen({ chosen, clear }: { chosen: JobView[]; clear: () => void }): JSX.Element | null {
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
      <button
        type="button"
        className="gpusched-button"
        onClick={() => void resubmitAll(chosen).then(done => done && clear())}
        data-testid="gpusched-resubmit-chosen"
      >
        {trans.__('Resubmit')}
      </button>
      <button type="button" className="gpusched-button" onClick={clear}>
        {trans.__('Clear')}
      </button>
    </div>
  );
}

function Heading(props: { row: Extract<Row, { kind: 'group' }>; top: number; index: number }): JSX.Element {
  const names: Record<Group, string> = {
    running: trans.__('Running'),
    waiting: trans.__('Waiting'),
    today: trans.__('Finished today'),
    earlier: trans.__('Finished earlier')
  };
  return (
    <div className="gpusched-group" role="row" aria-rowindex={props.index + 1} style={{ top: props.top }}>
      <span role="rowheader">
        {names[props.row.group]} <span className="gpusched-count">{props.row.count}</span>
      </span>
    </div>
  );
}

function startOfDay(now: number): number {
  const date = new Date(now * 1000);
  date.setHours(0, 0, 0, 0);
  return date.getTime() / 1000;
}
