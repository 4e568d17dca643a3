import assert from "node:assert/strict";
import { test } from "node:test";
import { isOpen, lanesOf, phasesOf } from "../src/data/phases";

const ns = 1_000_000;
const row = (more: object) => ({ volume: "scratch", application: "climate", job: "7", user: "ada", state: "ended", begun_ts: 1000 * ns, started_ts: 2000 * ns, ended_ts: 4000 * ns, done_bytes: 5, declared_bytes: null, reason: "", ...more });

test("a phase waits until it starts, and does I/O until it ends", () => {
  const phases = phasesOf([row({}), row({ application: "solver", job: "", state: "granted", ended_ts: null }), row({ application: "solver", job: "", state: "waiting", begun_ts: 5000 * ns, started_ts: null, ended_ts: null })]);
  assert.deepEqual(phases.map(isOpen), [false, true, true]);
  assert.deepEqual([phases[0]?.application, phases[1]?.application, phases[0]?.done, phases[0]?.declared], ["climate, job 7", "solver", 5, NaN]);
  assert.deepEqual(lanesOf(phases, [1500, 6000], 9), [
    { name: "climate, job 7 ada", bars: [{ from: 1500, until: 2000, waits: true }, { from: 2000, until: 4000, waits: false }] },
    { name: "solver ada", bars: [{ from: 1500, until: 2000, waits: true }, { from: 2000, until: 6000, waits: false }, { from: 5000, until: 6000, waits: true }] },
  ]);
});

test("what is out of time, or makes no sense, is not drawn, and lanes are bounded", () => {
  assert.deepEqual(lanesOf(phasesOf([row({})]), [4500, 6000], 9), []);
  assert.deepEqual(lanesOf(phasesOf([{}, row({ begun_ts: "x" }), row({ begun_ts: 9000 * ns })]), [0, 6000], 9), []);
  const many = phasesOf(Array.from({ length: 30 }, (_, n) => row({ application: `a${n}` })));
  assert.equal(lanesOf(many, [0, 6000], 16).length, 16);
});
