// Runs the tests of the pure modules: test/*.test.ts, bundled for Node and given to `node --test`.

import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = dirname(fileURLToPath(import.meta.url));
const out = mkdtempSync(join(tmpdir(), "barograph-web-test-"));
try {
  const names = readdirSync(join(ROOT, "test")).filter((name) => name.endsWith(".test.ts"));
  await build({
    absWorkingDir: ROOT,
    entryPoints: names.map((name) => join("test", name)),
    outdir: out,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node20",
    logLevel: "warning",
  });
  const files = names.map((name) => join(out, name.replace(/\.ts$/, ".mjs")));
  const run = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit", cwd: ROOT });
  process.exitCode = run.status ?? 1;
} finally {
  rmSync(out, { recursive: true });
}
