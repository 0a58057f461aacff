// The pages of a tab in the main area, by name; arrow keys go from one to the next.

import * as React from 'react';

import { h } from './element';

interface Props<Page extends string> {
  pages: readonly Page[];
  page: Page;
  go: (page: Page) => void;
  nameOf: (page: Page) => string;
}

export function Tabs<Page extends string>({ pages, page, go, nameOf }: Props<Page>): JSX.Element {
  const row = React.useRef<HTMLDivElement>(null);
  const turn = (event: React.KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      const at = (pages.indexOf(page) + step + pages.length) % pages.length;
      go(pages[at] ?? page);
      (row.current?.children[at] as HTMLElement | undefined)?.focus();
    }
  };
  return (
    <div ref={row} className="gpusched-tabs" role="tablist" onKeyDown={turn}>
      {pages.map(each => (
        <button
          key={each}
          type="button"
          role="tab"
          aria-selected={each === page}
          tabIndex={each === page ? 0 : -1}
          onClick={() => go(each)}
          data-testid={`gpusched-tab-${each}`}
        >
          {nameOf(each)}
        </button>
      ))}
    </div>
  );
}
