// Builds the page: src/ -> dist/{index.html,app.js,app.css,later.js}. The output is a pure function of the
// sources and the locked packages, so that `--check` can compare it with what is committed.

import { build, transform } from "esbuild";
import { mkdir, mkdtemp, readFile, readdir, rm, copyFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const ROOT = dirname(fileURLToPath(import.meta.url));
const DIST = join(ROOT, "dist");
/**
 * The files by the time at which they are loaded: at once, or when a view of theirs is opened; with
 * the most bytes of each part, compressed as for transfer.
 */
const PARTS = [
  { name: "at first", files: ["app.css", "app.js", "index.html"], bytesMax: 80 * 1024 },
  // Eight views, of which Doctor opens six. The servers of programs came last, with their epochs and
  // loads: they took it from 18 to 20 KiB, though the time lines of Doctor have become one.
  { name: "later", files: ["later.js"], bytesMax: 20 * 1024 },
];
/** Modules with classes that others ask for by `instanceof`, and that src/shared.ts does not name. */
const WITH_CLASSES = ["src/text/json.ts", "src/data/ring.ts"];
const FILES = PARTS.flatMap((part) => part.files);

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
  ["const showLegend = legend.show;", ""],
  ["const _fmtDate = (opts.fmtDate || fmtDate);", ""],
  ["uPlot.fmtDate = fmtDate;", ""],
  ["uPlot.tzDate  = tzDate;", ""],
  ["\n\t\t_timeAxisStamps,\n", "\n\t\tnull,\n"],
  ["timeAxisVals(_tzDate, timeAxisStamps((ms == 1 ? _timeAxisStampsMs : _timeAxisStampsS), _fmtDate))", "numAxisVals"],
  ["timeAxisVals(_tzDate, timeAxisStamps(av, _fmtDate))", "numAxisVals"],
  ["timeAxisVal(_tzDate, av)", "numAxisVals"],
  ["timeSeriesVal(_tzDate, timeSeriesStamp(_timeSeriesStamp, _fmtDate))", "numSeriesVal"],
  ["(isStr(sv) ? timeSeriesVal(_tzDate, timeSeriesStamp(sv, _fmtDate)) : sv || _timeSeriesVal)", "sv || _timeSeriesVal"],
  ["sc.distr == 3 ? logAxisSplits : sc.distr == 4 ? asinhAxisSplits : numAxisSplits", "numAxisSplits"],
  ["(sc.distr == 3 ? snapLogX : sc.distr == 4 ? snapAsinhX : snapNumX)", "snapNumX"],
  ["(sc.distr == 3 ? snapLogY : sc.distr == 4 ? snapAsinhY : snapNumY)", "snapNumY"],
  ["sc.distr >= 3 && sc.log == 10 ? log10AxisValsFilt : sc.distr == 3 && sc.log == 2 ? log2AxisValsFilt : retArg1", "retArg1"],
  ["sc.distr == 3   ? val => log10(val > 0 ? val : sc.clamp(self, val, sc.min, sc.max, sc.key)) :", ""],
  ["sc.distr == 4   ? val => asinh(val, sc.asinh) :", ""],
  ["sc.distr == 100 ? val => sc.fwd(val) :", ""],
  ["distr == 3 ? log10(sc.min) : distr == 4 ? asinh(sc.min, sc.asinh) : distr == 100 ? sc.fwd(sc.min) : sc.min", "sc.min"],
  ["distr == 3 ? log10(sc.max) : distr == 4 ? asinh(sc.max, sc.asinh) : distr == 100 ? sc.fwd(sc.max) : sc.max", "sc.max"],
  ["distr == 3 ? pow(10, sv) :", ""],
  ["distr == 4 ? sinh(sv, sc.asinh) :", ""],
  ["distr == 100 ? sc.bwd(sv) :", ""],
  ["genIncrs(2, -53, 53, [1]);", ""],
  // Times in milliseconds, charts without a common axis of x, and zooming by uPlot itself.
  ["const [ timeIncrsMs, _timeAxisStampsMs, timeAxisSplitsMs ] = genTimeStuffs(1);", ""],
  ["(ms == 1 ? timeIncrsMs : timeIncrsS)", "timeIncrsS"],
  ["(ms == 1 ? timeAxisSplitsMs(_tzDate) : timeAxisSplitsS(_tzDate))", "timeAxisSplitsS(_tzDate)"],
  ["if (drag.setScale && hasSelect && chgSelect) {", "if (false) {"],
  ["const cursorFocus = focus.prox >= 0;", ""],
  // Series and bands that come and go, or are hidden.
  ["self.setSeries = setSeries;", ""],
  ["idx != -1 && setSeries(idx, opts, true, false);", ""],
  ["self.addSeries = addSeries;", ""],
  ["self.delSeries = delSeries;", ""],
  ["self.addBand = addBand;", ""],
  ["self.setBand = setBand;", ""],
  ["self.delBand = delBand;", ""],
  ["self.posToIdx = closestIdxFromXpos;", ""],
];

/**
 * Conditions of uPlot that always have this value on the page, and its functions that nothing calls
 * then.
 */
const CONSTANT_IN_UPLOT = [
  [/\b(showLegend|cursorFocus|mode == 2)\b/g, "false"],
  [/\bmode == 1\b/g, "true"],
];
const UNCALLED_IN_UPLOT = ["initLegendRow", "syncLegend", "setLegendValues", "setSeries", "toggleDOM", "setFocus", "setAlpha", "addSeries", "delSeries", "addBand", "setBand", "delBand", "closestIdxFromXpos"];

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
      for (const [condition, value] of CONSTANT_IN_UPLOT) contents = contents.replace(condition, value);
      for (const name of UNCALLED_IN_UPLOT) {
        const lines = new RegExp(`\\n\\tfunction ${name}\\([^]*?\\n\\t}\\n`);
        if (!lines.test(contents)) throw new Error(`uPlot does not have ${name}: see UNCALLED_IN_UPLOT`);
        contents = contents.replace(lines, "\n");
      }
      return { contents };
    });
    onLoad({ filter: /uPlot\.min\.css$/ }, async ({ path }) => {
      const rules = (await readFile(path, "utf8")).split("}");
      return { contents: rules.filter((rule) => !/\.u-(legend|inline|series|title|marker|value)/.test(rule)).join("}"), loader: "css" };
    });
  },
};

/**
 * What the second bundle imports from src/shared.ts, and the functions behind JSX, it takes from the
 * first bundle; its styles are a text that it adds itself.
 */
const second = {
  name: "second-bundle",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /^(\.{1,2}\/)+shared$|^preact\/jsx-runtime$/ }, () => ({ path: "./app.js", external: true }));
    onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { code } = await transform(await readFile(path, "utf8"), { loader: "css", minify: true });
      return { contents: code, loader: "text" };
    });
  },
};

async function bundle(outdir) {
  await mkdir(outdir, { recursive: true });
  const common = {
    absWorkingDir: ROOT,
    outdir,
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022"],
    charset: "utf8",
    legalComments: "none",
    logLevel: "warning",
    metafile: true,
  };
  const banner = { js: "/* barograph, Apache-2.0; with preact, @preact/signals and uPlot, MIT (web/LICENSES.md) */" };
  const first = await build({ ...common, entryPoints: { app: "src/main.tsx" }, banner, plugins: [leaner] });
  const later = await build({ ...common, entryPoints: { later: "src/later.ts" }, plugins: [second] });
  // A second copy of a module with a state would have a state of its own, and one with a class would
  // not know the objects of the first.
  const handed = first.metafile.inputs["src/shared.ts"].imports.map(({ path }) => path);
  const twice = [...handed, ...WITH_CLASSES].filter((path) => later.metafile.inputs[path] !== undefined);
  if (twice.length > 0) throw new Error(`later.js has a copy of ${twice.join(", ")}: import it from src/shared.ts`);
  await copyFile(join(ROOT, "src/index.html"), join(outdir, "index.html"));
}

async function check() {
  const fresh = await mkdtemp(join(tmpdir(), "barograph-web-"));
  try {
    await bundle(fresh);
    const committed = (await readdir(DIST)).sort();
    if (committed.join() !== [...FILES].sort().join()) {
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

/** The size of each part in words; an error if one is too large. */
async function sizes() {
  const texts = [];
  for (const { name, files, bytesMax } of PARTS) {
    let bytes = 0;
    for (const file of files) bytes += gzipSync(await readFile(join(DIST, file)), { level: 6 }).length;
    if (bytes > bytesMax) throw new Error(`what is loaded ${name} is ${bytes} bytes compressed; at most ${bytesMax}`);
    texts.push(`${bytes} bytes ${name}`);
  }
  return texts.join(", ");
}

try {
  if (process.argv.includes("--check")) await check();
  else await bundle(DIST);
  console.log(`web/dist: compressed: ${await sizes()}`);
} catch (error) {
  console.error(String(error.message ?? error));
  process.exitCode = 1;
}
