// What the page knows of the streams: one EventSource, backfilled by history, kept in rings.
//
// The views say which streams they want; the feed watches the union over one connection, opens it
// again when the agent comes back, and marks the time since when it is silent.

import { batch, signal } from "@preact/signals";
import * as api from "./api";
import { NS_PER_MS, numberOf, qualityOf } from "./contract";
import type { History, Labels, Raw, Tick, WatchedStream } from "./contract";
import { FORECAST_PREFIX, lookedAgain, projectionOf } from "./projection";
import type { Projection } from "./projection";
import { ENDED, heldUntil, pushHeld, Ring, ringStart } from "./ring";
import { streamText } from "../text/fuzzy";
import { unitOf } from "../text/format";
import { slackOf } from "../sheet/geometry";

/** Most streams the page follows at once; the rest are left out, and counted. */
export const SERIES_MAX = 1024;
/** Without a tick for so long the agent counts as dead. */
export const SILENCE_MS = 3000;
/** How far back the page looks at its start. */
const BACKFILL_MS = 15 * 60_000;
/** Most silences of the agent that are remembered as gaps; older ones have left the paper. */
const SILENCES_MAX = 32;
const RETRY_MS = 1000;
const REOPEN_MS = 5000;

export interface Series {
  readonly key: string;
  readonly name: string;
  readonly labels: Labels;
  readonly unit: string;
  readonly kind: string;
  readonly help: string;
  ring: Ring;
  /** Newest text, for streams of text. */
  text: string;
  /** Newest projection, for streams of those. */
  projection?: Projection;
  /** Expected time between looks; 0 when it is written only as its inputs change. */
  intervalMs: number;
  /** Last time the agent looked at the resource. */
  looked: number;
}

export type Link = { readonly state: "connecting" | "live" | "lost"; readonly since: number };

/** Counts up whenever there is something new to show. */
export const beat = signal(0);
export const link = signal<Link>({ state: "connecting", since: Date.now() });
/** The past has been asked for and told: before that, little can be said of since when. */
export const filled = signal(false);
/** Streams beyond SERIES_MAX, not followed. */
export const leftOut = signal(0);

const series = new Map<string, Series>();
const names = new Map<string, Series[]>();
const wants = new Map<string, readonly string[]>();
/** When the agent was heard last and again: history tells changes only, so it cannot tell these. */
let silences: { readonly from: number; to: number }[] = [];
let byIndex: (Series | undefined)[] = [];
let source: EventSource | undefined;
let watched = "";
/** Streams of the watch beyond SERIES_MAX. */
let over = 0;
let lastTick = 0;
let openedAt = 0;
/** Patterns are left out of the watch, since the whole was refused. */
let narrow = false;
/** Agent's clock less ours. */
let skewMs = 0;

/** The agent's time. */
export const now = (): number => Date.now() + skewMs;
/** When the last tick came, by the agent's clock. */
export const lastHeard = (): number => lastTick + skewMs;

export const get = (key: string): Series | undefined => series.get(key);

/** The followed streams of this name, in the order of their labels. */
export const named = (name: string): readonly Series[] => names.get(name) ?? [];

/** What the agent expects of the stream with this key; undefined where it is not forecast, and of a silent agent. */
export const expectedOf = (key: string): Projection | undefined => (link.value.state === "lost" ? undefined : series.get(FORECAST_PREFIX + key)?.projection);

/** The newest value, NaN if there is none or it is past its time. */
export function current(one: Series | undefined): number {
  if (one === undefined || one.ring.length === 0 || isOld(one)) return NaN;
  return one.ring.value(one.ring.length - 1);
}

export const ageMs = (one: Series): number => Math.max(0, now() - one.looked);

/** Past its expected age: more than two and a half intervals and a tick late. */
export const isOld = (one: Series): boolean => link.value.state === "lost" || ageMs(one) > slackOf(one.intervalMs) + 1000;

/** Says what a view needs; replaces what it said before. */
export function want(who: string, matches: readonly string[]): void {
  if (matches.length === 0) wants.delete(who);
  else wants.set(who, matches);
  queueMicrotask(follow);
}

function follow(): void {
  const query = matches().map((match) => `match=${encodeURIComponent(match)}`).join("&");
  if (query === watched && source !== undefined) return;
  watched = query;
  open();
}

const matches = (): string[] => [...new Set([...wants.values()].flat())].filter((match) => !narrow || !match.includes("*")).sort();

function open(): void {
  source?.close();
  source = undefined;
  if (watched === "" || document.hidden) return;
  const mine = new EventSource(`api/v1/watch?${watched}&every_ms=1000`);
  source = mine;
  openedAt = Date.now();
  let asked = false;
  // The browser connects again by itself: what was between must be asked for then, too.
  mine.addEventListener("open", () => (asked = false));
  mine.addEventListener("streams", (event) => {
    if (source !== mine) return;
    setStreams(JSON.parse(event.data) as WatchedStream[]);
    if (!asked) void backfill();
    asked = true;
  });
  mine.addEventListener("tick", (event) => {
    if (source === mine) takeTick(JSON.parse(event.data) as Tick);
  });
  mine.addEventListener("stale", (event) => {
    // The server answers, but whoever samples does not: the sheet is as old as its last beat.
    const { since } = JSON.parse(event.data) as { since: number };
    if (source === mine) lose(since / NS_PER_MS);
  });
  mine.addEventListener("error", () => {
    // Refused, not broken off: perhaps too many streams match. The next try asks for fewer.
    if (source === mine && mine.readyState === EventSource.CLOSED && link.value.state !== "lost") narrow = !narrow;
  });
}

function setStreams(list: readonly WatchedStream[]): void {
  const alive = new Set(list.map((info) => streamText(info.name, info.labels)));
  for (const key of series.keys()) if (!alive.has(key)) series.delete(key);
  byIndex = [];
  over = 0;
  for (const info of list) {
    const key = streamText(info.name, info.labels);
    let one = series.get(key);
    if (one === undefined) {
      if (series.size >= SERIES_MAX) {
        over += 1;
        continue;
      }
      one = fresh(key, info);
      series.set(key, one);
    }
    one.intervalMs = info.interval_ns / NS_PER_MS;
    byIndex[info.index] = one;
  }
  names.clear();
  for (const key of [...series.keys()].sort(natural)) {
    const one = series.get(key) as Series;
    const same = names.get(one.name);
    if (same === undefined) names.set(one.name, [one]);
    else same.push(one);
  }
  beat.value += 1;
}

function fresh(key: string, { name, labels, type, kind, help, unit }: WatchedStream): Series {
  return { key, name, labels, kind, help, unit: unitOf(name, type === "bool" ? "flag" : unit), ring: new Ring(), text: "", intervalMs: 0, looked: 0 };
}

const natural = new Intl.Collator("en", { numeric: true }).compare;

function takeTick(tick: Tick): void {
  const at = tick.ts / NS_PER_MS;
  const here = Date.now();
  // The least delayed of the recent ticks tells the skew best; a jump of a clock resets it.
  const seen = at - here;
  skewMs = lastTick === 0 || Math.abs(seen - skewMs) > 2000 ? seen : Math.max(seen, skewMs - 1);
  lastTick = here;
  const back = link.value.state === "lost";
  for (const [index, ts, raw, quality, error] of tick.samples) take(byIndex[index], ts / NS_PER_MS, raw, qualityOf(quality), error);
  for (const [index, lookedNs] of tick.looked) {
    const one = byIndex[index];
    if (one === undefined) continue;
    const looked = lookedNs / NS_PER_MS;
    one.looked = Math.max(one.looked, looked);
    // What was found again as it was is expected to go on from there.
    if (one.projection !== undefined) one.projection = lookedAgain(one.projection, one.looked);
    if (back) one.ring.resume(looked);
    else one.ring.hold(looked);
  }
  for (const [index, intervalNs] of tick.intervals ?? []) {
    const one = byIndex[index];
    if (one !== undefined) one.intervalMs = intervalNs / NS_PER_MS;
  }
  batch(() => {
    leftOut.value = over + (tick.left_out ?? 0);
    if (link.value.state !== "live") {
      const silence = silences.at(-1);
      if (silence !== undefined) silence.to = Math.min(silence.to, at);
      link.value = { state: "live", since: at };
    }
    beat.value += 1;
  });
}

function take(one: Series | undefined, ts: number, raw: Raw, quality: number, error: number): void {
  if (one === undefined) return;
  if (typeof raw === "string") one.text = raw;
  else if (Array.isArray(raw)) {
    const projection = projectionOf(ts, raw);
    if (projection === undefined) delete one.projection;
    else one.projection = projection;
  } else one.ring.push(ts, numberOf(raw), quality, error);
  one.looked = Math.max(one.looked, ts);
}

async function backfill(): Promise<void> {
  const mine = source;
  const start = now() - BACKFILL_MS;
  await Promise.all(
    matches().map(async (match) => {
      // Of what was expected once only the newest counts, and the watch tells that.
      if (match.startsWith(FORECAST_PREFIX)) return;
      try {
        const all = await api.history(match, await sinceOf(match, start));
        if (source === mine) all.forEach(fill);
      } catch (error) {
        // History is a comfort: without it the sheet begins at the pen.
        if (!(error instanceof api.ApiError)) throw error;
      }
    }),
  );
  batch(() => {
    filled.value = true;
    beat.value += 1;
  });
}

/** How many stretches the past is counted in before it is asked for. */
const STRETCHES = 180;

/** From when on to ask: a program may put thousands of values a second, of which the rings hold the newest. */
async function sinceOf(match: string, start: number): Promise<number> {
  if (!match.startsWith("app.")) return start;
  const counted = await api.buckets([match], { start, stop: now(), points: STRETCHES });
  return Math.max(start, ...counted.map((one) => ringStart(one.ts, one.count) / NS_PER_MS));
}

/** Puts an answer of history in place of what the ring held from its first sample on. */
function fill(answer: History): void {
  const key = streamText(answer.name, answer.labels);
  const one = series.get(key);
  const n = answer.ts.length;
  if (one === undefined || n === 0 || Array.isArray(answer.value[n - 1])) return;
  if (typeof answer.value[n - 1] === "string") {
    if (one.text === "") take(one, (answer.ts[n - 1] ?? 0) / NS_PER_MS, answer.value[n - 1] ?? null, 0, 0);
    return;
  }
  const old = one.ring;
  const ring = new Ring();
  const first = (answer.ts[0] ?? 0) / NS_PER_MS;
  const last = (answer.ts[n - 1] ?? 0) / NS_PER_MS;
  for (let i = 0; i < old.length && old.ts(i) < first; i += 1) ring.take(old, i, first - 1);
  for (let i = 0; i < n; i += 1) {
    const ts = (answer.ts[i] ?? 0) / NS_PER_MS;
    const next = (answer.ts[i + 1] ?? NaN) / NS_PER_MS;
    const quality = qualityOf(answer.quality[i] ?? 0);
    const held = quality === ENDED ? ts : heldUntil(ts, next, one.intervalMs);
    pushHeld(ring, silences, { ts, held, next, value: numberOf(answer.value[i] ?? null), quality });
  }
  for (let i = old.before(last) + 1; i < old.length; i += 1) {
    // History told all changes so far: the same value, told by the watch, is no change.
    if (old.value(i) === ring.value(ring.length - 1) && !ring.isLastLook(ring.length - 1)) ring.hold(old.held(i));
    else ring.take(old, i);
  }
  one.looked = Math.max(one.looked, last);
  ring.hold(one.looked);
  one.ring = ring;
}

/** Says that the agent is silent, once, and remembers it as a gap. */
function lose(since: number): void {
  if (link.value.state === "lost") return;
  silences = [...silences, { from: since, to: Infinity }].slice(-SILENCES_MAX);
  link.value = { state: "lost", since };
}

/** Watches over the connection: says when it is lost, and opens it again. */
function guard(): void {
  if (document.hidden) return;
  const here = Date.now();
  const silent = here - Math.max(lastTick, openedAt);
  if (lastTick > 0 && here - lastTick > SILENCE_MS && link.value.state === "live" && here - openedAt > SILENCE_MS) {
    lose(lastHeard());
  }
  if (lastTick === 0 && silent > SILENCE_MS && link.value.state === "connecting") lose(openedAt);
  const closed = source === undefined || source.readyState === EventSource.CLOSED;
  if (watched === "" || !((closed && here - openedAt > RETRY_MS) || silent > REOPEN_MS)) return;
  watched = "";
  follow();
}

/** Starts the watch over the connection; a hidden page lets go of it. */
export function start(): void {
  setInterval(guard, 500);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      source?.close();
      source = undefined;
    } else open();
  });
}
