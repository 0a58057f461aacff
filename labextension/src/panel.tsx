// The sidebar panel: the cards above, the queue below, and whether they are live.

import { LabIcon, ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Bars } from './bars';
import { useStore } from './hooks';
import { Queue } from './queue';

const icon = new LabIcon({
  name: 'jupyter-gpusched:gpu',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">' +
    '<path class="jp-icon3" fill="#616161" d="M3 5h1v14H3zM5 7h16v9H5zm5 2a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z' +
    'm7 0a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM7 17h8v2H7z" fill-rule="evenodd"/></svg>'
});

export class Panel extends ReactWidget {
  constructor() {
    super();
    this.id = 'jupyter-gpusched-panel';
    this.title.icon = icon;
    this.title.caption = 'GPUs and jobs';
    this.addClass('gpusched-panel');
  }

  protected render(): JSX.Element {
    return <Contents />;
  }
}

function Contents(): JSX.Element {
  const state = useStore();
  return (
    <div className="gpusched-contents" data-testid="gpusched-panel">
      {!state.connected && <Unconnected known={state.known} />}
      {state.known && (
        <>
          <section aria-label="GPUs">
            <h2>GPUs</h2>
            <Bars gpus={state.gpus} cause={state.gpuCause} />
          </section>
          <section aria-label="Jobs">
            <h2>Jobs</h2>
            <Queue jobs={state.jobs} />
          </section>
        </>
      )}
    </div>
  );
}

function Unconnected({ known }: { known: boolean }): JSX.Element {
  return (
    <p className="gpusched-trouble" role="status" data-testid="gpusched-unconnected">
      {known ? 'Reconnecting; below is what was known last.' : 'Connecting to the GPU scheduler.'}
    </p>
  );
}
