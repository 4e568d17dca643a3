// One publication in full: its values over time with the load of a device on the same axis, with
// frames and calls marked; its newest frames as rows; its knobs.

import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import * as api from "../data/api";
import { firings } from "../data/applications";
import { isAbsent } from "../data/optional";
import { RING_SAMPLES_MAX } from "../data/ring";
import { beat, current, get, named, now, want } from "../data/feed";
import type { Series } from "../data/feed";
import { NS_PER_MS } from "../data/contract";
import { concerns, frameOf, isValueOf, streamsOf, valueName } from "../data/publications";
import type { Publication } from "../data/publications";
import { formatRoute } from "../route";
import { sqlName, sqlText, tableOf, whereOf } from "../text/copy";
import { duration, moment, unitOf, words } from "../text/format";
import { streamText } from "../text/fuzzy";
import { asNumber } from "../text/json";
import { lostParts, ownLabels } from "./applications";
import { Knobs } from "./calls";
import type { Marks } from "./chart";
import { line, load, NO_LOAD, setLoad } from "./choice";
import { Note, Value as Amount } from "./parts";
import { PINS_MAX } from "./pins";
import type { Range } from "./range";
import { Plotted } from "./plotted";
import { Cell } from "./sql";
import { shown } from "./timeline";

const REFRESH_MS = 3000;
const SETTLE_MS = 120;
/** Most values of one publication that are listed. */
const VALUES_MAX = 64;
/**
 * Most values that are drawn: with the lane of the device's load, more could not be distinguished.
 */
const DRAWN_MAX = PINS_MAX - 1;
/** Newest frames shown as rows, and marked as ticks. */
const FRAMES_SHOWN = 20;
const TICKS_MAX = 600;
const LOADS = ["device.load.ratio", "disk.busy.ratio"] as const;

interface Value {
  readonly key: string;
  /** The name of the value's column in `frames`. */
  readonly column: string;
  readonly unit: string;
  readonly isNumber: boolean;
}

/** Newest frames up to the end of the time shown. */
interface Frames {
  readonly ticks: readonly number[];
  readonly table: api.SqlTable | null;
}
const NONE: Frames = { ticks: [], table: null };

const values = signal<readonly Value[]>([]);
const frames = signal<Frames>(NONE);
const fault = signal("");

/** The end of a publication, shown because the reader has chosen no time. */
let ending: Range | null = null;

export function Detail({ one, all }: { one: Publication; all: readonly Publication[] }) {
  const drawn = useSignal<readonly string[] | null>(null);
  const stop = line.frozen.value;
  useEffect(() => {
    values.value = [];
    frames.value = NONE;
    // A publication that has ended is shown at its end; one that begins again is shown live.
    if (!one.alive && line.frozen.value === null) line.frozen.value = ending = [one.newest / 1000 - line.span.value, one.newest / 1000 + 1];
    else if (one.alive && line.frozen.value === ending) line.frozen.value = null;
    want("applications", one.alive ? [streamsOf(one), ...LOADS] : [...LOADS]);
  }, [one.key, one.alive]);
  useEffect(() => {
    const abort = new AbortController();
    const ask = () => void refresh(one, all, abort.signal);
    const first = setTimeout(ask, SETTLE_MS);
    const timer = setInterval(() => document.hidden || ask(), REFRESH_MS);
    return () => {
      abort.abort();
      clearTimeout(first);
      clearInterval(timer);
    };
  }, [one.key, one.alive, stop?.[0], stop?.[1]]);
  return (
    <section class="publication" aria-label={`Publication ${one.key}`}>
      <h2>{one.name} <span class="labels">{ownLabels(one)}</span></h2>
      <Facts one={one} />
      {fault.value !== "" && <Note bad>{fault.value}</Note>}
      <Drawing one={one} drawn={drawn.value ?? numbers().slice(0, DRAWN_MAX)} setDrawn={(next) => (drawn.value = next)} />
      <NewestFrames one={one} />
      <Knobs one={one} />
    </section>
  );
}

const numbers = (): string[] => values.value.filter((value) => value.isNumber).map((value) => value.key);

async function refresh(one: Publication, all: readonly Publication[], gone: AbortSignal): Promise<void> {
  try {
    const known = await valuesOf(one, all, gone);
    if (gone.aborted) return;
    if (JSON.stringify(known) !== JSON.stringify(values.value)) values.value = known;
    const newest = await framesOf(one, gone);
    if (gone.aborted) return;
    frames.value = newest;
    fault.value = "";
  } catch (error) {
    if (!gone.aborted) fault.value = words(error);
  }
}

/** The values of a publication: the present ones, or, if it has ended, those in the time shown. */
async function valuesOf(one: Publication, all: readonly Publication[], gone: AbortSignal): Promise<Value[]> {
  const [from, to] = shown(line);
  const found = one.alive
    ? (await api.streams(streamsOf(one))).map((info) => ({ ...info, unit: unitOf(info.name, info.type === "bool" ? "flag" : info.unit), isNumber: info.type !== "string" }))
    : (await api.buckets([streamsOf(one)], { start: from * 1000, stop: to * 1000, points: 1 }, gone)).map((past) => ({ ...past, unit: unitOf(past.name, past.unit), isNumber: past.mean.some((mean) => mean !== null) }));
  const valued = found.filter((stream) => isValueOf(stream, one, all));
  const own = valued.map(({ name, labels, unit, isNumber }): Value => ({ key: streamText(name, labels), column: tableOf(valueName(name, one)), unit, isNumber }));
  return own.sort((a, b) => a.key.localeCompare(b.key, "en", { numeric: true })).slice(0, VALUES_MAX);
}

/** Reads the times of the newest frames, backwards, and then all values of the last of them. */
async function framesOf(one: Publication, gone: AbortSignal): Promise<Frames> {
  const where = whereOf(one.labels);
  // The ticks of the live view come from the feed.
  const isLive = one.alive && line.frozen.value === null;
  const until = line.frozen.value === null ? [] : [`ts <= ${Math.floor(line.frozen.value[1] * 1000)}000000`];
  const conditions = (list: readonly string[]) => (list.length > 0 ? ` WHERE ${list.join(" AND ")}` : "");
  try {
    const { rows } = await api.sql(`SELECT ts FROM ${sqlName(tableOf(`app.${one.name}.frame`))}${conditions([...where, ...until])} ORDER BY ts DESC LIMIT ${isLive ? FRAMES_SHOWN : TICKS_MAX}`, gone);
    const times = rows.map(([ts]) => ts);
    if (times.length === 0) return NONE;
    const [newest, oldest] = [times[0], times[Math.min(times.length, FRAMES_SHOWN) - 1]];
    const table = await api.sql(`SELECT * FROM frames(${sqlText(one.name)}, ${oldest}, ${newest})${conditions(where)} ORDER BY ts DESC LIMIT ${FRAMES_SHOWN}`, gone);
    return { ticks: times.map((ts) => asNumber(ts) / NS_PER_MS).reverse(), table };
  } catch (error) {
    // The publication has not committed a frame yet.
    if (isAbsent(error)) return NONE;
    throw error;
  }
}

function Facts({ one }: { one: Publication }) {
  return (
    <dl class="facts">
      <div><dt>application</dt><dd>{one.application || "–"}{one.alive && `, pid ${one.pid}`}, of {one.user || "–"}</dd></div>
      {one.alive ? <div><dt>publishing for</dt><dd title={moment(one.started)}>{duration(now() - one.started)}</dd></div> : <div><dt>last frame</dt><dd title={moment(one.newest)}>{duration(now() - one.newest)} ago</dd></div>}
      {one.alive && <div><dt>taken in from the process</dt><dd>{one.taken.toLocaleString("en")} values; {lostParts(one)}</dd></div>}
    </dl>
  );
}

function Drawing({ one, drawn, setDrawn }: { one: Publication; drawn: readonly string[]; setDrawn: (next: readonly string[]) => void }) {
  void beat.value;
  const lane = laneOf();
  const pins = drawn.filter((key) => numbers().includes(key));
  const told = values.value.map((value) => value.key).filter((key) => !pins.includes(key) && (one.alive || numbers().includes(key)));
  const nameOf = (key: string) => (key === lane ? key : valueName(key.replace(/\{.*$/s, ""), one));
  const toggle = (key: string) => setDrawn(pins.includes(key) ? pins.filter((pin) => pin !== key) : [...pins, key]);
  const marks = marksOf(one);
  const query = new URLSearchParams([...pins, ...(lane === undefined ? [] : [lane])].map((pin) => ["pin", pin]));
  return (
    <Plotted
      line={line}
      sync="applications"
      pins={lane === undefined ? pins : [...pins, lane]}
      told={told}
      lane={lane}
      marks={marks}
      isPast={!one.alive}
      nameOf={nameOf}
      what="value"
      acts={({ pin, style }) =>
        pin === lane ? null : numbers().includes(pin) ? (
          <button type="button" aria-pressed={style !== undefined} disabled={style === undefined && pins.length >= DRAWN_MAX} title={style === undefined && pins.length >= DRAWN_MAX ? `${DRAWN_MAX} are drawn: hide one first` : undefined} aria-label={`Draw ${nameOf(pin)}`} onClick={() => toggle(pin)}>
            {style === undefined ? "Draw" : "Drawn"}
          </button>
        ) : null
      }
    >
      <p class="against">
        <label>
          against <select value={lane ?? NO_LOAD} onChange={(e) => setLoad(e.currentTarget.value)}>
            {loads().map((series) => <option value={series.key}>{series.key}</option>)}
            <option value={NO_LOAD}>no device</option>
          </select>
        </label>
        <span class="tip">
          {marks.ticks.length > 0 ? <><span aria-hidden="true">╷</span> a frame</> : frames.value.ticks.length > 0 ? "too many frames to be marked: zoom in" : "no frame yet"}
          {marks.flags.length > 0 && <>, <span aria-hidden="true">◆</span> a call into the program</>}
        </span>
        {pins.length > 0 && <a class="tip" href={formatRoute("streams", query)}>pin these in Streams</a>}
      </p>
    </Plotted>
  );
}

const loads = (): Series[] => LOADS.flatMap((name) => named(name)).filter((series) => series.ring.length > 0);

/**
 * The device with the highest load when the view first knows one, unless the address names another.
 */
const first = signal("");
function laneOf(): string | undefined {
  if (load.value === NO_LOAD) return undefined;
  if (load.value !== "") return load.value;
  if (first.value === "" || get(first.value) === undefined) {
    const [name] = LOADS.filter((metric) => named(metric).some((series) => !Number.isNaN(current(series))));
    const most = (name === undefined ? [] : [...named(name)]).sort((a, b) => (current(b) || 0) - (current(a) || 0))[0];
    // The signal is written after this rendering, not during it.
    if (most !== undefined) queueMicrotask(() => (first.value = most.key));
    return most?.key;
  }
  return first.value;
}

function marksOf(one: Publication): Marks {
  const ring = one.alive && line.frozen.value === null ? get(frameOf(one))?.ring : undefined;
  const known = ring === undefined ? frames.value.ticks : Array.from({ length: ring.length }, (_, i) => ring.ts(i));
  // If only the newest of many frames are known, the oldest of them would look like the first
  // frame.
  const isWhole = known.length < (ring === undefined ? TICKS_MAX : RING_SAMPLES_MAX) || (known[0] ?? 0) <= shown(line)[0] * 1000;
  const ticks = isWhole ? known : [];
  const calls = firings.value.filter((firing) => concerns(firing, one)).reverse();
  return { ticks: ticks.map((ts) => ts / 1000), flags: calls.map(({ at, name, isBad }) => ({ at: at / 1000, label: name, isBad })) };
}

/** A cell of a frame: numbers of values have their unit, as everywhere on the page. */
function FrameCell({ cell, column, unit, numeric }: { cell: unknown; column: string; unit: string | undefined; numeric: boolean }) {
  if (unit === undefined || cell === null) return <Cell cell={cell} column={column} numeric={numeric} />;
  return <td class="num" title={String(cell)}><Amount value={asNumber(cell)} unit={unit} /></td>;
}

function NewestFrames({ one }: { one: Publication }) {
  const { table } = frames.value;
  const sql = `SELECT * FROM frames(${sqlText(one.name)}, now_ns() - 60000000000) ORDER BY ts DESC`;
  const constant = new Set(["node", ...Object.keys(one.labels)]);
  const columns = (table?.columns ?? []).flatMap((name, c) => (constant.has(name) ? [] : [{ name, c }]));
  const units = new Map(values.value.filter((value) => value.isNumber).map((value) => [value.column, value.unit]));
  const numeric = ({ c }: { c: number }) => (table?.rows ?? []).every((row) => row[c] === null || !Number.isNaN(asNumber(row[c])));
  return (
    <section aria-label="Newest frames">
      <h2>{line.frozen.value === null ? "Newest frames" : "Newest frames of the time shown"}</h2>
      {table === null || table.rows.length === 0 ? (
        <Note>{Number.isNaN(one.frame) ? "None yet. A program ends a frame with baro_frame(), with p: or p.frame(); what it has put then appears at once." : "None here."}</Note>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Newest ${table.rows.length} frames`}>
          <table>
            <thead>
              <tr>{columns.map((column) => <th scope="col" class={column.name === "ts" || numeric(column) ? "num" : ""}>{column.name === "ts" ? "committed" : column.name}</th>)}</tr>
            </thead>
            <tbody>
              {table.rows.map((row) => <tr>{columns.map((column) => <FrameCell cell={row[column.c]} column={column.name} unit={units.get(column.name)} numeric={numeric(column)} />)}</tr>)}
            </tbody>
          </table>
        </div>
      )}
      {table !== null && <p class="sub"><a href={formatRoute("sql", new URLSearchParams({ q: sql }))}><code>{sql}</code></a></p>}
    </section>
  );
}
