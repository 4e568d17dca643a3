// Converts rings to the aligned columns that uPlot draws. Pure.

import type { Ring } from "../data/ring";
import { bucketAt, endOf, gapAfter, gapOf } from "../data/buckets";
import type { Past } from "../data/buckets";
import { endOf as farEnd, knotsBetween } from "../data/projection";
import type { Projection } from "../data/projection";
import { stands } from "../sheet/geometry";

/** Points of one series: null is a gap, undefined is no point. Times are ms. */
export interface Points {
  readonly ts: number[];
  readonly values: (number | null | undefined)[];
}

/** Points of a ring between two times in ms: a held value is drawn to its end, a gap is a null. */
export function points(ring: Ring, from: number, to: number, slack: number): Points {
  const ts: number[] = [];
  const values: (number | null)[] = [];
  const put = (at: number, value: number | null) => {
    if (ts.length > 0 && at <= (ts[ts.length - 1] ?? 0)) return;
    ts.push(at);
    values.push(value);
  };
  for (let i = Math.max(0, ring.before(from)); i < ring.length && ring.ts(i) <= to; i += 1) {
    const held = ring.held(i);
    if (i + 1 < ring.length || held >= from || slack === Infinity) put(ring.ts(i), ring.value(i));
    if (held > ring.ts(i)) put(held, ring.value(i));
    const next = i + 1 < ring.length ? ring.ts(i + 1) : NaN;
    if (next - held > slack) put(held + 1, null);
    else if (stands(next - held, slack)) put(next - 1, ring.value(i));
    else if (slack === Infinity && Number.isNaN(next)) put(to, ring.value(i));
  }
  return { ts, values };
}

/**
 * The mean of each bucket at its middle, with the band around it, followed by the live tail; gaps
 * are nulls.
 */
export function pastPoints(past: Past, ring: Ring | undefined, from: number, to: number, slack: number): { mean: Points; low: Points; high: Points } {
  const ts: number[] = [];
  const rows: [Points["values"], Points["values"], Points["values"]] = [[], [], []];
  const put = (at: number, mean: number | null, low?: number | null, high?: number | null) => {
    if (at <= (ts.at(-1) ?? -Infinity)) return;
    ts.push(at);
    rows[0].push(known(mean));
    rows[1].push(known(low));
    rows[2].push(known(high));
  };
  past.ts.forEach((start, i) => {
    const end = endOf(past, i);
    const next = past.ts[i + 1];
    put((start + end) / 2, past.mean[i] ?? null, past.min[i] ?? null, past.max[i] ?? null);
    if (next === undefined || next <= end) return;
    if (next - end > gapAfter(past, i)) return put(end, null, null, null);
    // The stream was looked at, and its value had not changed.
    const held = past.last[i] ?? null;
    put(end, held, held, held);
    put(next, held, held, held);
  });
  if (ring !== undefined && ring.length > 0 && to > past.told) tail(past, ring, Math.max(from, past.told), to, slack, put);
  return { mean: { ts, values: rows[0] }, low: { ts, values: rows[1] }, high: { ts, values: rows[2] } };
}

/** NaN becomes null, which is a gap. */
const known = (value: number | null | undefined): number | null | undefined => (value !== undefined && Number.isNaN(value) ? null : value);

/** Appends the points of the ring after the end of the last bucket. */
function tail(past: Past, ring: Ring, from: number, to: number, slack: number, put: (at: number, mean: number | null) => void): void {
  const rest = points(ring, from, to, slack);
  const first = ring.at(from, slack);
  if (first >= 0) put(from, ring.value(first));
  else if (bucketAt(past, from) < 0 || (rest.ts[0] ?? from) - from > gapOf(past)) put(from, null);
  rest.ts.forEach((at, i) => at > from && put(at, rest.values[i] ?? null));
}

/**
 * The union of all times in seconds, then a row for each series; undefined where a series has no
 * point, null in its gaps.
 */
export function align(all: readonly Points[]): (number | null | undefined)[][] {
  const times = [...new Set(all.flatMap((one) => one.ts))].sort((a, b) => a - b);
  const at = new Map(times.map((t, i) => [t, i]));
  const rows = all.map((one) => {
    const row = new Array<number | null | undefined>(times.length).fill(undefined);
    one.ts.forEach((t, i) => (row[at.get(t) ?? 0] = one.values[i]));
    return row;
  });
  return [times.map((t) => t / 1000), ...rows];
}

/** A line that is drawn as not measured, with the band of its error if that is known. */
export interface Expected {
  readonly line: Points;
  readonly low: Points;
  readonly high: Points;
}

/** The prediction from the last look on, up to the end of the projection or of the shown time. */
export function expectedPoints(p: Projection | undefined, from: number, to: number): Expected {
  const start = p === undefined ? to : Math.max(p.ts, from);
  const end = p === undefined ? to : Math.min(farEnd(p), to);
  const knots = p === undefined || !(end > start) ? [] : knotsBetween(p, start, end);
  const ts = knots.map((knot) => knot.ts);
  const edge = (side: number) => knots.map(({ value, half }) => (Number.isFinite(half) ? value + side * half : null));
  return { line: { ts, values: knots.map(({ value }) => value) }, low: { ts, values: edge(-1) }, high: { ts, values: edge(1) } };
}

const SAID = "predicted";

/**
 * Separates the points of a ring: predicted values are removed from the line and are dashed
 * instead.
 */
export function partSaid(all: Points, ring: Ring): { seen: Points; said: Points } {
  const isSaid = all.ts.map((ts) => ring.quality(Math.max(0, ring.before(ts))) === SAID);
  if (!isSaid.includes(true)) return { seen: all, said: { ts: [], values: [] } };
  const near = (k: number) => isSaid[k] === true || isSaid[k - 1] === true || isSaid[k + 1] === true;
  return {
    seen: { ts: all.ts, values: all.values.map((value, k) => (isSaid[k] === true ? null : value)) },
    said: { ts: all.ts, values: all.values.map((value, k) => (near(k) ? value : null)) },
  };
}

/** Joins two lines; the second continues where the first has no more points. */
export function after(first: Points, second: Points): Points {
  const start = second.ts[0] ?? Infinity;
  const kept = first.ts.filter((ts) => ts < start).length;
  return { ts: [...first.ts.slice(0, kept), ...second.ts], values: [...first.values.slice(0, kept), ...second.values] };
}

/** Possible distances of marks on a line, in seconds. */
const MARK_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];

/**
 * The derived samples, thinned to one in each stretch of at least `leastMs`; the stretches stay in
 * place as time passes.
 */
export function derivedMarks(ring: Ring, from: number, to: number, leastMs: number): { readonly ts: number; readonly value: number }[] {
  const step = (MARK_STEPS_S.find((s) => s * 1000 >= leastMs) ?? 7200) * 1000;
  const marks: { ts: number; value: number }[] = [];
  let last = NaN;
  for (let i = Math.max(0, ring.before(from)); i < ring.length && ring.ts(i) <= to; i += 1) {
    const stretch = Math.floor(ring.ts(i) / step);
    if (ring.ts(i) < from || stretch === last || ring.quality(i) !== "derived" || Number.isNaN(ring.value(i))) continue;
    last = stretch;
    marks.push({ ts: ring.ts(i), value: ring.value(i) });
  }
  return marks;
}

/** Units of quantities that are never negative. */
const NEVER_NEGATIVE = ["bytes", "By", "B", "B/s", "By/s", "ratio", "s", "seconds"];

/** The limits of a chart's values, so that a wide band does not flatten the line. */
export function roomFor(lines: readonly Points[], unit: string): readonly [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const { values } of lines) {
    for (const value of values) {
      if (typeof value !== "number") continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (!(low <= high)) return [-Infinity, Infinity];
  const room = Math.max(high - low, Math.abs(high) * 0.02);
  const floor = low >= 0 && NEVER_NEGATIVE.includes(unit) ? 0 : -Infinity;
  const top = unit === "ratio" && high <= 1 ? 1 : Infinity;
  return [Math.max(floor, low - room), Math.min(top, high + room)];
}

export const clip = ({ ts, values }: Points, [low, high]: readonly [number, number]): Points => ({ ts, values: values.map((v) => (typeof v === "number" ? Math.min(high, Math.max(low, v)) : v)) });
