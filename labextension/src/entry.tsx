// A job as a row of the queue: chosen, opened, cancelled, run again, and dragged among those that wait.

import * as React from 'react';

import { resubmitOne } from './acts';
import { elementOf } from './arraywords';
import { CancelButton } from './cancel';
import { useDrag } from './dragging';
import { h } from './element';
import { Held, Phase, QuietWhy } from './phase';
import { Group } from './rows';
import { trans } from './translation';
import { JobView } from './wire';
import { expected, isFinal, lasted, mib, moment, progressed, sentence, wants, where } from './words';

interface EntryProps {
  view: JobView;
  group: Group;
  /** What it is called below the row of its array. */
  element: string | null;
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

/** One job of the list. */
export const Entry = React.memo(function Entry(props: EntryProps): JSX.Element {
  const { view, active, chosen, now } = props;
  const why = sentence(view);
  const stop = active ? 0 : -1;
  const drag = useDrag(view.id, props.group === 'waiting', props.say);
  return (
    <div
      className={[
        'gpusched-entry',
        props.element === null ? '' : 'gpusched-element',
        chosen ? 'gpusched-is-chosen' : '',
        drag.over ? `gpusched-drop-${drag.over}` : ''
      ]
        .filter(Boolean)
        .join(' ')}
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
            {props.element ?? view.name}
          </button>
          <Held view={view} />
          <Phase phase={view.phase} />
        </div>
        <Facts view={view} now={now} told={props.element} />
        {why && <QuietWhy view={view} words={why} />}
      </div>
      <Progress view={view} />
      <div role="gridcell" className="gpusched-cell-acts" onClick={event => event.stopPropagation()}>
        {isFinal(view) ? (
          <button
            type="button"
            className="gpusched-button"
            tabIndex={stop}
            aria-label={trans.__('Run job %1 again', view.name)}
            onClick={() => void resubmitOne(view)}
            data-testid="gpusched-resubmit"
          >
            {trans.__('Run again')}
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

function Facts({ view, now, told }: { view: JobView; now: number; told: string | null }): JSX.Element {
  const element = elementOf(view);
  const ended = view.ended_at === null ? '' : moment(view.ended_at, now);
  const asks = where(view) && view.vram_mib !== null ? mib(view.vram_mib) : wants(view);
  const facts = [element === told ? '' : element, where(view), asks, progressed(view), lasted(view, now), expected(view, now), ended]
    .filter(Boolean)
    .join(' · ');
  return (
    <div className="gpusched-facts" title={`${facts} · ${view.id}`}>
      {facts} · <code>{view.id}</code>
    </div>
  );
}
