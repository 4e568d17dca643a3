// A stand-in for the agent, only for tests of the page: it serves web/dist and answers by the HTTP
// contract (docs/design/0001-one-node.md) with data of the scenarios. Its SQL knows a few forms.
//
//   node fake-agent.mjs [calm|busy|broken] [port]

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { answerEvents, commandAction, deadOf, queueOf } from "./fake-events.mjs";
import { answerApplications } from "./fake-sql.mjs";
import { controllersOf, decisionsOf, switchOf, phasesOf, archiveOf, insightsOf, mapsOf, mirrorsOf, sourcesOf, streamsOf, mirroredOf } from "./scenarios.mjs";

const DIST = join(dirname(fileURLToPath(import.meta.url)), "../../web/dist");
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8" };
/** The header that the real agent sends with the page. */
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HISTORY_MS = 15 * 60_000;
/** The age of the archive, and the times before now at which the node was off. */
const ARCHIVE_MS = 12 * 86_400_000;
const OFF_MS = [[9 * 3_600_000, 7 * 3_600_000], [5.5 * 86_400_000, 4 * 86_400_000]];
export const TOKEN = "fake-control-token";
const ns = (ms) => Number(`${Math.round(ms)}000000`);

const glob = (pattern) => new RegExp(`^${pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".")}$`);

function matcher(text) {
  const [, name, rest] = /^([^{]*)(?:\{(.*)\})?$/.exec(text) ?? [];
  const labels = (rest ?? "").split(",").filter(Boolean).map((pair) => pair.split("="));
  return (s) => glob(name ?? "").test(s.name) && labels.every(([k, v]) => s.labels[k] !== undefined && glob(v).test(s.labels[k]));
}

/**
 * Starts a fake agent; `port` 0 takes a free one. `kill` drops every connection at once, like a
 * dying process; `streams` continues the streams of another fake agent.
 */
export async function startFakeAgent({ scenario = "calm", port = 0, devices = 0, streams } = {}) {
  const start = Date.now() - HISTORY_MS;
  const state = { scenario, start, streams: streams ?? streamsOf(scenario, start), insights: insightsOf(scenario), mirrors: mirrorsOf(scenario, start), dead: deadOf(scenario, start), queue: queueOf(scenario), seen: [], statements: [], acts: [] };
  for (let i = 0; i < devices; i += 1) state.streams.push(...manyDisks(state.streams, i));
  const server = createServer((request, response) => {
    state.seen.push(request.url);
    handle(state, request, response).catch((error) => fail(response, 500, "internal", String(error)));
  });
  await new Promise((resolve, reject) => server.once("error", reject).listen(port, "127.0.0.1", resolve));
  const bound = server.address().port;
  return {
    url: `http://127.0.0.1:${bound}`,
    port: bound,
    state,
    silence: (ms) => silence(state, ms),
    kill: () => new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    }),
  };
}

/** Nothing is heard of lab-4 since this time in ms; undefined when it is heard again. */
function silence(state, ms) {
  state.silence = ms;
  for (const s of state.mirrors["lab-4"]) s.blind = ms === undefined ? undefined : [ms, Infinity];
}

/** Another copy of the disk streams under another name, for a sheet of many strips. */
function manyDisks(streams, i) {
  return streams.filter((s) => s.labels.device === "sda").map((s) => ({ ...s, labels: { device: `sd${i}` }, at: (t) => s.at(t + i * 91_000) }));
}

function fail(response, status, kind, message) {
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify({ error: { kind, message } }));
}

async function handle(state, request, response) {
  const url = new URL(request.url, "http://localhost");
  const json = (value) => response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(value));
  const matches = url.searchParams.getAll("match").map(matcher);
  const node = url.searchParams.get("node") ?? "lab-3";
  const all = node === "lab-3" ? state.streams : state.mirrors[node];
  if (all === undefined && url.pathname.startsWith("/api/")) return fail(response, 404, "unknown", `no node ${node} is mirrored here (mirrored: ${Object.keys(state.mirrors).join(", ") || "none"})`);
  const ever = () => all.filter((s) => matches.length === 0 || matches.some((m) => m(s)));
  // Streams that have ended are only in the archive.
  const chosen = () => ever().filter((s) => !(s.until < Date.now()));
  switch (url.pathname) {
    case "/healthz": return json({ status: "ok", node: "lab-3", incarnation: "0" });
    case "/api/v1/status": return json(statusOf(state));
    case "/api/v1/streams": return json(chosen().map(describe));
    case "/api/v1/latest": return json(chosen().map((s) => latestOf(s, Date.now())));
    case "/api/v1/history": return url.searchParams.has("points") || url.searchParams.has("step") ? json(ever().map((s) => ({ ...bucketsOf(s, url.searchParams), node }))) : json(ever().map((s) => historyOf(s, Number(url.searchParams.get("start") ?? 0) / 1e6)));
    case "/api/v1/watch": return watch(chosen(), request, response);
    case "/api/v1/sources": return json(sourcesOf(state.scenario));
    case "/api/v1/insights": return request.method === "POST" ? change(state, request, response, json) : json(state.insights);
    case "/api/v1/insights/test": return json({ rows: [{ device: "vda", value: 0.42 }, { device: "sda", value: 0.07 }] });
    case "/api/v1/control/phases": return mayControl(request, response) ? json({ volumes: ["scratch"], phases: phasesOf(state.scenario, state.start) }) : undefined;
    case "/api/v1/control/maps": return mayControl(request, response) ? json({ maps: mapsOf(state.scenario) }) : undefined;
    case "/api/v1/control/list": return mayControl(request, response) ? json({ controllers: controllersOf(state), archive: { lost: 0, trouble: "" } }) : undefined;
    case "/api/v1/control/pause": case "/api/v1/control/resume": case "/api/v1/control/dry-run": return mayControl(request, response) ? json({ controller: switchOf(state, url.pathname, JSON.parse(await textOf(request))) }) : undefined;
    case "/api/v1/control/decisions": return mayControl(request, response) ? json({ decisions: decisionsOf(state.scenario, state.start), mode: "live", weights: "controllers", refused: 0 }) : undefined;
    case "/api/v1/actions": return act(state, request, response, json);
    case "/api/v1/sql": return answerSql(state, await body(request), response, json);
    default: return file(url.pathname, response);
  }
}

async function textOf(request) {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text;
}

async function body(request) {
  const text = await textOf(request);
  return text.startsWith("{") ? JSON.parse(text).sql : text;
}

async function file(path, response) {
  const name = path === "/" ? "index.html" : path.slice(1);
  if (!["index.html", "app.js", "app.css", "later.js"].includes(name)) return fail(response, 404, "unknown", `no page ${path}`);
  const bytes = await readFile(join(DIST, name));
  return response.writeHead(200, { "Content-Type": TYPES[extname(name)], "Content-Security-Policy": CSP }).end(bytes);
}

function statusOf(state) {
  return {
    node: "lab-3", version: "0.1.0", incarnation: "0", pid: 1, started_ts: ns(state.start), now_ts: ns(Date.now()), streams: state.streams.length,
    streams_max: 16384, samples: 812_000, sources_up: 6, sources: 7, run_dir: "/dev/shm/barograph-1000", http: "127.0.0.1:7070",
    archive: archiveOf(state.scenario, Date.now() - ARCHIVE_MS),
  };
}

const describe = (s) => ({ name: s.name, labels: s.labels, type: s.type, unit: s.unit, kind: s.kind, help: s.help, id: "0", depth: 1024, samples: s.samples?.(Date.now()) ?? 900, interval_ns: s.interval_ms * 1e6 });

/** The last look at a stream up to `now`; within a gap that a test made, the look before it. */
function lookOf(s, now) {
  const at = (t) => s.looked(Math.floor((t - 137) / 1000) * 1000 + 137);
  return s.blind !== undefined && now > s.blind[0] && now < s.blind[1] ? at(s.blind[0]) : at(now);
}

/** Whether a stream exists at `t`: an application's begins and ends with it. */
const lives = (s, t) => !(t < s.since || t > s.until);

/** Time and value of second `k` of a stream; undefined if it was not looked at. */
function sampleAt(s, second) {
  const ts = second * 1000 + 137;
  return lookOf(s, ts) < ts || !lives(s, ts) ? undefined : { ts, value: s.at(ts) };
}

function latestOf(s, now) {
  const looked = lookOf(s, now);
  return { name: s.name, labels: s.labels, ts: ns(looked), value: s.at(looked), quality: s.quality === 1 ? "derived" : "measured", error: 0, age_ns: ns(now - looked), looked_ts: ns(looked), unit: s.unit };
}

/** The changes of a stream since `from`, which is all that the agent keeps. */
function historyOf(s, from) {
  const out = { name: s.name, labels: s.labels, unit: s.unit, kind: s.kind, interval_ns: s.interval_ms * 1e6, ts: [], value: [], quality: [] };
  const now = Date.now();
  let last;
  for (let second = Math.ceil(Math.max(from, now - HISTORY_MS) / 1000); second * 1000 + 137 <= now; second += 1) {
    const sample = sampleAt(s, second);
    if (sample === undefined || sample.value === last) continue;
    out.ts.push(ns(sample.ts));
    out.value.push((last = sample.value));
    out.quality.push(s.quality);
  }
  return out;
}

/** The steps from which `points` chooses, in seconds. */
const LADDER_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
/** Number of looks in a bucket. */
const LOOKS_A_BUCKET = 12;

/**
 * Buckets, computed from the stream's function; none while the node was off, or before the archive
 * began.
 */
function bucketsOf(s, params) {
  const now = Date.now();
  const [from, to] = ["start", "stop"].map((name) => Number(params.get(name)) / 1e6);
  const fits = (step) => Math.floor((to - 1) / step) - Math.floor(from / step) + 1 <= Number(params.get("points"));
  // Around midnight a short stretch may need steps of several days to be in one bucket.
  const days = Array.from({ length: 1_000 }, (_, more) => (more + 2) * 86_400);
  const step = params.has("step") ? Number(params.get("step").replace("ms", "")) : [...LADDER_S, ...days].map((seconds) => seconds * 1000).find(fits);
  const out = { name: s.name, labels: s.labels, node: "lab-3", unit: s.unit, kind: s.kind, interval_ns: s.interval_ms * 1e6, step_ns: step * 1e6, ts: [], count: [], held_ns: [], min: [], max: [], mean: [], last: [] };
  const kept = (t) => t > now - ARCHIVE_MS && t <= lookOf(s, now) && lives(s, t) && !OFF_MS.some(([before, until]) => t > now - before && t < now - until);
  for (let start = Math.floor(from / step) * step; start < to; start += step) {
    const looks = Array.from({ length: LOOKS_A_BUCKET }, (_, i) => start + (i * step) / LOOKS_A_BUCKET).filter(kept);
    if (looks.length === 0) continue;
    const values = looks.map((t) => Number(s.at(t)));
    out.ts.push(ns(start));
    out.count.push(Math.ceil((looks.length / LOOKS_A_BUCKET) * (step / (s.interval_ms || 1000))));
    out.held_ns.push(Math.round((looks.length / LOOKS_A_BUCKET) * step * 1e6));
    out.min.push(Math.min(...values));
    out.max.push(Math.max(...values));
    out.mean.push(values.reduce((sum, v) => sum + v, 0) / values.length);
    out.last.push(values.at(-1));
  }
  return out;
}

/** Since when nobody has looked at any of the streams, which are those of a node; undefined if somebody does. */
const silentSince = (streams) => (streams.length > 0 && streams.every((s) => s.blind?.[1] === Infinity) ? streams[0].blind[0] : undefined);

function watch(streams, request, response) {
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  const send = (event, data) => response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  send("streams", streams.map((s, index) => ({ index, ...describe(s) })));
  const last = new Map();
  let isStale = false;
  const tick = () => {
    const now = Date.now();
    const samples = [];
    const looked = [];
    const since = silentSince(streams);
    if (since !== undefined) {
      if (!isStale) send("stale", { since: ns(since) });
      isStale = true;
      return;
    }
    isStale = false;
    streams.forEach((s, index) => {
      const at = lookOf(s, now);
      const value = s.at(at);
      // A new client gets the newest sample of each stream, with the time of its change.
      const ts = last.has(index) ? ns(at) : (historyOf(s, 0).ts.at(-1) ?? ns(at));
      if (last.get(index) !== value) samples.push([index, ts, value, s.quality === 1 ? "derived" : "measured", 0]);
      last.set(index, value);
      looked.push([index, ns(at)]);
    });
    send("tick", { ts: ns(now), samples, looked });
  };
  tick();
  const timer = setInterval(tick, 1000);
  request.on("close", () => clearInterval(timer));
}

/** Whether a request has the right to control; if not, it is refused. */
function mayControl(request, response) {
  const { authorization } = request.headers;
  if (authorization === `Bearer ${TOKEN}`) return true;
  fail(response, authorization === undefined ? 401 : 403, "refused", "control needs the token of control.token");
  return false;
}

async function act(state, request, response, json) {
  if (!mayControl(request, response)) return undefined;
  const asked = JSON.parse(await textOf(request));
  state.acts.push(asked);
  const { fault, ...answer } = commandAction(state, asked);
  return fault === undefined ? json(answer) : fail(response, 404, "unknown", fault);
}

async function change(state, request, response, json) {
  if (!mayControl(request, response)) return undefined;
  const sql = await body(request);
  const drop = /^\s*DROP\s+INSIGHT\s+(\S+)/i.exec(sql);
  if (drop !== null) {
    state.insights = state.insights.filter((one) => one.name !== drop[1]);
    return json({ name: drop[1] });
  }
  const create = /^\s*CREATE\s+INSIGHT\s+(\S+)\s+AS\s+SELECT[\s\S]+?FROM\s+(\w+)/i.exec(sql);
  if (create === null) return fail(response, 400, "statement", "an insight is CREATE INSIGHT name AS SELECT … FROM metric");
  const made = { ...state.insights[0], name: create[1], table: create[1].replaceAll(".", "_"), sql, builtin: false, inputs: [create[2].replaceAll("_", ".")], groups: 0, help: "" };
  state.insights = [...state.insights, made];
  return json(made);
}

/** The newest values of this node's streams, as the Nodes view reads them, and those of mirrored nodes. */
function ofNodes({ streams, scenario }) {
  const of = (s) => ["lab-3", s.name, JSON.stringify(s.labels), latestOf(s, Date.now()).value];
  const named = streams.filter((s) => /^(node\.outlook|disk\.(busy|read|write)|tier|filesystem)\./.test(s.name));
  return { columns: ["node", "name", "labels", "value"], rows: [...named.map(of), ...mirroredOf(scenario)], elapsed_ns: 400_000 };
}

function answerSql(state, sql, response, json) {
  state.statements.push(sql);
  const known = answerEvents(state, sql) ?? answerApplications(state, sql);
  if (known !== undefined) return json(known);
  const table = /\bfrom\s+(\w+)/i.exec(sql)?.[1] ?? "";
  const columns = (s) => ["ts", "value", "quality", "error", "node", "newest", ...Object.keys(s.labels)];
  const byTable = new Map(state.streams.map((s) => [s.name.replaceAll(".", "_"), s]));
  if (table === "tables") {
    const rows = [...byTable].map(([name, s]) => [name, columns(s).join(", ")]);
    return json({ columns: ["name", "columns"], rows, elapsed_ns: 41_000 });
  }
  if (table === "archive") return json({ columns: ["bytes", "samples"], rows: [[1_140_000_000, 367_000_000]], elapsed_ns: 900_000 });
  if (table === "latest" && / in \(/i.test(sql)) return json(ofNodes(state));
  if (table === "latest") {
    const rows = state.streams.slice(0, 50).map((s) => [s.name, JSON.stringify(s.labels), latestOf(s, Date.now()).value, s.unit]);
    return json({ columns: ["name", "labels", "value", "unit"], rows, elapsed_ns: 187_000 });
  }
  if (!byTable.has(table)) return fail(response, 400, "statement", `no such table: ${table} (near: disk_busy_ratio)`);
  const same = state.streams.filter((s) => s.name.replaceAll(".", "_") === table && !s.labels.device?.startsWith("loop"));
  const label = Object.keys(same[0].labels)[0];
  const rows = same.flatMap((s) => historyOf(s, Date.now() - 300_000).ts.map((ts) => [ts, s.labels[label] ?? "all", s.at(ts / 1e6)]));
  const text = JSON.stringify({ columns: ["ts", label ?? "what", "busy"], rows, elapsed_ns: 2_310_000 });
  return response.writeHead(200, { "Content-Type": "application/json" }).end(text);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const agent = await startFakeAgent({ scenario: process.argv[2] ?? "calm", port: Number(process.argv[3] ?? 7071) });
  console.log(`fake agent: ${agent.url}`);
}
