// Whether what a card shows is live, or what else it is.

import { h } from './element';
import { trans } from './translation';

export function Standing(props: { connected: boolean; known: boolean; unknown: boolean }): JSX.Element | null {
  const words = props.unknown
    ? trans.__('This server does not know the job; this is its state when the notebook was saved.')
    : props.connected
      ? ''
      : props.known
        ? trans.__('Reconnecting; this is what was known last.')
        : trans.__('Connecting; this is the state when the notebook was saved.');
  return words ? (
    <div className="gpusched-trouble" role="status" data-testid="gpusched-standing">
      {words}
    </div>
  ) : null;
}
