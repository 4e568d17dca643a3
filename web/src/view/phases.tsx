// Whose turn it is to do I/O: for each scheduled volume a time line of its applications, and those that
// are at work or wait. It needs the control right, since it tells what each user does.

import { control, controlled, loader, Note, now, signal, useEffect } from "../shared";
import { isOpen, lanesOf, phasesOf } from "../data/phases";
import type { IoPhase } from "../data/phases";
import type { Row } from "../data/publications";
import { duration, plain, quantity } from "../text/format";
import { harmless } from "../text/harmless";
import { DRAWN_MS, TimeLine } from "./timelines";

const EVERY_MS = 2_000;
const PHASES_MAX = 500;
/** Most applications of a volume that are drawn, and most that are listed. */
const LANES_MAX = 16;
const LISTED_MAX = 24;

const phases = signal<readonly IoPhase[]>([]);
const fault = signal("");

const load = loader(async () => {
  const rows = control.value === "" ? [] : (await controlled("phases", { limit: PHASES_MAX }))["phases"];
  phases.value = phasesOf((rows ?? []) as readonly Row[]);
}, fault);

export function Phases() {
  useEffect(() => {
    void load();
    const timer = setInterval(() => document.hidden || void load(), EVERY_MS);
    return () => clearInterval(timer);
  }, [control.value]);
  const all = phases.value;
  if (fault.value !== "" && control.value !== "") return <Note bad>Whose turn it is to do I/O: {fault.value}</Note>;
  if (all.length === 0) return null;
  return (
    <section class="phases" aria-label="I/O in turns">
      <h2>Whose turn it is to do I/O.</h2>
      {[...new Set(all.map(({ volume }) => volume))].sort().map((volume) => <OneVolume key={volume} volume={volume} list={all.filter((phase) => phase.volume === volume)} />)}
    </section>
  );
}

function OneVolume({ volume, list }: { volume: string; list: readonly IoPhase[] }) {
  const open = list.filter(isOpen);
  const waiting = open.filter(({ state }) => state === "waiting").length;
  return (
    <>
      <p>{harmless(volume)}: {open.length - waiting} at work, {waiting} waiting.</p>
      <Lanes volume={volume} list={list} />
      {open.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Phases on ${volume}`}>
          <table class="sources">
            <thead>
              <tr>
                <th scope="col">application</th>
                <th scope="col">state</th>
                <th scope="col" class="num">begun</th>
                <th scope="col" class="num">done</th>
                <th scope="col" class="num">of</th>
                <th scope="col">why</th>
              </tr>
            </thead>
            <tbody>{open.slice(0, LISTED_MAX).map((phase, at) => <PhaseRow key={at} phase={phase} />)}</tbody>
          </table>
        </div>
      )}
    </>
  );
}

const size = (bytes: number): string => (Number.isNaN(bytes) ? "–" : plain(quantity(bytes, "bytes")));

function PhaseRow({ phase: { application, user, state, begun, done, declared, reason } }: { phase: IoPhase }) {
  return (
    <tr>
      <th scope="row" class="path">{harmless(application)} <span class="sub">{harmless(user)}</span></th>
      <td>{state}</td>
      <td class="num">{duration(now() - begun)} ago</td>
      <td class="num">{size(done)}</td>
      <td class="num">{size(declared)}</td>
      <td class="sees">{reason}</td>
    </tr>
  );
}

function Lanes({ volume, list }: { volume: string; list: readonly IoPhase[] }) {
  const until = now();
  const lanes = lanesOf(list, [until - DRAWN_MS, until], LANES_MAX);
  if (lanes.length === 0) return null;
  const drawn = lanes.map(({ name, bars }) => ({ name, marks: bars.map(({ from, until: end, waits }) => ({ from, until: end, isDone: !waits })) }));
  return <TimeLine lanes={drawn} says={`${harmless(volume)}: when ${lanes.length} applications waited and did I/O`} legend="high: does I/O, low: waits" />;
}
