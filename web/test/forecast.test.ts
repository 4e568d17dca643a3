import assert from "node:assert/strict";
import { test } from "node:test";
import { fills, FREE, isSoon, reachWords } from "../src/data/fills";
import { foretoldOf, lossesOf, meanCoverage, policyOf, withoutOf } from "../src/data/forecasts";
import { endOf, expectedAt, furthest, knotsBetween, lookedAgain, projectionOf, reaches } from "../src/data/projection";
import type { Projection } from "../src/data/projection";
import { Ring } from "../src/data/ring";
import { outlook, stripSentence, troubles } from "../src/data/trouble";
import { bandAlpha, certainty, lineAlpha, tint } from "../src/sheet/ahead";
import { AHEAD, AHEAD_EXPECTED, paper, timeAt } from "../src/sheet/geometry";
import { errorBeside, expectedText, roughly } from "../src/text/format";
import { after, align, clip, derivedMarks, expectedPoints, partSaid, points, roomFor } from "../src/view/plotdata";
import { aheadOf } from "../src/view/range";

const NOW = 1_700_000_000_000;
const GIB = 2 ** 30;

/** A projection with knots of seconds, value and half width. */
function told(knots: readonly (readonly [number, number, number | null])[], ts = NOW): Projection {
  const p = projectionOf(ts, knots.flat());
  assert.ok(p !== undefined);
  return p;
}

test("a projection is evaluated at the reader's own time", () => {
  const p = told([[0, 10, 0], [2, 20, 4], [4, 20, null]]);
  const at = (s: number) => expectedAt(p, NOW + s * 1000);
  assert.equal(at(-0.1), undefined, "before the look nothing is expected");
  assert.deepEqual([at(0)?.value, at(0)?.half], [10, 0]);
  assert.deepEqual([at(1)?.value, at(1)?.half], [15, 2]);
  assert.deepEqual([at(3)?.value, at(3)?.half], [20, Infinity], "half of what is not known is not known");
  assert.equal(at(4.1), undefined, "beyond the last knot nothing is said");
  assert.equal(endOf(p), NOW + 4000);
  assert.equal(lookedAgain(p, NOW + 7000).ts, NOW + 7000);
  assert.equal(lookedAgain(p, NOW - 7000), p);
  assert.deepEqual(knotsBetween(p, NOW + 1000, NOW + 3000).map(({ ts, value }) => [(ts - NOW) / 1000, value]), [[1, 15], [2, 20], [3, 20]]);
});

test("what is told is as far as it is said, and has an error where one is known", () => {
  const p = told([[0, 10, 0], [2, 20, 4], [4, 40, null]]);
  const at = (from: number, to: number) => {
    const knot = furthest(p, NOW + from * 1000, NOW + to * 1000);
    return knot === undefined ? undefined : [(knot.ts - NOW) / 1000, knot.value, knot.half];
  };
  assert.deepEqual(at(0, 1), [1, 15, 2]);
  assert.deepEqual(at(0, 99), [2, 20, 4]);
  assert.deepEqual(at(2.5, 99), [4, 40, Infinity]);
  assert.equal(at(5, 99), undefined);
});

test("what is no projection is refused", () => {
  for (const raw of [undefined, null, "text", 7, [], [0, 1], [1, 1, 0, 1, 1, 0], [0, null, 0], [0, 1, -1], [-1, 1, 1], [0, "1", 0], new Array(195).fill(0)]) {
    assert.equal(projectionOf(NOW, raw), undefined, JSON.stringify(raw));
  }
});

test("when a level is reached, by what is expected and by both ends of its error", () => {
  const falling = told([[0, 100, 0], [100, 0, 10], [200, -100, 20]]);
  const reach = reaches(falling, 0, NOW);
  assert.equal(Math.round((reach?.expected ?? NaN) / 1000), 100);
  assert.ok((reach?.early ?? NaN) < 100_000 && (reach?.early ?? NaN) > 85_000, `${reach?.early}`);
  assert.ok((reach?.late ?? NaN) > 100_000 && (reach?.late ?? NaN) < 115_000, `${reach?.late}`);
  assert.equal(Math.round((reaches(falling, 0, NOW + 40_000)?.expected ?? NaN) / 1000), 60, "counted from now");
  const rising = told([[0, 0, 0], [100, 100, 0]]);
  assert.equal(reaches(rising, 50, NOW)?.expected, 50_000);
  assert.equal(reaches(rising, 500, NOW), undefined, "not as far as is said");
  assert.equal(reaches(rising, 50, NOW + 200_000), undefined, "of a later time nothing is known");
  const wide = reaches(told([[0, 100, 0], [100, 0, 60], [110, -10, 60]]), 0, NOW);
  assert.equal(wide?.late, Infinity, "the further end is beyond what is forecast");
  const straight = reaches(told([[0, 100, 0], [10, 95, 1], [200, 0, null]]), 0, NOW);
  assert.deepEqual([straight?.expected, straight?.early, straight?.late, straight?.calibrated], [200_000, NaN, Infinity, false]);
  assert.equal(reach?.calibrated, true);
  assert.ok(Number.isNaN(reaches(told([[0, 100, null], [100, 0, null]]), 0, NOW)?.early), "an error that is not known has no ends");
  // A disk cannot be fuller than full: bounded there, the ends of its band stay straight.
  const bounded = reaches(told([[0, 100, 0], [50, 50, 5], [100, 0, 5], [1000, 0, 40]]), 0, NOW + 10_000);
  assert.deepEqual([bounded?.expected, Math.round(bounded?.early ?? NaN), Math.round(bounded?.late ?? NaN)], [90_000, 80_909, 101_111]);
});

const H = 3_600_000;
const MIN = 60_000;

test("time to full in words", () => {
  assert.equal(reachWords({ expected: 3 * H + 21 * MIN, early: 2 * H + 55 * MIN, late: 3 * H + 45 * MIN, calibrated: true }), "3 h 20 min ± 25 min");
  assert.equal(reachWords({ expected: 3 * H, early: 2 * H, late: Infinity, calibrated: true }), "3 h, at the earliest in 2 h");
  assert.equal(reachWords({ expected: 3 * H, early: 0, late: Infinity, calibrated: true }), "3 h, perhaps any time");
  assert.equal(reachWords({ expected: 3 * H, early: NaN, late: Infinity, calibrated: true }), "3 h, error not known yet");
  assert.equal(reachWords({ expected: 3 * H, early: NaN, late: Infinity, calibrated: false }), "3 h if it goes on so (not calibrated)");
  assert.equal(reachWords({ expected: 90_000, early: 89_000, late: 91_000, calibrated: true }), "1 min 30 s ± 5 s");
  assert.deepEqual([41_000, 252_000, 11_800_000, 80_000_000].map(roughly), ["40 s", "4 min", "3 h 15 min", "22 h 10 min"]);
});

const filling = (mount: string, seconds: number, half: number | null = 60) => ({
  name: `forecast.${FREE}`, labels: { mount, tier: "ssd" }, ring: new Ring(), intervalMs: 10_000, looked: NOW,
  projection: told([[0, seconds, half], [2 * seconds || 600, -seconds, half]]),
});

test("what fills within a day is told, soonest first", () => {
  const all = [filling("/var", 30_000), filling("/", 12_000), filling("/late", 200_000), filling("/unsure", 9000, null), filling("/full", 0)];
  assert.deepEqual(fills(all, NOW).map(({ mount }) => mount), ["/unsure", "/", "/var", "/late"]);
  assert.deepEqual(fills(all, NOW).filter(isSoon).map(({ mount }) => mount), ["/unsure", "/", "/var"], "where a line leads is told as that");
  const named = (name: string) => all.filter((one) => one.name === name);
  const [straight, first] = troubles(named, NOW);
  assert.equal(straight?.said, "fills in 2 h 30 min if it goes on so (not calibrated)");
  assert.deepEqual([first?.level, first?.where, first?.what], ["warn", "/", "fills in 3 h 20 min ± 1 min"]);
  assert.equal(outlook([first!], NOW), "/ fills in 3 h 20 min ± 1 min");
  const still = { ...filling("/", 1), projection: told([[0, 5 * GIB, 0], [600, 5 * GIB, 1e6]]) };
  assert.deepEqual(fills([still], NOW), [], "what stays as it is does not fill");
});

test("an error beside its value", () => {
  assert.equal(expectedText(12.3 * GIB, 0.2 * GIB, "bytes", 300_000), "12.3 GiB ± 205 MiB in 5 min");
  assert.equal(expectedText(12.3 * GIB, 1.2 * GIB, "bytes", 75_000), "12.3 GiB ± 1.2 in 1 min 15 s");
  assert.equal(expectedText(0.45, 0.05, "ratio", 1000), "45 % ± 5 in 1 s");
  assert.equal(expectedText(7, Infinity, "tasks", 1000), "7 tasks in 1 s, error not known yet");
  assert.equal(errorBeside(1.7e9, 5, "time"), "5 s");
  const base = { device: "vda", busy: 0.1, read: NaN, write: NaN, latency: NaN, since: NaN, silentMs: 0, old: false };
  assert.equal(stripSentence({ ...base, expected: "12 % ± 3 in 30 s" }, NOW), "vda: 10 % busy, expected 12 % ± 3 in 30 s.");
});

test("the expected line begins at the last look and ends where it is said or shown no more", () => {
  const p = told([[0, 10, 0], [2, 20, 4], [4, 20, null]]);
  const { line, low, high } = expectedPoints(p, NOW - 9000, NOW + 9000);
  assert.deepEqual(line, { ts: [NOW, NOW + 2000, NOW + 4000], values: [10, 20, 20] });
  assert.deepEqual([low.values, high.values], [[10, 16, null], [10, 24, null]], "without an error there is no band");
  assert.deepEqual(expectedPoints(p, NOW - 9000, NOW + 1000).line, { ts: [NOW, NOW + 1000], values: [10, 15] });
  for (const [from, to] of [[-9000, -1000], [5000, 9000]] as const) assert.deepEqual(expectedPoints(p, NOW + from, NOW + to).line.ts, []);
  assert.deepEqual(expectedPoints(undefined, NOW, NOW + 9000).line.ts, []);
});

test("what was said without a look leaves the line and is dashed; gaps stay gaps", () => {
  const ring = new Ring();
  ring.push(1000, 1);
  ring.push(2000, 2, 2);
  ring.push(3000, 3);
  ring.push(4000, 4);
  ring.push(30_000, 5);
  const all = points(ring, 0, 40_000, 2500);
  const { seen, said } = partSaid(all, ring);
  assert.deepEqual(seen.values, [1, null, 3, 4, null, 5]);
  assert.deepEqual(said.values, [1, 2, 3, null, null, null]);
  assert.deepEqual(align([seen, after(said, { ts: [30_000, 31_000], values: [5, 6] })])[2], [1, 2, 3, null, null, 5, 6]);
  const measured = new Ring();
  measured.push(1000, 1);
  assert.deepEqual(partSaid(points(measured, 0, 9000, 2500), measured).said.ts, []);
});

test("hollow marks: only on what was derived, and they stay where they are as time goes on", () => {
  const ring = new Ring();
  for (let s = 0; s < 100; s += 1) ring.push(s * 1000, s, s < 50 ? 1 : 0);
  const marks = derivedMarks(ring, 0, 100_000, 9000).map(({ ts }) => ts / 1000);
  assert.deepEqual(marks, [0, 10, 20, 30, 40]);
  assert.deepEqual(derivedMarks(ring, 500, 100_000, 9000).map(({ ts }) => ts / 1000).slice(1), [10, 20, 30, 40]);
});

test("a wide band does not flatten the line, nor say the impossible", () => {
  const line = { ts: [0, 1], values: [10, 14] };
  assert.deepEqual(roomFor([line], "tasks"), [6, 18]);
  assert.deepEqual(roomFor([{ ts: [0, 1], values: [1, 9] }], "bytes"), [0, 17]);
  assert.deepEqual(roomFor([{ ts: [0, 1], values: [0.1, 0.9] }], "ratio"), [0, 1]);
  assert.deepEqual(roomFor([{ ts: [0], values: [null] }], "ratio"), [-Infinity, Infinity]);
  assert.deepEqual(clip({ ts: [0, 1, 2], values: [-5, null, 50] }, [0, 20]).values, [0, null, 20]);
});

test("how much of the paper is white: a fifth, and no more than is forecast", () => {
  assert.equal(aheadOf(300, 3600), 75);
  assert.equal(aheadOf(300, 64), 64);
  assert.equal(aheadOf(86_400, 64), 0, "what would not be seen is not shown");
  assert.equal(aheadOf(300, 0), 0);
  const [without, with_] = [AHEAD, AHEAD_EXPECTED].map((share) => paper(1000, NOW, 300_000, share));
  assert.equal(without?.penX, 900);
  assert.equal(with_?.penX, 820);
  assert.equal(timeAt(with_!, 0), NOW - 300_000);
});

test("ink fades as the error grows", () => {
  assert.equal(certainty(0, 1), 1);
  assert.equal(certainty(0.5, 1), 0);
  assert.equal(certainty(9, 1), 0);
  assert.equal(certainty(1, 0), 0);
  assert.ok(bandAlpha(1) > bandAlpha(0) && lineAlpha(1) === 1 && lineAlpha(0) > 0.5);
  assert.equal(tint("#102030", 0.5), "#10203080");
});

test("the tables of forecasts and policies, read without trust", () => {
  const row = { name: "memory.available.bytes", labels: "{}", horizon_ns: 4e9, follows: "holt", reason: "least error of late", coverage: 0.92, confidence: 0.9, error: 1e6, losses: '{"persistence":1,"holt":0.7,"kalman":null}' };
  const [one] = foretoldOf([row, { ...row, horizon_ns: 1e9, coverage: null, error: null, losses: "no json" }]);
  assert.equal(one?.unit, "bytes");
  const lacking = [{ name: "cpu.busy.ratio", labels: "{}", reason: "no place: streams_max is 256" }, { name: null, labels: null, horizon_ns: null, reason: "3 more have no place" }];
  assert.deepEqual([foretoldOf(lacking), withoutOf([row, ...lacking])], [[], ["cpu.busy.ratio: no place: streams_max is 256", "3 more have no place"]]);
  assert.deepEqual(one?.horizons.map(({ ms, losses }) => [ms, losses]), [[1000, []], [4000, [["holt", 0.7], ["persistence", 1]]]]);
  assert.ok(Number.isNaN(one?.horizons[0]?.coverage));
  assert.equal(meanCoverage([one!]), 0.92);
  assert.ok(Number.isNaN(meanCoverage([])));
  assert.deepEqual([lossesOf(null), lossesOf({ a: 2 })], [[], [["a", 2]]]);
  const policy = policyOf({ name: "disks", streams: '["disk.*","nvme.*"]', kind: "error_bounded", error: "1 %", stream: "disk.read.bytes", labels: '{"device":"vda"}', interval_ns: 5e9, said: "forecast", wrong_share: 0.02, looks_per_s: 0.2, saved_share: 0.8, reason: "" });
  assert.deepEqual([policy.stream, policy.kind, policy.intervalMs, policy.saved], ["disk.read.bytes{device=vda}", "error bounded", 5000, 0.8]);
  const idle = policyOf({ name: "tape", streams: '["tape.*"]', stream: null, reason: "no stream matches" });
  assert.deepEqual([idle.stream, idle.matches, Number.isNaN(idle.wrong)], ["tape.*", false, true]);
});
