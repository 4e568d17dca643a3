// Small parts of the Events view: names that anybody may have given, and strips of counts.

import { age, moment } from "../text/format";
import { cut, harmless } from "../text/harmless";

/** Most characters of a name that are shown; the rest is in the hint. */
const NAME_MAX = 120;
const HINT_MAX = 4096;

/** A name or a text of unknown origin, kept apart from the order of writing around it. */
export function Name({ of, max = NAME_MAX }: { of: string; max?: number }) {
  const text = harmless(of);
  const short = cut(text, max);
  return <bdi dir="ltr" class="path" title={short === text ? undefined : cut(text, HINT_MAX)}>{short}</bdi>;
}

/** How long ago something was, with the moment in the hint; a dash if it was never. */
export function Ago({ at, now }: { at: number; now: number }) {
  return at > 0 ? <time title={moment(at)}>{age(now - at)}</time> : <>–</>;
}

const BAR = 4;
const HEIGHT = 20;
/** Least height of a bar: one event among thousands is still seen. */
const HEIGHT_MIN = 2;

/** Counts in slots of time as bars; `top` is the count of a bar of full height. */
export function Bars({ counts, top, says }: { counts: readonly number[]; top: number; says: string }) {
  const width = counts.length * BAR;
  const bars = counts.map((n, i) => (n > 0 ? `M${i * BAR + 0.5},${HEIGHT}v${(-Math.max(HEIGHT_MIN, (n / top) * HEIGHT)).toFixed(1)}h${BAR - 1}V${HEIGHT}Z` : "")).join("");
  return (
    <svg class="bars" viewBox={`0 0 ${width} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={says}>
      <title>{says}</title>
      <path d={bars} />
    </svg>
  );
}
