import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

// Run from web/: the palette is the first two blocks of the style sheet.
const CSS = readFileSync("src/app.css", "utf8");

function palette(theme: string): Map<string, string> {
  const block = new RegExp(`data-theme="${theme}"\\] \\{([^}]*)\\}`).exec(CSS)?.[1] ?? "";
  return new Map([...block.matchAll(/--([a-z-]+):\s*(#[0-9a-f]+);/g)].map((m) => [m[1] ?? "", m[2] ?? ""]));
}

/** Relative luminance after WCAG 2.2. */
function luminance(hex: string): number {
  const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
    const c = parseInt(hex.slice(at, at + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

test("contrast itself", () => {
  assert.equal(Math.round(contrast("#000000", "#ffffff") * 10) / 10, 21);
  assert.equal(contrast("#777777", "#777777"), 1);
});

for (const theme of ["light", "dark"]) {
  const colours = palette(theme);
  const of = (name: string): string => {
    const hex = colours.get(name);
    assert.ok(hex !== undefined, `${theme} has no --${name}`);
    return hex;
  };
  test(`${theme}: every text on every ground has 4.5:1`, () => {
    for (const ground of ["desk", "sheet", "ahead"]) {
      for (const text of ["ink", "muted", "old", "read", "write", "red", "green"]) {
        const ratio = contrast(of(text), of(ground));
        assert.ok(ratio >= 4.5, `${theme}: ${text} on ${ground} is ${ratio.toFixed(2)}:1`);
      }
    }
  });
  test(`${theme}: rules stay below the ink, old below the new`, () => {
    assert.ok(contrast(of("rule"), of("sheet")) < contrast(of("rule-strong"), of("sheet")));
    assert.ok(contrast(of("rule-strong"), of("sheet")) < 2.5);
    assert.ok(contrast(of("old"), of("sheet")) < contrast(of("ink"), of("sheet")) / 2);
  });
}
