// The form behind "Run cell as GPU job".

import { h } from './element';
import { runOnGpuIcon } from './runicon';
import { fault, Terms, trimmed } from './terms';
import { askUntilTaken, TermsFields } from './termsform';
import { trans } from './translation';

/** The terms that the user gives, or null when they change their mind. */
export async function askForTerms(before: Terms): Promise<Terms | null> {
  return askUntilTaken({
    title: trans.__('Run cell as GPU job'),
    send: trans.__('Run'),
    first: 'vram',
    given: before,
    draw: (terms, change) => (
      <div>
        <p className="gpusched-lead">
          <runOnGpuIcon.react tag="span" width="16px" height="16px" />
          {trans.__('The cell gets a line %1 with what you give here, and runs as a job of its own.', '%%gpujob')}
        </p>
        <TermsFields terms={terms} onChange={change} />
      </div>
    ),
    take: async terms => {
      const wrong = fault(terms);
      if (wrong) {
        throw new Error(wrong);
      }
      return trimmed(terms);
    }
  });
}
