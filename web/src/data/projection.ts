// The projection of a stream after its newest look. The agent writes it as the value of the stream
// `forecast.<name>`: knots of seconds after the look, value and half width. Here it is evaluated at
// the reader's own time, as every reader does. Pure. Times are ms.

/** The beginning of a projection stream's name; the rest is the name of the forecast stream. */
export const FORECAST_PREFIX = "forecast.";
/** Most knots of one projection. */
const KNOTS_MAX = 64;

export interface Knot {
  /** Time after the look, in ms. */
  readonly after: number;
  readonly value: number;
  /**
   * The true value is within this distance of it as often as the agent's confidence demands;
   * Infinity while that is unknown.
   */
  readonly half: number;
}

export interface Projection {
  /** The time of the look from which it was made. */
  readonly ts: number;
  /** At least one knot, in the order of time. */
  readonly knots: readonly Knot[];
}

/** Parses the value of such a stream, without trust; undefined if it is not a projection. */
export function projectionOf(ts: number, raw: unknown): Projection | undefined {
  if (!Array.isArray(raw) || raw.length === 0 || raw.length % 3 !== 0 || raw.length > KNOTS_MAX * 3) return undefined;
  const knots: Knot[] = [];
  for (let i = 0; i < raw.length; i += 3) {
    const [seconds, value, width] = raw.slice(i, i + 3) as unknown[];
    // JSON has no infinity.
    const half = width === null ? Infinity : width;
    if (typeof seconds !== "number" || typeof value !== "number" || typeof half !== "number") return undefined;
    const after = seconds * 1000;
    if (!(after > (knots.at(-1)?.after ?? -Infinity)) || !(after >= 0) || !Number.isFinite(after) || !Number.isFinite(value) || !(half >= 0)) return undefined;
    knots.push({ after, value, half });
  }
  return { ts, knots };
}

/** The projection moved to a later look that found the same value. */
export const lookedAgain = (p: Projection, ts: number): Projection => (ts > p.ts ? { ...p, ts } : p);

/** How far it reaches from its look, in ms. */
export const lengthOf = (p: Projection): number => p.knots.at(-1)?.after ?? 0;
export const endOf = (p: Projection): number => p.ts + lengthOf(p);

/** The length of the longest of several projections. */
export const longestOf = (all: readonly (Projection | undefined)[]): number => Math.max(0, ...all.map((p) => (p === undefined ? 0 : lengthOf(p))));

/** The predicted value at a time; undefined before the look and beyond the last knot. */
export function expectedAt(p: Projection, ts: number): Knot | undefined {
  const after = ts - p.ts;
  const next = p.knots.findIndex((knot) => knot.after >= after);
  const b = p.knots[next];
  if (b === undefined || b.after === after) return b;
  const a = p.knots[next - 1];
  if (a === undefined) return undefined;
  return { after, ...between(a, b, (after - a.after) / (b.after - a.after)) };
}

function between(a: Knot, b: Knot, share: number): { value: number; half: number } {
  const mix = (from: number, to: number) => from + (to - from) * share;
  // Between two half widths of which one is unknown, it is unknown.
  const half = Number.isFinite(a.half) && Number.isFinite(b.half) ? mix(a.half, b.half) : Infinity;
  return { value: mix(a.value, b.value), half };
}

/** The knots between two times, with the predictions at these times themselves. */
export function knotsBetween(p: Projection, from: number, to: number): readonly (Knot & { readonly ts: number })[] {
  const at = (ts: number) => {
    const knot = expectedAt(p, ts);
    return knot === undefined ? [] : [{ ...knot, ts }];
  };
  const inner = p.knots.map((knot) => ({ ...knot, ts: p.ts + knot.after })).filter(({ ts }) => ts > from && ts < to);
  return [...at(from), ...inner, ...(to > from ? at(to) : [])];
}

/**
 * The prediction at `end`, or at the last knot; preferably the latest one after `now` whose error
 * is known.
 */
export function furthest(p: Projection, now: number, end: number): (Knot & { readonly ts: number }) | undefined {
  const coming = knotsBetween(p, now, Math.min(end, endOf(p))).filter(({ ts }) => ts > now);
  return [...coming].reverse().find(({ half }) => Number.isFinite(half)) ?? coming.at(-1);
}

/** When a level is reached, in ms from the time of the question. */
export interface Reach {
  readonly expected: number;
  /** The time by the nearer end of the error; NaN if some error before it is unknown. */
  readonly early: number;
  /** The time by the further end; Infinity if that is not within the forecast. */
  readonly late: number;
  /**
   * Whether it is within the part of the forecast that was compared with later values; beyond it,
   * nobody has checked the forecast yet.
   */
  readonly calibrated: boolean;
}

/**
 * When the value first is as great as `level`, or as small if it is greater at the look; undefined
 * if that does not happen within the projection. A value that stays at the level to the end cannot
 * go beyond it, as a disk cannot be fuller than full: its bounds are then extended along straight
 * lines, if its own error is known. It gives the same as `Projection::reaches` in crates/model.
 */
export function reaches(p: Projection, level: number, now: number): Reach | undefined {
  const way = level < (p.knots[0]?.value ?? NaN) ? -1 : 1;
  let free = p.knots.length;
  while (free > 0 && p.knots[free - 1]?.value === level) free -= 1;
  const lines = p.knots.slice(0, free === 0 ? undefined : free);
  const last = free === 0 ? undefined : p.knots[free];
  const end = last === undefined || last.half === Infinity ? undefined : last;
  const unknown = lines.findIndex(({ half }) => half === Infinity);
  const beyond = (halves: number) => (end === undefined ? undefined : straightOn(lines, end, level, halves));
  const expected = crossing(p.knots, level, way, 0);
  const early = crossing(unknown < 0 ? lines : lines.slice(0, unknown), level, way, way) ?? (unknown < 0 ? beyond(way) : undefined);
  const late = crossing(lines, level, way, -way) ?? beyond(-way);
  const passed = now - p.ts;
  if (expected === undefined || expected < passed) return undefined;
  const blind = p.knots.findIndex(({ half }) => half === Infinity);
  const known = blind < 0 ? lengthOf(p) : (p.knots[blind - 1]?.after ?? 0);
  return {
    calibrated: expected <= known,
    expected: expected - passed,
    early: early === undefined ? NaN : Math.max(0, Math.min(early, expected) - passed),
    late: late === undefined || late > lengthOf(p) ? Infinity : Math.max(late, expected) - passed,
  };
}

/** The value plus so many half widths. */
const bound = (knot: Knot, halves: number): number => (halves === 0 ? knot.value : knot.value + halves * knot.half);

/** The time at which the lines between knots first reach `level`, in the direction `way`. */
function crossing(knots: readonly Knot[], level: number, way: number, halves: number): number | undefined {
  for (let i = 0; i < knots.length; i += 1) {
    const [before, knot] = [knots[i - 1], knots[i] as Knot];
    const there = bound(knot, halves);
    if (there * way < level * way) continue;
    if (before === undefined) return knot.after;
    const from = bound(before, halves);
    const share = (level - from) / (there - from);
    return before.after + (knot.after - before.after) * (Number.isFinite(from) && share >= 0 ? Math.min(1, share) : 1);
  }
  return undefined;
}

/**
 * The time at which the straight line from the first knot to the last free one (or to `end`, if
 * that is the first itself) reaches `level` when extended.
 */
function straightOn(lines: readonly Knot[], end: Knot, level: number, halves: number): number | undefined {
  const first = lines[0] as Knot;
  const to = lines.length > 1 ? (lines.at(-1) as Knot) : end;
  const times = (level - first.value) / (bound(to, halves) - first.value);
  return times > 0 && Number.isFinite(times) ? first.after + (to.after - first.after) * times : undefined;
}
