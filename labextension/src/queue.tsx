// Your jobs as a list that bears thousands: only what can be seen is on the page. Filter and search above it;
// rows are chosen, opened, cancelled, run again and put in another order by mouse and by keys alike.

import * as React from 'react';

import { CancelButton } from './cancel';
import { useNow } from './hooks';
import { cancelAll, moveJob, resubmitAll } from './acts';
import { Phase } from './phase';
import { Filter, Group, Row, rowsOf, topsOf, visible } from './rows';
import { useSelection } from './selection';
import { trans } from './translation';
import { JobView } from './wire';
import { expected, isFinal, lasted, mib, moment, progressed, sentence, wants, where } from './words';

export { Phase } from './phase';

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

interface EntryProps {
  view: JobView;
  group: Group;
  top: number;
  height: number;
  index: number;
  now: number;
  active: boolean;
  chosen: boolean;
  choose: (id: string, event: { shiftKey: boolean; ctrlKey: boolean; metaKey: boolean }, box: boolean) => void;
  reach: (id: string) => void;
  open: (id: string) => void;
  say: (words: string) => void;
}

const DRAGGED = 'application/x-gpusched-job';

const Entry = React.memo(function Entry(props: EntryProps): JSX.Element {
  const { view, active, chosen, now } = props;
  const why = sentence(view);
  const stop = active ? 0 : -1;
  const drag = useDrag(view, props.group, props.say);
  return (
    <div
      className={`gpusched-entry${chosen ? ' gpusched-is-chosen' : ''}${drag.over ? ` gpusched-drop-${drag.over}` : ''}`}
      role="row"
      aria-rowindex={props.index + 1}
      aria-selected={chosen}
      tabIndex={stop}
      style={{ top: props.top, height: props.height }}
      data-testid="gpusched-entry"
      data-job-id={view.id}
      onClick={event => props.choose(view.id, event, false)}
      onDoubleClick={() => props.open(view.id)}
      onFocus={() => props.reach(view.id)}
      {...drag.handlers}
    >
      <span role="gridcell" className="gpusched-cell-check">
        <input
          type="checkbox"
          tabIndex={stop}
          checked={chosen}
          aria-label={trans.__('Choose job %1', view.name)}
          onClick={event => event.stopPropagation()}
          onChange={event => props.choose(view.id, event.nativeEvent as MouseEvent, true)}
        />
      </span>
      <div role="gridcell" className="gpusched-cell-main">
        <div className="gpusched-head">
          <button
            type="button"
            className="gpusched-name gpusched-link"
            title={view.name}
            tabIndex={stop}
            onClick={event => {
              event.stopPropagation();
              props.open(view.id);
            }}
          >
            {view.name}
          </button>
          <Phase phase={view.phase} />
        </div>
        <Facts view={view} now={now} />
        {why && (
          <div className="gpusched-why" title={why}>
            {why}
          </div>
        )}
      </div>
      <Progress view={view} />
      <div role="gridcell" className="gpusched-cell-acts" onClick={event => event.stopPropagation()}>
        {isFinal(view) ? (
          <button
            type="button"
            className="gpusched-button"
            tabIndex={stop}
            aria-label={trans.__('Resubmit job %1', view.name)}
            onClick={() => void resubmitAll([view])}
            data-testid="gpusched-resubmit"
          >
            {trans.__('Resubmit')}
          </button>
        ) : (
          <CancelButton view={view} />
        )}
      </div>
    </div>
  );
}, sameEntry);

/** What ended does not change with the clock. */
function sameEntry(before: EntryProps, after: EntryProps): boolean {
  return (Object.keys(after) as (keyof EntryProps)[]).every(
    name => before[name] === after[name] || (name === 'now' && isFinal(after.view))
  );
}

/** How far it has come, as a line at the foot of its row; the same in words is among its facts. */
function Progress({ view }: { view: JobView }): JSX.Element | null {
  const fraction = isFinal(view) ? null : (view.progress?.fraction ?? null);
  return fraction === null ? null : (
    <span aria-hidden="true" className="gpusched-row-progress" style={{ width: `${100 * fraction}%` }} />
  );
}

function Facts({ view, now }: { view: JobView; now: number }): JSX.Element {
  const ended = view.ended_at === null ? '' : moment(view.ended_at, now);
  const asks = where(view) && view.vram_mib !== null ? mib(view.vram_mib) : wants(view);
  const facts = [where(view), asks, progressed(view), lasted(view, now), expected(view, now), ended]
    .filter(Boolean)
    .join(' · ');
  return (
    <div className="gpusched-facts" title={`${facts} · ${view.id}`}>
      {facts} · <code>{view.id}</code>
    </div>
  );
}

interface Drag {
  over: 'before' | 'after' | null;
  handlers: React.HTMLAttributes<HTMLElement>;
}

/** Waiting rows can be dragged before and after each other. */
function useDrag(view: JobView, group: Group, say: (words: string) => void): Drag {
  const [over, setOver] = React.useState<'before' | 'after' | null>(null);
  if (group !== 'waiting') {
    return { over: null, handlers: {} };
  }
  const side = (event: React.DragEvent): 'before' | 'after' => {
    const { top, height } = event.currentTarget.getBoundingClientRect();
    return event.clientY < top + height / 2 ? 'before' : 'after';
  };
  return {
    over,
    handlers: {
      draggable: true,
      onDragStart: event => {
        event.dataTransfer.setData(DRAGGED, view.id);
        event.dataTransfer.effectAllowed = 'move';
      },
      onDragOver: event => {
        if (event.dataTransfer.types.includes(DRAGGED)) {
          event.preventDefault();
          setOver(side(event));
        }
      },
      onDragLeave: () => setOver(null),
      onDrop: event => {
        event.preventDefault();
        setOver(null);
        const id = event.dataTransfer.getData(DRAGGED);
        if (id && id !== view.id) {
          void moveJob({ id, name: id }, view, side(event)).then(say);
        }
      }
    }
  };
}

// --- the part of the list that can be seen ---------------------------------------------------

interface Window {
  readonly top: number;
  readonly height: number;
}

function useWindow(box: React.RefObject<HTMLElement>): Window {
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
function shownOf(rows: readonly Row[], tops: readonly number[], view: Window, active: string | null): number[] {
  const [first, end] = visible(tops, view.top, view.height);
  const shown = Array.from({ length: end - first }, (_, at) => first + at);
  const at = rows.findIndex(row => row.kind === 'job' && row.view.id === active);
  return at < 0 || (at >= first && at < end) ? shown : [...shown, at].sort((a, b) => a - b);
}

/** After a key the row it went to has the focus and can be seen. */
function useFocus(
  box: React.RefObject<HTMLElement>,
  rows: readonly Row[],
  tops: readonly number[],
  selection: ReturnType<typeof useSelection>
): void {
  const { active, moved } = selection;
  React.useLayoutEffect(() => {
    const node = box.current;
    const at = rows.findIndex(row => row.kind === 'job' && row.view.id === active);
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
    node.querySelector<HTMLElement>(`[data-job-id="${active}"]`)?.focus({ preventScroll: true });
  }, [moved, active]); // eslint-disable-line react-hooks/exhaustive-deps -- only a key moves the focus, never a new row
}

function startOfDay(now: number): number {
  const date = new Date(now * 1000);
  date.setHours(0, 0, 0, 0);
  return date.getTime() / 1000;
}
