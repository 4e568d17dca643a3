// Who causes the disks' traffic: processes, jobs, control groups and processes in the block trace,
// best evidence first. Pure but for its input.

import type { Source } from "./contract";

/** The parts of a stream that are used here. */
export interface Flow {
  readonly labels: Readonly<Record<string, string>>;
  readonly text: string;
}

export type Kind = "process" | "job" | "control group" | "trace";

/** A process, job or group that reads or writes. */
export interface Originator<S> {
  readonly kind: Kind;
  readonly name: string;
  /** The device, if it is known; empty for all devices. */
  readonly device: string;
  readonly read: S | undefined;
  readonly write: S | undefined;
  readonly sum: number;
}

/** Patterns of the streams about originators, for a watch. */
export const WHO_MATCHES = [
  "node.who.text",
  "process.*.bytes_per_second",
  "process.command.name",
  "job.local.read.bytes_per_second",
  "job.local.write.bytes_per_second",
  "cgroup.*.bytes_per_second",
  "block_trace.process.*.bytes_per_second",
];

/** Least rate of an originator that is listed, in bytes a second. */
const MOVES = 1;
/** Most lines of one kind. */
const LINES_MAX = 4;
/** The root group holds the sum of all others, so it identifies nobody. */
const ROOT = "/";

type Named<S> = (name: string) => readonly S[];
type Rate<S> = (one: S | undefined) => number;

/** The lines of the table, the best evidence first, and within each kind the greatest first. */
export function originators<S extends Flow>(named: Named<S>, rate: Rate<S>): Originator<S>[] {
  const commands = new Map(named("process.command.name").map((one) => [one.labels["pid"], one.text]));
  const lines = (kind: Kind, stem: string, name: (one: S) => string) => joined(kind, stem, name, named, rate);
  const process = ({ labels }: S) => `${commands.get(labels["pid"]) || labels["command"]} (${labels["pid"]})`;
  const processes = lines("process", "process", process);
  const jobs = lines("job", "job.local", ({ labels }) => labels["job"] ?? "");
  const group = ({ labels }: S) => labels["cgroup"] ?? "";
  const groups = lines("control group", "cgroup.io", group).filter((one) => one.name !== ROOT);
  // Equal ones stay in the order of their streams.
  return [processes, jobs, byDevice(groups, lines("control group", "cgroup.device", group)), lines("trace", "block_trace.process", process)].flatMap((all) => all.sort((a, b) => b.sum - a.sum).slice(0, LINES_MAX));
}

/**
 * Adds devices to the groups: a group that uses only one device gets its name, and groups that
 * appear only on stacked devices, which are in no sum, get lines of their own.
 */
function byDevice<S>(groups: readonly Originator<S>[], onDevices: readonly Originator<S>[]): Originator<S>[] {
  const inSum = groups.map((one) => {
    const on = onDevices.filter(({ name }) => name === one.name);
    return on.length === 1 ? { ...one, device: on[0]?.device ?? "" } : one;
  });
  return [...inSum, ...onDevices.filter(({ name }) => !groups.some((one) => one.name === name))];
}

function joined<S extends Flow>(kind: Kind, stem: string, name: (one: S) => string, named: Named<S>, rate: Rate<S>): Originator<S>[] {
  const key = (one: S) => `${name(one)}\n${one.labels["device"] ?? ""}`;
  const side = (word: string) => new Map(named(`${stem}.${word}.bytes_per_second`).map((one) => [key(one), one]));
  const [reads, writes] = [side("read"), side("write")];
  const all = [...new Map([...reads, ...writes])].map(([at, one]) => {
    const [read, write] = [reads.get(at), writes.get(at)];
    return { kind, name: name(one), device: one.labels["device"] ?? "", read, write, sum: (rate(read) || 0) + (rate(write) || 0) };
  });
  return all.filter(({ sum }) => sum >= MOVES);
}

/**
 * The traffic that the sources do not count, with reason and remedy; a source that is down is
 * listed among the troubles instead.
 */
export function uncounted(sources: readonly Source[]): string[] {
  const of = sources.filter((one) => /^(process|job|cgroup)$/.test(one.source));
  const missing = of.flatMap((one) => one.missing).filter(({ what }) => /I\/O|bytes|reads|cache|^processes/.test(what));
  return missing.map(({ what, why, remedy }) => `Not counted here: ${what}: ${why}. To see it: ${remedy}.`);
}
