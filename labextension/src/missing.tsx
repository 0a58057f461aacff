// In the place of what is not there: why, or that it is on its way.

import { h } from './element';
import { trans } from './translation';

export function Missing({ trouble }: { trouble: string | null }): JSX.Element {
  return (
    <p className="gpusched-none" role="status">
      {trouble ?? trans.__('One moment.')}
    </p>
  );
}
