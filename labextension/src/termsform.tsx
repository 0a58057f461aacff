// The fields for the terms of a job, and a dialog that asks until they can be taken.

import { Dialog, showDialog } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { wordsOf } from './acts';
import { h } from './element';
import { Terms } from './terms';
import { trans } from './translation';

interface FieldProps {
  name: string;
  label: string;
  example: string;
  value: string;
  onChange: (value: string) => void;
}

export function Field({ name, label, example, value, onChange }: FieldProps): JSX.Element {
  return (
    <label className={`gpusched-field gpusched-field-${name}`}>
      <span>{label}</span>
      <input
        className="jp-mod-styled"
        name={name}
        value={value}
        placeholder={example}
        spellCheck={false}
        data-testid={`gpusched-term-${name}`}
        onChange={event => onChange(event.target.value)}
      />
    </label>
  );
}

/** `unnamed`: whence a job has its name that is given none. */
export function TermsFields<Some extends Terms>(props: {
  terms: Some;
  onChange: (terms: Some) => void;
  unnamed?: string;
}): JSX.Element {
  const field = (name: keyof Terms, label: string, example: string): JSX.Element => (
    <Field
      {...{ name, label, example }}
      value={props.terms[name]}
      onChange={value => props.onChange({ ...props.terms, [name]: value })}
    />
  );
  return (
    <div className="gpusched-terms">
      {field('vram', trans.__('VRAM per GPU'), trans.__('whole GPU'))}
      {field('gpus', trans.__('Number of GPUs'), '1')}
      {field('time', trans.__('Time limit'), trans.__('none'))}
      {field('name', trans.__('Name'), props.unnamed ?? trans.__('from the code'))}
    </div>
  );
}

interface Question<Given, Taken> {
  readonly title: string;
  /** What the button says that sends it. */
  readonly send: string;
  /** The field that the keys are in at first. */
  readonly first: string;
  readonly given: Given;
  readonly draw: (given: Given, change: (given: Given) => void) => JSX.Element;
  /** Do with it what is to be done; raises in a sentence why that cannot be. */
  readonly take: (given: Given) => Promise<Taken>;
}

/** What came of it, or null when the user would rather not. */
export async function askUntilTaken<Given, Taken>(question: Question<Given, Taken>): Promise<Taken | null> {
  let { given } = question;
  let wrong = '';
  for (;;) {
    const { button, value } = await showDialog<Given>({
      title: question.title,
      body: new Form(question, given, wrong),
      focusNodeSelector: `input[name="${question.first}"]`,
      buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.okButton({ label: question.send })]
    });
    if (!button.accept || !value) {
      return null;
    }
    given = value;
    try {
      return await question.take(given);
    } catch (error) {
      wrong = wordsOf(error);
    }
  }
}

class Form<Given> extends ReactWidget implements Dialog.IBodyWidget<Given> {
  constructor(
    private readonly _question: Question<Given, unknown>,
    private _given: Given,
    private readonly _wrong: string
  ) {
    super();
    this.addClass('gpusched-form');
  }

  getValue(): Given {
    return this._given;
  }

  protected render(): JSX.Element {
    return (
      <Fields
        question={this._question}
        given={this._given}
        wrong={this._wrong}
        onChange={given => (this._given = given)}
      />
    );
  }
}

function Fields<Given>(props: {
  question: Question<Given, unknown>;
  given: Given;
  wrong: string;
  onChange: (given: Given) => void;
}): JSX.Element {
  const [given, setGiven] = React.useState(props.given);
  const form = React.useRef<HTMLDivElement>(null);
  const change = (changed: Given): void => {
    setGiven(changed);
    props.onChange(changed);
  };
  // As soon as there are fields: the dialog itself waits until the page is idle, and keys would go to the notebook.
  React.useLayoutEffect(() => {
    form.current?.querySelector<HTMLInputElement>(`input[name="${props.question.first}"]`)?.focus();
  }, [props.question.first]);
  return (
    <div ref={form} data-testid="gpusched-form">
      {props.question.draw(given, change)}
      {props.wrong && (
        <div className="gpusched-trouble" role="alert">
          {props.wrong}
        </div>
      )}
    </div>
  );
}
