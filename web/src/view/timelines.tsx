// A time line of Doctor: a lane for each name, with marks of when something was done, and when not.

import { now } from "../shared";
import { duration } from "../text/format";
import { harmless } from "../text/harmless";

/** Stretch of time that is drawn. */
export const DRAWN_MS = 300_000;
/** Size of the chart in its own units. */
const WIDTH = 600;
const LANE = 17;
/** Room for the text beside a mark. */
const BESIDE = 50;

export interface Mark {
  readonly from: number;
  readonly until: number;
  /** A mark of what was done is higher than the others. */
  readonly isDone: boolean;
  /** What is told about it: beside it, where there is room, and where a pointer rests on it. */
  readonly beside?: string;
  readonly title?: string;
}

/** Marks with a text beside them are in the order of their times. */
export interface Lane {
  readonly name: string;
  readonly marks: readonly Mark[];
}

/** `says` names the lanes for those who do not see them; `legend` says what high and low marks are. */
export function TimeLine({ lanes, says, legend }: { lanes: readonly Lane[]; says: string; legend: string }) {
  const until = now();
  const x = (at: number): number => (Math.max(at - until + DRAWN_MS, 0) / DRAWN_MS) * WIDTH;
  const height = lanes.length * LANE + 10;
  return (
    <svg viewBox={`0 0 ${WIDTH} ${height}`} width="100%" style={{ maxWidth: `${WIDTH * 1.6}px`, display: "block" }} role="img" aria-label={`${says} in the last ${duration(DRAWN_MS)}`}>
      {lanes.map(({ name, marks }, lane) => {
        const base = lane * LANE + 14;
        return (
          <g key={name}>
            <path d={`M0 ${base + 0.5}H${WIDTH}`} stroke="var(--muted)" stroke-width="0.4" />
            {marks.map(({ from, until: end, isDone, beside, title }, at) => (
              <g key={at}>
                <rect x={x(from).toFixed(1)} y={base - (isDone ? 6 : 3)} width={Math.max(x(end) - x(from), 1).toFixed(1)} height={isDone ? 6 : 3} fill={isDone ? "var(--read)" : "var(--write)"}>
                  {title !== undefined && <title>{title}</title>}
                </rect>
                {beside !== undefined && x(marks[at + 1]?.from ?? until) - x(end) > BESIDE && <text x={(x(end) + 3).toFixed(1)} y={base - 1} font-size="5.5" fill="var(--muted)">{beside}</text>}
              </g>
            ))}
            <text x="0" y={base - 8.5} font-size="5.5" fill="var(--muted)">{harmless(name)}</text>
          </g>
        );
      })}
      <text x="0" y={height - 2} font-size="6" fill="var(--muted)">the last {duration(DRAWN_MS)}; {legend}</text>
    </svg>
  );
}
