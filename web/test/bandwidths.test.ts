import assert from "node:assert/strict";
import { test } from "node:test";
import { burstsOf, devicesOf, nextOf } from "../src/data/bandwidths";

const MS = 1_000_000;
const ROWS = [
  { device: "vda", writer: null, capacity: 1e8, capacity_source: "probed", bandwidth: 6e7, error: 1e7, confidence: 0.9, follows: "schedules", reason: "step 1: x" },
  { device: "vda", writer: "/simulation", period_ns: 200_000 * MS, next_ts: 5_000 * MS, jitter_ns: 0, burst_bytes: 9e8, rate: 4e6, reason: "9 bursts keep to a period" },
  { device: "vda", writer: "/log", rate: 1e6, reason: "it writes at all times, without bursts" },
  { device: "vdb", writer: null, reason: "its greatest bandwidth is not known" },
];
const AHEAD = [
  { labels: '{"device":"vda"}', ts: 1_000 * MS, value: 6e7, error: 1e7 },
  { labels: '{"device":"vda"}', ts: 2_000 * MS, value: 5e7, error: 2e7 },
  { labels: '{"device":"sdz"}', ts: 2_000 * MS, value: 1, error: 1 },
  { labels: "nonsense", ts: null, value: null, error: null },
];

test("a device has its writers and its steps", () => {
  const [vda, vdb] = devicesOf(ROWS, AHEAD);
  assert.deepEqual(vda?.writers.map(({ name, periodMs }) => [name, periodMs]), [["/simulation", 200_000], ["/log", NaN]]);
  assert.deepEqual(vda?.steps.map(({ at, value }) => [at, value]), [[1000, 6e7], [2000, 5e7]]);
  assert.deepEqual([vdb?.bandwidth, vdb?.capacity, vdb?.writers, vdb?.steps], [NaN, NaN, [], []]);
  assert.deepEqual(devicesOf([], AHEAD), []);
});

test("bursts repeat, and are bounded", () => {
  const [vda] = devicesOf(ROWS, AHEAD);
  const [periodic, steady] = vda?.writers ?? [];
  assert.ok(periodic && steady);
  assert.deepEqual(burstsOf(periodic, 450_000, 60), [5_000, 205_000, 405_000]);
  assert.equal(burstsOf(periodic, 1e12, 60).length, 60);
  assert.deepEqual(burstsOf(steady, 1e12, 60), []);
});

test("a start that has passed is followed by the next", () => {
  const [vda] = devicesOf(ROWS, AHEAD);
  const [periodic, steady] = vda?.writers ?? [];
  assert.ok(periodic && steady);
  assert.deepEqual([0, 90_000, 110_000, 500_000].map((now) => nextOf(periodic, now)), [5_000, 5_000, 205_000, 405_000]);
  assert.ok(Number.isNaN(nextOf(steady, 0)));
});
