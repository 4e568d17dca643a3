// Requests to the agent. Addresses are relative, so that the page also works behind a proxy with a
// path prefix.
//
// Here alone is decided about which node a request is: streams are those of the shown node, and what
// an agent tells of its own node alone is not asked for while another node is shown.

import { signal } from "@preact/signals";
import { nodeOf } from "../route";
import { parseExact } from "../text/json";
import type { BucketHistory, History, Insight, Latest, Source, Status, StreamInfo } from "./contract";

/** An error that the agent answered with, and its message. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly kind: string,
    message: string,
  ) {
    super(message);
  }
}

const TOKEN_KEY = "barograph.control";
/** Longest wait for an answer to any request but SQL. */
const ANSWER_MS_MAX = 10_000;

function stored(): string {
  try {
    return sessionStorage.getItem(TOKEN_KEY) ?? "";
  } catch {
    return "";
  }
}

/** The control token of this tab; empty without the right to control. */
export const control = signal(stored());

export function setControl(token: string): void {
  control.value = token;
  try {
    if (token === "") sessionStorage.removeItem(TOKEN_KEY);
    else sessionStorage.setItem(TOKEN_KEY, token);
  } catch {
    // Storage may be forbidden; then the token lasts as long as the page.
  }
}

/** Retries of a request that was refused as busy; the wait before each is `BUSY_MS`. */
const BUSY_TRIES = 4;
const BUSY_MS = 250;
const BUSY_STATUS = 503;

async function ask(path: string, init: RequestInit = {}): Promise<string> {
  const signal = init.signal ?? AbortSignal.timeout(ANSWER_MS_MAX);
  for (let tries = 1; ; tries += 1) {
    try {
      return await askOnce(path, { ...init, signal });
    } catch (error) {
      const isBusy = error instanceof ApiError && error.status === BUSY_STATUS;
      if (!isBusy || tries >= BUSY_TRIES || signal.aborted) throw error;
      await new Promise((resolve) => setTimeout(resolve, BUSY_MS * tries));
    }
  }
}

async function askOnce(path: string, init: RequestInit): Promise<string> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw new ApiError(0, "unreachable", "the agent does not answer");
  }
  const text = await response.text();
  if (!response.ok) throw fault(response.status, text);
  return text;
}

function fault(status: number, text: string): ApiError {
  try {
    const { error } = JSON.parse(text) as { error?: { kind?: string; message?: string } };
    if (error?.message !== undefined) return new ApiError(status, error.kind ?? "internal", error.message);
  } catch {
    // The body is not an error of the agent: report its status and first characters.
  }
  return new ApiError(status, "internal", `the agent answered ${status}${text === "" ? "" : `: ${text.slice(0, 200)}`}`);
}

const json = async <T>(path: string): Promise<T> => JSON.parse(await ask(path)) as T;
const enc = encodeURIComponent;

/**
 * The name of the other node that this page shows, of which the agent has a mirror; empty if it shows
 * the node of its agent.
 */
export const shownNode = typeof location === "undefined" ? "" : nodeOf(location.search);

/** The path of a request about streams, which has parameters: it asks for those of the shown node. */
const ofShown = (path: string): string => (shownNode === "" ? path : `${path}&node=${enc(shownNode)}`);

/**
 * The path of a request that an agent answers about its own node alone. It is refused while another
 * node is shown: the answer would be about the wrong one.
 */
function ofOwn(path: string): string {
  if (shownNode !== "") throw new ApiError(0, "refused", `only the agent of ${shownNode} itself tells this`);
  return path;
}

/** The status of the agent that serves the page, whatever node is shown. */
export const status = () => json<Status>("api/v1/status");
export const sources = async () => json<Source[]>(ofOwn("api/v1/sources"));
export const insights = async () => json<Insight[]>(ofOwn("api/v1/insights"));
export const streams = (match: string) => json<StreamInfo[]>(ofShown(`api/v1/streams?match=${enc(match)}`));
export const latest = (match: string) => json<Latest[]>(ofShown(`api/v1/latest?match=${enc(match)}`));

/** The path of the events of streams; `matches` are the parameters that choose them. */
export const watchPath = (matches: string): string => ofShown(`api/v1/watch?${matches}&every_ms=1000&demand=0`);

export function history(match: string, startMs: number): Promise<History[]> {
  // Nanoseconds do not fit a double, so they are written as milliseconds and six zeros.
  return json<History[]>(ofShown(`api/v1/history?match=${enc(match)}&start=${Math.floor(startMs)}000000`));
}

/**
 * The requested buckets: from `start` to `stop` (ms), of `stepMs` each, or at most `points` of
 * them.
 */
export interface Grain {
  readonly start: number;
  readonly stop: number;
  readonly stepMs?: number;
  readonly points?: number;
}

export async function buckets(matches: readonly string[], { start, stop, stepMs, points }: Grain, abort?: AbortSignal): Promise<BucketHistory[]> {
  const which = matches.map((match) => `match=${enc(match)}`).join("&");
  const grain = stepMs === undefined ? `points=${points}` : `step=${stepMs}ms`;
  const path = ofShown(`api/v1/history?${which}&start=${Math.floor(start)}000000&stop=${Math.ceil(stop)}000000&${grain}`);
  const late = AbortSignal.timeout(ANSWER_MS_MAX);
  return JSON.parse(await ask(path, { signal: abort === undefined ? late : AbortSignal.any([abort, late]) })) as BucketHistory[];
}

export interface SqlTable {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly unknown[])[];
  readonly elapsed_ns: number;
}

/** The answer to a statement about the own node: its tables are those of this agent. */
export const sql = async (text: string, abort?: AbortSignal): Promise<SqlTable> => select(ofOwn(SQL_PATH), text, abort);

/**
 * The answer to a statement over the tables of this agent, whatever node is shown: only for those
 * that name the node of each row.
 */
export const sqlHere = (text: string): Promise<SqlTable> => select(SQL_PATH, text);

const SQL_PATH = "api/v1/sql?format=table";

async function select(path: string, text: string, abort?: AbortSignal): Promise<SqlTable> {
  const init: RequestInit = { method: "POST", body: JSON.stringify({ sql: text }), headers: { "Content-Type": "application/json" } };
  init.signal = abort ?? AbortSignal.timeout(60_000);
  return parseExact(await ask(path, init)) as SqlTable;
}

async function change<T>(path: string, body: object): Promise<T> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (control.value !== "") headers["Authorization"] = `Bearer ${control.value}`;
  return JSON.parse(await ask(ofOwn(path), { method: "POST", body: JSON.stringify(body), headers })) as T;
}

/** CREATE INSIGHT or DROP INSIGHT. */
export const changeInsight = (text: string) => change<Insight>("api/v1/insights", { sql: text });
/** The rows that the statement would give now; changes nothing. */
export const testInsight = (text: string) => change<{ rows: Record<string, unknown>[] }>("api/v1/insights/test", { sql: text });
/** What controllers did last, and what is done to them: list, decisions, phases, maps, pause, resume, dry-run, revert. */
export const controlled = (what: string, body: object) => change<Readonly<Record<string, unknown[]>>>("api/v1/control/" + what, body);
/** Shows an action of a rule on events, tries it once more, or gives it up; returns it as it is then. */
export const commandAction = (verb: "show" | "retry" | "drop", id: number) => change<{ argv?: unknown; output?: unknown }>("api/v1/actions", { [verb]: id });
