import assert from "node:assert/strict";
import { test } from "node:test";
import { heardOf, readHeard } from "../src/data/heard";
import { busyOf, isSaturated, nodesOf, sentenceOf, tiersOf } from "../src/data/nodes";

const row = (node: string, name: string, value: unknown, labels = {}) => ({ node, name, value, labels: JSON.stringify(labels) });
const busy = (node: string, value: number, device = "vda") => row(node, "disk.busy.ratio", value, { device });

test("worst first: those that are not heard, saturated ones, those with a warning, the busiest", () => {
  const peers = ["b", "c", "d", "e"].map((node) => ({ node, state: node === "e" ? "gone" : "connected", heard_ts: 1e9, round_trip_ns: 2e6, ahead_ns: null, missed: 0, fault: null }));
  const latest = [
    busy("a", 0.1), row("a", "node.outlook.text", "calm"),
    busy("b", 0.3), busy("b", 0.95, "vdb"),
    busy("c", 0.2), row("c", "node.outlook.text", "/scratch is full"),
    busy("d", 0.4), row("d", "node.outlook.text", "calm"),
    busy("e", 1),
  ];
  const nodes = nodesOf(peers, latest, "a");
  assert.deepEqual(nodes.map((node) => node.name), ["e", "b", "c", "d", "a"]);
  const [e, b, , , a] = nodes;
  assert.ok(e && b && a);
  assert.deepEqual([a.state, b.heard, b.roundTrip, Number.isNaN(b.ahead)], ["here", 1000, 2, true]);
  assert.deepEqual([b.disks[0]?.name, busyOf(b), isSaturated(b)], ["vdb", 0.95, true]);
  assert.equal(isSaturated(e), false, "nothing is known of a node that has gone");
  assert.equal(sentenceOf(nodes), "Nodes: 5, not heard: 1, saturated: 1.");
});

test("a node alone, and rows that make no sense", () => {
  const nodes = nodesOf([{}], [{}, { node: "a", name: "disk.busy.ratio", labels: "{", value: "x" }], "a");
  assert.equal(nodes.length, 2);
  assert.equal(sentenceOf(nodesOf([], [], "a")), "Nodes: 1, not heard: 0, saturated: 0.");
});

test("tiers are the sums over the nodes that are heard", () => {
  const tier = (node: string, available: number) => [row(node, "tier.available.bytes", available, { tier: "nvme" }), row(node, "tier.total.bytes", 10, { tier: "nvme" })];
  const peers = [{ node: "b", state: "connected" }, { node: "c", state: "gone" }];
  const nodes = nodesOf(peers, [...tier("a", 1), ...tier("b", 2), ...tier("c", 4)], "a");
  assert.deepEqual(tiersOf(nodes), [{ name: "nvme", available: 3, total: 20, nodes: 2 }]);
});

test("tiers on devices lead, the largest first; those in memory come last", () => {
  const sizes = { memory: 9, other: 8, nvme: 1, pfs: 5, hdd: 2 };
  const latest = Object.entries(sizes).map(([tier, size]) => row("a", "tier.total.bytes", size, { tier }));
  const tiers = tiersOf(nodesOf([], latest, "a"));
  assert.deepEqual(tiers.map((tier) => tier.name), ["pfs", "hdd", "nvme", "other", "memory"]);
});

test("a node has a page here if it is mirrored", () => {
  const nodes = nodesOf([{ node: "b", state: "gone", streams: 141 }, { node: "c", state: "connected", streams: 0 }, { node: "d" }], [], "a");
  assert.deepEqual(nodes.filter((node) => node.isMirrored).map((node) => node.name), ["b"]);
});

test("how the shown node is heard, in words", () => {
  const now = 1_000_000;
  const peer = { node: "b", state: "connected", heard_ts: (now - 400) * 1e6, ahead_ns: 2e6, streams: 141, fault: null };
  const check = (row: Record<string, unknown>, isBad: boolean, text: RegExp) => {
    const told = heardOf(readHeard({ ...peer, ...row }), now);
    assert.equal(told.isBad, isBad, told.text);
    assert.match(told.text, text);
  };
  check({}, false, /^heard 0(\.4)? s ago$/);
  check({ ahead_ns: -180e9 }, false, /; its clock is 3 min behind, ages are wrong by that$/);
  check({ heard_ts: (now - 90_000) * 1e6 }, true, /^not heard since .+ \(1 min 30 s\), what is shown is old$/);
  check({ state: "gone" }, true, /^not heard since .+, what is shown is old$/);
  check({ state: "gone", heard_ts: null }, true, /^not heard, what is shown is old$/);
  check({ heard_ts: null, streams: 0 }, true, /^none of its streams are mirrored$/);
  check({ streams: 0, fault: "64 nodes are mirrored" }, true, /^none of its streams are mirrored \(64 nodes are mirrored\)$/);
  assert.deepEqual(heardOf(undefined, now), { isBad: false, text: "asking for it" });
  assert.equal(heardOf(null, now).isBad, true);
});
