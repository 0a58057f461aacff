// The card of one job below the cell that submitted it: live from the server, so that it needs no kernel.
// Everything that a job or a notebook's author wrote is shown as text.

import { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { isJobId } from './api';
import { Simulated } from './bars';
import { CancelButton } from './cancel';
import { useNow, useStore } from './hooks';
import { LogTail } from './log';
import { Phase } from './phase';
import { store } from './store';
import { Piece } from './terminal';
import { GpuRef, JobView } from './wire';
import { isFinal, lasted, mib, sentence, wants } from './words';

export const MIME = 'application/vnd.gpusched.job+json';

const READ_EVERY_MS = 1000;

export class JobRenderer extends ReactWidget implements IRenderMime.IRenderer {
  private _data: unknown = null;

  constructor() {
    super();
    this.addClass('gpusched-output');
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this._data = model.data[MIME];
    this.update();
    return this.renderPromise ?? Promise.resolve();
  }

  protected render(): JSX.Element {
    const { id, view } = (this._data ?? {}) as { id?: unknown; view?: unknown };
    if (!isJobId(id)) {
      return <p className="gpusched-trouble">This output does not name a job.</p>;
    }
    return <JobCard key={id} id={id} saved={isSavedView(view, id) ? view : null} />;
  }
}

/** A notebook's file may hold anything: only what has the shape that the card reads is taken. */
function isSavedView(data: unknown, id: string): data is JobView {
  const view = data as Partial<Record<keyof JobView, unknown>> | null;
  return (
    !!view &&
    view.id === id &&
    typeof view.name === 'string' &&
    typeof view.phase === 'string' &&
    typeof view.kind === 'string' &&
    typeof view.gpus_requested === 'number' &&
    isNumberOrNull(view.vram_mib) &&
    isNumberOrNull(view.peak_vram_mib) &&
    isNumberOrNull(view.started_at) &&
    isNumberOrNull(view.ended_at) &&
    isNumberOrNull(view.exit_code) &&
    isNumberOrNull(view.signal) &&
    isTextOrNull(view.waiting) &&
    isTextOrNull(view.message) &&
    isTextOrNull(view.reason) &&
    Array.isArray(view.gpus) &&
    view.gpus.every((gpu: Partial<GpuRef> | null) => typeof gpu?.index === 'number' && typeof gpu.name === 'string') &&
    Array.isArray(view.attempts)
  );
}

function isNumberOrNull(value: unknown): boolean {
  return value === null || typeof value === 'number';
}

function isTextOrNull(value: unknown): boolean {
  return value === null || typeof value === 'string';
}

function JobCard({ id, saved }: { id: string; saved: JobView | null }): JSX.Element {
  const state = useStore();
  React.useEffect(() => store.want(id), [id]);
  const live = state.jobs.get(id);
  const view = live ?? saved;
  const unknown = !live && state.unknown.has(id);
  return (
    <article className="gpusched-card" data-testid="gpusched-card" data-job-id={id} aria-label={`Job ${id}`}>
      {view ? <Body view={view} live={!!live} /> : <code>{id}</code>}
      <Standing connected={state.connected} known={state.known} unknown={unknown} />
    </article>
  );
}

function Standing(props: { connected: boolean; known: boolean; unknown: boolean }): JSX.Element | null {
  const words = props.unknown
    ? 'This server does not know the job; this is its state when the notebook was saved.'
    : props.connected
      ? ''
      : props.known
        ? 'Reconnecting; this is what was known last.'
        : 'Connecting; this is the state when the notebook was saved.';
  return words ? (
    <div className="gpusched-trouble" role="status" data-testid="gpusched-standing">
      {words}
    </div>
  ) : null;
}

function Body({ view, live }: { view: JobView; live: boolean }): JSX.Element {
  const now = useNow(live && !isFinal(view));
  const why = sentence(view);
  return (
    <>
      <div className="gpusched-head">
        <span className="gpusched-name" title={view.name}>
          {view.name}
        </span>
        <Phase phase={view.phase} />
        {view.simulated && <Simulated />}
        <span className="gpusched-space" />
        {live && <CancelButton view={view} />}
      </div>
      <div className="gpusched-facts" data-testid="gpusched-facts">
        <code>{view.id}</code> · {factsOf(view, live || isFinal(view) ? now : null)}
      </div>
      {why && (
        <div className="gpusched-why" role="status" data-testid="gpusched-why">
          {why}
        </div>
      )}
      {live && <Text view={view} />}
    </>
  );
}

function factsOf(view: JobView, now: number | null): string {
  const facts = [view.kind, wants(view), ...view.gpus.map(gpu => `GPU ${gpu.index} (${gpu.name})`)];
  if (now !== null) {
    facts.push(lasted(view, now));
  }
  if (view.peak_vram_mib !== null) {
    facts.push(`peak ${mib(view.peak_vram_mib)}`);
  }
  return facts.filter(Boolean).join(' · ');
}

export function Text({ view }: { view: JobView }): JSX.Element | null {
  const box = React.useRef<HTMLDivElement>(null);
  const tail = useLog(view, box);
  const atEnd = React.useRef(true);
  React.useLayoutEffect(() => {
    if (box.current && atEnd.current) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  });
  const { terminal, shortened } = tail;
  const follow = (event: React.UIEvent<HTMLDivElement>): void => {
    const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
    atEnd.current = scrollHeight - scrollTop - clientHeight < 8;
  };
  return (
    <div
      ref={box}
      className={`jp-RenderedText gpusched-log${terminal.empty ? ' gpusched-empty' : ''}`}
      role="log"
      aria-live="off"
      aria-label={`Text output of job ${view.id}`}
      tabIndex={terminal.empty ? -1 : 0}
      onScroll={follow}
      data-testid="gpusched-log"
    >
      {shortened && (
        <div className="gpusched-facts">Earlier output is left out here; %gpulogs {view.id} shows it.</div>
      )}
      <pre>{terminal.lines().map(lineOf)}</pre>
    </div>
  );
}

function lineOf(line: Piece[], row: number, all: Piece[][]): JSX.Element {
  return (
    <React.Fragment key={row}>
      {line.map((piece, column) =>
        piece.classes || piece.colour ? (
          <span key={column} className={piece.classes} style={piece.colour ? { color: piece.colour } : undefined}>
            {piece.text}
          </span>
        ) : (
          piece.text
        )
      )}
      {row < all.length - 1 && '\n'}
    </React.Fragment>
  );
}

/** The log as far as it has come; read on while the job lives and the card can be seen. */
function useLog(view: JobView, box: React.RefObject<HTMLElement>): LogTail {
  const tail = React.useRef(new LogTail());
  const [, redraw] = React.useReducer((n: number) => n + 1, 0);
  const latest = React.useRef(view);
  latest.current = view;
  const over = isFinal(view);
  React.useEffect(() => {
    let timer = 0;
    let gone = false;
    const read = async (): Promise<void> => {
      let again = !over;
      const seen = !document.hidden && box.current?.offsetParent !== null;
      try {
        if (seen && (await tail.current.read(latest.current)) && !gone) {
          redraw();
          again = true; // there may be more
        }
        again ||= !seen;
      } catch (error) {
        again = true;
        console.debug('jupyter-gpusched: the log did not come', error);
      }
      if (again && !gone) {
        timer = window.setTimeout(() => void read(), READ_EVERY_MS);
      }
    };
    void read();
    return () => {
      gone = true;
      window.clearTimeout(timer);
    };
  }, [view.id, over, view.attempts.length, box]);
  return tail.current;
}
