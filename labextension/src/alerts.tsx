// What needs attention, above everything else: alerts, and whether what is shown is live.

import { h } from './element';
import { State } from './state';
import { said, trans } from './translation';
import { Alert, Health } from './wire';
import { seconds } from './words';

const ORDER = ['error', 'warning', 'info'];

export function Alerts(props: { state: State; now: number; open: (id: string) => void }): JSX.Element {
  const { known, connected, cause, alerts, health } = props.state;
  const notices = noticesOf(health, alerts);
  const sorted = [...alerts].sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
  return (
    <div className="gpusched-alerts">
      <div role="status" aria-live="polite">
        {!connected && (
          <p className="gpusched-trouble" data-testid="gpusched-unconnected">
            {known
              ? trans.__('Reconnecting; below is what was known last.')
              : trans.__('Connecting to the GPU scheduler.')}
          </p>
        )}
        {!connected && cause && (
          <p className="gpusched-hint" data-testid="gpusched-cause">
            {said(cause)}
          </p>
        )}
      </div>
      {sorted.length + notices.length > 0 && (
        <ul className="gpusched-alert-list" aria-label={trans.__('Alerts')}>
          {sorted.map(alert => (
            <Entry key={alert.id} alert={alert} now={props.now} open={props.open} />
          ))}
          {notices.map(notice => (
            <li key={notice} className="gpusched-alert gpusched-of-info" data-testid="gpusched-notice">
              {said(notice)}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** What is to be known of this machine, unless an alert says it already. */
function noticesOf(health: Health | null, alerts: readonly Alert[]): string[] {
  return (health?.notices ?? []).filter(notice => !alerts.some(alert => notice.startsWith(alert.message)));
}

function Entry(props: { alert: Alert; now: number; open: (id: string) => void }): JSX.Element {
  const { alert } = props;
  const severity = ORDER.includes(alert.severity) ? alert.severity : 'warning';
  const id = alert.job_id;
  return (
    <li className={`gpusched-alert gpusched-of-${severity}`} data-testid="gpusched-alert" data-kind={alert.kind}>
      <span>{said(alert.message)}</span>
      {alert.hint && <span className="gpusched-hint">{said(alert.hint)}</span>}
      <span className="gpusched-facts">
        {trans.__('for %1 so far', seconds(props.now - alert.since))}
        {id !== null && (
          <button type="button" className="gpusched-link" onClick={() => props.open(id)}>
            {trans.__('Show job %1', id)}
          </button>
        )}
      </span>
    </li>
  );
}
