// The form behind "Run cell as GPU job": a dialog that asks for the terms until they can be read.

import { Dialog, showDialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { runOnGpuIcon } from './runicon';
import { fault, Terms, TermsFields, trimmed } from './terms';
import { trans } from './translation';

/** The terms that the user gives, or null when they change their mind. */
export async function askForTerms(before: Terms): Promise<Terms | null> {
  let terms = before;
  let wrong = '';
  for (;;) {
    const { button, value } = await showDialog<Terms>({
      title: trans.__('Run cell as GPU job'),
      body: new Form(terms, wrong),
      focusNodeSelector: '[data-testid="gpusched-term-vram"]',
      buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.okButton({ label: trans.__('Run') })]
    });
    if (!button.accept || !value) {
      return null;
    }
    terms = trimmed(value);
    wrong = fault(terms);
    if (!wrong) {
      return terms;
    }
  }
}

class Form extends ReactWidget implements Dialog.IBodyWidget<Terms> {
  constructor(
    private _terms: Terms,
    private _wrong: string
  ) {
    super();
    this.addClass('gpusched-form');
  }

  getValue(): Terms {
    return this._terms;
  }

  protected render(): JSX.Element {
    return <Fields terms={this._terms} wrong={this._wrong} onChange={terms => (this._terms = terms)} />;
  }
}

function Fields(props: { terms: Terms; wrong: string; onChange: (terms: Terms) => void }): JSX.Element {
  const [terms, setTerms] = React.useState(props.terms);
  const change = (changed: Terms): void => {
    setTerms(changed);
    props.onChange(changed);
  };
  return (
    <div data-testid="gpusched-form">
      <p className="gpusched-lead">
        <runOnGpuIcon.react tag="span" width="16px" height="16px" />
        {trans.__('The cell gets a line %1 with what you give here, and runs as a job of its own.', '%%gpujob')}
      </p>
      <TermsFields terms={terms} onChange={change} />
      {props.wrong && (
        <div className="gpusched-trouble" role="alert">
          {props.wrong}
        </div>
      )}
    </div>
  );
}
