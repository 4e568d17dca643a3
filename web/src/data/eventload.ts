// What the Events view shows, and its place in the address: span, pause, chosen directory. The tables
// are asked one after the other, so that the page takes one place among the statements of an agent.

import { now, rowsOf, shownNode, signal, sql } from "../shared";
import { formatRoute, parseRoute } from "../route";
import { words } from "../text/format";
import { spanOf, spanText } from "../view/range";
import { causeKey, causesOf, causesSql, countedOf, deadOf, DEAD_SQL, directoriesSql, EVENT_SPANS_S, eventsOf, newestSql, QUEUE_SQL, RULES_SQL, rulesOf, stretchOf, WATCHES_SQL, watchesOf } from "./events";
import type { Action, Cause, Seen, Stretch } from "./events";
import type { Row } from "./publications";

export const REFRESH_MS = 3000;
/** Interval at which the list of tables is read: an older agent lacks some. */
const TABLES_MS = 30_000;
/** Most events that are looked for at a time because an action has failed. */
const CAUSES_AT_ONCE = 10;

export const span = signal(300);
/** The end of the time shown, in ms, while the view is paused; NaN while it is live. */
export const until = signal(NaN);
/** The directory whose events are listed; null for all. */
export const directory = signal<string | null>(null);

export const seen = signal<Seen | null>(null);
/** The time that the counts are about. */
export const stretch = signal<Stretch>(stretchOf(span.value, 0));
export const fault = signal("");
/** When all was last read. */
export const readAt = signal(NaN);
/** The events that have started failed actions; null for one that was not found. */
export const causes = signal<ReadonlyMap<string, Cause | null>>(new Map());

const EMPTY: Seen = { counted: countedOf([]), newest: [], rules: rulesOf([], []), dead: deadOf([]), watches: [] };

/** Takes span, pause and directory from the address. */
export function readAddress(): void {
  const { view, query } = parseRoute(location.hash);
  if (view !== "events") return;
  // A view that is opened again shows the previous choice, unless its address has another.
  if (query.size === 0) return writeAddress();
  const seconds = spanOf(query.get("span"));
  const stop = Number(query.get("until") ?? NaN);
  span.value = EVENT_SPANS_S.find((one) => one === seconds) ?? 300;
  until.value = stop > 0 && stop <= 8.64e15 ? stop : NaN;
  directory.value = query.get("dir");
  void load();
}

function writeAddress(): void {
  const query = new URLSearchParams();
  const text = spanText(span.value);
  if (text !== "") query.set("span", text);
  if (!Number.isNaN(until.value)) query.set("until", String(Math.floor(until.value)));
  if (directory.value !== null) query.set("dir", directory.value);
  history.replaceState(null, "", formatRoute("events", query));
}

/** Changes what is shown, and asks for it. */
export function choose(change: () => void): void {
  change();
  writeAddress();
  void load();
}

let isLoading = false;
let isDemanded = false;

/** Reads all of it; what is demanded while a read is in progress is read after it. */
export async function load(): Promise<void> {
  isDemanded = true;
  if (isLoading || shownNode !== "") return;
  isLoading = true;
  while (isDemanded) {
    isDemanded = false;
    await loadOnce();
  }
  isLoading = false;
}

/** How long after a paused view's time its events are on disk: from then on they are read once. */
const SETTLED_MS = 10_000;
/** The address whose events are shown, and do not change any more. */
let settled = "";

let tables: readonly unknown[] = [];
let tablesAt = -Infinity;

async function loadOnce(): Promise<void> {
  const faults: string[] = [];
  /** The rows of a table; null if they cannot be read. */
  const ask = async (table: string, statement: string): Promise<Row[] | null> => {
    if (table !== "tables" && !tables.includes(table)) return [];
    try {
      return rowsOf(await sql(statement));
    } catch (error) {
      faults.push(words(error));
      return null;
    }
  };
  if (Math.abs(now() - tablesAt) > TABLES_MS) {
    const names = await ask("tables", "SELECT name FROM tables WHERE name IN ('events', 'rules', 'actions', 'watches')");
    if (names !== null) [tables, tablesAt] = [names.map((row) => row["name"]), now()];
  }
  const at = stretchOf(span.value, Number.isNaN(until.value) ? now() : until.value);
  const place = JSON.stringify([span.value, until.value, directory.value]);
  const isSettled = now() - until.value > SETTLED_MS;
  const isKnown = isSettled && place === settled;
  const rows = isKnown ? null : await ask("events", directoriesSql(at));
  const counted = rows === null ? null : countedOf(rows);
  // Where not all events are counted, the newest ones are among those that are.
  const since = counted === null || Number.isNaN(counted.since) ? at.start : counted.since;
  const newest = isKnown ? null : await ask("events", newestSql({ ...at, start: since }, directory.value));
  if (isSettled && counted !== null && newest !== null) settled = place;
  const rules = await ask("rules", RULES_SQL);
  const queue = await ask("actions", QUEUE_SQL);
  const dead = await ask("actions", DEAD_SQL);
  const watches = await ask("watches", WATCHES_SQL);
  const before = seen.value ?? EMPTY;
  const found: Seen = {
    counted: counted ?? before.counted,
    newest: newest === null ? before.newest : eventsOf(newest),
    rules: rules === null || queue === null ? before.rules : rulesOf(rules, queue),
    dead: dead === null ? before.dead : deadOf(dead),
    watches: watches === null ? before.watches : watchesOf(watches),
  };
  fault.value = faults[0] ?? "";
  if (faults.length === 0) readAt.value = now();
  // An agent that has never answered has told nothing, which is not the same as no events.
  if (faults.length > 0 && seen.value === null) return;
  if (counted !== null) stretch.value = at;
  seen.value = found;
  await findCauses(found.dead.list, ask);
}

/** Looks for the events of failed actions, each once: an event does not change. */
async function findCauses(actions: readonly Action[], ask: (table: string, statement: string) => Promise<Row[] | null>): Promise<void> {
  const kept = new Map([...causes.value].filter(([key]) => actions.some((action) => causeKey(action) === key)));
  const wanted = new Map(actions.filter((action) => !kept.has(causeKey(action))).slice(0, CAUSES_AT_ONCE).map((action) => [causeKey(action), action]));
  if (wanted.size > 0) {
    const found = causesOf((await ask("events", causesSql([...wanted.values()]))) ?? []);
    for (const key of wanted.keys()) kept.set(key, found.get(key) ?? null);
    if (wanted.size === CAUSES_AT_ONCE) isDemanded ||= found.size > 0;
  }
  causes.value = kept;
}
