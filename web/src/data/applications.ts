// What the Applications view asks of the agent, by SQL: bounded, one statement at a time, and of
// tables that this agent has; one that it has not is empty.

import { batch, signal } from "@preact/signals";
import * as api from "./api";
import { now } from "./feed";
import { declaredOf, endedOf, firingOf, framesOf, knobOf, looked, publicationOf, rowsOf } from "./publications";
import type { Counted, Declared, Firing, Knob, Publication, Row } from "./publications";

/** Most publications that are asked for. */
export const ALIVE_MAX = 500;
const ENDED_MAX = 100;
/** Most calls that are listed, and marked on the paper. */
export const FIRINGS_MAX = 100;
const DECLARED_MAX = 100;
const KNOBS_MAX = 500;
/** What changes seldom (which tables there are, what has ended) is asked for this often. */
const SELDOM_MS = 30_000;

export const alive = signal<readonly Publication[] | null>(null);
export const ended = signal<readonly Publication[]>([]);
export const looks = signal<readonly Counted[]>([]);
export const firings = signal<readonly Firing[]>([]);
export const knobs = signal<readonly Knob[]>([]);
export const declared = signal<readonly Declared[]>([]);
export const fault = signal("");

const OPTIONAL = ["triggers", "knobs", "declared_triggers"] as const;
type Optional = (typeof OPTIONAL)[number];

let has: ReadonlySet<string> = new Set();
let lastSeldom = -Infinity;
let asking = false;

/** Asks for all of it, unless that is under way. */
export async function load(): Promise<void> {
  if (asking) return;
  asking = true;
  try {
    await ask();
    fault.value = "";
  } catch (error) {
    fault.value = error instanceof Error ? error.message : String(error);
  } finally {
    asking = false;
  }
}

async function ask(): Promise<void> {
  const rows = rowsOf(await api.sql(`SELECT * FROM publications ORDER BY name, labels LIMIT ${ALIVE_MAX}`));
  const list = rows.map(publicationOf).sort((a, b) => a.key.localeCompare(b.key, "en", { numeric: true }));
  const frames = framesOf(await api.streams("app.*.frame"));
  const fewer = (alive.value ?? []).some((one) => !list.some((other) => other.key === one.key));
  if (fewer || now() - lastSeldom > SELDOM_MS) await askSeldom(list);
  batch(() => {
    alive.value = list;
    ended.value = ended.value.filter((one) => !list.some((other) => other.key === one.key));
    looks.value = looked(looks.value, { at: now(), counts: frames });
  });
  const called = await optional("triggers", `SELECT * FROM triggers ORDER BY ts DESC LIMIT ${FIRINGS_MAX}`);
  const set = await optional("knobs", `SELECT * FROM knobs LIMIT ${KNOBS_MAX}`);
  const conditions = await optional("declared_triggers", `SELECT * FROM declared_triggers LIMIT ${DECLARED_MAX}`);
  batch(() => {
    firings.value = listed(called).map(firingOf);
    knobs.value = listed(set).map(knobOf);
    declared.value = listed(conditions).map(declaredOf);
  });
}

const listed = (table: api.SqlTable | null): Row[] => (table === null ? [] : rowsOf(table));

/** Which tables there are, and the publications of the last day that no process has now. */
async function askSeldom(list: readonly Publication[]): Promise<void> {
  const names = OPTIONAL.map((name) => `'${name}'`).join(", ");
  has = new Set((await api.sql(`SELECT name FROM tables WHERE name IN (${names})`)).rows.map(([name]) => String(name)));
  const last = await api.sql(`SELECT name, labels, sample_ts, value FROM asof('app.*.frame', now_ns()) ORDER BY sample_ts DESC LIMIT ${ALIVE_MAX + ENDED_MAX}`);
  ended.value = endedOf(rowsOf(last), list).slice(0, ENDED_MAX);
  lastSeldom = now();
}

/** The answer of a table that not every agent has: asked only where it is, so that nothing is refused aloud. */
async function optional(name: Optional, sql: string): Promise<api.SqlTable | null> {
  if (!has.has(name)) return null;
  try {
    return await api.sql(sql);
  } catch (error) {
    if (isAbsent(error)) return null;
    throw error;
  }
}

/** A statement was refused since there is no such table, or no frame of that publication yet. */
export const isAbsent = (error: unknown): boolean => error instanceof api.ApiError && /\bno (such )?table\b|no publication of this name/i.test(error.message);
