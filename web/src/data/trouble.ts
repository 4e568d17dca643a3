// Determines what is wrong, where and since when, from the streams, and puts it into words. Pure
// but for its input.

import type { Ring } from "./ring";
import { FREE, fills, isSoon, reachWords } from "./fills";
import { FORECAST_PREFIX } from "./projection";
import type { Projection } from "./projection";
import { slackOf } from "../sheet/geometry";
import { duration, percent, plain, quantity } from "../text/format";

export interface Trouble {
  readonly level: "bad" | "warn";
  readonly where: string;
  /** The text in a list: `saturated, 96 % busy`. */
  readonly what: string;
  /** The text in a sentence after `where`: `is saturated, 96 % busy`. */
  readonly said: string;
  /** Milliseconds since the epoch; NaN if it began before the known past. */
  readonly since: number;
}

/** The parts of a stream that are used here. */
export interface Known {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly ring: Ring;
  readonly intervalMs: number;
  readonly looked: number;
  readonly projection?: Projection;
}

/** Used share of a tier, of what users can have, above which it counts as nearly full. */
const TIER_USED_HIGH = 0.95;

/**
 * The stream of how long each disk has been saturated, in seconds: the agent decides this, the page
 * has no rule for it.
 */
export const SATURATED = "node.saturated.seconds";

/**
 * The time since which a disk has been saturated, from the agent's stream for it; NaN if it is not.
 */
export function saturatedSince(ring: Ring | undefined): number {
  const newest = ring === undefined ? -1 : ring.length - 1;
  if (ring === undefined || newest < 0) return NaN;
  const seconds = ring.value(newest);
  return seconds > 0 ? ring.ts(newest) - seconds * 1000 : NaN;
}

const last = (one: Known): number => (one.ring.length === 0 ? NaN : one.ring.value(one.ring.length - 1));
const changed = (one: Known): number => (one.ring.length === 0 ? NaN : one.ring.ts(one.ring.length - 1));

/** Everything that is wrong now, worst and oldest first. */
export function troubles(named: (name: string) => readonly Known[], now: number): Trouble[] {
  const all: Trouble[] = [];
  for (const one of named("filesystem.responding.flag")) {
    if (last(one) === 0) all.push({ level: "bad", where: one.labels["mount"] ?? "a mount", what: "does not answer", said: "has not answered", since: changed(one) });
  }
  for (const one of named("disk.busy.ratio")) {
    const where = one.labels["device"] ?? "a device";
    const silent = now - one.looked;
    if (one.looked > 0 && silent > slackOf(one.intervalMs) + 2500) {
      all.push({ level: "warn", where, what: "no news", said: "gives no news", since: one.looked });
      continue;
    }
    const word = named(SATURATED).find((s) => s.labels["device"] === where);
    const since = saturatedSince(word?.ring);
    if (!Number.isNaN(since)) {
      const what = `saturated, ${plain(percent(recentMean(one, now)))} busy`;
      all.push({ level: "bad", where, what, said: `is ${what}`, since });
    }
  }
  for (const used of named("tier.used.ratio")) {
    const tier = used.labels["tier"] ?? "";
    const available = named("tier.available.bytes").find((one) => one.labels["tier"] === tier);
    if (!(last(used) > TIER_USED_HIGH)) continue;
    const left = available === undefined ? NaN : last(available);
    const what = left === 0 ? "full" : `nearly full, ${plain(quantity(left, "bytes"))} available`;
    all.push({ level: "warn", where: `tier ${tier}`, what, said: `is ${what}`, since: NaN });
  }
  all.push(...filling(named, now));
  for (const one of named("source.up.flag")) {
    if (last(one) === 0) all.push({ level: "warn", where: `source ${one.labels["source"] ?? ""}`, what: "down", said: "is down", since: changed(one) });
  }
  const rank = (t: Trouble) => (t.level === "bad" ? 0 : 1);
  return all.sort((a, b) => rank(a) - rank(b) || (a.since || 0) - (b.since || 0));
}

/** The file systems that are predicted to be full within a day. */
function filling(named: (name: string) => readonly Known[], now: number): Trouble[] {
  return fills(named(FORECAST_PREFIX + FREE), now).filter(isSoon).map(({ mount, reach }): Trouble => {
    const what = `fills in ${reachWords(reach)}`;
    return { level: "warn", where: mount, what, said: what, since: NaN };
  });
}

/** The mean over the time for which values held in the newest ten seconds. */
function recentMean({ ring, intervalMs }: Known, now: number): number {
  const slack = slackOf(intervalMs);
  let area = 0;
  let time = 0;
  let next = Infinity;
  for (let i = ring.length - 1; i >= 0 && next > now - 10_000; i -= 1) {
    const held = ring.held(i);
    // In a short step between two samples, the older one still holds.
    const until = !ring.isLastLook(i) && next - held <= slack ? next : held;
    const ms = until - Math.max(ring.ts(i), now - 10_000);
    if (ms > 0) {
      area += ring.value(i) * ms;
      time += ms;
    }
    next = ring.ts(i);
  }
  return time > 0 ? area / time : ring.value(ring.length - 1);
}

/** The sentence at the top, if the agent gives none. */
export function outlook(all: readonly Trouble[], now: number): string {
  const [first, ...rest] = all;
  if (first === undefined) return "Calm";
  const since = Number.isNaN(first.since) ? "" : ` for ${duration(now - first.since)}`;
  const more = rest.length === 0 ? "" : `; and ${rest.length} more`;
  return `${first.where} ${first.said}${since}${more}`;
}

export interface Reading {
  readonly device: string;
  readonly busy: number;
  readonly read: number;
  readonly write: number;
  readonly latency: number;
  readonly since: number;
  readonly silentMs: number;
  readonly old: boolean;
  /** The prediction as text: `45 % ± 5 in 30 s`; empty if there is none. */
  readonly expected?: string;
}

/** A strip as one sentence, for screen readers. */
export function stripSentence(r: Reading, now: number): string {
  if (r.old) return `${r.device}: no news for ${duration(r.silentMs)}.`;
  if (Number.isNaN(r.busy)) return `${r.device}: nothing measured yet.`;
  const say = (value: number, unit: string) => plain(quantity(value, unit));
  const spell = Number.isNaN(r.since) ? "" : `, saturated for ${duration(now - r.since)}`;
  const rates = Number.isNaN(r.read) && Number.isNaN(r.write) ? "" : `, reading ${say(r.read, "B/s")}, writing ${say(r.write, "B/s")}`;
  const slow = r.latency > 0 ? `, ${say(r.latency, "s")} a request` : "";
  const coming = (r.expected ?? "") === "" ? "" : `, expected ${r.expected}`;
  return `${r.device}: ${say(r.busy, "ratio")} busy${spell}${rates}${slow}${coming}.`;
}
