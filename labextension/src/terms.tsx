// What a person gives with a job (VRAM, GPUs, time, name), as text in a form; empty means the default.

import * as React from 'react';

import { trans } from './translation';

export interface Terms {
  vram: string;
  gpus: string;
  time: string;
  name: string;
}

export const NO_TERMS: Terms = { vram: '', gpus: '', time: '', name: '' };

const MEMORY = /^(\d+(\.\d+)?[MGT](i?B)?|auto)$/i;
const SPAN = /^\d+(\.\d+)?[smhd]$/i;

/** What is wrong with the terms, in a sentence; empty when nothing is. The server has the last word. */
export function fault(terms: Terms): string {
  const { vram, gpus, time } = trimmed(terms);
  if (vram && !MEMORY.test(vram)) {
    return trans.__('VRAM: write an amount such as 4G or 512M.');
  }
  if (gpus && !/^\d{1,4}$/.test(gpus)) {
    return trans.__('GPUs: write a whole number; 0 is none.');
  }
  if (vram && Number(gpus || 1) === 0) {
    return trans.__('A job without a GPU takes no VRAM.');
  }
  return time && !SPAN.test(time) ? trans.__('Time: write a span such as 90s, 15m or 2h.') : '';
}

export function trimmed(terms: Terms): Terms {
  return { vram: terms.vram.trim(), gpus: terms.gpus.trim(), time: terms.time.trim(), name: terms.name.trim() };
}

export function TermsFields(props: { terms: Terms; onChange: (terms: Terms) => void }): JSX.Element {
  const field = (key: keyof Terms, label: string, placeholder: string): JSX.Element => (
    <label className={`gpusched-field gpusched-field-${key}`}>
      <span>{label}</span>
      <input
        className="jp-mod-styled"
        value={props.terms[key]}
        placeholder={placeholder}
        spellCheck={false}
        data-testid={`gpusched-term-${key}`}
        onChange={event => props.onChange({ ...props.terms, [key]: event.target.value })}
      />
    </label>
  );
  return (
    <div className="gpusched-terms">
      {field('vram', trans.__('VRAM per GPU'), trans.__('whole GPU'))}
      {field('gpus', trans.__('GPUs'), '1')}
      {field('time', trans.__('Time limit'), trans.__('none'))}
      {field('name', trans.__('Name'), trans.__('from the code'))}
    </div>
  );
}
