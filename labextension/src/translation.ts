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
  const listed = bundle.__(SENTENCES);
  patterns = listed === SENTENCES ? [] : listed.split('\n').map(patternOf);
  heard.clear();
}

/** The entry of a catalogue that lists the patterns of what the server says; see `catalogue.py`. */
const SENTENCES = 'sentences of the server';

let patterns: [RegExp, string][] = [];
const heard = new Map<string, string>();
const MOST_HEARD = 5000;

/**
 * What the server says, in the user's language as far as the catalogue knows its parts. A pattern has `<1>` for what is
 * left as it is, and `{1}` for what is said in its turn. One that begins with such is for one part of a list.
 */
export function said(sentence: string): string {
  let known = patterns.length ? heard.get(sentence) : sentence;
  if (known === undefined) {
    known = wholly(sentence) ?? partly(sentence, '; ', '；') ?? partly(sentence, ', ', '，') ?? sentence;
    if (heard.size >= MOST_HEARD) {
      heard.clear();
    }
    heard.set(sentence, known);
  }
  return known;
}

function wholly(sentence: string): string | null {
  for (const [pattern, text] of patterns) {
    const found = pattern.exec(sentence);
    if (found) {
      return bundle
        .__(text)
        .replace(/[<{](\d)[>}]/g, (place, n: string) => (place[0] === '<' ? (found[Number(n)] ?? '') : said(found[Number(n)] ?? '')));
    }
  }
  return null;
}

/** Its parts one by one, if any of them is known. */
function partly(sentence: string, between: string, joint: string): string | null {
  const parts = sentence.split(between);
  const ours = parts.map(part => (parts.length > 1 ? said(part) : part));
  return ours.some((part, n) => part !== parts[n]) ? ours.join(joint) : null;
}

function patternOf(text: string): [RegExp, string] {
  const holes = text.split(/([<{]\d[>}])/);
  const parts = holes.map((part, n) => (n % 2 === 0 ? literal(part) : part[0] === '{' ? '([^;]+?)' : holes[0] ? '(.+?)' : '([^,;]+?)'));
  return [new RegExp(`^${parts.join('')}$`, 's'), text];
}

function literal(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
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
