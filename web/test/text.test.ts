import assert from "node:assert/strict";
import { test } from "node:test";
import { asCurl, asPromql, asPython, asSql, matchOf } from "../src/text/copy";
import { find, score, streamText } from "../src/text/fuzzy";
import { asNumber, BigText, parseExact } from "../src/text/json";
import { controlToken, formatPage, formatRoute, nodeOf, parseRoute } from "../src/route";

test("finding by words, beginnings and letters", () => {
  const all = ["disk.busy.ratio{device=vda}", "disk.busy.ratio{device=vdb}", "disk.read.bytes{device=vda}", "memory.free.bytes", "cpu.busy.ratio"];
  const check = (query: string, expect: readonly string[]) => assert.deepEqual(find(query, all, (text) => text, 9), expect, query);
  check("", all);
  check("disk busy vdb", [all[1] ?? ""]);
  check("busy", ["cpu.busy.ratio", all[0] ?? "", all[1] ?? ""]);
  check("MEM", ["memory.free.bytes"]);
  check("nothing such", []);
  assert.ok(score("dbr", "disk.busy.ratio") > 0, "initials are found");
  assert.equal(score("xq", "disk.busy.ratio"), -1);
  assert.deepEqual(find("disk", all, (text) => text, 1).length, 1);
});

test("a stream in other words, with what must be quoted quoted", () => {
  const plainOne = { name: "memory.free.bytes", labels: {} };
  const hard = { name: "filesystem.free.bytes", labels: { mount: "/it's \"here\"", fstype: "xfs" } };
  assert.equal(streamText(hard.name, hard.labels), 'filesystem.free.bytes{fstype=xfs,mount=/it\'s "here"}');
  assert.equal(asSql(plainOne), "SELECT ts, value, quality FROM memory_free_bytes ORDER BY ts");
  assert.equal(asSql(hard), "SELECT ts, value, quality FROM filesystem_free_bytes WHERE fstype = 'xfs' AND mount = '/it''s \"here\"' ORDER BY ts");
  assert.equal(asPromql(plainOne), "memory_free_bytes");
  assert.equal(asPromql(hard), 'filesystem_free_bytes{fstype="xfs",mount="/it\'s \\"here\\""}');
  assert.equal(asPython(hard), 'import barograph\nbarograph.latest("filesystem.free.bytes", fstype="xfs", mount="/it\'s \\"here\\"")');
  assert.equal(asPython({ name: "a.b", labels: { class: "x" } }), 'import barograph\nbarograph.latest("a.b", **{"class": "x"})');
  assert.equal(matchOf({ name: "disk.busy.ratio", labels: { device: "vda" } }), "disk.busy.ratio{device=vda}");
  assert.equal(asCurl(hard, "http://h"), "curl -sG http://h/api/v1/latest --data-urlencode 'match=filesystem.free.bytes{fstype=xfs,mount=/it'\\''s \"here\"}'");
});

test("a stream of another node in other words names the node", () => {
  const one = { name: "disk.busy.ratio", labels: { device: "vda" } };
  assert.equal(asSql(one, "it's b"), "SELECT ts, value, quality FROM cluster_disk_busy_ratio WHERE node = 'it''s b' AND device = 'vda' ORDER BY ts");
  assert.equal(asPython(one, "b"), 'import barograph\nbarograph.of_node("b").latest("disk.busy.ratio", device="vda")');
  assert.equal(asCurl(one, "http://h", "b"), "curl -sG http://h/api/v1/latest --data-urlencode 'match=disk.busy.ratio{device=vda}' --data-urlencode 'node=b'");
});

test("integers beyond 2^53 keep their digits, all else stays as it is", () => {
  const text = '{"rows":[[1795233000123456789,0.12345678901234567890,-9223372036854775808,1e300,"1795233000123456789","a\\"1795233000123456789"]]}';
  const { rows } = parseExact(text) as { rows: unknown[][] };
  const [ts, fraction, least, large, quoted, escaped] = rows[0] ?? [];
  assert.ok(ts instanceof BigText && least instanceof BigText);
  assert.deepEqual([String(ts), String(least)], ["1795233000123456789", "-9223372036854775808"]);
  assert.deepEqual([fraction, large, quoted, escaped], [0.12345678901234568, 1e300, "1795233000123456789", 'a"1795233000123456789']);
  assert.equal(asNumber(ts), 1795233000123456789);
  assert.ok(Number.isNaN(asNumber("12")));
});

test("the shown node is before the route, so that another node is another page", () => {
  const check = (node: string, expect: string) => {
    const address = new URL(formatPage(node, "#/streams?pin=a"), "http://h/proxy/?node=old#/now");
    assert.equal(address.href, `http://h/proxy/${expect}#/streams?pin=a`);
    assert.equal(nodeOf(address.search), node);
  };
  check("", "");
  check("rack1-07", "?node=rack1-07");
  check("a&b #1", "?node=a%26b+%231");
});

test("routes are read back as written", () => {
  const query = new URLSearchParams([["pin", "disk.busy.ratio{device=vda}"], ["pin", "a&b?c#d"]]);
  const { view, query: back } = parseRoute(formatRoute("streams", query));
  assert.deepEqual([view, back.getAll("pin")], ["streams", query.getAll("pin")]);
  for (const [hash, expect] of [["", "now"], ["#/sql", "sql"], ["#/nonsense", "now"], ["#control=abc", "now"]] as const) assert.equal(parseRoute(hash).view, expect, hash);
  assert.equal(controlToken("#control=abc-DEF_1"), "abc-DEF_1");
  for (const hash of ["#/now", "#control=", "#control=a b", "#/sql?q=#control=x"]) assert.equal(controlToken(hash), null, hash);
});
