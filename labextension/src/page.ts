// What the page around a card lends it: renderers, the notebook, and a place for whole logs.
// A card that is drawn where there is none of these shows less and still works.

import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { Widget } from '@lumino/widgets';

interface Page {
  rendermime: IRenderMimeRegistry | null;
  notebooks: INotebookTracker | null;
  /** Show a widget as a document of its own; false where there is no room for one. */
  open: (widget: Widget) => boolean;
}

export const page: Page = { rendermime: null, notebooks: null, open: () => false };

/** Put a code cell with this source below the cell that holds the node, ready to be run; false without a notebook. */
export function insertBelow(node: Node, source: string): boolean {
  const panel = page.notebooks?.find(found => found.node.contains(node)) ?? null;
  const index = panel ? cellOf(panel, node) : -1;
  if (!panel?.model || index < 0) {
    return false;
  }
  panel.model.sharedModel.insertCell(index + 1, { cell_type: 'code', source, metadata: { trusted: true } });
  panel.content.activeCellIndex = index + 1;
  return true;
}

function cellOf(panel: NotebookPanel, node: Node): number {
  return panel.content.widgets.findIndex(cell => cell.node.contains(node));
}
