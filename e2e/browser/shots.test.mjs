// Pictures of each view, light, dark and narrow, in all three scenarios, for people to look at in
// shots/; any complaint of the browser or missing view is an error.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, open, SHOTS } from "./browser.mjs";
import { startFakeAgent } from "./fake-agent.mjs";

const PINS = ["disk.busy.ratio{device=vda}", "disk.busy.ratio{device=nvme1n1}", "disk.write.bytes_per_second{device=vda}", "disk.write.bytes_per_second{device=nvme0n1}", "disk.write.latency.seconds{device=vda}", "memory.available.bytes"];
const QUERY = "SELECT ts, device, value AS busy FROM disk_busy_ratio\nORDER BY ts";

/** Each view, and the page of another node: its address, and a selector that shows that it is complete. */
const VIEWS = {
  now: ["#/now", ".strip .scale"],
  streams: [`#/streams?${new URLSearchParams(PINS.map((pin) => ["pin", pin]))}`, ".legend-table td.num .value"],
  past: [`#/streams?${new URLSearchParams([...PINS.map((pin) => ["pin", pin]), ["span", "24h"]])}`, ".legend-table td.num .value"],
  nodes: ["#/nodes", ".nodes tbody tr"],
  node: ["?node=lab-4#/now", ".strip .scale"],
  applications: ["#/applications", ".begin pre, .publication .legend-table td.num .value"],
  events: ["#/events", ".events .readers"],
  insights: ["#/insights", "button.insight .spark"],
  sql: [`#/sql?${new URLSearchParams({ q: QUERY })}`, ".result .chart canvas"],
  doctor: ["#/doctor", ".sources tbody"],
};
const LOOKS = [["wide", "light"], ["wide", "dark"], ["narrow", "light"], ["narrow", "dark"]];

let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

for (const scenario of ["calm", "busy", "broken"]) {
  for (const [size, scheme] of LOOKS) {
    test(`${scenario}, ${scheme}, ${size}`, async () => {
      const agent = await startFakeAgent({ scenario });
      const { page, complaints, close } = await open(browser, agent.url, { size, scheme });
      try {
        for (const [view, [hash, ready]] of Object.entries(VIEWS)) {
          // The calm node is alone.
          if (view === "node" && scenario === "calm") continue;
          await page.goto(`${agent.url}/${hash}`);
          await page.locator(ready).first().waitFor();
          await act(page, view, scenario, size);
          await page.screenshot({ path: join(SHOTS, `${view}-${scenario}-${scheme}-${size}.png`), fullPage: size === "narrow" });
        }
        assert.deepEqual(complaints, []);
        if (scenario === "broken") await dead(page, agent, `${scheme}-${size}`);
      } finally {
        await close();
        await agent.kill();
      }
    });
  }
}

/** Acts like a reader before the picture is taken. */
async function act(page, view, scenario, size) {
  if (view === "past") await page.getByText(/min a bucket/).waitFor();
  if (view === "insights") await page.locator("button.insight", { hasText: "device.load.ratio" }).click();
  if (view === "now" && scenario === "busy" && size === "wide") {
    const box = await page.locator(".past canvas").nth(2).boundingBox();
    await page.mouse.move(box.x + box.width * 0.45, box.y + 20);
  } else await page.mouse.move(4, 4);
  await page.waitForTimeout(500);
}

async function dead(page, agent, look) {
  await page.goto(`${agent.url}/#/now`);
  await page.locator(".strip .scale").first().waitFor();
  await page.waitForTimeout(500);
  await agent.kill();
  await page.locator(".sheet.dead").waitFor();
  await page.waitForTimeout(6000);
  await page.screenshot({ path: join(SHOTS, `now-dead-${look}.png`) });
}
