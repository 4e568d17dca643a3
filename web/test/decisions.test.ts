import assert from "node:assert/strict";
import { test } from "node:test";
import { readsOf } from "../src/data/decisions";

const buckets = { plan: 7, controller: "augmentation", made_ts: 5_000_000_000, device: "vda", user: "alice", label: "f.baro", reason: "9 of 12", inputs: { base_bytes: 10, bytes: 90, degree: 0.5, error: 1e-5, bound: "nrmse=1e-4", predicted_bytes_per_s: 1e8, predicted_half_width_bytes_per_s: 1e7 }, effect: { before: 1e8, after: 9e7 } };
const weight = { plan: 7, controller: "weight", value: 640, outcome: "reverted", outcome_reason: "the read was reported" };

test("a read has its buckets and its weight", () => {
  const [read] = readsOf([weight, buckets], 9);
  assert.deepEqual(read, { plan: 7, at: 5000, device: "vda", user: "alice", label: "f.baro", bytes: 100, degree: 0.5, error: 1e-5, bound: "nrmse=1e-4", expected: 1e8, halfWidth: 1e7, reported: 9e7, weight: 640, outcome: "", reason: "9 of 12" });
});

test("a weight that was not set has its reason", () => {
  const of = (more: object, inputs: object = {}) => readsOf([{ ...buckets, inputs: { ...buckets.inputs, ...inputs } }, { ...weight, ...more }], 9)[0];
  assert.deepEqual([of({ outcome: "failed", outcome_reason: "gone" })?.weight, of({ outcome: "failed", outcome_reason: "gone" })?.outcome], [NaN, "gone"]);
  assert.equal(of({ outcome: "dry_run", outcome_reason: "" })?.outcome, "dry_run");
  const none = readsOf([{ ...buckets, inputs: { no_weight: "weights are off" } }], 9)[0];
  assert.deepEqual([none?.weight, none?.outcome, none?.bytes, none?.expected], [NaN, "weights are off", NaN, NaN]);
});

test("rows without sense give no fault, and the newest reads are kept in their order", () => {
  assert.deepEqual(readsOf([], 9), []);
  const [read] = readsOf([{ controller: "augmentation", inputs: "x", effect: 3 }], 9);
  assert.ok(Number.isNaN(read?.degree) && Number.isNaN(read?.reported));
  const many = [5, 9, 7, 8].map((plan) => ({ ...buckets, plan }));
  assert.deepEqual(readsOf(many, 3).map(({ plan }) => plan), [7, 8, 9]);
});
