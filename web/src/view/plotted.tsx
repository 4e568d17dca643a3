// Streams drawn on one axis of time, a chart for each unit, with the table of their values: from the
// newest second to months, as lines from memory or as buckets of the archive with the live tail behind.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type uPlot from "uplot";
import { ageMs, get, isOld, now } from "../data/feed";
import type { Series } from "../data/feed";
import { RING_SAMPLES_MAX } from "../data/ring";
import { bucketAt } from "../data/buckets";
import type { Past } from "../data/buckets";
import { hidePast, pastFault, pasts, showPast } from "../data/past";
import { age, clock, duration, moment, plain, quantity, spanUnit } from "../text/format";
import { slackOf } from "../sheet/geometry";
import { Chart, SERIES_STYLES } from "./chart";
import type { Marks } from "./chart";
import { align, pastPoints, points } from "./plotdata";
import type { Range } from "./range";
import { Age, Note, Value } from "./parts";
import { KEYS_TOLD, shown, steer, Tools } from "./timeline";
import type { Timeline } from "./timeline";

/** How far back memory goes: what begins earlier is asked of the archive. */
const MEMORY_MS = 15 * 60_000;

/** A lane is ink, always; then no other line is. */
const LANE_STYLE = 3;

/** One stream: what the feed has of it, and what was asked of its past. */
export interface Member {
  readonly pin: string;
  /** How it is drawn; undefined when it is only told. */
  readonly style: number | undefined;
  readonly one: Series | undefined;
  readonly past: Past | undefined;
}

const unitOfMember = ({ one, past }: Member): string | undefined => (one !== undefined && (one.ring.length > 0 || past === undefined) ? one.unit : past?.unit);
const isDrawn = ({ style, one, past }: Member): boolean => style !== undefined && ((one !== undefined && one.ring.length > 0) || (past !== undefined && past.ts.length > 0));

/** Whether memory does not reach back to the first moment shown. */
function isLong([from]: Range, all: readonly (Series | undefined)[]): boolean {
  const start = from * 1000;
  if (start < now() - MEMORY_MS - 2000) return true;
  return all.some((one) => one !== undefined && one.ring.length >= RING_SAMPLES_MAX && one.ring.ts(0) > start);
}

export interface PlottedProps {
  readonly line: Timeline;
  /** Charts with the same key share the cursor. */
  readonly sync: string;
  /** What is drawn, in this order. */
  readonly pins: readonly string[];
  /** What is told in the table but not drawn. */
  readonly told?: readonly string[];
  /** One of the drawn that has a low chart of its own below the others. */
  readonly lane?: string | undefined;
  /** Times that are marked in every chart. */
  readonly marks?: Marks;
  /** They have ended: all of it is past. */
  readonly isPast?: boolean;
  /** What a stream is called in the table, and the head of that column. */
  readonly nameOf?: (pin: string) => string;
  readonly what?: string;
  /** What can be done with a stream, in its row. */
  readonly acts?: (member: Member) => ComponentChildren;
  /** Between the control of time and the charts. */
  readonly children?: ComponentChildren;
}

export function Plotted(props: PlottedProps) {
  const { line, pins, lane, nameOf = (pin) => pin } = props;
  const at = now();
  const range = shown(line);
  const series = pins.map(get);
  const long = props.isPast === true || isLong(range, series);
  const stop = line.frozen.value;
  useEffect(() => {
    if (long && pins.length > 0) showPast(pins, { lengthMs: (range[1] - range[0]) * 1000, end: stop === null ? null : stop[1] * 1000 });
    else hidePast();
  }, [long, pins.join("\n"), line.span.value, stop?.[0], stop?.[1]]);
  useEffect(() => hidePast, []);
  const styles = SERIES_STYLES.map((_, style) => style).filter((style) => lane === undefined || style !== LANE_STYLE);
  const all = pins.map((pin, i): Member => ({ pin, style: pin === lane ? LANE_STYLE : styles[i], one: series[i], past: long ? pasts.value.get(pin) : undefined }));
  const drawn = all.filter(isDrawn);
  const units = [...new Set(drawn.flatMap((member) => (member.pin === lane ? [] : [unitOfMember(member) ?? ""])))];
  // With a lane they are lower, so that it is in sight.
  const height = (lane === undefined ? [320, 220, 160] : [260, 180, 124])[Math.min(units.length, 3) - 1] ?? 160;
  const unnamed = props.marks === undefined ? undefined : { ...props.marks, flags: props.marks.flags.map((flag) => ({ ...flag, label: "" })) };
  const group = (members: readonly Member[], unit: string, high: number) =>
    members.length > 0 && <Group key={unit} line={line} sync={props.sync} marks={unit === units[0] ? props.marks : unnamed} unit={unit} range={range} long={long} height={high} members={members} nameOf={nameOf} />;
  return (
    <div class="charts" tabIndex={0} role="group" aria-label={KEYS_TOLD} onKeyDown={(event) => steer(line, event)}>
      <Tools line={line} range={range} at={at} long={long} />
      {props.children}
      {pastFault.value !== "" && long && <Note bad>{pastFault.value}</Note>}
      {units.map((unit) => group(drawn.filter((member) => member.pin !== lane && unitOfMember(member) === unit), unit, height))}
      {group(drawn.filter((member) => member.pin === lane), "lane", 100)}
      <Legend all={[...all, ...(props.told ?? []).map((pin): Member => ({ pin, style: undefined, one: get(pin), past: undefined }))]} at={at} line={line} what={props.what ?? "stream"} nameOf={nameOf} acts={props.acts} />
    </div>
  );
}

interface GroupProps {
  readonly line: Timeline;
  readonly sync: string;
  readonly marks: Marks | undefined;
  readonly unit: string;
  readonly range: Range;
  readonly height: number;
  readonly members: readonly Member[];
  readonly long: boolean;
  readonly nameOf: (pin: string) => string;
}

function Group({ line, sync, marks, range, height, members, long, nameOf }: GroupProps) {
  const [from, to] = [range[0] * 1000, range[1] * 1000];
  const rows = members.map(({ one, past }) => {
    const slack = slackOf(one?.intervalMs ?? 0);
    if (past !== undefined) return pastPoints(past, one?.ring, from, to, slack);
    const mean = one === undefined ? { ts: [], values: [] } : points(one.ring, from, to, slack);
    return { mean, low: { ts: [], values: [] }, high: { ts: [], values: [] } };
  });
  const columns = long ? [...rows.map((row) => row.low), ...rows.map((row) => row.high), ...rows.map((row) => row.mean)] : rows.map((row) => row.mean);
  const [first] = members;
  return (
    <Chart
      unit={(first === undefined ? undefined : unitOfMember(first)) ?? ""}
      lines={members.map(({ pin, style }) => ({ label: pin, style: style ?? 0 }))}
      bands={long}
      data={align(columns) as uPlot.AlignedData}
      range={range}
      height={height}
      syncKey={sync}
      {...(marks === undefined ? {} : { marks })}
      name={`${members.map(({ pin }) => nameOf(pin)).join(", ")} over ${duration(to - from)}${long ? ", means with the band from smallest to largest" : ""}`}
      onZoom={(a, b) => (line.frozen.value = [a, b])}
      onCursor={(ts) => (line.cursor.value = ts)}
    />
  );
}

interface LegendProps {
  readonly all: readonly Member[];
  readonly at: number;
  readonly line: Timeline;
  readonly what: string;
  readonly nameOf: (pin: string) => string;
  readonly acts: PlottedProps["acts"];
}

function Legend({ all, at, line, what, nameOf, acts }: LegendProps) {
  const ts = line.cursor.value;
  return (
    <table class="legend-table">
      <caption>{ts === null ? "Newest values" : <>At <time title={moment(ts)}>{clock(ts, at)}</time></>}</caption>
      <thead>
        <tr>
          <th scope="col">{what}</th>
          <th scope="col" class="num">value</th>
          <th scope="col">age</th>
          <th scope="col">quality</th>
          <th scope="col"><span class="unseen">what to do</span></th>
        </tr>
      </thead>
      <tbody>
        {all.map((member) => (
          <LegendRow key={member.pin} member={member} ts={ts} at={at} name={nameOf(member.pin)} acts={acts} />
        ))}
      </tbody>
    </table>
  );
}

/** What a stream was at the cursor, or is now. */
type Reading =
  | { readonly kind: "nothing"; readonly text: string }
  | { readonly kind: "sample"; readonly value: number; readonly error: number; readonly quality: string }
  | { readonly kind: "bucket"; readonly mean: number; readonly min: number; readonly max: number; readonly count: number };

function readingOf({ one, past }: Member, ts: number | null): Reading {
  if (past !== undefined && ts !== null && ts <= past.told) {
    const i = bucketAt(past, ts);
    if (i < 0) return { kind: "nothing", text: "–" };
    return { kind: "bucket", mean: past.mean[i] ?? NaN, min: past.min[i] ?? NaN, max: past.max[i] ?? NaN, count: past.count[i] ?? 0 };
  }
  if (one === undefined) return { kind: "nothing", text: past === undefined ? "not there" : "ended" };
  const i = one.ring.length === 0 ? -1 : ts === null ? one.ring.length - 1 : one.ring.at(ts, slackOf(one.intervalMs));
  if (i < 0) return { kind: "nothing", text: one.text || "–" };
  return { kind: "sample", value: one.ring.value(i), error: one.ring.error(i), quality: one.ring.quality(i) };
}

/** Of a point in time the error is a span, with a unit of its own. */
const errorText = (error: number, unit: string): string => {
  const q = quantity(error, spanUnit(unit));
  return unit === "time" ? plain(q) : q.number;
};

function LegendRow({ member, ts, at, name, acts }: { member: Member; ts: number | null; at: number; name: string; acts: PlottedProps["acts"] }) {
  const { style, one } = member;
  const s = style === undefined ? undefined : SERIES_STYLES[style % SERIES_STYLES.length];
  const unit = unitOfMember(member) ?? "";
  const reading = readingOf(member, ts);
  const old = one !== undefined && ts === null && isOld(one);
  return (
    <tr class={old ? "old" : ""}>
      <th scope="row" title={one === undefined || one.help === "" ? undefined : one.help}>
        <svg class="swatch" viewBox="0 0 24 6" aria-hidden="true">{s !== undefined && <path d="M0,3H24" style={{ stroke: `var(--${s.ink})`, strokeDasharray: s.dash.join(" ") }} />}</svg>
        <span class="path">{name}</span>
      </th>
      <td class="num">
        {reading.kind === "nothing" && reading.text}
        {reading.kind === "sample" && <Value of={quantity(reading.value, unit)} />}
        {reading.kind === "sample" && reading.error > 0 && <span class="unit"> ± {errorText(reading.error, unit)}</span>}
        {reading.kind === "bucket" && <Value of={quantity(reading.mean, unit)} />}
        {reading.kind === "bucket" && reading.min < reading.max && (
          <span class="unit"> (<Value of={quantity(reading.min, unit)} /> to <Value of={quantity(reading.max, unit)} />)</span>
        )}
      </td>
      <td>{ts === null ? one !== undefined && <Age of={one} now={at} /> : <span class="age">{ageAt(member, reading, ts, at)}</span>}</td>
      <td>{reading.kind === "sample" ? reading.quality : reading.kind === "bucket" ? `mean of ${reading.count.toLocaleString("en")}` : ""}</td>
      <td class="acts">{acts?.(member)}</td>
    </tr>
  );
}

function ageAt({ one }: Member, reading: Reading, ts: number, at: number): string {
  if (reading.kind === "nothing") return "gap";
  return age(one === undefined || reading.kind === "bucket" ? at - ts : ageMs(one) + Math.max(0, one.looked - ts));
}
