// Buckets of one stream's past: their form, how newer ones are joined, and where they hold. Pure.

import { NS_PER_MS, numberOf } from "./contract";
import type { BucketHistory, Raw } from "./contract";
import { unitOf } from "../text/format";

/** The past of one stream, in buckets of `stepMs`; times are ms. NaN stands for no number. */
export interface Past {
  readonly unit: string;
  readonly stepMs: number;
  readonly intervalMs: number;
  /** The agent's time of the answer: the last bucket ends there at the latest. */
  readonly told: number;
  readonly ts: readonly number[];
  readonly count: readonly number[];
  /** The time in which known values held, in ns; 0 if it was not counted. */
  readonly held: readonly number[];
  readonly min: readonly number[];
  readonly max: readonly number[];
  readonly mean: readonly number[];
  readonly last: readonly number[];
}

const numbers = (column: readonly Raw[]): number[] => column.map(numberOf);

export function pastOf(one: BucketHistory, told: number): Past {
  return {
    unit: unitOf(one.name, one.unit),
    stepMs: one.step_ns / NS_PER_MS,
    intervalMs: one.interval_ns / NS_PER_MS,
    told,
    ts: one.ts.map((ts) => ts / NS_PER_MS),
    count: one.count,
    held: one.held_ns,
    min: numbers(one.min),
    max: numbers(one.max),
    mean: numbers(one.mean),
    last: numbers(one.last),
  };
}

const COLUMNS = ["ts", "count", "held", "min", "max", "mean", "last"] as const;
type Columns = Pick<Past, (typeof COLUMNS)[number]>;

function filtered(past: Past, wanted: (start: number) => boolean): Columns {
  const column = (name: (typeof COLUMNS)[number]) => past[name].filter((_, i) => wanted(past.ts[i] ?? 0));
  return Object.fromEntries(COLUMNS.map((name) => [name, column(name)])) as unknown as Columns;
}

/** The past without the buckets that end before `from`. */
export const cut = (past: Past, from: number): Past => ({ ...past, ...filtered(past, (start) => start + past.stepMs > from) });

/** Joins two pasts: the end of the old one is replaced by the fresh one. */
export function join(old: Past | undefined, fresh: Past): Past {
  if (old === undefined || old.stepMs !== fresh.stepMs) return fresh;
  const until = fresh.ts[0] ?? Infinity;
  const kept = filtered(old, (start) => start < until);
  return { ...fresh, ...Object.fromEntries(COLUMNS.map((name) => [name, [...kept[name], ...fresh[name]]])) };
}

/**
 * Interval at which an unchanged value is appended again, so a longer gap means that nobody looked.
 */
const REPEAT_MS = 240_000;

/**
 * The longest time without a sample that is no gap, for buckets whose held time was not counted: a
 * stream that is looked at has another sample by then.
 */
export const gapOf = (past: Past): number => Math.max(REPEAT_MS + 10_000, past.intervalMs * 3);

/**
 * The longest time after a bucket that is no gap: 0 if the held time is counted, since every time
 * with looks has a bucket.
 */
export const gapAfter = (past: Past, i: number): number => (i + 1 < past.ts.length && (past.held[i] ?? 0) > 0 && past.intervalMs > 0 ? 0 : gapOf(past));

/** The end of a bucket, or of the part of it that had passed at the time of the answer. */
export const endOf = (past: Past, i: number): number => Math.max(past.ts[i] ?? 0, Math.min((past.ts[i] ?? 0) + past.stepMs, past.told));

/** Index of the bucket that holds at `ts`: -1 before the first and in a gap. */
export function bucketAt(past: Past, ts: number): number {
  let low = 0;
  let high = past.ts.length;
  while (low < high) {
    const mid = (low + high) >>> 1;
    if ((past.ts[mid] ?? 0) <= ts) low = mid + 1;
    else high = mid;
  }
  const i = low - 1;
  if (i < 0) return -1;
  const end = endOf(past, i);
  const next = past.ts[i + 1] ?? past.told;
  return ts <= end || (ts < next && next - end <= gapAfter(past, i)) ? i : -1;
}
