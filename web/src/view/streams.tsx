// The Streams view: find streams by typing, pin up to eight, and read them on one axis of time.

import { signal, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import * as api from "../data/api";
import { want } from "../data/feed";
import { FORECAST_PREFIX } from "../data/projection";
import type { Latest, StreamInfo } from "../data/contract";
import { NS_PER_MS } from "../data/contract";
import { age, moment, unitOf, words } from "../text/format";
import { find, streamText } from "../text/fuzzy";
import { slackOf } from "../sheet/geometry";
import { Note, Value } from "./parts";
import { Pinned } from "./pinned";
import { addressed, pins, PINS_MAX, readAddress, setPins, toggle } from "./pins";

/** Most lines of the list; typing reduces it. */
const LIST_MAX = 120;
/** With more streams than this, their newest values are not fetched for the list. */
const VALUES_MAX = 4000;

const directory = signal<readonly StreamInfo[]>([]);
const newest = signal<ReadonlyMap<string, Latest>>(new Map());
const fault = signal("");

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

export function Streams() {
  useEffect(() => {
    // A view that is opened again shows the previously pinned streams, unless its address names
    // others.
    if (addressed()) readAddress();
    else setPins(pins.value);
    void load();
    addEventListener("hashchange", readAddress);
    const timer = setInterval(() => document.hidden || void load(), 5000);
    return () => {
      removeEventListener("hashchange", readAddress);
      clearInterval(timer);
      want("streams", []);
    };
  }, []);
  useEffect(() => want("streams", pins.value.flatMap((pin) => [pin, FORECAST_PREFIX + pin])), [pins.value]);
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
        {query.value === "" ? `${all.length.toLocaleString("en")} streams${api.shownNode === "" ? "" : ` of ${api.shownNode} are mirrored`}` : `${found.length === LIST_MAX ? `${LIST_MAX} or more` : found.length} found`}
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
  const old = last.stale === true || last.age_ns / NS_PER_MS > slackOf(intervalMs) + 1000;
  if (last.value === null) return <span class="newest">–</span>;
  return (
    <span class={old ? "newest old" : "newest"} title={old ? age(last.age_ns / NS_PER_MS) : moment(last.ts / NS_PER_MS)}>
      {typeof last.value === "string" ? last.value : <Value value={Number(last.value)} unit={unit} />}
      {old && <span class="unit"> {age(last.age_ns / NS_PER_MS)}</span>}
    </span>
  );
}
