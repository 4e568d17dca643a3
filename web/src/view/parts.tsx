// Small parts that every view uses: quantities, ages, sparklines, notes.

import type { ComponentChildren } from "preact";
import { isOld } from "../data/feed";
import type { Series } from "../data/feed";
import type { Ring } from "../data/ring";
import { age, moment, quantity } from "../text/format";
import type { Quantity } from "../text/format";

/** A number with its unit in small type; a dash if it is unknown. */
export function Value({ value, unit, of }: { value?: number; unit?: string; of?: Quantity }) {
  const q = of ?? quantity(value ?? NaN, unit ?? "");
  return (
    <span class="value">
      {q.number}
      {q.unit !== "" && <span class="unit"> {q.unit}</span>}
    </span>
  );
}

/** The age of a stream's newest value, with the moment on hover. */
export function Age({ of, now }: { of: Series; now: number }) {
  if (!(of.looked > 0)) return <span class="age">–</span>;
  const old = isOld(of);
  // A value that is written only when its inputs change does not grow old with time.
  const text = of.intervalMs === 0 && !old ? age(now - of.looked).replace(/^(.+) old$/, "for $1") : age(now - of.looked);
  return (
    <time class={old ? "age old" : "age"} title={moment(of.looked)}>
      {text}
    </time>
  );
}

const SPARK_WIDTH = 100;
const SPARK_HEIGHT = 20;

/** A line of one stream over the last minutes, without axes. Gaps stay gaps. */
export function Spark({ ring, now, spanMs, slack }: { ring: Ring; now: number; spanMs: number; slack: number }) {
  const steps = 50;
  const points: number[] = [];
  let low = Infinity;
  let high = -Infinity;
  for (let k = 0; k <= steps; k += 1) {
    const i = ring.at(now - spanMs + (k / steps) * spanMs, slack);
    const value = i < 0 ? NaN : ring.value(i);
    points.push(value);
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const span = high - low;
  let path = "";
  let down = false;
  points.forEach((value, k) => {
    if (Number.isNaN(value)) {
      down = false;
      return;
    }
    const y = span > 0 ? SPARK_HEIGHT - 2 - ((value - low) / span) * (SPARK_HEIGHT - 4) : SPARK_HEIGHT / 2;
    path += `${down ? "L" : "M"}${((k / steps) * SPARK_WIDTH).toFixed(1)},${y.toFixed(1)}`;
    down = true;
  });
  return (
    <svg class="spark" viewBox={`0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}

/** A note in words; a bad one has a sign in addition to its colour. */
export function Note({ bad, children }: { bad?: boolean; children: ComponentChildren }) {
  return (
    <p class={bad === true ? "note bad" : "note"} role={bad === true ? "alert" : undefined}>
      {bad === true && <span aria-hidden="true">▲ </span>}
      {children}
    </p>
  );
}
