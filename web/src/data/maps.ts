// Maps of servers: the rows of /api/v1/control/maps, the sentences about a map and its changes, and
// which servers are shown. Pure.

import { number, text, time } from "../shared";
import { duration, plain, seconds } from "../text/format";
import { harmless } from "../text/harmless";
import { several } from "./events";
import type { Row } from "./publications";

/** A change that is over. Times are ms. */
export interface EpochChange {
  readonly epoch: number;
  readonly begun: number;
  readonly ended: number;
  /** Why it was aborted; empty if its epoch came into force. */
  readonly aborted: string;
  /** Why the leader began it by itself; empty if it was asked for. */
  readonly why: string;
}

/** A server of a map, or one that is there and could be. */
export interface MapServer {
  readonly server: number;
  readonly state: string;
  /** Requests a second, and the median of their service times in seconds; NaN without a measurement. */
  readonly requests: number;
  readonly service: number;
  /** Medians of the last windows, the newest last; NaN for a window without requests. */
  readonly recent: readonly number[];
  /** How many times slower than its peers it was found to be, and the false alarms in a window; NaN if it was not. */
  readonly ratio: number;
  readonly falseAlarms: number;
}

export interface ServerMap {
  readonly key: string;
  readonly name: string;
  readonly sentence: string;
  /** Whether it is changing, or has a server that is slow or that does not answer. */
  readonly isUneasy: boolean;
  /** The changes, the newest last. */
  readonly changes: readonly EpochChange[];
  readonly servers: readonly MapServer[];
}

const IN_MAP = "in the map";
const ABSENT = "in the map, but not there";
const ENDED = "in the map, but gone";
const MOVED = "moved, and serves nothing: its end where it was is not certain";

const rowsOf = (cell: unknown): readonly Row[] => (Array.isArray(cell) ? cell.filter((one) => typeof one === "object" && one !== null) : []);
const numbersOf = (cell: unknown): readonly number[] => (Array.isArray(cell) ? cell.map(number) : []);

/** The maps in the order of their names. `at` is the time of the answer, in which times are ages. */
export function mapsOf(rows: readonly Row[], at: number): ServerMap[] {
  return rows.map((row) => mapOf(row, at)).sort((a, b) => a.key.localeCompare(b.key));
}

function mapOf(row: Row, at: number): ServerMap {
  const name = text(row["name"]);
  const changes = rowsOf(row["changes"]).map((change) => {
    const ended = at - time(change["age_ns"]);
    return { epoch: number(change["epoch"]), begun: ended - time(change["took_ns"]), ended, aborted: text(change["reason"]), why: text(change["why"]) };
  });
  const servers = serversOf(row);
  return {
    key: `${name} ${text(row["uid"])}`,
    name,
    sentence: sentenceOf(row),
    isUneasy: !Number.isNaN(number(row["next_epoch"])) || servers.some(isUneasy),
    changes,
    servers,
  };
}

/** Whether a server is slow or does not answer, and is in the map or is to come back. */
export const isUneasy = ({ state, ratio }: MapServer): boolean => ratio > 0 || [ABSENT, ENDED, MOVED].includes(state);

function sentenceOf(row: Row): string {
  const [epoch, next, stage] = [text(row["epoch"]), text(row["next_epoch"]), text(row["stage"])];
  const application = text(row["application"]);
  const name = `${text(row["name"])}${application === "" ? "" : ` of ${application}`} (${text(row["user"])})`;
  const count = (column: string) => number(row[column]) || 0;
  const running = count("running") === 0 ? "no operation" : several(count("running"), "operation");
  const work = `${several(count("members"), "process", "processes")} on ${several(count("nodes"), "node")}, ${running} at work`;
  return harmless(`${name}: epoch ${epoch}${next === "" ? `, ${stage}` : `; epoch ${next} ${stage}`}; ${work}.`);
}

/** What came of a change, at a time. */
export function changeText({ epoch, begun, ended, aborted, why }: EpochChange, now: number): string {
  const span = plain(seconds((ended - begun) / 1000));
  const what = aborted === "" ? `came into force ${duration(now - ended)} ago, in ${span}` : `was aborted ${duration(now - ended)} ago, after ${span}: ${aborted}`;
  return harmless(`Epoch ${epoch} ${what}${why === "" ? "" : `. It was begun because ${why}`}.`);
}

/** The servers that any part of the row names, in the order of their numbers. */
function serversOf(row: Row): MapServer[] {
  const set = (column: string) => new Set(numbersOf(row[column]));
  const [members, present, gone, out] = [set("servers"), set("running_servers"), set("gone_servers"), set("out_servers")];
  const moved = new Set(Array.isArray(row["moved_servers"]) ? row["moved_servers"].map((one) => number(Array.isArray(one) ? one[0] : NaN)) : []);
  const [slow, ratio = NaN, falseAlarms = NaN] = numbersOf(row["slow"]);
  const loads = new Map(rowsOf(row["loads"]).map((load) => [number(load["server"]), load]));
  const all = [...new Set([...members, ...present, ...gone, ...moved, ...loads.keys()])].sort((a, b) => a - b);
  return all.map((server) => {
    const load = loads.get(server);
    const recent = numbersOf(load?.["recent"]);
    const outside = gone.has(server) ? "gone" : out.has(server) ? "taken out" : present.has(server) ? "there, but not in the map" : "not there";
    const inside = gone.has(server) ? ENDED : present.has(server) ? IN_MAP : ABSENT;
    return {
      server,
      state: moved.has(server) ? MOVED : members.has(server) ? inside : outside,
      requests: number(load?.["requests_s"]),
      service: number(load?.["service_s"]),
      recent,
      ...(server === slow && members.has(server) ? { ratio, falseAlarms } : { ratio: NaN, falseAlarms: NaN }),
    };
  });
}

/**
 * The servers to show, at most so many, the slowest first; before them those that are found to be slow
 * or do not answer. Times that differ by less than about a third are taken as equal, so that servers
 * which are about as fast keep the order of their numbers from one answer to the next.
 */
export function slowestOf(servers: readonly MapServer[], most: number): readonly MapServer[] {
  const times = servers.map(({ service }) => service).filter((service) => service > 0).sort((a, b) => a - b);
  const typical = times[times.length >> 1] ?? 1;
  const rank = (one: MapServer): number => (isUneasy(one) ? Number.MAX_VALUE : one.service > 0 ? Math.round(2 * Math.log2(one.service / typical)) : -Number.MAX_VALUE);
  const ranked = servers.map((one) => ({ one, at: rank(one) }));
  return ranked.sort((a, b) => b.at - a.at || a.one.server - b.one.server).slice(0, most).map(({ one }) => one);
}

/** The maps with those first that are changing, or have a server that is slow or does not answer. */
export const easyLast = (maps: readonly ServerMap[]): ServerMap[] => [...maps].sort((a, b) => Number(b.isUneasy) - Number(a.isUneasy));

/** The servers that are not shown, by their states: `8 more servers: 6 in the map, 2 gone`; empty if there are none. */
export function restOf(servers: readonly MapServer[], shown: readonly MapServer[]): string {
  const states = new Map<string, number>();
  for (const one of servers) if (!shown.includes(one)) states.set(one.state, (states.get(one.state) ?? 0) + 1);
  const counted = [...states].map(([state, count]) => `${count.toLocaleString("en")} ${state}`).join(", ");
  return counted === "" ? "" : `${several(servers.length - shown.length, "more server")}: ${counted}`;
}

/**
 * The path of a sparkline of `most` medians at most, from zero to `top`; the newest is at its right. A
 * window without requests is a gap.
 */
export function sparkOf(recent: readonly number[], most: number, top: number, [width, height]: readonly [number, number]): string {
  const drawn = recent.slice(-most);
  const point = (median: number, at: number): string => {
    if (Number.isNaN(median)) return "";
    const x = (((at + most - drawn.length) / (most - 1)) * width).toFixed(1);
    const y = (height * (1 - median / top)).toFixed(1);
    // A single point has no length, and is drawn since its ends are round.
    return Number.isNaN(drawn[at - 1] ?? NaN) ? `M${x} ${y}h0` : `L${x} ${y}`;
  };
  return drawn.map(point).join("");
}
