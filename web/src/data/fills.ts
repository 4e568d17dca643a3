// When file systems are full, as far as the agent's projections of their free bytes say. Pure.

import { roughly } from "../text/format";
import { reaches } from "./projection";
import type { Projection, Reach } from "./projection";

/** Free bytes of file systems, as an ordinary user has them: at 0 it is full. */
export const FREE = "filesystem.available.bytes";
/** What fills later than this is no news for a sentence. */
export const SOON_MS = 24 * 3_600_000;

/** What is asked of a stream of projections here. */
interface Foretold {
  readonly labels: Readonly<Record<string, string>>;
  readonly projection?: Projection;
}

export interface Fill {
  readonly mount: string;
  readonly tier: string;
  readonly reach: Reach;
}

/** Those that are expected to fill within what is forecast, soonest first. */
export function fills(all: readonly Foretold[], now: number): Fill[] {
  const found = all.flatMap(({ labels, projection }): Fill[] => {
    const reach = projection === undefined ? undefined : reaches(projection, 0, now);
    return reach === undefined || reach.expected <= 0 ? [] : [{ mount: labels["mount"] ?? "a file system", tier: labels["tier"] ?? "", reach }];
  });
  return found.sort((a, b) => a.reach.expected - b.reach.expected || a.mount.localeCompare(b.mount));
}

/** Worth a sentence: soon, and where its error is known one that leaves something to say. */
export const isSoon = ({ reach }: Fill): boolean => reach.expected < SOON_MS && (!reach.calibrated || reach.early > reach.expected / 2 || (reach.early >= 0 && Number.isFinite(reach.late)));

/** `3 h 20 min ± 25 min`; where only one end is within what is forecast, that end. */
export function reachWords({ expected, early, late, calibrated }: Reach): string {
  const about = roughly(expected);
  if (!calibrated) return `${about} if it goes on so (not calibrated)`;
  if (Number.isNaN(early)) return `${about}, error not known yet`;
  if (!Number.isFinite(late)) return `${about}, ${early < 1000 ? "perhaps any time" : `at the earliest in ${roughly(early)}`}`;
  const half = (late - early) / 2;
  return half < 500 ? about : `${about} ± ${roughly(Math.max(half, 5000))}`;
}
