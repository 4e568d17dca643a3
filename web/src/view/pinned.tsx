// The pinned streams on one axis of time: from the newest second to months, as lines from memory or as
// buckets of the archive with the live tail behind them.

import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type uPlot from "uplot";
import { ageMs, beat, get, isOld, now } from "../data/feed";
import type { Series } from "../data/feed";
import { RING_SAMPLES_MAX } from "../data/ring";
import { bucketAt } from "../data/buckets";
import type { Past } from "../data/buckets";
import { asking, hidePast, pastFault, pasts, showPast } from "../data/past";
import { formatRoute } from "../route";
import { asCurl, asPromql, asPython, asSql, matchOf } from "../text/copy";
import { age, clock, duration, moment, plain, quantity, spanUnit } from "../text/format";
import { slackOf } from "../sheet/geometry";
import { Chart, SERIES_STYLES } from "./chart";
import { align, pastPoints, points } from "./plotdata";
import { move, nextSpan, SPANS, zoom } from "./range";
import type { Range } from "./range";
import { Age, Note, Value } from "./parts";
import { pins, setSpan, span, toggle } from "./pins";

/** How far back memory goes: what begins earlier is asked of the archive. */
const MEMORY_MS = 15 * 60_000;

const cursorTs = signal<number | null>(null);
const frozen = signal<Range | null>(null);

/** One pinned stream: what the feed has of it, and what was asked of its past. */
interface Member {
  readonly pin: string;
  readonly style: number;
  readonly one: Series | undefined;
  readonly past: Past | undefined;
}

const unitOfMember = ({ one, past }: Member): string | undefined => (one !== undefined && (one.ring.length > 0 || past === undefined) ? one.unit : past?.unit);
const isDrawn = ({ one, past }: Member): boolean => (one !== undefined && one.ring.length > 0) || (past !== undefined && past.ts.length > 0);

const shown = (): Range => frozen.value ?? [now() / 1000 - span.value, now() / 1000];

/** Whether memory does not reach back to the first moment shown. */
function isLong([from]: Range, all: readonly (Series | undefined)[]): boolean {
  const start = from * 1000;
  if (start < now() - MEMORY_MS - 2000) return true;
  return all.some((one) => one !== undefined && one.ring.length >= RING_SAMPLES_MAX && one.ring.ts(0) > start);
}

export function Pinned() {
  void beat.value;
  const at = now();
  const range = shown();
  const series = pins.value.map((pin) => get(pin));
  const long = isLong(range, series);
  const stop = frozen.value;
  useEffect(() => {
    if (long) showPast(pins.value, { lengthMs: (range[1] - range[0]) * 1000, end: stop === null ? null : stop[1] * 1000 });
    else hidePast();
  }, [long, pins.value, span.value, stop?.[0], stop?.[1]]);
  useEffect(() => hidePast, []);
  const all = pins.value.map((pin, style): Member => ({ pin, style, one: series[style], past: long ? pasts.value.get(pin) : undefined }));
  const units = [...new Set(all.flatMap((member) => (isDrawn(member) ? [unitOfMember(member) ?? ""] : [])))];
  return (
    <div class="charts" tabIndex={0} role="group" aria-label="Charts: left and right move in time, plus and minus zoom, Escape goes on live" onKeyDown={steer}>
      <Tools range={range} at={at} long={long} />
      {pastFault.value !== "" && long && <Note bad>{pastFault.value}</Note>}
      {units.map((unit) => (
        <Group
          key={unit}
          unit={unit}
          range={range}
          long={long}
          height={units.length === 1 ? 320 : units.length === 2 ? 220 : 160}
          members={all.filter((member) => isDrawn(member) && unitOfMember(member) === unit)}
        />
      ))}
      <Legend all={all} at={at} />
    </div>
  );
}

/** Looks at another stretch of time; one that ends now is live again when it is a span of ours. */
function look(range: Range): void {
  frozen.value = range;
}

function zoomOut(): void {
  const live = frozen.value === null;
  const longer = nextSpan(span.value, 1);
  if (live && longer !== span.value) setSpan(longer);
  else look(zoom(shown(), 2, now() / 1000));
}

function zoomIn(): void {
  const live = frozen.value === null;
  const shorter = nextSpan(span.value, -1);
  if (live && shorter !== span.value) setSpan(shorter);
  else look(zoom(shown(), 0.5, now() / 1000));
}

const KEYS: Readonly<Record<string, () => void>> = {
  ArrowLeft: () => look(move(shown(), -0.25, now() / 1000)),
  ArrowRight: () => frozen.value !== null && look(move(shown(), 0.25, now() / 1000)),
  "+": zoomIn,
  "=": zoomIn,
  "-": zoomOut,
  Escape: () => (frozen.value = null),
};

function steer(event: KeyboardEvent): void {
  const act = KEYS[event.key];
  const inside = event.target as Element;
  if (act === undefined || event.ctrlKey || event.metaKey || event.altKey || inside.closest("input, textarea") !== null) return;
  act();
  event.preventDefault();
}

function Tools({ range, at, long }: { range: Range; at: number; long: boolean }) {
  const live = frozen.value === null;
  const [past] = pasts.value.values();
  return (
    <div class="tools">
      <span class="spans" role="group" aria-label="Time shown">
        {SPANS.map(({ name, seconds }) => (
          <button type="button" aria-pressed={live && span.value === seconds} onClick={() => (setSpan(seconds), (frozen.value = null))}>{name}</button>
        ))}
      </span>
      <span class="spans" role="group" aria-label="Zoom">
        <button type="button" aria-label="Zoom out" title="zoom out: −" onClick={zoomOut}>−</button>
        <button type="button" aria-label="Zoom in" title="zoom in: +" onClick={zoomIn}>+</button>
      </span>
      <button type="button" class="pause" aria-pressed={!live} onClick={() => (frozen.value = live ? range : null)}>
        {live ? "Pause" : "Go on live"}
      </button>
      <span class="cursor-time" role="status">
        {live ? "live" : `paused at ${clock(range[1] * 1000, at)}`}
        {long && (asking.value ? ", asking for the past" : past === undefined ? "" : `, ${duration(past.stepMs)} a bucket`)}
      </span>
      <span class="tip">drag to zoom, arrows move</span>
    </div>
  );
}

function Group({ unit, range, height, members, long }: { unit: string; range: Range; height: number; members: readonly Member[]; long: boolean }) {
  const [from, to] = [range[0] * 1000, range[1] * 1000];
  const rows = members.map(({ one, past }) => {
    const slack = slackOf(one?.intervalMs ?? 0);
    if (past !== undefined) return pastPoints(past, one?.ring, from, to, slack);
    const mean = one === undefined ? { ts: [], values: [] } : points(one.ring, from, to, slack);
    return { mean, low: { ts: [], values: [] }, high: { ts: [], values: [] } };
  });
  const columns = long ? [...rows.map((row) => row.low), ...rows.map((row) => row.high), ...rows.map((row) => row.mean)] : rows.map((row) => row.mean);
  return (
    <Chart
      unit={unit}
      lines={members.map(({ pin, style }) => ({ label: pin, style }))}
      bands={long}
      data={align(columns) as uPlot.AlignedData}
      range={range}
      height={height}
      syncKey="streams"
      name={`${members.map(({ pin }) => pin).join(", ")} over ${duration(to - from)}${long ? ", means with the band from smallest to largest" : ""}`}
      onZoom={(a, b) => look([a, b])}
      onCursor={(ts) => (cursorTs.value = ts)}
    />
  );
}

function Legend({ all, at }: { all: readonly Member[]; at: number }) {
  const ts = cursorTs.value;
  return (
    <table class="legend-table">
      <caption>{ts === null ? "Newest values" : <>At <time title={moment(ts)}>{clock(ts, at)}</time></>}</caption>
      <thead>
        <tr>
          <th scope="col">stream</th>
          <th scope="col" class="num">value</th>
          <th scope="col">age</th>
          <th scope="col">quality</th>
          <th scope="col"><span class="unseen">what to do</span></th>
        </tr>
      </thead>
      <tbody>
        {all.map((member) => (
          <LegendRow key={member.pin} member={member} ts={ts} at={at} />
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

function LegendRow({ member, ts, at }: { member: Member; ts: number | null; at: number }) {
  const { pin, style, one } = member;
  const s = SERIES_STYLES[style % SERIES_STYLES.length] ?? SERIES_STYLES[0];
  const unit = unitOfMember(member) ?? "";
  const reading = readingOf(member, ts);
  const old = one !== undefined && ts === null && isOld(one);
  return (
    <tr class={old ? "old" : ""}>
      <th scope="row">
        <svg class="swatch" viewBox="0 0 24 6" aria-hidden="true"><path d="M0,3H24" style={{ stroke: `var(--${s.ink})`, strokeDasharray: s.dash.join(" ") }} /></svg>
        <span class="path">{pin}</span>
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
      <td class="acts">
        {one !== undefined && <CopyMenu one={one} />}
        <button type="button" aria-label={`Unpin ${pin}`} onClick={() => toggle(pin)}>Unpin</button>
      </td>
    </tr>
  );
}

function ageAt({ one }: Member, reading: Reading, ts: number, at: number): string {
  if (reading.kind === "nothing") return "gap";
  return age(one === undefined || reading.kind === "bucket" ? at - ts : ageMs(one) + Math.max(0, one.looked - ts));
}

function CopyMenu({ one }: { one: Series }) {
  const done = useSignal("");
  const ways: readonly (readonly [string, () => string])[] = [
    ["SQL", () => asSql(one)],
    ["PromQL", () => asPromql(one)],
    ["Python", () => asPython(one)],
    ["curl", () => asCurl(one, location.origin)],
    ["link", () => `${location.origin}${location.pathname}${formatRoute("streams", new URLSearchParams([["pin", matchOf(one)]]))}`],
  ];
  const copy = async (name: string, text: string) => {
    try {
      await navigator.clipboard.writeText(text);
      done.value = `${name} copied`;
    } catch {
      // Without leave to write the clipboard the text is shown, ready to be taken.
      done.value = text;
    }
  };
  return (
    <details class="copy">
      <summary>Copy as</summary>
      <span class="ways">
        {ways.map(([name, text]) => (
          <button type="button" data-text={text()} onClick={() => void copy(name, text())}>{name}</button>
        ))}
        <output>{done.value}</output>
      </span>
    </details>
  );
}
