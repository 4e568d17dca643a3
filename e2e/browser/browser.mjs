// A Chromium of this machine under playwright, and pages that report their errors.

import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const NAMES = [process.env.BAROGRAPH_CHROME, "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
export const SHOTS = join(dirname(fileURLToPath(import.meta.url)), "shots");

function executable() {
  for (const name of NAMES) {
    if (name === undefined || name === "") continue;
    try {
      return execFileSync("sh", ["-c", 'command -v "$1"', "sh", name], { encoding: "utf8" }).trim();
    } catch {
      // This one does not exist: try the next.
    }
  }
  throw new Error("no Chromium found: install chromium-headless-shell or name one in BAROGRAPH_CHROME");
}

export async function launch() {
  mkdirSync(SHOTS, { recursive: true });
  return chromium.launch({ executablePath: executable(), headless: true, args: FLAGS });
}

export const SIZES = { wide: { width: 1366, height: 860 }, narrow: { width: 360, height: 740 } };

/** A page with its complaints: console errors, exceptions, requests to other servers. */
export async function open(browser, url, { size = "wide", scheme = "light", ...more } = {}) {
  const context = await browser.newContext({ viewport: SIZES[size], colorScheme: scheme, ...more });
  const page = await context.newPage();
  const complaints = [];
  const origin = new URL(url).origin;
  page.on("console", (message) => message.type() === "error" && complaints.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(`exception: ${error.message}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(origin) && !request.url().startsWith("data:")) complaints.push(`request elsewhere: ${request.url()}`);
  });
  await page.goto(url);
  return { page, complaints, close: () => context.close() };
}

/**
 * The number of pixels of a canvas with ink, that is, whose colour clearly differs from paper and
 * rules.
 */
export function inkOf(canvas) {
  return canvas.evaluate((element) => {
    const style = getComputedStyle(document.documentElement);
    const probe = document.createElement("canvas").getContext("2d");
    const rgb = (name) => {
      probe.fillStyle = style.getPropertyValue(name).trim();
      probe.fillRect(0, 0, 1, 1);
      return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const paper = ["--sheet", "--ahead", "--rule", "--rule-strong"].map(rgb);
    const { data } = element.getContext("2d").getImageData(0, 0, element.width, element.height);
    const far = (at, [r, g, b]) => Math.abs(data[at] - r) + Math.abs(data[at + 1] - g) + Math.abs(data[at + 2] - b) > 90;
    let ink = 0;
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 100 && paper.every((colour) => far(at, colour))) ink += 1;
    return ink;
  });
}
