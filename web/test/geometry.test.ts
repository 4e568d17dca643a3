import assert from "node:assert/strict";
import { test } from "node:test";
import { Ring } from "../src/data/ring";
import { columns, grid, niceMax, paper, penOf, PEN_WIDTHS, rules, runs, slackOf, timeAt, timeStep, xOf } from "../src/sheet/geometry";

const NOW = 1_700_000_000_000;

function ringOf(samples: readonly (readonly [number, number])[]): Ring {
  const ring = new Ring();
  for (const [s, v] of samples) ring.push(NOW + s * 1000, v);
  return ring;
}

function drawn(ring: Ring, width = 110, windowMs = 100_000): { values: Float64Array; at: (s: number) => number } {
  const p = paper(width, NOW, windowMs);
  const g = grid(p);
  const values = new Float64Array(g.count);
  columns(ring, g, 2500, p.now, values);
  return { values, at: (s) => values[Math.floor((NOW + s * 1000 - g.t0) / g.dt)] ?? NaN };
}

test("time and place are each other's inverse, and the pen stands at now", () => {
  const p = paper(1000, NOW, 300_000);
  assert.equal(p.penX, 900);
  assert.equal(xOf(p, NOW), p.penX);
  for (const x of [0, 17.5, 900, 1000]) assert.ok(Math.abs(xOf(p, timeAt(p, x)) - x) < 1e-3);
  assert.ok(Math.abs(timeAt(p, 0) - (NOW - 300_000)) < 1);
});

test("columns cover the paper left of the pen and stay fixed in time", () => {
  const a = grid(paper(1000, NOW, 300_000));
  const b = grid(paper(1000, NOW + 1234, 300_000));
  assert.ok(Math.abs(a.t0 / a.dt - Math.round(a.t0 / a.dt)) < 1e-6);
  assert.ok(Math.abs((b.t0 - a.t0) / a.dt - Math.round((b.t0 - a.t0) / a.dt)) < 1e-6);
  assert.ok(a.t0 <= NOW - 300_000 && a.t0 + a.count * a.dt >= NOW);
});

test("a line between samples, nothing before the first or in a gap", () => {
  const ring = ringOf([[-60, 0], [-58, 1], [-30, 0.5], [-29, 0.5], [-28, 0.5]]);
  const { at } = drawn(ring);
  assert.ok(Number.isNaN(at(-70)));
  assert.ok(at(-59) > 0.2 && at(-59) < 0.9);
  assert.ok(Number.isNaN(at(-50)), "a gap stays one");
  assert.equal(at(-29), 0.5);
  assert.ok(Number.isNaN(at(-20)), "an old value does not go on to the pen");
});

test("a held value is a line to its last look", () => {
  const ring = ringOf([[-60, 0.4]]);
  ring.hold(NOW - 20_000);
  const { at } = drawn(ring);
  assert.equal(at(-40), 0.4);
  assert.equal(at(-21), 0.4);
  assert.ok(Number.isNaN(at(-10)));
});

test("a value written only as its inputs change stands until the next, and to the pen", () => {
  const p = paper(110, NOW, 100_000);
  const g = grid(p);
  const out = new Float64Array(g.count);
  columns(ringOf([[-60, 0.2], [-20, 0.8]]), g, slackOf(0), p.now, out);
  const at = (s: number) => out[Math.floor((NOW + s * 1000 - g.t0) / g.dt)];
  assert.deepEqual([at(-70), at(-50), at(-22), at(-10), at(-1)], [NaN, 0.2, 0.2, 0.8, 0.8]);
});

test("a spike shorter than a column is not lost", () => {
  const samples: [number, number][] = [];
  for (let i = -1000; i <= 0; i += 1) samples.push([i / 10, i === -500 ? 1 : 0.1]);
  const ring = ringOf(samples.slice(-880));
  const { values } = drawn(ring, 30);
  assert.equal(Math.max(...[...values].filter((v) => !Number.isNaN(v))), 1);
});

test("runs break at gaps and change pens where they touch", () => {
  const busy = Float64Array.from([0.1, 0.2, NaN, 0.3, 0.95, 0.96]);
  const latency = Float64Array.from([0.0001, 0.5, NaN, NaN, NaN, NaN]);
  const saturated = Float64Array.from([0, 0, NaN, 0, 6, 7]);
  assert.deepEqual(runs(busy, latency, saturated, 6), [
    { from: 0, to: 1, pen: 0, alarm: false },
    { from: 1, to: 1, pen: 4, alarm: false },
    { from: 3, to: 4, pen: 0, alarm: false },
    { from: 4, to: 5, pen: 0, alarm: true },
  ]);
});

test("scales, steps, rules, pens", () => {
  for (const [value, expect] of [[0, 1], [1, 1], [1.1, 2], [4, 5], [7, 10], [1.2e8, 2e8], [5e8, 5e8]] as const) assert.equal(niceMax(value, 1), expect, `${value}`);
  for (const [msPerPx, expect] of [[10, 1000], [133, 15_000], [333, 60_000], [1000, 120_000]] as const) assert.equal(timeStep(msPerPx, 92), expect, `${msPerPx}`);
  assert.deepEqual(rules(1001, 4000, 1000, 0), [2000, 3000, 4000]);
  assert.deepEqual(rules(0, 7_200_000, 3_600_000, 1_800_000), [1_800_000, 5_400_000]);
  for (const [latency, expect] of [[NaN, 0], [0, 0], [0.0005, 0], [0.004, 1], [0.02, 2], [0.09, 3], [3, 4]] as const) assert.equal(penOf(latency), expect, `${latency}`);
  assert.equal(penOf(Infinity), PEN_WIDTHS.length - 1);
  assert.deepEqual([slackOf(0), slackOf(1000), slackOf(60_000)], [Infinity, 2500, 150_000]);
});
