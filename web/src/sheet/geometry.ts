// The geometry of the sheet: time to x, value to y, columns of ink, rules. Pure.
//
// A strip is drawn from columns one CSS pixel wide whose borders are fixed in time, not on the
// screen: as the paper moves, each column keeps its samples and so its ink, and nothing shimmers.

import type { Ring } from "../data/ring";

/** The sheet's measures, in CSS pixels and milliseconds. */
export interface Paper {
  /** Width of the paper. */
  readonly width: number;
  /** x of the pen: the part left of it was measured. */
  readonly penX: number;
  /** Time under the pen. */
  readonly now: number;
  /** Milliseconds per pixel. */
  readonly msPerPx: number;
}

/**
 * Share of the paper right of the pen, which is still white; `AHEAD_EXPECTED` is the wider one with
 * predictions.
 */
export const AHEAD = 0.1;
export const AHEAD_EXPECTED = 0.18;

export function paper(width: number, now: number, windowMs: number, ahead = AHEAD): Paper {
  const penX = Math.round(width * (1 - ahead));
  return { width, penX, now, msPerPx: windowMs / Math.max(1, penX) };
}

/** The measured side alone, with `over` more pixels that are still hidden behind the pen. */
export function past(p: Paper, over: number): Paper {
  const width = p.penX + over;
  return { width, penX: width, now: p.now + over * p.msPerPx, msPerPx: p.msPerPx };
}

export const xOf = (p: Paper, ts: number): number => p.penX - (p.now - ts) / p.msPerPx;
export const timeAt = (p: Paper, x: number): number => p.now - (p.penX - x) * p.msPerPx;

/** The columns of one redraw: `count` of them, the first starting at `t0`. */
export interface Grid {
  readonly t0: number;
  readonly dt: number;
  readonly count: number;
}

/** Columns that cover the measured side, with borders at whole multiples of their width. */
export function grid(p: Paper): Grid {
  const dt = p.msPerPx;
  const first = Math.floor(timeAt(p, 0) / dt);
  return { t0: first * dt, dt, count: Math.ceil(p.now / dt) - first };
}

/**
 * Writes one value per column into `out`: the largest of its samples, so that a spike is never
 * lost; between samples the line from one to the next; NaN in gaps. `slack` is the longest time
 * between looks that is no gap. The last column ends at `end`, the time under the pen.
 */
export function columns(ring: Ring, g: Grid, slack: number, end: number, out: Float64Array): void {
  let i = ring.before(g.t0);
  for (let k = 0; k < g.count; k += 1) {
    const from = g.t0 + k * g.dt;
    const to = Math.min(from + g.dt, end);
    let peak = NaN;
    while (i + 1 < ring.length && ring.ts(i + 1) <= to) {
      i += 1;
      const value = ring.value(i);
      if (ring.ts(i) >= from && !(value <= peak)) peak = value;
    }
    out[k] = Number.isNaN(peak) ? between(ring, i, (from + to) / 2, slack) : peak;
  }
}

/** The value of the line at one time, as `columns` would draw it. */
export const valueAt = (ring: Ring, ts: number, slack: number): number => between(ring, ring.before(ts), ts, slack);

function between(ring: Ring, i: number, ts: number, slack: number): number {
  if (i < 0) return NaN;
  const held = ring.held(i);
  const value = ring.value(i);
  if (ts <= held) return value;
  if (ring.isLastLook(i)) return NaN;
  if (i + 1 >= ring.length) return ts - held <= slack ? value : NaN;
  const next = ring.ts(i + 1);
  if (next - held > slack) return NaN;
  if (stands(next - held, slack)) return value;
  return value + ((ring.value(i + 1) - value) * (ts - held)) / (next - held);
}

/** A time without looks shorter than this is never a gap. */
const SILENCE_MS_MIN = 2500;

/**
 * The longest time without looks that is no gap, for a stream looked at every `intervalMs`; 0 is a
 * stream that is only written when its inputs change, whose value holds for any time.
 */
export const slackOf = (intervalMs: number): number => (intervalMs === 0 ? Infinity : Math.max(SILENCE_MS_MIN, intervalMs * 2.5));

/** Whether the older value is drawn as held until the next one, instead of a line between them. */
export const stands = (silenceMs: number, slack: number): boolean => slack === Infinity && silenceMs > SILENCE_MS_MIN;

/** The next of 1, 2, 5 × 10ⁿ at or above `value`, at least `least`. */
export function niceMax(value: number, least: number): number {
  const want = Math.max(value, least);
  const power = 10 ** Math.floor(Math.log10(want));
  for (const step of [1, 2, 5, 10]) if (step * power >= want * 0.999999) return step * power;
  return 10 * power;
}

const TIME_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];

/** The distance of labelled time rules: a round step at least `minPx` wide. */
export function timeStep(msPerPx: number, minPx: number): number {
  const want = (msPerPx * minPx) / 1000;
  return (TIME_STEPS_S.find((s) => s >= want) ?? 7200) * 1000;
}

/** The times of the rules between two times, on whole steps of the local clock. */
export function rules(from: number, to: number, stepMs: number, offsetMs: number): number[] {
  const all: number[] = [];
  for (let t = Math.ceil((from + offsetMs) / stepMs) * stepMs; t <= to + offsetMs; t += stepMs) all.push(t - offsetMs);
  return all;
}

/** Pen widths in CSS pixels: the thicker the pen, the longer a request takes. */
export const PEN_WIDTHS = [1.1, 1.8, 2.8, 4.2, 6] as const;
/** Upper bounds in seconds of the latencies drawn with each width; the last has none. */
export const PEN_LATENCIES_S = [0.001, 0.005, 0.02, 0.1] as const;

/** Index into PEN_WIDTHS for a latency; unknown latency has the finest pen. */
export function penOf(latencySeconds: number): number {
  if (!(latencySeconds > 0)) return 0;
  const at = PEN_LATENCIES_S.findIndex((bound) => latencySeconds <= bound);
  return at < 0 ? PEN_LATENCIES_S.length : at;
}

/**
 * A run of neighbouring known columns drawn with one pen: [from, to] inclusive, with shared end
 * points.
 */
export interface Run {
  readonly from: number;
  readonly to: number;
  readonly pen: number;
  readonly alarm: boolean;
}

/**
 * Splits the pressure line at gaps and wherever pen or alarm change; the alarm is on while the
 * device was saturated.
 */
export function runs(busy: Float64Array, latency: Float64Array, saturated: Float64Array, count: number): Run[] {
  const all: Run[] = [];
  let from = -1;
  let pen = 0;
  let alarm = false;
  for (let k = 0; k <= count; k += 1) {
    const known = k < count && !Number.isNaN(busy[k] ?? NaN);
    const nextPen = known ? penOf(latency[k] ?? NaN) : 0;
    const nextAlarm = known && (saturated[k] ?? 0) > 0;
    if (from >= 0 && (!known || nextPen !== pen || nextAlarm !== alarm)) {
      all.push({ from, to: known ? k : k - 1, pen, alarm });
      from = -1;
    }
    if (known && from < 0) {
      from = k;
      pen = nextPen;
      alarm = nextAlarm;
    }
  }
  return all;
}
