// The agent's tables of applications, read without trust: publications, the calls that were sent
// into programs, knobs. A missing column is left out and is no error. Pure.

import { asNumber } from "../text/json";
import { streamText } from "../text/fuzzy";
import { NS_PER_MS } from "./contract";
import type { Labels, StreamInfo } from "./contract";

/** A row of SQL by the names of its columns. */
export type Row = Readonly<Record<string, unknown>>;

interface Table {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly unknown[])[];
}

export const rowsOf = ({ columns, rows }: Table): Row[] => rows.map((row) => Object.fromEntries(columns.map((name, c) => [name, row[c]])));

/** A publication of one process, or one that has ended. Times are ms. */
export interface Publication {
  /** Name and labels as people write them; unique among publications. */
  readonly key: string;
  readonly name: string;
  readonly labels: Labels;
  readonly alive: boolean;
  readonly application: string;
  readonly user: string;
  /** NaN if it has ended. */
  readonly pid: number;
  readonly incarnation: string;
  readonly started: number;
  readonly values: number;
  /** Number of its newest frame; NaN before the first. */
  readonly frame: number;
  /** The time of the process's last put, or, for an ended one, of its last frame. */
  readonly newest: number;
  readonly taken: number;
  readonly lost: number;
  /**
   * The parts of the lost: overwritten before they were read, given up by the program, unreadable.
   */
  readonly parts: Readonly<Record<(typeof PARTS)[number], number>>;
  readonly refused: number;
  readonly refusal: string;
}

export const PARTS = ["missed", "dropped", "damaged"] as const;

/** A cell as a text; empty if it is none. */
export const text = (cell: unknown): string => (cell === null || cell === undefined ? "" : String(cell));
/** A cell as a number; NaN if it is none. */
export const number = (cell: unknown): number => (cell === null || cell === undefined ? NaN : asNumber(cell));
const count = (cell: unknown): number => number(cell) || 0;
/** A time or a span in ns as ms. */
export const time = (cell: unknown): number => number(cell) / NS_PER_MS;

/** Parses a JSON object of texts, or `a=b,c=d`; anything else is empty. */
export function labelsOf(cell: unknown): Labels {
  const raw = text(cell).trim();
  if (raw === "") return {};
  if (!raw.startsWith("{")) return Object.fromEntries(raw.split(",").flatMap((pair) => (pair.includes("=") ? [[pair.slice(0, pair.indexOf("=")).trim(), pair.slice(pair.indexOf("=") + 1)]] : [])));
  try {
    const parsed: unknown = JSON.parse(raw);
    return Object.fromEntries(Object.entries(parsed as object).map(([name, value]) => [name, text(value)]));
  } catch {
    return {};
  }
}

export function publicationOf(row: Row): Publication {
  const [name, labels] = [text(row["name"]), labelsOf(row["labels"])];
  return {
    key: streamText(name, labels),
    name,
    labels,
    alive: true,
    application: text(row["application"]),
    user: text(row["user"]),
    pid: number(row["pid"]),
    incarnation: text(row["incarnation"]),
    started: time(row["started_ts"]),
    values: count(row["values"]),
    frame: number(row["frame"]),
    newest: time(row["newest_ts"]),
    taken: count(row["taken"]),
    lost: count(row["lost"]),
    parts: { missed: count(row["missed"]), dropped: count(row["dropped"]), damaged: count(row["damaged"]) },
    refused: count(row["refused"]),
    refusal: text(row["refusal"]),
  };
}

/**
 * The publications with known frames that no living process publishes, from rows of
 * `asof('app.*.frame')`.
 */
export function endedOf(frames: readonly Row[], alive: readonly Publication[]): Publication[] {
  const living = new Set(alive.map((one) => one.key));
  const all = frames.map((row): Publication => {
    const stream = text(row["name"]);
    const labels = labelsOf(row["labels"]);
    const name = stream.replace(/^app\./, "").replace(/\.frame$/, "");
    return {
      ...publicationOf({ name, user: labels["user"], application: labels["application"], frame: row["value"], newest_ts: row["sample_ts"] }),
      key: streamText(name, labels),
      labels,
      alive: false,
    };
  });
  return all.filter((one) => !living.has(one.key));
}

/**
 * The number of frames that each publication has committed, by its key; `streams` are
 * `app.*.frame`.
 */
export function framesOf(streams: readonly StreamInfo[]): Map<string, number> {
  return new Map(streams.map((one) => [streamText(one.name.replace(/^app\./, "").replace(/\.frame$/, ""), one.labels), one.samples ?? NaN]));
}

/** Longest time over which the rate of frames is measured, in ms. */
const RATE_MS = 60_000;
const RATE_FRAMES = 10;

/** The counts of frames at the time `at` of a request. */
export interface Counted {
  readonly at: number;
  readonly counts: ReadonlyMap<string, number>;
}

/** The counts that still matter, including this one. */
export const looked = (before: readonly Counted[], now: Counted): Counted[] => [...before.filter((one) => now.at - one.at <= RATE_MS && one.at < now.at), now];

/** Frames per second; NaN while fewer than two counts include the publication. */
export function rateOf(looks: readonly Counted[], key: string): number {
  const last = looks.at(-1);
  const count = last?.counts.get(key);
  if (last === undefined || count === undefined) return NaN;
  let rate = NaN;
  for (let i = looks.length - 2; i >= 0; i -= 1) {
    const { at, counts } = looks[i] as Counted;
    const more = count - (counts.get(key) ?? NaN);
    // The publication did not exist yet, or another life of the program began.
    if (!(more >= 0)) return rate;
    rate = (more * 1000) / (last.at - at);
    if (more >= RATE_FRAMES) return rate;
  }
  return rate;
}

/** A call that was sent into running programs: a handler called, or a knob set. Times are ms. */
export interface Firing {
  readonly id: string;
  readonly at: number;
  readonly name: string;
  readonly isKnob: boolean;
  readonly target: Labels;
  /** The user whose programs are called; empty if the agent does not give it. */
  readonly user: string;
  /** The publications whose handler or knob it is; empty if the agent does not give them. */
  readonly publications: readonly string[];
  /** The one process that is called; empty for any. */
  readonly incarnation: string;
  readonly payload: string;
  /** Size of the payload, which only its user may see; NaN if the agent does not give it. */
  readonly payloadBytes: number;
  readonly by: string;
  readonly matched: number;
  readonly acknowledged: number;
  readonly failed: number;
  readonly refused: number;
  readonly expired: number;
  readonly gone: number;
  readonly state: string;
  /** Time of the last answer; NaN before the first. */
  readonly answered: number;
  /** Whether some part of the call failed. */
  readonly isBad: boolean;
}

/** Parses a JSON list of texts; anything else is empty. */
function textsOf(cell: unknown): string[] {
  try {
    const parsed: unknown = JSON.parse(text(cell));
    return Array.isArray(parsed) ? parsed.map(text) : [];
  } catch {
    return [];
  }
}

export function firingOf(row: Row): Firing {
  const [failed, refused, expired, state] = [count(row["failed"]), count(row["refused"]), count(row["expired"]), text(row["state"])];
  const [user, pid] = [text(row["by_user"] ?? row["by"]), text(row["by_pid"])];
  const by = [/^\d+$/.test(user) ? `uid ${user}` : user, pid === "" ? "" : `pid ${pid}`, text(row["via"])];
  return {
    id: `${text(row["scope"])}:${text(row["id"])}`,
    at: time(row["ts"]),
    name: text(row["name"]),
    isKnob: text(row["kind"]) === "knob",
    target: labelsOf(row["target"]),
    user: text(row["user"]),
    publications: textsOf(row["publications"]),
    incarnation: text(row["incarnation"]),
    payload: text(row["payload"]),
    payloadBytes: number(row["payload_bytes"]),
    by: by.filter((part) => part !== "").join(", "),
    matched: count(row["matched"]),
    acknowledged: count(row["acknowledged"]),
    failed,
    refused,
    expired,
    gone: count(row["gone"]),
    state,
    answered: time(row["last_ack_ts"]),
    isBad: failed + refused + expired > 0 || ["failed", "refused", "expired", "gone"].includes(state),
  };
}

/**
 * Whether a target matches this publication's process: the process has all labels of the target.
 */
export function means(target: Labels, one: Publication): boolean {
  const own: Labels = { ...one.labels, publication: one.name, application: one.application, user: one.user, pid: text(one.pid) };
  return Object.entries(target).every(([name, value]) => one.labels[name] === value || own[name] === value);
}

/**
 * Whether a call was sent into this publication's process while that lived, and for this
 * publication if that is known.
 */
export const concerns = ({ target, user, publications, incarnation, at, name, isKnob }: Firing, one: Publication): boolean =>
  means(target, one) && (user === "" || user === one.user) && (publications.length === 0 || publications.includes(one.name)) && (incarnation === "" || incarnation === one.incarnation) && (!isKnob || name.startsWith(`${one.name}.`)) && (one.alive ? !(at < one.started) : at <= one.newest);

/** A rule: it fires when its condition becomes true for a subject. Times are ms. */
export interface Declared {
  readonly name: string;
  readonly call: string;
  readonly sql: string;
  readonly help: string;
  readonly state: string;
  readonly reason: string;
  readonly subjects: number;
  readonly holding: number;
  readonly fired: number;
  readonly suppressed: number;
  readonly failed: number;
  readonly lastFired: number;
  readonly isBad: boolean;
}

export function declaredOf(row: Row): Declared {
  const [state, failed] = [text(row["state"]), count(row["failed"])];
  return {
    name: text(row["name"]),
    call: text(row["call"]),
    sql: text(row["sql"]),
    help: text(row["help"]),
    state,
    reason: text(row["reason"]),
    subjects: count(row["subjects"]),
    holding: count(row["holding"]),
    fired: count(row["fired"]),
    suppressed: count(row["suppressed"]),
    failed,
    lastFired: time(row["last_fired_ts"]),
    isBad: state === "failed",
  };
}

/** A value that may be set from outside, within bounds. */
export interface Knob {
  readonly publication: string;
  /** The name, with the publication's name before it. */
  readonly name: string;
  readonly labels: Labels;
  readonly type: string;
  readonly unit: string;
  readonly min: number;
  readonly max: number;
  readonly value: unknown;
  readonly at: number;
}

export function knobOf(row: Row): Knob {
  const publication = text(row["publication"]);
  const name = text(row["name"]);
  const full = publication === "" || name.startsWith(`${publication}.`) ? name : `${publication}.${name}`;
  return {
    publication,
    name: full,
    labels: labelsOf(row["labels"]),
    type: text(row["type"]),
    unit: text(row["unit"]),
    min: number(row["min"]),
    max: number(row["max"]),
    value: row["value"],
    at: time(row["ts"]),
  };
}

/** Whether a knob is one of this publication's. */
export const isOf = (knob: Knob, one: Publication): boolean => knob.publication === one.name && Object.entries(knob.labels).every(([name, value]) => one.labels[name] === value);

/** A word as a shell needs it: quoted if necessary. */
export const shellText = (word: string): string => (/^[\w.,:/@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/**
 * The command line that sets a knob of this publication and of no other, split into parts that must
 * not be broken.
 */
export function setCommand(knob: Knob, one: Publication): string[] {
  const targets = Object.keys(one.labels).sort().map((label) => `--target ${shellText(`${label}=${one.labels[label]}`)}`);
  const value = knob.type === "bool" && knob.value !== null ? String(number(knob.value) !== 0) : text(knob.value);
  return [`baro knob set ${shellText(knob.name)} ${shellText(value || "VALUE")}`, ...targets];
}

/**
 * The pattern of a publication's streams, which are `app.<name>.<value>`; one of them has the
 * numbers of frames.
 */
export const streamsOf = ({ name, labels }: Publication): string => streamText(`app.${name}.*`, labels);
export const frameOf = ({ name, labels }: Publication): string => streamText(`app.${name}.frame`, labels);

/**
 * Whether a stream is a value of this publication, and not of one with a longer name or with more
 * labels.
 */
export function isValueOf(stream: { readonly name: string; readonly labels: Labels }, one: Publication, others: readonly Publication[]): boolean {
  const value = valueName(stream.name, one);
  if (value === "" || value === "frame" || streamText("", stream.labels) !== streamText("", one.labels)) return false;
  return !others.some((other) => other.name.startsWith(`${one.name}.`) && stream.name.startsWith(`app.${other.name}.`));
}

/** The value's own name; empty if the stream is not below the publication's name. */
export const valueName = (stream: string, { name }: Publication): string => (stream.startsWith(`app.${name}.`) ? stream.slice(name.length + 5) : "");

/** A sentence with the most important counts. */
export function summary(alive: readonly Publication[], ended: number): string {
  const programs = new Set(alive.map((one) => one.incarnation)).size;
  const many = (n: number, one: string, more = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : more}`;
  if (alive.length === 0) return ended === 0 ? "No application publishes here yet." : `No application publishes now; ${ended === 1 ? "one publication has" : `${ended} publications have`} ended within a day.`;
  const parts = [`${many(alive.length, "publication")} of ${many(programs, "process", "processes")}`];
  if (ended > 0) parts.push(`${ended} ended within a day`);
  // A process has one count of losses for all its publications.
  const lost = [...new Map(alive.map((one) => [one.incarnation, one.lost])).values()].reduce((sum, n) => sum + n, 0);
  if (lost > 0) parts.push(`${many(lost, "value")} lost`);
  if (alive.some((one) => one.refusal !== "")) parts.push("something refused");
  return `${parts.join(", ")}.`;
}
