// What each user had, as a table in any order, and as CSV. Pure.

import { trans } from './translation';
import { UserReport } from './wire';
import { seconds } from './words';

export interface Column {
  readonly name: string;
  readonly figure: boolean;
  /** What is sorted by and goes into the CSV; null where there is nothing to tell. */
  readonly value: (one: UserReport) => string | number | null;
  readonly shown: (one: UserReport) => string;
}

export function columns(): Column[] {
  const count = (name: string, value: (one: UserReport) => number): Column => ({
    name, figure: true, value, shown: one => String(value(one))
  });
  const span = (name: string, value: (one: UserReport) => number | null): Column => {
    const shown = (one: UserReport): string => {
      const length = value(one);
      return length === null ? trans.__('n/a') : seconds(length);
    };
    return { name, figure: true, value, shown };
  };
  const part = (share: number | null): string => (share === null ? trans.__('n/a') : `${Math.round(share * 100)} %`);
  return [
    { name: trans.__('User'), figure: false, value: one => one.user, shown: one => one.user },
    { ...count(trans.__('GPU hours'), one => one.gpu_hours), shown: one => one.gpu_hours.toFixed(1) },
    { name: trans.__('Idle'), figure: true, value: one => one.idle_share, shown: one => part(one.idle_share) },
    count(trans.__('Jobs'), one => one.jobs),
    count(trans.__('Failed'), one => one.failed + one.timeout + one.lost),
    count(trans.__('Running'), one => one.running),
    count(trans.__('Waiting'), one => one.queued),
    span(trans.__('Mean wait'), one => one.mean_wait_s),
    span(trans.__('Longest wait'), one => one.longest_wait_s)
  ];
}

/** By one column; those without a value come last in either direction, equals by name. */
export function sorted(items: readonly UserReport[], by: Column | undefined, down: boolean): UserReport[] {
  const value = by?.value ?? (() => null);
  return [...items].sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left === null || right === null) {
      return Number(left === null) - Number(right === null) || compared(a.user, b.user);
    }
    return (down ? -1 : 1) * compared(left, right) || compared(a.user, b.user);
  });
}

function compared(a: string | number, b: string | number): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The values themselves, waits in seconds; a name that a spreadsheet would take for a formula is kept from being one. */
export function csv(items: readonly UserReport[]): string {
  const rows = [columns().map(({ name }) => name), ...items.map(one => columns().map(({ value }) => value(one) ?? ''))];
  return rows.map(row => `${row.map(cell).join(',')}\r\n`).join('');
}

function cell(value: string | number): string {
  if (typeof value === 'number') {
    return String(value);
  }
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
