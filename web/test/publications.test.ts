import assert from "node:assert/strict";
import { test } from "node:test";
import { concerns, endedOf, firingOf, framesOf, isValueOf, knobOf, labelsOf, looked, publicationOf, rateOf, rowsOf, setCommand, shellText, summary } from "../src/data/publications";
import type { Counted } from "../src/data/publications";
import type { StreamInfo } from "../src/data/contract";
import { ringStart, RING_SAMPLES_MAX } from "../src/data/ring";
import { unitOf } from "../src/text/format";
import { parseExact } from "../src/text/json";

const NS = (s: number) => (1_700_000_000 + s) * 1e9;
const row = (name: string, labels: Record<string, string>, more: Record<string, unknown> = {}) => ({
  scope: "all", name, labels: JSON.stringify(labels), application: "lulesh2.0", user: "alice", pid: 4101, incarnation: "aa", started_ts: NS(0), values: 4, frame: 12,
  taken: 48, lost: 0, missed: 0, dropped: 0, damaged: 0, refused: 0, refusal: "", newest_ts: NS(10), ...more,
});
const LULESH = publicationOf(row("lulesh", { rank: "0", job: "4711", user: "alice", application: "lulesh2.0" }));

test("a row of publications, with all columns and with none", () => {
  assert.equal(LULESH.key, "lulesh{application=lulesh2.0,job=4711,rank=0,user=alice}");
  assert.equal(LULESH.newest, 1_700_000_010_000);
  const bare = publicationOf({ name: "x", frame: null });
  assert.equal(bare.key, "x");
  assert.ok(Number.isNaN(bare.frame) && Number.isNaN(bare.pid) && Number.isNaN(bare.newest));
  assert.deepEqual([bare.lost, bare.values, bare.refusal], [0, 0, ""]);
  const [told] = rowsOf(parseExact('{"columns":["name","newest_ts"],"rows":[["x",1795334523372849152]]}') as { columns: string[]; rows: unknown[][] });
  assert.equal(Math.round(publicationOf(told ?? {}).newest), 1_795_334_523_373);
});

test("labels in both ways of writing, and no trust in others", () => {
  assert.deepEqual(labelsOf('{"a":"b","n":3}'), { a: "b", n: "3" });
  assert.deepEqual(labelsOf("a=b, c=d=e"), { a: "b", c: "d=e" });
  for (const bad of ["{broken", "null", null, undefined, "", "word"]) assert.deepEqual(labelsOf(bad), {}, String(bad));
});

test("what has ended is what no living process publishes", () => {
  const frames = [
    { name: "app.lulesh.frame", labels: JSON.stringify(LULESH.labels), sample_ts: NS(9), value: 12 },
    { name: "app.lulesh.frame", labels: '{"rank":"7","user":"alice"}', sample_ts: NS(-90), value: 440 },
    { name: "app.a.b.frame", labels: "{}", sample_ts: NS(-100), value: 1 },
  ];
  const ended = endedOf(frames, [LULESH]);
  assert.deepEqual(ended.map((one) => [one.key, one.alive, one.frame]), [["lulesh{rank=7,user=alice}", false, 440], ["a.b", false, 1]]);
});

test("frames a second: over as many looks as it takes, none of another life", () => {
  const at = (ms: number, n: number | undefined): Counted => ({ at: ms, counts: new Map(n === undefined ? [] : [["a", n]]) });
  const check = (all: readonly Counted[], expect: number) => assert.equal(rateOf(all, "a"), expect, JSON.stringify(all.map((one) => [one.at, [...one.counts]])));
  check([], NaN);
  check([at(0, 5)], NaN);
  check([at(0, 5), at(3000, 20)], 5);
  check([at(0, 0), at(10_000, 1), at(20_000, 2)], 0.1);
  check([at(0, 0), at(3000, 3000), at(6000, 3030)], 10);
  check([at(0, 900), at(3000, 0), at(6000, 6)], 2);
  check([at(0, undefined), at(3000, 4)], NaN);
  assert.equal(looked([at(0, 1), at(50_000, 2)], at(70_000, 3)).length, 2);
  const stream = { name: "app.lulesh.frame", labels: { rank: "0" }, samples: 7 } as unknown as StreamInfo;
  assert.deepEqual([...framesOf([stream])], [["lulesh{rank=0}", 7]]);
});

test("a call concerns whom its target means, while it lived", () => {
  const fired = (more: Record<string, unknown>) => firingOf({ id: "u1:1", ts: NS(5), name: "checkpoint.now", kind: "trigger", target: "{}", ...more });
  const check = (more: Record<string, unknown>, expect: boolean) => assert.equal(concerns(fired(more), LULESH), expect, JSON.stringify(more));
  check({}, true);
  check({ target: '{"job":"4711"}' }, true);
  check({ target: "job=4711,rank=1" }, false);
  check({ target: '{"pid":"4101","application":"lulesh2.0"}' }, true);
  check({ ts: NS(-5) }, false);
  check({ incarnation: "aa" }, true);
  check({ incarnation: "bb" }, false);
  check({ kind: "knob", name: "lulesh.write_every" }, true);
  check({ kind: "knob", name: "other.write_every" }, false);
  assert.equal(concerns(fired({}), { ...LULESH, alive: false, newest: 1_700_000_002_000 }), false);
  assert.deepEqual([fired({ failed: 1 }).isBad, fired({ state: "expired" }).isBad, fired({ state: "acknowledged" }).isBad], [true, true, false]);
  check({ user: "alice", publications: '["lulesh"]' }, true);
  check({ user: "bob" }, false);
  check({ publications: '["checkpoint","other"]' }, false);
  for (const none of ["[]", "{", null, "7"]) check({ publications: none }, true);
  assert.equal(fired({ by_user: 1000, by_pid: 812, via: "cli" }).by, "uid 1000, pid 812, cli");
  const told = fired({ payload: null, payload_bytes: 27, by_user: null, by_pid: null, via: null, last_ack_ts: NS(6) });
  assert.deepEqual([told.payload, told.payloadBytes, told.by, told.answered - told.at], ["", 27, "", 1000]);
});

test("the command that sets a knob of this publication and of no other", () => {
  const knob = knobOf({ publication: "lulesh", name: "write_every", labels: "{}", type: "int", min: 1, max: 9, value: 4 });
  assert.equal(setCommand(knob, LULESH).join(" "), "baro knob set lulesh.write_every 4 --target application=lulesh2.0 --target job=4711 --target rank=0 --target user=alice");
  assert.match(setCommand({ ...knob, type: "bool", value: 0 }, LULESH)[0] ?? "", / false$/);
  assert.equal(knobOf({ publication: "lulesh", name: "lulesh.dt" }).name, "lulesh.dt");
  assert.equal(shellText("it's $HOME"), "'it'\\''s $HOME'");
});

test("the values of a publication, not of one with a longer name or more labels", () => {
  const longer = publicationOf(row("lulesh.io", LULESH.labels as Record<string, string>));
  const check = (name: string, expect: boolean, labels = LULESH.labels) => assert.equal(isValueOf({ name, labels }, LULESH, [LULESH, longer]), expect, name);
  check("app.lulesh.residual", true);
  check("app.lulesh.part.two", true);
  check("app.lulesh.frame", false);
  check("app.lulesh.io.bytes", false);
  check("app.luleshs.residual", false);
  check("app.lulesh.residual", false, { ...LULESH.labels, instance: "2" });
});

test("the sentence counts publications, processes and what was lost once a process", () => {
  const other = { ...LULESH, key: "b", incarnation: "bb", lost: 3 };
  assert.equal(summary([], 0), "No application publishes here yet.");
  assert.equal(summary([LULESH], 0), "1 publication of 1 process.");
  assert.equal(summary([LULESH, other, { ...other, key: "c", refusal: "too many" }], 2), "3 publications of 2 processes, 2 ended within a day, 3 values lost, something refused.");
});

test("of fast streams only as much is asked for as a ring holds", () => {
  assert.equal(ringStart([10, 20, 30], [1, 2, 3]), 0);
  assert.equal(ringStart([10, 20, 30], [5000, RING_SAMPLES_MAX, 1]), 20);
  assert.equal(ringStart([], []), 0);
});

test("a program's number without a unit is no percentage, but for a ratio", () => {
  assert.equal(unitOf("app.lulesh.residual", "1"), "");
  assert.equal(unitOf("app.cache.hit_ratio", "1"), "ratio");
  assert.equal(unitOf("cpu.busy", "1"), "1");
});
