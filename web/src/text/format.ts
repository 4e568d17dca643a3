// Numbers for people: SI for rates, IEC for sizes, durations and ages in words. Pure.

const SI = ["", "k", "M", "G", "T", "P", "E"];
const IEC = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/** A number and its unit, separate, so that the unit can be set in smaller type. */
export interface Quantity {
  readonly number: string;
  readonly unit: string;
}

/** Three significant figures, without exponent, with a thin decimal part: 1.23, 12.3, 123. */
export function figures(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return trim(value.toFixed(1));
  if (size >= 0.001) return trim(value.toFixed(size >= 0.9995 ? 2 : 3));
  return value.toExponential(1);
}

function trim(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function scaled(value: number, base: number, prefixes: readonly string[]): [string, string] {
  let size = Math.abs(value);
  let step = 0;
  // 999.5 would be written as 1000, so it gets the next prefix.
  const limit = base === 1000 ? 999.5 : 1023.5;
  while (size >= limit && step < prefixes.length - 1) {
    size /= base;
    step += 1;
  }
  return [figures(Math.sign(value) * size), prefixes[step] ?? ""];
}

/** A rate in bytes a second, with decimal prefixes. */
export function rate(bytesPerSecond: number): Quantity {
  const [number, prefix] = scaled(bytesPerSecond, 1000, SI);
  return { number, unit: `${prefix}B/s` };
}

/** A size in bytes, with binary prefixes. */
export function size(bytes: number): Quantity {
  const [number, prefix] = scaled(bytes, 1024, IEC);
  return { number, unit: `${prefix}B` };
}

/** A ratio as percent, without decimals from 10 % on. */
export function percent(ratio: number): Quantity {
  const value = ratio * 100;
  return { number: Math.abs(value) >= 9.95 || value === 0 ? value.toFixed(0) : trim(value.toFixed(1)), unit: "%" };
}

/** A short time span in seconds: ns, µs, ms, s; from two minutes on as `duration`. */
export function seconds(value: number): Quantity {
  const s = Math.abs(value);
  if (s === 0) return { number: "0", unit: "s" };
  if (s < 1e-6) return { number: figures(value * 1e9), unit: "ns" };
  if (s < 999.5e-6) return { number: figures(value * 1e6), unit: "µs" };
  if (s < 0.9995) return { number: figures(value * 1e3), unit: "ms" };
  if (s < 120) return { number: figures(value), unit: "s" };
  return { number: duration(value * 1000), unit: "" };
}

/** A long span in at most two parts: `40 s`, `4 min 10 s`, `3 h 20 min`, `2 d 4 h`. */
export function duration(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  const parts = (big: number, bigName: string, small: number, smallName: string) =>
    small === 0 ? `${big} ${bigName}` : `${big} ${bigName} ${small} ${smallName}`;
  if (s < 3600) return parts(Math.floor(s / 60), "min", s % 60, "s");
  const min = Math.floor(s / 60);
  if (min < 1440) return parts(Math.floor(min / 60), "h", min % 60, "min");
  const h = Math.floor(min / 60);
  return parts(Math.floor(h / 24), "d", h % 24, "h");
}

/**
 * Largest age that is shown as `now`: samples of a poll each second are up to two ticks old when
 * they are shown.
 */
const NOW_MS = 2500;

/** The age of something: `now`, or `12 s old`. */
export function age(ms: number): string {
  return ms < NOW_MS ? "now" : `${duration(ms)} old`;
}

/** Wall-clock time of day, with the date if it is not today's. */
export function clock(ms: number, nowMs: number): string {
  const at = new Date(ms);
  const two = (n: number) => String(n).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (at.toDateString() === new Date(nowMs).toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/** The full moment, for tooltips. */
export function moment(ms: number): string {
  return Number.isFinite(ms) ? new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC") : "never";
}

/** A point in time of a stream, given in seconds since 1970: to the second, in local time. */
function time(value: number): Quantity {
  // Beyond this there is no date.
  if (!(Math.abs(value) <= 8.64e12)) return { number: "–", unit: "" };
  return { number: clock(value * 1000, NaN), unit: "" };
}

/** A value of a stream in its own unit. */
export function quantity(value: number, unit: string): Quantity {
  if (Number.isNaN(value)) return { number: "–", unit: "" };
  switch (unit) {
    case "By/s":
    case "B/s":
    case "bytes/s":
    case "bytes_per_second":
      return rate(value);
    case "By":
    case "B":
    case "bytes":
      return size(value);
    case "1":
    case "ratio":
      return percent(value);
    case "s":
    case "seconds":
      return seconds(value);
    case "time":
      return time(value);
    case "flag":
      return { number: value === 0 ? "no" : "yes", unit: "" };
    default: {
      const [number, prefix] = Math.abs(value) < 100_000 ? [figures(value), ""] : scaled(value, 1000, SI);
      return { number, unit: prefix === "" ? unit : `${prefix} ${unit}`.trim() };
    }
  }
}

/** The unit of a difference of two values: for points in time it is a span. */
export const spanUnit = (unit: string): string => (unit === "time" ? "seconds" : unit);

/**
 * The unit in which a stream is shown: the last word of its name tells more than the unit `1`.
 * Streams in `.time.seconds` are points in time.
 */
export function unitOf(name: string, unit: string): string {
  if (name.endsWith(".bytes_per_second")) return "B/s";
  if (name.endsWith(".time.seconds") || name.endsWith("_time_seconds")) return "time";
  const last = name.slice(name.lastIndexOf(".") + 1);
  // A program's number without a unit is a share of a whole only if its name says so.
  if (unit === "1" && name.startsWith("app.")) return /(^|_)ratio$/.test(last) ? "ratio" : "";
  return last === "ratio" || last === "flag" || last === "bytes" || last === "seconds" ? last : unit;
}

/** A quantity as one text. */
export function plain(q: Quantity): string {
  return q.unit === "" ? q.number : `${q.number} ${q.unit}`;
}

/**
 * The text of an error beside its value: without a unit if it is the value's. For a point in time
 * it is a span.
 */
export function errorBeside(value: number, half: number, unit: string): string {
  const own = quantity(half, spanUnit(unit));
  return unit !== "time" && own.unit === quantity(value, unit).unit ? own.number : plain(own);
}

/** The text of a prediction, with its error if it is known: `12.3 GiB ± 0.2 in 5 min`. */
export function expectedText(value: number, half: number, unit: string, inMs: number): string {
  const known = Number.isFinite(half);
  return `${plain(quantity(value, unit))}${known ? ` ± ${errorBeside(value, half, unit)}` : ""} in ${duration(inMs)}${known ? "" : ", error not known yet"}`;
}

const COARSE_STEPS_S: readonly (readonly [number, number])[] = [[120, 5], [3600, 60], [6 * 3600, 300], [86_400, 600]];

/** The text of a span that is not known to the second: in steps that grow with it. */
export function roughly(ms: number): string {
  const s = Math.max(0, ms / 1000);
  const step = COARSE_STEPS_S.find(([below]) => s < below)?.[1] ?? 3600;
  return duration(Math.round(s / step) * step * 1000);
}

/** The text of an error. */
export const words = (error: unknown): string => (error instanceof Error ? error.message : String(error));
