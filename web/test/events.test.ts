import assert from "node:assert/strict";
import { test } from "node:test";
import { causeKey, causesOf, causesSql, countedOf, deadOf, directoriesSql, eventsOf, EVENTS_MAX, hasActions, newestSql, rulesOf, sentenceOf, SLOTS, stretchOf, watchesOf } from "../src/data/events";
import { cut, harmless } from "../src/text/harmless";

const NOW = 1_700_000_003_500;

test("slots lie at multiples of their length, and the last one is that of now", () => {
  for (const span of [60, 300, 900, 3600]) {
    const { start, stop, stepMs } = stretchOf(span, NOW);
    assert.equal(stepMs * SLOTS, span * 1000);
    assert.equal(start % stepMs, 0);
    assert.equal(stop, NOW);
    assert.equal(Math.floor((stop - start) / stepMs), SLOTS - 1);
  }
});

test("statements are bounded, and a name is only a text in them", () => {
  const at = stretchOf(300, NOW);
  const all = [directoriesSql(at), newestSql(at, null), newestSql(at, "/a'; DROP --/")];
  for (const sql of all) assert.match(sql, /ts >= \d{19} AND ts <= \d{19} ORDER BY ts DESC LIMIT \d+/);
  assert.match(newestSql(at, "/a'b/"), / = '\/a''b\/' LIMIT/);
  const action = { id: 1, rule: "r", source: "it's", idx: "18446744073709551615", attempts: 1, reason: "", enqueued: NOW, ended: NOW };
  assert.match(causesSql([action, action]), /VALUES \('it''s', 18446744073709551615, \d{19}, \d{19}\), \(.*LIMIT 2$/);
});

test("directories with their counts in slots and kinds", () => {
  const row = { dir: "/data/", n: 7, newest: 2e9, slots: "0:1,29:5,30:9,x:1,", kinds: "write:2,create:5,", directories: 3, total: 7, oldest: 1e9 };
  const { directories: [one], all, total, since } = countedOf([row]);
  assert.ok(one);
  assert.deepEqual([one.path, one.events, one.newest, all, total], ["/data/", 7, 2000, 3, 7]);
  assert.equal(one.slots.length, SLOTS);
  assert.deepEqual([one.slots[0], one.slots[29], one.slots.reduce((a, b) => a + b)], [1, 5, 6]);
  assert.deepEqual(one.kinds, [["create", 5], ["write", 2]]);
  assert.ok(Number.isNaN(since), "all of them are counted");
  assert.equal(countedOf([{ ...row, total: EVENTS_MAX }]).since, 1000);
  assert.deepEqual(countedOf([]).directories, []);
  assert.equal(countedOf([{}]).directories[0]?.path, "");
});

test("events, newest first; those of one time in the order of their numbers", () => {
  const rows = [{ idx: 1, ts: 1e9 }, { idx: 3, ts: 2e9, job: "4711", uid: 7 }, { idx: 2, ts: 1e9, uid: 0, quality: "reconciled" }].map((row) => ({ source: "s", ...row }));
  const all = eventsOf(rows);
  assert.deepEqual(all.map((one) => one.key), ["s 3", "s 2", "s 1"]);
  assert.deepEqual(all.map((one) => one.by), ["job 4711", "uid 0", ""]);
  assert.deepEqual(all.map((one) => one.isReconciled), [false, true, false]);
});

test("rules with actions alone, whatever their texts contain", () => {
  const check = (sql: string, expect: boolean) => assert.equal(hasActions(sql), expect, sql);
  check("CREATE RULE a ON EVENT create THEN RUN '/bin/true'", true);
  check("create or replace rule a help 'it''s' on\n event write THEN RUN 'x'", true);
  check("CREATE RULE a ON SCHEDULE AT '02:30' then post 'http://h/'", true);
  check("CREATE RULE a WHEN latest('x') > 1 THEN RUN '/bin/true'", true);
  for (const work of ["COPY '{path}' TO 'lab:x'", "MOVE 'a' TO 'b'", "DELETE '{path}'", "MARK 'seen'", "MAIL 'a@b' SUBJECT 'x'", "CALL 'h'", "SET 'p.k' TO '1'", "RUN IN 'image' '/x'"]) {
    check(`CREATE RULE a ON EVENT write THEN ${work} ON NODE 'b'`, true);
  }
  check("CREATE RULE a WHEN CASE WHEN latest('x') > 1 THEN mark ELSE 0 END CALL 'c'", false);
  check("CREATE RULE a HELP 'then run' WHEN latest('x') > 1 CALL 'c'", false);
  check("", false);
});

test("rules: failed ones lead, then those that fired last; with their queues", () => {
  const sql = "CREATE RULE a ON EVENT create THEN RUN 'x'";
  const rules = [{ name: "a", sql, fired: 3, last_fired_ts: 1e9 }, { name: "b", sql, state: "armed", last_fired_ts: 2e9 }, { name: "c", sql, state: "failed" }, { name: "d", sql: "WHEN" }];
  const queue = [{ rule: "a", state: "waiting", n: 4 }, { rule: "a", state: "running", n: 1 }, { rule: "b", state: "done", n: 9 }];
  const { list, isCut } = rulesOf(rules, queue);
  assert.deepEqual(list.map((rule) => rule.name), ["c", "b", "a"]);
  assert.deepEqual([list[2]?.waiting, list[2]?.running, list[2]?.fired, list[1]?.waiting, isCut], [4, 1, 3, 0, false]);
  assert.equal(rulesOf(rules, [{ rule: "a", state: "waiting", n: 500 }]).isCut, true);
  // Of a rule that has fired, nothing may be known here; and what has failed for good does not wait.
  const other = rulesOf(rules, [{ rule: "b", state: "dead", n: 500 }]);
  assert.deepEqual([other.list[2]?.name, other.list[2]?.waiting, other.list[1]?.waiting, other.isCut], ["a", NaN, 0, false]);
});

test("failed actions and the events that started them", () => {
  const row = { id: 7, rule: "r", source: "s", idx: 12, attempts: 2, reason: "code 1", enqueued_ts: 1e9, ended_ts: 2e9, total: 60 };
  const { list, total, isCut } = deadOf([row, { ...row, id: "x" }, { ...row, idx: "1) --" }, { ...row, enqueued_ts: null }]);
  assert.deepEqual([list.length, list[0]?.id, total, isCut], [1, 7, 60, false]);
  const causes = causesOf([{ source: "s", idx: 12, kind: "create", path: "/a" }]);
  assert.deepEqual(list.map((one) => causes.get(causeKey(one))), [{ kind: "create", path: "/a" }]);
});

test("one sentence", () => {
  const watches = watchesOf([{ name: "a", state: "live" }]);
  const calm = { counted: countedOf([]), newest: [], rules: rulesOf([], []), dead: deadOf([]), watches };
  assert.equal(sentenceOf(calm, 300), "No event in 5 min.");
  assert.equal(sentenceOf({ ...calm, watches: [] }, 300), "No tree is watched here.");
  const row = { dir: "/a/", n: 1, total: 1, directories: 1 };
  assert.equal(sentenceOf({ ...calm, counted: countedOf([row]) }, 60), "1 event in 1 directory in 1 min.");
  const bad = {
    counted: countedOf([{ ...row, total: EVENTS_MAX, directories: 2, oldest: 1 }]), newest: [],
    rules: rulesOf([{ name: "r", sql: "ON EVENT open THEN RUN 'x'", state: "failed" }], []),
    dead: deadOf([{ id: 1, idx: 1, enqueued_ts: 1, total: 2 }]), watches: watchesOf([{ state: "failed" }, { state: "troubled" }]),
  };
  assert.equal(sentenceOf(bad, 3600), "More than 10,000 events in 2 directories in 1 h; 1 rule has failed; 2 actions have failed for good; 2 watches are in trouble.");
});

test("names do no harm", () => {
  const check = (text: string, expect: string) => assert.equal(harmless(text), expect);
  check("plain, ünïcode, עברית, 👩‍👧", "plain, ünïcode, עברית, 👩‍👧");
  check("a\u001b[31mb\nc\td\u0000", "a\\x1b[31mb\\nc\\td\\x00");
  check("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066");
  check("a\u200bb\ufeff\u0085", "a\\u200bb\\ufeff\\x85");
  assert.equal(cut("short", 10), "short");
  assert.equal(cut("abcdefghij", 5), "ab…ij");
  assert.equal(cut("👩".repeat(9), 5), "👩👩…👩👩");
  assert.equal(cut("👩".repeat(5), 5), "👩".repeat(5));
});
