// The data of the Applications view, read by SQL: bounded, one statement at a time, and only from
// tables that this agent has; a missing table counts as empty.

import { batch, signal } from "@preact/signals";
import * as api from "./api";
import { now } from "./feed";
import { loader, Optional } from "./optional";
import { declaredOf, endedOf, firingOf, framesOf, knobOf, looked, publicationOf, rowsOf } from "./publications";
import type { Counted, Declared, Firing, Knob, Publication } from "./publications";

/** Most publications that are read. */
export const ALIVE_MAX = 500;
const ENDED_MAX = 100;
/** Most calls that are listed, and marked on the paper. */
export const FIRINGS_MAX = 100;
const DECLARED_MAX = 100;
const KNOBS_MAX = 500;

export const alive = signal<readonly Publication[] | null>(null);
export const ended = signal<readonly Publication[]>([]);
export const looks = signal<readonly Counted[]>([]);
export const firings = signal<readonly Firing[]>([]);
export const knobs = signal<readonly Knob[]>([]);
export const declared = signal<readonly Declared[]>([]);
export const fault = signal("");

const tables = new Optional(["calls", "knobs", "rules"]);

/** Reads all of it, unless a read is in progress. */
export const load = loader(async () => {
  const rows = rowsOf(await api.sql(`SELECT * FROM publications ORDER BY name, labels LIMIT ${ALIVE_MAX}`));
  const list = rows.map(publicationOf).sort((a, b) => a.key.localeCompare(b.key, "en", { numeric: true }));
  const frames = framesOf(await api.streams("app.*.frame"));
  const fewer = (alive.value ?? []).some((one) => !list.some((other) => other.key === one.key));
  if (await tables.look(fewer)) await askEnded(list);
  batch(() => {
    alive.value = list;
    ended.value = ended.value.filter((one) => !list.some((other) => other.key === one.key));
    looks.value = looked(looks.value, { at: now(), counts: frames });
  });
  const called = await tables.rows("calls", FIRINGS_MAX, "ORDER BY ts DESC ");
  const set = await tables.rows("knobs", KNOBS_MAX);
  const conditions = await tables.rows("rules", DECLARED_MAX);
  batch(() => {
    firings.value = called.map(firingOf);
    knobs.value = set.map(knobOf);
    declared.value = conditions.map(declaredOf);
  });
}, fault);

/**
 * Reads the publications of the last day that no process has now. They change as rarely as the list
 * of tables.
 */
async function askEnded(list: readonly Publication[]): Promise<void> {
  const last = await api.sql(`SELECT name, labels, sample_ts, value FROM asof('app.*.frame', now_ns()) ORDER BY sample_ts DESC LIMIT ${ALIVE_MAX + ENDED_MAX}`);
  ended.value = endedOf(rowsOf(last), list).slice(0, ENDED_MAX);
}
