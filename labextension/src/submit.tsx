// The form with which a file or a command becomes a job: what it needs, asked in one dialog.

import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import { PageConfig, PathExt } from '@jupyterlab/coreutils';
import * as React from 'react';

import { wordsOf } from './acts';
import { Spec } from './api';
import { store } from './store';
import { trans } from './translation';

/** Where the server's files lie on its machine; null where it does not say (they may lie in no folder at all). */
export function rootOfServer(): string | null {
  return PageConfig.getOption('gpuschedRoot') || null;
}

/** What is wanted of a file that the browser of files names. */
export function fileSpec(path: string): Spec | null {
  const root = rootOfServer();
  if (root === null) {
    return null;
  }
  return { path: PathExt.basename(path), cwd: folderOn(root, PathExt.dirname(path)) };
}

/** Where a folder of the browser of files lies on the server's machine. */
function folderOn(root: string, folder: string): string {
  const local = folder.replace(/^[A-Za-z]+:/, ''); // without the drive, such as RTC
  return [root.replace(/\/+$/, ''), ...local.split('/').filter(Boolean)].join('/') || '/';
}

/** Ask what the job needs and queue it; the new job's id, or null if the user would rather not. */
export async function submitFile(path: string): Promise<string | null> {
  const spec = fileSpec(path);
  if (spec === null) {
    Notification.error(trans.__('This server does not say where its files lie: submit the file with %gpujob.'));
    return null;
  }
  const script = path.endsWith('.py');
  return ask(trans.__('Submit %1 as GPU job', PathExt.basename(path)), spec, script ? 'script' : 'notebook');
}

export async function submitCommand(cwd: string): Promise<string | null> {
  const root = rootOfServer();
  const folder = root === null ? {} : { cwd: folderOn(root, cwd) };
  return ask(trans.__('New GPU job'), folder, 'command');
}

type What = 'script' | 'notebook' | 'command';

async function ask(title: string, spec: Spec, what: What): Promise<string | null> {
  let fields = remembered();
  let trouble = '';
  for (;;) {
    const body = new Form(what, fields, trouble);
    const { button, value } = await showDialog({
      title,
      body,
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__('Submit') })],
      focusNodeSelector: what === 'command' ? 'input[name="command"]' : 'input[name="vram"]'
    });
    if (!button.accept || !value) {
      return null;
    }
    fields = value;
    try {
      const id = await store.submit({ ...spec, ...wanted(fields, what) });
      remember(fields);
      return id;
    } catch (error) {
      trouble = wordsOf(error);
    }
  }
}

interface Fields {
  readonly command: string;
  readonly args: string;
  readonly vram: string;
  readonly gpus: string;
  readonly time: string;
  readonly name: string;
}

const EMPTY: Fields = { command: '', args: '', vram: '4G', gpus: '1', time: '', name: '' };
let last: Pick<Fields, 'vram' | 'gpus' | 'time'> = EMPTY;

function remembered(): Fields {
  return { ...EMPTY, vram: last.vram, gpus: last.gpus, time: last.time };
}

function remember({ vram, gpus, time }: Fields): void {
  last = { vram, gpus, time };
}

function wanted(fields: Fields, what: What): Spec {
  const given = (name: string, text: string): Spec => (text.trim() ? { [name]: text.trim() } : {});
  const gpus = Number(fields.gpus);
  return {
    ...(what === 'command' ? { argv: fields.command, kind: 'command' } : {}),
    ...(what === 'script' && fields.args.trim() ? { args: fields.args.trim().split(/\s+/) } : {}),
    ...(gpus === 0 ? {} : given('vram', fields.vram)),
    ...given('time_limit', fields.time),
    ...given('name', fields.name),
    gpus: Number.isInteger(gpus) ? gpus : 1
  };
}

class Form extends ReactWidget implements Dialog.IBodyWidget<Fields> {
  constructor(
    private readonly _what: What,
    private _fields: Fields,
    private readonly _trouble: string
  ) {
    super();
    this.addClass('gpusched-form');
  }

  getValue(): Fields {
    return this._fields;
  }

  protected render(): JSX.Element {
    return (
      <>
        {this._trouble && (
          <p className="gpusched-trouble" role="alert">
            {this._trouble}
          </p>
        )}
        {this._what === 'command' && this._field('command', trans.__('Command'), 'python train.py --epochs 3')}
        {this._what === 'script' && this._field('args', trans.__('Arguments'), '--epochs 3')}
        <div className="gpusched-form-row">
          {this._field('vram', trans.__('VRAM per GPU'), trans.__('whole GPU'))}
          {this._field('gpus', trans.__('GPUs'), '1', 'number')}
        </div>
        <div className="gpusched-form-row">
          {this._field('time', trans.__('Time limit'), trans.__('none'))}
          {this._field('name', trans.__('Name'), this._what === 'command' ? trans.__('from the command') : trans.__('from the file'))}
        </div>
      </>
    );
  }

  private _field(name: keyof Fields, label: string, example: string, type = 'text'): JSX.Element {
    return (
      <label className="gpusched-field">
        <span>{label}</span>
        <input
          className="jp-mod-styled"
          name={name}
          type={type}
          min={0}
          placeholder={example}
          defaultValue={this._fields[name]}
          onChange={event => {
            this._fields = { ...this._fields, [name]: event.target.value };
          }}
        />
      </label>
    );
  }
}
