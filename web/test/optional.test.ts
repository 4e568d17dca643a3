// Tests of tables that not every agent has, with a simulated agent.

import assert from "node:assert/strict";
import { test } from "node:test";
import { signal } from "@preact/signals";
import { loader, Optional } from "../src/data/optional";

/** Simulates an agent with these tables, and returns the list of its queries. */
function agentWith(tables: Record<string, unknown[][]>): string[] {
  const asked: string[] = [];
  globalThis.fetch = async (_url, init) => {
    const { sql } = JSON.parse(String(init?.body)) as { sql: string };
    asked.push(sql);
    const name = /FROM (\w+)/.exec(sql)?.[1] ?? "";
    const known = name === "tables" ? Object.keys(tables).map((one) => [one]) : tables[name];
    return known === undefined ? new Response(JSON.stringify({ error: { kind: "statement", message: `no such table: ${name}` } }), { status: 400 }) : new Response(JSON.stringify({ columns: ["name"], rows: known }));
  };
  return asked;
}

test("only what is there is asked for, and what is there is asked seldom", async () => {
  const asked = agentWith({ knobs: [["dt"]] });
  const tables = new Optional(["knobs", "calls"]);
  assert.deepEqual(await tables.rows("knobs", 9), [], "not before it is known");
  assert.deepEqual([await tables.look(), await tables.look(), await tables.look(true)], [true, false, true]);
  assert.deepEqual(await tables.rows("calls", 9, "ORDER BY ts "), []);
  assert.deepEqual(await tables.rows("knobs", 9, "ORDER BY name "), [{ name: "dt" }]);
  const names = "SELECT name FROM tables WHERE name IN ('knobs', 'calls')";
  assert.deepEqual(asked, [names, names, "SELECT * FROM knobs ORDER BY name LIMIT 9"]);
  agentWith({});
  assert.deepEqual(await tables.rows("knobs", 9), [], "gone meanwhile");
});

test("one load at a time, and why nothing came", async () => {
  const fault = signal("");
  let times = 0;
  let end = (): void => {};
  const load = loader(() => {
    times += 1;
    return new Promise((resolve, reject) => (end = times === 1 ? resolve : () => reject(new Error("away"))));
  }, fault);
  for (const expect of ["", "away"]) {
    const all = [load(), load()];
    end();
    await Promise.all(all);
    assert.equal(fault.value, expect);
  }
  assert.equal(times, 2);
});
