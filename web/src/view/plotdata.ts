// From rings to the aligned columns that uPlot draws. Pure.

import type { Ring } from "../data/ring";
import { bucketAt, endOf, gapOf } from "../data/buckets";
import type { Past } from "../data/buckets";
import { stands } from "../sheet/geometry";

/** Points of one series: null is a gap, undefined no point. Times are ms. */
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

/** The mean of each bucket at its middle with the band about it, the live tail behind it; gaps are nulls. */
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
  const gap = gapOf(past);
  past.ts.forEach((start, i) => {
    const end = endOf(past, i);
    const next = past.ts[i + 1];
    put((start + end) / 2, past.mean[i] ?? null, past.min[i] ?? null, past.max[i] ?? null);
    if (next === undefined || next <= end) return;
    if (next - end > gap) return put(end, null, null, null);
    // It was looked at and had not changed.
    const held = past.last[i] ?? null;
    put(end, held, held, held);
    put(next, held, held, held);
  });
  if (ring !== undefined && ring.length > 0 && to > past.told) tail(past, ring, Math.max(from, past.told), to, slack, put);
  return { mean: { ts, values: rows[0] }, low: { ts, values: rows[1] }, high: { ts, values: rows[2] } };
}

/** A number that is none is a gap. */
const known = (value: number | null | undefined): number | null | undefined => (value !== undefined && Number.isNaN(value) ? null : value);

/** What the ring knows after the last bucket was told. */
function tail(past: Past, ring: Ring, from: number, to: number, slack: number, put: (at: number, mean: number | null) => void): void {
  const rest = points(ring, from, to, slack);
  const first = ring.at(from, slack);
  if (first >= 0) put(from, ring.value(first));
  else if (bucketAt(past, from) < 0 || (rest.ts[0] ?? from) - from > gapOf(past)) put(from, null);
  rest.ts.forEach((at, i) => at > from && put(at, rest.values[i] ?? null));
}

/** The union of all times in seconds, then a row for each series; undefined where it has no point, null in its gaps. */
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
