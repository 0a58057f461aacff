// Something that is asked for while somebody sees it, once or again and again, and the last answer to it.

import * as React from 'react';

import { wordsOf } from './acts';
import { Shown } from './hooks';

export interface Answered<Answer> {
  readonly answer: Answer | null;
  readonly trouble: string | null;
  readonly ask: () => void;
}

/** Asks when it can be seen and when `question` is another one; with `everyMs` again after each answer. */
export function useAnswer<Answer>(question: () => Promise<Answer>, everyMs = 0): Answered<Answer> {
  const [found, setFound] = React.useState<{ answer: Answer | null; trouble: string | null }>({ answer: null, trouble: null });
  const [times, setTimes] = React.useState(0);
  const active = React.useContext(Shown);
  React.useEffect(() => {
    if (!active) {
      return;
    }
    let timer = 0;
    let over = false;
    const ask = async (): Promise<void> => {
      try {
        const answer = document.hidden ? null : await question();
        if (!over && answer !== null) {
          setFound({ answer, trouble: null });
        }
      } catch (error) {
        if (!over) {
          setFound(({ answer }) => ({ answer, trouble: wordsOf(error) }));
        }
      }
      if (everyMs && !over) {
        timer = window.setTimeout(() => void ask(), everyMs);
      }
    };
    void ask();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [question, active, everyMs, times]);
  return { ...found, ask: () => setTimes(times + 1) };
}
