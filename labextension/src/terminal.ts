// What a terminal would show of a job's raw output: text in, lines of coloured text out.
// Carriage returns, erasing, cursor moves and colours are applied; nothing is ever read as HTML.

export interface Piece extends Style {
  readonly text: string;
}

/** JupyterLab's own classes for the sixteen colours, computed ones for all others. */
interface Style {
  readonly classes: string;
  readonly colour: string | null;
  readonly background: string | null;
}

/** What the codes so far ask for; a colour is the name of one of the sixteen, or a computed one. */
interface Look {
  readonly fore: string | null;
  readonly back: string | null;
  readonly inverse: boolean;
  readonly marks: readonly string[];
}

interface Cell {
  readonly character: string;
  readonly style: Style;
}

const WIDEST = 4000;
const LONGEST_CODE = 64;
const PLAIN: Style = { classes: '', colour: null, background: null };
const NO_LOOK: Look = { fore: null, back: null, inverse: false, marks: [] };
const MARKS: Record<number, string> = { 1: 'ansi-bold', 2: 'gpusched-dim', 3: 'gpusched-italic', 4: 'ansi-underline' };
const BLANK: Cell = { character: ' ', style: PLAIN };
const COLOURS = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];

// Text, newline, CSI sequence, string sequence, other escapes, lone control characters.
const TOKEN =
  /([^\x00-\x08\x0a-\x1f\x7f\x9b]+)|(\n)|\x1b\[([0-?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|([\x00-\x1f\x7f\x9b])/g;

/** Endless lines of which the last are kept, and a cursor. */
export class Terminal {
  private _lines: Cell[][] = [[]];
  private _row = 0;
  private _column = 0;
  private _look = NO_LOOK;
  private _style = PLAIN;
  private _unfinished = '';

  constructor(private _mostLines = 500) {}

  write(text: string): void {
    const [whole, rest] = splitUnfinished(this._unfinished + text);
    this._unfinished = rest;
    for (const [, printed, newline, args, code, control] of whole.matchAll(TOKEN)) {
      if (printed) {
        this._print(printed);
      } else if (newline) {
        this._newline();
      } else if (code) {
        this._obey(code, args ?? '');
      } else if (control) {
        this._control(control);
      }
    }
  }

  lines(): Piece[][] {
    return this._lines.map(pieces);
  }

  get empty(): boolean {
    return this._lines.every(line => !line.length);
  }

  private get _line(): Cell[] {
    return (this._lines[this._row] ??= []);
  }

  private _print(text: string): void {
    const line = this._line;
    while (line.length < Math.min(this._column, WIDEST)) {
      line.push(BLANK);
    }
    for (const character of text) {
      if (this._column < WIDEST) {
        line[this._column] = { character, style: this._style };
      }
      this._column += 1;
    }
  }

  private _newline(): void {
    this._row += 1;
    this._column = 0;
    if (this._row === this._lines.length) {
      this._lines.push([]);
    }
    if (this._lines.length > this._mostLines) {
      this._lines.shift();
      this._row -= 1;
    }
  }

  private _control(character: string): void {
    if (character === '\r') {
      this._column = 0;
    } else if (character === '\b') {
      this._column = Math.max(0, this._column - 1);
    }
  }

  private _obey(code: string, args: string): void {
    if (code === 'm') {
      this._paint(args);
      return;
    }
    const first = parseInt(args, 10) || 0;
    const step = Math.min(Math.max(1, first), WIDEST);
    if (code === 'A' || code === 'F') {
      this._row = Math.max(0, this._row - step);
    } else if (code === 'B' || code === 'E') {
      this._row = Math.min(this._lines.length - 1, this._row + step);
    } else if (code === 'C') {
      this._column = Math.min(this._column + step, WIDEST);
    } else if (code === 'D') {
      this._column = Math.max(0, this._column - step);
    } else if (code === 'G') {
      this._column = step - 1;
    } else if (code === 'K') {
      this._erase(first);
    } else if (code === 'J' && first === 0) {
      this._erase(0);
      this._lines.length = this._row + 1;
    }
    if (code === 'E' || code === 'F') {
      this._column = 0;
    }
  }

  private _erase(part: number): void {
    const line = this._line;
    if (part === 0) {
      line.length = Math.min(line.length, this._column);
    } else if (part === 1) {
      line.fill(BLANK, 0, Math.min(this._column + 1, line.length));
    } else {
      line.length = 0;
    }
  }

  private _paint(args: string): void {
    this._look = painted(this._look, args);
    this._style = this._look === NO_LOOK ? PLAIN : styleOf(this._look);
  }
}

/** What may be the beginning of a code is kept until its rest has come. */
function splitUnfinished(text: string): [string, string] {
  const at = text.lastIndexOf('\x1b');
  if (at >= 0 && text.length - at < LONGEST_CODE && /^\x1b(\[[0-?]*[ -/]*)?$/.test(text.slice(at))) {
    return [text.slice(0, at), text.slice(at)];
  }
  return [text, ''];
}

/** The look after these codes. */
function painted(before: Look, args: string): Look {
  let look = before;
  const numbers = args.replace(/([34]8:2):\d*:(?=\d*:\d*:)/g, '$1:').split(/[;:]/).map(part => parseInt(part, 10) || 0);
  for (let n = numbers.shift(); n !== undefined; n = numbers.shift()) {
    const mark = MARKS[n];
    if (n === 0) {
      look = NO_LOOK;
    } else if (mark) {
      look = { ...look, marks: [...look.marks.filter(other => other !== mark), mark] };
    } else if (n >= 22 && n <= 24) {
      const ended = n === 22 ? [MARKS[1], MARKS[2]] : [MARKS[n - 20]];
      look = { ...look, marks: look.marks.filter(other => !ended.includes(other)) };
    } else if (n === 7 || n === 27) {
      look = { ...look, inverse: n === 7 };
    } else if (n === 38 || n === 39 || isColour(n, 30) || isColour(n, 90)) {
      look = { ...look, fore: n === 38 ? wideColour(numbers) : n === 39 ? null : nameOf(n) };
    } else if (n === 48 || n === 49 || isColour(n, 40) || isColour(n, 100)) {
      look = { ...look, back: n === 48 ? wideColour(numbers) : n === 49 ? null : nameOf(n - 10) };
    }
  }
  return look;
}

function styleOf({ fore, back, inverse, marks }: Look): Style {
  const [front, behind] = inverse ? [back ?? 'default-inverse', fore ?? 'default-inverse'] : [fore, back];
  const classOf = (colour: string | null, place: string): string => (isNamed(colour) ? `ansi-${colour}-${place}` : '');
  return {
    classes: [classOf(front, 'fg'), classOf(behind, 'bg'), ...marks].filter(Boolean).join(' '),
    colour: isNamed(front) ? null : front,
    background: isNamed(behind) ? null : behind
  };
}

function isNamed(colour: string | null): colour is string {
  return colour !== null && !colour.startsWith('rgb');
}

function isColour(n: number, first: number): boolean {
  return n >= first && n < first + 8;
}

function nameOf(n: number): string {
  return n >= 90 ? `${COLOURS[n - 90]}-intense` : String(COLOURS[n - 30]);
}

/** The arguments of a colour of 256 or of 16 million, taken from what follows. */
function wideColour(rest: number[]): string | null {
  const form = rest.shift();
  if (form === 2) {
    return `rgb(${rest.splice(0, 3).join(',')})`;
  }
  if (form !== 5) {
    return null;
  }
  const n = rest.shift() ?? 0;
  if (n >= 232) {
    const grey = 8 + 10 * (n - 232);
    return `rgb(${grey},${grey},${grey})`;
  }
  if (n < 16) {
    return nameOf(n < 8 ? 30 + n : 82 + n);
  }
  const part = (unit: number): number => [0, 95, 135, 175, 215, 255][Math.floor((n - 16) / unit) % 6] ?? 0;
  return `rgb(${part(36)},${part(6)},${part(1)})`;
}

function pieces(line: Cell[]): Piece[] {
  const found: { text: string; style: Style }[] = [];
  for (const cell of line) {
    const last = found[found.length - 1];
    if (last && last.style === cell.style) {
      last.text += cell.character;
    } else {
      found.push({ text: cell.character, style: cell.style });
    }
  }
  return found.map(({ text, style }) => ({ text, ...style }));
}
