// Runs a job again: as it was, with more memory, or with other terms from a small form.

import * as React from 'react';

import { h } from './element';
import { store } from './store';
import { fault, Terms, trimmed } from './terms';
import { TermsFields } from './termsform';
import { trans } from './translation';
import { JobView } from './wire';
import { mib } from './words';

const MORE = 1.5;
const STEP_MIB = 512;

/** What may be given anew when a job is run again; null stands for the default. */
type Changes = {
  name?: string;
  vram?: string | null;
  gpus?: number;
  time_limit?: string | null;
};

interface Props {
  view: JobView;
  onDone: (newId: string) => void;
  onClose: () => void;
}

export function ResubmitForm({ view, onDone, onClose }: Props): JSX.Element {
  const [terms, setTerms] = React.useState<Terms>(() => termsOf(view));
  const [editing, setEditing] = React.useState(false);
  const [busy, setBusy] = React.useState(false);
  const [trouble, setTrouble] = React.useState('');
  const form = React.useRef<HTMLFormElement>(null);
  useFocusWithin(form, editing);
  const send = (changes: Changes): void => {
    setBusy(true);
    setTrouble('');
    store.resubmit(view.id, changes).then(onDone, (error: unknown) => {
      setBusy(false);
      setTrouble(error instanceof Error ? error.message : String(error));
    });
  };
  const submit = (event: React.FormEvent): void => {
    event.preventDefault();
    const wrong = fault(terms);
    if (wrong) {
      setTrouble(wrong);
    } else {
      send(changesOf(view, trimmed(terms)));
    }
  };
  /** A notebook takes Enter in its outputs for itself, so that the browser's own sending of forms does not happen. */
  const keyed = (event: React.KeyboardEvent<HTMLFormElement>): void => {
    if (event.key === 'Escape') {
      onClose();
    } else if (event.key === 'Enter' && event.target instanceof HTMLInputElement) {
      event.preventDefault();
      event.currentTarget.requestSubmit();
    }
  };
  const more = moreMemory(view);
  return (
    <form
      ref={form}
      className="gpusched-again"
      data-testid="gpusched-again"
      onSubmit={submit}
      onKeyDown={keyed}
      data-lm-suppress-shortcuts="true"
    >
      <div className="gpusched-row">
        <span className="gpusched-facts">{trans.__('Run again:')}</span>
        <button type="button" className="gpusched-button" disabled={busy} onClick={() => send({})}>
          {trans.__('Same')}
        </button>
        {more !== null && (
          <button
            type="button"
            className="gpusched-button"
            disabled={busy}
            onClick={() => send({ vram: `${more}M` })}
            data-testid="gpusched-more"
          >
            {trans.__('With %1', mib(more))}
          </button>
        )}
        <button
          type="button"
          className="gpusched-button"
          aria-expanded={editing}
          disabled={busy}
          onClick={() => setEditing(!editing)}
          data-testid="gpusched-edit"
        >
          {trans.__('Edit…')}
        </button>
        <span className="gpusched-space" />
        <button type="button" className="gpusched-button" onClick={onClose}>
          {trans.__('Close')}
        </button>
      </div>
      {editing && (
        <>
          <TermsFields terms={terms} onChange={setTerms} />
          <button className="gpusched-button gpusched-primary" disabled={busy} data-testid="gpusched-submit">
            {trans.__('Submit')}
          </button>
        </>
      )}
      {trouble && (
        <div className="gpusched-trouble" role="alert">
          {trouble}
        </div>
      )}
    </form>
  );
}

/** The keys go on in the form, in its fields once it has some, and when it closes from where they came. */
function useFocusWithin(form: React.RefObject<HTMLFormElement>, editing: boolean): void {
  React.useLayoutEffect(() => {
    const before = document.activeElement;
    const node = form.current;
    return () => {
      const now = document.activeElement;
      if (before instanceof HTMLElement && (now === document.body || node?.contains(now))) {
        before.focus({ preventScroll: true });
      }
    };
  }, [form]);
  React.useLayoutEffect(() => {
    if (editing || !form.current?.contains(document.activeElement)) {
      form.current?.querySelector<HTMLElement>(editing ? 'input' : 'button')?.focus();
    }
  }, [form, editing]);
}

function termsOf(view: JobView): Terms {
  return {
    vram: view.vram_mib === null ? '' : amount(view.vram_mib),
    gpus: String(view.gpus_requested),
    time: view.time_limit_s === null ? '' : `${view.time_limit_s}s`,
    name: view.name
  };
}

/** Only what the form changed: all else stays as it was submitted. */
function changesOf(view: JobView, terms: Terms): Changes {
  const before = termsOf(view);
  const changes: Changes = {};
  if (terms.vram !== before.vram) {
    changes.vram = terms.vram || null;
  }
  if (terms.gpus !== before.gpus) {
    changes.gpus = Number(terms.gpus || 1);
  }
  if (terms.time !== before.time) {
    changes.time_limit = terms.time || null;
  }
  if (terms.name !== before.name && terms.name) {
    changes.name = terms.name;
  }
  return changes;
}

function amount(memoryMib: number): string {
  return memoryMib % 1024 ? `${memoryMib}M` : `${memoryMib / 1024}G`;
}

/** Half as much again as it asked for, or had at most. */
function moreMemory(view: JobView): number | null {
  if (view.vram_mib === null || !view.gpus_requested) {
    return null;
  }
  return Math.ceil((MORE * Math.max(view.vram_mib, view.peak_vram_mib ?? 0)) / STEP_MIB) * STEP_MIB;
}
