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

function head(row) {
  const made = element('div', 'head');
  made.append(element('b', 'title', row.title));
  if (row.phase) {
    const phase = element('span', 'mark', row.phase);
    phase.dataset.phase = row.phase;
    made.append(phase);
  }
  if (row.simulated) {
    const mark = element('span', 'mark', 'SIMULATED');
    mark.dataset.simulated = 'true';
    made.append(mark);
  }
  if (row.readings) made.append(element('span', 'readings', row.readings));
  return made;
}

/** The seconds in which the end of a job can be taken back; a view that goes sends what it was asked for. */
class Wishes {
  constructor(model) {
    this.model = model;
    this.due = new Map();
    this.sent = new Set();
    this.leave = () => [...this.due.keys()].forEach(key => this.send(key));
    window.addEventListener('pagehide', this.leave);
  }

  state(key) {
    return this.due.has(key) ? 'pending' : this.sent.has(key) ? 'sent' : 'none';
  }

  left(key) {
    return Math.max(1, Math.ceil((this.due.get(key).at - Date.now()) / 1000));
  }

  toggle(key, redraw) {
    const wish = this.due.get(key);
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

function cancelButton(wishes, row) {
  const button = element('button', 'button');
  button.dataset.act = 'cancel';
  const draw = () => {
    const state = row.cancelling ? 'sent' : wishes.state(row.key);
    button.disabled = state === 'sent';
    button.dataset.asked = String(state === 'pending');
    button.textContent = { none: 'Cancel', sent: 'Cancelling' }[state] ?? `Undo (${wishes.left(row.key)})`;
    button.setAttribute('aria-label', state === 'pending' ? `Undo: do not cancel job ${row.key}` : `Cancel job ${row.key}`);
  };
  button.onclick = event => {
    event.stopPropagation();
    wishes.toggle(row.key, draw);
  };
  draw();
  return button;
}

function againButton(model, row) {
  const button = element('button', 'button', 'Run again');
  button.dataset.act = 'resubmit';
  button.setAttribute('aria-label', `Run job ${row.key} again`);
  button.onclick = event => {
    event.stopPropagation();
    model.send({ resubmit: row.key });
  };
  return button;
}

function fill(model, wishes, item, row) {
  item.replaceChildren(head(row));
  if (row.parts) item.append(bar(row.parts));
  const facts = element('div', 'facts');
  facts.append(row.parts ? '' : element('code', '', row.key), row.parts ? row.facts : ` · ${row.facts}`);
  item.append(facts);
  if (row.why) item.append(element('div', row.parts ? 'trouble' : 'why', row.why));
  if (row.progress) item.append(progressBar(row.progress));
  if (row.parts) return;
  const acts = element('div', 'acts');
  acts.append(row.can_cancel ? cancelButton(wishes, row) : againButton(model, row));
  item.append(acts);
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

/** All of a row but its clock: a button that has the focus is not to be replaced every second. */
function withoutFacts(row) {
  return JSON.stringify({ ...row, facts: '' });
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
    for (const [key, { item }] of this.items) {
      if (!kept.has(key)) {
        item.remove();
        this.items.delete(key);
      }
    }
    rows.forEach((row, place) => this.place(row, place));
  }

  place(row, place) {
    const known = this.items.get(row.key) ?? this.make(row.key);
    const shown = withoutFacts(row);
    if (known.shown !== shown) fill(this.model, this.wishes, known.item, row);
    else known.item.querySelector('.gpusched-w-facts').lastChild.textContent = row.parts ? row.facts : ` · ${row.facts}`;
    known.shown = shown;
    known.item.setAttribute('aria-current', String(this.model.get('selected') === row.key));
    if (this.node.children[place] !== known.item) this.node.insertBefore(known.item, this.node.children[place] ?? null);
  }

  make(key) {
    const made = { item: element('div', 'row'), shown: '' };
    made.item.dataset.key = key;
    selectable(this.model, made.item, key);
    this.items.set(key, made);
    return made;
  }

  /** Draw every row anew, also those that are as they were. */
  refresh() {
    this.items.forEach(known => { known.shown = ''; });
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
