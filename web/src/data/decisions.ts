// What controllers decided for readers of arrays: the rows of /api/v1/control/decisions, of which a
// read has one for its buckets and, if a weight was tried, one for its weight. Pure.

import { number, text, time } from "../shared";
import type { Row } from "./publications";

/** One planned read. Numbers are NaN where nothing is known, speeds are bytes/s. */
export interface PlannedRead {
  readonly plan: number;
  readonly at: number;
  readonly device: string;
  readonly user: string;
  readonly label: string;
  readonly bytes: number;
  /** The share of the augmentation that the bandwidth allows, 0 to 1. */
  readonly degree: number;
  /** The error after these bytes, and the bound in words; empty without one. */
  readonly error: number;
  readonly bound: string;
  readonly expected: number;
  readonly halfWidth: number;
  /** What the reader reported; NaN before its report. */
  readonly reported: number;
  /** The weight, and how it ended; NaN if there was none, and the reason. */
  readonly weight: number;
  readonly outcome: string;
  readonly reason: string;
}

/** The reads in the order of their decisions, at most so many: the newest ones. */
export function readsOf(rows: readonly Row[], most: number): PlannedRead[] {
  const weights = new Map(rows.filter(isWeight).map((row) => [number(row["plan"]), row]));
  return rows
    .filter((row) => row["controller"] === "augmentation" && row["subject"] !== "mode")
    .map((row) => readOf(row, weights.get(number(row["plan"]))))
    .sort((a, b) => a.plan - b.plan)
    .slice(-most);
}

const isWeight = (row: Row): boolean => row["controller"] === "weight";

function readOf(row: Row, weight: Row | undefined): PlannedRead {
  const [inputs, effect] = [partsOf(row["inputs"]), partsOf(row["effect"])];
  const set = weight === undefined ? "" : text(weight["outcome"]);
  // A weight that was restored after the read was set.
  const isSet = set === "done" || set === "reverted";
  return {
    plan: number(row["plan"]),
    at: time(row["made_ts"]),
    device: text(row["device"]),
    user: text(row["user"]),
    label: text(row["label"]),
    bytes: number(inputs["base_bytes"]) + number(inputs["bytes"]),
    degree: number(inputs["degree"]),
    error: number(inputs["error"]),
    bound: text(inputs["bound"]),
    expected: number(inputs["predicted_bytes_per_s"]),
    halfWidth: number(inputs["predicted_half_width_bytes_per_s"]),
    reported: number(effect["after"]),
    weight: isSet ? number(weight?.["value"]) : NaN,
    outcome: isSet ? "" : text(weight?.["outcome_reason"]) || text(inputs["no_weight"]) || set,
    reason: text(row["reason"]),
  };
}

const partsOf = (cell: unknown): Row => (typeof cell === "object" && cell !== null ? (cell as Row) : {});
