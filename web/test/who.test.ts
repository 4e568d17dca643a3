import assert from "node:assert/strict";
import { test } from "node:test";
import type { Source } from "../src/data/contract";
import { originators, uncounted } from "../src/data/who";

interface One {
  readonly labels: Record<string, string>;
  readonly text: string;
  readonly rate: number;
}

const streams = (all: Record<string, readonly One[]>) => (name: string) => all[name] ?? [];
const flow = (rate: number, labels: Record<string, string>): One => ({ labels, text: "", rate });
const rate = (one: One | undefined): number => one?.rate ?? NaN;

const told = (all: Record<string, readonly One[]>): string[] =>
  originators(streams(all), rate).map(({ kind, name, device, sum }) => [kind, name, device, sum].join("|"));

test("best evidence first, of each kind the greatest", () => {
  const all = {
    "process.write.bytes_per_second": [flow(5, { pid: "7", command: "sh" }), flow(9, { pid: "8", command: "cp" }), flow(0, { pid: "9", command: "idle" })],
    "process.read.bytes_per_second": [flow(1, { pid: "7", command: "sh" })],
    "process.command.name": [{ labels: { pid: "7", command: "sh" }, text: "fio", rate: NaN }],
    "job.local.write.bytes_per_second": [flow(90, { job: "4711" })],
    "cgroup.io.write.bytes_per_second": [flow(99, { cgroup: "/" }), flow(80, { cgroup: "/a" }), flow(0, { cgroup: "/b" }), flow(70, { cgroup: "/c" })],
    "cgroup.device.write.bytes_per_second": [
      flow(80, { cgroup: "/a", device: "vda" }),
      flow(60, { cgroup: "/b", device: "loop0" }),
      flow(30, { cgroup: "/c", device: "vda" }),
      flow(40, { cgroup: "/c", device: "vdb" }),
    ],
    "block_trace.process.write.bytes_per_second": [flow(50, { device: "vda", pid: "7", command: "sh" }), flow(60, { device: "vda", pid: "5", command: "dd" })],
  };
  assert.deepEqual(told(all), [
    "process|cp (8)||9",
    "process|fio (7)||6",
    "job|4711||90",
    "control group|/a|vda|80",
    "control group|/c||70",
    "control group|/b|loop0|60",
    "trace|dd (5)|vda|60",
    "trace|fio (7)|vda|50",
  ]);
  const many = Array.from({ length: 9 }, (_, i) => flow(i + 1, { pid: String(i), command: "p" }));
  assert.deepEqual(told({ "process.read.bytes_per_second": many }), ["process|p (8)||9", "process|p (7)||8", "process|p (6)||7", "process|p (5)||6"]);
  assert.deepEqual(told({}), []);
});

test("what is not counted is said with the remedy", () => {
  const source = (name: string, state: string, missing: Source["missing"]) => ({ source: name, state, missing }) as unknown as Source;
  const all = [
    source("disk", "ok", [{ what: "I/O of sda", why: "no", remedy: "no" }]),
    source("cgroup", "partial", [
      { what: "I/O on vda by control group", why: "version 1 counts on a device once it has a limit", remedy: "mount version 2" },
      { what: "pressure by control group", why: "version 1 does not tell it", remedy: "mount cgroup2" },
    ]),
    source("process", "partial", [{ what: "reads and writes of 3 of 9 processes", why: "they are other users'", remedy: "give the agent CAP_SYS_PTRACE" }]),
    source("job", "ok", []),
  ];
  assert.deepEqual(uncounted(all), [
    "Not counted here: I/O on vda by control group: version 1 counts on a device once it has a limit. To see it: mount version 2.",
    "Not counted here: reads and writes of 3 of 9 processes: they are other users'. To see it: give the agent CAP_SYS_PTRACE.",
  ]);
});
