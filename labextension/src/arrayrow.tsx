// An array as one row of the queue: how its elements stand, in words and as a line; opened, they come below it.

import { cancelAll, resubmitAll } from './acts';
import { countsOf, failedWords, nameOf, standing, toRepeat } from './arraywords';
import { useDrag } from './dragging';
import { h } from './element';
import { Stand } from './phase';
import { Row } from './rows';
import { trans } from './translation';
import { isFinal } from './words';

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
  const counts = countsOf(row.views);
  const failed = failedWords(row.views, counts);
  const ended = row.views.filter(isFinal).length;
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
          <span className="gpusched-count">{trans._n('%1 job', '%1 jobs', row.views.length)}</span>
        </div>
        <div className="gpusched-facts" title={`${standing(counts)} · ${row.id}`}>
          <Stand counts={counts} /> · <code>{row.id}</code>
        </div>
        {failed && (
          <div className="gpusched-why" title={failed} data-testid="gpusched-failed">
            {failed}
          </div>
        )}
      </div>
      {ended > 0 && ended < row.views.length && (
        <span
          aria-hidden="true"
          className="gpusched-row-progress"
          style={{ width: `${(100 * ended) / row.views.length}%` }}
        />
      )}
      <div role="gridcell" className="gpusched-cell-acts" onClick={event => event.stopPropagation()}>
        <Act row={row} name={name} stop={stop} />
      </div>
    </div>
  );
}

/** What is most likely wanted: the end of what goes on, or what failed once more. */
function Act({ row, name, stop }: { row: Props['row']; name: string; stop: number }): JSX.Element | null {
  const failed = toRepeat(row.views);
  const again = trans.__('Run %1 again', failed.length);
  if (!row.views.every(isFinal)) {
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
  return failed.length ? (
    <button
      type="button"
      className="gpusched-button"
      tabIndex={stop}
      aria-label={`${again}: ${name}`}
      onClick={() => void resubmitAll(failed)}
    >
      {again}
    </button>
  ) : null;
}
