// What a job puts out, in its order and in bounded height: text as a terminal shows it, rich outputs between.

import * as React from 'react';

import { h } from './element';
import { Part } from './folding';
import { useStore } from './hooks';
import { useOutputs } from './reading';
import { RichOutput } from './richoutput';
import { Piece, Terminal } from './terminal';
import { trans } from './translation';
import { JobView } from './wire';

interface Props {
  view: JobView;
  trusted: boolean;
  following: boolean;
  /** Called when the user scrolls away from the end, or back to it. */
  onFollow: (following: boolean) => void;
  /** As a document of its own: more of it, in whatever height there is. */
  whole?: boolean;
  /** Where there is such a document: opens it. */
  openWhole?: () => void;
}

export function Outputs({ view, trusted, following, onFollow, whole = false, openWhole }: Props): JSX.Element {
  const box = React.useRef<HTMLDivElement>(null);
  // What could act in this page would act as whoever looks: of another user's job, which an administrator sees, it must not.
  const own = useStore().health?.user === view.user;
  const { folding, shortened } = useOutputs(view, box, whole);
  React.useLayoutEffect(() => {
    if (box.current && following) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  });
  const scrolled = (event: React.UIEvent<HTMLDivElement>): void => {
    const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
    const atEnd = scrollHeight - scrollTop - clientHeight < 8;
    if (atEnd !== following) {
      onFollow(atEnd);
    }
  };
  const empty = folding.parts.every(part => part.kind === 'text' && part.terminal.empty);
  return (
    <div
      ref={box}
      className={`gpusched-log${empty ? ' gpusched-empty' : ''}${whole ? ' gpusched-whole' : ''}`}
      role="log"
      aria-live="off"
      aria-label={trans.__('Output of job %1', view.id)}
      tabIndex={empty ? -1 : 0}
      onScroll={scrolled}
      data-testid="gpusched-log"
    >
      {(shortened || folding.shortened) && (
        <div className="gpusched-facts">
          {trans.__('Earlier output is left out here.')}{' '}
          {openWhole && (
            <button type="button" className="gpusched-link" onClick={openWhole} data-testid="gpusched-open-whole">
              {trans.__('Show the output in a tab')}
            </button>
          )}
        </div>
      )}
      {folding.parts.map((part, index) => (
        <React.Fragment key={part.key}>
          <CellLabel part={part} before={folding.parts[index - 1]} />
          {part.kind === 'text' ? (
            <Text terminal={part.terminal} />
          ) : (
            <RichOutput output={part.output} trusted={trusted && own} />
          )}
        </React.Fragment>
      ))}
    </div>
  );
}

/** In the outputs of a notebook job: which of its code cells speaks. */
function CellLabel({ part, before }: { part: Part; before: Part | undefined }): JSX.Element | null {
  return part.cell === null || part.cell === before?.cell ? null : (
    <div className="gpusched-cell">{trans.__('Cell %1', part.cell)}</div>
  );
}

function Text({ terminal }: { terminal: Terminal }): JSX.Element {
  return (
    <div className="jp-RenderedText">
      <pre>{terminal.lines().map(lineOf)}</pre>
    </div>
  );
}

function lineOf(line: Piece[], row: number, all: Piece[][]): JSX.Element {
  return (
    <React.Fragment key={row}>
      {line.map((piece, column) =>
        piece.classes || piece.colour || piece.background ? (
          <span key={column} className={piece.classes} style={{ color: piece.colour ?? '', background: piece.background ?? '' }}>
            {piece.text}
          </span>
        ) : (
          piece.text
        )
      )}
      {row < all.length - 1 && '\n'}
    </React.Fragment>
  );
}
