// What can be done with a job from its card. What comes and goes with its phase stands before what stays, so that the
// end of a job moves no button from under the pointer.

import { Clipboard } from '@jupyterlab/apputils';
import { addBelowIcon, copyIcon, LabIcon, moveDownIcon, refreshIcon, terminalIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { releaseAll } from './acts';
import { CancelButton } from './cancel';
import { h } from './element';
import { openLog } from './logview';
import { insertBelow, page } from './page';
import { trans } from './translation';
import { JobView } from './wire';
import { isFinal, isHeld } from './words';

const GIVES_RESULTS = new Set(['cell', 'function', 'notebook']);

interface Props {
  view: JobView;
  trusted: boolean;
  following: boolean;
  onFollow: (following: boolean) => void;
  resubmitting: boolean;
  onResubmit: () => void;
}

export function Actions({ view, trusted, following, onFollow, resubmitting, onResubmit }: Props): JSX.Element {
  const [copied, setCopied] = React.useState(false);
  const box = React.useRef<HTMLDivElement>(null);
  const copy = (): void => {
    Clipboard.copyToSystem(view.id);
    setCopied(true);
  };
  const over = isFinal(view);
  const begun = view.attempts.length > 0;
  const hasResults = view.phase === 'succeeded' && GIVES_RESULTS.has(view.kind) && page.notebooks !== null;
  return (
    <div className="gpusched-actions" ref={box} role="group" aria-label={trans.__('Actions for job %1', view.id)}>
      <CancelButton view={view} />
      {isHeld(view) && (
        <button
          type="button"
          className="gpusched-button"
          onClick={() => void releaseAll([view])}
          aria-label={trans.__('Release job %1', view.id)}
          data-testid="gpusched-release"
        >
          {trans.__('Release')}
        </button>
      )}
      {!over && begun && (
        <IconButton
          icon={moveDownIcon}
          name="follow"
          label={trans.__('Follow the output')}
          pressed={following}
          onClick={() => onFollow(!following)}
        />
      )}
      {hasResults && (
        <IconButton
          icon={addBelowIcon}
          name="fetch"
          label={trans.__('Insert a cell that fetches the result')}
          onClick={() => box.current && insertBelow(box.current, `%gpuresult ${view.id}`)}
        />
      )}
      {begun && (
        <IconButton
          icon={terminalIcon}
          name="open-log"
          label={trans.__('Open the output in a tab')}
          onClick={() => openLog(view.id, view.name, trusted)}
        />
      )}
      <IconButton
        icon={copyIcon}
        name="copy"
        label={copied ? trans.__('Copied: %1', view.id) : trans.__('Copy the id')}
        onClick={copy}
      />
      <IconButton
        icon={refreshIcon}
        name="resubmit"
        label={trans.__('Run again…')}
        pressed={resubmitting}
        onClick={onResubmit}
      />
    </div>
  );
}

interface IconButtonProps {
  icon: LabIcon;
  name: string;
  label: string;
  pressed?: boolean;
  onClick: () => void;
}

export function IconButton({ icon, name, label, pressed, onClick }: IconButtonProps): JSX.Element {
  return (
    <button
      className="gpusched-icon"
      title={label}
      aria-label={label}
      aria-pressed={pressed}
      onClick={onClick}
      data-testid={`gpusched-${name}`}
    >
      <icon.react tag="span" width="14px" height="14px" />
    </button>
  );
}
