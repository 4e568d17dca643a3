// The controllers of an agent and what they decided last: rows of /api/v1/control/list and of
// /api/v1/control/decisions. Pure.

import { number, text, time } from "../shared";
import type { Row } from "./publications";

export interface Controller {
  readonly name: string;
  readonly about: string;
  /** live, dry_run, paused, held_off or off. */
  readonly mode: string;
  readonly by: string;
  readonly reason: string;
  /** The end of the mode and the last decision, in ms; NaN without one. */
  readonly until: number;
  readonly last: number;
  readonly decisions: number;
}

/** One decision of any controller, in words. */
export interface Decided {
  readonly id: number;
  readonly at: number;
  readonly controller: string;
  readonly user: string;
  readonly about: string;
  readonly value: string;
  readonly outcome: string;
  readonly reason: string;
  readonly effect: string;
}

const moment = (value: unknown): number => (typeof value === "number" && value > 0 ? time(value) : NaN);

export function controllersOf(rows: readonly Row[]): Controller[] {
  return rows.map((row) => ({
    name: text(row["name"]),
    about: text(row["about"]),
    mode: text(row["mode"]),
    by: text(row["by"]),
    reason: text(row["reason"]),
    until: moment(row["until_ts"]),
    last: moment(row["last_ts"]),
    decisions: number(row["decisions"]),
  }));
}

/** The decisions, the newest first. */
export function decidedOf(rows: readonly Row[]): Decided[] {
  return rows
    .map((row) => ({
      id: number(row["id"]),
      at: moment(row["made_ts"]),
      controller: text(row["controller"]),
      user: text(row["user"]),
      about: text(row["label"]) || text(row["subject"]),
      value: valueOf(row),
      outcome: text(row["outcome"]),
      reason: text(row["outcome_reason"]) || text(row["reason"]),
      effect: effectOf(row["effect"]),
    }))
    .sort((a, b) => b.id - a.id);
}

/** What was decided: of I/O in turns, whether it waits. */
function valueOf(row: Row): string {
  const value = row["value"];
  if (!text(row["controller"]).startsWith("io-schedule/") || typeof value !== "number") return String(value ?? "");
  return value > 0 ? "may do I/O" : "waits";
}

/** What was expected and observed; empty if nothing was yet. */
function effectOf(cell: unknown): string {
  if (typeof cell !== "object" || cell === null) return "";
  const { measure, before, after } = cell as Row;
  if (typeof measure !== "string") return "";
  const [unit, per] = measure.startsWith("seconds") ? [" s", 1] : measure.startsWith("operations") ? [" operations/s", 1] : [" MB/s", 1e6];
  const say = (it: unknown) => (typeof it === "number" ? `${(it / per).toPrecision(3)}${unit}` : "–");
  return `${say(before)} → ${say(after)}`;
}

/** What can be done to a controller in its mode: the path of a request, its label and its body. */
export function actsOf({ name, mode }: Controller): [string, string, object][] {
  const controller = name;
  if (mode === "off") return [];
  if (mode === "paused" || mode === "held_off") return [["resume", "Resume", { controller }]];
  const isDry = mode === "dry_run";
  return [
    ["pause", "Pause for 10 min", { controller, seconds: 600, reason: "on the page" }],
    ["dry-run", isDry ? "End the dry run" : "Dry run", { controller, on: !isDry, reason: "on the page" }],
  ];
}
