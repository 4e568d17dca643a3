// The stretch of time that charts show: the spans to choose from, zooming and moving. Pure. Times
// are seconds, as in uPlot.

export type Range = readonly [number, number];

export interface Span {
  readonly name: string;
  readonly seconds: number;
}

const MIN = 60;
const HOUR = 3600;
const DAY = 86_400;

export const SPANS: readonly Span[] = [
  { name: "1 min", seconds: MIN },
  { name: "5 min", seconds: 5 * MIN },
  { name: "15 min", seconds: 15 * MIN },
  { name: "1 h", seconds: HOUR },
  { name: "6 h", seconds: 6 * HOUR },
  { name: "24 h", seconds: DAY },
  { name: "7 d", seconds: 7 * DAY },
  { name: "30 d", seconds: 30 * DAY },
];
export const SPAN_DEFAULT = 5 * MIN;

/** The shortest and the longest stretch that zooming reaches. */
const SECONDS_MIN = 2;
const SECONDS_MAX = 4000 * DAY;

/** The span in an address; any other text gives the default. */
export const spanOf = (text: string | null): number => SPANS.find((span) => span.name.replace(" ", "") === text)?.seconds ?? SPAN_DEFAULT;
/** The text of a span in an address; empty for the default. */
export const spanText = (seconds: number): string => (seconds === SPAN_DEFAULT ? "" : (SPANS.find((span) => span.seconds === seconds)?.name.replace(" ", "") ?? ""));

/** The next span that is longer (1) or shorter (-1) than this one. */
export function nextSpan(seconds: number, step: 1 | -1): number {
  const sorted = step === 1 ? SPANS : [...SPANS].reverse();
  return sorted.find((span) => (span.seconds - seconds) * step > 0)?.seconds ?? seconds;
}

/** A range `factor` times as long around the same middle; it never ends in the future. */
export function zoom([from, to]: Range, factor: number, now: number): Range {
  const length = Math.min(SECONDS_MAX, Math.max(SECONDS_MIN, (to - from) * factor));
  const end = Math.min(now, (from + to) / 2 + length / 2);
  return [end - length, end];
}

/** A range moved by a share of its length; it never ends in the future. */
export function move([from, to]: Range, share: number, now: number): Range {
  const by = Math.min((to - from) * share, Math.max(0, now - to));
  return [from + by, to + by];
}

/**
 * Largest part right of now, as a share of the measured time; a part too narrow to be seen is not
 * shown.
 */
const AHEAD_SHARE = 0.25;
const AHEAD_SHARE_MIN = 0.005;

/** How far beyond now a live chart reaches, in seconds, with a forecast of this length. */
export function aheadOf(span: number, forecast: number): number {
  const ahead = Math.min(span * AHEAD_SHARE, forecast);
  return ahead < span * AHEAD_SHARE_MIN ? 0 : ahead;
}

const two = (n: number) => String(n).padStart(2, "0");

/** Labels of a time axis: as fine as its steps, with the date where a day begins. */
export function axisLabels(splits: readonly number[], step: number): string[] {
  return splits.map((split) => {
    const at = new Date(split * 1000);
    const date = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
    if (step < MIN) return `${time}:${two(at.getSeconds())}`;
    return step >= DAY || time === "00:00" ? date : time;
  });
}
