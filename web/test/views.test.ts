import assert from "node:assert/strict";
import { test } from "node:test";
import { ENDED, Ring } from "../src/data/ring";
import { outlook, saturatedSince, stripSentence, troubles } from "../src/data/trouble";
import type { Known } from "../src/data/trouble";
import { layout } from "../src/view/dag";
import { align, points } from "../src/view/plotdata";

const NOW = 1_700_000_000_000;
const MEASURES = { nodeWidth: 200, nodeHeight: 60, factHeight: 20, gapX: 40, gapY: 10 };

function known(name: string, labels: Record<string, string>, samples: readonly (readonly [number, number])[], looked = 0): Known {
  const ring = new Ring();
  for (const [s, v] of samples) ring.push(NOW + s * 1000, v);
  ring.hold(NOW + looked * 1000);
  return { name, labels, ring, intervalMs: 1000, looked: NOW + looked * 1000 };
}

const from = (all: readonly Known[]) => (name: string) => all.filter((one) => one.name === name);
const steady = (value: number, seconds: number): [number, number][] => Array.from({ length: seconds }, (_, i) => [i - seconds + 1, value + (i % 2) * 0.001]);

test("nothing wrong is calm", () => {
  const all = troubles(from([known("disk.busy.ratio", { device: "vda" }, steady(0.2, 60))]), NOW);
  assert.deepEqual(all, []);
  assert.equal(outlook(all, NOW), "Calm");
});

test("what is wrong, where, since when", () => {
  const all = troubles(
    from([
      known("disk.busy.ratio", { device: "vda" }, steady(0.96, 40)),
      known("node.saturated.seconds", { device: "vda" }, [[-39, 0], [0, 39]]),
      known("disk.busy.ratio", { device: "vdb" }, [[-240, 0.1]], -240),
      known("filesystem.responding.flag", { mount: "/mnt/nfs" }, [[-300, 1], [-100, 0]]),
      known("source.up.flag", { source: "nfs" }, [[-50, 0]]),
      known("tier.available.bytes", { tier: "ssd" }, [[-9, 2 ** 30]]),
      known("tier.used.ratio", { tier: "ssd" }, [[-9, 0.96]]),
      known("tier.available.bytes", { tier: "hdd" }, [[-9, 0]]),
      known("tier.used.ratio", { tier: "hdd" }, [[-9, 1]]),
    ]),
    NOW,
  );
  assert.deepEqual(all.map((one) => [one.level, one.where, one.what]), [
    ["bad", "/mnt/nfs", "does not answer"],
    ["bad", "vda", "saturated, 96 % busy"],
    ["warn", "tier ssd", "nearly full, 1 GiB available"],
    ["warn", "tier hdd", "full"],
    ["warn", "vdb", "no news"],
    ["warn", "source nfs", "down"],
  ]);
  assert.equal(all[0]?.since, NOW - 100_000);
  assert.equal(all[1]?.since, NOW - 39_000);
  assert.equal(outlook(all, NOW), "/mnt/nfs has not answered for 1 min 40 s; and 5 more");
});

test("how busy a saturated disk is, is a mean over time", () => {
  const saturated = known("node.saturated.seconds", { device: "vda" }, [[-39, 0], [0, 39]]);
  const said = (tell: (ring: Ring) => void) => {
    const ring = new Ring();
    tell(ring);
    const busy = { name: "disk.busy.ratio", labels: { device: "vda" }, ring, intervalMs: 1000, looked: NOW };
    return troubles(from([busy, saturated]), NOW).map((one) => one.what);
  };
  const changes = (ring: Ring) => {
    ring.push(NOW - 60_000, 1);
    ring.hold(NOW - 3_000);
    ring.push(NOW - 2_000, 0);
    ring.push(NOW - 1_000, 0.5);
    ring.hold(NOW);
  };
  // It was 1 for 8 of the 10 s, whatever was before.
  assert.deepEqual(said(changes), ["saturated, 85 % busy"]);
  // Nobody looked for 7 of the 10 s.
  const ended = (ring: Ring) => {
    ring.push(NOW - 60_000, 1);
    ring.hold(NOW - 8_000);
    ring.push(NOW - 8_000, 1, ENDED);
    ring.push(NOW - 1_000, 0.4);
    ring.hold(NOW);
  };
  assert.deepEqual(said(ended), ["saturated, 80 % busy"]);
  assert.deepEqual(said((ring) => ring.push(NOW, 0.7)), ["saturated, 70 % busy"]);
});

test("the agent alone says what is saturated", () => {
  const ring = (samples: readonly (readonly [number, number])[]) => known("x", {}, samples).ring;
  assert.equal(saturatedSince(ring([[-9, 0], [-2, 7.5]])), NOW - 9500);
  assert.ok(Number.isNaN(saturatedSince(ring([[-9, 7], [-2, 0]]))));
  assert.ok(Number.isNaN(saturatedSince(ring([]))));
  assert.ok(Number.isNaN(saturatedSince(undefined)));
  const busy = [known("disk.busy.ratio", { device: "vda" }, steady(0.99, 60))];
  assert.deepEqual(troubles(from(busy), NOW), [], "busy is not saturated before the agent says so");
});

test("a strip is a sentence", () => {
  const base = { device: "vda", busy: 0.97, read: 48.5e6, write: 175e6, latency: 0.0324, since: NOW - 40_000, silentMs: 0, old: false };
  assert.equal(stripSentence(base, NOW), "vda: 97 % busy, saturated for 40 s, reading 48.5 MB/s, writing 175 MB/s, 32.4 ms a request.");
  assert.equal(stripSentence({ ...base, busy: 0.1, since: NaN, latency: NaN, read: NaN, write: NaN }, NOW), "vda: 10 % busy.");
  assert.equal(stripSentence({ ...base, old: true, silentMs: 240_000 }, NOW), "vda: no news for 4 min.");
  assert.equal(stripSentence({ ...base, busy: NaN }, NOW), "vda: nothing measured yet.");
});

test("the graph: inputs left of what reads them, nothing overlaps, equal input equal picture", () => {
  const nodes = [
    { id: "c", inputs: ["a", "b"] },
    { id: "a", inputs: ["x.bytes"] },
    { id: "b", inputs: ["x.bytes", "a"] },
    { id: "alone", inputs: [] },
  ];
  const made = layout(nodes, MEASURES);
  const layer = new Map(made.nodes.map((n) => [n.id, n.layer]));
  assert.deepEqual([...layer].sort(), [["a", 1], ["alone", 0], ["b", 2], ["c", 3], ["x.bytes", 0]]);
  assert.equal(made.edges.length, 5);
  for (const one of made.nodes) {
    assert.ok(one.x + MEASURES.nodeWidth <= made.width && one.y >= 0);
    for (const other of made.nodes) if (other.id !== one.id && other.layer === one.layer) assert.ok(Math.abs(other.y - one.y) >= MEASURES.factHeight);
  }
  assert.deepEqual(layout([...nodes].reverse(), MEASURES).nodes.map((n) => [n.id, n.x, n.y]).sort(), made.nodes.map((n) => [n.id, n.x, n.y]).sort());
});

test("a graph that is told with a cycle still ends", () => {
  assert.equal(layout([{ id: "a", inputs: ["b"] }, { id: "b", inputs: ["a"] }], MEASURES).nodes.length, 2);
  assert.deepEqual(layout([], MEASURES).nodes, []);
});

test("points for a chart: held values to their end, gaps as nulls", () => {
  const ring = new Ring();
  ring.push(1000, 1);
  ring.hold(4000);
  ring.push(5000, 2);
  ring.push(30_000, 3);
  assert.deepEqual(points(ring, 0, 40_000, 2500), { ts: [1000, 4000, 5000, 5001, 30_000], values: [1, 1, 2, null, 3] });
  assert.deepEqual(points(ring, 4500, 6000, 2500), { ts: [1000, 4000, 5000, 5001], values: [1, 1, 2, null] }, "the line comes in from the left");
  assert.deepEqual(points(ring, 0, 40_000, Infinity), { ts: [1000, 4000, 5000, 29_999, 30_000, 40_000], values: [1, 1, 2, 2, 3, 3] });
  assert.deepEqual(align([{ ts: [1000, 3000], values: [1, 2] }, { ts: [2000], values: [null] }]), [[1, 2, 3], [1, undefined, 2], [undefined, null, undefined]]);
});
