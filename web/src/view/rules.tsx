// The rules that act: how often each has fired, what it has left out, and how many of its actions
// wait.

import { now, signal } from "../shared";
import type { Rule, Rules as RuleList } from "../data/events";
import { Ago, Name } from "./event-parts";

/** Name of the rule whose statement is shown; empty if none is. */
const chosen = signal("");

const SIGNS: Readonly<Record<string, string>> = { armed: "●", failed: "▲" };
const EXAMPLE = `baro rule create "CREATE RULE seen ON EVENT close_write
    THEN RUN '/usr/bin/logger' '{path}'"`;

/** The columns of counts, the class of each, and what it counts. */
const COUNTS = [
  ["fired", "num", "how often it has started an action"],
  ["suppressed", "num wide", "events that its own actions have caused, or that came within its cooldown"],
  ["failed", "num", "conditions that could not be computed, and actions that failed for good"],
  ["missed", "num", "events without an action, since too many actions waited"],
] as const;

export function Rules({ rules: { list, isCut } }: { rules: RuleList }) {
  if (list.length === 0) {
    return (
      <section aria-label="Rules that act">
        <h2>Rules that act</h2>
        <p class="note">There is none. A rule runs a program because something happened to a file:</p>
        <pre tabIndex={0} aria-label="Example of a rule"><code>{EXAMPLE}</code></pre>
      </section>
    );
  }
  return (
    <section aria-label="Rules that act">
      <h2>Rules that act</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="List of rules">
        <table class="states">
          <thead>
            <tr>
              <th scope="col">rule</th>
              <th scope="col">state</th>
              {COUNTS.map(([name, kind, help]) => <th scope="col" class={kind} title={help}>{name}</th>)}
              <th scope="col" class="num" title="its actions that wait to be started, for the first time or again">waiting</th>
              <th scope="col" class="num" title="its actions that run now">running</th>
              <th scope="col" class="wide">last fired</th>
              <th scope="col" class="wide">what it does</th>
            </tr>
          </thead>
          {list.map((rule) => <Line key={rule.name} rule={rule} isCut={isCut} />)}
        </table>
      </div>
      {isCut && <p class="sub">The agent tells the newest 500 actions: older ones that wait are not counted here, but by <code>baro action list</code>.</p>}
    </section>
  );
}

function Line({ rule, isCut }: { rule: Rule; isCut: boolean }) {
  const isOpen = chosen.value === rule.name;
  const isBad = rule.state === "failed";
  return (
    <tbody class={isBad ? "bad" : rule.state === "armed" ? "ok" : undefined}>
      <tr>
        <th scope="row">
          <button type="button" class="plain" aria-expanded={isOpen} title="its statement" onClick={() => (chosen.value = isOpen ? "" : rule.name)}><Name of={rule.name} max={40} /></button>
        </th>
        <td class="state"><span aria-hidden="true">{SIGNS[rule.state] ?? "○"}</span> <span class="word">{rule.state}</span></td>
        {COUNTS.map(([name, kind]) => <td class={rule[name] > 0 && (name === "failed" || name === "missed") ? `${kind} some` : kind}>{rule[name].toLocaleString("en")}</td>)}
        <Depth n={rule.waiting} isCut={isCut && rule.fired > 0} />
        <Depth n={rule.running} isCut={false} />
        <td class="wide sub"><Ago at={rule.lastFired} now={now()} /></td>
        <td class="wide"><Name of={rule.call} max={60} /></td>
      </tr>
      {rule.reason !== "" && <tr class="more"><td colSpan={10}><Name of={rule.reason} max={300} /></td></tr>}
      {isOpen && (
        <tr class="more">
          <td colSpan={10}>
            {rule.help !== "" && <p><Name of={rule.help} max={300} /></p>}
            <pre tabIndex={0} aria-label={`Statement of ${rule.name}`}><code><Name of={rule.sql} max={4096} /></code></pre>
          </td>
        </tr>
      )}
    </tbody>
  );
}

/** How many actions of a rule wait or run. */
function Depth({ n, isCut }: { n: number; isCut: boolean }) {
  if (Number.isNaN(n)) return <td class="num" title="not known here: its actions are for other readers, or older than those that the agent tells">–</td>;
  return <td class="num">{n.toLocaleString("en")}{isCut && "+"}</td>;
}
