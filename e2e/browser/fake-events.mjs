// The file events, rules and actions of the fake agent. In the calm node no tree is watched, the busy
// one has a pipeline with two failed actions, and in the broken one names are hostile, a rule and a
// watch have failed, and many actions.

import { noise } from "./scenarios.mjs";

const ns = (ms) => Number(`${Math.round(ms)}000000`);
const table = (columns, rows) => ({ columns, rows: rows.map((row) => columns.map((name) => row[name] ?? null)), elapsed_ns: 310_000 });

const LONG = `/scratch/${"very-long-name-".repeat(60)}`;
/** Names that must do no harm: of controls, of the other direction, of markup, of bytes that are no UTF-8. */
export const HOSTILE = ["/scratch/\u001b[31mred\u0007/", "/scratch/\u202egnp.exe/", "/scratch/<img src=x onerror=alert(1)>/", "/scratch/it's \ufffd\ufffd\n two lines/", "/scratch/\u05e9\u05dc\u05d5\u05dd \u0645\u0644\u0641/", `${LONG}/`];

/** Directories of a scenario, each with its mean number of events a second, and the kinds of these. */
function directoriesOf(scenario) {
  if (scenario === "calm") return [];
  const pipeline = [
    ["/data/in/camera-1/", 9, ["create", "write", "close_write"]], ["/data/in/camera-2/", 5, ["create", "write", "close_write"]],
    ["/data/small/", 2.5, ["create", "close_write"]], ["/data/in/", 0.4, ["mkdir", "rename"]], ["/project/job-4711/checkpoints/", 0.2, ["write", "close_write", "unlink"]], ["/project/job-4711/", 0.02, ["attrib"]],
  ];
  if (scenario === "busy") return pipeline;
  return [...pipeline.slice(0, 1), ...HOSTILE.map((path, i) => [path, 3 / (i + 1), ["create", "close_write"]]), ["", 0.01, ["gap"]]];
}

/** Number of events of a directory in a second: bursts with pauses in between. */
function countAt([path, rate], second) {
  const seed = path.length + path.charCodeAt(path.length - 2 || 0);
  const isPause = noise(second >> 5, seed) > 0.75;
  return isPause ? 0 : Math.floor(rate * (0.4 + noise(second >> 3, seed)) + noise(second, seed + 1));
}

const BOUNDS = /ts >= (\d+) AND ts <= (\d+)/;
const secondsOf = (sql) => BOUNDS.exec(sql).slice(1).map((text) => Math.floor(Number(text) / 1e9));

function counted(scenario, sql) {
  const [from, to] = secondsOf(sql);
  const stepS = Number(/ \/ (\d+) AS slot/.exec(sql)[1]) / 1e9;
  const all = directoriesOf(scenario).flatMap((directory) => {
    const [dir, , names] = directory;
    const slots = new Map();
    let newest = 0;
    for (let second = from; second <= to; second += 1) {
      const n = countAt(directory, second);
      if (n === 0) continue;
      const slot = Math.floor((second - from) / stepS);
      slots.set(slot, (slots.get(slot) ?? 0) + n);
      newest = second;
    }
    const n = [...slots.values()].reduce((sum, one) => sum + one, 0);
    const kinds = names.map((name, i) => `${name}:${Math.floor(n / names.length) + (i < n % names.length ? 1 : 0)}`).join(",");
    return n === 0 ? [] : [{ dir, n, newest: ns(newest * 1000), slots: [...slots].map((pair) => pair.join(":")).join(","), kinds }];
  });
  all.sort((a, b) => b.n - a.n);
  const total = all.reduce((sum, { n }) => sum + n, 0);
  const rows = all.slice(0, 40).map((row) => ({ ...row, directories: all.length, total, oldest: ns((to - 40) * 1000) }));
  return table(["dir", "n", "newest", "slots", "kinds", "directories", "total", "oldest"], rows);
}

function newest(scenario, sql) {
  const [from, to] = secondsOf(sql);
  const chosen = /= '((?:[^']|'')*)' LIMIT/.exec(sql)?.[1].replaceAll("''", "'");
  const rows = [];
  for (let second = to; second >= from && rows.length < 12; second -= 1) {
    for (const directory of directoriesOf(scenario).filter(([path]) => chosen === undefined || path === chosen)) {
      const [dir, , kinds] = directory;
      const kind = kinds[second % kinds.length];
      if (countAt(directory, second) === 0) continue;
      const path = dir === "" ? null : `${dir}frame-${second % 1000}.tif`;
      rows.push({ ts: ns(second * 1000), kind, path, old_path: kind === "rename" ? `${dir}.frame-${second % 1000}.part` : null, size: dir === "" ? null : 1 << (12 + (second % 12)), uid: 1000, job: dir.startsWith("/project") ? "4711" : null, idx: second, source: `data${dir.length}`, quality: second % 17 === 0 ? "reconciled" : "measured", complete: 1 });
    }
  }
  return table(["ts", "kind", "path", "old_path", "size", "uid", "job", "idx", "source", "quality", "complete"], rows.slice(0, 12));
}

/** The failed actions at the start, with the path of the event of each; null if it is not found. */
export function deadOf(scenario, start) {
  const one = (id, rule, path, reason) => ({ id, rule, source: "data", idx: 1000 + id, attempts: 1 + (id % 3), reason, enqueued_ts: start + 600_000 + id * 1000, ended_ts: start + 700_000 + id * 1000, path });
  if (scenario === "calm") return [];
  const two = [one(41, "thumbnails", "/data/in/camera-1/frame-17.tif", "the program ended with code 1"), one(40, "verify", null, "the program took longer than 10 min and was ended")];
  if (scenario === "busy") return two;
  return [...two, ...Array.from({ length: 60 }, (_, i) => one(39 - i + 100, "evil", `${HOSTILE[i % HOSTILE.length]}name`, "no such program: \u001b]0;owned\u0007/usr/local/bin/verify\u202e"))];
}

const EVENT_RULE = "CREATE RULE thumbnails HELP 'a small picture of each image'\n    ON EVENT close_write WHERE path GLOB '/data/in/*.tif' AND size > 0\n    THEN RUN '/usr/local/bin/thumbnail' '{path}' '/data/small/{stem}.png'";

function rulesOf(scenario, start) {
  if (scenario === "calm") return [];
  const one = (name, more) => ({ name, call: `run /usr/local/bin/${name} {path}`, sql: EVENT_RULE.replace("thumbnails", name), help: "a small picture of each image", state: "armed", reason: "", fired: 0, suppressed: 0, failed: 0, missed: 0, last_fired_ts: null, ...more });
  const onStreams = one("full.disk", { sql: "CREATE RULE full.disk WHEN latest('disk.busy.ratio') > 0.9 CALL 'on event'", call: "on event" });
  const all = [onStreams, one("thumbnails", { fired: 18_412, suppressed: 3, failed: 1, last_fired_ts: Date.now() - 800, call: "run /usr/local/bin/thumbnail {path} /data/small/{stem}.png" }), one("verify", { fired: 921, failed: 1, last_fired_ts: start + 500_000 }), one("notify", {})];
  if (scenario === "busy") return all;
  return [...all, one("evil", { state: "failed", reason: "20000 actions of the rule wait: events are not acted on", fired: 20_061, failed: 60, missed: 4120, last_fired_ts: start + 700_000 })];
}

function watchesOf(scenario) {
  if (scenario === "calm") return [];
  const one = (name, path, more) => ({ name, path, collector: "inotify", state: "live", events: 88_210, gaps: 0, reconciled: 0, waiting_bytes: 0, trouble: "", ...more });
  const data = one("data", "/data");
  if (scenario === "busy") return [data, one("project", "/project", { collector: "fanotify", state: "walking", events: 4102, waiting_bytes: 9000 })];
  return [one("scratch", "/scratch", { gaps: 2, reconciled: 417 }), one("tape", "/mnt/tape\u202e", { state: "failed", events: 0, trouble: "cannot watch /mnt/tape: No space left on device: raise fs.inotify.max_user_watches" }), data];
}

function causes(dead, sql) {
  const rows = [...sql.matchAll(/\('((?:[^']|'')*)', (\d+), \d+, \d+\)/g)].flatMap(([, source, idx]) => {
    const path = dead.find((one) => String(one.idx) === idx)?.path ?? null;
    return path === null ? [] : [{ source, idx: Number(idx), kind: "close_write", path }];
  });
  return table(["source", "idx", "kind", "path"], rows);
}

/** The answer to a statement of the Events view; undefined for other statements. */
export function answerEvents({ scenario, start, dead, queue }, sql) {
  const is = (text) => sql.includes(text);
  if (is("FROM tables WHERE name IN ('events', ")) return table(["name"], ["events", "rules", "actions", "watches"].map((name) => ({ name })));
  if (is(" AS slot")) return counted(scenario, sql);
  if (is("FROM a JOIN events")) return causes(dead, sql);
  if (is("FROM events")) return newest(scenario, sql);
  if (sql.startsWith("SELECT name, call, sql, help")) {
    const rows = rulesOf(scenario, start).map((row) => ({ ...row, last_fired_ts: row.last_fired_ts === null ? null : ns(row.last_fired_ts) }));
    return table(["name", "call", "sql", "help", "state", "reason", "fired", "suppressed", "failed", "missed", "last_fired_ts"], rows);
  }
  if (is("FROM watches")) return table(["name", "path", "collector", "state", "events", "gaps", "reconciled", "waiting_bytes", "trouble"], watchesOf(scenario));
  if (is("FROM actions GROUP BY rule, state")) return table(["rule", "state", "n"], queue);
  if (is("FROM actions WHERE state = 'dead'")) {
    const rows = [...dead].sort((a, b) => b.ended_ts - a.ended_ts).slice(0, 50).map((row) => ({ ...row, enqueued_ts: ns(row.enqueued_ts), ended_ts: ns(row.ended_ts), total: dead.length }));
    return table(["id", "rule", "source", "idx", "attempts", "reason", "enqueued_ts", "ended_ts", "total"], rows);
  }
  return undefined;
}

/** Numbers of waiting and running actions of a scenario. */
export const queueOf = (scenario) => ({
  calm: [],
  busy: [{ rule: "thumbnails", state: "waiting", n: 12 }, { rule: "thumbnails", state: "running", n: 4 }, { rule: "verify", state: "done", n: 40 }],
  broken: [{ rule: "evil", state: "waiting", n: 496 }, { rule: "evil", state: "running", n: 4 }],
})[scenario];

/** Does what `{"show": 7}`, `{"retry": 7}` or `{"drop": 7}` asks; a fault in words if it cannot. */
export function commandAction(state, { show, retry, drop }) {
  const id = show ?? retry ?? drop;
  const action = state.dead.find((one) => one.id === id);
  if (action === undefined) return { fault: `there is no action ${id}: \`baro action list\`` };
  if (show !== undefined) return { id, state: "dead", argv: [`/usr/local/bin/${action.rule}`, action.path ?? ""], output: "reading\n\u001b[31mno such file\n" };
  state.dead = state.dead.filter((one) => one !== action);
  if (retry !== undefined) state.queue = [...state.queue, { rule: action.rule, state: "waiting", n: 1 }];
  return { id, state: retry === undefined ? "dropped" : "waiting" };
}
