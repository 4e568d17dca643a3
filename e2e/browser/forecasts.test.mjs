// Forecasts, with the fake agent: drawn right of now, shown as text, and only where the agent has
// them.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, open, SHOTS } from "./browser.mjs";
import { startFakeAgent, TOKEN } from "./fake-agent.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

async function visit(scenario, hash, act, view = {}) {
  const agent = await startFakeAgent({ scenario });
  const { page, complaints, close } = await open(browser, `${agent.url}/${hash}`, view);
  try {
    await act(page, agent);
    assert.deepEqual(complaints, []);
  } finally {
    await close();
    await agent.kill();
  }
}

const pinned = (...pins) => `#/streams?${new URLSearchParams(pins.map((pin) => ["pin", pin]))}`;
const toggle = (page) => page.getByRole("button", { name: "Forecast", exact: true });
const nameOf = (page) => page.locator(".chart").first().getAttribute("aria-label");
/** Moves the pointer to this share of the chart's width. */
async function point(page, share) {
  const box = await page.locator(".chart .u-over").first().boundingBox();
  await page.mouse.move(box.x + box.width * share, box.y + box.height / 2);
}

/**
 * The columns of a canvas between two shares of its width that have ink near a colour of the page.
 */
function columnsOf(canvas, ink, from, to) {
  return canvas.evaluate((element, { ink, from, to }) => {
    const probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(ink).trim();
    probe.fillRect(0, 0, 1, 1);
    const want = probe.getImageData(0, 0, 1, 1).data;
    const { width, height } = element;
    const { data } = element.getContext("2d").getImageData(0, 0, width, height);
    const near = (at) => data[at + 3] > 100 && [0, 1, 2].every((c) => Math.abs(data[at + c] - want[c]) < 70);
    let columns = 0;
    for (let x = Math.round(width * from); x < Math.round(width * to); x += 1) if (Array.from({ length: height }, (_, y) => near((y * width + x) * 4)).some(Boolean)) columns += 1;
    return columns / (width * (to - from));
  }, { ink, from, to });
}

test("Streams: right of now it is dashed, and said in words with its error", () =>
  visit("busy", pinned("memory.available.bytes"), async (page) => {
    await page.waitForFunction(() => /expected .+ GiB ± .+ in 1 min/.test(document.querySelector(".chart")?.getAttribute("aria-label") ?? ""));
    assert.match(await page.locator(".legend-table .coming").innerText(), /expected [\d.]+ GiB ± .+ in 1 min \d+ s/);
    assert.equal(await toggle(page).getAttribute("aria-pressed"), "true");
    const canvas = page.locator(".chart canvas");
    const [measured, expected] = [await columnsOf(canvas, "--read", 0.4, 0.7), await columnsOf(canvas, "--read", 0.84, 0.97)];
    assert.ok(measured > 0.95, `the measured line is whole: ${measured}`);
    assert.ok(expected > 0.2 && expected < 0.9, `the expected line is dashed: ${expected}`);
    await point(page, 0.9);
    await page.locator("tr.expected").waitFor();
    assert.match(await page.locator("tr.expected").innerText(), /GiB\s+± .+\s+in \d+ s\s+expected/);
    await point(page, 0.5);
    await page.waitForFunction(() => /measured/.test(document.querySelector(".legend-table tbody tr")?.textContent ?? ""));
  }));

test("the choice is one for all sheets, is reached by keyboard, and is remembered", () =>
  visit("busy", pinned("memory.available.bytes"), async (page) => {
    await toggle(page).focus();
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => !/expected/.test(document.querySelector(".chart").getAttribute("aria-label")));
    assert.equal(await page.locator(".coming").count(), 0);
    await page.reload();
    await toggle(page).waitFor();
    assert.equal(await toggle(page).getAttribute("aria-pressed"), "false");
    await page.getByRole("link", { name: /^Now/ }).click();
    await page.locator(".strip .scale").first().waitFor();
    assert.doesNotMatch(await page.locator('.strip[data-device="vda"] .past canvas').getAttribute("aria-label"), /expected/);
    await toggle(page).click();
    await page.waitForFunction(() => /, expected \d+ % ± \d+ in/.test(document.querySelector('.strip[data-device="vda"] .past canvas').getAttribute("aria-label")));
  }));

test("between a look and now it is dashed too: seldom looked at, it is expected in between", () =>
  visit("busy", pinned("scratch.used.bytes"), async (page, agent) => {
    const [measured] = agent.state.streams.filter((s) => s.name === "scratch.used.bytes");
    const [forecast] = agent.state.streams.filter((s) => s.name === "forecast.scratch.used.bytes");
    const last = Date.now() - 25_000;
    for (const s of [measured, forecast]) s.blind = [last, Date.now() + 60_000];
    await page.reload();
    await page.getByRole("button", { name: "1 min" }).click();
    await page.waitForFunction(() => /expected/.test(document.querySelector(".chart")?.getAttribute("aria-label") ?? ""));
    await point(page, 0.7);
    await page.locator("tr.expected").waitFor();
    assert.match(await page.locator("tr.expected").innerText(), /since the last look\s+expected/);
    await point(page, 0.2);
    await page.locator("tr.expected").waitFor({ state: "detached" });
  }));

test("a stream that is not forecast has the sheet that it had", () =>
  visit("calm", pinned("memory.available.bytes"), async (page) => {
    await page.waitForFunction(() => /\d/.test(document.querySelector(".legend-table td.num")?.textContent ?? ""));
    await page.waitForTimeout(1500);
    assert.equal(await toggle(page).count(), 0);
    assert.match(await nameOf(page), /^memory\.available\.bytes over 5 min$/);
    await page.getByRole("link", { name: /^Now/ }).click();
    await page.locator(".strip .scale").first().waitFor();
    assert.equal(await toggle(page).count(), 0);
    assert.match(await page.locator(".outlook h1").innerText(), /^●\s*Calm\.$/);
    assert.equal(await page.locator(".tank .fills").count(), 0);
  }));

test("paused, the chart stays as it was; drawn on over an archive's buckets, too", () =>
  visit("busy", pinned("memory.available.bytes"), async (page) => {
    await page.locator(".legend-table .coming").waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    const seen = await page.locator(".tools .cursor-time").innerText();
    assert.match(seen, /paused at \d\d:\d\d:\d\d/);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "1 h", exact: true }).click();
    await page.getByText(/a bucket/).waitFor();
    await page.waitForFunction(() => /means with the band.+; memory\.available\.bytes expected/.test(document.querySelector(".chart").getAttribute("aria-label")));
  }));

test("Now: what fills is in the sentence, and with its error in the list and at its tank", () =>
  visit("busy", "", async (page) => {
    await page.locator(".tank .fills").waitFor();
    await page.waitForFunction(() => /fills in/.test(document.querySelector(".outlook h1")?.textContent ?? ""));
    assert.match(await page.locator(".outlook h1").innerText(), /vda is saturated.+; \/ fills in \d h\.$/);
    assert.match(await page.locator(".tank .fills").innerText(), /^\/ full in \d h \d+ min ± \d+ min$/);
    assert.match(await page.locator(".troubles").innerText(), /\/ fills in \d h \d+ min ± \d+ min/);
  }));

test("Now: the cursor goes on beyond the pen, and says that nothing was measured there", () =>
  visit("busy", "", async (page) => {
    await toggle(page).waitFor();
    await page.locator(".strip .scale").first().waitFor();
    const axis = page.getByRole("slider");
    await axis.focus();
    await page.keyboard.press("PageUp");
    await page.keyboard.press("PageDown");
    await page.keyboard.press("Shift+ArrowRight");
    assert.match(await axis.getAttribute("aria-valuetext"), /, in \d+ s$/);
    const words = (device) => page.locator(`.strip[data-device="${device}"] .provenance`).innerText();
    assert.match(await words("vda"), /^± \d+(\.\d+)?, expected in \d+ s$/);
    assert.equal(await words("vdb"), "not forecast");
    const pen = page.locator('.strip[data-device="sda"] canvas.pen');
    const dashed = await columnsOf(pen, "--ink", 0.35, 0.95);
    assert.ok(dashed > 0.2 && dashed < 0.95, `dashed: ${dashed}`);
  }));

test("Doctor: who forecasts what, how well, and what is looked at seldom; a node without is quiet", async () => {
  await visit("busy", "#/doctor", async (page) => {
    const forecasts = page.locator(".forecasts");
    await forecasts.locator("tbody tr").first().waitFor();
    assert.match(await forecasts.innerText(), /2 streams are forecast; 91 % of what came was within the error, 90 % was asked for\./);
    assert.match(await forecasts.locator("tbody").first().innerText(), /disk\.busy\.ratio\{device=vda\}[\s\S]+1 s\s+holt\s+91 %\s+± 3 %\s+0\.69[\s\S]+persistence\s+–\s+not known yet\s+–/);
    const policies = await page.locator(".policies").innerText();
    assert.match(policies, /^One stream is looked at by a policy\./);
    assert.match(policies, /disks\s+disk\.busy\.ratio\{device=vda\}\s+error bounded\s+5 %\s+4 s\s+forecast\s+3\.1 %\s+0\.25\s+75 %/);
    assert.match(policies, /tape\s+tape\.\*, changer\.\*[\s\S]+no stream matches/);
  });
  await visit("broken", "#/doctor", async (page) => {
    await page.locator(".forecasts").waitFor();
    assert.equal(await page.locator(".policies").count(), 0);
  });
  await visit("calm", "#/doctor", async (page) => {
    await page.locator(".sources tbody").first().waitFor();
    await page.waitForTimeout(800);
    assert.equal(await page.locator(".forecasts, .policies").count(), 0);
    assert.equal(await page.getByRole("alert").count(), 0);
  });
});

test("Doctor: the bandwidth beside others is drawn, with who writes next; a node without says nothing", async () => {
  await visit("busy", "#/doctor", async (page) => {
    const section = page.locator(".bandwidths");
    await section.waitFor();
    const words = await section.innerText();
    assert.match(words, /vda: 64 MB\/s ± 11 MB\/s now of at most 120 MB\/s \(probed\); 90 % of what comes should be within the error\./);
    assert.match(words, /2 of 3 writers are periodic/);
    assert.match(words, /\/simulation\s+3 min 20 s\s+1 min \d+ s\s+± 400 ms/);
    assert.match(words, /\/log\s+–\s+–\s+–\s+–\s+1 MB\/s\s+it writes at all times/);
    const chart = section.getByRole("img");
    assert.match(await chart.getAttribute("aria-label"), /vda: the bandwidth of the next 29 min/);
    assert.equal(await chart.locator("text").count(), 2);
    assert.match(await section.getByRole("link").first().getAttribute("href"), /pin=disk\.bandwidth\.available/);
    assert.match(words, /What controllers decided for readers is shown to those with the control right/);
    assert.equal(await page.locator(".decisions").count(), 0);
    await section.screenshot({ path: join(SHOTS, "bandwidths.png") });
  });
  await visit("calm", "#/doctor", async (page) => {
    await page.locator(".sources tbody").first().waitFor();
    await page.waitForTimeout(800);
    assert.equal(await page.locator(".bandwidths").count(), 0);
  });
});

test("Doctor: with the control right, what controllers decided is drawn and said; others do not see it", async () => {
  await visit("busy", `#control=${TOKEN}`, async (page) => {
    await page.evaluate(() => (location.hash = "#/doctor"));
    const section = page.locator(".decisions");
    await section.waitFor();
    const rows = section.locator("tbody tr");
    assert.equal(await rows.count(), 8);
    const [newest, second, third] = [await rows.nth(0).innerText(), await rows.nth(1).innerText(), await rows.nth(2).innerText()];
    assert.match(newest, /field\\u202e\.baro alice/);
    assert.match(newest, /30 MB\/s ± 9 MB\/s\s+–\s+25 %\s+3\.1e-5 of nrmse=1e-4\s+640\s+9 of 12 buckets/);
    assert.match(second, /110 MB\/s\s+100 %\s+1\.0e-5 of nrmse=1e-4\s+630/);
    assert.match(third, /–\s+9 of 12 buckets: the bound needs 6; no weight: a weight needs the right to control/);
    const chart = section.getByRole("img");
    assert.equal(await chart.getAttribute("aria-label"), "vda: bandwidth, degree, weight, error over 24 reads");
    assert.equal(await chart.locator("circle").count(), 23);
    assert.equal(await page.locator(".bandwidths").getByText("control right").count(), 0);
    await section.screenshot({ path: join(SHOTS, "decisions.png") });
  });
});

test("Doctor: with the control right, controllers are listed and switched, and decisions of all are in one list", async () => {
  await visit("busy", `#control=${TOKEN}`, async (page) => {
    await page.evaluate(() => (location.hash = "#/doctor"));
    const section = page.getByRole("region", { name: "Controllers", exact: true }).last();
    await page.locator(".controllers").waitFor();
    const rows = section.locator("tbody tr");
    assert.equal(await rows.count(), 3);
    assert.match(await rows.nth(2).innerText(), /io-schedule\/scr\\u202eatch which programs may do I\/O below \/scratch\s+live\s+24/);
    await page.getByRole("button", { name: "Pause for 10 min: weight" }).click();
    await page.getByRole("button", { name: "Resume: weight" }).waitFor();
    assert.match(await rows.nth(1).innerText(), /paused by ada, for (9 min \d+ s|10 min) more: on the page/);
    await page.getByRole("button", { name: "Resume: weight" }).click();
    await page.getByRole("button", { name: "Dry run: weight" }).click();
    await page.getByRole("button", { name: "End the dry run: weight" }).waitFor();
    const decided = page.getByRole("region", { name: "Decisions of all controllers" }).locator("tbody tr");
    assert.equal(await decided.count(), 16);
    assert.match(await decided.nth(0).innerText(), /101 .* ago\s+weight\s+field\\u202e\.baro alice\s+640\s+done\s+–/);
    assert.match(await decided.nth(3).innerText(), /98 .* ago\s+augmentation\s+.*9\s+done\s+100 MB\/s → 110 MB\/s\s+9 of 12 buckets/);
    await page.locator(".controllers").screenshot({ path: join(SHOTS, "controllers.png") });
  });
});

test("Doctor: with the control right, whose turn it is to do I/O is drawn and said", async () => {
  await visit("busy", `#control=${TOKEN}`, async (page) => {
    await page.evaluate(() => (location.hash = "#/doctor"));
    const section = page.locator(".phases");
    await section.waitFor();
    assert.match(await section.innerText(), /scratch: 1 at work, 1 waiting\./);
    const rows = section.locator("tbody tr");
    assert.equal(await rows.count(), 2);
    assert.match(await rows.nth(0).innerText(), /climate, job 71 ada\s+granted\s+.* ago\s+4 GB|climate, job 71 ada\s+granted\s+.* ago\s+3\.7\d* GiB/);
    assert.match(await rows.nth(1).innerText(), /sol\\u202ever grace\s+waiting\s+.* ago\s+0 B\s+–\s+by adaptive, 1 before it/);
    const chart = section.getByRole("img");
    assert.match(await chart.getAttribute("aria-label"), /scratch: when 2 applications waited and did I\/O in the last 5 min/);
    assert.ok((await chart.locator("rect").count()) > 20);
    await section.screenshot({ path: join(SHOTS, "phases.png") });
  });
});

test("Doctor: with the control right, maps of servers are told with their changes, states and loads; others do not see them", async () => {
  await visit("busy", `#control=${TOKEN}`, async (page) => {
    await page.evaluate(() => (location.hash = "#/doctor"));
    const section = page.getByRole("region", { name: "Servers", exact: true });
    await section.waitFor();
    const [changing, quiet] = [section.getByRole("article").nth(0), section.getByRole("article").nth(1)];
    const words = await changing.innerText();
    assert.match(words, /^checkpoint of sol\\u202ever \(ada\): epoch 6, in force; 8 processes on 2 nodes, 3 operations at work\.\n/);
    assert.match(words, /Epoch 6 came into force 1 min \d+ s ago, in 52 ms\.\s+Epoch 5 was aborted 2 min 5\d s ago, after 5 s: 2 members are still at work at its deadline\.\s+Epoch 4 came into force 4 min 2\d s ago, in 31 ms\. It was begun because server 5 was 11\.2 times slower than its peers\./);
    const chart = changing.getByRole("img", { name: "checkpoint: 3 changes of its epoch in the last 5 min" });
    assert.deepEqual(await chart.locator("rect").evaluateAll((all) => all.map((mark) => mark.getAttribute("height"))), ["6", "3", "6"]);
    assert.match(await chart.locator("rect title").nth(1).textContent(), /^Epoch 5 was aborted .+: 2 members are still at work at its deadline\.$/);
    assert.match(await chart.textContent(), /epoch 5 aborted/);
    const rows = changing.locator("tbody tr");
    const told = await rows.evaluateAll((all) => all.map((one) => [...one.cells].slice(0, 4).map((cell) => cell.innerText)));
    assert.deepEqual(told, [
      ["2", "▲ in the map, 9.6 times slower than its peers", "9.8", "116 ms"],
      ["6", "▲ in the map, but gone", "–", "–"],
      ["5", "taken out", "0", "130 ms"],
      ["0", "in the map", "41.5", "12.1 ms"],
      ["1", "in the map", "40.2", "11.4 ms"],
      ["3", "in the map", "42", "12.9 ms"],
      ["4", "in the map", "39.7", "11.8 ms"],
      ["7", "there, but not in the map", "–", "–"],
    ]);
    assert.match(await rows.nth(0).getByRole("img").getAttribute("aria-label"), /^medians from 9[2-4](\.\d)? ms to 139 ms$/);
    assert.equal(await changing.locator(".spark").count(), 6);
    // Nothing has changed lately there, and its leader tells no loads.
    assert.match(await quiet.innerText(), /^history of climate \(grace\): epoch 2, in force; 1 process on 1 node, no operation at work\.\s+Epoch 2 came into force 2 h 10 min ago, in 35\.1 ms\.\s/);
    assert.equal(await quiet.locator("svg").count(), 0);
    await section.screenshot({ path: join(SHOTS, "maps.png") });
  });
  await visit("busy", "#/doctor", async (page) => {
    await page.locator(".bandwidths").waitFor();
    assert.equal(await page.locator(".maps").count(), 0);
  });
});

test("Doctor: of a map with many servers the slowest are shown, and maps that cannot be had are told", async () => {
  const agent = await startFakeAgent({ scenario: "calm" });
  const { page, close } = await open(browser, `${agent.url}/#control=${TOKEN}`);
  const servers = Array.from({ length: 1024 }, (_, server) => server);
  const map = { name: "wide", user: "ada", uid: 1000, application: "solver", epoch: 1, servers, next_epoch: 2, stage: "waits for its members", nodes: 64, members: 4096, running: 1, running_servers: servers, gone_servers: [], slow: null, changes: [], loads: servers.map((server) => ({ server, requests_s: 5, service_s: server === 700 ? 0.2 : 0.01, recent: [] })) };
  let isKnown = true;
  await page.route("**/api/v1/control/maps", (route) =>
    isKnown
      ? route.fulfill({ contentType: "application/json", body: JSON.stringify({ maps: [map] }) })
      : route.fulfill({ status: 403, contentType: "application/json", body: JSON.stringify({ error: { kind: "refused", message: "not for you" } }) }));
  try {
    await page.evaluate(() => (location.hash = "#/doctor"));
    const section = page.locator(".maps");
    await section.waitFor();
    assert.equal(await section.locator("tbody tr").count(), 16);
    assert.match(await section.locator("tbody tr").first().innerText(), /^700\s+in the map\s+5\s+200 ms\s+–$/);
    assert.match(await section.innerText(), /epoch 1; epoch 2 waits for its members; 4,096 processes on 64 nodes, 1 operation at work\.[\s\S]+1,008 more servers: 1,008 in the map\.$/);
    isKnown = false;
    await page.getByText("Servers that programs write to: not for you").waitFor();
    assert.equal(await section.count(), 0);
  } finally {
    await close();
    await agent.kill();
  }
});
