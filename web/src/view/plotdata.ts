// From rings to the aligned columns that uPlot draws. Pure.

import type { Ring } from "../data/ring";
import { stands } from "../sheet/geometry";

/** Points of a ring between two times in ms: a held value is drawn to its end, a gap is a null. */
export function points(ring: Ring, from: number, to: number, slack: number): { ts: number[]; values: (number | null)[] } {
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

/** The union of all times in seconds, then a row for each series; undefined where it has no point, null in its gaps. */
export function align(all: readonly { ts: readonly number[]; values: readonly (number | null)[] }[]): (number | null | undefined)[][] {
  const times = [...new Set(all.flatMap((one) => one.ts))].sort((a, b) => a - b);
  const at = new Map(times.map((t, i) => [t, i]));
  const rows = all.map((one) => {
    const row = new Array<number | null | undefined>(times.length).fill(undefined);
    one.ts.forEach((t, i) => (row[at.get(t) ?? 0] = one.values[i]));
    return row;
  });
  return [times.map((t) => t / 1000), ...rows];
}
