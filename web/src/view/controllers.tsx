// The controllers of this agent: what each does at present, with the means to pause it, and what all of
// them decided last. It needs the control right, as everything here that tells what users do.

import { control, controlled, loader, Note, now, refusal, signal, useEffect } from "../shared";
import { actsOf, controllersOf, decidedOf } from "../data/controllers";
import type { Controller, Decided } from "../data/controllers";
import type { Row } from "../data/publications";
import { Decisions } from "./decisions";
import { Maps } from "./maps";
import { Phases } from "./phases";
import { DRAWN_MS, TimeLine } from "./timelines";
import { duration } from "../text/format";
import { harmless } from "../text/harmless";

const EVERY_MS = 3_000;
const DECIDED_MAX = 100;
const LISTED_MAX = 16;

const list = signal<readonly Controller[]>([]);
const decided = signal<readonly Decided[]>([]);
const fault = signal("");
const refused = signal("");

const load = loader(async () => {
  const is = control.value !== "";
  list.value = is ? controllersOf((await controlled("list", {}))["controllers"] as readonly Row[]) : [];
  decided.value = is ? decidedOf((await controlled("decisions", { limit: DECIDED_MAX }))["decisions"] as readonly Row[]) : [];
}, fault);

async function act(what: string, body: object): Promise<void> {
  refused.value = "";
  try {
    await controlled(what, body);
  } catch (error) {
    refused.value = refusal(error);
  }
  await load();
}

export function Controllers() {
  useEffect(() => {
    void load();
    const timer = setInterval(() => document.hidden || void load(), EVERY_MS);
    return () => clearInterval(timer);
  }, [control.value]);
  if (control.value === "") return null;
  return (
    <>
      {fault.value !== "" && <Note bad>Controllers: {fault.value}</Note>}
      {list.value.length > 0 && <All />}
      <Phases />
      <Maps />
      <Decisions />
    </>
  );
}

function All() {
  return (
    <section class="controllers" aria-label="Controllers">
      <h2>What controls storage here.</h2>
      <Table name="Controllers" heads={["controller", "mode", "decisions", "last", ""]}>
        {list.value.map((one) => <ControllerRow key={one.name} one={one} />)}
      </Table>
      {refused.value !== "" && <Note bad>{refused.value}</Note>}
      {decided.value.length > 0 && (
        <>
          <Course />
          <Table name="Decisions of all controllers" heads={["decision", "of", "for", "value", "outcome", "expected → observed", "why"]}>
            {decided.value.slice(0, LISTED_MAX).map((one) => <DecidedRow key={one.id} one={one} />)}
          </Table>
        </>
      )}
    </section>
  );
}

function Table({ name, heads, children }: { name: string; heads: readonly string[]; children: preact.ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={name}>
      <table class="sources">
        <thead><tr>{heads.map((head) => <th key={head} scope="col">{head}</th>)}</tr></thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

const ago = (at: number): string => (Number.isNaN(at) ? "–" : `${duration(now() - at)} ago`);

function ControllerRow({ one }: { one: Controller }) {
  const { name, about, mode, by, reason, until, last, decisions } = one;
  return (
    <tr>
      <th scope="row" class="path">{harmless(name)} <span class="sub">{harmless(about)}</span></th>
      <td class="sees">
        {mode.replace("_", " ")}
        {by !== "" && ` by ${harmless(by)}`}
        {until > now() && `, for ${duration(until - now())} more`}
        {reason !== "" && `: ${harmless(reason)}`}
      </td>
      <td class="num">{decisions}</td>
      <td class="num">{ago(last)}</td>
      <td class="acts">
        {actsOf(one).map(([what, label, body]) => <button key={what} type="button" aria-label={`${label}: ${name}`} onClick={() => void act(what, body)}>{label}</button>)}
      </td>
    </tr>
  );
}

function DecidedRow({ one: { id, at, controller, user, about, value, outcome, reason, effect } }: { one: Decided }) {
  return (
    <tr>
      <th scope="row" class="path">{id} <span class="sub">{ago(at)}</span></th>
      <td>{harmless(controller)}</td>
      <td class="path">{harmless(about)} <span class="sub">{harmless(user)}</span></td>
      <td>{harmless(value)}</td>
      <td>{outcome.replace("_", " ")}</td>
      <td class="num">{effect || "–"}</td>
      <td class="sees">{harmless(reason)}</td>
    </tr>
  );
}

/** A mark for each decision, in a lane for each controller: low where nothing was done. */
function Course() {
  const all = decided.value.filter(({ at }) => at > now() - DRAWN_MS);
  const names = [...new Set(all.map(({ controller }) => controller))].sort();
  if (names.length === 0) return null;
  const marks = (name: string) => all.filter(({ controller }) => controller === name).map(({ at, outcome }) => ({ from: at, until: at, isDone: outcome === "done" || outcome === "reverted" }));
  return <TimeLine lanes={names.map((name) => ({ name, marks: marks(name) }))} says={`${all.length} decisions of ${names.length} controllers`} legend="high: carried out, low: not" />;
}
