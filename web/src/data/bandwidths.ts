// The bandwidth that a reader will get from each device to which others write, and when they write
// next: rows of the table `interference` and of forecast('disk.bandwidth.available').

import { labelsOf, number, text, time } from "../shared";
import type { Row } from "./publications";

/** One who writes to a device; times are NaN if there is no schedule. */
export interface Writer {
  readonly name: string;
  readonly periodMs: number;
  readonly next: number;
  readonly jitterMs: number;
  readonly burstBytes: number;
  readonly rate: number;
  readonly reason: string;
}

/** The bandwidth at the begin of a step, with the half width of its interval. */
export interface Step {
  readonly at: number;
  readonly value: number;
  readonly error: number;
}

export interface Device {
  readonly name: string;
  readonly capacity: number;
  readonly origin: string;
  readonly bandwidth: number;
  readonly error: number;
  readonly confidence: number;
  readonly follows: string;
  readonly reason: string;
  readonly writers: readonly Writer[];
  readonly steps: readonly Step[];
}

/** The devices in the order of the rows, with their writers and steps. */
export function devicesOf(rows: readonly Row[], ahead: readonly Row[]): Device[] {
  const steps = ahead.map((row) => ({ device: labelsOf(row["labels"])["device"] ?? "", at: time(row["ts"]), value: number(row["value"]), error: number(row["error"]) }));
  const isFinite = ({ at, value }: Step) => !Number.isNaN(at + value);
  return rows
    .filter((row) => text(row["writer"]) === "")
    .map((row) => {
      const name = text(row["device"]);
      return {
        name,
        capacity: number(row["capacity"]),
        origin: text(row["capacity_source"]),
        bandwidth: number(row["bandwidth"]),
        error: number(row["error"]),
        confidence: number(row["confidence"]),
        follows: text(row["follows"]),
        reason: text(row["reason"]),
        writers: rows.filter((of) => text(of["device"]) === name && text(of["writer"]) !== "").map(writerOf),
        steps: steps.filter((step) => step.device === name && isFinite(step)),
      };
    });
}

function writerOf(row: Row): Writer {
  return {
    name: text(row["writer"]),
    periodMs: time(row["period_ns"]),
    next: time(row["next_ts"]),
    jitterMs: time(row["jitter_ns"]),
    burstBytes: number(row["burst_bytes"]),
    rate: number(row["rate"]),
    reason: text(row["reason"]),
  };
}

/**
 * The next start of a writer: rows may be some periods old. A start that is late by less than half a
 * period is still to come.
 */
export function nextOf({ next, periodMs }: Writer, now: number): number {
  const missed = Math.floor(Math.max(now - next, 0) / periodMs + 0.5);
  return next + missed * periodMs;
}

/** The bursts that a writer is expected to begin until a time, at most so many. */
export function burstsOf({ next, periodMs }: Writer, until: number, most: number): number[] {
  const bursts: number[] = [];
  if (!(periodMs > 0)) return bursts;
  for (let at = next; at <= until && bursts.length < most; at += periodMs) bursts.push(at);
  return bursts;
}
