// Draws what jupyter_gpusched/widgets.py says: rows of plain words, bars, and buttons that act through the kernel.
// Everything is set as text; a row is drawn anew only when it changed, so that clicks and focus stay.

const UNDO_S = 5;

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = `gpusched-w-${name}`;
  if (text) made.textContent = text;
  return made;
}

function bar(parts) {
  const made = element('div', 'bar');
  made.setAttribute('role', 'img');
  made.setAttribute('aria-label', parts.map(part => part.words).join(', '));
  for (const part of parts) {
    const share = element('span', 'part');
    share.dataset.kind = part.kind;
    share.style.flexGrow = part.mib;
    share.title = part.words;
    made.append(share);
  }
  return made;
}

/** A bar that is filled so far, with its words beside it. */
function meter(words, percent, role, label) {
  const made = element('div', 'progress');
  const [track, fill] = [element('div', 'track'), element('div', 'fill')];
  track.setAttribute('role', role);
  track.setAttribute('aria-label', label);
  fill.style.width = `${percent}%`;
  track.append(fill);
  made.append(track, element('span', 'facts', words));
  return { made, track, fill };
}

function progressBar({ words, fraction }) {
  const { made, track, fill } = meter(words, fraction === null ? 100 : 100 * fraction, 'progressbar', 'Progress');
  track.setAttribute('aria-valuetext', words);
  if (fraction !== null) track.setAttribute('aria-valuenow', String(Math.floor(100 * fraction)));
  fill.dataset.known = String(fraction !== null);
  return made;
}

function memoryBar({ words, fill: part, peak, over }) {
  const { made, track, fill } = meter(`VRAM ${words}`, 100 * part, 'img', `VRAM: ${words}`);
  fill.dataset.over = String(over);
  if (peak !== null) {
    const tick = element('div', 'tick');
    tick.style.left = `${100 * peak}%`;
    track.append(tick);
  }
  return made;
}

function mark(text, kind, value = 'true') {
  const made = element('span', 'mark', text);
  made.dataset[kind] = value;
  return made;
}

function head(model, row) {
  const made = element('div', 'head');
  made.append(row.kind === 'array' ? opener(model, row) : element('b', 'title', row.title));
  if (row.count) made.append(element('span', 'facts', row.count));
  if (row.phase) made.append(mark(row.phase, 'phase', row.phase));
  if (row.held && row.kind === 'job') made.append(mark('held', 'held'));
  if (row.simulated) made.append(mark('SIMULATED', 'simulated'));
  if (row.readings) made.append(element('span', 'readings', row.readings));
  return made;
}

/** Shows the elements of an array below its row, and hides them again; which are open is known to the kernel too. */
function opener(model, row) {
  const button = element('button', 'opener', `${row.opened ? '▾' : '▸'} ${row.title}`);
  button.dataset.act = 'open';
  button.setAttribute('aria-expanded', String(row.opened));
  button.onclick = event => {
    event.stopPropagation();
    const others = model.get('opened').filter(key => key !== row.key);
    model.set('opened', row.opened ? others : [...others, row.key]);
    model.save_changes();
  };
  return button;
}

/** The seconds in which the end of a job can be taken back; a view that goes sends what it was asked for. */
class Wishes {
  constructor(model) {
    this.model = model;
    this.due = new Map();
    this.sent = new Set();
    this.drawers = new Map(); // what draws the button of a row, which may be another one than was clicked
    this.leave = () => [...this.due.keys()].forEach(key => this.send(key));
    window.addEventListener('pagehide', this.leave);
  }

  state(key) {
    return this.due.has(key) ? 'pending' : this.sent.has(key) ? 'sent' : 'none';
  }

  left(key) {
    return Math.max(1, Math.ceil((this.due.get(key).at - Date.now()) / 1000));
  }

  toggle(key) {
    const wish = this.due.get(key);
    const redraw = () => this.drawers.get(key)?.();
    if (wish) {
      clearTimeout(wish.end);
      clearInterval(wish.tick);
      this.due.delete(key);
    } else {
      const end = setTimeout(() => { this.send(key); redraw(); }, UNDO_S * 1000);
      this.due.set(key, { at: Date.now() + UNDO_S * 1000, end, tick: setInterval(redraw, 1000) });
    }
    redraw();
  }

  send(key) {
    const wish = this.due.get(key);
    clearTimeout(wish.end);
    clearInterval(wish.tick);
    this.due.delete(key);
    this.sent.add(key);
    this.model.send({ cancel: key });
  }

  /** A refusal is shown by the kernel; the button is there again. */
  forget() {
    this.sent.clear();
  }

  close() {
    this.leave();
    window.removeEventListener('pagehide', this.leave);
  }
}

function named(row) {
  return row.kind === 'array' ? `array ${row.key}` : `job ${row.key}`;
}

function cancelButton(wishes, row) {
  const button = element('button', 'button');
  button.dataset.act = 'cancel';
  const draw = () => {
    const state = row.cancelling ? 'sent' : wishes.state(row.key);
    button.disabled = state === 'sent';
    button.dataset.asked = String(state === 'pending');
    button.textContent = { none: 'Cancel', sent: 'Cancelling' }[state] ?? `Undo (${wishes.left(row.key)})`;
    const label = state === 'pending' ? `Undo: do not cancel ${named(row)}` : `Cancel ${named(row)}`;
    button.setAttribute('aria-label', label);
  };
  button.onclick = event => {
    event.stopPropagation();
    wishes.toggle(row.key);
  };
  wishes.drawers.set(row.key, draw);
  draw();
  return button;
}

/** A button that asks the kernel for something at once. */
function actButton(model, row, act, text, label) {
  const button = element('button', 'button', text);
  button.dataset.act = act;
  button.setAttribute('aria-label', label);
  button.onclick = event => {
    event.stopPropagation();
    model.send({ [act]: row.key });
  };
  return button;
}

function acts(model, wishes, row) {
  const made = element('div', 'acts');
  if (row.can_cancel) made.append(cancelButton(wishes, row));
  if (row.held) made.append(actButton(model, row, 'release', 'Release', `Release ${named(row)}`));
  if (row.can_repeat) {
    const text = row.kind === 'array' ? 'Run what failed again' : 'Run again';
    const label = row.kind === 'array' ? `Run what failed of ${named(row)} again` : `Run ${named(row)} again`;
    made.append(actButton(model, row, 'resubmit', text, label));
  }
  return made;
}

function facts(row) {
  const made = element('div', 'facts');
  made.append(...(row.kind === 'gpu' ? [row.facts] : [element('code', '', row.key), ` · ${row.facts}`]));
  return made;
}

function notes(words) {
  const made = element('div', 'notes');
  made.append(...words.map(one => element('div', 'facts', one)));
  return made;
}

/** One row: each of its parts is made anew only when it changed, so that a click or the focus on a button is not lost. */
class Row {
  constructor(model, wishes, key) {
    this.model = model;
    this.wishes = wishes;
    this.node = element('div', 'row');
    this.node.dataset.key = key;
    this.parts = new Map();
    selectable(model, this.node, key);
  }

  draw(row) {
    const { model, wishes } = this;
    const { title, count, phase, held, simulated, readings, opened, can_cancel, can_repeat, cancelling } = row;
    this.node.dataset.element = String(Boolean(row.element));
    this.part('head', [title, count, phase, held, simulated, readings, opened], () => head(model, row));
    this.part('bar', row.parts, () => bar(row.parts));
    this.part('facts', row.facts, () => facts(row));
    this.part('why', row.why, () => element('div', row.kind === 'gpu' ? 'trouble' : 'why', row.why));
    this.part('notes', row.notes?.length ? row.notes : null, () => notes(row.notes));
    this.part('progress', row.progress, () => progressBar(row.progress));
    const acting = row.kind !== 'gpu' && [can_cancel, can_repeat, cancelling, held];
    this.part('memory', row.memory, () => memoryBar(row.memory));
    this.part('acts', acting, () => acts(model, wishes, row));
  }

  part(name, told, make) {
    const shown = JSON.stringify(told || null);
    const known = this.parts.get(name);
    if (known?.shown === shown) return;
    const node = told ? make() : document.createComment(name);
    const focused = this.node.getRootNode().activeElement;
    const act = known?.node.contains(focused) ? focused.dataset.act : undefined;
    if (known) known.node.replaceWith(node);
    else this.node.append(node);
    if (act) this.node.querySelector(`[data-act="${act}"]`)?.focus({ preventScroll: true });
    this.parts.set(name, { shown, node });
  }

  /** The buttons as they are without a wish that was refused. */
  refresh() {
    this.parts.get('acts').shown = '';
  }
}

const COLOURS = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
const STEPS = [0, 95, 135, 175, 215, 255];

/** One of 256 colours, or of 16 million, whose numbers come next. */
function wideColour(rest) {
  const form = rest.shift();
  if (form === 2) return `rgb(${rest.splice(0, 3).map(Number).join(',')})`;
  const n = rest.shift() ?? 0;
  if (n < 16) return COLOURS[n % 8];
  const cube = [36, 6, 1].map(unit => STEPS[Math.floor((n - 16) / unit) % 6]);
  return n > 231 ? `rgb(${Array(3).fill(10 * (n - 232) + 8).join(',')})` : `rgb(${cube.join(',')})`;
}

/** Text with a terminal's codes as pieces of text; of the sixteen colours the style sheet knows those that it likes. */
function painted(text) {
  return text.split(/((?:\x1b\[[\d;:]*m)+)/).reduce(({ pieces, look }, part, n) => {
    if (n % 2 === 0) {
      const piece = element('span', '', part);
      const [fore, back] = look.inverse ? [look.back ?? 'ground', look.fore ?? 'text'] : [look.fore, look.back];
      piece.style.color = inkOf(fore);
      piece.style.background = inkOf(back);
      piece.style.fontWeight = look.bold ? 'bold' : '';
      piece.style.fontStyle = look.italic ? 'italic' : '';
      piece.style.opacity = look.dim ? '0.7' : '';
      piece.style.textDecoration = look.underline ? 'underline' : '';
      if (part) pieces.push(piece);
      return { pieces, look };
    }
    return { pieces, look: lookAfter(look, part.match(/\d+/g)?.map(Number) ?? [0]) };
  }, { pieces: [], look: {} }).pieces;
}

function inkOf(colour) {
  return !colour || colour.startsWith('rgb') ? colour ?? '' : `var(--ink-${colour})`;
}

const MARKS = { 1: ['bold', 22], 2: ['dim', 22], 3: ['italic', 23], 4: ['underline', 24], 7: ['inverse', 27] };

function lookAfter(before, numbers) {
  let look = { ...before };
  for (let n = numbers.shift(); n !== undefined; n = numbers.shift()) {
    if (n === 0) look = {};
    else if (MARKS[n]) look[MARKS[n][0]] = true;
    else if (n >= 22 && n <= 27) Object.values(MARKS).forEach(([name, end]) => n === end && delete look[name]);
    else if (n === 38 || n === 48) look[n === 38 ? 'fore' : 'back'] = wideColour(numbers);
    else if (n >= 30 && n <= 49) look[n < 40 ? 'fore' : 'back'] = COLOURS[n % 10];
    else if (n >= 90 && n <= 107) look[n < 100 ? 'fore' : 'back'] = COLOURS[n % 10];
  }
  return look;
}

function legend(rows) {
  const made = element('div', 'legend');
  made.setAttribute('aria-hidden', 'true');
  const parts = new Map(rows.flatMap(row => (row.parts ?? []).map(part => [part.kind, part.name])));
  for (const [kind, name] of parts) {
    const key = element('i', 'key');
    key.dataset.kind = kind;
    const entry = element('span');
    entry.append(key, ` ${name}`);
    made.append(entry);
  }
  return made;
}

function selectable(model, item, key) {
  item.tabIndex = 0;
  item.setAttribute('role', 'listitem');
  const select = () => {
    model.set('selected', model.get('selected') === key ? '' : key);
    model.save_changes();
  };
  item.onclick = select;
  item.onkeydown = event => {
    if (event.target === item && (event.key === 'Enter' || event.key === ' ')) {
      event.preventDefault();
      select();
    }
  };
}

class List {
  constructor(model, wishes) {
    this.model = model;
    this.wishes = wishes;
    this.node = element('div', 'list');
    this.node.setAttribute('role', 'list');
    this.items = new Map();
  }

  draw() {
    const rows = this.model.get('rows');
    const kept = new Set(rows.map(row => row.key));
    for (const [key, item] of this.items) {
      if (!kept.has(key)) {
        item.node.remove();
        this.items.delete(key);
      }
    }
    rows.forEach((row, place) => this.place(row, place));
  }

  place(row, place) {
    const item = this.items.get(row.key) ?? new Row(this.model, this.wishes, row.key);
    this.items.set(row.key, item);
    item.draw(row);
    item.node.setAttribute('aria-current', String(this.model.get('selected') === row.key));
    if (this.node.children[place] !== item.node) this.node.insertBefore(item.node, this.node.children[place] ?? null);
  }

  /** Draw the buttons of every row anew, also those that are as they were. */
  refresh() {
    this.items.forEach(item => item.refresh());
    this.draw();
  }
}

function render({ model, el }) {
  const box = element('section', 'box');
  const wishes = new Wishes(model);
  const list = new List(model, wishes);
  const [title, trouble, empty, text] = [
    element('h4', 'heading'), element('div', 'trouble'), element('p', 'facts'), element('pre', 'text')
  ];
  const key = element('div');
  trouble.setAttribute('role', 'status');
  text.tabIndex = 0;
  box.append(title, trouble, list.node, key, empty, text);
  list.node.setAttribute('aria-label', model.get('heading') || 'Job');

  const show = (node, words, fill = () => (node.textContent = words)) => {
    node.hidden = !words;
    if (node.said !== words) fill();
    node.said = words;
  };
  const draw = () => {
    list.draw();
    key.replaceChildren(legend(model.get('rows')));
    show(title, model.get('heading'));
    show(empty, model.get('rows').length ? '' : model.get('empty'));
    const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 8;
    const said = model.get('text') ?? '';
    show(text, said, () => text.replaceChildren(...painted(said)));
    if (atEnd) text.scrollTop = text.scrollHeight;
  };
  const troubled = () => {
    show(trouble, model.get('trouble'));
    if (model.get('trouble')) {
      wishes.forget();
      list.refresh();
    }
  };
  const watched = 'change:rows change:selected change:empty change:text';
  model.on(watched, draw);
  model.on('change:trouble', troubled);
  draw();
  troubled();
  el.append(box);
  text.scrollTop = text.scrollHeight;
  return () => {
    wishes.close();
    model.off(watched, draw);
    model.off('change:trouble', troubled);
  };
}

export default { render };
