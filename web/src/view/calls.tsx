// Calls into running programs: the handlers that were called, the rules, and the
// commands that call a handler and set a knob, for users who may. The page itself only reads.

import { declared, firings, FIRINGS_MAX, knobs } from "../data/applications";
import { concerns, isOf, setCommand } from "../data/publications";
import type { Firing, Knob, Publication } from "../data/publications";
import type { Labels } from "../data/contract";
import { now } from "../data/feed";
import { clock, figures, moment, plain, quantity, seconds } from "../text/format";
import { asNumber } from "../text/json";
import { line } from "./choice";
import { Note } from "./parts";
import { shown } from "./timeline";

export function Knobs({ one }: { one: Publication }) {
  const own = knobs.value.filter((knob) => isOf(knob, one));
  return (
    <section aria-label="Knobs">
      <h2>Knobs</h2>
      {own.length === 0 ? (
        <Note>None. A knob is a value that may be set from outside within its bounds, and is applied where the program says it is safe: <code>p.knob(…)</code> in Python, <code>baro_knob_f64</code> in C.</Note>
      ) : (
        <>
          <Note>To be set on the node, by the user of the program or with the control right:</Note>
          <div class="scroll" tabIndex={0} role="region" aria-label="Knobs and how they are set">
            <table class="sources">
              <thead>
                <tr>
                  <th scope="col">knob</th>
                  <th scope="col" class="num">value</th>
                  <th scope="col" class="num">from</th>
                  <th scope="col" class="num">to</th>
                  <th scope="col">type</th>
                  <th scope="col">to set it</th>
                </tr>
              </thead>
              <tbody>
                {own.map((knob) => (
                  <tr key={knob.name}>
                    <th scope="row">{knob.name}</th>
                    <td class="num" title={knob.at > 0 ? `since ${moment(knob.at)}` : undefined}>{amount(knob, knob.value)}</td>
                    <td class="num">{amount(knob, knob.min)}</td>
                    <td class="num">{amount(knob, knob.max)}</td>
                    <td>{knob.type}</td>
                    <td class="sees"><code class="command">{setCommand(knob, one).map((part) => <><span>{part}</span> </>)}</code></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </section>
  );
}

/** Bounds and values as they would be typed, with the unit; flags as yes and no. */
function amount({ type, unit }: Knob, value: unknown): string {
  const number = asNumber(value);
  if (Number.isNaN(number)) return value === null || value === undefined || typeof value === "number" ? "–" : String(value);
  if (type === "bool") return number === 0 ? "no" : "yes";
  if (unit === "1" || unit === "") return Number.isInteger(number) ? number.toLocaleString("en") : figures(number);
  return plain(quantity(number, unit));
}

export function Calls({ one }: { one: Publication | undefined }) {
  return (
    <section class="calls" aria-label="Calls">
      <h2>Calls</h2>
      {firings.value.length === 0 ? (
        <Note>None that may be seen from here: those into publications that everyone may read; <code>baro call list</code> shows yours. A call runs a handler, a function that a running program has named: <code>p.on("name", callback)</code> in Python, <code>baro_publication_on</code> in C; <code>baro call fire NAME</code> calls it.</Note>
      ) : (
        <Fired list={firings.value} one={one} />
      )}
      <h2>Rules</h2>
      {declared.value.length === 0 ? (
        <Note>None. A rule calls programs by itself when a condition over the streams becomes true: <code>CREATE RULE name WHEN condition CALL 'handler'</code>.</Note>
      ) : (
        <Declared />
      )}
    </section>
  );
}

function Fired({ list, one }: { list: readonly Firing[]; one: Publication | undefined }) {
  const at = now();
  // Only the user of the programs can see who made a call.
  const isTold = list.some((firing) => firing.by !== "");
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="Calls, newest first">
        <table class="sources">
          <thead>
            <tr>
              <th scope="col">when</th>
              <th scope="col">name</th>
              <th scope="col">payload</th>
              <th scope="col">state</th>
              <th scope="col" class="num">acknowledged</th>
              <th scope="col">target</th>
              <th scope="col">programs of</th>
              {isTold && <th scope="col">by</th>}
            </tr>
          </thead>
          <tbody>
            {list.map((firing) => (
              <tr key={firing.id} class={one !== undefined && concerns(firing, one) ? "meant" : ""}>
                <td><button type="button" class="plain" title={`${moment(firing.at)}: show that time in the charts`} onClick={() => centre(firing.at)}>{clock(firing.at, at)}</button></td>
                <th scope="row">{firing.name}{firing.isKnob && <span class="unit"> knob</span>}</th>
                <Payload firing={firing} />
                <td class={firing.isBad ? "state some" : "state"}>{firing.isBad && <span aria-hidden="true">▲ </span>}{firing.state || "–"}</td>
                <td class="num" title={parts(firing)}>{firing.acknowledged} of {firing.matched}</td>
                <td>{labelText(firing.target) || "all"}</td>
                <td>{firing.user || "–"}</td>
                {isTold && <td class="sub">{firing.by}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {list.length >= FIRINGS_MAX && <p class="sub">The newest {FIRINGS_MAX}.</p>}
    </>
  );
}

/** The payload of a call, or, if only its user may see it, its size. */
function Payload({ firing: { payload, payloadBytes } }: { firing: Firing }) {
  if (payload !== "" || !(payloadBytes > 0)) return <td class="payload">{payload || "–"}</td>;
  return <td class="payload sub" title="shown to the user of the programs: baro call list">{payloadBytes.toLocaleString("en")} {payloadBytes === 1 ? "byte" : "bytes"}</td>;
}

/** Moves the charts so that a moment is in the middle, with the present length of time. */
function centre(at: number): void {
  const [from, to] = shown(line);
  const end = Math.min(now() / 1000, at / 1000 + (to - from) / 2);
  line.frozen.value = [end - (to - from), end];
  document.querySelector(".charts")?.scrollIntoView({ block: "nearest" });
}

function parts(firing: Firing): string {
  const took = firing.answered - firing.at;
  return took >= 0 ? `${answers(firing)}; the last answer after ${plain(seconds(took / 1000))}` : answers(firing);
}

const answers = ({ acknowledged, failed, refused, expired, gone }: Firing): string =>
  [[acknowledged, "acknowledged"], [failed, "failed"], [refused, "refused"], [expired, "expired"], [gone, "gone"]].filter(([n]) => n !== 0).map(([n, word]) => `${n} ${word}`).join(", ") || "nobody has answered";

const labelText = (labels: Labels): string => Object.keys(labels).sort().map((label) => `${label}=${labels[label]}`).join(" ");

function Declared() {
  const at = now();
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Rules">
      <table class="sources">
        <thead>
          <tr>
            <th scope="col">rule</th>
            <th scope="col">calls</th>
            <th scope="col">state</th>
            <th scope="col" class="num">holds for</th>
            <th scope="col" class="num">fired</th>
            <th scope="col">last</th>
            <th scope="col">statement</th>
          </tr>
        </thead>
        {declared.value.map((one) => (
          <tbody key={one.name}>
            <tr>
              <th scope="row" title={one.help === "" ? undefined : one.help}>{one.name}</th>
              <td>{one.call}</td>
              <td class={one.isBad ? "state some" : "state"}>{one.isBad && <span aria-hidden="true">▲ </span>}{one.state || "–"}</td>
              <td class="num">{one.holding} of {one.subjects}</td>
              <td class={one.failed > 0 ? "num some" : "num"} title={`${one.failed} failed, ${one.suppressed} held back by their cooldown`}>{one.fired.toLocaleString("en")}</td>
              <td class="sub">{one.lastFired > 0 ? <time title={moment(one.lastFired)}>{clock(one.lastFired, at)}</time> : "never"}</td>
              <td class="sees"><code>{one.sql}</code></td>
            </tr>
            {one.reason !== "" && <tr class="more"><td colSpan={7}>{one.reason}</td></tr>}
          </tbody>
        ))}
      </table>
    </div>
  );
}
