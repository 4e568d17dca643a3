// The view Events with the fake agent: no watched tree, a pipeline with two failed actions, and hostile
// names with a failed rule and a failed watch.

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
    await act(page, agent, complaints);
  } finally {
    await close();
    await agent.kill();
  }
}

/** Waits for a text that a part of the page shows. */
const says = (part, text) => part.filter({ hasText: text }).waitFor();
const list = (page, name) => page.getByRole("region", { name: `List of ${name}` });
const button = (page, name) => page.getByRole("button", { name, exact: true });
/** Waits until the page has looked twice more. */
async function looks(page) {
  for (let i = 0; i < 2; i += 1) await page.waitForRequest((request) => (request.postData() ?? "").includes("FROM watches"));
}

test("no watched tree: how to begin, and who may see what here", () =>
  visit("calm", "#/events", async (page, _agent, complaints) => {
    await says(page.locator("h1"), "No tree is watched here.");
    const text = await page.locator("main").innerText();
    assert.match(text, /baro event add DIRECTORY --readers all/);
    assert.match(text, /baro rule create "CREATE RULE seen ON EVENT close_write/);
    assert.match(text, /over TCP everyone on the node is one reader/);
    assert.equal(await page.locator("main table").count(), 0);
    assert.deepEqual(complaints, []);
  }));

test("events by directory; a click lists those of one, and the address keeps it", () =>
  visit("busy", "#/events", async (page, agent, complaints) => {
    await says(page.locator("h1"), /[\d,]+ events in \d directories in 5 min; 2 actions have failed for good\./);
    const camera = list(page, "directories").locator("tbody tr", { hasText: "/data/in/camera-1" });
    assert.match(await camera.locator("svg.bars").getAttribute("aria-label"), /^[\d,]+ events, most of them at .+: \d+ in 10 s$/);
    assert.match(await camera.locator("td.num").innerText(), /^[\d,]+$/);
    await camera.getByRole("button").click();
    await says(page.locator("h2"), "Newest events of /data/in/camera-1");
    const paths = async () => list(page, "events").locator("tbody bdi.path").allInnerTexts();
    await page.waitForFunction(() => [...document.querySelectorAll("[aria-label='List of events'] tbody tr")].every((row) => row.textContent.includes("/data/in/camera-1/")));
    assert.ok((await paths()).length > 0);
    assert.match(page.url(), /#\/events\?dir=%2Fdata%2Fin%2Fcamera-1%2F$/);
    await page.reload();
    await says(page.locator("h2"), "Newest events of /data/in/camera-1");
    await button(page, "show all").click();
    await page.waitForURL((url) => url.hash === "#/events");
    assert.deepEqual(complaints, []);
    assert.ok(agent.state.statements.filter((sql) => /FROM (events|rules|actions|watches)/.test(sql)).every((sql) => /LIMIT \d+$/.test(sql.trim())), "every statement is bounded");
  }));

test("span and pause are in the address, and a paused view stays at its time", () =>
  visit("busy", "#/events?span=1min", async (page, agent) => {
    await says(page.locator("h1"), "in 1 min");
    await button(page, "15 min").click();
    await says(page.locator("h1"), "in 15 min");
    await button(page, "Pause").click();
    await page.waitForURL(/span=15min&until=\d{13}$/);
    const until = new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("until");
    await looks(page);
    assert.match(agent.state.statements.findLast((sql) => sql.includes(" AS slot")), new RegExp(`ts <= ${until}000000 `));
    await says(page.locator(".cursor-time"), /paused at \d\d:\d\d:\d\d; rules, actions and watches are those of now/);
    const link = page.url();
    await page.goto("about:blank");
    await page.goto(link);
    await says(page.locator(".cursor-time"), "paused at");
    await button(page, "Go on live").click();
    await page.waitForURL(/#\/events\?span=15min$/);
    // Another view and back: the choice is kept.
    await page.getByRole("link", { name: "Doctor", exact: true }).click();
    await page.getByRole("link", { name: "Events", exact: true }).click();
    await page.waitForURL(/#\/events\?span=15min$/);
  }));

test("rules with their counts and queues; a click shows the statement", () =>
  visit("busy", "#/events", async (page, _agent, complaints) => {
    const rules = list(page, "rules");
    const line = rules.locator("tbody", { hasText: "thumbnails" });
    await line.waitFor();
    assert.deepEqual(await line.locator("td.num").allInnerTexts(), ["18,412", "3", "1", "0", "12", "4"]);
    assert.equal(await rules.locator("tbody").count(), 3, "rules on streams are elsewhere");
    await line.getByRole("button").click();
    await says(line.locator("pre"), "ON EVENT close_write WHERE path GLOB '/data/in/*.tif'");
    await says(list(page, "watched trees").locator("tbody", { hasText: "/project" }), "walking");
    assert.deepEqual(complaints, []);
  }));

test("without the control right retry and drop are disabled and say why", () =>
  visit("busy", "#/events", async (page, agent) => {
    const failed = list(page, "failed actions").locator("tbody tr");
    await says(failed.first(), /close_write\s+\/data\/in\/camera-1\/frame-17\.tif/);
    await says(failed.nth(1), /event 1040 of data: baro action show 40/);
    for (const name of ["retry action 41", "drop action 41"]) {
      const one = button(page, name);
      assert.equal(await one.isDisabled(), true);
      assert.equal(await one.getAttribute("title"), "needs the control right: see below");
      assert.equal(await one.getAttribute("aria-describedby"), "control-note");
    }
    await says(page.locator("#control-note"), "/dev/shm/barograph-1000/control.token");
    assert.deepEqual(agent.state.acts, []);
  }));

test("with the control right one click retries an action, and one drops another", () =>
  visit("busy", `#control=${TOKEN}`, async (page, agent, complaints) => {
    await page.getByRole("link", { name: "Events", exact: true }).click();
    const failed = list(page, "failed actions").locator("tbody tr");
    await failed.first().getByRole("button", { name: "the program ended with code 1" }).click();
    await says(page.getByLabel("Its program"), "/usr/local/bin/thumbnails /data/in/camera-1/frame-17.tif");
    assert.equal(await page.getByLabel("The end of its output").innerText(), "reading\n\\x1b[31mno such file");
    await failed.first().getByRole("button", { name: "the program ended with code 1" }).click();
    await page.getByLabel("Its program").waitFor({ state: "detached" });
    await button(page, "retry action 41").focus();
    await page.keyboard.press("Enter");
    await says(page.getByRole("status"), "Action 41 is tried once more.");
    await says(page.locator("h1"), "1 action has failed for good");
    assert.equal(await failed.count(), 1);
    await button(page, "drop action 40").click();
    await says(page.getByRole("status"), "Action 40 is given up.");
    await failed.first().waitFor({ state: "detached" });
    assert.deepEqual(agent.state.acts, [{ show: 41 }, { retry: 41 }, { drop: 40 }]);
    assert.deepEqual(complaints, []);
  }));

test("a wrong token and an action that is gone are told in words", () =>
  visit("busy", "#control=wrong", async (page, agent) => {
    await page.getByRole("link", { name: "Events", exact: true }).click();
    await button(page, "retry action 41").click();
    await says(page.getByRole("alert"), /Action 41: The agent refused: .+ Without the control right this page only reads\./);
    await button(page, "Give it up").click();
    await page.getByLabel("Control token").fill(TOKEN);
    await button(page, "Take").click();
    agent.state.dead = [];
    await button(page, "retry action 41").click();
    await says(page.getByRole("alert"), "there is no action 41");
  }));

test("hostile names are written out, and do not move what stands beside them", () =>
  visit("broken", "#/events", async (page, _agent, complaints) => {
    await says(page.locator("h1"), /1 rule has failed; 62 actions have failed for good; 1 watch is in trouble\.$/);
    await list(page, "failed actions").locator("tbody tr .kind").nth(12).waitFor();
    const text = await page.locator("main").evaluate((main) => main.textContent);
    for (const part of ["/scratch/\\x1b[31mred\\x07", "/scratch/\\u202egnp.exe", "<img src=x onerror=alert(1)>", "it's \ufffd\ufffd\\n two lines"]) assert.ok(text.includes(part), part);
    assert.doesNotMatch(text, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/);
    assert.equal(await page.locator("main img").count(), 0);
    const hints = await page.locator("main [title]").evaluateAll((all) => all.map((one) => one.title));
    assert.ok(hints.every((hint) => hint.length <= 4096 && !/[\u001b\u202e]/.test(hint)));
    const heights = await list(page, "directories").locator("tbody tr").evaluateAll((rows) => rows.map((row) => row.offsetHeight));
    assert.ok(Math.max(...heights) < 90, `a line is ${Math.max(...heights)} high`);
    // A click on each of them lists its events: the name is a text in the statement.
    const name = "it's";
    await list(page, "directories").getByRole("button", { name }).click();
    await page.waitForFunction(() => [...document.querySelectorAll("[aria-label='List of events'] tbody tr")].every((row) => row.textContent.includes("it's")));
    await says(list(page, "rules").locator("tbody", { hasText: "evil" }), "20000 actions of the rule wait");
    await says(page.locator("main"), "The newest 50 of 62");
    assert.deepEqual(complaints, []);
  }));

test("a view that cannot be loaded says so, and a second attempt loads it", () =>
  visit("busy", "#/now", async (page) => {
    let refused = 0;
    await page.route("**/later.js*", (route) => ((refused += 1) <= 1 ? route.abort() : route.continue()));
    await page.getByRole("link", { name: "Events", exact: true }).click();
    await says(page.getByRole("alert"), /It could not be loaded: .+\. If the agent was updated, load the page anew\./);
    await button(page, "Try again").click();
    await list(page, "directories").waitFor();
    assert.equal(refused, 2);
  }));

test("the second bundle is not asked for before its first view is opened", () =>
  visit("busy", "#/now", async (page, agent) => {
    await page.locator(".strip .scale").first().waitFor();
    const asked = () => agent.state.seen.filter((path) => path.startsWith("/later.js")).length;
    assert.equal(asked(), 0);
    for (const name of ["Events", "Doctor", "Events"]) await page.getByRole("link", { name, exact: true }).click();
    await list(page, "directories").waitFor();
    assert.equal(asked(), 1);
  }));

test("an agent that is gone: what is shown is old and says since when", () =>
  visit("busy", "#/events", async (page, agent) => {
    await list(page, "directories").waitFor();
    await agent.kill();
    await says(page.getByRole("alert"), /the agent does not answer; what is below was told at \d\d:\d\d:\d\d/);
    await page.locator("main.dead").waitFor();
  }));

test("the keyboard reaches everything, and the focus is seen", () =>
  visit("busy", `#control=${TOKEN}`, async (page) => {
    await page.getByRole("link", { name: "Events", exact: true }).click();
    await button(page, "drop action 40").waitFor();
    const wanted = await page.locator("main").locator("button:not(:disabled), a, [tabindex='0']").count();
    const reached = new Set();
    for (let i = 0; i < wanted + 40; i += 1) {
      await page.keyboard.press("Tab");
      const seen = await page.evaluate(() => {
        const one = document.activeElement;
        if (one.closest("main") === null) return null;
        const all = [...document.querySelectorAll("main button:not(:disabled), main a, main [tabindex='0']")];
        return { index: all.indexOf(one), outline: getComputedStyle(one).outlineStyle };
      });
      if (seen === null) continue;
      assert.notEqual(seen.outline, "none");
      reached.add(seen.index);
    }
    assert.equal(reached.size, wanted);
  }));

for (const scenario of ["calm", "busy", "broken"]) {
  for (const [size, scheme] of [["wide", "light"], ["wide", "dark"], ["narrow", "light"], ["narrow", "dark"]]) {
    test(`${scenario}, ${scheme}, ${size}: nothing scrolls sideways`, () =>
      visit(scenario, "#/events", async (page, _agent, complaints) => {
        await page.locator(".events .readers").waitFor();
        if (scenario !== "calm") await list(page, "failed actions").locator(".kind").first().waitFor();
        const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
        assert.ok(content <= window, `${content} wide in ${window}`);
        await page.screenshot({ path: join(SHOTS, `events-${scenario}-${scheme}-${size}-full.png`), fullPage: true });
        assert.deepEqual(complaints, []);
      }, { size, scheme }));
  }
}
