// What controllers decided for those who read arrays: for each device the course of bandwidth, degree,
// weight and error over the last reads, and the newest of them in words. It needs the control right,
// since it tells what each user reads.

import { control, controlled, loader, Note, now, signal, useEffect } from "../shared";
import { readsOf } from "../data/decisions";
import type { PlannedRead } from "../data/decisions";
import type { Row } from "../data/publications";
import { duration, figures, percent, plain, quantity } from "../text/format";
import { harmless } from "../text/harmless";

const EVERY_MS = 5_000;
/** Most reads that are drawn of all devices, and listed of each. */
const READS_MAX = 200;
const LISTED_MAX = 8;
/** Size of the chart in its own units: lanes one below the other, names at their left. */
const WIDTH = 600;
const LANE = 34;
const GAP = 6;

const reads = signal<readonly PlannedRead[]>([]);
const fault = signal("");

const load = loader(async () => {
  const rows = control.value === "" ? [] : (await controlled("decisions", { limit: READS_MAX }))["decisions"];
  reads.value = readsOf(rows as readonly Row[], READS_MAX);
}, fault);

export function Decisions() {
  useEffect(() => {
    void load();
    const timer = setInterval(() => document.hidden || void load(), EVERY_MS);
    return () => clearInterval(timer);
  }, [control.value]);
  const all = reads.value;
  if (fault.value !== "" && control.value !== "") return <Note bad>What controllers decided: {fault.value}</Note>;
  if (all.length === 0) return null;
  return (
    <section class="decisions" aria-label="Decisions">
      <h2>What controllers decided for those who read arrays.</h2>
      {[...new Set(all.map((read) => read.device))].map((device) => <OneDevice key={device} device={device} list={all.filter((read) => read.device === device)} />)}
    </section>
  );
}

const speed = (bytes: number): string => plain(quantity(bytes, "bytes/s"));
const or = (value: number, say: (value: number) => string): string => (Number.isNaN(value) ? "–" : say(value));

function OneDevice({ device, list }: { device: string; list: readonly PlannedRead[] }) {
  return (
    <>
      {list.length > 1 && <Course device={device} list={list} />}
      <div class="scroll" tabIndex={0} role="region" aria-label={`Reads from ${device}`}>
        <table class="sources">
          <thead>
            <tr>
              <th scope="col">read from {device}</th>
              <th scope="col" class="num">asked</th>
              <th scope="col" class="num">bytes</th>
              <th scope="col" class="num">expected</th>
              <th scope="col" class="num">reported</th>
              <th scope="col" class="num">degree</th>
              <th scope="col" class="num">error</th>
              <th scope="col" class="num">weight</th>
              <th scope="col">why</th>
            </tr>
          </thead>
          <tbody>{list.slice(-LISTED_MAX).reverse().map((read) => <ReadRow key={read.plan} read={read} />)}</tbody>
        </table>
      </div>
    </>
  );
}

function ReadRow({ read: { label, user, at, bytes, expected, halfWidth, reported, degree, error, bound, weight, outcome, reason } }: { read: PlannedRead }) {
  return (
    <tr>
      <th scope="row" class="path">{harmless(label)} <span class="sub">{harmless(user)}</span></th>
      <td class="num">{duration(now() - at)} ago</td>
      <td class="num">{or(bytes, (value) => plain(quantity(value, "bytes")))}</td>
      <td class="num">{or(expected, (value) => `${speed(value)} ± ${speed(halfWidth)}`)}</td>
      <td class="num">{or(reported, speed)}</td>
      <td class="num">{or(degree, (value) => plain(percent(value)))}</td>
      <td class="num">{or(error, figures)}{bound !== "" && ` of ${bound}`}</td>
      <td class="num">{or(weight, String)}</td>
      <td class="sees">{reason}{outcome !== "" && `; no weight: ${outcome}`}</td>
    </tr>
  );
}

interface Lane {
  readonly name: string;
  readonly most: number;
  readonly line: readonly number[];
  readonly dots?: readonly number[];
}

function Course({ device, list }: { device: string; list: readonly PlannedRead[] }) {
  const of = (what: (read: PlannedRead) => number) => list.map(what);
  const [expected, reported, errors, weights] = [of((read) => read.expected), of((read) => read.reported), of((read) => read.error), of((read) => read.weight)];
  const most = (...lists: readonly (readonly number[])[]) => Math.max(...lists.flat().filter(Number.isFinite), 0);
  const lanes: readonly Lane[] = [
    { name: "bandwidth", most: most(expected, reported), line: expected, dots: reported },
    { name: "degree", most: 1, line: of((read) => read.degree) },
    { name: "weight", most: most(weights), line: weights },
    { name: "error", most: most(errors), line: errors },
  ].filter((lane) => lane.most > 0);
  const [from, until] = [list[0]?.at ?? 0, list.at(-1)?.at ?? 0];
  const x = (index: number) => ((((list[index]?.at ?? from) - from) / Math.max(until - from, 1)) * WIDTH).toFixed(1);
  const height = lanes.length * (LANE + GAP);
  return (
    <svg viewBox={`-3 0 ${WIDTH + 6} ${height}`} width="100%" style={{ maxWidth: `${WIDTH * 1.6}px`, display: "block" }} role="img" aria-label={`${device}: ${lanes.map(({ name }) => name).join(", ")} over ${list.length} reads`}>
      {lanes.map(({ name, most, line, dots }, lane) => {
        const base = lane * (LANE + GAP) + LANE;
        const y = (value: number) => (base - Math.min(value / most, 1) * (LANE - 10)).toFixed(1);
        const path = line.map((value, index) => (Number.isNaN(value) ? "" : `${index > 0 && !Number.isNaN(line[index - 1] ?? NaN) ? "L" : "M"}${x(index)} ${y(value)}`)).join("");
        return (
          <g key={name}>
            <path d={`M0 ${base}H${WIDTH}`} stroke="var(--muted)" stroke-width="0.5" />
            <path d={path} fill="none" stroke="var(--read)" stroke-width="1.5" />
            {dots?.map((value, index) => Number.isNaN(value) || <circle key={index} cx={x(index)} cy={y(value)} r="1.8" fill="var(--write)" />)}
            <text x="0" y={base - LANE + 8} font-size="8" fill="var(--muted)">{name}, at most {name === "bandwidth" ? `${speed(most)}; dots: reported` : figures(most)}</text>
          </g>
        );
      })}
    </svg>
  );
}
