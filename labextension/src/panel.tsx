// The sidebar panel: alerts on top, the cards, and the queue; asks for nothing while it is hidden.

import { SidePanel } from '@jupyterlab/ui-components';
import { Message, MessageLoop } from '@lumino/messaging';
import { AccordionPanel, PanelLayout, Widget } from '@lumino/widgets';

import { Alerts } from './alerts';
import { Bars } from './bars';
import { h } from './element';
import { HostLine } from './hostline';
import { useNow, useStore } from './hooks';
import { gpuIcon } from './icons';
import { LiveWidget } from './live';
import { Queue } from './queue';
import { ownJobs } from './state';
import { trans } from './translation';

type Open = (id: string) => void;

export interface PanelDoors {
  readonly details: Open;
  readonly administer: () => void;
}

export class Panel extends SidePanel {
  constructor({ details: open, administer }: PanelDoors) {
    super();
    this.id = 'jupyter-gpusched-panel';
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPUs and jobs');
    this.addClass('gpusched-panel');
    this.node.dataset['testid'] = 'gpusched-panel';
    this.node.setAttribute('role', 'region');
    this.node.tabIndex = -1;
    this.node.setAttribute('aria-label', trans.__('GPUs and jobs'));
    this.header.addWidget(new Part('', () => <AlertPart open={open} />));
    this.addWidget(new Part(trans.__('GPUs'), () => <GpuPart open={open} />));
    this.addWidget(new Part(trans.__('Jobs'), () => <JobPart open={open} />));
    if (this.content instanceof AccordionPanel) {
      this.content.setRelativeSizes([2, 3]);
    }
    const foot = new Part('', () => <FootPart administer={administer} />);
    foot.addClass('gpusched-foot');
    (this.layout as PanelLayout).addWidget(foot);
    this._follow([this.header, foot]);
  }

  dispose(): void {
    this._observer?.disconnect();
    super.dispose();
  }

  /** Whoever comes by a key goes on from here by keys. */
  protected onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.focus({ preventScroll: true });
  }

  /** What stands above and below the sections grows and shrinks; they have to be told that their room has changed. */
  private _follow(around: readonly Widget[]): void {
    this._observer = new ResizeObserver(() => MessageLoop.postMessage(this.content, Widget.ResizeMessage.UnknownSize));
    around.forEach(widget => this._observer?.observe(widget.node));
  }

  private _observer?: ResizeObserver;
}

class Part extends LiveWidget {
  constructor(
    label: string,
    private readonly _draw: () => JSX.Element
  ) {
    super();
    this.title.label = label;
    this.addClass('gpusched-part-of-panel');
  }

  protected draw(): JSX.Element {
    return this._draw();
  }
}

function AlertPart({ open }: { open: Open }): JSX.Element {
  const state = useStore();
  const now = useNow(state.alerts.length > 0);
  return <Alerts state={state} now={now} open={open} />;
}

function FootPart({ administer }: { administer: () => void }): JSX.Element | null {
  const { health } = useStore();
  return health && <HostLine health={health} administer={administer} />;
}

function GpuPart({ open }: { open: Open }): JSX.Element | null {
  const state = useStore();
  return state.known ? <Bars state={state} open={open} /> : null;
}

function JobPart({ open }: { open: Open }): JSX.Element | null {
  const state = useStore();
  return state.known ? <Queue jobs={ownJobs(state)} older={state.older} open={open} /> : null;
}
