// Builds the page: src/ -> dist/{index.html,app.js,app.css}. The output is a pure function of the
// sources and the locked packages, so that `--check` can compare it with what is committed.

import { build } from "esbuild";
import { mkdir, mkdtemp, readFile, readdir, rm, copyFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const ROOT = dirname(fileURLToPath(import.meta.url));
const DIST = join(ROOT, "dist");
const FILES = ["app.css", "app.js", "index.html"];
/** Most bytes of the whole page, compressed as for transfer. */
const GZIP_BYTES_MAX = 80 * 1024;

/**
 * Parts of uPlot that the page does not use, with their replacements, so that code which only these
 * parts need is not in the bundle.
 */
const UNUSED_IN_UPLOT = [
  ["(paths.stepped = stepped);", ""],
  ["(paths.bars    = bars);", ""],
  ["(paths.spline  = monotoneCubic);", ""],
  ["uPlot.join = join;", ""],
  ["uPlot.rangeLog = rangeLog;", ""],
  ["uPlot.rangeAsinh = rangeAsinh;", ""],
  // The legend, the texts of dates, and axes that are not linear.
  ["const showLegend = legend.show;", "const showLegend = false;"],
  ["const _fmtDate = (opts.fmtDate || fmtDate);", ""],
  ["uPlot.fmtDate = fmtDate;", ""],
  ["\n\t\t_timeAxisStamps,\n", "\n\t\tnull,\n"],
  ["timeAxisVals(_tzDate, timeAxisStamps((ms == 1 ? _timeAxisStampsMs : _timeAxisStampsS), _fmtDate))", "numAxisVals"],
  ["timeAxisVals(_tzDate, timeAxisStamps(av, _fmtDate))", "numAxisVals"],
  ["timeAxisVal(_tzDate, av)", "numAxisVals"],
  ["timeSeriesVal(_tzDate, timeSeriesStamp(_timeSeriesStamp, _fmtDate))", "numSeriesVal"],
  ["(isStr(sv) ? timeSeriesVal(_tzDate, timeSeriesStamp(sv, _fmtDate)) : sv || _timeSeriesVal)", "sv || _timeSeriesVal"],
  ["sc.distr == 3 ? logAxisSplits : sc.distr == 4 ? asinhAxisSplits : numAxisSplits", "numAxisSplits"],
];

/**
 * Builds uPlot without these parts. Each text must occur exactly once, so that another version of
 * uPlot is examined again.
 */
const leaner = {
  name: "leaner-uplot",
  setup({ onLoad }) {
    onLoad({ filter: /uPlot\.esm\.js$/ }, async ({ path }) => {
      let contents = await readFile(path, "utf8");
      for (const [text, instead] of UNUSED_IN_UPLOT) {
        if (contents.split(text).length !== 2) throw new Error(`uPlot does not have ${text} once: see UNUSED_IN_UPLOT`);
        contents = contents.replace(text, instead);
      }
      return { contents };
    });
    onLoad({ filter: /uPlot\.min\.css$/ }, async ({ path }) => {
      const rules = (await readFile(path, "utf8")).split("}");
      return { contents: rules.filter((rule) => !/\.u-(legend|inline|series|title|marker|value)/.test(rule)).join("}"), loader: "css" };
    });
  },
};

async function bundle(outdir) {
  await mkdir(outdir, { recursive: true });
  await build({
    absWorkingDir: ROOT,
    entryPoints: { app: "src/main.tsx" },
    outdir,
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022"],
    charset: "utf8",
    legalComments: "none",
    banner: { js: "/* barograph, Apache-2.0; with preact, @preact/signals and uPlot, MIT (web/LICENSES.md) */" },
    logLevel: "warning",
    plugins: [leaner],
  });
  await copyFile(join(ROOT, "src/index.html"), join(outdir, "index.html"));
}

async function check() {
  const fresh = await mkdtemp(join(tmpdir(), "barograph-web-"));
  try {
    await bundle(fresh);
    const committed = (await readdir(DIST)).sort();
    if (committed.join() !== FILES.join()) {
      throw new Error(`web/dist holds ${committed.join(", ")}; expected ${FILES.join(", ")}`);
    }
    for (const file of FILES) {
      const [want, have] = await Promise.all([readFile(join(fresh, file)), readFile(join(DIST, file))]);
      if (!want.equals(have)) {
        throw new Error(`web/dist/${file} is not what the sources build: run npm run build and commit it`);
      }
    }
  } finally {
    await rm(fresh, { recursive: true });
  }
}

async function size() {
  let bytes = 0;
  for (const file of FILES) bytes += gzipSync(await readFile(join(DIST, file)), { level: 6 }).length;
  if (bytes > GZIP_BYTES_MAX) {
    throw new Error(`the page is ${bytes} bytes compressed; at most ${GZIP_BYTES_MAX}`);
  }
  return bytes;
}

try {
  if (process.argv.includes("--check")) await check();
  else await bundle(DIST);
  console.log(`web/dist: ${await size()} bytes compressed`);
} catch (error) {
  console.error(String(error.message ?? error));
  process.exitCode = 1;
}
