// Words of a command line as a shell has them: quoted parts and escaped characters belong to the word around them.

const WORD = /(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+/g;

/** The words of a line as they are written there; what cannot be read, such as a lone quotation mark, is passed over. */
export function written(line: string): string[] {
  return line.match(WORD) ?? [];
}

/** The words that a program is given; null when a quotation is not closed. */
export function split(line: string): string[] | null {
  return line.replace(WORD, '').trim() ? null : written(line).map(unquoted);
}

export function unquoted(word: string): string {
  return word.replace(/"((?:\\.|[^"\\])*)"|'([^']*)'|\\(.)/g, (_all, double?: string, single?: string, one?: string) =>
    double !== undefined ? double.replace(/\\(["\\$`])/g, '$1') : (single ?? one ?? '')
  );
}

export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'"'"'`)}'`;
}
