// Tests of the page that hold with any agent: the real one at BARO_URL, or else the fake one.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { inkOf, launch, open } from "./browser.mjs";
import { startFakeAgent } from "./fake-agent.mjs";

let browser;
let fake;
let url;

before(async () => {
  browser = await launch();
  if (process.env.BARO_URL === undefined) fake = await startFakeAgent({ scenario: "busy" });
  url = process.env.BARO_URL ?? fake.url;
});

after(async () => {
  await browser?.close();
  await fake?.kill();
});

/** Opens a view and acts on it; fails if the page has complaints at the end. */
async function visit(hash, options, act) {
  const { page, complaints, close } = await open(browser, `${url}/${hash}`, options);
  try {
    await act(page);
    assert.deepEqual(complaints, []);
  } finally {
    await close();
  }
}

test("Now: the strips have ink, and say in a sentence what they show", () =>
  visit("", {}, async (page) => {
    const strip = page.locator(".past canvas").first();
    await strip.waitFor();
    await page.waitForFunction(() => /: .+ busy/.test(document.querySelector(".past canvas")?.getAttribute("aria-label") ?? ""));
    await assert.doesNotReject(page.waitForFunction(() => document.querySelector(".head .link")?.classList.contains("live")));
    let ink = 0;
    for (let tries = 0; tries < 50 && ink < 100; tries += 1) {
      ink = await inkOf(strip);
      await page.waitForTimeout(100);
    }
    assert.ok(ink >= 100, `${ink} pixels of ink`);
    assert.ok((await page.locator(".outlook h1").innerText()).length > 3);
  }));

test("Now: who, or why nobody", () =>
  visit("#/now", {}, async (page) => {
    const causes = page.locator(".causes");
    await causes.locator("tbody tr, .note").first().waitFor();
    assert.ok((await causes.innerText()).length > 20);
  }));

test("one cursor over all strips, by keyboard", () =>
  visit("#/now", {}, async (page) => {
    await page.locator(".strip .readings .value").first().waitFor();
    const axis = page.getByRole("slider");
    await axis.focus();
    for (let i = 0; i < 6; i += 1) await page.keyboard.press("ArrowLeft");
    assert.match(await axis.getAttribute("aria-valuetext"), /ago$/);
    assert.equal(await page.locator(".cursor-line").isVisible(), true);
    assert.match(await page.locator(".provenance").first().innerText(), /old, (measured|derived)|gap/);
    await page.keyboard.press("Escape");
    assert.equal(await page.locator(".cursor-line").isVisible(), false);
  }));

test("every view is reached by keyboard, and the focus is seen", () =>
  visit("#/now", {}, async (page) => {
    for (const [name, heading] of [["Streams", ".finder input"], ["Applications", ".publications table, .begin pre"], ["Events", ".events .readers"], ["Insights", ".maker textarea"], ["SQL", ".editor textarea"], ["Doctor", ".doctor table"], ["Now", ".sheet"]]) {
      await page.evaluate(() => document.body.focus());
      const link = page.getByRole("link", { name: new RegExp(`^${name}`) });
      let reached = false;
      for (let i = 0; i < 80 && !reached; i += 1) {
        await page.keyboard.press("Tab");
        reached = await link.evaluate((element) => element === document.activeElement);
      }
      assert.ok(reached, `Tab reaches ${name}`);
      assert.notEqual(await link.evaluate((element) => getComputedStyle(element).outlineStyle), "none");
      await page.keyboard.press("Enter");
      await page.locator(heading).first().waitFor();
      assert.equal(await link.getAttribute("aria-current"), "page");
    }
  }));

test("Streams: find by typing, pin with Enter, the address keeps it", () =>
  visit("#/streams", {}, async (page) => {
    await page.locator(".finder li").first().waitFor();
    const search = page.getByRole("searchbox");
    await search.fill("disk busy ratio");
    await page.locator(".finder li", { hasText: "disk.busy.ratio" }).first().waitFor();
    await search.press("Enter");
    await page.locator(".chart canvas").first().waitFor();
    await page.locator(".legend-table tbody tr").first().waitFor();
    assert.match(page.url(), /pin=disk\.busy\.ratio/);
    await page.waitForFunction(() => /\d/.test(document.querySelector(".legend-table td.num")?.textContent ?? ""));
    await page.getByText("Copy as").click();
    const ways = await page.locator(".ways button").evaluateAll((all) => all.map((one) => one.dataset.text));
    assert.equal(ways.length, 5);
    assert.match(ways[0], /^SELECT ts, value, quality FROM disk_busy_ratio WHERE device = '.+' ORDER BY ts$/);
    assert.match(ways[1], /^disk_busy_ratio\{device=".+"\}$/);
    const link = page.url();
    await page.goto("about:blank");
    await page.goto(link);
    await page.locator(".legend-table tbody tr").first().waitFor();
  }));

test("Streams: what is forecast is drawn on beyond now, or left away", async () => {
  const said = (await (await fetch(`${url}/api/v1/streams?match=forecast.*`)).json()).find((one) => one.type === "floats");
  assert.ok(said, "an agent forecasts its file systems unless told otherwise");
  const labels = Object.keys(said.labels).sort().map((name) => `${name}=${said.labels[name]}`).join(",");
  const pin = `${said.name.replace(/^forecast\./, "")}${labels === "" ? "" : `{${labels}}`}`;
  await visit(`#/streams?${new URLSearchParams({ pin })}`, {}, async (page) => {
    const toggle = page.getByRole("button", { name: "Forecast", exact: true });
    await toggle.waitFor();
    await page.waitForFunction(() => /; .+ expected .+ in \d/.test(document.querySelector(".chart")?.getAttribute("aria-label") ?? ""));
    const box = await page.locator(".chart .u-over").boundingBox();
    await page.mouse.move(box.x + box.width * 0.88, box.y + 40);
    await page.locator("tr.expected", { hasText: /in \d+ .*expected/ }).waitFor();
    await toggle.click();
    await page.waitForFunction(() => !/expected/.test(document.querySelector(".chart")?.getAttribute("aria-label") ?? ""));
  });
});

test("Insights: the graph runs, a click shows SQL and inputs", () =>
  visit("#/insights", {}, async (page) => {
    const node = page.locator("button.insight", { hasText: "tier.available.bytes" }).first();
    await node.click();
    await page.locator(".details pre").waitFor();
    assert.match(await page.locator(".details").innerText(), /select/i);
    assert.match(await page.locator(".details dl").innerText(), /filesystem/);
    assert.ok((await page.locator(".dag path").count()) > 3);
  }));

test("Insights: without the control right nothing is made, and the way to it is told", () =>
  visit("#/insights", {}, async (page) => {
    await page.locator(".maker textarea").waitFor();
    assert.equal(await page.getByRole("button", { name: "Create" }).isDisabled(), true);
    await page.locator("#control-note code", { hasText: "/control.token" }).waitFor();
  }));

test("SQL: rows by Ctrl-Enter, the time taken, the query in the address", () =>
  visit("#/sql", {}, async (page) => {
    const editor = page.getByLabel("SQL query");
    await editor.fill("SELECT name, columns FROM tables");
    await editor.press("Control+Enter");
    await page.locator(".result tbody tr").first().waitFor();
    assert.ok((await page.locator(".result tbody tr").count()) > 5);
    assert.match(await page.locator(".took").innerText(), /rows in .+s/);
    assert.match(page.url(), /q=SELECT/);
  }));

test("SQL: completion of tables, then a chart over time", () =>
  visit("#/sql", {}, async (page) => {
    const editor = page.getByLabel("SQL query");
    const told = page.waitForResponse((response) => response.url().includes("/api/v1/sql"));
    await page.reload();
    await told;
    await editor.fill("");
    await editor.pressSequentially("SELECT ts, device, value FROM disk_busy_r");
    await page.getByRole("option", { name: /disk_busy_ratio/ }).first().waitFor();
    await editor.press("Tab");
    assert.match(await editor.inputValue(), /FROM disk_busy_ratio $/);
    await editor.press("Control+Enter");
    await page.locator(".result .chart canvas").waitFor();
  }));

test("SQL: an error is told in the agent's words", async () => {
  const { page, close } = await open(browser, `${url}/#/sql`);
  const editor = page.getByLabel("SQL query");
  await editor.fill("SELECT 1 FROM no_such_table_here");
  await editor.press("Control+Enter");
  const alert = page.getByRole("alert");
  await alert.waitFor();
  assert.match(await alert.innerText(), /no such table|no_such_table_here/);
  await close();
});

test("Applications: what is published, or how to begin, and who may be seen here", () =>
  visit("#/applications", {}, async (page) => {
    await page.locator(".publications tbody, .begin pre").first().waitFor();
    assert.match(await page.locator("main h1").innerText(), /publication|No application publishes/);
    assert.match(await page.locator(".readers").innerText(), /publications whose readers are all/);
    await page.locator(".calls h2", { hasText: "Calls" }).waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
  }));

test("Events: what happens to files and which rules act on it, or how to begin", () =>
  visit("#/events", {}, async (page) => {
    await page.locator(".events .readers").waitFor();
    assert.match(await page.locator("main h1").innerText(), /No tree is watched here|[Ee]vent/);
    await page.locator(".events h2", { hasText: "Rules that act" }).waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
  }));

const RUN_DIR = process.env.BAROGRAPH_RUN_DIR;
const real = { skip: process.env.BARO_URL === undefined || RUN_DIR === undefined ? "needs a real agent and its run directory" : false };

test("Events: a rule of a real agent fails on a file, and its action is retried and dropped", real, async () => {
  const token = (await readFile(join(RUN_DIR, "control.token"), "utf8")).trim();
  const state = async (sql) => {
    const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
    const response = await fetch(`${url}/api/v1/statements`, { method: "POST", headers, body: JSON.stringify({ sql }) });
    assert.ok(response.ok, `${sql}: ${await response.text()}`);
  };
  const folder = await mkdtemp(join(tmpdir(), "barograph-page-"));
  await state(`CREATE OR REPLACE WATCH pagetest ON '${folder}' READERS 'all'`);
  await state(`CREATE OR REPLACE RULE pagetest ON EVENT close_write FROM 'pagetest' WHERE path GLOB '*.tif' THEN RUN '/bin/false' '{path}' RETRY 0`);
  try {
    await visit(`#control=${token}`, {}, async (page) => {
      await page.getByRole("link", { name: "Events", exact: true }).click();
      await page.locator(".events tbody", { hasText: folder }).filter({ hasText: "live" }).waitFor();
      await writeFile(join(folder, "a\u202eb.tif"), "x");
      const failed = page.getByRole("region", { name: "List of failed actions" }).locator("tbody tr", { hasText: "pagetest" });
      await failed.filter({ hasText: `close_write ${folder}/a\\u202eb.tif` }).waitFor();
      assert.match(await failed.innerText(), /the program ended with code 1/);
      await page.getByRole("region", { name: "List of directories" }).getByRole("button", { name: folder, exact: true }).click();
      await page.getByRole("region", { name: "List of events" }).locator("tbody tr", { hasText: "close_write" }).first().waitFor();
      // It fails once more, and is then given up.
      await failed.getByRole("button", { name: /^retry/ }).click();
      await page.getByRole("status").filter({ hasText: "is tried once more" }).waitFor();
      await failed.filter({ hasText: "code 1" }).getByRole("button", { name: /^drop/ }).click();
      await page.getByRole("status").filter({ hasText: "is given up" }).waitFor();
      await failed.waitFor({ state: "detached" });
      const rule = page.getByRole("region", { name: "List of rules" }).locator("tbody", { hasText: "pagetest" });
      assert.deepEqual((await rule.locator("td.num").allInnerTexts()).slice(0, 2), ["1", "0"]);
    });
  } finally {
    await state("DROP RULE pagetest");
    await state("DROP WATCH pagetest");
    await rm(folder, { recursive: true });
  }
});

test("Doctor: every source with its state", () =>
  visit("#/doctor", {}, async (page) => {
    await page.locator(".sources tbody").first().waitFor();
    assert.ok((await page.locator(".sources tbody").count()) >= 4);
    assert.match(await page.locator(".sources td.state").first().innerText(), /ok|partial|unavailable|down/);
  }));

for (const view of ["now", "nodes", "streams", "applications", "events", "insights", "sql", "doctor"]) {
  test(`${view}: no sideways scrolling at 360 pixels`, () =>
    visit(`#/${view}`, { size: "narrow" }, async (page) => {
      await page.locator("#main").waitFor();
      await page.waitForTimeout(1200);
      const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(content <= window, `${content} wide in ${window}`);
    }));
}

test("the theme is chosen and remembered", () =>
  visit("#/doctor", { scheme: "light" }, async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    const button = page.getByRole("button", { name: /^Theme/ });
    await button.click();
    await button.click();
    assert.notEqual(await ground(), light);
    await page.reload();
    await button.waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  }));
