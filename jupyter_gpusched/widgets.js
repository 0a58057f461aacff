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

function progressBar({ words, fraction }) {
  const made = element('div', 'progress');
  const track = element('div', 'track');
  const fill = element('div', 'fill');
  track.setAttribute('role', 'progressbar');
  track.setAttribute('aria-label', 'Progress');
  track.setAttribute('aria-valuetext', words);
  if (fraction !== null) track.setAttribute('aria-valuenow', String(Math.floor(100 * fraction)));
  fill.dataset.known = String(fraction !== null);
  fill.style.width = `${fraction === null ? 100 : 100 * fraction}%`;
  track.append(fill);
  made.append(track, element('span', 'facts', words));
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

  const show = (node, words) => {
    node.hidden = !words;
    if (node.textContent !== words) node.textContent = words;
  };
  const draw = () => {
    list.draw();
    key.replaceChildren(legend(model.get('rows')));
    show(title, model.get('heading'));
    show(empty, model.get('rows').length ? '' : model.get('empty'));
    const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 8;
    show(text, model.get('text') ?? '');
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
