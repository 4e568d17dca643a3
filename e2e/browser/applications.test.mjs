// The view Applications with the fake agent: nothing published, programs at work with handlers and
// knobs, and programs that lose values, are refused, or have ended.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { inkOf, launch, open } from "./browser.mjs";
import { startFakeAgent } from "./fake-agent.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

async function visit(scenario, hash, act, view = {}) {
  const agent = await startFakeAgent({ scenario });
  const { page, complaints, close } = await open(browser, `${agent.url}/#/doctor`, view);
  const statements = [];
  page.on("request", (request) => request.url().includes("/api/v1/sql") && statements.push(JSON.parse(request.postData()).sql));
  try {
    await page.goto(`${agent.url}/${hash}`);
    await act(page, { statements, complaints, agent });
  } finally {
    await close();
    await agent.kill();
  }
}

const LULESH = (rank) => `pub=${encodeURIComponent(`lulesh{application=lulesh2.0,job=4711,rank=${rank},user=alice}`)}`;
/** Waits until the page has looked at the publications twice more. */
async function looks(page) {
  for (let i = 0; i < 2; i += 1) await page.waitForRequest((request) => (request.postData() ?? "").includes("FROM publications"));
}
const row = (page, text) => page.locator(".publications tbody", { hasText: text });

test("nothing published: how to begin, and what can be seen from here at all", () =>
  visit("calm", "#/applications", async (page, { statements, complaints }) => {
    await page.locator(".begin pre").first().waitFor();
    const text = await page.locator("main").innerText();
    assert.match(text, /No application publishes here yet\./);
    assert.match(text, /readers="all"/);
    assert.match(text, /BARO_READERS_ALL/);
    assert.match(text, /publications whose readers are all: over TCP everyone on the node is one reader/);
    assert.equal(await page.getByRole("link", { name: "docs/guide/applications.md" }).count(), 1);
    // The page does not query tables that the agent lacks, so nothing is refused, not even
    // silently.
    await looks(page);
    assert.deepEqual(statements.filter((sql) => /FROM (calls|knobs|rules)/.test(sql)), []);
    assert.deepEqual(complaints, []);
  }));

test("a table that goes between the look and the question is empty, and no alarm", () =>
  visit("busy", "#/doctor", async (page) => {
    await page.route("**/api/v1/sql*", (route) =>
      /FROM (calls|knobs|rules)\b/.test(route.request().postData() ?? "")
        ? route.fulfill({ status: 400, contentType: "application/json", body: JSON.stringify({ error: { kind: "statement", message: "no such table: calls" } }) })
        : route.continue());
    await page.getByRole("link", { name: "Applications" }).click();
    await row(page, "lulesh").first().waitFor();
    await looks(page);
    assert.equal(await page.getByRole("alert").count(), 0);
    assert.match(await page.locator(".calls").innerText(), /Calls\s+None that may be seen/);
  }));

test("an agent that is busy is asked again, and nothing is said of it", () =>
  visit("busy", "#/doctor", async (page) => {
    let refused = 0;
    await page.route("**/api/v1/sql*", (route) =>
      refused++ < 2
        ? route.fulfill({ status: 503, contentType: "application/json", body: JSON.stringify({ error: { kind: "busy", message: "too many queries and histories at once by one user: try again" } }) })
        : route.continue());
    await page.getByRole("link", { name: "Applications" }).click();
    await row(page, "lulesh").first().waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
  }));

test("publications with frames and their rate; one is chosen by keyboard, and the address keeps it", () =>
  visit("busy", "#/applications", async (page, { complaints }) => {
    await row(page, "rank=1").waitFor();
    assert.equal(await page.locator("main h1").innerText(), "3 publications of 2 processes.");
    assert.match(await row(page, "rank=1").innerText(), /alive[\s\S]+lulesh2\.0\s+alice\s+4102/);
    await page.waitForFunction(() => /^0\.[5-9]|^1(\.\d+)?$|^2$/.test(document.querySelectorAll(".publications tbody")[2]?.querySelectorAll("td")[2]?.textContent ?? ""));
    const link = row(page, "rank=1").getByRole("link");
    for (let i = 0; i < 40 && !(await link.evaluate((element) => element === document.activeElement)); i += 1) await page.keyboard.press("Tab");
    assert.notEqual(await link.evaluate((element) => getComputedStyle(element).outlineStyle), "none");
    await page.keyboard.press("Enter");
    await page.locator(".publication h2", { hasText: "rank=1" }).waitFor();
    assert.equal(await link.getAttribute("aria-current"), "true");
    assert.match(decodeURIComponent(page.url()), /pub=lulesh\{application=lulesh2\.0,job=4711,rank=1,user=alice\}/);
    const address = page.url();
    await page.goto("about:blank");
    await page.goto(address);
    await page.locator(".publication h2", { hasText: "rank=1" }).waitFor();
    assert.deepEqual(complaints, []);
  }));

test("values against a device's load on one axis, frames as rows", () =>
  visit("busy", `#/applications?${LULESH(0)}`, async (page, { complaints }) => {
    // A chart for each of three units, and the lane.
    await page.locator(".publication .chart").nth(3).waitFor();
    assert.match(await page.locator(".publication .chart").first().getAttribute("aria-label"), /^residual over 5 min$/);
    const lane = page.locator(".publication .chart").nth(3);
    assert.match(await lane.getAttribute("aria-label"), /^(device\.load|disk\.busy)\.ratio\{device=\w+\} over/);
    await page.getByLabel("against").selectOption("disk.busy.ratio{device=sda}");
    await page.waitForFunction(() => /device=sda/.test([...document.querySelectorAll(".publication .chart")].at(-1).getAttribute("aria-label")));
    assert.match(decodeURIComponent(page.url()), /load=disk\.busy\.ratio\{device=sda\}/);
    assert.ok((await inkOf(page.locator(".publication .chart canvas").first())) > 200);
    const texts = page.locator(".publication .legend-table tr", { hasText: "phase" });
    assert.match(await texts.innerText(), /solve|checkpoint/);
    await page.locator('section[aria-label="Newest frames"] tbody tr').first().waitFor();
    assert.match(await page.locator('section[aria-label="Newest frames"] thead').innerText(), /committed\s+frame\s+phase\s+residual\s+step_seconds\s+written_bytes/);
    assert.equal(await page.locator('section[aria-label="Newest frames"] tbody tr').count(), 20);
    await page.getByRole("button", { name: "Draw residual" }).click();
    await page.waitForFunction(() => document.querySelectorAll(".publication .chart").length === 3);
    await page.getByLabel("against").selectOption("none");
    await page.waitForFunction(() => document.querySelectorAll(".publication .chart").length === 2);
    assert.deepEqual(complaints, []);
  }));

test("the control of time is that of Streams: spans, keys, pause", () =>
  visit("busy", `#/applications?${LULESH(0)}`, async (page, { complaints }) => {
    await page.locator(".publication .chart").nth(3).waitFor();
    await page.getByRole("button", { name: "24 h" }).click();
    await page.getByText("live, 5 min a bucket").waitFor();
    assert.match(page.url(), /span=24h/);
    await page.locator(".charts").focus();
    await page.keyboard.press("ArrowLeft");
    await page.getByText(/paused at .+, 5 min a bucket/).waitFor();
    await page.getByRole("heading", { name: "Newest frames of the time shown" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("live, 5 min a bucket").waitFor();
    await page.getByRole("button", { name: "1 min", exact: true }).click();
    await page.locator(".tools .cursor-time", { hasText: /^live$/ }).waitFor();
    // Keys in the list of devices act on the list only.
    await page.getByLabel("against").focus();
    await page.keyboard.press("ArrowLeft");
    assert.equal(await page.locator(".tools .cursor-time").innerText(), "live");
    assert.deepEqual(complaints, []);
  }));

test("knobs with bounds and the command that sets them; nothing is set from here", () =>
  visit("busy", `#/applications?${LULESH(0)}`, async (page, { complaints }) => {
    const knobs = page.locator('section[aria-label="Knobs"]');
    await knobs.locator("tbody tr").nth(2).waitFor();
    assert.match(await knobs.locator("tbody tr").first().innerText(), /lulesh\.write_every\s+40 steps\s+1 steps\s+1000 steps\s+int64/);
    assert.match(await knobs.locator("code").first().innerText(), /^baro knob set lulesh\.write_every 40 --target application=lulesh2\.0 --target job=4711 --target rank=0 --target user=alice\s*$/);
    assert.equal(await knobs.locator("input, button").count(), 0);
    await row(page, "rank=1").getByRole("link").click();
    await page.locator(".publication h2", { hasText: "rank=1" }).waitFor();
    await knobs.getByText("A knob is a value that may be set").waitFor();
    assert.deepEqual(complaints, []);
  }));

test("calls: made with their fate, those of this program marked, and shown in the charts", () =>
  visit("busy", `#/applications?${LULESH(0)}`, async (page, { complaints }) => {
    const fired = page.getByRole("region", { name: "Calls, newest first" });
    await fired.locator("tbody tr").nth(4).waitFor();
    // Calls to another publication, or to another user's programs, are not marked.
    assert.deepEqual(await fired.locator("tbody tr").evaluateAll((all) => all.map((one) => one.className)), ["meant", "meant", "meant", "", ""]);
    // Everyone may read the size of a handler's payload and the value of a knob; only the user may
    // read who made the call.
    assert.match(await fired.locator("thead").innerText(), /when\s+name\s+payload\s+state\s+acknowledged\s+target\s+programs of\s*$/);
    assert.match(await fired.locator("tbody tr").first().innerText(), /checkpoint\.now\s+29 bytes\s+acknowledged\s+2 of 2\s+job=4711\s+alice/);
    assert.match(await fired.locator("tbody tr").nth(1).innerText(), /lulesh\.write_every knob\s+40\s+acknowledged/);
    assert.match(await fired.locator("tbody tr").nth(2).innerText(), /checkpoint\.now\s+–\s+▲ failed\s+1 of 2/);
    assert.equal(await fired.locator("tbody tr").nth(2).locator("td.num").getAttribute("title"), "1 acknowledged, 1 failed; the last answer after 3 ms");
    assert.match(await page.getByRole("region", { name: "Rules" }).innerText(), /full\.disk\s+checkpoint\.now\s+holding\s+1 of 1\s+1\s/);
    await fired.getByRole("button").nth(2).click();
    await page.getByText(/paused at/).waitFor();
    assert.deepEqual(complaints, []);
  }));

test("what was lost and refused is said; what has ended is shown where it was", () =>
  visit("broken", "#/applications", async (page, { complaints }) => {
    await row(page, "rank=2").waitFor();
    assert.equal(await page.locator("main h1").innerText(), "4 publications of 3 processes, 1 ended within a day, 1,234 values lost, something refused.");
    assert.equal(await row(page, "rank=1").locator("td.some").getAttribute("title"), "1,200 missed: lapped before the agent read them, 34 dropped by the program");
    assert.match(await row(page, "analysis").innerText(), /▲ 3 refused: 3 streams beyond the 256 of a process/);
    assert.match(await row(page, "rank=2").innerText(), /○\s+ended/);
    await row(page, "rank=2").getByRole("link").click();
    await page.getByText(/paused at .+, 1 s a bucket/).waitFor();
    await page.locator(".publication .chart").nth(3).waitFor();
    assert.match(await page.locator(".facts").innerText(), /last frame\s+\d+ min/);
    await page.locator('section[aria-label="Newest frames"] tbody tr').first().waitFor();
    // Another program is still live.
    await row(page, "rank=1").getByRole("link").click();
    await page.locator(".tools .cursor-time", { hasText: /^live/ }).waitFor();
    assert.deepEqual(complaints, []);
  }));

test("at 360 pixels nothing scrolls sideways but tables", () =>
  visit("broken", `#/applications?${LULESH(0)}`, async (page) => {
    await page.locator(".publication .chart").nth(3).waitFor();
    await page.locator(".calls tbody tr").first().waitFor();
    const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(content <= window, `${content} wide in ${window}`);
  }, { size: "narrow" }));
