// What can be asked of us by palette, menus, launcher and keys.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { Notification } from '@jupyterlab/apputils';

import { gpuIcon } from './icons';
import { rootOfServer, submitCommand, submitFile } from './submit';
import { store } from './store';
import { trans } from './translation';

export const CommandIds = {
  panel: 'gpusched:open-panel',
  details: 'gpusched:open-job',
  administer: 'gpusched:administer',
  submitFile: 'gpusched:submit-file',
  submitCommand: 'gpusched:submit-command'
} as const;

interface Doors {
  panel: () => void;
  details: (id: string) => unknown;
  administer: () => void;
  files: IDefaultFileBrowser | null;
}

export function addCommands(app: JupyterFrontEnd, { panel, details, administer, files }: Doors): void {
  const { commands } = app;
  commands.addCommand(CommandIds.panel, {
    label: trans.__('Show GPUs and Jobs'),
    caption: trans.__('Who is on which GPU, and what waits'),
    icon: gpuIcon,
    execute: panel
  });
  commands.addCommand(CommandIds.details, {
    label: trans.__('Show GPU Job'),
    execute: args => (typeof args['id'] === 'string' ? details(args['id']) : undefined)
  });
  commands.addCommand(CommandIds.administer, {
    label: trans.__('Administer GPUs'),
    caption: trans.__("Maintenance, everybody's jobs, and what users had"),
    icon: gpuIcon,
    isVisible: () => store.state().health?.admin !== false,
    execute: administer
  });
  commands.addCommand(CommandIds.submitFile, {
    label: trans.__('Submit as GPU Job…'),
    caption: trans.__('Run this file on a GPU as soon as there is room'),
    icon: gpuIcon,
    isVisible: () => chosenFiles(files).length > 0,
    execute: async () => {
      for (const path of chosenFiles(files)) {
        queued(await submitFile(path), details);
      }
    }
  });
  commands.addCommand(CommandIds.submitCommand, {
    label: args => (args['isPalette'] || args['isMenu'] ? trans.__('New GPU Job…') : trans.__('GPU Job')),
    caption: trans.__('Queue a command for a GPU'),
    icon: args => (args['isPalette'] ? undefined : gpuIcon),
    execute: async args => {
      const cwd = typeof args['cwd'] === 'string' ? args['cwd'] : (files?.model.path ?? '');
      queued(await submitCommand(cwd), details);
    }
  });
}

function chosenFiles(files: IDefaultFileBrowser | null): string[] {
  const chosen = files && rootOfServer() !== null ? [...files.selectedItems()] : [];
  return chosen.map(item => item.path).filter(path => /\.(py|ipynb)$/.test(path));
}

function queued(id: string | null, details: (id: string) => unknown): void {
  if (id !== null) {
    Notification.info(trans.__('GPU job %1 is queued.', id), {
      autoClose: 3000,
      actions: [{ label: trans.__('Details'), callback: () => void details(id) }]
    });
  }
}
