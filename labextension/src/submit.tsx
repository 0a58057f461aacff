// The form with which a file or a command becomes a job: what it needs, asked in one dialog.

import { Notification } from '@jupyterlab/apputils';
import { PageConfig, PathExt } from '@jupyterlab/coreutils';

import { Spec } from './api';
import { h } from './element';
import { store } from './store';
import { specOf, TermsOfFile, What } from './terms';
import { askUntilTaken, Field, TermsFields } from './termsform';
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

let last: Pick<TermsOfFile, 'vram' | 'gpus' | 'time'> = { vram: '4G', gpus: '1', time: '' };

async function ask(title: string, spec: Spec, what: What): Promise<string | null> {
  return askUntilTaken<TermsOfFile, string>({
    title,
    send: trans.__('Submit'),
    first: what === 'command' ? 'command' : 'vram',
    given: { ...last, name: '', command: '', args: '' },
    draw: (terms, change) => (
      <div>
        {what === 'command' && (
          <Field
            name="command"
            label={trans.__('Command')}
            example="python train.py --epochs 3"
            value={terms.command}
            onChange={command => change({ ...terms, command })}
          />
        )}
        {what === 'script' && (
          <Field
            name="args"
            label={trans.__('Arguments')}
            example="--epochs 3"
            value={terms.args}
            onChange={args => change({ ...terms, args })}
          />
        )}
        <TermsFields
          terms={terms}
          onChange={change}
          unnamed={what === 'command' ? trans.__('from the command') : trans.__('from the file')}
        />
      </div>
    ),
    take: async terms => {
      const id = await store.submit({ ...spec, ...specOf(terms, what) });
      last = { vram: terms.vram, gpus: terms.gpus, time: terms.time };
      return id;
    }
  });
}
