// When file systems will be full, by the agent's projections of their free bytes. Pure.

import { roughly } from "../text/format";
import { reaches } from "./projection";
import type { Projection, Reach } from "./projection";

/** Free bytes of file systems for an ordinary user: at 0 it is full. */
export const FREE = "filesystem.available.bytes";
/** A file system that fills later than this is not mentioned in the sentence. */
export const SOON_MS = 24 * 3_600_000;

/** The parts of a forecast stream that are used here. */
interface Foretold {
  readonly labels: Readonly<Record<string, string>>;
  readonly projection?: Projection;
}

export interface Fill {
  readonly mount: string;
  readonly tier: string;
  readonly reach: Reach;
}

/** The file systems that are predicted to fill within the forecast, soonest first. */
export function fills(all: readonly Foretold[], now: number): Fill[] {
  const found = all.flatMap(({ labels, projection }): Fill[] => {
    const reach = projection === undefined ? undefined : reaches(projection, 0, now);
    return reach === undefined || reach.expected <= 0 ? [] : [{ mount: labels["mount"] ?? "a file system", tier: labels["tier"] ?? "", reach }];
  });
  return found.sort((a, b) => a.reach.expected - b.reach.expected || a.mount.localeCompare(b.mount));
}

/**
 * Whether it is worth a sentence: it fills soon, and its error, if known, is small enough to be
 * useful.
 */
export const isSoon = ({ reach }: Fill): boolean => reach.expected < SOON_MS && (!reach.calibrated || reach.early > reach.expected / 2 || (reach.early >= 0 && Number.isFinite(reach.late)));

/** A text like `3 h 20 min ± 25 min`; if only one end is within the forecast, that end. */
export function reachWords({ expected, early, late, calibrated }: Reach): string {
  const about = roughly(expected);
  if (!calibrated) return `${about} if it goes on so (not calibrated)`;
  if (Number.isNaN(early)) return `${about}, error not known yet`;
  if (!Number.isFinite(late)) return `${about}, ${early < 1000 ? "perhaps any time" : `at the earliest in ${roughly(early)}`}`;
  const half = (late - early) / 2;
  return half < 500 ? about : `${about} ± ${roughly(Math.max(half, 5000))}`;
}
