// The data of the fake agent: streams as functions of time, so that history and live data agree. A
// node has four states: calm, busy (vda saturated, with spikes), broken, and long: names as long as
// a user may make them, in everything that the view Now tells.

const MIB = 1 << 20;
const GIB = 2 ** 30;

/** A path without a place where a line may be broken. */
const LONG = `/mnt/${"averyverylongname".repeat(12)}`;

/** Noise in [0, 1), the same for the same second and seed. */
export function noise(second, seed) {
  let h = Math.imul(second ^ (seed * 0x9e3779b1), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) >>> 0) / 2 ** 32;
}

/** The same noise, but changing smoothly over some seconds. */
function smooth(t, seed, seconds = 4) {
  const x = t / 1000 / seconds;
  const k = Math.floor(x);
  const f = (1 - Math.cos((x - k) * Math.PI)) / 2;
  return noise(k, seed) * (1 - f) + noise(k + 1, seed) * f;
}

/** Slow waves with some noise on them, in [0, 1]. */
function waves(t, seed, rough = 0.25) {
  const s = t / 1000;
  const slow = 0.5 + 0.3 * Math.sin(s / (37 + seed * 5)) + 0.2 * Math.sin(s / (11 + seed * 2) + seed);
  return clamp(slow * (1 - rough) + rough * (0.75 * smooth(t, seed) + 0.25 * noise(Math.floor(s), seed)));
}

const clamp = (v) => Math.min(1, Math.max(0, v));

/** Seconds after the start at which vda becomes saturated in the busy scenario. */
const SATURATED_AFTER = 505;

/** Busy ratio of a device in a scenario, at `t` ms; `start` is when the agent started. */
function busyOf(device, scenario, t, start) {
  const s = Math.floor(t / 1000);
  const seed = SEEDS[device] ?? device.length * 7 + device.charCodeAt(device.length - 1);
  if (device.startsWith("loop")) return 0;
  if (scenario === "busy" && device === "vda") {
    const since = (t - start) / 1000;
    if (since > SATURATED_AFTER) return clamp(0.955 + 0.045 * noise(s, 7) - (s % 53 === 0 ? 0.03 : 0));
    return clamp(0.22 + 0.25 * waves(t, 3) + (s % 67 < 4 ? 0.5 * noise(s, 5) : 0));
  }
  const level = scenario === "calm" ? 0.1 : scenario === "busy" ? 0.3 : 0.16;
  return clamp(level * waves(t, seed % 7, 0.4) * 1.6 + (noise(s >> 3, seed) > 0.93 ? level * 1.6 * noise(s, seed + 1) : 0));
}

function latencyOf(device, scenario, t, start, write) {
  const busy = busyOf(device, scenario, t, start);
  const base = device.startsWith("sd") ? 0.004 : 0.0002;
  return base * (1 + (write ? 0.6 : 0) + 10 * busy ** 3) * (0.7 + 0.6 * noise(Math.floor(t / 1000), 11)) + (busy > 0.93 ? 0.03 : 0);
}

/**
 * All streams of a scenario: {name, labels, unit, kind, type, help, interval_ms, at(t), looked(t)}.
 */
export function streamsOf(scenario, start) {
  const all = [];
  const add = (name, labels, unit, at, more = {}) =>
    all.push({ name, labels, unit, kind: "gauge", type: "float64", help: `${name} of the fake agent`, interval_ms: 1000, at, looked: (t) => t, quality: 0, ...more });
  addDisks(add, scenario, start);
  addFilesystems(add, scenario, start);
  addGroups(add, scenario, start);
  const derived = { quality: 1 };
  add("memory.total.bytes", {}, "By", () => 64 * GIB, { type: "int64" });
  add("memory.available.bytes", {}, "By", (t) => Math.round((38 + 4 * waves(t, 2)) * GIB), { type: "int64" });
  add("cpu.busy.ratio", {}, "1", (t) => 0.1 + 0.3 * waves(t, 4));
  add("pressure.io.some.ratio", {}, "1", (t) => (scenario === "busy" ? 0.4 : 0.02) * waves(t, 5));
  add("network.receive.bytes_per_second", { device: "eth0" }, "By/s", (t) => 9e6 * waves(t, 6));
  add("node.busiest.ratio", {}, "1", (t) => Math.max(...DEVICES.map((d) => busyOf(d, scenario, t, start))), derived);
  add("node.write.bytes_per_second", {}, "By/s", (t) => sumOf(t, scenario, start, true), derived);
  add("node.read.bytes_per_second", {}, "By/s", (t) => sumOf(t, scenario, start, false), derived);
  for (const device of DEVICES) {
    add("device.load.ratio", { device }, "1", (t) => 0.8 * busyOf(device, scenario, t, start), derived);
    add("device.interference.ratio", { device }, "1", (t) => 1 - 0.8 * busyOf(device, scenario, t, start), derived);
  }
  add("memory.capacity", {}, "By", (t) => Math.round((38 + 4 * waves(t, 2)) * GIB), { type: "int64", quality: 1 });
  add("node.storage.available.bytes", {}, "By", (t) => Math.round(318 * 2 ** 40 - (t - start) * 48000), { type: "int64", quality: 1 });
  if (scenario !== "broken") add("pfs.capacity", {}, "By", (t) => Math.round(310 * 2 ** 40 - (t - start) * 12000), { type: "int64", quality: 1 });
  for (const source of ["diskstats", "mounts", "cgroup", "meminfo", "pressure", "nfs"]) {
    const down = scenario === "broken" && source === "nfs";
    add("source.up.flag", { source }, "flag", (t) => !(down && t > start + 660_000), { type: "bool" });
  }
  addWho(add, scenario, start);
  addApplications(add, scenario, start);
  addForecasts(all, add, scenario, start);
  if (scenario !== "broken") {
    const long = `${LONG} does not answer; ${LONG.slice(5)} is saturated: 96 % busy, mostly by ${LONG}`;
    add("node.outlook.text", {}, "", () => (scenario === "calm" ? "calm" : scenario === "long" ? long : "vda is saturated: 96 % busy, mostly by /system.slice/slurm-4711.scope; / fills in 3 h"), { type: "string", kind: "state", quality: 1 });
  }
  return all;
}

const DEVICES = ["nvme0n1", "nvme1n1", "sda", "vda", "vdb"];
const SEEDS = { nvme0n1: 12, nvme1n1: 23, sda: 34, vda: 3, vdb: 9 };
const LOOPS = ["loop0", "loop1", "loop2"];
const TIERS = { nvme0n1: "nvme", nvme1n1: "nvme", sda: "hdd", vda: "ssd", vdb: "ssd" };

function rateOf(device, scenario, t, start, write) {
  const seed = (SEEDS[device] ?? 5) + (write ? 3 : 0);
  const top = device.startsWith("nvme") ? 1.9e9 : device.startsWith("sd") ? 160e6 : 420e6;
  const share = write ? 0.25 + 0.5 * waves(t, seed % 9) : 0.6 * waves(t, seed % 8);
  return busyOf(device, scenario, t, start) * top * share;
}

function sumOf(t, scenario, start, write) {
  return DEVICES.reduce((sum, device) => sum + rateOf(device, scenario, t, start, write), 0);
}

function addDisks(add, scenario, start) {
  for (const device of [...DEVICES, ...LOOPS]) {
    // In the broken node, vdb is not looked at any more: its values become stale.
    const stopped = start + 700_000;
    const looked = scenario === "broken" && device === "vdb" ? (t) => Math.min(t, stopped) : (t) => t;
    const more = { looked };
    const derived = { ...more, quality: 1 };
    add("disk.busy.ratio", { device }, "1", (t) => busyOf(device, scenario, t, start), derived);
    const spell = (t) => (scenario === "busy" && device === "vda" ? Math.max(0, (t - start) / 1000 - SATURATED_AFTER) : 0);
    add("node.saturated.seconds", { device }, "s", spell, derived);
    for (const write of [false, true]) {
      const side = write ? "write" : "read";
      add(`disk.${side}.bytes_per_second`, { device }, "By/s", (t) => rateOf(device, scenario, t, start, write), derived);
      add(`disk.${side}.latency.seconds`, { device }, "s", (t) => (device.startsWith("loop") ? 0 : latencyOf(device, scenario, t, start, write)), derived);
      add(`disk.${side}.bytes`, { device }, "By", (t) => Math.round((t - start) * 41 * MIB / 1000), { ...more, kind: "counter", type: "int64" });
    }
    if (TIERS[device] !== undefined) add("disk.tier.name", { device }, "", () => TIERS[device], { ...more, type: "string", kind: "state" });
  }
}

function addFilesystems(add, scenario, start) {
  // In the order in which a table of mounts often has them.
  const tiers = { memory: [1, 0.9], nvme: [3.4, 1.9], ssd: [1.8, scenario === "busy" ? 0.07 : 0.9], hdd: [14, 5.2], pfs: [820, 310] };
  for (const [tier, [total, free]] of Object.entries(tiers)) {
    add("tier.total.bytes", { tier }, "By", () => Math.round(total * 2 ** 40), { type: "int64", quality: 1 });
    const available = (t) => Math.round(free * 2 ** 40 - (t - start) * 12000);
    add("tier.available.bytes", { tier }, "By", available, { type: "int64", quality: 1 });
    add("tier.used.ratio", { tier }, "1", (t) => 1 - available(t) / Math.round(total * 2 ** 40), { quality: 1 });
  }
  for (const mount of ["/", "/scratch", scenario === "long" ? LONG : "/mnt/nfs"]) {
    const hung = mount === LONG || (scenario === "broken" && mount === "/mnt/nfs");
    const hungAt = start + 640_000;
    add("filesystem.responding.flag", { mount, fstype: mount === "/mnt/nfs" ? "nfs4" : "xfs" }, "flag", (t) => !(hung && t > hungAt), { type: "bool" });
    const looked = hung ? (t) => Math.min(t, hungAt) : (t) => t;
    add("filesystem.free.bytes", { mount }, "By", (t) => Math.round(400 * GIB - (t - start) * 9000), { type: "int64", looked });
  }
}

function addGroups(add, scenario, start) {
  if (scenario === "broken") return;
  const groups = scenario === "long" ? [LONG] : scenario === "calm"
    ? ["/system.slice/postgresql.service", "/user.slice/user-1000.slice"]
    : ["/system.slice/slurm-4711.scope", "/system.slice/postgresql.service", "/system.slice/slurm-4712.scope", "/user.slice/user-1000.slice"];
  groups.forEach((cgroup, i) => {
    const share = [0.78, 0.12, 0.07, 0.02][i];
    const quiet = scenario === "calm" ? 0.06 : 1;
    for (const write of [false, true]) {
      const name = `cgroup.io.${write ? "write" : "read"}.bytes_per_second`;
      add(name, { cgroup }, "By/s", (t) => quiet * share * rateOf("vda", scenario, t, start, write), { quality: 1 });
    }
  });
}

/** A process whose device is unknown, a group with one device, and the agent's sentence. */
function addWho(add, scenario, start) {
  const text = { calm: "no disk moves anything", busy: "fio (4711) writes 410 MB/s", long: `${LONG} (4711) writes 410 MB/s`, broken: "not counted here: whose the 410 MB/s are; baro doctor says why" };
  add("node.who.text", {}, "", () => text[scenario] ?? text.calm, { type: "string", kind: "state" });
  if (scenario !== "busy" && scenario !== "long") return;
  const fio = { pid: "4711", command: "sh" };
  add("process.write.bytes_per_second", fio, "By/s", (t) => 0.78 * rateOf("vda", scenario, t, start, true), { quality: 1 });
  add("process.command.name", fio, "", () => (scenario === "long" ? LONG : "fio"), { type: "string", kind: "state" });
  const group = { cgroup: scenario === "long" ? LONG : "/system.slice/slurm-4711.scope", device: "vda" };
  add("cgroup.device.write.bytes_per_second", group, "By/s", (t) => 0.78 * rateOf("vda", scenario, t, start, true), { quality: 1 });
}

/** The times of a projection's knots, in steps of a second and then of minutes. */
const KNOTS_S = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 256, 1024, 4096];

/**
 * The projection after a look at `t`: its value and error by horizon in seconds; in the broken node
 * no error is known beyond a minute.
 */
const projection = (t, at, half, knots = KNOTS_S) => [0, at(t), 0, ...knots.flatMap((s) => [s, at(t + s * 1000), half(s)])];

/**
 * The forecasts of a scenario: in the calm node only that its file systems stay constant; in the
 * busy one / fills.
 */
function addForecasts(all, add, scenario, start) {
  const of = (name, labels, half, knots) => {
    const { unit, at } = all.find((s) => s.name === name && Object.entries(labels).every(([k, v]) => s.labels[k] === v));
    add(`forecast.${name}`, labels, unit, (t) => projection(t, at, half, knots), { kind: "state", type: "floats", quality: 2 });
  };
  const free = scenario === "busy" ? (t) => Math.round(75 * GIB - (t - start) * 5900) : () => 75 * GIB;
  add("filesystem.available.bytes", { mount: "/", tier: "ssd" }, "By", free, { type: "int64", interval_ms: 10_000 });
  of("filesystem.available.bytes", { mount: "/", tier: "ssd" }, (s) => 0.5 * GIB * Math.sqrt(s / 600), [...KNOTS_S, 16_384, 65_536]);
  if (scenario !== "busy") return;
  for (const device of ["vda", "nvme0n1", "sda"]) of("disk.busy.ratio", { device }, (s) => Math.min(0.5, 0.02 + 0.018 * Math.sqrt(s)));
  of("memory.available.bytes", {}, (s) => 0.06 * GIB * Math.sqrt(s));
  // The stream is looked at every half a minute; its forecast covers the time in between.
  add("scratch.used.bytes", {}, "By", (t) => Math.round((90 + (t - start) / 20_000) * GIB), { interval_ms: 30_000 });
  of("scratch.used.bytes", {}, (s) => 0.02 * GIB * s, KNOTS_S.slice(0, 14));
}

/** Rows of the table `forecasts`. */
export function forecastsOf(scenario) {
  if (scenario === "calm") return [];
  const one = (name, labels, s, more = {}) => ({
    name, labels: JSON.stringify(labels), horizon_ns: s * 1e9, step_ns: 1e9, follows: "holt", reason: "its error of late is the least, 31 % below persistence's", since_step: 40, steps: 900, switches: 3, compared: 860,
    confidence: 0.9, coverage: 0.91, error: 0.03 * s ** 0.5, credit: 1, losses: JSON.stringify({ persistence: 1, holt: 0.69, kalman: 0.74, rls: 0.8, spectral: null }), ...more,
  });
  const root = { mount: "/", tier: "ssd" };
  return [
    one("disk.busy.ratio", { device: "vda" }, 1), one("disk.busy.ratio", { device: "vda" }, 4), one("disk.busy.ratio", { device: "vda" }, 16, { coverage: 0.886 }),
    one("disk.busy.ratio", { device: "vda" }, 64, { follows: "persistence", reason: "no predictor is better than it by the margin", coverage: null, error: null, losses: "{}" }),
    ...[10, 40, 160, 640].map((s) => one("filesystem.available.bytes", root, s, { error: 2e6 * s })),
  ];
}

/** Rows of the table `interference`: one device with three writers. */
export function interferenceOf(start) {
  const none = { periodic: null, period_ns: null, next_ts: null, jitter_ns: null, burst_bytes: null, rate: null };
  const device = { ...none, device: "vda", writer: null, capacity: 1.2e8, capacity_source: "probed", bandwidth: 6.4e7, error: 1.1e7, confidence: 0.9, follows: "schedules", reason: "step 1: the writers' schedules, with 0.41 of the error of the mean of late; 2 of 3 writers are periodic", ts: start };
  const writer = (name, s, next_s, more = {}) => ({ device: "vda", writer: name, periodic: 1, period_ns: s * 1e9, next_ts: start + next_s * 1000, jitter_ns: 4e8, burst_bytes: 1.6e9, rate: 1.6e9 / s, reason: "11 bursts keep to a period", ...more });
  return [device, writer("/simulation", 200, 1000), writer("/training", 330, 1060), writer("/log", 1, 0, { periodic: 0, period_ns: null, next_ts: null, jitter_ns: null, burst_bytes: null, rate: 1e6, reason: "it writes at all times, without bursts" })];
}

/** Rows of forecast('disk.bandwidth.available'): the steps of that device. */
export const bandwidthsOf = (start) => Array.from({ length: 30 }, (_, step) => ({ labels: { device: "vda" }, ts: start + 900_000 + step * 60_000, value: step % 4 === 0 ? 5.5e7 : 1.15e8, error: 8e6 + 6e5 * step }));

/** The controllers of the busy node, in the modes that the page has given them. */
export function controllersOf(state) {
  if (state.scenario !== "busy") return [];
  state.modes ??= {};
  const one = (name, about) => ({ name, level: "node", about, mode: "live", by: "", since_ts: null, until_ts: null, reason: "", decisions: 24, outcomes: { done: 24 }, last_ts: Number(`${state.start + 900_000}000000`), last_id: 100, held_off: [], ...state.modes[name] });
  return [one("augmentation", "how much of an array is read"), one("weight", "with which I/O weight an array is read"), one("io-schedule/scr\u202eatch", "which programs may do I/O below /scratch")];
}

/** Pauses, resumes or puts a controller in a dry run, as a path and a body ask. */
export function switchOf(state, path, { controller, seconds, on, reason }) {
  const is = path.endsWith("pause") ? { mode: "paused", until_ts: Number(`${Date.now() + 1000 * seconds}000000`) } : path.endsWith("dry-run") && on ? { mode: "dry_run" } : undefined;
  state.modes = { ...state.modes, [controller]: is && { by: "ada", reason, ...is } };
  return controllersOf(state).find(({ name }) => name === controller);
}

/** The newest decisions of controllers in the busy node, newest first: 24 reads, of which the first has no forecast. */
export function decisionsOf(scenario, start) {
  if (scenario !== "busy") return [];
  const made = (read) => Number(`${start + 900_000 - read * 60_000}000000`);
  return Array.from({ length: 24 }, (_, read) => {
    const plan = 100 - 2 * read;
    const degree = read % 4 === 0 ? 0.25 : 1;
    const known = read === 23 ? {} : { predicted_bytes_per_s: 1.2e8 * degree, predicted_half_width_bytes_per_s: 9e6 };
    const inputs = { ...known, base_bytes: 40_960, bytes: degree * 8e6, degree, error: 1e-4 / (1 + 9 * degree), bound: "nrmse=1e-4", priority: 5, ...(read === 2 ? { no_weight: "a weight needs the right to control" } : {}) };
    const one = (more) => ({ plan, made_ts: made(read), device: "vda", user: "alice", label: "field\u202e.baro", subject: "field.baro", reason: "", alternatives: [], limits: [], outcome: "done", outcome_reason: "", dropped: 0, effect: null, ...more });
    const buckets = one({ id: plan, controller: "augmentation", proposal: 9, value: 9, reason: `9 of 12 buckets: the bound needs 6`, inputs, effect: read === 0 ? null : { observed_ns: made(read), measure: "read bytes/s, as predicted and as reported", before: 1e8, after: 1.1e8 * degree } });
    const weight = one({ id: plan + 1, controller: "weight", subject: "jobs/analysis", proposal: 640, value: 640 - 10 * read, inputs: { score: 0.6 }, outcome: read === 0 ? "done" : "reverted", outcome_reason: "the read was reported" });
    return read === 2 ? [buckets] : [buckets, weight];
  }).flat();
}

/** Phases of I/O in the busy node: two applications in turns, of which one waits. */
export function phasesOf(scenario, start) {
  if (scenario !== "busy") return [];
  const at = (s) => Number(`${start + 900_000 - s * 1000}000000`);
  const one = (more) => ({ id: 1, volume: "scratch", application: "climate", job: "71", user: "ada", processes: 1, state: "ended", share: 0, priority: 5, begun_ts: 0, started_ts: null, ended_ts: null, waited_s: 0, took_s: 0, declared_bytes: 8e9, done_bytes: 4e9, period_s: 40, policy: "", reason: "", ...more });
  const open = [
    one({ id: 40, state: "granted", share: 1, begun_ts: at(4), started_ts: at(3), policy: "adaptive", reason: "by adaptive" }),
    one({ id: 41, application: "sol\u202ever", job: "", user: "grace", state: "waiting", processes: 16, begun_ts: at(2), done_bytes: 0, declared_bytes: null, policy: "adaptive", reason: "by adaptive, 1 before it" }),
  ];
  const ended = Array.from({ length: 12 }, (_, n) => one({ id: n, application: n % 2 ? "climate" : "sol\u202ever", job: n % 2 ? "71" : "", user: n % 2 ? "ada" : "grace", begun_ts: at(300 - n * 24), started_ts: at(294 - n * 24), ended_ts: at(280 - n * 24) }));
  return [...open, ...ended];
}

/**
 * Maps of servers in the busy node: one with a slow server, one that the leader has taken out, one that
 * is gone, a new one, and a change that was aborted; and a quiet one, of which the leader tells no loads.
 */
export function mapsOf(scenario) {
  if (scenario !== "busy") return [];
  const ns = (s) => s * 1e9;
  const change = (epoch, age, took, more) => ({ epoch, age_ns: ns(age), took_ns: ns(took), reason: null, why: null, ...more });
  const recent = (median, windows = 30) => Array.from({ length: windows }, (_, n) => (n === 12 ? null : median * (1 + 0.2 * Math.sin(n + 40 * median))));
  const load = (server, requests_s, service_s, windows) => ({ server, requests_s, service_s, recent: recent(service_s, windows) });
  const one = (more) => ({ user: "ada", uid: 1000, epoch: 0, next_epoch: null, stage: "in force", gone_servers: [], slow: null, changes: [], ...more });
  const ended = (server) => ({ ...load(server, 0, 0.13), recent: [0.12, 0.13, 0.14, ...Array(27).fill(null)] });
  return [
    one({
      name: "checkpoint", application: "sol\u202ever", epoch: 6, servers: [0, 1, 2, 3, 4, 6], nodes: 2, members: 8, running: 3, running_servers: [0, 1, 2, 3, 4, 5, 7], gone_servers: [6], out_servers: [5], slow: [2, 9.62, 0.000012],
      changes: [
        change(3, 1800, 0.04),
        change(4, 262, 0.031, { why: "server 5 was 11.2 times slower than its peers" }),
        change(5, 170, 5, { reason: "2 members are still at work at its deadline" }),
        change(6, 64, 0.052),
      ],
      loads: [load(0, 41.5, 0.0121), load(1, 40.2, 0.0114), load(2, 9.8, 0.116), load(3, 42, 0.0129), load(4, 39.7, 0.0118, 8), ended(5)],
    }),
    one({ name: "history", application: "climate", user: "grace", uid: 1001, epoch: 2, servers: [0, 1], nodes: 1, members: 1, running: 0, running_servers: [0, 1], changes: [change(2, 7800, 0.0351)] }),
  ];
}

/** Rows of the table `policies`. */
export const policiesOf = () => [
  { name: "disks", streams: "disk.busy.ratio", kind: "error_bounded", error: "5 %", confidence: 0.9, stream: "disk.busy.ratio", labels: '{"device":"vda"}', source: "diskstats", interval_ns: 4e9, wait_ns: 2e9, said: "forecast", wrong_share: 0.031, looks: 211, looks_per_s: 0.25, saved_share: 0.75, reason: "the forecast holds for 4 s" },
  { name: "tape", streams: "tape.*, changer.*", kind: "aimd_simple", error: null, confidence: 0.9, stream: null, labels: null, source: null, interval_ns: null, wait_ns: null, said: null, wrong_share: null, looks: null, looks_per_s: null, saved_share: null, reason: "no stream matches" },
];

/**
 * The publications of a scenario: none in the calm node; in the broken one a rank that loses
 * values, and one that has ended.
 */
export function publicationsOf(scenario, start) {
  if (scenario === "calm") return [];
  const broken = scenario === "broken";
  const one = (name, application, rank, pid, frames_s, more = {}) => ({
    scope: "all", name, labels: { application, job: "4711", rank: String(rank), user: "alice" }, application, user: "alice", pid, incarnation: `${pid}`.padStart(32, "0"),
    started_ms: start + 60_000, frames_s, values: ["residual", "step_seconds", "written_bytes", "phase"], lost: 0, missed: 0, dropped: 0, refused: 0, refusal: "", ended_ms: Infinity, ...more,
  });
  return [
    one("lulesh", "lulesh2.0", 0, 4101, 1),
    one("lulesh", "lulesh2.0", 1, 4102, 1, broken ? { lost: 1234, missed: 1200, dropped: 34 } : {}),
    one("checkpoint", "lulesh2.0", 0, 4101, 0.1, { values: ["written_bytes", "is_writing"] }),
    ...(broken ? [
      one("analysis", "spectra", 0, 4177, 2, { values: ["queue", "hit_ratio"], refused: 3, refusal: "3 streams beyond the 256 of a process" }),
      one("lulesh", "lulesh2.0", 2, 4103, 1, { ended_ms: start + 500_000 }),
    ] : []),
  ];
}

/** Values of a publication as functions of time. */
const VALUES = {
  residual: ["1", "float64", (t, seed) => Math.exp(-((t / 1000 + seed * 40) % 240) / 60) * (1 + 0.1 * noise(Math.floor(t / 1000), seed))],
  step_seconds: ["s", "float64", (t, seed) => 0.2 + 0.12 * waves(t, seed + 2)],
  written_bytes: ["By", "int64", (t) => Math.floor(t / 10_000) % 1000 * 48 * MIB],
  phase: ["", "string", (t) => (t / 1000 % 60 < 48 ? "solve" : "checkpoint")],
  is_writing: ["", "bool", (t) => t / 1000 % 60 >= 48],
  queue: ["tasks", "int64", (t) => Math.round(4800 * waves(t, 5))],
  hit_ratio: ["1", "float64", (t) => 0.6 + 0.3 * waves(t, 6)],
};
export const valueOf = (publication, name, t) => VALUES[name][2](t, Number(publication.labels.rank));

function addApplications(add, scenario, start) {
  for (const p of publicationsOf(scenario, start)) {
    const step = 1000 / p.frames_s;
    const put = (t) => Math.floor(Math.min(t, p.ended_ms) / step) * step;
    const more = { interval_ms: 0, since: p.started_ms, until: p.ended_ms };
    for (const name of p.values) add(`app.${p.name}.${name}`, p.labels, VALUES[name][0], (t) => valueOf(p, name, put(t)), { ...more, type: VALUES[name][1] });
    add(`app.${p.name}.frame`, p.labels, "frames", (t) => frameOf(p, t), { ...more, type: "int64", kind: "counter", samples: (t) => frameOf(p, t) });
  }
}

/** The number of the newest frame at `t`. */
export const frameOf = (p, t) => Math.max(0, Math.floor((Math.min(t, p.ended_ms) - p.started_ms) / 1000 * p.frames_s));

/** Calls into programs, newest first: rows of the table `calls`, as everyone may read them. */
export function firingsOf(scenario, start) {
  const one = (id, s, name, more = {}) => ({
    scope: "all", id, ts: start + s * 1000, name, kind: "trigger", user: "alice", publications: '["lulesh"]', target: { job: "4711" }, incarnation: null,
    payload: null, payload_bytes: 0, by_user: null, by_pid: null, via: null,
    expires_ts: start + (s + 60) * 1000, matched: 2, acknowledged: 2, failed: 0, refused: 0, expired: 0, gone: 0, state: "acknowledged", last_ack_ts: start + s * 1000 + 3, ...more,
  });
  return [
    one(4, 812, "checkpoint.now", { payload_bytes: 29 }),
    one(3, 740, "lulesh.write_every", { kind: "knob", payload: "40", payload_bytes: 8, target: { job: "4711", rank: "0" }, matched: 1, acknowledged: 1 }),
    one(2, 690, "checkpoint.now", { failed: 1, acknowledged: 1, state: "failed" }),
    one(1, 610, "drain", { publications: '["analysis"]', target: { application: "spectra" }, matched: 1, acknowledged: 0, expired: 1, state: "expired", last_ack_ts: null }),
    one(7, 600, "checkpoint.now", { user: "bob", target: {} }),
  ];
}

/** Rows of the table `knobs`. */
export const knobsOf = (start) => [
  { publication: "lulesh", name: "write_every", labels: { job: "4711", rank: "0" }, type: "int64", min: 1, max: 1000, unit: "steps", value: 40, ts: start + 740_000 },
  { publication: "lulesh", name: "compress", labels: { job: "4711", rank: "0" }, type: "bool", min: 0, max: 1, unit: "", value: 1, ts: start + 60_000 },
  { publication: "lulesh", name: "flush_bytes", labels: { job: "4711", rank: "0" }, type: "float64", min: 1 << 20, max: 2 ** 30, unit: "bytes", value: 2 ** 26, ts: start + 60_000 },
];

/** Rows of the table `rules`. */
export const declaredOf = (start) => [
  {
    name: "full.disk", call: "checkpoint.now", sql: "CREATE RULE full.disk WHEN avg_over('disk.busy.ratio{device=vda}', '30 s') > 0.9 CALL 'checkpoint.now' TO 'job=4711' COOLDOWN '5 min'",
    help: "", state: "holding", reason: "", subjects: 1, holding: 1, beyond: 0, left_out: 0, fired: 1, suppressed: 12, failed: 0, missed: 0, evaluations: 918, made_ts: start + 30_000, last_fired_ts: start + 812_000,
  },
  {
    name: "tape.full", call: "drain", sql: "CREATE RULE tape.full WHEN latest('tape.free.bytes') < 1e9 CALL 'drain'",
    help: "", state: "waiting", reason: "no stream tape.free.bytes yet", subjects: 0, holding: 0, beyond: 0, left_out: 0, fired: 0, suppressed: 0, failed: 0, missed: 0, evaluations: 0, made_ts: start + 30_000, last_fired_ts: null,
  },
];

export function sourcesOf(scenario) {
  const one = (source, state, sees, streams, missing = [], more = {}) => ({
    source, state, sees, streams, missing, polls: state === "unavailable" ? 0 : 918, errors: 0,
    cost_ns_mean: 21_000 + source.length * 4100, interval_ns: 1e9, last_error: null, ...more,
  });
  const broken = scenario === "broken";
  return [
    one("diskstats", "ok", "8 block devices", 96),
    one("mounts", broken ? "partial" : "ok", "3 mounts", 24, broken ? [{ what: "/mnt/nfs", why: "statvfs has not returned for 4 min", remedy: "check the NFS server or mount it with soft,timeo=50" }] : []),
    one("meminfo", "ok", "memory of the node", 9),
    one("pressure", "ok", "io, memory, cpu", 18),
    one("cgroup", broken ? "unavailable" : "ok", broken ? "" : "4 control groups", broken ? 0 : 32, broken ? [{ what: "I/O by control group", why: "the io controller is not enabled at the root of the hierarchy", remedy: "echo +io > /sys/fs/cgroup/cgroup.subtree_control, as root" }] : []),
    one("nfs", broken ? "down" : "ok", broken ? "" : "1 mount", broken ? 0 : 14, [], broken ? { errors: 260, last_error: "/proc/self/mountstats: line 14 is cut short" } : {}),
    one("nvme", "unavailable", "", 0, [{ what: "SMART of nvme0n1", why: "/dev/nvme0 is readable by root only", remedy: "setfacl -m u:barograph:r /dev/nvme0" }]),
  ];
}

export function insightsOf(scenario) {
  const one = (name, sql, inputs, unit, groups, more = {}) => ({
    name, table: name.replaceAll(".", "_"), sql: `CREATE INSIGHT ${name} AS\n${sql}`, builtin: true, unit, help: "", inputs, groups,
    state: "live", reason: "", remedy: "", evaluations: 1834, cost_ns_mean: 3400 + name.length * 120, ...more,
  });
  return [
    one("tier.available.bytes", "SELECT tier, sum(value) FROM filesystem_available_bytes GROUP BY tier", ["filesystem.available.bytes"], "By", 4, { help: "Room left in each tier." }),
    one("tier.used.ratio", "SELECT tier, used / (used + available)", ["filesystem.total.bytes", "filesystem.free.bytes", "filesystem.available.bytes"], "1", 4),
    one("tier.total.bytes", "SELECT tier, sum(value) FROM filesystem_total_bytes GROUP BY tier", ["filesystem.total.bytes"], "By", 4),
    one("node.storage.available.bytes", "SELECT sum(value) FROM tier_available_bytes", ["tier.available.bytes"], "By", 1),
    one("device.load.ratio", "SELECT r.device, (r.value + w.value) / m.value\nFROM disk_read_bytes_per_second r\nJOIN disk_write_bytes_per_second w USING (device)\nJOIN disk_bandwidth_max_bytes_per_second m USING (device)", ["disk.read.bytes_per_second", "disk.write.bytes_per_second", "disk.bandwidth.max.bytes_per_second"], "1", 5),
    one("device.interference.ratio", "SELECT device, 1 - value FROM device_load_ratio", ["device.load.ratio"], "1", 5),
    one("node.read.bytes_per_second", "SELECT sum(value) FROM disk_read_bytes_per_second", ["disk.read.bytes_per_second"], "By/s", 1),
    one("node.write.bytes_per_second", "SELECT sum(value) FROM disk_write_bytes_per_second", ["disk.write.bytes_per_second"], "By/s", 1),
    one("node.busiest.ratio", "SELECT max(value) FROM disk_busy_ratio", ["disk.busy.ratio"], "1", 1),
    one("node.outlook.text", "built in", ["node.busiest.ratio", "node.storage.available.bytes"], "", 1),
    one("pfs.capacity", "SELECT value FROM tier_available_bytes WHERE tier = 'pfs'", ["tier.available.bytes"], "By", 1, scenario === "broken" ? { state: "failed", reason: "division by zero in group tier=pfs" } : {}),
    one("memory.capacity", "SELECT value FROM memory_available_bytes", ["memory.available.bytes"], "By", 1),
    one("availability", "SELECT count(value) FROM node_up_flag", ["node.up.flag"], "1", 0, { state: "waiting", reason: "no stream node.up.flag yet", evaluations: 0 }),
  ];
}

/** The agent's report on its archive: the calm one works, the broken one has a full disk. */
export function archiveOf(scenario, since) {
  const broken = scenario === "broken";
  return {
    dir: "/var/lib/barograph/archive", bytes: 1_316_000_000, log_bytes: 21_400_000, files: 1152, samples: 812_000,
    oldest_ts: Number(`${Math.round(since)}000000`), waiting_bytes: broken ? 8_300_000 : 0,
    losses: { overflow_samples: broken ? 41_200 : 0, failed_samples: 0, torn_bytes: scenario === "busy" ? 4096 : 0, shed_samples: 0, corrupt_files: 0 },
    trouble: broken ? "cannot write /var/lib/barograph/archive/nodes/lab-3/log/0000000000000412.log: No space left on device: free some, or lower archive.bytes_max" : "",
  };
}

/** What is mirrored of a node by default. */
const MIRRORED = /^(node|tier|disk|filesystem|pressure|memory|network)\./;

/**
 * The streams of the other nodes that are mirrored: lab-4 has a busy device and a nearly full file
 * system, and lab-5 has not been heard for some time. The calm node is alone.
 */
export function mirrorsOf(scenario, start) {
  if (scenario === "calm") return {};
  const streams = (at) => streamsOf("calm", start).filter((s) => MIRRORED.test(s.name)).map((s) => ({ ...s, ...at(s) }));
  const busy = ({ name, labels }) => name === "disk.busy.ratio" && labels.device === "nvme0n1";
  const lab4 = streams((s) => (busy(s) ? { at: () => 0.42 } : s.name === "node.outlook.text" ? { at: () => "/scratch is nearly full, 4 % free" } : {}));
  return { "lab-4": lab4, "lab-5": streams(() => ({ blind: [start + HEARD_MS, Infinity] })) };
}

/** How long after the start lab-5 was heard. */
const HEARD_MS = 13 * 60_000 + 30_000;

/**
 * The other nodes of the cluster: the calm node is alone. Nothing is heard of lab-4 since
 * `silence`, if that is given. Times are ms.
 */
export const peersOf = (scenario, start, silence) => (scenario === "calm" ? [] : [
  { node: "lab-4", state: silence === undefined ? "connected" : "gone", heard_ts: silence ?? Date.now(), round_trip_ns: 180_000, ahead_ns: 20_000, streams: 141, samples: 9000, missed: 0, holes: 0, fault: null },
  { node: "lab-5", state: "gone", heard_ts: start + HEARD_MS, round_trip_ns: null, ahead_ns: null, streams: 141, samples: 700, missed: 3, holes: 1, fault: null },
]);

/** The newest values of the mirrored nodes: node, name, labels, value. */
export const mirroredOf = (scenario) => peersOf(scenario, 0).flatMap(({ node }) => [
  [node, "node.outlook.text", "{}", "/scratch is nearly full, 4 % free"],
  [node, "disk.busy.ratio", '{"device":"nvme0n1"}', 0.42],
  [node, "tier.available.bytes", '{"tier":"nvme"}', 4e10],
  [node, "tier.total.bytes", '{"tier":"nvme"}', 1e12],
  [node, "filesystem.available.bytes", '{"mount":"/scratch"}', 4e10],
]);
