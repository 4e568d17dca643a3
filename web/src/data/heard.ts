// How the agent of this node hears the other node that the page shows.

import { signal } from "@preact/signals";
import * as api from "./api";
import { SILENCE_MS } from "./feed";
import { loader } from "./optional";
import { number, rowsOf, text, time } from "./publications";
import type { Row } from "./publications";
import { clock, duration, plain, seconds } from "../text/format";
import { sqlText } from "../text/copy";

/** A difference of the clocks from which on it is mentioned: ages on the page are wrong by it. */
const AHEAD_MS = 1000;

/** A row of the table `peers`. Times are ms. */
export interface Heard {
  readonly isConnected: boolean;
  /** The time of its newest frame by the clock of this node; NaN if there was none. */
  readonly heard: number;
  /** How far its clock is ahead; NaN if that is not known. */
  readonly ahead: number;
  /** The number of its streams that are mirrored here. */
  readonly streams: number;
  /** Why something of it is not mirrored. */
  readonly fault: string;
}

export const readHeard = (row: Row): Heard => ({ isConnected: text(row["state"]) === "connected", heard: time(row["heard_ts"]), ahead: time(row["ahead_ns"]), streams: number(row["streams"]), fault: text(row["fault"]) });

/** How the shown node is heard; null if this node does not know it, undefined before the first answer. */
export const heard = signal<Heard | null | undefined>(undefined);
/** Why that could not be read; empty if it could. */
export const heardFault = signal("");

/** Reads it, unless a read is in progress. */
export const loadHeard = loader(async () => {
  const [row] = rowsOf(await api.sqlHere(`SELECT * FROM peers WHERE node = ${sqlText(api.shownNode)} LIMIT 1`));
  heard.value = row === undefined ? null : readHeard(row);
}, heardFault);

/** How a node is heard, in words, and whether that is bad. */
export function heardOf(one: Heard | null | undefined, now: number): { readonly isBad: boolean; readonly text: string } {
  if (one === undefined) return { isBad: false, text: "asking for it" };
  if (one === null) return { isBad: true, text: "no node of this name is known here" };
  const because = one.fault === "" ? "" : ` (${one.fault})`;
  if (!one.isConnected || now - one.heard > SILENCE_MS) {
    const since = one.heard > 0 ? `not heard since ${clock(one.heard, now)} (${duration(now - one.heard)})` : "not heard";
    return { isBad: true, text: `${since}, what is shown is old${because}` };
  }
  if (one.streams === 0) return { isBad: true, text: `none of its streams are mirrored${because}` };
  const ahead = Math.abs(one.ahead) >= AHEAD_MS ? `; its clock is ${plain(seconds(Math.abs(one.ahead) / 1000))} ${one.ahead > 0 ? "ahead" : "behind"}, ages are wrong by that` : "";
  // Where it was never heard although it is connected, nothing is mirrored yet.
  const since = one.heard > 0 ? `heard ${duration(Math.max(0, now - one.heard))} ago` : "connected";
  return { isBad: false, text: `${since}${ahead}${because}` };
}
