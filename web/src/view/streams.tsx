// Streams: find any by typing, pin up to eight, read them on one axis of time.

import { signal, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type uPlot from "uplot";
import * as api from "../data/api";
import { ageMs, beat, get, isOld, now, want } from "../data/feed";
import type { Series } from "../data/feed";
import type { Latest, StreamInfo } from "../data/contract";
import { NS_PER_MS } from "../data/contract";
import { formatRoute, parseRoute } from "../route";
import { asCurl, asPromql, asPython, asSql, matchOf } from "../text/copy";
import { age, clock, moment, quantity, unitOf } from "../text/format";
import { find, streamText } from "../text/fuzzy";
import { slackOf } from "../sheet/geometry";
import { Chart, SERIES_STYLES } from "./chart";
import { align, points } from "./plotdata";
import { Age, Note, Value, words } from "./parts";

/** Most streams pinned at once: more cannot be told apart. */
export const PINS_MAX = 8;
/** Most lines of the list; typing narrows it. */
const LIST_MAX = 120;
/** Above this many streams their newest values are not fetched for the list. */
const VALUES_MAX = 4000;
const WINDOWS_MIN = [1, 5, 15] as const;

const directory = signal<readonly StreamInfo[]>([]);
const newest = signal<ReadonlyMap<string, Latest>>(new Map());
const fault = signal("");
const pins = signal<readonly string[]>([]);
const cursorTs = signal<number | null>(null);
const frozen = signal<readonly [number, number] | null>(null);

async function load(): Promise<void> {
  try {
    const all = await api.streams("*");
    all.sort((a, b) => streamText(a.name, a.labels).localeCompare(streamText(b.name, b.labels), "en", { numeric: true }));
    directory.value = all;
    fault.value = "";
    if (all.length <= VALUES_MAX) newest.value = new Map((await api.latest("*")).map((one) => [streamText(one.name, one.labels), one]));
  } catch (error) {
    fault.value = words(error);
  }
}

function readPins(): void {
  const { view, query } = parseRoute(location.hash);
  if (view === "streams") pins.value = [...new Set(query.getAll("pin"))].slice(0, PINS_MAX);
}

function setPins(next: readonly string[]): void {
  pins.value = next;
  history.replaceState(null, "", formatRoute("streams", new URLSearchParams(next.map((pin) => ["pin", pin]))));
}

const toggle = (key: string) =>
  setPins(pins.value.includes(key) ? pins.value.filter((pin) => pin !== key) : [...pins.value, key].slice(0, PINS_MAX));

export function Streams() {
  useEffect(() => {
    // A view opened again shows what was pinned before, unless its address says otherwise.
    if (parseRoute(location.hash).query.has("pin")) readPins();
    else setPins(pins.value);
    void load();
    addEventListener("hashchange", readPins);
    const timer = setInterval(() => document.hidden || void load(), 5000);
    return () => {
      removeEventListener("hashchange", readPins);
      clearInterval(timer);
      want("streams", []);
    };
  }, []);
  useEffect(() => want("streams", pins.value), [pins.value]);
  return (
    <main id="main" class="streams">
      <Finder />
      <div class="pinned">{pins.value.length === 0 ? <Hint /> : <Pinned />}</div>
    </main>
  );
}

function Hint() {
  return (
    <div class="hint">
      <h1>Pin a stream to see it drawn.</h1>
      <p>Type a part of its name, its device or its unit: <kbd>disk busy</kbd>, <kbd>free nvme</kbd>, <kbd>cgroup write</kbd>. <kbd>Enter</kbd> pins the first, <kbd>↓</kbd> walks the list. Up to eight share one axis of time.</p>
    </div>
  );
}

function Finder() {
  const query = useSignal("");
  const all = directory.value;
  const found = useMemo(() => find(query.value, all, (one) => streamText(one.name, one.labels), LIST_MAX), [query.value, all]);
  const step = (event: KeyboardEvent) => {
    const down = event.key === "ArrowDown";
    if (!down && event.key !== "ArrowUp") return;
    const box = (event.currentTarget as Element).closest(".finder");
    const stops = [...(box?.querySelectorAll<HTMLElement>("input, li button") ?? [])];
    stops[stops.indexOf(document.activeElement as HTMLElement) + (down ? 1 : -1)]?.focus();
    event.preventDefault();
  };
  const first = found[0];
  return (
    <section class="finder" aria-label="Find streams" onKeyDown={step}>
      <form
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          if (first !== undefined && query.value !== "") toggle(streamText(first.name, first.labels));
        }}
      >
        <input type="search" aria-label="Find a stream" placeholder="Find a stream" autocomplete="off" spellcheck={false} value={query.value} onInput={(e) => (query.value = e.currentTarget.value)} />
      </form>
      {fault.value !== "" && <Note bad>{fault.value}</Note>}
      <p class="count" role="status">
        {query.value === "" ? `${all.length.toLocaleString("en")} streams` : `${found.length === LIST_MAX ? `${LIST_MAX} or more` : found.length} found`}
      </p>
      <ul>
        {found.map((one) => (
          <Entry key={streamText(one.name, one.labels)} info={one} />
        ))}
      </ul>
    </section>
  );
}

function Entry({ info }: { info: StreamInfo }) {
  const key = streamText(info.name, info.labels);
  const last = newest.value.get(key);
  const pinned = pins.value.includes(key);
  const unit = unitOf(info.name, info.unit);
  const labels = Object.keys(info.labels).sort().map((label) => `${label}=${info.labels[label]}`).join(" ");
  const full = !pinned && pins.value.length >= PINS_MAX;
  return (
    <li>
      <button type="button" aria-pressed={pinned} disabled={full} title={full ? "eight are pinned: unpin one first" : info.help} onClick={() => toggle(key)}>
        <span class="pin" aria-hidden="true">{pinned ? "◆" : "◇"}</span>
        <span class="stream">
          {info.name}
          {labels !== "" && <span class="labels"> {labels}</span>}
        </span>
        {last !== undefined && <Newest last={last} unit={unit} intervalMs={info.interval_ns / NS_PER_MS} />}
      </button>
    </li>
  );
}

function Newest({ last, unit, intervalMs }: { last: Latest; unit: string; intervalMs: number }) {
  const old = last.age_ns / NS_PER_MS > slackOf(intervalMs) + 1000;
  if (last.value === null) return <span class="newest">–</span>;
  return (
    <span class={old ? "newest old" : "newest"} title={old ? age(last.age_ns / NS_PER_MS) : moment(last.ts / NS_PER_MS)}>
      {typeof last.value === "string" ? last.value : <Value value={Number(last.value)} unit={unit} />}
      {old && <span class="unit"> {age(last.age_ns / NS_PER_MS)}</span>}
    </span>
  );
}

function Pinned() {
  const minutes = useSignal<number>(5);
  void beat.value;
  const at = now();
  const range: readonly [number, number] = frozen.value ?? [at / 1000 - minutes.value * 60, at / 1000];
  const all = pins.value.map((pin, style) => ({ pin, style, one: get(pin) }));
  const units = [...new Set(all.flatMap(({ one }) => (one === undefined || one.ring.length === 0 ? [] : [one.unit])))];
  return (
    <>
      <div class="tools">
        <span class="spans" role="group" aria-label="Time shown">
          {WINDOWS_MIN.map((n) => (
            <button type="button" aria-pressed={frozen.value === null && minutes.value === n} onClick={() => ((minutes.value = n), (frozen.value = null))}>{n} min</button>
          ))}
        </span>
        <button type="button" class="pause" aria-pressed={frozen.value !== null} onClick={() => (frozen.value = frozen.value === null ? range : null)}>
          {frozen.value === null ? "Pause" : "Go on live"}
        </button>
        <span class="cursor-time" role="status">{frozen.value === null ? "live" : `paused at ${clock(range[1] * 1000, at)}`}</span>
        <span class="tip">drag in a chart to zoom</span>
      </div>
      {units.map((unit) => (
        <Group
          key={unit}
          unit={unit}
          range={range}
          height={units.length === 1 ? 320 : units.length === 2 ? 220 : 160}
          members={all.filter(({ one }) => one !== undefined && one.unit === unit && one.ring.length > 0) as { pin: string; style: number; one: Series }[]}
        />
      ))}
      <Legend all={all} at={at} />
    </>
  );
}

function Group({ unit, range, height, members }: { unit: string; range: readonly [number, number]; height: number; members: readonly { pin: string; style: number; one: Series }[] }) {
  const [from, to] = [range[0] * 1000, range[1] * 1000];
  const data = align(members.map(({ one }) => points(one.ring, from, to, slackOf(one.intervalMs)))) as uPlot.AlignedData;
  return (
    <Chart
      unit={unit}
      lines={members.map(({ pin, style }) => ({ label: pin, style }))}
      data={data}
      range={range}
      height={height}
      syncKey="streams"
      name={`${members.map(({ pin }) => pin).join(", ")} over time`}
      onZoom={(a, b) => (frozen.value = [a, b])}
      onCursor={(ts) => (cursorTs.value = ts)}
    />
  );
}

function Legend({ all, at }: { all: readonly { pin: string; style: number; one: Series | undefined }[]; at: number }) {
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
        {all.map(({ pin, style, one }) => (
          <LegendRow key={pin} pin={pin} style={style} one={one} ts={ts} at={at} />
        ))}
      </tbody>
    </table>
  );
}

function LegendRow({ pin, style, one, ts, at }: { pin: string; style: number; one: Series | undefined; ts: number | null; at: number }) {
  const s = SERIES_STYLES[style % SERIES_STYLES.length] ?? SERIES_STYLES[0];
  const i = one === undefined || one.ring.length === 0 ? -1 : ts === null ? one.ring.length - 1 : one.ring.at(ts, slackOf(one.intervalMs));
  const old = one !== undefined && ts === null && isOld(one);
  return (
    <tr class={old ? "old" : ""}>
      <th scope="row">
        <svg class="swatch" viewBox="0 0 24 6" aria-hidden="true"><path d="M0,3H24" style={{ stroke: `var(--${s.ink})`, strokeDasharray: s.dash.join(" ") }} /></svg>
        <span class="path">{pin}</span>
      </th>
      <td class="num">
        {one === undefined ? "not there" : i < 0 ? (one.text || "–") : (
          <>
            <Value of={quantity(one.ring.value(i), one.unit)} />
            {one.ring.error(i) > 0 && <span class="unit"> ± {quantity(one.ring.error(i), one.unit).number}</span>}
          </>
        )}
      </td>
      <td>{one !== undefined && (ts === null ? <Age of={one} now={at} /> : <span class="age">{i < 0 ? "gap" : age(ageMs(one) + Math.max(0, one.looked - ts))}</span>)}</td>
      <td>{one !== undefined && i >= 0 ? one.ring.quality(i) : ""}</td>
      <td class="acts">
        {one !== undefined && <CopyMenu one={one} />}
        <button type="button" aria-label={`Unpin ${pin}`} onClick={() => toggle(pin)}>Unpin</button>
      </td>
    </tr>
  );
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
