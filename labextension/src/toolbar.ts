// "Run cell as GPU job" in the toolbars of notebook and cell and in the command palette.
// Writes the magic line into the cell, so that the notebook says what was done, and runs the cell.

import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, showDialog } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ITranslator } from '@jupyterlab/translation';

import { runOnGpuIcon } from './runicon';
import { askForTerms } from './jobform';
import { isLoaded, LOAD, readCell, writeCell } from './magicline';
import { NO_TERMS, Terms } from './terms';
import { speak, trans } from './translation';

const COMMAND = 'gpusched:run-cell';
const LOAD_QUIETLY = "get_ipython().extension_manager.load_extension('jupyter_gpusched')";

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpusched:toolbar',
  description: 'Runs the current cell as a GPU job.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    notebooks: INotebookTracker,
    translator: ITranslator | null,
    palette: ICommandPalette | null
  ) => {
    speak(translator);
    let last = NO_TERMS;
    app.commands.addCommand(COMMAND, {
      label: trans.__('Run cell as GPU job…'),
      caption: trans.__('Queue this cell for a GPU: asks for VRAM, GPUs, time and name'),
      icon: runOnGpuIcon,
      isEnabled: () => canRun(notebooks.currentWidget),
      describedBy: { args: { type: 'object', properties: {} } },
      execute: async () => {
        const panel = notebooks.currentWidget;
        if (panel && canRun(panel)) {
          last = (await runAsJob(app, panel, last)) ?? last;
        }
      }
    });
    notebooks.activeCellChanged.connect(() => app.commands.notifyCommandChanged(COMMAND));
    palette?.addItem({ command: COMMAND, category: trans.__('GPU Jobs') });
  }
};

/** A code cell of a notebook in Python, or in one that does not say yet. */
function canRun(panel: NotebookPanel | null): panel is NotebookPanel {
  const language = panel?.model?.defaultKernelLanguage ?? '';
  return panel?.content.activeCell?.model.type === 'code' && (!language || language.includes('python'));
}

/** The terms that were given, or null when nothing was run. */
async function runAsJob(app: JupyterFrontEnd, panel: NotebookPanel, last: Terms): Promise<Terms | null> {
  const cell = panel.content.activeCell;
  const read = cell && readCell(cell.model.sharedModel.getSource());
  if (!cell || !read) {
    await sayCannot();
    return null;
  }
  const isNew = !cell.model.sharedModel.getSource().trimStart().startsWith('%%');
  const terms = await askForTerms(isNew ? { ...last, name: '' } : read.terms);
  if (!terms || cell.isDisposed) {
    return null;
  }
  cell.model.sharedModel.setSource(writeCell(read, terms));
  await makeMagicKnown(app, panel, panel.content.widgets.indexOf(cell));
  panel.content.activeCellIndex = panel.content.widgets.indexOf(cell);
  await app.commands.execute('notebook:run-cell');
  return terms;
}

/** The notebook is to work when it is run from the top, and this kernel may have started since. */
async function makeMagicKnown(app: JupyterFrontEnd, panel: NotebookPanel, index: number): Promise<void> {
  const above = panel.content.widgets.slice(0, index).map(cell => cell.model.sharedModel.getSource());
  if (isLoaded(above)) {
    panel.sessionContext.session?.kernel?.requestExecute({ code: LOAD_QUIETLY, silent: true, store_history: false });
    return;
  }
  panel.model?.sharedModel.insertCell(index, { cell_type: 'code', source: LOAD, metadata: { trusted: true } });
  panel.content.activeCellIndex = index;
  await app.commands.execute('notebook:run-cell');
}

async function sayCannot(): Promise<void> {
  await showDialog({
    title: trans.__('Run cell as GPU job'),
    body: trans.__('This cell begins with another cell magic. Remove that line, or move the code into a cell of its own.'),
    buttons: [Dialog.okButton({ label: trans.__('OK') })]
  });
}

export default plugin;
