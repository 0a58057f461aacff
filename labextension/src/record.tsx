// What the journal has of a job: what was submitted, and what happened to it since. All of it is shown as text.

import * as React from 'react';

import { h } from './element';
import { OfJob, useKept } from './jobfiles';
import { Missing } from './missing';
import { quoted } from './shellwords';
import { said, trans } from './translation';
import { moment, textOf } from './words';

/** What runs, as it was submitted, and the rest of the submission but for the environment. */
export function Source(props: OfJob): JSX.Element {
  const { spec, trouble } = useKept(props, 'spec');
  if (!spec) {
    return <Missing trouble={trouble} />;
  }
  const { source, env, argv, path, args, ...rest } = spec;
  const variables = Object.keys((env as object | null) ?? {}).length;
  return (
    <>
      <pre className="gpusched-code" data-testid="gpusched-source">
        {typeof source === 'string' ? source : commandOf(argv, path, args)}
      </pre>
      <h2>{trans.__('Submission')}</h2>
      <pre className="gpusched-code">{JSON.stringify(rest, null, 2)}</pre>
      {variables > 0 && (
        <p className="gpusched-facts">
          {trans._n('%1 environment variable came along.', '%1 environment variables came along.', variables)}
        </p>
      )}
    </>
  );
}

function commandOf(argv: unknown, path: unknown, args: unknown): string {
  const words = (list: unknown): string[] => (Array.isArray(list) ? list.map(String) : []);
  if (typeof argv === 'string') {
    return argv;
  }
  return [...(typeof path === 'string' ? [path] : []), ...words(argv), ...words(args)].map(quoted).join(' ');
}

export function Events(props: OfJob): JSX.Element {
  const { events, trouble } = useKept(props, 'events');
  if (!events) {
    return <Missing trouble={events === null ? trans.__('This server keeps no list of events.') : trouble} />;
  }
  const now = Date.now() / 1000;
  return (
    <table className="gpusched-grid-table">
      <thead>
        <tr>
          <th scope="col">{trans.__('When')}</th>
          <th scope="col">{trans.__('What')}</th>
          <th scope="col">{trans.__('More')}</th>
        </tr>
      </thead>
      <tbody>
        {events.map(event => (
          <tr key={event.seq}>
            <td>{moment(event.at, now, true)}</td>
            <td>{said(event.kind)}</td>
            <td>{moreOf(event.detail)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function moreOf(detail: Record<string, unknown> | null): string {
  return Object.entries(detail ?? {})
    .filter(([, value]) => value !== null && value !== '')
    .map(([name, value]) => `${said(name)} ${said(textOf(value))}`)
    .join(' · ');
}
