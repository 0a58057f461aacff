// The output of a job as a document of its own, read only: as much as a tab can bear, and a link to all of it.

import { MainAreaWidget } from '@jupyterlab/apputils';
import { terminalIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { logUrl } from './api';
import { h } from './element';
import { usePart } from './hooks';
import { LiveWidget } from './live';
import { Outputs } from './outputs';
import { page } from './page';
import { store } from './store';
import { trans } from './translation';

/** Open it in the page, or where that has no room for it as a tab of the browser. */
export function openLog(id: string, name: string, trusted: boolean): void {
  const content = new Document(id, trusted);
  const widget = new MainAreaWidget({ content });
  widget.id = `gpusched-log-${id}`;
  widget.title.label = name;
  widget.title.caption = trans.__('Output of job %1', id);
  widget.title.icon = terminalIcon;
  widget.title.closable = true;
  if (!page.open(widget)) {
    widget.dispose();
    window.open(logUrl(id), '_blank', 'noopener');
  }
}

class Document extends LiveWidget {
  constructor(
    private readonly _id: string,
    private readonly _trusted: boolean
  ) {
    super();
    this.addClass('gpusched-document');
  }

  protected draw(): JSX.Element {
    return <Log id={this._id} trusted={this._trusted} />;
  }
}

function Log({ id, trusted }: { id: string; trusted: boolean }): JSX.Element {
  const [following, setFollowing] = React.useState(true);
  React.useEffect(() => store.want(id), [id]);
  const view = usePart(({ jobs }) => jobs.get(id));
  return (
    <div className="gpusched-whole-log" data-testid="gpusched-document">
      <div className="gpusched-row gpusched-facts">
        <code>{id}</code>
        <span>{view?.name}</span>
        <span className="gpusched-space" />
        <a href={logUrl(id)} target="_blank" rel="noopener" download={`job-${id}.log`}>
          {trans.__('Download all of it')}
        </a>
      </div>
      {view && <Outputs view={view} trusted={trusted} following={following} onFollow={setFollowing} whole />}
    </div>
  );
}
