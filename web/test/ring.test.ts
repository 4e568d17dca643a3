import assert from "node:assert/strict";
import { test } from "node:test";
import { ENDED, heldUntil, pushHeld, Ring, RING_SAMPLES_MAX } from "../src/data/ring";

test("keeps the newest, in order, however many come", () => {
  const ring = new Ring();
  const n = RING_SAMPLES_MAX * 3 + 17;
  for (let i = 0; i < n; i += 1) ring.push(i * 1000, i);
  assert.equal(ring.length, RING_SAMPLES_MAX);
  for (let i = 0; i < ring.length; i += 1) assert.equal(ring.value(i), n - RING_SAMPLES_MAX + i);
});

test("growing loses nothing", () => {
  for (const n of [1, 63, 64, 65, 129, 500, 899, 900]) {
    const ring = new Ring();
    for (let i = 0; i < n; i += 1) ring.push(i, i * 2, i % 4, i / 2);
    assert.equal(ring.length, n);
    for (let i = 0; i < n; i += 1) assert.deepEqual([ring.ts(i), ring.value(i), ring.error(i)], [i, i * 2, i / 2]);
    assert.equal(ring.quality(0), "measured");
    if (n > 3) assert.deepEqual([1, 2, 3].map((i) => ring.quality(i)), ["derived", "predicted", "reconciled"]);
  }
});

test("what is not newer is not news", () => {
  const ring = new Ring();
  ring.push(10, 1);
  ring.push(10, 2);
  ring.push(9, 3);
  assert.deepEqual([ring.length, ring.value(0)], [1, 1]);
});

test("which sample stands at a time", () => {
  const ring = new Ring();
  ring.push(1000, 1);
  ring.hold(5000);
  ring.push(6000, 2);
  ring.push(20_000, 3);
  ring.hold(21_000);
  const check = (ts: number, expect: number) => assert.equal(ring.at(ts, 2500), expect, `at ${ts}`);
  check(999, -1);
  check(1000, 0);
  check(4000, 0);
  check(5500, 0);
  check(6000, 1);
  check(7000, -1); // the silence from 6 s to 20 s is a gap from its first moment
  check(19_999, -1);
  check(20_500, 2);
  check(23_000, 2);
  check(24_000, -1);
});

test("after a last look nobody knows", () => {
  const ring = new Ring();
  ring.push(1000, 1);
  ring.hold(1800);
  ring.push(2000, 1, ENDED);
  ring.push(3000, 1);
  ring.push(3000, 1, ENDED); // the look that found the newest was the last
  ring.push(4000, 2);
  const check = (ts: number, expect: number) => assert.equal(ring.at(ts, 2500), expect, `at ${ts}`);
  check(1500, 0);
  check(2000, 1);
  check(2001, -1);
  check(3000, 2);
  check(3500, -1);
  check(4500, 3);
  assert.deepEqual([1, 2].map((i) => ring.quality(i)), ["ended", "ended"]);
});

test("taking over from another ring keeps all of a sample", () => {
  const from = new Ring();
  from.push(5, 7, 2, 0.5);
  from.hold(50);
  const to = new Ring();
  to.take(from, 0, 20);
  assert.deepEqual([to.ts(0), to.held(0), to.value(0), to.quality(0), to.error(0)], [5, 20, 7, "predicted", 0.5]);
});

test("a held value is not known while the agent was silent", () => {
  const drawn = (silences: readonly { from: number; to: number }[], held: number, next: number) => {
    const ring = new Ring();
    pushHeld(ring, silences, { ts: 1000, held, next, value: 5, quality: 1 });
    return Array.from({ length: ring.length }, (_, i) => [ring.ts(i), ring.held(i), ring.value(i)]);
  };
  assert.deepEqual(drawn([], 9000, 10_000), [[1000, 9000, 5]]);
  assert.deepEqual(drawn([{ from: 3000, to: 7000 }], 9000, 10_000), [[1000, 3000, 5], [7000, 9000, 5]]);
  assert.deepEqual(drawn([{ from: 3000, to: 12_000 }], 9000, 10_000), [[1000, 3000, 5]], "it sampled again before it was heard");
  assert.deepEqual(drawn([{ from: 3000, to: Infinity }], 1000, NaN), [[1000, 1000, 5]]);
  assert.deepEqual(drawn([{ from: 200, to: 500 }, { from: 20_000, to: 30_000 }], 9000, 10_000), [[1000, 9000, 5]]);
});

test("a sample that was taken after the last tick does not bridge the silence", () => {
  const ring = new Ring();
  // The last tick was at 10.1 s; a sample of 10.137 s was found before the end; looks began
  // again at 20 s.
  const silences = [{ from: 10_100, to: 20_000 }];
  pushHeld(ring, silences, { ts: 9137, held: 9137, next: 10_137, value: 1, quality: 0 });
  pushHeld(ring, silences, { ts: 10_137, held: 19_137, next: 20_137, value: 2, quality: 0 });
  pushHeld(ring, silences, { ts: 20_137, held: 20_137, next: NaN, value: 3, quality: 0 });
  const all = Array.from({ length: ring.length }, (_, i) => [ring.ts(i), ring.held(i), ring.value(i)]);
  assert.deepEqual(all, [[9137, 9137, 1], [10_137, 10_137, 2], [20_000, 20_000, 2], [20_137, 20_137, 3]]);
});

test("a value found again after a silence is known from then on", () => {
  const ring = new Ring();
  ring.resume(500);
  assert.equal(ring.length, 0);
  ring.push(1000, 7, 2, 0.5);
  ring.hold(2000);
  ring.resume(9000);
  ring.hold(9500);
  const all = Array.from({ length: ring.length }, (_, i) => [ring.ts(i), ring.held(i), ring.value(i), ring.quality(i), ring.error(i)]);
  assert.deepEqual(all, [[1000, 2000, 7, "predicted", 0.5], [9000, 9500, 7, "predicted", 0.5]]);
});

test("changes of a past: held until the look before the next, a point where nobody looks", () => {
  const check = (args: [number, number, number], expect: number) => assert.equal(heldUntil(...args), expect, args.join());
  check([0, 1000, 1000], 0);
  check([0, 5000, 1000], 4000);
  check([0, NaN, 1000], 0);
  check([0, 5000, 0], 0);
  assert.equal(heldUntil(0, 5000, 1000, true), 0, "nobody looked after it");
});
