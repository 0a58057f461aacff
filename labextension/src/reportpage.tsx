// What each user had of the machine in the last day, week or month, for administrators.

import { Clipboard } from '@jupyterlab/apputils';
import { HTMLSelect } from '@jupyterlab/ui-components';
import * as React from 'react';

import { report } from './api';
import { useAnswer } from './asking';
import { h } from './element';
import { Missing } from './missing';
import { columns, csv, sorted } from './report';
import { trans } from './translation';

const DAY_S = 86400;

export function Usage(): JSX.Element {
  const [days, setDays] = React.useState(7);
  const question = React.useCallback(() => report(Date.now() / 1000 - days * DAY_S), [days]);
  const { answer, trouble, ask } = useAnswer(question);
  const [by, setBy] = React.useState(1);
  const [down, setDown] = React.useState(true);
  const [copied, setCopied] = React.useState(false);
  const heads = columns();
  const items = sorted(answer?.items ?? [], heads[by], down);
  const sort = (column: number): void => {
    setDown(column === by ? !down : (heads[column]?.figure ?? false));
    setBy(column);
  };
  const spans: [number, string][] = [
    [1, trans.__('Last day')],
    [7, trans.__('Last week')],
    [30, trans.__('Last month')]
  ];
  return (
    <>
      <div className="gpusched-row gpusched-search">
        <HTMLSelect
          className="gpusched-select"
          aria-label={trans.__('Jobs submitted in')}
          value={days}
          onChange={event => setDays(Number(event.target.value))}
          data-testid="gpusched-report-span"
        >
          {spans.map(([span, name]) => (
            <option key={span} value={span}>
              {name}
            </option>
          ))}
        </HTMLSelect>
        <button type="button" className="gpusched-button" onClick={ask}>
          {trans.__('Refresh')}
        </button>
        <button
          type="button"
          className="gpusched-button"
          disabled={!items.length}
          onClick={() => {
            Clipboard.copyToSystem(csv(items));
            setCopied(true);
          }}
          onBlur={() => setCopied(false)}
          data-testid="gpusched-report-copy"
        >
          {copied ? trans.__('Copied') : trans.__('Copy as CSV')}
        </button>
      </div>
      {answer && trouble && <p className="gpusched-trouble">{trouble}</p>}
      {!answer ? (
        <Missing trouble={trouble} />
      ) : !items.length ? (
        <p className="gpusched-none">{trans.__('Nobody has submitted a job in that time.')}</p>
      ) : (
        <table className="gpusched-grid-table" data-testid="gpusched-report">
          <thead>
            <tr>
              {heads.map(({ name, figure }, column) => (
                <th
                  key={name}
                  scope="col"
                  className={figure ? 'gpusched-figure' : undefined}
                  aria-sort={column === by ? (down ? 'descending' : 'ascending') : 'none'}
                >
                  <button type="button" className="gpusched-link" onClick={() => sort(column)}>
                    {name}
                    <span aria-hidden="true">{column === by ? (down ? ' ▾' : ' ▴') : ''}</span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {items.map(one => (
              <tr key={one.user}>
                {heads.map(({ name, figure, shown }) => (
                  <td key={name} className={figure ? 'gpusched-figure' : undefined}>
                    {shown(one)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p className="gpusched-hint">
        {trans.__('Of the jobs submitted in that time. A share of a card counts as a whole one in GPU hours.')}
      </p>
    </>
  );
}
