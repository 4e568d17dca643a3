// File events, rules on them and their actions: the statements that ask for them, and their rows read
// without trust. A missing column is left out and is no error. Pure.

import { number, text, time } from "../shared";
import { sqlText } from "../text/copy";
import { duration } from "../text/format";
import type { Row } from "./publications";

/** The spans to choose from, in seconds: long enough to see, short enough to count again and again. */
export const EVENT_SPANS_S = [60, 300, 900, 3600] as const;
/** Bars of a strip. */
export const SLOTS = 30;
/** Most events that are counted; earlier ones of the span are left out, and the page says so. */
export const EVENTS_MAX = 10_000;
export const DIRECTORIES_MAX = 40;
export const NEWEST_MAX = 12;
const RULES_MAX = 300;
export const DEAD_MAX = 50;
const WATCHES_MAX = 200;
/** The agent tells the newest 500 actions, and as many dead ones. */
const TOLD_MAX = 500;
/** How long before its action an event is looked for. */
const CAUSE_MS = 120_000;

/** A stretch of time in slots of equal length. Times are ms. */
export interface Stretch {
  readonly start: number;
  readonly stop: number;
  readonly stepMs: number;
}

/** The slots of a span up to `stop`. They lie at multiples of their length, so that bars do not flicker. */
export function stretchOf(spanSeconds: number, stop: number): Stretch {
  const stepMs = (spanSeconds * 1000) / SLOTS;
  return { start: (Math.floor(stop / stepMs) - SLOTS + 1) * stepMs, stop, stepMs };
}

/** Nanoseconds do not fit a double, so they are written as milliseconds and six zeros. */
const ns = (ms: number): string => `${Math.floor(ms)}000000`;
const WITHIN = (at: Stretch): string => `ts >= ${ns(at.start)} AND ts <= ${ns(at.stop)}`;
/** The directory of an event with a slash at its end; empty for an event without a path. */
const DIR = "coalesce(rtrim(path, replace(path, '/', '')), '')";

/** One row for each directory, those with most events first; `slots` and `kinds` are `name:count,…`. */
export const directoriesSql = (at: Stretch): string => `
WITH e AS MATERIALIZED (SELECT ts, kind, ${DIR} AS dir FROM events WHERE ${WITHIN(at)} ORDER BY ts DESC LIMIT ${EVENTS_MAX}),
s AS (SELECT dir, (ts - ${ns(at.start)}) / ${ns(at.stepMs)} AS slot, count(*) AS n, max(ts) AS newest, min(ts) AS oldest FROM e GROUP BY 1, 2),
k AS (SELECT dir, kind, count(*) AS n FROM e GROUP BY 1, 2)
SELECT dir, sum(n) AS n, max(newest) AS newest, group_concat(slot || ':' || n) AS slots,
(SELECT group_concat(kind || ':' || n) FROM k WHERE k.dir = s.dir) AS kinds,
count(*) OVER () AS directories, sum(sum(n)) OVER () AS total, min(min(oldest)) OVER () AS oldest
FROM s GROUP BY dir ORDER BY 2 DESC, 1 LIMIT ${DIRECTORIES_MAX}`;

/** The newest events of a directory, or of all if it is null. */
export function newestSql(at: Stretch, directory: string | null): string {
  const columns = "ts, kind, path, old_path, size, uid, job, idx, source, quality, complete";
  const all = `SELECT ${columns} FROM events WHERE ${WITHIN(at)} ORDER BY ts DESC LIMIT`;
  return directory === null ? `${all} ${NEWEST_MAX}` : `SELECT * FROM (${all} ${EVENTS_MAX}) WHERE ${DIR} = ${sqlText(directory)} LIMIT ${NEWEST_MAX}`;
}

export const RULES_SQL = `SELECT name, call, sql, help, state, reason, fired, suppressed, failed, missed, last_fired_ts FROM rules LIMIT ${RULES_MAX}`;
export const QUEUE_SQL = "SELECT rule, state, count(*) AS n FROM actions GROUP BY rule, state LIMIT 1000";
export const DEAD_SQL = `SELECT id, rule, source, idx, attempts, reason, enqueued_ts, ended_ts, count(*) OVER () AS total FROM actions WHERE state = 'dead' ORDER BY ended_ts DESC, id DESC LIMIT ${DEAD_MAX}`;
export const WATCHES_SQL = `SELECT name, path, collector, state, events, gaps, reconciled, waiting_bytes, trouble FROM watches ORDER BY state = 'live', name LIMIT ${WATCHES_MAX}`;

/** The events that started these actions: each is looked for in the time before its action. */
export function causesSql(actions: readonly Action[]): string {
  const wanted = actions.map(({ source, idx, enqueued }) => `(${sqlText(source)}, ${idx}, ${ns(enqueued - CAUSE_MS)}, ${ns(enqueued + 1)})`);
  return `WITH a(s, i, t, u) AS (VALUES ${wanted.join(", ")}) SELECT e.source, e.idx, e.kind, e.path FROM a JOIN events e ON e.ts BETWEEN a.t AND a.u AND e.source = a.s AND e.idx = a.i LIMIT ${actions.length}`;
}

const count = (cell: unknown): number => number(cell) || 0;

/** The events of a directory in the time shown. */
export interface Directory {
  /** With a slash at its end; empty for events without a path. */
  readonly path: string;
  readonly events: number;
  readonly slots: readonly number[];
  readonly kinds: readonly (readonly [string, number])[];
  readonly newest: number;
}

export interface Counted {
  readonly directories: readonly Directory[];
  /** The number of directories with events, also of those left out above. */
  readonly all: number;
  readonly total: number;
  /** The time from which on events are counted, if there were too many for the whole span; else NaN. */
  readonly since: number;
}

/** `a:1,b:2` as pairs. */
const pairs = (cell: unknown): [string, number][] =>
  text(cell).split(",").map((pair) => pair.split(":")).flatMap(([name = "", n]) => (Number(n) > 0 ? [[name, Number(n)]] : []));

export function countedOf(rows: readonly Row[]): Counted {
  const [first] = rows;
  const total = count(first?.["total"]);
  return {
    all: count(first?.["directories"]),
    total,
    since: total >= EVENTS_MAX ? time(first?.["oldest"]) : NaN,
    directories: rows.map((row) => {
      const slots = new Array<number>(SLOTS).fill(0);
      for (const [slot, n] of pairs(row["slots"])) if (Number(slot) < SLOTS) slots[Number(slot)] = n;
      const kinds = pairs(row["kinds"]).sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
      return { path: text(row["dir"]), events: count(row["n"]), slots, kinds, newest: time(row["newest"]) };
    }),
  };
}

/** A recorded event. */
export interface FileEvent {
  readonly key: string;
  readonly at: number;
  readonly kind: string;
  readonly path: string;
  readonly oldPath: string;
  readonly size: number;
  /** Who caused it, in words; empty if the source does not know. */
  readonly by: string;
  /** Found by comparing, not seen when it happened. */
  readonly isReconciled: boolean;
}

export function eventsOf(rows: readonly Row[]): FileEvent[] {
  const of = (row: Row) => ({
    key: `${text(row["source"])} ${text(row["idx"])}`,
    at: time(row["ts"]),
    kind: text(row["kind"]),
    path: text(row["path"]),
    oldPath: text(row["old_path"]),
    size: number(row["size"]),
    by: text(row["job"]) !== "" ? `job ${text(row["job"])}` : text(row["uid"]) !== "" ? `uid ${text(row["uid"])}` : "",
    isReconciled: text(row["quality"]) === "reconciled",
    idx: number(row["idx"]),
  });
  return rows.map(of).sort((a, b) => b.at - a.at || b.idx - a.idx);
}

/** A rule with actions. */
export interface Rule {
  readonly name: string;
  /** What it does: `run PROGRAM`, or `post URL`. */
  readonly call: string;
  readonly sql: string;
  readonly help: string;
  readonly state: string;
  readonly reason: string;
  readonly fired: number;
  readonly suppressed: number;
  readonly failed: number;
  readonly missed: number;
  readonly lastFired: number;
  /** Its actions in these states; NaN if it has fired and the agent tells none of its actions here. */
  readonly waiting: number;
  readonly running: number;
}

/** Whether a rule has actions, by its statement, whatever its texts contain: others call into programs. */
export const hasActions = (sql: string): boolean => /\bTHEN\s+(?:RUN(?:\s+IN)?|POST|COPY|MOVE|DELETE|MARK|MAIL|CALL|SET)\s*''/i.test(sql.replace(/'(?:[^']|'')*'/g, "''"));

export interface Rules {
  /** Failed ones first, then those that fired last. */
  readonly list: readonly Rule[];
  /** Whether there may be more actions in the queue than the agent tells. */
  readonly isCut: boolean;
}

export function rulesOf(rules: readonly Row[], queue: readonly Row[]): Rules {
  const isTold = (rule: string) => queue.some((row) => text(row["rule"]) === rule);
  const told = (rule: string, state: string) => count(queue.find((row) => text(row["rule"]) === rule && text(row["state"]) === state)?.["n"]);
  const list = rules.filter((row) => hasActions(text(row["sql"]))).map((row): Rule => {
    const [name, fired] = [text(row["name"]), count(row["fired"])];
    const isKnown = fired === 0 || isTold(name);
    return {
      name,
      call: text(row["call"]),
      sql: text(row["sql"]),
      help: text(row["help"]),
      state: text(row["state"]),
      reason: text(row["reason"]),
      fired,
      suppressed: count(row["suppressed"]),
      failed: count(row["failed"]),
      missed: count(row["missed"]),
      lastFired: time(row["last_fired_ts"]),
      waiting: isKnown ? told(name, "waiting") : NaN,
      running: isKnown ? told(name, "running") : NaN,
    };
  });
  const rank = (rule: Rule) => (rule.state === "failed" ? 1 : 0);
  list.sort((a, b) => rank(b) - rank(a) || (b.lastFired || 0) - (a.lastFired || 0) || a.name.localeCompare(b.name));
  const living = queue.filter((row) => text(row["state"]) !== "dead");
  return { list, isCut: living.reduce((sum, row) => sum + count(row["n"]), 0) >= TOLD_MAX };
}

/** An action that has failed for good. */
export interface Action {
  readonly id: number;
  readonly rule: string;
  readonly source: string;
  /** Number of its event in the source. */
  readonly idx: string;
  readonly attempts: number;
  readonly reason: string;
  readonly enqueued: number;
  readonly ended: number;
}

export interface Dead {
  readonly list: readonly Action[];
  readonly total: number;
  /** Whether there may be more than the agent tells. */
  readonly isCut: boolean;
}

export function deadOf(rows: readonly Row[]): Dead {
  const list = rows.flatMap((row): Action[] => {
    const [id, idx] = [number(row["id"]), text(row["idx"])];
    const enqueued = time(row["enqueued_ts"]);
    if (!Number.isSafeInteger(id) || !/^\d+$/.test(idx) || !(enqueued > 0)) return [];
    return [{ id, idx, rule: text(row["rule"]), source: text(row["source"]), attempts: count(row["attempts"]), reason: text(row["reason"]), enqueued, ended: time(row["ended_ts"]) }];
  });
  const total = count(rows[0]?.["total"]);
  return { list, total, isCut: total >= TOLD_MAX };
}

/** The event that started an action. */
export interface Cause {
  readonly kind: string;
  readonly path: string;
}

export const causeKey = ({ source, idx }: { source: string; idx: string }): string => `${idx} ${source}`;
export const causesOf = (rows: readonly Row[]): Map<string, Cause> =>
  new Map(rows.map((row) => [causeKey({ source: text(row["source"]), idx: text(row["idx"]) }), { kind: text(row["kind"]), path: text(row["path"]) }]));

/** A watched tree. */
export interface Watch {
  readonly name: string;
  readonly path: string;
  readonly collector: string;
  readonly state: string;
  readonly events: number;
  readonly gaps: number;
  readonly reconciled: number;
  readonly waitingBytes: number;
  readonly trouble: string;
}

export const watchesOf = (rows: readonly Row[]): Watch[] =>
  rows.map((row) => ({
    name: text(row["name"]),
    path: text(row["path"]),
    collector: text(row["collector"]),
    state: text(row["state"]),
    events: count(row["events"]),
    gaps: count(row["gaps"]),
    reconciled: count(row["reconciled"]),
    waitingBytes: count(row["waiting_bytes"]),
    trouble: text(row["trouble"]),
  }));

/** All that the view shows. */
export interface Seen {
  readonly counted: Counted;
  readonly newest: readonly FileEvent[];
  readonly rules: Rules;
  readonly dead: Dead;
  readonly watches: readonly Watch[];
}

/** A number of things in words. */
export const several = (n: number, one: string, more = `${one}s`): string => `${n.toLocaleString("en")} ${n === 1 ? one : more}`;

/** What happens and what is wrong, in one sentence. */
export function sentenceOf({ counted, rules, dead, watches }: Seen, spanSeconds: number): string {
  const isCut = !Number.isNaN(counted.since);
  const span = duration(spanSeconds * 1000);
  const happened =
    counted.total > 0 ? `${isCut ? "More than " : ""}${several(counted.total, "event")} in ${several(counted.all, "directory", "directories")} in ${span}`
    : watches.length > 0 ? `No event in ${span}`
    : "No tree is watched here";
  const failed = rules.list.filter((rule) => rule.state === "failed").length;
  const troubled = watches.filter((watch) => watch.state === "failed" || watch.state === "troubled").length;
  const wrong = [
    failed > 0 ? `${several(failed, "rule has", "rules have")} failed` : "",
    dead.total > 0 ? `${several(dead.total, "action has", "actions have")} failed for good` : "",
    troubled > 0 ? `${several(troubled, "watch is", "watches are")} in trouble` : "",
  ].filter((part) => part !== "");
  return [happened, ...wrong].join("; ") + ".";
}
