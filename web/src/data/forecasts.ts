// The agent's tables of forecasts and of the policies that use them, read by SQL without trust, and
// only if this agent has them.

import { batch, signal } from "@preact/signals";
import { loader, Optional } from "./optional";
import { labelsOf } from "./publications";
import type { Row } from "./publications";
import { NS_PER_MS } from "./contract";
import { asNumber } from "../text/json";
import { unitOf } from "../text/format";
import { streamText } from "../text/fuzzy";

/** Most rows of each table that are read. */
export const ROWS_MAX = 2000;

/** A stream that is forecast, with its forecasts at each horizon. */
export interface Foretold {
  readonly key: string;
  readonly unit: string;
  readonly confidence: number;
  readonly horizons: readonly Horizon[];
}

export interface Horizon {
  readonly ms: number;
  /** The step of the forecast: far horizons have a coarser forecaster. */
  readonly stepMs: number;
  readonly follows: string;
  readonly reason: string;
  /** NaN while it is unknown, as is the error. */
  readonly coverage: number;
  readonly error: number;
  /** Each predictor's recent error as a multiple of persistence's, least first. */
  readonly losses: readonly (readonly [string, number])[];
}

/** One stream to which a policy applies, or a policy that matches nothing. */
export interface Policy {
  readonly name: string;
  /** The stream, or the policy's pattern if it matches none. */
  readonly stream: string;
  readonly matches: boolean;
  readonly kind: string;
  readonly error: string;
  readonly unit: string;
  readonly intervalMs: number;
  readonly said: string;
  readonly wrong: number;
  readonly looksPerS: number;
  readonly saved: number;
  readonly reason: string;
}

const text = (cell: unknown): string => (cell === null || cell === undefined ? "" : String(cell));
const number = (cell: unknown): number => (cell === null || cell === undefined ? NaN : asNumber(cell));

/** Whether the row has a horizon; others list streams that should be forecast but are not. */
const isSaid = (row: Row): boolean => !Number.isNaN(number(row["horizon_ns"]));

/** The streams that should be forecast but are not, with the reason. */
export const withoutOf = (rows: readonly Row[]): string[] => rows.filter((row) => !isSaid(row)).map((row) => [streamText(text(row["name"]), labelsOf(row["labels"])), text(row["reason"])].filter((part) => part !== "").join(": "));

/** Converts rows of the table `forecasts`: by stream in the order of names, each by horizon. */
export function foretoldOf(rows: readonly Row[]): Foretold[] {
  const all = new Map<string, { unit: string; confidence: number; horizons: Horizon[] }>();
  for (const row of rows) {
    const name = text(row["name"]);
    if (!isSaid(row)) continue;
    const key = streamText(name, labelsOf(row["labels"]));
    const one = all.get(key) ?? { unit: unitOf(name, text(row["unit"])), confidence: number(row["confidence"]), horizons: [] };
    all.set(key, one);
    one.horizons.push({ ms: number(row["horizon_ns"]) / NS_PER_MS, stepMs: number(row["step_ns"]) / NS_PER_MS, follows: text(row["follows"]), reason: text(row["reason"]), coverage: number(row["coverage"]), error: number(row["error"]), losses: lossesOf(row["losses"]) });
  }
  const sorted = [...all].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  return sorted.map(([key, one]) => ({ key, ...one, horizons: one.horizons.sort((a, b) => a.ms - b.ms || a.stepMs - b.stepMs) }));
}

/** Parses a JSON object of numbers, some of which may be null; anything else is empty. */
export function lossesOf(cell: unknown): (readonly [string, number])[] {
  try {
    const parsed: unknown = typeof cell === "string" ? JSON.parse(cell) : cell;
    const all = Object.entries(parsed as object).flatMap(([name, loss]) => (typeof loss === "number" ? [[name, loss] as const] : []));
    return all.sort((a, b) => a[1] - b[1] || a[0].localeCompare(b[0]));
  } catch {
    return [];
  }
}

export function policyOf(row: Row): Policy {
  const name = text(row["stream"]);
  const patterns = text(row["streams"]).replace(/^\["?|"?\]$/g, "").replaceAll('","', ", ");
  return {
    name: text(row["name"]),
    stream: name === "" ? patterns : streamText(name, labelsOf(row["labels"])),
    matches: name !== "",
    kind: text(row["kind"]).replaceAll("_", " "),
    error: text(row["error"]),
    unit: unitOf(name, text(row["unit"])),
    intervalMs: number(row["interval_ns"]) / NS_PER_MS,
    said: text(row["said"]),
    wrong: number(row["wrong_share"]),
    looksPerS: number(row["looks_per_s"]),
    saved: number(row["saved_share"]),
    reason: text(row["reason"]),
  };
}

/**
 * The mean share of values that were within the error, over all horizons for which it is known; NaN
 * if for none.
 */
export function meanCoverage(all: readonly Foretold[]): number {
  const known = all.flatMap(({ horizons }) => horizons.map(({ coverage }) => coverage)).filter((c) => !Number.isNaN(c));
  return known.length === 0 ? NaN : known.reduce((sum, c) => sum + c, 0) / known.length;
}

export const foretold = signal<readonly Foretold[]>([]);
export const without = signal<readonly string[]>([]);
export const policies = signal<readonly Policy[]>([]);
export const fault = signal("");

const tables = new Optional(["forecasts", "policies"]);

/** Reads both tables, unless a read is in progress. */
export const load = loader(async () => {
  await tables.look();
  const rows = [await tables.rows("forecasts", ROWS_MAX), await tables.rows("policies", ROWS_MAX)] as const;
  batch(() => {
    foretold.value = foretoldOf(rows[0]);
    without.value = withoutOf(rows[0]);
    policies.value = rows[1].map(policyOf);
  });
}, fault);
