// The card of an array below the cell that submitted it: how its elements stand, and each of them when it is asked for.
// Below it are the arrays that were made of it by running again what had failed.

import { Clipboard, Notification } from '@jupyterlab/apputils';
import { copyIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { IconButton } from './actions';
import { cancelAll, wordsOf } from './acts';
import { actOnArray, resubmitArray } from './api';
import { Counts, countsOf, endedOf, failedWords, nameOf } from './arraywords';
import { Simulated } from './bars';
import { h } from './element';
import { useNow, useStore } from './hooks';
import { Stand } from './phase';
import { Bar } from './progressbar';
import { List } from './queue';
import { elementRows } from './rows';
import { SavedArray } from './saved';
import { Standing } from './standing';
import { State, store } from './store';
import { trans } from './translation';
import { JobView } from './wire';
import { isFinal, isHeld } from './words';

interface Props {
  id: string;
  saved: SavedArray | null;
  /** The card of one of its elements. */
  cardOf: (id: string) => JSX.Element;
}

export function ArrayRuns(props: Props): JSX.Element {
  const { jobs } = useStore();
  const ids = React.useMemo(() => [props.id, ...later(props.id, jobs)], [props.id, jobs]);
  return (
    <>
      {ids.map(id => (
        <ArrayCard key={id} id={id} saved={id === props.id ? props.saved : null} cardOf={props.cardOf} />
      ))}
    </>
  );
}

function later(first: string, jobs: State['jobs']): string[] {
  const found = new Set([first]);
  const again = [...jobs.values()].filter(view => view.parent_id !== null && view.array_id !== null);
  again.sort((a, b) => a.submitted_at - b.submitted_at);
  for (const { parent_id, array_id } of again) {
    if (array_id !== null && found.has(jobs.get(parent_id ?? '')?.array_id ?? '')) {
      found.add(array_id);
    }
  }
  found.delete(first);
  return [...found];
}

function ArrayCard({ id, saved, cardOf }: Props): JSX.Element {
  const state = useStore();
  React.useEffect(() => store.wantArray(id), [id]);
  const elements = React.useMemo(() => elementsOf(state.jobs, id), [state.jobs, id]);
  const whole = state.arrays.get(id) ?? saved;
  const known = countsOf(elements);
  const counts = whole === null || known.count >= whole.count ? known : whole;
  return (
    <article
      className="gpusched-card"
      data-testid="gpusched-array-card"
      data-array-id={id}
      aria-label={trans.__('Array %1', id)}
    >
      {counts.count > 0 ? (
        <Body id={id} name={elements.length ? nameOf(elements) : (whole?.name ?? '')} {...{ elements, counts, cardOf }} />
      ) : (
        <code>{id}</code>
      )}
      <Standing connected={state.connected} known={state.known} unknown={!elements.length && state.unknown.has(id)} />
    </article>
  );
}

function elementsOf(jobs: State['jobs'], id: string): JobView[] {
  const found = [...jobs.values()].filter(view => view.array_id === id);
  return found.sort((a, b) => (a.array_index ?? 0) - (b.array_index ?? 0));
}

interface BodyProps {
  id: string;
  name: string;
  elements: JobView[];
  counts: Counts;
  cardOf: (id: string) => JSX.Element;
}

function Body({ id, name, elements, counts, cardOf }: BodyProps): JSX.Element {
  const [open, setOpen] = React.useState(false);
  const [shown, show] = React.useState<string | null>(null);
  const ended = endedOf(counts);
  const failed = failedWords(elements, counts);
  return (
    <>
      <div className="gpusched-head">
        <button
          type="button"
          className="gpusched-name gpusched-link"
          title={name}
          aria-expanded={open}
          disabled={!elements.length}
          onClick={() => setOpen(!open)}
          data-testid="gpusched-open-array"
        >
          <span aria-hidden="true" className="gpusched-opener">
            {open ? '▾' : '▸'}
          </span>
          {name}
        </button>
        <span className="gpusched-count">{trans._n('%1 job', '%1 jobs', counts.count)}</span>
        {elements[0]?.simulated && <Simulated />}
        <span className="gpusched-space" />
        {elements.length > 0 && <ArrayActions id={id} elements={elements} counts={counts} />}
      </div>
      <div className="gpusched-facts" data-testid="gpusched-facts">
        <code>{id}</code> · <Stand counts={counts} />
      </div>
      {ended < counts.count && (
        <Bar percent={(100 * ended) / counts.count} words={trans.__('%1 of %2 done', ended, counts.count)} />
      )}
      {failed && (
        <div className="gpusched-why" role="status" data-testid="gpusched-failed">
          {failed}
        </div>
      )}
      {open && <Elements elements={elements} open={element => show(element === shown ? null : element)} />}
      {open && elements.length < counts.count && (
        <div className="gpusched-facts">
          {trans.__('%1 of %2 are listed; %3 has all.', elements.length, counts.count, `jupyter gpusched ls --array ${id}`)}
        </div>
      )}
      {open && shown !== null && cardOf(shown)}
    </>
  );
}

function Elements({ elements, open }: { elements: JobView[]; open: (id: string) => void }): JSX.Element {
  const now = useNow(elements.some(view => !isFinal(view)));
  const rows = elementRows(elements, () => 'running');
  return (
    <div className="gpusched-elements">
      <List rows={rows} now={now} open={open} toggle={() => undefined} />
    </div>
  );
}

function ArrayActions({ id, elements, counts }: { id: string; elements: JobView[]; counts: Counts }): JSX.Element {
  const going = elements.filter(view => !isFinal(view));
  const toRepeat = going.length ? 0 : counts.count - (counts.phases['succeeded'] ?? 0);
  const again = trans.__('Run %1 again', toRepeat);
  const act = (asked: Promise<unknown>): void => {
    asked.catch((error: unknown) => Notification.error(wordsOf(error), { autoClose: 5000 }));
  };
  const button = (name: string, words: string, label: string, click: () => void): JSX.Element => (
    <button
      type="button"
      className="gpusched-cancel"
      aria-label={label}
      onClick={click}
      data-testid={`gpusched-${name}-array`}
    >
      {words}
    </button>
  );
  return (
    <div className="gpusched-actions" role="group" aria-label={trans.__('Actions for array %1', id)}>
      {elements.some(isHeld) &&
        button('release', trans.__('Release'), trans.__('Release array %1', id), () => act(actOnArray(id, 'release')))}
      {toRepeat > 0 &&
        button('resubmit', again, `${again}: ${id}`, () =>
          act(resubmitArray(id).then(again => store.wantArray(again)))
        )}
      {going.length > 0 &&
        button('cancel', trans.__('Cancel'), trans.__('Cancel what is left of %1', id), () =>
          act(cancelAll(going, nameOf(elements), () => actOnArray(id, 'cancel')))
        )}
      <IconButton icon={copyIcon} name="copy-array" label={trans.__('Copy the id')} onClick={() => Clipboard.copyToSystem(id)} />
    </div>
  );
}
