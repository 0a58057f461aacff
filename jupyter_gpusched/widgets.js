// Draws what jupyter_gpusched/widgets.py says: rows of plain words, bars, and a button that ends a job.
// Everything is set as text; a row is drawn anew only when it changed, so that clicks and focus stay.

function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = `gpusched-w-${name}`;
  if (text) made.textContent = text;
  return made;
}

function bar(parts) {
  const made = element('div', 'bar');
  made.setAttribute('role', 'img');
  made.title = parts.map(part => part.words).join(', ');
  made.setAttribute('aria-label', made.title);
  for (const part of parts) {
    const share = element('span', 'part');
    share.dataset.part = part.name;
    share.style.flexGrow = part.mib;
    made.append(share);
  }
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
  if (row.simulated) made.append(element('span', 'mark', 'SIMULATED'));
  return made;
}

function cancelButton(model, row) {
  const button = element('button', 'cancel', row.cancelling ? 'Cancelling' : 'Cancel');
  button.disabled = row.cancelling;
  button.setAttribute('aria-label', `Cancel job ${row.key}`);
  button.onclick = event => {
    event.stopPropagation();
    if (row.phase !== 'queued' && button.textContent === 'Cancel') {
      button.textContent = 'Really cancel?';
      return;
    }
    button.disabled = true;
    button.textContent = 'Cancelling';
    model.send({ cancel: row.key });
  };
  button.onblur = () => {
    if (!button.disabled) button.textContent = 'Cancel';
  };
  return button;
}

function fill(model, item, row) {
  item.replaceChildren(head(row));
  if (row.parts) item.append(bar(row.parts));
  const facts = element('div', 'facts');
  facts.append(row.parts ? '' : element('code', '', row.key), row.parts ? row.facts : ` · ${row.facts}`);
  item.append(facts);
  if (row.why) item.append(element('div', 'why', row.why));
  if (row.can_cancel) item.append(cancelButton(model, row));
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

/** All of a row but its clock: a button that asks once more is not to be replaced every second. */
function withoutFacts(row) {
  return JSON.stringify({ ...row, facts: '' });
}

class List {
  constructor(model) {
    this.model = model;
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
    if (known.shown !== shown) fill(this.model, known.item, row);
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
}

function render({ model, el }) {
  const box = element('section', 'box');
  const list = new List(model);
  const [title, trouble, empty, text] = [
    element('h4', 'heading'), element('div', 'trouble'), element('p', 'facts'), element('pre', 'text')
  ];
  trouble.setAttribute('role', 'status');
  text.tabIndex = 0;
  box.append(title, trouble, list.node, empty, text);
  list.node.setAttribute('aria-label', model.get('heading') || 'Job');

  const show = (node, words) => {
    node.hidden = !words;
    if (node.textContent !== words) node.textContent = words;
  };
  const draw = () => {
    list.draw();
    show(title, model.get('heading'));
    show(trouble, model.get('trouble'));
    show(empty, model.get('rows').length ? '' : model.get('empty'));
    const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 8;
    show(text, model.get('text') ?? '');
    if (atEnd) text.scrollTop = text.scrollHeight;
  };
  const watched = 'change:rows change:trouble change:selected change:empty change:text';
  model.on(watched, draw);
  draw();
  el.append(box);
  text.scrollTop = text.scrollHeight;
  return () => model.off(watched, draw);
}

export default { render };
