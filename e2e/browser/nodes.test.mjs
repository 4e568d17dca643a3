// The page of another node, with the fake agent of lab-3, which mirrors lab-4 and has not heard lab-5
// for some time.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { inkOf, launch, open } from "./browser.mjs";
import { startFakeAgent } from "./fake-agent.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

async function withAgent(address, act, view = {}) {
  const agent = await startFakeAgent({ scenario: "busy" });
  const { page, complaints, close } = await open(browser, `${agent.url}/${address}`, view);
  try {
    await act(page, agent, complaints);
  } finally {
    await close();
    await agent.kill();
  }
}

const sign = (page) => page.locator(".shown");
const sentence = (page) => page.locator(".outlook h1");
const VDA = "disk.busy.ratio{device=vda}";

/** Waits for a text that a part of the page shows. */
const says = (part, text) => part.filter({ hasText: text }).waitFor();

test("one click from Nodes to a node's page, with its values alone, and one back", () =>
  withAgent("#/nodes", async (page, agent, complaints) => {
    await page.getByRole("region", { name: "Nodes" }).getByRole("link", { name: "lab-4" }).click();
    await says(sentence(page), "/scratch is nearly full, 4 % free.");
    await says(sign(page), /as lab-3 mirrors it: heard .+ ago/);
    assert.match(await page.locator(".head .node").innerText(), /^lab-4$/);
    assert.equal(await page.title(), "Now of lab-4 · barograph");
    const busy = page.locator('.strip[data-device="nvme0n1"]');
    assert.match(await busy.locator(".past canvas").getAttribute("aria-label"), /nvme0n1: 42 % busy/);
    await page.waitForFunction(() => document.querySelector(".past canvas")?.width > 300);
    assert.ok((await inkOf(busy.locator(".past canvas"))) > 50, "its past is drawn");
    assert.equal(await page.locator(".strip.saturated").count(), 0, "vda of lab-3 is saturated, that of lab-4 is not");
    // The sources of lab-3 say nothing about the processes of lab-4, which are not mirrored.
    await says(page.locator(".causes .note"), "Processes, jobs and control groups of lab-4");
    assert.equal(await page.locator(".causes tbody").count(), 0);
    await page.getByRole("link", { name: "Back to lab-3" }).click();
    await says(sentence(page), "vda is saturated");
    assert.equal(await sign(page).count(), 0);
    assert.equal(await page.locator(".head .node").innerText(), "lab-3");
    assert.deepEqual(complaints, []);
    assert.ok(agent.state.seen.some((path) => path.startsWith("/api/v1/watch") && path.endsWith("&node=lab-4")));
  }));

test("every request of another node's page is about that node, or names the node of its rows", () =>
  withAgent(`?node=lab-4#/streams?${new URLSearchParams({ pin: VDA, span: "24h" })}`, async (page, agent, complaints) => {
    await page.getByText("5 min a bucket").waitFor();
    for (const [view, command] of [["Now", ""], ["Applications", "publications"], ["Events", "baro event list"], ["Insights", "baro insight list"], ["SQL", "baro sql"], ["Doctor", "baro doctor"], ["Nodes", ""]]) {
      await page.getByRole("link", { name: new RegExp(`^${view}`) }).first().click();
      await says(sign(page), /lab-4/);
      if (command === "") continue;
      await says(page.locator("main h1"), `${view} of lab-4: not here.`);
      const said = await page.locator("main").innerText();
      assert.ok(said.includes("On lab-4") && said.includes(command) && said.includes("baro sql --nodes lab-4"), said);
    }
    await page.locator(".nodes tbody tr").nth(2).waitFor();
    await page.waitForTimeout(1500);
    const about = agent.state.seen.filter((path) => path.startsWith("/api/") && path !== "/api/v1/status" && !path.startsWith("/api/v1/sql"));
    assert.deepEqual(about.filter((path) => !path.endsWith("&node=lab-4")), []);
    assert.ok(["watch", "streams", "latest", "history"].every((kind) => about.some((path) => path.startsWith(`/api/v1/${kind}?`))), "all kinds were asked");
    const unnamed = agent.state.statements.filter((sql) => !/ FROM peers |^SELECT node, /.test(sql));
    assert.deepEqual(unnamed, []);
    assert.deepEqual(complaints, []);
  }));

test("Streams of another node: its list, its charts, and what is copied names it", () =>
  withAgent(`?node=lab-4#/streams?${new URLSearchParams({ pin: "disk.busy.ratio{device=nvme0n1}" })}`, async (page, _agent, complaints) => {
    await says(page.locator(".finder .count"), /\d+ streams of lab-4 are mirrored/);
    await page.locator(".chart canvas").first().waitFor();
    await says(page.locator(".legend-table td.num"), "42 %");
    await page.getByText("Copy as").click();
    const ways = await page.locator(".ways button").evaluateAll((all) => all.map((one) => [one.innerText, one.dataset.text]));
    assert.deepEqual(ways.map(([name]) => name), ["SQL", "Python", "curl", "link"]);
    const [sql, python, curl, link] = ways.map(([, text]) => text);
    assert.equal(sql, "SELECT ts, value, quality FROM cluster_disk_busy_ratio WHERE node = 'lab-4' AND device = 'nvme0n1' ORDER BY ts");
    assert.match(python, /barograph\.of_node\("lab-4"\)\.latest\(/);
    assert.match(curl, / 'node=lab-4'$/);
    await page.goto("about:blank");
    await page.goto(link);
    await says(sign(page), "lab-4");
    await says(page.locator(".legend-table td.num"), "42 %");
    // The way back keeps the view and its streams.
    await page.getByRole("link", { name: "Back to lab-3" }).click();
    await page.waitForURL((url) => url.search === "" && url.hash.startsWith("#/streams?pin="));
    assert.deepEqual(complaints, []);
  }));

test("a node that is stopped is old, and says since when, until it is heard again", () =>
  withAgent("?node=lab-4", async (page, agent, complaints) => {
    await says(sentence(page), "/scratch is nearly full");
    agent.silence(Date.now());
    await says(sentence(page), /lab-4 is not heard since \d\d:\d\d:\d\d\./);
    await page.locator(".sheet.dead").waitFor();
    await says(page.locator(".shown.bad"), /not heard since \d\d:\d\d:\d\d \(.+\), what is shown is old/);
    assert.equal(await page.locator(".tank.old").count() > 0, true, "tiers are marked as old");
    agent.silence(undefined);
    await says(sentence(page), "/scratch is nearly full");
    await says(page.locator(".shown:not(.bad)"), /heard .+ ago/);
    assert.deepEqual(complaints, []);
  }));

test("a page that begins while its node is not heard shows what was known, as old", () =>
  withAgent("?node=lab-5", async (page, _agent, complaints) => {
    await says(sentence(page), /lab-5 is not heard since \d\d:\d\d:\d\d\./);
    await says(page.locator(".shown.bad"), /not heard since .+ \(1 min 3\d s\)/);
    await page.locator(".sheet.dead .strip").first().waitFor();
    await says(page.locator(".tank.old"), /5\.\d+ TiB available/);
    assert.deepEqual(complaints, []);
  }));

test("a node that is not known, and the name of the agent's own node", async () => {
  await withAgent("?node=lab-9#/now", async (page) => {
    await says(page.locator(".shown.bad"), "no node of this name is known here");
    await says(sentence(page), "Nothing is heard of lab-9.");
    await page.getByRole("link", { name: "Back to lab-3" }).click();
    await says(sentence(page), "vda is saturated");
  });
  await withAgent("?node=lab-3#/doctor", async (page, _agent, complaints) => {
    await page.locator(".sources tbody").first().waitFor();
    assert.equal(await sign(page).count(), 0);
    assert.equal(new URL(page.url()).search, "");
    assert.deepEqual(complaints, []);
  });
});

test("the sign stays in sight, and nothing scrolls sideways at 360 pixels", () =>
  withAgent("?node=lab-4#/now", async (page) => {
    await page.locator(".strip").first().waitFor();
    await page.evaluate(() => scrollTo(0, 700));
    await page.waitForTimeout(300);
    const { y } = await sign(page).boundingBox();
    assert.ok(y >= 0 && y < 5, `the sign is at ${y}`);
    for (const view of ["now", "streams", "events", "insights", "sql", "doctor", "applications", "nodes"]) {
      await page.evaluate((to) => (location.hash = `#/${to}`), view);
      await page.waitForTimeout(600);
      const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(content <= window, `${view}: ${content} wide in ${window}`);
    }
  }, { size: "narrow" }));
