// The page when things go wrong, with the fake agent, whose faults are set by the tests.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { inkOf, launch, open, SHOTS } from "./browser.mjs";
import { startFakeAgent, TOKEN } from "./fake-agent.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

async function withAgent(options, hash, act, view = {}) {
  const agent = await startFakeAgent(options);
  const { page, complaints, close } = await open(browser, `${agent.url}/${hash}`, view);
  try {
    await act(page, agent, complaints);
  } finally {
    await close();
    await agent.kill();
  }
}

const sentence = (page) => page.locator(".outlook h1");

test("calm says calm, and idle devices are folded", () =>
  withAgent({ scenario: "calm" }, "", async (page, _agent, complaints) => {
    await page.locator(".outlook.calm").waitFor();
    assert.match(await sentence(page).innerText(), /^●\s*Calm\.$/);
    assert.equal(await page.locator(".strip").count(), 5);
    const fold = page.getByRole("button", { name: /3 idle devices/ });
    await fold.click();
    assert.equal(await page.locator(".strip").count(), 8);
    assert.deepEqual(complaints, []);
  }));

test("names without a place for a break: no sideways scrolling at 360 pixels", () =>
  withAgent({ scenario: "long" }, "", async (page) => {
    await page.locator(".outlook h1", { hasText: "does not answer" }).waitFor();
    await page.locator(".troubles li").first().waitFor();
    await page.locator(".causes tbody tr").first().waitFor();
    await page.screenshot({ path: `${SHOTS}/now-long-narrow.png`, fullPage: true });
    const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(content <= window, `${content} wide in ${window}`);
  }, { size: "narrow" }));

test("tiers on devices lead, the largest first, and memory is not the RAM", () =>
  withAgent({ scenario: "calm" }, "", async (page, _agent, complaints) => {
    const tanks = page.locator(".tank");
    await tanks.nth(4).waitFor();
    assert.deepEqual(await tanks.locator("strong").allInnerTexts(), ["pfs", "hdd", "nvme", "ssd", "memory"]);
    assert.match(await tanks.nth(4).innerText(), /tmpfs and the like, not the node's RAM/);
    assert.equal(await tanks.getByText("RAM").count(), 1);
    assert.deepEqual(complaints, []);
  }));

test("a saturated device: where, since when, in words and in red ink", () =>
  withAgent({ scenario: "busy" }, "", async (page, _agent, complaints) => {
    await page.locator('.strip.saturated[data-device="vda"]').waitFor();
    assert.match(await page.locator(".troubles li").first().innerText(), /vda saturated, \d+ % busy since .+\(.+\)/);
    assert.match(await page.locator('.strip[data-device="vda"] .past canvas').getAttribute("aria-label"), /vda: \d+ % busy, saturated for .+/);
    assert.match(await page.locator(".tank.full").innerText(), /97 % used, 1\.8 TiB in all/);
    await page.locator(".causes tbody tr").first().waitFor();
    assert.match(await page.locator(".causes p").first().innerText(), /^fio \(4711\) writes 410 MB\/s\.$/);
    assert.match(await page.locator(".causes tbody tr").first().innerText(), /^fio \(4711\)\s+process\s+–/);
    assert.match(await page.locator(".causes tbody tr", { hasText: "slurm-4711" }).innerText(), /control group\s+vda/);
    await page.getByRole("link", { name: "Doctor" }).click();
    await page.waitForFunction(() => document.title.startsWith("▲ Doctor"));
    assert.deepEqual(complaints, []);
  }));

test("nodes: worst first, what is not known of a node that has gone, and one node's devices", () =>
  withAgent({ scenario: "busy" }, "#/nodes", async (page, _agent, complaints) => {
    const lines = page.getByRole("region", { name: "Nodes" }).locator("tbody tr");
    await lines.nth(2).waitFor();
    assert.match(await page.locator("h1").innerText(), /^Nodes: 3, not heard: 1, saturated: 1\.$/);
    const shown = await lines.allInnerTexts();
    assert.match(shown[0], /^lab-5 gone/);
    assert.doesNotMatch(shown[0], /42|scratch/);
    assert.match(shown[1], /^lab-3 here/);
    assert.match(shown[2], /^lab-4\s+\/scratch is nearly full, 4 % free\s+nvme0n1\s+42 %/);
    assert.match(await page.getByRole("region", { name: "Tiers" }).innerText(), /nvme[^\n]*\n?.*GiB/);
    await page.getByRole("button", { name: "nvme0n1" }).click();
    assert.match(await page.getByRole("region", { name: "Node lab-4" }).innerText(), /\/scratch\s+37\.3 GiB/);
    assert.deepEqual(complaints, []);
  }));

test("broken: a hung mount, a source that is down, a device without news, nobody visible", () =>
  withAgent({ scenario: "broken" }, "", async (page, _agent, complaints) => {
    await page.locator(".troubles li").nth(2).waitFor();
    const troubles = await page.locator(".troubles").innerText();
    assert.match(troubles, /\/mnt\/nfs does not answer since .+\(4 min/);
    assert.match(troubles, /vdb no news since/);
    assert.match(troubles, /source nfs down/);
    assert.match(await sentence(page).innerText(), /\/mnt\/nfs has not answered for 4 min/);
    assert.match(await page.locator('.strip.silent[data-device="vdb"]').innerText(), /no news for 3 min/);
    assert.match(await page.locator(".causes p").first().innerText(), /^Not counted here: whose the 410 MB\/s are/);
    await page.locator(".causes .note", { hasText: "the io controller is not enabled" }).waitFor();
    assert.deepEqual(complaints, []);
  }));

/** The longest stretch without a line in the newest 20 s of a two-minute strip, in seconds. */
function bareSeconds(canvas) {
  return canvas.evaluate((element) => {
    const style = getComputedStyle(document.documentElement);
    const probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = style.getPropertyValue("--ink").trim();
    probe.fillRect(0, 0, 1, 1);
    const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
    const { width, height } = element;
    const { data } = element.getContext("2d").getImageData(0, 0, width, height);
    const isInk = (at) => data[at + 3] > 100 && Math.abs(data[at] - r) + Math.abs(data[at + 1] - g) + Math.abs(data[at + 2] - b) < 120;
    const inked = (x) => Array.from({ length: height }, (_, y) => (y * width + x) * 4).some(isInk);
    const pen = element.parentElement.clientWidth * (width / element.clientWidth);
    const perSecond = pen / 120;
    let longest = 0;
    let run = 0;
    for (let x = Math.round(pen - 20 * perSecond); x < Math.round(pen) - 2; x += 1) longest = Math.max(longest, (run = inked(x) ? 0 : run + 1));
    return longest / perSecond;
  });
}

test("a gap in the looks stays a gap on the paper", () =>
  withAgent({ scenario: "calm" }, "", async (page, agent) => {
    const canvas = page.locator('.strip[data-device="vda"] .past canvas');
    await canvas.waitFor();
    await page.getByRole("button", { name: "2 min" }).click();
    const now = Date.now();
    for (const s of agent.state.streams) if (s.labels.device === "vda") s.blind = [now, now + 7000];
    await page.waitForTimeout(11_500);
    const bare = await bareSeconds(canvas);
    assert.ok(bare >= 3, `the longest stretch without a line is ${bare.toFixed(1)} s`);
  }));

test("a dead agent greys the sheet, says since when, and is found again when it comes back", () =>
  withAgent({ scenario: "calm" }, "", async (page, agent) => {
    const canvas = page.locator(".past canvas").first();
    await page.locator(".outlook.calm").waitFor();
    await page.getByRole("button", { name: "2 min" }).click();
    const died = Date.now();
    await agent.kill();
    await page.locator(".sheet.dead").waitFor();
    assert.match(await sentence(page).innerText(), /The agent is silent since \d\d:\d\d:\d\d\./);
    await page.locator(".head .link.lost").waitFor();
    assert.match(await page.locator(".head .link").innerText(), /silent since/);
    assert.ok((await inkOf(canvas)) > 50, "what was known is still drawn");
    // The agent was stopped and continues the same streams: nobody looked in between.
    const { streams } = agent.state;
    for (const s of streams) s.blind = [died, Date.now()];
    const again = await startFakeAgent({ scenario: "calm", port: agent.port, streams });
    try {
      await page.locator(".outlook.calm").waitFor();
      assert.equal(await page.locator(".sheet.dead").count(), 0);
      await page.waitForTimeout(3500);
      const bare = await bareSeconds(canvas);
      assert.ok(bare >= 2.5, `the silence is a gap of ${bare.toFixed(1)} s`);
    } finally {
      await again.kill();
    }
  }));

test("control: the token leaves the address, makes and drops an insight", () =>
  withAgent({ scenario: "calm" }, `#control=${TOKEN}`, async (page, agent, complaints) => {
    await page.locator(".sheet").waitFor();
    assert.ok(!page.url().includes(TOKEN), page.url());
    await page.getByRole("link", { name: "Insights" }).click();
    await page.getByLabel("CREATE INSIGHT statement").fill("CREATE INSIGHT my.busiest.ratio AS SELECT max(value) FROM disk_busy_ratio");
    await page.getByRole("button", { name: "Test" }).click();
    await page.locator(".maker td", { hasText: "0.42" }).waitFor();
    assert.equal(agent.state.insights.some((one) => one.name === "my.busiest.ratio"), false, "a test changes nothing");
    await page.getByRole("button", { name: "Create" }).click();
    await page.locator("button.insight", { hasText: "my.busiest.ratio" }).waitFor();
    page.once("dialog", (dialog) => dialog.accept());
    await page.getByRole("button", { name: "Drop this insight" }).click();
    await page.locator("button.insight", { hasText: "my.busiest.ratio" }).waitFor({ state: "detached" });
    assert.deepEqual(complaints, []);
  }));

test("control: a wrong token is refused in words", () =>
  withAgent({ scenario: "calm" }, "#control=wrong", async (page) => {
    await page.getByRole("link", { name: "Insights" }).click();
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByText(/The agent refused: .+control\.token/).waitFor();
  }));

test("forty strips: only those in sight are painted, and the page stays responsive", () =>
  withAgent({ scenario: "calm", devices: 40 }, "", async (page, _agent, complaints) => {
    await page.locator(".strip").nth(40).waitFor();
    await page.waitForFunction(() => document.querySelector(".past canvas")?.width > 300);
    const painted = await page.locator(".past canvas").evaluateAll((all) => all.map((one) => one.width > 300));
    assert.ok(painted[0] && !painted.at(-1), "the last strip is out of sight and not painted");
    await page.locator(".strip").last().scrollIntoViewIfNeeded();
    await page.waitForFunction(() => [...document.querySelectorAll(".past canvas")].at(-1).width > 300);
    assert.deepEqual(complaints, []);
  }));

/** How often in three seconds the paper of a strip is painted, and how often it is only moved. */
async function motions(page) {
  await page.locator(".outlook.calm").waitFor();
  await page.getByRole("button", { name: "2 min" }).click();
  return page.evaluate(async () => {
    const target = document.querySelector(".past canvas");
    const clear = CanvasRenderingContext2D.prototype.clearRect;
    const count = { paints: 0, moves: 0 };
    CanvasRenderingContext2D.prototype.clearRect = function counted(...args) {
      if (this.canvas === target) count.paints += 1;
      return clear.apply(this, args);
    };
    const watch = new MutationObserver(() => (count.moves += 1));
    watch.observe(target, { attributes: true, attributeFilter: ["style"] });
    await new Promise((resolve) => setTimeout(resolve, 3000));
    watch.disconnect();
    CanvasRenderingContext2D.prototype.clearRect = clear;
    return count;
  });
}

test("the paper glides between the ticks, and is painted only on them", () =>
  withAgent({ scenario: "calm" }, "", async (page) => {
    const { paints, moves } = await motions(page);
    assert.ok(paints >= 1 && paints <= 8, `${paints} paints in three seconds`);
    assert.ok(moves > paints + 3, `${moves} moves, ${paints} paints`);
  }));

test("with reduced motion the paper steps with the ticks", () =>
  withAgent({ scenario: "calm" }, "", async (page) => {
    const { paints, moves } = await motions(page);
    assert.ok(paints >= 1 && paints <= 8, `${paints} paints in three seconds`);
    assert.ok(moves <= paints + 1, `${moves} moves, ${paints} paints`);
  }, { reducedMotion: "reduce" }));

test("zoom by dragging pauses, and live goes on", () =>
  withAgent({ scenario: "busy" }, `#/streams?pin=${encodeURIComponent("disk.busy.ratio{device=vda}")}`, async (page, _agent, complaints) => {
    const over = page.locator(".chart .u-over");
    await over.waitFor();
    const box = await over.boundingBox();
    await page.mouse.move(box.x + box.width * 0.3, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.6, box.y + 60, { steps: 4 });
    await page.mouse.up();
    await page.getByText(/paused at/).waitFor();
    await page.getByRole("button", { name: "Go on live" }).click();
    await page.locator(".tools .cursor-time", { hasText: "live" }).waitFor();
    assert.deepEqual(complaints, []);
  }));

/** The columns of a chart that show only paper, as stretches: [share from, share to]. */
function bare(page) {
  return page.locator(".chart canvas").first().evaluate((element) => {
    const { width, height } = element;
    const { data } = element.getContext("2d").getImageData(0, 0, width, height);
    // Only ink and its band are blue.
    const isInk = (at) => data[at + 3] > 20 && data[at + 2] - data[at] > 24;
    const columns = Array.from({ length: width }, (_, x) => Array.from({ length: height }, (__, y) => (y * width + x) * 4).some(isInk));
    const first = columns.indexOf(true);
    const last = columns.lastIndexOf(true);
    const stretches = [];
    let from = -1;
    columns.forEach((inked, x) => {
      if (!inked && from < 0) from = x;
      if (inked && from >= 0) {
        if (x - from > 4) stretches.push([from / width, x / width]);
        from = -1;
      }
    });
    return { first: first / width, last: last / width, stretches };
  });
}

const VDA = encodeURIComponent("disk.busy.ratio{device=vda}");

test("a day of the past: a band with its gap, and the live tail at its end", () =>
  withAgent({ scenario: "calm" }, `#/streams?pin=${VDA}&span=24h`, async (page, agent, complaints) => {
    await page.getByText("5 min a bucket").waitFor();
    assert.equal(await page.getByRole("button", { name: "24 h" }).getAttribute("aria-pressed"), "true");
    await page.waitForTimeout(1500);
    const { last, stretches } = await bare(page);
    assert.ok(last > 0.9, `the ink ends at ${last.toFixed(2)}: the live tail is missing`);
    const gaps = stretches.filter(([from, to]) => to - from > 0.05 && from > 0.1);
    assert.equal(gaps.length, 1, `the node was off once: ${JSON.stringify(stretches)}`);
    const asked = agent.state.seen.filter((path) => path.includes("points="));
    assert.equal(asked.length, 1, "the whole is asked for once");
    assert.match(asked[0], /history\?match=disk\.busy\.ratio%7Bdevice%3Dvda%7D&start=\d+&stop=\d+&points=600$/);
    const box = await page.locator(".chart .u-over").boundingBox();
    await page.mouse.move(box.x + box.width * 0.2, box.y + 40);
    await page.locator(".legend-table td", { hasText: /mean of 300/ }).waitFor();
    assert.match(await page.locator(".legend-table td.num").first().innerText(), /% \(.+ % to .+ %\)/);
    await page.mouse.move(box.x + box.width * 0.66, box.y + 40);
    await page.locator(".legend-table td", { hasText: /^gap$/ }).waitFor();
    assert.deepEqual(complaints, []);
  }));

test("out to months and in to minutes: buttons, dragging, keys, and the address keeps the span", () =>
  withAgent({ scenario: "calm" }, `#/streams?pin=${VDA}`, async (page, agent, complaints) => {
    await page.locator(".chart canvas").waitFor();
    assert.equal(agent.state.seen.some((path) => path.includes("points=")), false, "memory is enough for five minutes");
    await page.getByRole("button", { name: "30 d" }).click();
    await page.getByText("2 h a bucket").waitFor();
    assert.match(page.url(), /span=30d/);
    const box = await page.locator(".chart .u-over").boundingBox();
    await page.mouse.move(box.x + box.width * 0.9, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.95, box.y + 60, { steps: 4 });
    await page.mouse.up();
    await page.getByText(/paused at .+, 5 min a bucket/).waitFor();
    await page.locator(".charts").focus();
    await page.keyboard.press("-");
    await page.getByText(/paused at .+, 10 min a bucket/).waitFor();
    const before = await page.locator(".tools .cursor-time").innerText();
    await page.keyboard.press("ArrowLeft");
    await page.waitForFunction((text) => document.querySelector(".tools .cursor-time").innerText !== text, before);
    await page.keyboard.press("Escape");
    await page.getByText("live, 2 h a bucket").waitFor();
    await page.keyboard.press("+");
    assert.match(page.url(), /span=7d/);
    const link = page.url();
    await page.goto("about:blank");
    await page.goto(link);
    await page.getByText("30 min a bucket").waitFor();
    assert.deepEqual(complaints, []);
  }));

test("an archive that cannot be asked says so, and memory is still drawn", () =>
  withAgent({ scenario: "calm" }, `#/streams?pin=${VDA}`, async (page) => {
    await page.locator(".chart canvas").waitFor();
    await page.route(/points=/, (route) => route.fulfill({ status: 422, contentType: "application/json", body: JSON.stringify({ error: { kind: "limit", message: "more than 1000000 samples: narrow match" } }) }));
    await page.getByRole("button", { name: "24 h" }).click();
    await page.getByRole("alert").filter({ hasText: "narrow match" }).waitFor();
    await page.locator(".chart canvas").waitFor();
  }));

test("Doctor: the archive in a line, and its trouble in red", async () => {
  await withAgent({ scenario: "calm" }, "#/doctor", async (page, _agent, complaints) => {
    await page.getByText(/History since .+\(12 d\): 1\.23 GiB in 1,152 files/).waitFor();
    await page.getByText(/3\.11 bytes a sample/).waitFor();
    await page.getByText(/Nothing was lost/).waitFor();
    assert.deepEqual(complaints, []);
  });
  await withAgent({ scenario: "broken" }, "#/doctor", async (page) => {
    const trouble = page.locator(".archive .note.bad");
    await trouble.waitFor();
    assert.match(await trouble.innerText(), /No space left on device: free some/);
    assert.match(await page.locator(".archive .some").innerText(), /41,200 samples that came faster/);
  });
});
