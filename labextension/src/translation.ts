// The words of this front end in the user's language: one catalogue for panel, card and forms.
// Until the page has said which language it is, and without a catalogue for it, they are English.

import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';

const DOMAIN = 'jupyter_gpusched';

let bundle: TranslationBundle = nullTranslator.load(DOMAIN);

/** Said once by the page, before anything of ours is drawn. */
export function speak(translator: ITranslator | null): void {
  bundle = (translator ?? nullTranslator).load(DOMAIN);
}

/** Gettext of this domain; `%1`, `%2` stand for the arguments. */
export const trans = {
  __: (text: string, ...args: (string | number)[]): string => bundle.__(text, ...args.map(String)),
  _n: (one: string, many: string, n: number, ...args: (string | number)[]): string =>
    bundle._n(one, many, n, ...args.map(String))
};
