import assert from "node:assert/strict";
import { test } from "node:test";
import { actsOf, controllersOf, decidedOf } from "../src/data/controllers";

const ns = 1_000_000;

test("what can be done to a controller depends on its mode", () => {
  const rows = ["live", "dry_run", "paused", "held_off", "off"].map((mode) => ({ name: "weight", mode, until_ts: 2000 * ns, last_ts: null, decisions: 3 }));
  const [live, dry, ...others] = controllersOf(rows);
  assert.deepEqual([live?.until, live?.last, live?.decisions, live?.by], [2000, NaN, 3, ""]);
  assert.deepEqual(live && actsOf(live).map(([what, label]) => [what, label]), [["pause", "Pause for 10 min"], ["dry-run", "Dry run"]]);
  assert.deepEqual(dry && actsOf(dry).at(-1), ["dry-run", "End the dry run", { controller: "weight", on: false, reason: "on the page" }]);
  assert.deepEqual(others.map((one) => actsOf(one).map(([what]) => what)), [["resume"], ["resume"], []]);
});

test("decisions of all controllers are told in one way, the newest first", () => {
  const row = (more: object) => ({ id: 1, made_ts: 5 * ns, controller: "io-schedule/scratch", user: "ada", label: "solver", subject: "", value: 1, outcome: "done", reason: "by fcfs", outcome_reason: "", effect: { measure: "seconds of I/O, as expected and as observed", before: 1.234, after: 2 }, ...more });
  const all = decidedOf([row({}), row({ id: 3, value: 0, outcome: "reverted", outcome_reason: "taken back", effect: null }), row({ id: 2, controller: "weight", label: "", subject: "jobs/a", value: 300, effect: { measure: "read bytes/s", before: null, after: 62e6 } })]);
  assert.deepEqual(all.map(({ id, at, about, value, reason, effect }) => [id, at, about, value, reason, effect]), [
    [3, 5, "solver", "waits", "taken back", ""],
    [2, 5, "jobs/a", "300", "by fcfs", "– → 62.0 MB/s"],
    [1, 5, "solver", "may do I/O", "by fcfs", "1.23 s → 2.00 s"],
  ]);
  assert.deepEqual(decidedOf([{}, { effect: 7, made_ts: "x" }]).map(({ value, effect }) => [value, effect]), [["", ""], ["", ""]]);
});
