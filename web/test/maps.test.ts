import assert from "node:assert/strict";
import { test } from "node:test";
import { changeText, easyLast, mapsOf, restOf, slowestOf, sparkOf } from "../src/data/maps";
import type { MapServer } from "../src/data/maps";

const ms = 1_000_000;
const row = (more: object) => ({ name: "checkpoint", user: "ada", uid: 1000, application: "solver", epoch: 4, servers: [0, 1], next_epoch: null, stage: "in force", nodes: 2, members: 8, running: 3, running_servers: [0, 1], gone_servers: [], slow: null, changes: [], loads: [], ...more });
const one = (more: object) => mapsOf([row(more)], 100_000)[0]!;
const states = (more: object) => one(more).servers.map(({ server, state }) => `${server} ${state}`);

test("a map is one sentence, in which names do no harm", () => {
  const check = (more: object, expect: string) => assert.equal(one(more).sentence, expect);
  check({}, "checkpoint of solver (ada): epoch 4, in force; 8 processes on 2 nodes, 3 operations at work.");
  check({ application: "", nodes: 1, members: 1, running: 0 }, "checkpoint (ada): epoch 4, in force; 1 process on 1 node, no operation at work.");
  check({ next_epoch: 5, stage: "waits for its members", running: 1 }, "checkpoint of solver (ada): epoch 4; epoch 5 waits for its members; 8 processes on 2 nodes, 1 operation at work.");
  check({ application: "sol\u202ever" }, "checkpoint of sol\\u202ever (ada): epoch 4, in force; 8 processes on 2 nodes, 3 operations at work.");
});

test("changes have the times of their begin and end, and what came of them", () => {
  const { changes } = one({ changes: [{ epoch: 4, age_ns: 65_000 * ms, took_ns: 30 * ms, reason: null, why: "server 3 was 9.6 times slower than its peers" }, { epoch: 5, age_ns: 4000 * ms, took_ns: 5000 * ms, reason: "2 members\nare at work", why: null }] });
  assert.deepEqual(changes.map(({ begun, ended }) => [begun, ended]), [[34_970, 35_000], [91_000, 96_000]]);
  assert.deepEqual(changes.map((change) => changeText(change, 100_000)), [
    "Epoch 4 came into force 1 min 5 s ago, in 30 ms. It was begun because server 3 was 9.6 times slower than its peers.",
    "Epoch 5 was aborted 4 s ago, after 5 s: 2 members\\nare at work.",
  ]);
});

test("a server is in the map, there, gone, or taken out", () => {
  assert.deepEqual(states({ servers: [0, 1, 2], running_servers: [0, 3, 4], gone_servers: [2, 5] }), ["0 in the map", "1 in the map, but not there", "2 in the map, but gone", "3 there, but not in the map", "4 there, but not in the map", "5 gone"]);
  assert.deepEqual(states({ moved_servers: [[1, "n2", "n1"], [3, "n2", null], "nonsense"] }).slice(0, 3), ["0 in the map", "1 moved, and serves nothing: its end where it was is not certain", "3 moved, and serves nothing: its end where it was is not certain"]);
  assert.deepEqual(states({ running_servers: [0, 1, 3, 33], out_servers: [3] }).slice(2), ["3 taken out", "33 there, but not in the map"]);
  assert.deepEqual(states({ running_servers: [0, 1, 3], loads: [{ server: 8, requests_s: 0, service_s: null, recent: [] }] }).slice(2), ["3 there, but not in the map", "8 not there"]);
});

test("loads are those of their servers, and a slow server is found only in the map", () => {
  const { servers } = one({ loads: [{ server: 1, requests_s: 41.5, service_s: 0.012, recent: [0.011, null, 0.012] }], slow: [1, 9.6, 1e-6] });
  assert.deepEqual(servers.map(({ requests, service, recent, ratio, falseAlarms }) => [requests, service, recent, ratio, falseAlarms]), [[NaN, NaN, [], NaN, NaN], [41.5, 0.012, [0.011, NaN, 0.012], 9.6, 1e-6]]);
  assert.deepEqual(one({ servers: [0], slow: [1, 9.6, 1e-6] }).servers.map(({ ratio }) => ratio), [NaN, NaN]);
});

test("an older leader tells no loads, and what makes no sense is left out", () => {
  assert.deepEqual(one({ loads: undefined }).servers.map(({ state, requests }) => [state, requests]), [["in the map", NaN], ["in the map", NaN]]);
  const [empty] = mapsOf([{}], 0);
  assert.deepEqual([empty?.servers, empty?.changes, empty?.isUneasy], [[], [], false]);
  assert.deepEqual(one({ servers: "0-3", running_servers: null, changes: [7, null], loads: {} }).servers, []);
});

test("maps are in the order of their names, and those that need a look come first", () => {
  const maps = mapsOf([row({ name: "c" }), row({ name: "b", next_epoch: 5 }), row({ name: "a" }), row({ name: "d", gone_servers: [1] })], 0);
  assert.deepEqual(maps.map(({ name }) => name), ["a", "b", "c", "d"]);
  assert.deepEqual(easyLast(maps).map(({ name }) => name), ["b", "d", "a", "c"]);
});

test("the slowest servers come first, and equal ones keep their places", () => {
  const order = (more: object, most: number) => slowestOf(one(more).servers, most).map(({ server }) => server);
  const loads = [0.0121, 0.0114, 0.045, 0.0129, 0.09].map((service_s, server) => ({ server, requests_s: 9, service_s, recent: [] }));
  const all = [0, 1, 2, 3, 4, 5, 6];
  assert.deepEqual(order({ servers: all, running_servers: all, loads }, 9), [4, 2, 0, 1, 3, 5, 6]);
  assert.deepEqual(order({ servers: all, running_servers: all.slice(0, 6), loads, slow: [1, 2, 0] }, 4), [1, 6, 4, 2]);
  assert.deepEqual(order({ servers: all, running_servers: all }, 3), [0, 1, 2]);
});

test("what is not shown is counted by states", () => {
  const numbers = Array.from({ length: 1024 }, (_, server) => server);
  const { servers } = one({ servers: numbers.slice(0, 1020), running_servers: numbers.slice(0, 1023), gone_servers: [1023] });
  assert.equal(restOf(servers, slowestOf(servers, 16)), "1,008 more servers: 1,004 in the map, 3 there, but not in the map, 1 gone");
  assert.equal(restOf(servers.slice(0, 3), servers.slice(0, 2)), "1 more server: 1 in the map");
  assert.equal(restOf([], [] as MapServer[]), "");
});

test("a sparkline has its newest value at the right, and gaps", () => {
  assert.equal(sparkOf([5, 10, NaN, 0], 5, 10, [100, 20]), "M25.0 10.0h0L50.0 0.0M100.0 20.0h0");
  assert.equal(sparkOf([1, 2, 4, 4], 2, 4, [100, 20]), "M0.0 0.0h0L100.0 0.0");
  assert.equal(sparkOf([], 5, 1, [100, 20]), "");
});
