// A small line of what was: drawn to its box, with a word for those who do not see it.

import * as React from 'react';

import { h } from './element';

export interface Point {
  readonly at: number;
  readonly value: number | null;
}

const WIDTH = 100;
const HEIGHT = 20;

/** `from` to `to` in seconds; values from 0 to `most`. Where a value is missing the line has a gap. */
export function Sparkline(props: {
  points: readonly Point[];
  from: number;
  to: number;
  most: number;
  label: string;
  className?: string;
}): JSX.Element {
  const lines = linesOf(props.points, props.from, props.to, props.most);
  return (
    <svg
      className={`gpusched-sparkline ${props.className ?? ''}`}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={props.label}
    >
      {lines.map((line, number) => (
        <React.Fragment key={number}>
          <path className="gpusched-sparkline-area" d={`${line.path}L${line.end} ${HEIGHT}L${line.start} ${HEIGHT}Z`} />
          <path className="gpusched-sparkline-line" d={line.path} vectorEffect="non-scaling-stroke" />
        </React.Fragment>
      ))}
    </svg>
  );
}

interface Line {
  path: string;
  start: number;
  end: number;
}

function linesOf(points: readonly Point[], from: number, to: number, most: number): Line[] {
  const lines: Line[] = [];
  let line: Line | null = null;
  for (const { at, value } of points) {
    if (value === null || at < from) {
      line = null;
      continue;
    }
    const x = round((WIDTH * (at - from)) / Math.max(1, to - from));
    const y = round(HEIGHT - 0.5 - (HEIGHT - 1) * Math.min(1, Math.max(0, value / Math.max(1, most))));
    if (line === null) {
      line = { path: `M${x} ${y}`, start: x, end: x };
      lines.push(line);
    } else {
      line.path += `L${x} ${y}`;
      line.end = x;
    }
  }
  return lines;
}

function round(amount: number): number {
  return Math.round(amount * 100) / 100;
}
