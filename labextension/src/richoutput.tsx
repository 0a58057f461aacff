// One rich output of a job (a plot, HTML, a table, an error with its traceback), drawn by JupyterLab's own
// renderers and only as far as its trust rules let the notebook around it: in one that nobody has trusted,
// what could act is shown in its harmless form or not at all.

import { OutputModel } from '@jupyterlab/rendermime';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { JobOutput } from './api';
import { h } from './element';
import { page } from './page';
import { trans } from './translation';

// A card within its own job's card would never end, and widgets need the kernel that is gone.
const LEFT_OUT = ['application/vnd.gpusched.job+json', 'application/vnd.jupyter.widget-view+json'];

export function RichOutput({ output, trusted }: { output: JobOutput; trusted: boolean }): JSX.Element {
  const box = React.useRef<HTMLDivElement>(null);
  const [mime, setMime] = React.useState<string | null>('');
  // A layout effect: its cleanup runs while the node is still in the page, as Lumino demands of a widget that goes.
  React.useLayoutEffect(() => {
    const drawn = draw(output, trusted);
    setMime(drawn?.mime ?? null);
    if (drawn && box.current?.isConnected) {
      Widget.attach(drawn.widget, box.current);
    }
    return () => drawn?.widget.dispose();
  }, [output, trusted]);
  return (
    <div className="gpusched-rich jp-OutputArea-output" ref={box} data-testid="gpusched-rich" data-mime={mime}>
      {mime === null && <span className="gpusched-facts">{trans.__('An output that cannot be shown here.')}</span>}
    </div>
  );
}

function draw(output: JobOutput, trusted: boolean): { mime: string; widget: Widget } | null {
  const model = new OutputModel({ value: harmless(output), trusted });
  const mime = page.rendermime?.preferredMimeType(model.data, trusted ? 'any' : 'ensure');
  if (!mime || !page.rendermime) {
    return null;
  }
  const renderer = page.rendermime.createRenderer(mime);
  renderer.addClass('jp-OutputArea-output');
  renderer.renderModel(model).catch((error: unknown) => {
    renderer.node.textContent = error instanceof Error ? error.message : String(error);
  });
  return { mime, widget: renderer };
}

function harmless(output: JobOutput): JobOutput {
  if (!output['data']) {
    return output;
  }
  const kept = Object.entries(output['data']).filter(([mime]) => !LEFT_OUT.includes(mime));
  return { ...output, data: Object.fromEntries(kept) };
}
