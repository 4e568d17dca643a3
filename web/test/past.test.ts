import assert from "node:assert/strict";
import { test } from "node:test";
import { bucketAt, cut, endOf, gapOf, join, pastOf } from "../src/data/buckets";
import type { BucketHistory } from "../src/data/contract";
import { Ring } from "../src/data/ring";
import { archiveSentence, lossWords } from "../src/view/archive";
import { pastPoints } from "../src/view/plotdata";
import { axisLabels, move, nextSpan, SPANS, spanOf, spanText, zoom } from "../src/view/range";

const MIN = 60_000;
const T = 1_700_000_040_000; // A whole minute.

/** Buckets of a minute, given as minutes after T and means. */
function told(buckets: readonly (readonly [number, number])[], stepMs = MIN, held = 0): BucketHistory {
  const mean = buckets.map(([, v]) => v);
  const ts = buckets.map(([m]) => (T + m * MIN) * 1e6);
  return {
    name: "disk.busy.ratio", labels: { device: "vda" }, node: "n", unit: "1", kind: "gauge", interval_ns: 1e9, step_ns: stepMs * 1e6,
    ts, count: mean.map(() => 60), held_ns: mean.map(() => held * 1e6), min: mean.map((v) => v - 1), max: mean.map((v) => v + 1), mean, last: mean.map((v) => v + 0.5),
  };
}

test("newer buckets take the place of the end, older ones are let go", () => {
  const old = pastOf(told([[0, 1], [1, 2], [2, 3]]), T + 2.5 * MIN);
  const fresh = pastOf(told([[2, 4], [3, 5]]), T + 3.5 * MIN);
  const joined = cut(join(old, fresh), T + MIN);
  assert.deepEqual(joined.ts, [T + MIN, T + 2 * MIN, T + 3 * MIN]);
  assert.deepEqual(joined.mean, [2, 4, 5]);
  assert.equal(joined.told, T + 3.5 * MIN);
  assert.deepEqual(join(undefined, fresh), fresh);
  const coarser = pastOf(told([[0, 7]], 5 * MIN), T);
  assert.deepEqual(join(old, coarser), coarser, "of another step nothing is kept");
});

test("where a bucket holds", () => {
  const past = pastOf(told([[0, 1], [2, 2], [20, 3]]), T + 20.25 * MIN);
  assert.equal(gapOf(past), 250_000);
  assert.equal(endOf(past, 2), T + 20.25 * MIN, "the last one is not over");
  const check = (minute: number, expect: number) => assert.equal(bucketAt(past, T + minute * MIN), expect, `at ${minute}`);
  check(-0.1, -1);
  check(0, 0);
  check(1.5, 0); // it was looked at and had not changed
  check(2, 1);
  check(10, -1); // nobody looked
  check(20.1, 2);
});

test("where it was counted how long values held, a bucket that is missing is a gap", () => {
  const past = pastOf(told([[0, 1], [1, 2], [3, 3]], MIN, MIN), T + 5 * MIN);
  const check = (minute: number, expect: number) => assert.equal(bucketAt(past, T + minute * MIN), expect, `at ${minute}`);
  check(1.5, 1);
  check(2.5, -1);
  check(3.5, 2);
  check(4.5, 2); // it will be said how long that held
  assert.deepEqual(pastPoints(past, undefined, T, T + 5 * MIN, 0).mean.values, [1, 2, null, 3]);
});

test("a band with its gap, and the live tail behind it", () => {
  const past = pastOf(told([[0, 1], [1, 2], [3, 3], [20, 4]]), T + 20.5 * MIN);
  const ring = new Ring();
  for (let s = 0; s < 60; s += 10) ring.push(T + 20 * MIN + s * 1000, 10 + s);
  const { mean, low, high } = pastPoints(past, ring, T, T + 21 * MIN, 25_000);
  const minutes = mean.ts.map((ts) => Math.round(((ts - T) / MIN) * 100) / 100);
  assert.deepEqual(minutes, [0.5, 1.5, 2, 3, 3.5, 4, 20.25, 20.5, 20.67, 20.83]);
  assert.deepEqual(mean.values, [1, 2, 2.5, 2.5, 3, null, 4, 40, 50, 60]);
  assert.deepEqual(low.values, [0, 1, 2.5, 2.5, 2, null, 3, undefined, undefined, undefined]);
  assert.deepEqual(high.values, [2, 3, 2.5, 2.5, 4, null, 5, undefined, undefined, undefined]);
});

test("a tail that begins long after the last bucket is no line to it; texts and NaN are gaps", () => {
  const past = pastOf(told([[0, 1], [1, NaN]]), T + 30 * MIN);
  const ring = new Ring();
  ring.push(T + 40 * MIN, 7);
  const { mean } = pastPoints(past, ring, T, T + 41 * MIN, 2500);
  assert.deepEqual(mean.values, [1, null, null, 7]);
});

test("spans in the address and by steps", () => {
  for (const span of SPANS) assert.equal(spanOf(spanText(span.seconds)), span.seconds);
  assert.deepEqual([spanOf(null), spanOf("2y"), spanText(300), spanText(86_400)], [300, 300, "", "24h"]);
  assert.deepEqual([nextSpan(300, 1), nextSpan(300, -1), nextSpan(30 * 86_400, 1), nextSpan(60, -1)], [900, 60, 30 * 86_400, 60]);
});

test("zooming and moving never end in the future", () => {
  assert.deepEqual(zoom([100, 200], 2, 1000), [50, 250]);
  assert.deepEqual(zoom([100, 200], 2, 220), [20, 220]);
  assert.deepEqual(zoom([100, 200], 0.5, 1000), [125, 175]);
  assert.deepEqual(zoom([100, 101], 0.5, 1000), [99.5, 101.5]);
  assert.deepEqual(move([100, 200], -0.25, 1000), [75, 175]);
  assert.deepEqual(move([100, 200], 0.25, 210), [110, 210]);
  assert.deepEqual(move([100, 200], 0.25, 150), [100, 200]);
});

test("labels of the axis are as fine as its steps", () => {
  const at = (text: string) => new Date(text).getTime() / 1000;
  assert.deepEqual(axisLabels([at("2026-11-20T08:00:05")], 5), ["08:00:05"]);
  assert.deepEqual(axisLabels([at("2026-11-20T23:00:00"), at("2026-11-21T00:00:00")], 3600), ["23:00", "11-21"]);
  assert.deepEqual(axisLabels([at("2026-11-20T00:00:00"), at("2026-11-22T00:00:00")], 172_800), ["11-20", "11-22"]);
});

test("the archive in words", () => {
  const one = { dir: "/a", bytes: 3 << 20, log_bytes: 1 << 20, files: 7, samples: 0, oldest_ts: (T - 90 * MIN) * 1e6, waiting_bytes: 0, losses: {}, trouble: "" };
  assert.match(archiveSentence(one, T), /^History since .+ \(1 h 30 min\): 3 MiB in 7 files and a log of 1 MiB\.$/);
  assert.match(archiveSentence(one, T, 3.14), /a log of 1 MiB, 3\.14 bytes a sample once it is Parquet\.$/);
  assert.match(archiveSentence({ ...one, waiting_bytes: 9 << 20 }, T), /; 9 MiB wait to be written\.$/);
  assert.equal(archiveSentence({ ...one, oldest_ts: null }, T), "History is kept in /a; nothing is there yet.");
  assert.deepEqual(lossWords({ overflow_samples: 1200, torn_bytes: 0, unknown: 5 }), ["1,200 samples that came faster than they could be written"]);
});
