// The plugin around the panel: sidebar, details, status bar, commands, menus, launcher, settings, notifications.

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, WidgetTracker } from '@jupyterlab/apputils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';

import { Administration } from './administration';
import { isJobId } from './api';
import { addCommands, CommandIds } from './commands';
import { addContextMenu } from './contextmenu';
import { Details } from './details';
import { EndTeller, Wishes } from './ended';
import { Panel } from './panel';
import { loadSettings } from './settings';
import { StatusItem } from './statusbar';
import { speak, trans } from './translation';

const ID = 'jupyter-gpusched:plugin';

export const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'GPUs and jobs: sidebar panel, details, status bar, commands and notifications.',
  autoStart: true,
  optional: [
    ITranslator,
    ILayoutRestorer,
    ICommandPalette,
    ILauncher,
    IDefaultFileBrowser,
    IStatusBar,
    ISettingRegistry
  ],
  activate
};

function activate(
  app: JupyterFrontEnd,
  translator: ITranslator | null,
  restorer: ILayoutRestorer | null,
  palette: ICommandPalette | null,
  launcher: ILauncher | null,
  files: IDefaultFileBrowser | null,
  statusBar: IStatusBar | null,
  settings: ISettingRegistry | null
): void {
  speak(translator);
  const details = openerOfDetails(app, restorer);
  const administer = openerOfAdministration(app, restorer, details);
  const panel = new Panel({ details, administer });
  const showPanel = (): void => app.shell.activateById(panel.id);
  restorer?.add(panel, panel.id);
  app.shell.add(panel, 'left', { rank: 550 });

  addCommands(app, { panel: showPanel, details, administer, files });
  addContextMenu(app, details);
  const category = trans.__('GPU Jobs');
  for (const command of [CommandIds.panel, CommandIds.submitCommand, CommandIds.administer]) {
    palette?.addItem({ command, category, args: { isPalette: true } });
  }
  launcher?.add({ command: CommandIds.submitCommand, category: trans.__('Other'), rank: 50 });

  const teller = new EndTeller(details);
  const status = statusBar ? switchOf(() => registered(statusBar, showPanel)) : null;
  const take = (found: Record<string, unknown>): void => {
    status?.(found['statusBar'] !== false);
    const notify = found['notify'];
    teller.wishes = {
      notify: notify === 'failed' || notify === 'none' ? notify : 'all',
      browser: found['browserNotifications'] === true
    } satisfies Wishes;
  };
  if (!settings) {
    take({});
    return;
  }
  loadSettings(settings, ID).then(
    loaded => {
      take(loaded.composite);
      loaded.changed.connect(() => take(loaded.composite));
    },
    (error: unknown) => {
      console.debug('jupyter-gpusched: without settings', error);
      take({});
    }
  );
}

/** Opens the details of a job, one tab for each; they come back with the layout. */
function openerOfDetails(app: JupyterFrontEnd, restorer: ILayoutRestorer | null): (id: string) => void {
  const tracker = new WidgetTracker<Details>({ namespace: 'gpusched-details' });
  void restorer?.restore(tracker, {
    command: CommandIds.details,
    args: widget => ({ id: widget.jobId }),
    name: widget => widget.jobId
  });
  return id => {
    if (!isJobId(id)) {
      return;
    }
    const open = tracker.find(widget => widget.jobId === id) ?? new Details(id);
    if (!open.isAttached) {
      app.shell.add(open, 'main');
      void tracker.add(open);
    }
    app.shell.activateById(open.id);
  };
}

/** One tab for the whole machine; it comes back with the layout too. */
function openerOfAdministration(
  app: JupyterFrontEnd,
  restorer: ILayoutRestorer | null,
  details: (id: string) => void
): () => void {
  const tracker = new WidgetTracker<Administration>({ namespace: 'gpusched-administration' });
  void restorer?.restore(tracker, { command: CommandIds.administer, name: () => 'administration' });
  return () => {
    const open = tracker.currentWidget ?? new Administration(details);
    if (!open.isAttached) {
      app.shell.add(open, 'main');
      void tracker.add(open);
    }
    app.shell.activateById(open.id);
  };
}

function registered(statusBar: IStatusBar, open: () => void): IDisposable {
  return statusBar.registerStatusItem('jupyter-gpusched:status', {
    item: new StatusItem(open),
    align: 'left',
    rank: 20
  });
}

/** Something that is there or not, as often as it is wished otherwise. */
function switchOf(make: () => IDisposable): (wanted: boolean) => void {
  let made: IDisposable | null = null;
  return wanted => {
    if (wanted) {
      made ??= make();
    } else {
      made?.dispose();
      made = null;
    }
  };
}
