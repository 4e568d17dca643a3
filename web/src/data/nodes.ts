// The nodes of the cluster, read by SQL from the mirrors of this node's agent. A missing column is
// left out and is no error.

import { signal } from "@preact/signals";
import * as api from "./api";
import { now } from "./feed";
import { loader } from "./optional";
import { labelsOf, number, rowsOf, text, time } from "./publications";
import type { Row } from "./publications";
import { Ring } from "./ring";
import { tierOrder } from "./tiers";

/** Most nodes that are read, and most of their streams. */
const NODES_MAX = 1000;
const STREAMS_MAX = 50_000;
/** A share of time above which a device counts as saturated. */
const SATURATED = 0.9;
const SENTENCE = "node.outlook.text";
export const BUSY = "disk.busy.ratio";
export const READ = "disk.read.bytes_per_second";
export const WRITE = "disk.write.bytes_per_second";
const NAMES = [
  SENTENCE, BUSY, READ, WRITE, "tier.available.bytes", "tier.total.bytes",
  "filesystem.available.bytes", "filesystem.total.bytes",
];

/** A quantity of a thing: a device, a tier, a mount. */
export interface Thing {
  readonly name: string;
  readonly values: Readonly<Record<string, number>>;
}

/** A node of the cluster. Times are ms. */
export interface ClusterNode {
  readonly name: string;
  /** `here` for the node of this page's agent. */
  readonly state: string;
  /** The last time at which something was heard of it. */
  readonly heard: number;
  readonly roundTrip: number;
  readonly ahead: number;
  readonly fault: string;
  /** Whether streams of it are mirrored here, so that its page can be shown. */
  readonly isMirrored: boolean;
  readonly sentence: string;
  /** Devices, the busiest first. */
  readonly disks: readonly Thing[];
  readonly tiers: readonly Thing[];
  readonly mounts: readonly Thing[];
}

/** The busy share of the busiest device; NaN if nothing is known. */
export const busyOf = (node: ClusterNode): number => node.disks[0]?.values[BUSY] ?? NaN;
const isHeard = (node: ClusterNode): boolean => node.state === "here" || node.state === "connected";
export const isSaturated = (node: ClusterNode): boolean => isHeard(node) && busyOf(node) >= SATURATED;
const isCalm = (node: ClusterNode): boolean => node.sentence === "" || /^calm\b/i.test(node.sentence);

/** The worse a node is, the greater. */
const badness = (node: ClusterNode): number => (!isHeard(node) ? 4 : (isSaturated(node) ? 2 : isCalm(node) ? 0 : 1) + (busyOf(node) || 0));

/** The nodes, worst first. */
export function nodesOf(peers: readonly Row[], latest: readonly Row[], here: string): ClusterNode[] {
  const byNode = new Map<string, Row[]>();
  for (const row of latest) {
    const node = text(row["node"]);
    byNode.set(node, [...(byNode.get(node) ?? []), row]);
  }
  const own: Row = { node: here, state: "here" };
  const nodes = [own, ...peers].map((peer) => nodeOf(peer, byNode.get(text(peer["node"])) ?? []));
  return nodes.sort((a, b) => badness(b) - badness(a) || a.name.localeCompare(b.name, "en", { numeric: true }));
}

function nodeOf(peer: Row, latest: readonly Row[]): ClusterNode {
  const disks = things(latest, "device", /^disk\./).sort((a, b) => (b.values[BUSY] ?? 0) - (a.values[BUSY] ?? 0));
  return {
    name: text(peer["node"]),
    state: text(peer["state"]),
    heard: time(peer["heard_ts"]),
    roundTrip: time(peer["round_trip_ns"]),
    ahead: time(peer["ahead_ns"]),
    fault: text(peer["fault"]),
    isMirrored: number(peer["streams"]) > 0,
    sentence: text(latest.find((row) => row["name"] === SENTENCE)?.["value"]),
    disks,
    tiers: things(latest, "tier", /^tier\./),
    mounts: things(latest, "mount", /^filesystem\./),
  };
}

/** The values of each thing that a label names, by the names of their streams. */
function things(latest: readonly Row[], label: string, names: RegExp): Thing[] {
  const found = new Map<string, Record<string, number>>();
  for (const row of latest) {
    const name = text(row["name"]);
    const thing = names.test(name) ? labelsOf(row["labels"])[label] : undefined;
    if (thing === undefined) continue;
    const values = found.get(thing) ?? {};
    values[name] = number(row["value"]);
    found.set(thing, values);
  }
  return [...found].map(([name, values]) => ({ name, values }));
}

/** The state of the cluster in one sentence. */
export function sentenceOf(nodes: readonly ClusterNode[]): string {
  const lost = nodes.filter((node) => !isHeard(node)).length;
  return `Nodes: ${nodes.length}, not heard: ${lost}, saturated: ${nodes.filter(isSaturated).length}.`;
}

/** The tiers of all nodes that are heard together, in the order of tiers. */
export function tiersOf(nodes: readonly ClusterNode[]): { name: string; available: number; total: number; nodes: number }[] {
  const sums: Record<string, { name: string; available: number; total: number; nodes: number }> = {};
  for (const { name, values } of nodes.filter(isHeard).flatMap((node) => node.tiers)) {
    const sum = (sums[name] ??= { name, available: 0, total: 0, nodes: 0 });
    sum.available += values["tier.available.bytes"] ?? 0;
    sum.total += values["tier.total.bytes"] ?? 0;
    sum.nodes += 1;
  }
  return Object.values(sums).sort(tierOrder);
}

export const nodes = signal<readonly ClusterNode[] | null>(null);
export const fault = signal("");
/** The busy share of each node's busiest device, since the page was opened. */
export const rings = new Map<string, Ring>();

/** Reads all of it, unless a read is in progress. */
export const load = loader(async () => {
  const peers = rowsOf(await api.sqlHere(`SELECT * FROM peers LIMIT ${NODES_MAX}`));
  const { node: here } = await api.status();
  const names = NAMES.map((name) => `'${name}'`).join(", ");
  const latest = rowsOf(await api.sqlHere(`SELECT node, name, labels, value FROM latest WHERE name IN (${names}) LIMIT ${STREAMS_MAX}`));
  const found = nodesOf(peers, latest, here);
  const at = now();
  for (const node of found) {
    const ring = rings.get(node.name) ?? new Ring();
    rings.set(node.name, ring);
    // Of a node that is not heard, nothing is known: the strip has a gap.
    if (isHeard(node)) ring.push(at, busyOf(node));
  }
  for (const name of rings.keys()) if (!found.some((node) => node.name === name)) rings.delete(name);
  nodes.value = found;
}, fault);
