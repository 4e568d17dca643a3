// The Nodes view: one line for each node of the cluster, worst first, each with the way to the page of
// its node, and the devices and mounts of the chosen one.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { shownNode } from "../data/api";
import { now } from "../data/feed";
import { BUSY, busyOf, fault, isSaturated, load, nodes, READ, rings, sentenceOf, tiersOf, WRITE } from "../data/nodes";
import type { ClusterNode, Thing } from "../data/nodes";
import { formatPage, formatRoute } from "../route";
import { age, quantity } from "../text/format";
import type { Quantity } from "../text/format";
import { Note, Spark, Value } from "./parts";

const EVERY_MS = 2000;

/** Name of the chosen node; empty if none is chosen. */
const chosen = signal("");

export function Nodes() {
  useEffect(() => {
    void load();
    const timer = setInterval(() => document.hidden || void load(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  const all = nodes.value;
  return (
    <main id="main" class="nodes">
      <h1>{all === null ? "Nodes" : sentenceOf(all)}</h1>
      {fault.value !== "" && <Note bad>{fault.value}</Note>}
      {all !== null && all.length === 1 && (
        <p class="note">No other node is known: <code>baro cluster status</code></p>
      )}
      {all !== null && <Lines all={all} />}
      {all?.filter((node) => node.name === chosen.value).map((node) => <OneNode node={node} />)}
      {all !== null && <Tiers all={all} />}
    </main>
  );
}

function Lines({ all }: { all: readonly ClusterNode[] }) {
  const at = now();
  return (
    <div class="scroll causes" tabIndex={0} role="region" aria-label="Nodes">
      <table>
        <Head names={["node", "state", "device", "busy", "last five minutes", "heard", "round trip", "clock ahead"]} />
        <tbody>
          {all.map((node) => <Line key={node.name} node={node} at={at} />)}
        </tbody>
      </table>
    </div>
  );
}

function Line({ node, at }: { node: ClusterNode; at: number }) {
  const ring = rings.get(node.name);
  const isGone = node.state !== "here" && node.state !== "connected";
  const choose = () => (chosen.value = chosen.value === node.name ? "" : node.name);
  return (
    <tr class={isGone || isSaturated(node) ? "bad" : ""}>
      <th scope="row">
        <NameLink node={node} />
        {node.state !== "connected" && <span class="sub"> {node.state}</span>}
      </th>
      <td>
        {!isGone && node.sentence} <span class="sub">{node.fault}</span>
      </td>
      <td class="path">
        {!isGone && node.disks.length + node.mounts.length > 0 && (
          <button type="button" class="plain" aria-expanded={chosen.value === node.name} title={`Devices and file systems of ${node.name}`} onClick={choose}>{node.disks[0]?.name ?? "none"}</button>
        )}
      </td>
      <td>{!isGone && <Value value={busyOf(node)} unit="ratio" />}</td>
      <td class="wide">{ring !== undefined && <Spark ring={ring} now={at} spanMs={300_000} slack={6000} />}</td>
      <td>{node.heard > 0 && age(at - node.heard)}</td>
      <td><Value value={node.roundTrip / 1000} unit="seconds" /></td>
      <td><Value value={node.ahead / 1000} unit="seconds" /></td>
    </tr>
  );
}

/** The name of a node, which leads to its page if it has one here. */
function NameLink({ node }: { node: ClusterNode }) {
  const isHere = node.state === "here";
  if (!isHere && !node.isMirrored) return <>{node.name}</>;
  const name = isHere ? "" : node.name;
  return <a href={formatPage(name, formatRoute("now"))} aria-current={name === shownNode ? "true" : undefined} title={`The page of ${node.name}`}>{node.name}</a>;
}

/** The devices and mounts of one node, as its mirror has them. */
function OneNode({ node }: { node: ClusterNode }) {
  const cell = (thing: Thing, name: string, unit: string) => quantity(thing.values[name] ?? NaN, unit);
  return (
    <section class="scroll causes" aria-label={`Node ${node.name}`}>
      <h2>{node.name}</h2>
      <Figures
        head={["device", "busy", "read", "write"]}
        rows={node.disks.map((disk) => [disk.name, cell(disk, BUSY, "ratio"), cell(disk, READ, "B/s"), cell(disk, WRITE, "B/s")])}
      />
      <Figures
        head={["file system", "available", "of"]}
        rows={node.mounts.map((mount) => [mount.name, cell(mount, "filesystem.available.bytes", "B"), cell(mount, "filesystem.total.bytes", "B")])}
      />
    </section>
  );
}

function Head({ names }: { names: readonly string[] }) {
  return (
    <thead>
      <tr>{names.map((name) => <th scope="col">{name}</th>)}</tr>
    </thead>
  );
}

/** A table of quantities by name. */
function Figures({ head, rows }: { head: readonly string[]; rows: readonly (readonly [string, ...Quantity[]])[] }) {
  if (rows.length === 0) return null;
  return (
    <table>
      <Head names={head} />
      <tbody>
        {rows.map(([name, ...cells]) => (
          <tr key={name}>
            <th scope="row" class="path">{name}</th>
            {cells.map((cell) => <td><Value of={cell} /></td>)}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The tiers of the cluster: the sums over its nodes that are heard. */
function Tiers({ all }: { all: readonly ClusterNode[] }) {
  const tiers = tiersOf(all);
  if (tiers.length === 0) return null;
  return (
    <section class="scroll causes" aria-label="Tiers">
      <h2>Tiers of all nodes</h2>
      <Figures
        head={["tier", "available", "of", "nodes"]}
        rows={tiers.map((tier) => [tier.name, quantity(tier.available, "B"), quantity(tier.total, "B"), { number: `${tier.nodes}`, unit: "" }])}
      />
      <p class="sub">A file system that several nodes mount counts at each of them.</p>
    </section>
  );
}
