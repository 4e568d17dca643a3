// The streams that the page follows: one EventSource, backfilled by history, kept in rings.
//
// The views register the streams that they need; the feed watches the union over one connection,
// opens it again when the agent comes back, and records the time from which on it is silent.

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

/** Most streams that the page follows at once; further ones are left out, and counted. */
export const SERIES_MAX = 1024;
/** Time without a tick after which the agent counts as dead: as long as other readers wait for a heartbeat. */
export const SILENCE_MS = 5000;
/** How far back history is read when the page starts. */
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
  /** Interval of looks; 0 if a value is written only when its inputs change. */
  intervalMs: number;
  /** Last time the agent looked at the resource. */
  looked: number;
}

export type Link = { readonly state: "connecting" | "live" | "lost"; readonly since: number };

/** A counter that is incremented whenever there is something new to show. */
export const beat = signal(0);
export const link = signal<Link>({ state: "connecting", since: Date.now() });
/** Whether the past was requested and answered: before that, starting times are mostly unknown. */
export const filled = signal(false);
/** Streams beyond SERIES_MAX, not followed. */
export const leftOut = signal(0);

const series = new Map<string, Series>();
const names = new Map<string, Series[]>();
const wants = new Map<string, readonly string[]>();
/**
 * Silences: when the last tick before and the first after each came. History contains only changes,
 * so it does not show them.
 */
let silences: { readonly from: number; to: number }[] = [];
let byIndex: (Series | undefined)[] = [];
let source: EventSource | undefined;
let watched = "";
/** Streams of the watch beyond SERIES_MAX. */
let over = 0;
let lastTick = 0;
let openedAt = 0;
/** Whether patterns are left out of the watch, because the whole was refused. */
let narrow = false;
/** The agent's clock minus ours. */
let skewMs = 0;

/** The agent's time. */
export const now = (): number => Date.now() + skewMs;
/** The time of the last tick, by the agent's clock. */
export const lastHeard = (): number => lastTick + skewMs;

export const get = (key: string): Series | undefined => series.get(key);

/** The followed streams of this name, in the order of their labels. */
export const named = (name: string): readonly Series[] => names.get(name) ?? [];

/**
 * The projection of the stream with this key; undefined if it is not forecast, or if the agent is
 * silent.
 */
export const expectedOf = (key: string): Projection | undefined => (link.value.state === "lost" ? undefined : series.get(FORECAST_PREFIX + key)?.projection);

/** The newest value; NaN if there is none or it is too old. */
export function current(one: Series | undefined): number {
  if (one === undefined || one.ring.length === 0 || isOld(one)) return NaN;
  return one.ring.value(one.ring.length - 1);
}

export const ageMs = (one: Series): number => Math.max(0, now() - one.looked);

/** Whether the newest look is too old: by more than two and a half intervals and a late tick. */
export const isOld = (one: Series): boolean => link.value.state === "lost" || ageMs(one) > slackOf(one.intervalMs) + 1000;

/** Registers the streams that a view needs; replaces its earlier registration. */
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
  const mine = new EventSource(api.watchPath(watched));
  source = mine;
  openedAt = Date.now();
  let asked = false;
  // The browser reconnects by itself: the history of the time in between must be requested then,
  // too.
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
    // The server answers, but the sampling thread does not: the sheet is as old as its last tick.
    const { since } = JSON.parse(event.data) as { since: number };
    if (source === mine) lose(since / NS_PER_MS);
  });
  mine.addEventListener("error", () => {
    // The watch was refused, not interrupted: perhaps too many streams match. The next attempt asks
    // for fewer.
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
  // The least delayed of the recent ticks shows the skew best; a jump of a clock resets it.
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
    // A value that a later look found unchanged has its projection moved to that look.
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
      // Only the newest projection counts, and the watch sends that.
      if (match.startsWith(FORECAST_PREFIX)) return;
      try {
        const all = await api.history(match, await sinceOf(match, start));
        if (source === mine) all.forEach(fill);
      } catch (error) {
        // History is optional: without it the sheet begins at the pen.
        if (!(error instanceof api.ApiError)) throw error;
      }
    }),
  );
  batch(() => {
    filled.value = true;
    beat.value += 1;
  });
}

/** Number of buckets in which the samples are counted before history is requested. */
const STRETCHES = 180;

/**
 * The time from which on to request history: a program may put thousands of values a second, of
 * which the rings hold only the newest.
 */
async function sinceOf(match: string, start: number): Promise<number> {
  if (!match.startsWith("app.")) return start;
  const counted = await api.buckets([match], { start, stop: now(), points: STRETCHES });
  return Math.max(start, ...counted.map((one) => ringStart(one.ts, one.count) / NS_PER_MS));
}

/** Replaces the ring's content by an answer of history, followed by what the ring held after it. */
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
  const begins = new Set(answer.begins);
  const first = (answer.ts[0] ?? 0) / NS_PER_MS;
  const last = (answer.ts[n - 1] ?? 0) / NS_PER_MS;
  for (let i = 0; i < old.length && old.ts(i) < first; i += 1) ring.take(old, i, first - 1);
  for (let i = 0; i < n; i += 1) {
    const ts = (answer.ts[i] ?? 0) / NS_PER_MS;
    const next = (answer.ts[i + 1] ?? NaN) / NS_PER_MS;
    const quality = qualityOf(answer.quality[i] ?? 0);
    const held = heldUntil(ts, next, one.intervalMs, quality === ENDED || begins.has(i + 1));
    pushHeld(ring, silences, { ts, held, next, value: numberOf(answer.value[i] ?? null), quality });
  }
  for (let i = old.before(last) + 1; i < old.length; i += 1) {
    // History contains all changes so far, so the same value from the watch is no change.
    if (old.value(i) === ring.value(ring.length - 1) && !ring.isLastLook(ring.length - 1)) ring.hold(old.held(i));
    else ring.take(old, i);
  }
  one.looked = Math.max(one.looked, last);
  ring.hold(one.looked);
  one.ring = ring;
}

/** Records once that the agent is silent, and remembers it as a gap. */
function lose(since: number): void {
  if (link.value.state === "lost") return;
  silences = [...silences, { from: since, to: Infinity }].slice(-SILENCES_MAX);
  link.value = { state: "lost", since };
}

/** Checks the connection: records its loss, and opens it again. */
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

/** Starts the checks of the connection; a hidden page closes it. */
export function start(): void {
  setInterval(guard, 500);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      source?.close();
      source = undefined;
    } else open();
  });
}
