// Streams on one axis of time, a chart for each unit, with the table of their values. The time
// shown may reach from the newest second to months: lines come from memory, or from buckets of the
// archive followed by the live tail.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type uPlot from "uplot";
import { ageMs, expectedOf, get, isOld, now } from "../data/feed";
import type { Series } from "../data/feed";
import { expectedAt, furthest, longestOf } from "../data/projection";
import type { Projection } from "../data/projection";
import { RING_SAMPLES_MAX } from "../data/ring";
import { bucketAt } from "../data/buckets";
import type { Past } from "../data/buckets";
import { hidePast, pastFault, pasts, showPast } from "../data/past";
import { age, clock, duration, errorBeside, expectedText, moment, quantity } from "../text/format";
import { slackOf } from "../sheet/geometry";
import { Chart, SERIES_STYLES } from "./chart";
import type { Marks } from "./chart";
import { forecasting } from "./forecasting";
import { after, align, clip, derivedMarks, expectedPoints, partSaid, pastPoints, points, roomFor } from "./plotdata";
import type { Points } from "./plotdata";
import { aheadOf } from "./range";
import type { Range } from "./range";
import { Age, Note, Value } from "./parts";
import { KEYS_TOLD, shown, steer, Tools } from "./timeline";
import type { Timeline } from "./timeline";

/** How far back memory is used: earlier times are requested from the archive. */
const MEMORY_MS = 15 * 60_000;

/** The lane has the ink style, and no other line has it. */
const LANE_STYLE = 3;

/** One stream: its series in the feed, and the past that was requested for it. */
export interface Member {
  readonly pin: string;
  /** The style of the line; undefined if the stream is only in the table. */
  readonly style: number | undefined;
  readonly one: Series | undefined;
  readonly past: Past | undefined;
  /** The projection of the stream, if it is known and to be shown. */
  readonly expected: Projection | undefined;
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
  /** The streams that are drawn, in this order. */
  readonly pins: readonly string[];
  /** The streams that are in the table but not drawn. */
  readonly told?: readonly string[];
  /** One of the drawn streams that has a low chart of its own below the others. */
  readonly lane?: string | undefined;
  /** Times that are marked in every chart. */
  readonly marks?: Marks;
  /** Whether the streams have ended, so that all of the time shown is past. */
  readonly isPast?: boolean;
  /** Whether the predictions of the streams are drawn beyond now. */
  readonly goesOn?: boolean;
  /** The name of a stream in the table, and the head of that column. */
  readonly nameOf?: (pin: string) => string;
  readonly what?: string;
  /** The actions for a stream, in its row. */
  readonly acts?: (member: Member) => ComponentChildren;
  /** Elements between the control of time and the charts. */
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
  const all = pins.map((pin, i): Member => ({ pin, style: pin === lane ? LANE_STYLE : styles[i], one: series[i], past: long ? pasts.value.get(pin) : undefined, expected: forecasting.value && props.goesOn === true ? expectedOf(pin) : undefined }));
  const drawn = all.filter(isDrawn);
  // Live charts reach beyond now, as far as a drawn stream has a forecast; paused charts do not
  // change.
  const ahead = stop === null ? aheadOf(line.span.value, longestOf(drawn.map(({ expected }) => expected)) / 1000) : 0;
  const view: Range = [range[0], range[1] + ahead];
  const units = [...new Set(drawn.flatMap((member) => (member.pin === lane ? [] : [unitOfMember(member) ?? ""])))];
  // With a lane, the charts are lower, so that the lane is in sight.
  const height = (lane === undefined ? [320, 220, 160] : [260, 180, 124])[Math.min(units.length, 3) - 1] ?? 160;
  const unnamed = props.marks === undefined ? undefined : { ...props.marks, flags: props.marks.flags.map((flag) => ({ ...flag, label: "" })) };
  const group = (members: readonly Member[], unit: string, high: number) =>
    members.length > 0 && <Group key={unit} line={line} sync={props.sync} marks={unit === units[0] ? props.marks : unnamed} unit={unit} range={view} long={long} height={high} members={members} nameOf={nameOf} />;
  return (
    <div class="charts" tabIndex={0} role="group" aria-label={KEYS_TOLD} onKeyDown={(event) => steer(line, event)}>
      <Tools line={line} range={view} at={at} long={long} forecast={props.goesOn === true && pins.some((pin) => expectedOf(pin) !== undefined)} />
      {props.children}
      {pastFault.value !== "" && long && <Note bad>{pastFault.value}</Note>}
      {units.map((unit) => group(drawn.filter((member) => member.pin !== lane && unitOfMember(member) === unit), unit, height))}
      {group(drawn.filter((member) => member.pin === lane), "lane", 100)}
      <Legend all={[...all, ...(props.told ?? []).map((pin): Member => ({ pin, style: undefined, one: get(pin), past: undefined, expected: undefined }))]} at={at} end={view[1] * 1000} line={line} what={props.what ?? "stream"} nameOf={nameOf} acts={props.acts} />
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

/** Least distance of hollow marks on a line, as a share of the time shown. */
const MARK_SHARE = 1 / 24;

/** The rows of a member: the measured line with its band, and the dashed line. */
function rowsOf({ one, past, expected }: Member, [from, to]: Range, at: number) {
  const none: Points = { ts: [], values: [] };
  const slack = slackOf(one?.intervalMs ?? 0);
  const until = Math.min(to, at);
  const coming = expectedPoints(expected, from, to);
  if (past !== undefined) return { ...pastPoints(past, one?.ring, from, until, slack), coming };
  if (one === undefined) return { mean: none, low: none, high: none, coming };
  const { seen, said } = partSaid(points(one.ring, from, until, slack), one.ring);
  return { mean: seen, low: none, high: none, coming: { ...coming, line: after(said, coming.line) } };
}

function Group({ line, sync, marks, range, height, members, long, nameOf }: GroupProps) {
  const [from, to] = [range[0] * 1000, range[1] * 1000];
  const at = now();
  const rows = members.map((member) => rowsOf(member, [from, to], at));
  const means = rows.map((row) => row.mean);
  const [first] = members;
  const unit = (first === undefined ? undefined : unitOfMember(first)) ?? "";
  const of = rows.flatMap(({ coming }, i) => (coming.line.ts.length > 0 ? [i] : []));
  const room = roomFor([...means, ...rows.map(({ coming }) => coming.line)], unit);
  const dashed = of.flatMap((i) => {
    const { line: expected, low, high } = rows[i]?.coming as (typeof rows)[number]["coming"];
    return [clip(low, room), clip(high, room), expected];
  });
  const columns = [...(long ? [...rows.map((row) => row.low), ...rows.map((row) => row.high)] : []), ...means, ...dashed];
  const hollow = members.flatMap(({ one, past }, i) => (one === undefined || past !== undefined ? [] : derivedMarks(one.ring, from, Math.min(to, at), (to - from) * MARK_SHARE).map(({ ts, value }) => ({ line: i, at: ts / 1000, value }))));
  const told = members.flatMap((member) => {
    const words = comingWords(member, at, to);
    return words === "" ? [] : [`${nameOf(member.pin)} ${words}`];
  });
  return (
    <Chart
      unit={unit}
      lines={members.map(({ pin, style }) => ({ label: pin, style: style ?? 0 }))}
      bands={long}
      data={align(columns) as uPlot.AlignedData}
      range={range}
      height={height}
      syncKey={sync}
      {...(marks === undefined ? {} : { marks })}
      ahead={{ of, now: at / 1000, hollow }}
      name={[`${members.map(({ pin }) => nameOf(pin)).join(", ")} over ${duration(Math.min(to, at) - from)}${long ? ", means with the band from smallest to largest" : ""}`, ...told].join("; ")}
      onZoom={(a, b) => (line.frozen.value = [a, b])}
      onCursor={(ts) => (line.cursor.value = ts)}
    />
  );
}

/**
 * The prediction at the end of the time shown, or at the end of the projection: `expected 12.3 GiB
 * ± 0.2 in 5 min`.
 */
function comingWords(member: Member, at: number, end: number): string {
  const knot = member.expected === undefined ? undefined : furthest(member.expected, at, end);
  return knot === undefined ? "" : `expected ${expectedText(knot.value, knot.half, unitOfMember(member) ?? "", knot.ts - at)}`;
}

interface LegendProps {
  readonly all: readonly Member[];
  readonly at: number;
  /** The time at which the paper ends. */
  readonly end: number;
  readonly line: Timeline;
  readonly what: string;
  readonly nameOf: (pin: string) => string;
  readonly acts: PlottedProps["acts"];
}

function Legend({ all, at, end, line, what, nameOf, acts }: LegendProps) {
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
          <LegendRow key={member.pin} member={member} ts={ts} at={at} end={end} name={nameOf(member.pin)} acts={acts} />
        ))}
      </tbody>
    </table>
  );
}

/** The value of a stream at the cursor, or now. */
type Reading =
  | { readonly kind: "nothing"; readonly text: string }
  | { readonly kind: "sample"; readonly value: number; readonly error: number; readonly quality: string }
  | { readonly kind: "expected"; readonly value: number; readonly error: number }
  | { readonly kind: "bucket"; readonly mean: number; readonly min: number; readonly max: number; readonly count: number };

function readingOf({ one, past, expected }: Member, ts: number | null, at: number): Reading {
  // After the last look, and right of now, there are no measurements.
  const knot = expected !== undefined && ts !== null && ts > expected.ts ? expectedAt(expected, ts) : undefined;
  if (knot !== undefined) return { kind: "expected", value: knot.value, error: knot.half };
  if (ts !== null && ts > at) return { kind: "nothing", text: "–" };
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

function LegendRow({ member, ts, at, end, name, acts }: { member: Member; ts: number | null; at: number; end: number; name: string; acts: PlottedProps["acts"] }) {
  const { style, one } = member;
  const s = style === undefined ? undefined : SERIES_STYLES[style % SERIES_STYLES.length];
  const unit = unitOfMember(member) ?? "";
  const reading = readingOf(member, ts, at);
  const old = one !== undefined && ts === null && isOld(one);
  const coming = ts === null ? comingWords(member, at, end) : "";
  return (
    <tr class={old ? "old" : reading.kind === "expected" ? "expected" : ""}>
      <th scope="row" title={one === undefined || one.help === "" ? undefined : one.help}>
        <svg class="swatch" viewBox="0 0 24 6" aria-hidden="true">{s !== undefined && <path d="M0,3H24" style={{ stroke: `var(--${s.ink})`, strokeWidth: s.width }} />}</svg>
        <span class="path">{name}{coming !== "" && <span class="coming">{coming}</span>}</span>
      </th>
      <td class="num">
        {reading.kind === "nothing" && reading.text}
        {(reading.kind === "sample" || reading.kind === "expected") && <Value of={quantity(reading.value, unit)} />}
        {(reading.kind === "sample" || reading.kind === "expected") && reading.error > 0 && Number.isFinite(reading.error) && <span class="unit"> ± {errorBeside(reading.value, reading.error, unit)}</span>}
        {reading.kind === "bucket" && <Value of={quantity(reading.mean, unit)} />}
        {reading.kind === "bucket" && reading.min < reading.max && (
          <span class="unit"> (<Value of={quantity(reading.min, unit)} /> to <Value of={quantity(reading.max, unit)} />)</span>
        )}
      </td>
      <td>{ts === null ? one !== undefined && <Age of={one} now={at} /> : <span class="age">{ageAt(member, reading, ts, at)}</span>}</td>
      <td>{qualityText(reading)}</td>
      <td class="acts">{acts?.(member)}</td>
    </tr>
  );
}

function qualityText(reading: Reading): string {
  if (reading.kind === "sample") return reading.quality;
  if (reading.kind === "expected") return Number.isFinite(reading.error) ? "expected" : "expected, error not known yet";
  return reading.kind === "bucket" ? `mean of ${reading.count.toLocaleString("en")}` : "";
}

function ageAt({ one }: Member, reading: Reading, ts: number, at: number): string {
  if (ts > at) return reading.kind === "expected" ? `in ${duration(ts - at)}` : "not forecast";
  if (reading.kind === "nothing") return "gap";
  if (reading.kind === "expected") return "since the last look";
  return age(one === undefined || reading.kind === "bucket" ? at - ts : ageMs(one) + Math.max(0, one.looked - ts));
}
