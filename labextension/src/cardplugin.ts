// Lends the page's renderers, notebooks and main area to the cards, and its language to all that we draw.

import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { page } from './page';
import { speak } from './translation';

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpusched:page',
  description: 'Lets job cards use the renderers, the notebook and the main area of the page.',
  autoStart: true,
  optional: [ITranslator, IRenderMimeRegistry, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    rendermime: IRenderMimeRegistry | null,
    notebooks: INotebookTracker | null
  ) => {
    speak(translator);
    page.rendermime = rendermime;
    page.notebooks = notebooks;
    page.open = widget => openIn(app, widget);
  }
};

/** Notebook 7 takes one document a tab and silently leaves out a second. */
function openIn(app: JupyterFrontEnd, widget: Widget): boolean {
  const open = [...app.shell.widgets('main')].find(found => found.id === widget.id);
  if (open) {
    app.shell.activateById(open.id);
    widget.dispose();
    return true;
  }
  app.shell.add(widget, 'main', { mode: 'split-bottom' });
  return widget.isAttached;
}

export default plugin;
