import assert from "node:assert/strict";
import { test } from "node:test";
import { accept, complete, inText, tablesIn, wordAt } from "../src/text/complete";

const TABLES = [
  { name: "disk_busy_ratio", columns: ["ts", "value", "device", "newest"] },
  { name: "disk_read_bytes", columns: ["ts", "value", "device"] },
  { name: "tier_available_bytes", columns: ["ts", "value", "tier"] },
];

/** `|` is the caret. */
function at(text: string): readonly [string, number] {
  return [text.replace("|", ""), text.indexOf("|")];
}

test("what fits at the caret", () => {
  const check = (text: string, expect: readonly string[]) => assert.deepEqual(complete(...at(text), TABLES, 3).map((one) => one.text), expect, text);
  check("SELECT * FROM disk|", ["disk_busy_ratio", "disk_read_bytes"]);
  check("SELECT * FROM |", ["disk_busy_ratio", "disk_read_bytes", "tier_available_bytes"]);
  check("SELECT * FROM avail|", ["tier_available_bytes"]);
  check("SELECT dev| FROM disk_busy_ratio", ["device"]);
  check("SELECT tie| FROM disk_busy_ratio", ["tier_available_bytes"]);
  check("SELECT t.| FROM tier_available_bytes t", ["ts", "value", "tier"]);
  check("SELECT t.ti| FROM tier_available_bytes AS t", ["tier"]);
  check("SELECT x.| FROM tier_available_bytes t", []);
  check("SELECT value FROM tier_available_bytes WHERE tier = 'n|'", []);
  check("SELECT 1 -- dev|", []);
  check("sel|", ["SELECT"]);
  check("|", []);
});

test("words, strings, names", () => {
  assert.deepEqual(wordAt("SELECT a.bc", 11), { from: 9, text: "bc", qualifier: "a" });
  assert.deepEqual([inText("x = 'it''s", 10), inText("x = 'a' ", 8), inText("/* a", 4), inText("/* a */ b", 9)], [true, false, true, false]);
  assert.deepEqual([...tablesIn("SELECT 1 FROM a JOIN b AS c USING (x) WHERE y")], [["a", "a"], ["b", "b"], ["c", "b"]]);
});

test("taking a candidate replaces the word", () => {
  const [sql, caret] = at("SELECT va| FROM x");
  assert.deepEqual(accept(sql, caret, { text: "value", kind: "column", note: "" }), { sql: "SELECT value FROM x", caret: 12 });
  assert.deepEqual(accept("SELECT su", 9, { text: "sum(", kind: "word", note: "" }), { sql: "SELECT sum(", caret: 11 });
});
