// Phases of I/O on scheduled volumes: the rows of /api/v1/control/phases, and the lanes of a chart of
// who waited and who did I/O. Pure.

import { number, text, time } from "../shared";
import type { Row } from "./publications";

/** One phase of an application. Times are ms; those that have not come are NaN. */
export interface IoPhase {
  readonly volume: string;
  readonly application: string;
  readonly user: string;
  /** waiting, granted, alone, ended or expired. */
  readonly state: string;
  readonly begun: number;
  readonly started: number;
  readonly ended: number;
  readonly done: number;
  readonly declared: number;
  readonly reason: string;
}

export interface Bar {
  readonly from: number;
  readonly until: number;
  readonly waits: boolean;
}

/** The phases of one application, over a stretch of time. */
export interface PhaseLane {
  readonly name: string;
  readonly bars: readonly Bar[];
}

const since = (value: unknown): number => (typeof value === "number" && value > 0 ? time(value) : NaN);

export function phasesOf(rows: readonly Row[]): IoPhase[] {
  return rows.map((row) => ({
    volume: text(row["volume"]),
    application: [text(row["application"]), text(row["job"])].filter((part) => part !== "").join(", job "),
    user: text(row["user"]),
    state: text(row["state"]),
    begun: since(row["begun_ts"]),
    started: since(row["started_ts"]),
    ended: since(row["ended_ts"]),
    done: number(row["done_bytes"]),
    declared: number(row["declared_bytes"]),
    reason: text(row["reason"]),
  }));
}

export const isOpen = ({ ended }: IoPhase): boolean => Number.isNaN(ended);

/** The lanes of the applications that did most lately, at most so many: when each waited, and when it did I/O. */
export function lanesOf(phases: readonly IoPhase[], [from, until]: readonly [number, number], most: number): PhaseLane[] {
  const lanes = new Map<string, Bar[]>();
  for (const { application, user, begun, started, ended } of phases) {
    const end = Number.isNaN(ended) ? until : ended;
    const start = Number.isNaN(started) ? end : started;
    if (!(end >= from && begun <= until)) continue;
    const name = `${application} ${user}`;
    const bars = lanes.get(name) ?? [];
    const bar = (a: number, b: number, waits: boolean) => b > a && bars.push({ from: Math.max(a, from), until: Math.min(b, until), waits });
    bar(begun, start, true);
    bar(start, end, false);
    lanes.set(name, bars);
  }
  const all = [...lanes].map(([name, bars]) => ({ name, bars: bars.filter((bar) => bar.until > bar.from) }));
  return all.filter(({ bars }) => bars.length > 0).slice(0, most).sort((a, b) => a.name.localeCompare(b.name));
}
