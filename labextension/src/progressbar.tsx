// How far a job says it has come.

import { h } from './element';
import { trans } from './translation';
import { Progress } from './wire';
import { seconds } from './words';

export function ProgressBar({ progress }: { progress: Progress }): JSX.Element {
  const percent = progress.fraction === null ? null : Math.floor(100 * progress.fraction);
  const left = progress.remaining_s === null || progress.remaining_s < 1 ? '' : trans.__('about %1 to go', seconds(progress.remaining_s));
  const words = [percent === null ? '' : `${percent} %`, progress.text, left].filter(Boolean).join(' · ');
  return <Bar percent={percent} words={words} />;
}

/** How much is done, as a bar and in words; null where nobody can say. */
export function Bar({ percent, words }: { percent: number | null; words: string }): JSX.Element {
  return (
    <div className="gpusched-progress" data-testid="gpusched-progress">
      <div
        className="gpusched-track"
        role="progressbar"
        aria-label={trans.__('Progress')}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={percent ?? undefined}
        aria-valuetext={words}
      >
        <div
          className={`gpusched-fill${percent === null ? ' gpusched-unknown' : ''}`}
          style={{ width: percent === null ? '100%' : `${percent}%` }}
        />
      </div>
      <span className="gpusched-facts">{words}</span>
    </div>
  );
}
