// Waiting rows are dragged before and after each other, whether they are of jobs or of arrays.

import * as React from 'react';

import { moveTo } from './acts';

const DRAGGED = 'application/x-gpusched-job';

interface Drag {
  readonly over: 'before' | 'after' | null;
  readonly handlers: React.HTMLAttributes<HTMLElement>;
}

/** `id`: of the row's job or array; `say` tells what came of it. */
export function useDrag(id: string, waiting: boolean, say: (words: string) => void): Drag {
  const [over, setOver] = React.useState<Drag['over']>(null);
  if (!waiting) {
    return { over: null, handlers: {} };
  }
  const side = (event: React.DragEvent): 'before' | 'after' => {
    const { top, height } = event.currentTarget.getBoundingClientRect();
    return event.clientY < top + height / 2 ? 'before' : 'after';
  };
  return {
    over,
    handlers: {
      draggable: true,
      onDragStart: event => {
        event.dataTransfer.setData(DRAGGED, id);
        event.dataTransfer.effectAllowed = 'move';
      },
      onDragOver: event => {
        if (event.dataTransfer.types.includes(DRAGGED)) {
          event.preventDefault();
          setOver(side(event));
        }
      },
      onDragLeave: () => setOver(null),
      onDrop: event => {
        event.preventDefault();
        setOver(null);
        const dragged = event.dataTransfer.getData(DRAGGED);
        if (dragged && dragged !== id) {
          void moveTo(dragged, id, side(event)).then(say);
        }
      }
    }
  };
}
