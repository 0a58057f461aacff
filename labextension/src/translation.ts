// The words of this front end in the user's language: one catalogue for panel, card and forms.
// Until the page has said which language it is, and without a catalogue for it, they are English.
// Imports nothing of JupyterLab at run time, so that words can be tested by themselves.

import type { ITranslator } from '@jupyterlab/translation';

type Value = string | number;

interface Words {
  __(text: string, ...args: string[]): string;
  _n(one: string, many: string, n: number, ...args: string[]): string;
}

const DOMAIN = 'jupyter_gpusched';

const ENGLISH: Words = {
  __: filled,
  _n: (one, many, n, ...args) => filled(n === 1 ? one : many, String(n), ...args)
};

let bundle = ENGLISH;

/** Said once by the page, before anything of ours is drawn. */
export function speak(translator: ITranslator | null): void {
  bundle = translator?.load(DOMAIN) ?? ENGLISH;
}

/** Gettext of this domain; `%1`, `%2` stand for the arguments, in `_n` `%1` for the number. */
export const trans = {
  __: (text: string, ...args: Value[]): string => bundle.__(text, ...args.map(String)),
  _n: (one: string, many: string, n: number, ...args: Value[]): string => bundle._n(one, many, n, ...args.map(String)),
  /** A text of our schemas, which `catalogue.py` reads as it does the sources. */
  text: (text: string): string => bundle.__(text)
};

function filled(text: string, ...args: string[]): string {
  return text.replace(/%(\d+)/g, (_, place: string) => args[Number(place) - 1] ?? '');
}
