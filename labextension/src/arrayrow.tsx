// An array as one row of the queue: how its elements stand, in words and as a line; opened, they come below it.

import { Notification } from '@jupyterlab/apputils';
import * as React from 'react';

import { cancelAll, resubmitAll, wordsOf } from './acts';
import { resubmitArray } from './api';
import { Counts, countsOf, endedOf, failedWords, nameOf, standing, toRepeat } from './arraywords';
import { useDrag } from './dragging';
import { h } from './element';
import { useStore } from './hooks';
import { Stand } from './phase';
import { Row } from './rows';
import { store } from './store';
import { trans } from './translation';
interface Props {
  row: Extract<Row, { kind: 'array' }>;
  top: number;
  height: number;
  index: number;
  active: boolean;
  chosen: boolean;
  choose: (id: string, event: { shiftKey: boolean; ctrlKey: boolean; metaKey: boolean }, box: boolean) => void;
  reach: (id: string) => void;
  toggle: (id: string) => void;
  say: (words: string) => void;
}

export function ArrayRow(props: Props): JSX.Element {
  const { row, active, chosen } = props;
  const stop = active ? 0 : -1;
  const name = nameOf(row.views);
  const counts = useCounts(row);
  const failed = failedWords(row.views, counts);
  const ended = endedOf(counts);
  const few = row.open && row.views.length < counts.count;
  const listed = few ? `${trans.__('%1 of %2 are listed', row.views.length, counts.count)} · ` : ''; // first: the rest is cut off
  const drag = useDrag(row.id, row.group === 'waiting', props.say);
  return (
    <div
      className={`gpusched-entry gpusched-array${chosen ? ' gpusched-is-chosen' : ''}${drag.over ? ` gpusched-drop-${drag.over}` : ''}`}
      role="row"
      aria-rowindex={props.index + 1}
      aria-selected={chosen}
      tabIndex={stop}
      style={{ top: props.top, height: props.height }}
      data-testid="gpusched-array"
      data-job-id={row.id}
      onClick={event => props.choose(row.id, event, false)}
      onDoubleClick={() => props.toggle(row.id)}
      onFocus={() => props.reach(row.id)}
      {...drag.handlers}
    >
      <span role="gridcell" className="gpusched-cell-check">
        <input
          type="checkbox"
          tabIndex={stop}
          checked={chosen}
          aria-label={trans.__('Choose all of %1', name)}
          onClick={event => event.stopPropagation()}
          onChange={event => props.choose(row.id, event.nativeEvent as MouseEvent, true)}
        />
      </span>
      <div role="gridcell" className="gpusched-cell-main">
        <div className="gpusched-head">
          <button
            type="button"
            className="gpusched-name gpusched-link"
            title={name}
            tabIndex={stop}
            aria-expanded={row.open}
            onClick={event => {
              event.stopPropagation();
              props.toggle(row.id);
            }}
          >
            <span aria-hidden="true" className="gpusched-opener">
              {row.open ? '▾' : '▸'}
            </span>
            {name}
          </button>
          <span className="gpusched-count">{trans._n('%1 job', '%1 jobs', counts.count)}</span>
        </div>
        <div className="gpusched-facts" title={`${listed}${standing(counts)} · ${row.id}`}>
          {listed}
          <Stand counts={counts} /> · <code>{row.id}</code>
        </div>
        {failed && (
          <div className="gpusched-why" title={failed} data-testid="gpusched-failed">
            {failed}
          </div>
        )}
      </div>
      {ended > 0 && ended < counts.count && (
        <span
          aria-hidden="true"
          className="gpusched-row-progress"
          style={{ width: `${(100 * ended) / counts.count}%` }}
        />
      )}
      <div role="gridcell" className="gpusched-cell-acts" onClick={event => event.stopPropagation()}>
        <Act row={row} counts={counts} name={name} stop={stop} />
      </div>
    </div>
  );
}

/** How its elements stand; its host counts those that ended so long ago that they are not known here. */
function useCounts({ id, views, whole }: Props['row']): Counts {
  const { older, arrays } = useStore();
  React.useEffect(() => {
    if (older && whole) {
      store.wantArray(id, false);
    }
  }, [id, older, whole]);
  const known = countsOf(views);
  const all = whole ? arrays.get(id) : undefined;
  return all && all.count > known.count ? all : known;
}

/** What is most likely wanted: the end of what goes on, or what failed once more. */
function Act(props: { row: Props['row']; counts: Counts; name: string; stop: number }): JSX.Element | null {
  const { row, counts, name, stop } = props;
  const failed = toRepeat(row.views);
  const part = row.views.length < counts.count;
  const many = part ? counts.count - (counts.phases['succeeded'] ?? 0) : failed.length;
  const again = trans.__('Run %1 again', many);
  const repeat = async (): Promise<void> => {
    try {
      await (part ? resubmitArray(row.id) : resubmitAll(failed));
    } catch (error) {
      Notification.error(wordsOf(error), { autoClose: 5000 });
    }
  };
  if (endedOf(counts) < counts.count) {
    return (
      <button
        type="button"
        className="gpusched-button"
        tabIndex={stop}
        aria-label={trans.__('Cancel what is left of %1', name)}
        onClick={() => void cancelAll(row.views, name)}
      >
        {trans.__('Cancel')}
      </button>
    );
  }
  return many ? (
    <button
      type="button"
      className="gpusched-button"
      tabIndex={stop}
      aria-label={`${again}: ${name}`}
      onClick={() => void repeat()}
    >
      {again}
    </button>
  ) : null;
}
