// The newest samples of one stream, in a ring of fixed size. Times are milliseconds.
//
// The agent appends a value only when it changed, and reports separately when it last looked. A
// sample therefore has two times: `ts`, when the value was found, and `held`, the last look that
// found it unchanged. Between `held` and the next `ts` the value is unknown; if that is long, it is
// a gap.

/** Most samples of one stream that the page keeps. */
export const RING_SAMPLES_MAX = 900;
const FIRST_CAPACITY = 64;

/** The quality of a last look: nobody looked from then until the next sample. */
export const ENDED = 4;

/** Quality of a sample, by its number in the segment format. */
export const QUALITIES = ["measured", "derived", "predicted", "reconciled", "ended"] as const;

export class Ring {
  private capacity = FIRST_CAPACITY;
  private start = 0;
  private count = 0;
  private times = new Float64Array(FIRST_CAPACITY);
  private helds = new Float64Array(FIRST_CAPACITY);
  private values = new Float64Array(FIRST_CAPACITY);
  private errors = new Float32Array(FIRST_CAPACITY);
  private qualities = new Uint8Array(FIRST_CAPACITY);

  get length(): number {
    return this.count;
  }

  /** Appends a sample; one that is not newer than the last is ignored. */
  push(ts: number, value: number, quality = 0, error = 0, held = ts): void {
    if (this.count > 0 && ts <= this.ts(this.count - 1)) {
      // The look that found the newest value was the last one.
      if (quality === ENDED && ts === this.ts(this.count - 1)) this.qualities[this.slot(this.count - 1)] = ENDED;
      return;
    }
    if (this.count === this.capacity) {
      if (this.capacity < RING_SAMPLES_MAX) this.grow();
      else {
        this.start = (this.start + 1) % this.capacity;
        this.count -= 1;
      }
    }
    const at = this.slot(this.count);
    this.times[at] = ts;
    this.helds[at] = Math.max(ts, held);
    this.values[at] = value;
    this.errors[at] = error;
    this.qualities[at] = quality;
    this.count += 1;
  }

  /** Records that the newest value was looked at again and had not changed. */
  hold(ts: number): void {
    if (this.count === 0) return;
    const at = this.slot(this.count - 1);
    if (ts > (this.helds[at] ?? 0)) this.helds[at] = ts;
  }

  /**
   * Records that the newest value was found again after a silence: it is known from here on, not in
   * between.
   */
  resume(ts: number): void {
    if (this.count > 0) this.take(this, this.count - 1, ts, ts);
  }

  ts(i: number): number {
    return this.times[this.slot(i)] ?? NaN;
  }
  held(i: number): number {
    return this.helds[this.slot(i)] ?? NaN;
  }
  value(i: number): number {
    return this.values[this.slot(i)] ?? NaN;
  }
  error(i: number): number {
    return this.errors[this.slot(i)] ?? 0;
  }
  quality(i: number): string {
    return QUALITIES[this.qualities[this.slot(i)] ?? 0] ?? "measured";
  }

  /** Whether nobody looked between this sample and the next. */
  isLastLook(i: number): boolean {
    return this.qualities[this.slot(i)] === ENDED;
  }

  /** Appends sample `i` of another ring, held at most until `until`; `ts` can replace its time. */
  take(from: Ring, i: number, until = Infinity, ts = from.ts(i)): void {
    const at = from.slot(i);
    const held = Math.min(from.helds[at] ?? NaN, until);
    this.push(ts, from.value(i), from.qualities[at], from.error(i), held);
  }

  /** Index of the newest sample at or before `ts`, or -1. */
  before(ts: number): number {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const mid = (low + high) >>> 1;
      if (this.ts(mid) <= ts) low = mid + 1;
      else high = mid;
    }
    return low - 1;
  }

  /**
   * Index of the sample that holds at `ts`: -1 before the first, in a gap, and later than `slack`
   * after the last look.
   */
  at(ts: number, slack: number): number {
    const i = this.before(ts);
    if (i < 0 || ts <= this.held(i)) return i;
    if (this.isLastLook(i)) return -1;
    const until = i + 1 < this.count ? this.ts(i + 1) : Infinity;
    // In a short step between two samples, the older one still holds.
    if (until - this.held(i) <= slack) return i;
    return until === Infinity && ts - this.held(i) <= slack ? i : -1;
  }

  private slot(i: number): number {
    return (this.start + i) % this.capacity;
  }

  private grow(): void {
    const capacity = Math.min(this.capacity * 2, RING_SAMPLES_MAX);
    const move = <T extends Float64Array | Float32Array | Uint8Array>(from: T, to: T): T => {
      for (let i = 0; i < this.count; i += 1) to[i] = from[this.slot(i)] ?? 0;
      return to;
    };
    const times = move(this.times, new Float64Array(capacity));
    const helds = move(this.helds, new Float64Array(capacity));
    const values = move(this.values, new Float64Array(capacity));
    const errors = move(this.errors, new Float32Array(capacity));
    const qualities = move(this.qualities, new Uint8Array(capacity));
    Object.assign(this, { capacity, start: 0, times, helds, values, errors, qualities });
  }
}

export interface Silence {
  /** Time of the last tick before the silence. */
  readonly from: number;
  /** Time of the first tick after it; Infinity while there is none. */
  readonly to: number;
}

/** A sample of history: `next` is the time of the one after it, NaN for the newest. */
export interface Told {
  readonly ts: number;
  readonly held: number;
  readonly next: number;
  readonly value: number;
  readonly quality: number;
}

/**
 * Appends a sample that history gives as held, except while the agent was silent: a value that is
 * the same before and after a silence is known before and after it, not in between.
 */
export function pushHeld(ring: Ring, silences: readonly Silence[], told: Told): void {
  const end = Number.isNaN(told.next) ? Infinity : told.next;
  let ts = told.ts;
  for (const { from, to } of silences) {
    // A sample that the agent took between its last tick and its end lies in the silence, and so is
    // a point.
    if (to <= ts || from >= end) continue;
    ring.push(ts, told.value, told.quality, 0, Math.min(told.held, from));
    if (to >= end) return;
    ts = to;
  }
  ring.push(ts, told.value, told.quality, 0, Math.max(ts, told.held));
}

/**
 * The last look that found the older of two changes: one interval before the next. A value that is
 * only written when it changes is not looked at in between. If it `isLast`, nobody looked after it.
 */
export const heldUntil = (ts: number, next: number, intervalMs: number, isLast = false): number =>
  !isLast && intervalMs > 0 && next - ts > intervalMs * 1.5 ? next - intervalMs : ts;

/**
 * The start of the bucket that, together with those after it, fills a ring; 0 if all of them do
 * not.
 */
export function ringStart(starts: readonly number[], counts: readonly number[]): number {
  let sum = 0;
  for (let i = starts.length - 1; i >= 0; i -= 1) {
    sum += counts[i] ?? 0;
    if (sum >= RING_SAMPLES_MAX) return starts[i] ?? 0;
  }
  return 0;
}
