// The plugin: puts the panel into the sidebar.

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import cardPlugin from './cardplugin';
import { Panel } from './panel';
import toolbarPlugin from './toolbar';

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpusched:plugin',
  description: 'GPUs and jobs in the sidebar.',
  autoStart: true,
  optional: [ILayoutRestorer],
  activate: (app: JupyterFrontEnd, restorer: ILayoutRestorer | null) => {
    const panel = new Panel();
    restorer?.add(panel, panel.id);
    app.shell.add(panel, 'left', { rank: 550 });
  }
};

export default [cardPlugin, plugin, toolbarPlugin];
