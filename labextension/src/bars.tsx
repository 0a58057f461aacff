// One row per GPU: a bar of who holds what, its figures, its last minutes, and what is wrong with it.

import * as React from 'react';

import { h } from './element';
import { isDrained } from './freewords';
import { useAge } from './hooks';
import { KINDS, Kind, Share, sharesOf, whyKept } from './shares';
import { Sparkline } from './sparkline';
import { Sample, State } from './state';
import { store } from './store';
import { said, trans } from './translation';
import { GpuView } from './wire';
import { figures, holding, mib, moment, reserved, seconds } from './words';

const SHOWN_S = 300;

export function Bars(props: { state: State; open: (id: string) => void }): JSX.Element {
  const { gpus, health, history } = props.state;
  React.useEffect(() => store.wantHistory(), []);
  if (!gpus.length) {
    return (
      <p className="gpusched-none" data-testid="gpusched-no-gpu">
        {trans.__('No GPU can be used here: %1', health?.gpu_cause ? said(health.gpu_cause) : trans.__('none was found.'))}
      </p>
    );
  }
  const drained = isDrained(props.state.alerts);
  const present = new Set(gpus.flatMap(gpu => sharesOf(gpu, drained).map(share => share.kind)));
  return (
    <>
      <ul className="gpusched-gpus">
        {gpus.map(gpu => (
          <Card key={gpu.uuid} gpu={gpu} drained={drained} samples={history.get(gpu.uuid) ?? []} open={props.open} />
        ))}
      </ul>
      <Legend kinds={KINDS.filter(kind => present.has(kind))} />
    </>
  );
}

interface CardProps {
  gpu: GpuView;
  drained: boolean;
  samples: readonly Sample[];
  open: (id: string) => void;
}

function Card(props: CardProps): JSX.Element {
  const { gpu } = props;
  const ill = gpu.health.status !== 'ok';
  const age = useAge(gpu.sampled_at);
  return (
    <li
      className={`gpusched-gpu${ill ? ' gpusched-ill' : ''}${age === null ? '' : ' gpusched-old'}`}
      data-testid="gpusched-gpu"
      data-uuid={gpu.uuid}
      aria-label={`GPU ${gpu.index} ${gpu.name}`}
    >
      <div className="gpusched-head">
        <span className="gpusched-gpu-name" title={`${gpu.name} · ${gpu.uuid}`}>
          <b>GPU {gpu.index}</b> {shortName(gpu)}
        </span>
        {gpu.simulated && <Simulated />}
        <span className="gpusched-space" />
        <Reading gpu={gpu} />
      </div>
      {gpu.health.status !== 'lost' && <Bar gpu={gpu} drained={props.drained} open={props.open} />}
      {age !== null && (
        <div className="gpusched-facts" data-testid="gpusched-age">
          {trans.__('as of %1 ago', seconds(age))}
        </div>
      )}
      {ill && (
        <div className="gpusched-trouble" data-testid="gpusched-health">
          <b>{healthName(gpu.health.status)}</b>
          {gpu.health.cause && `: ${said(gpu.health.cause)}`}
          {gpu.health.since !== null && ` · ${trans.__('since %1', moment(gpu.health.since, Date.now() / 1000))}`}
        </div>
      )}
      {(gpu.reservations ?? []).map(one => (
        <div key={one.id} className="gpusched-facts" data-testid="gpusched-reservation">
          {reserved(one, Date.now() / 1000)}
        </div>
      ))}
      {gpu.health.status !== 'lost' && <Minutes gpu={gpu} samples={props.samples} />}
    </li>
  );
}

/** Without what all names of its kind begin with; the whole one is said where one points. */
function shortName({ name }: GpuView): string {
  return name.replace(/^(NVIDIA (GeForce )?|Simulated )/, '');
}

/** Load and temperature, where the card tells. */
function Reading({ gpu }: { gpu: GpuView }): JSX.Element {
  return (
    <span className="gpusched-reading">
      {gpu.utilization_pct !== null && (
        <span title={trans.__('Load')}>{`${Math.round(gpu.utilization_pct)} %`}</span>
      )}
      {gpu.temperature_c !== null && (
        <span title={trans.__('Temperature')}>{`${Math.round(gpu.temperature_c)} °C`}</span>
      )}
      {gpu.power_w !== null && <span title={trans.__('Power')}>{`${Math.round(gpu.power_w)} W`}</span>}
    </span>
  );
}

/** The bar; each part says whose it is when pointed at or focused, arrow keys go from part to part. */
function Bar({ gpu, drained, open }: Omit<CardProps, 'samples'>): JSX.Element {
  const shares = sharesOf(gpu, drained);
  const [told, setTold] = React.useState<number | null>(null);
  const [stop, setStop] = React.useState(0);
  const bar = React.useRef<HTMLDivElement>(null);
  const at = Math.min(stop, shares.length - 1);
  const share = told === null ? undefined : shares[told];
  const go = (event: React.KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const next = (at + step + shares.length) % shares.length;
      setStop(next);
      (bar.current?.children[next] as HTMLElement | undefined)?.focus();
    }
  };
  return (
    <>
      <div
        ref={bar}
        className="gpusched-bar"
        role="group"
        aria-label={trans.__('Memory of GPU %1', gpu.index)}
        onKeyDown={go}
        onMouseLeave={() => setTold(null)}
        onBlur={() => setTold(null)}
      >
        {shares.map((part, number) => (
          <Part
            key={keyOf(part, number)}
            share={part}
            words={wordsOf(part, gpu, drained)}
            stop={number === at}
            tell={() => {
              setTold(number);
              setStop(number);
            }}
            open={open}
          />
        ))}
      </div>
      <div className="gpusched-facts gpusched-told">{share ? wordsOf(share, gpu, drained) : figures(gpu, drained)}</div>
    </>
  );
}

function Part(props: {
  share: Share;
  words: string;
  stop: boolean;
  tell: () => void;
  open: (id: string) => void;
}): JSX.Element {
  const { kind, mib: amount, holder } = props.share;
  const id = holder?.job_id ?? null;
  const common = {
    className: `gpusched-part gpusched-${kind}`,
    style: { flexGrow: amount },
    tabIndex: props.stop ? 0 : -1,
    'aria-label': props.words,
    'data-kind': kind,
    'data-testid': 'gpusched-part',
    onMouseEnter: props.tell,
    onFocus: props.tell
  };
  return id === null ? (
    <span role="img" {...common} />
  ) : (
    <button type="button" {...common} onClick={() => props.open(id)} />
  );
}

function wordsOf({ kind, mib: amount, holder }: Share, gpu: GpuView, drained: boolean): string {
  if (holder) {
    return holding(holder, amount, Date.now() / 1000);
  }
  if (kind === 'free') {
    return trans.__('free: %1', mib(amount));
  }
  if (kind === 'kept') {
    return trans.__('kept back: %1 (%2)', mib(amount), whyKept(gpu, drained));
  }
  const suspects = gpu.opened_by.map(({ pid, program, user }) => {
    const named = program === null ? trans.__('process %1', pid) : `${program} ${pid}`;
    return user ? `${named} (${user})` : named;
  });
  return suspects.length
    ? trans.__('outside the queue, no process admits to it: %1; %2 has the card open', mib(amount), suspects.join(', '))
    : trans.__('outside the queue, nobody known: %1', mib(amount));
}

function keyOf({ kind, holder }: Share, number: number): string {
  return holder ? `${kind}-${holder.job_id ?? holder.pid ?? number}` : kind;
}

function Minutes({ gpu, samples }: { gpu: GpuView; samples: readonly Sample[] }): JSX.Element | null {
  if (samples.length < 2) {
    return null;
  }
  const loads = samples.map(({ at, utilization_pct }) => ({ at, value: utilization_pct }));
  const used = samples.map(({ at, used_mib }) => ({ at, value: used_mib }));
  const measured = loads.some(point => point.value !== null);
  const from = gpu.sampled_at - SHOWN_S;
  return (
    <div className="gpusched-minutes">
      <Sparkline
        points={used}
        from={from}
        to={gpu.sampled_at}
        most={gpu.total_mib}
        className="gpusched-of-memory"
        label={trans.__('Memory used in the last 5 minutes, now %1', mib(gpu.used_mib))}
      />
      {measured && (
        <Sparkline
          points={loads}
          from={from}
          to={gpu.sampled_at}
          most={100}
          className="gpusched-of-load"
          label={trans.__('Load in the last 5 minutes, now %1 %', Math.round(gpu.utilization_pct ?? 0))}
        />
      )}
    </div>
  );
}

function Legend({ kinds }: { kinds: readonly Kind[] }): JSX.Element {
  const names: Record<Kind, string> = {
    own: trans.__('your jobs'),
    others: trans.__("others' jobs"),
    lease: trans.__('leases'),
    foreign: trans.__('outside the queue'),
    releasing: trans.__('being freed'),
    kept: trans.__('kept back'),
    free: trans.__('free')
  };
  return (
    <div className="gpusched-legend" aria-hidden="true">
      {kinds.map(kind => (
        <span key={kind}>
          <i className={`gpusched-key gpusched-${kind}`} /> {names[kind]}
        </span>
      ))}
    </div>
  );
}

function healthName(status: string): string {
  const names: Record<string, string> = {
    lost: trans.__('Lost'),
    quarantined: trans.__('Quarantined'),
    unknown: trans.__('State unknown')
  };
  return names[status] ?? status;
}

export function Simulated(): JSX.Element {
  return (
    <span className="gpusched-simulated" title={trans.__('This card does not exist; it is simulated.')}>
      {trans.__('SIMULATED')}
    </span>
  );
}
