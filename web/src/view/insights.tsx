// The Insights view: the graph of the running insights; a click shows one in full; with the control
// right, insights can be made and dropped.

import { signal, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import * as api from "../data/api";
import { beat, isOld, named, now, want } from "../data/feed";
import type { Insight } from "../data/contract";
import { plain, quantity, seconds, unitOf, words } from "../text/format";
import { slackOf } from "../sheet/geometry";
import { layout } from "./dag";
import type { Placed } from "./dag";
import { Maker } from "./maker";
import { Age, Note, Spark, Value } from "./parts";

const all = signal<readonly Insight[] | null>(null);
const fault = signal("");
export const chosen = signal("");

const MEASURES = { nodeWidth: 204, nodeHeight: 62, factHeight: 22, gapX: 32, gapY: 12 };
const SPAN_MS = 300_000;
/** Most output streams of one insight that are listed beside its SQL. */
const GROUPS_MAX = 24;

export async function load(): Promise<void> {
  try {
    const list = await api.insights();
    // An equal answer must not cause a new layout of the graph.
    if (list.map((one) => one.name + one.inputs).join() !== all.value?.map((one) => one.name + one.inputs).join()) want("insights", list.map((one) => one.name));
    all.value = list;
    fault.value = "";
  } catch (error) {
    fault.value = words(error);
  }
}

export function Insights() {
  useEffect(() => {
    want("insights", all.value?.map((one) => one.name) ?? []);
    void load();
    const timer = setInterval(() => document.hidden || void load(), 2000);
    return () => {
      want("insights", []);
      clearInterval(timer);
    };
  }, []);
  const list = all.value;
  const one = list?.find((insight) => insight.name === chosen.value);
  return (
    <main id="main" class="insights">
      {fault.value !== "" && <Note bad>{fault.value}</Note>}
      {list === null ? <h1>Asking for the graph…</h1> : <Graph list={list} />}
      <aside>
        {one === undefined ? <p class="hint">Choose an insight to see its SQL, its inputs and what it costs.</p> : <Details one={one} />}
        <Maker />
      </aside>
    </main>
  );
}

function Graph({ list }: { list: readonly Insight[] }) {
  const shape = JSON.stringify(list.map((one) => [one.name, one.inputs]));
  const dag = useMemo(() => layout(list.map((one) => ({ id: one.name, inputs: one.inputs })), MEASURES), [shape]);
  const byName = new Map(list.map((one) => [one.name, one]));
  const near = (name: string) => chosen.value !== "" && name === chosen.value;
  const failed = list.filter((one) => one.state === "failed").length;
  const layers = new Set(dag.nodes.map((n) => n.layer)).size;
  return (
    <section class="graph" aria-label="Insights and their inputs">
      <h1>
        {list.length} insights over {dag.nodes.length - list.length} metrics{failed > 0 ? `, ${failed} failed` : ""}
      </h1>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Graph in ${layers} layers, inputs on the left`}>
        <div class="dag" style={{ width: `${dag.width}px`, height: `${dag.height}px` }}>
          <svg width={dag.width} height={dag.height} aria-hidden="true">
            {dag.edges.map((edge) => (
              <path key={`${edge.from}>${edge.to}`} d={edge.path} class={near(edge.from) || near(edge.to) ? "near" : ""} />
            ))}
          </svg>
          {dag.nodes.map((node) => {
            const one = byName.get(node.id);
            return one === undefined ? <Fact key={node.id} node={node} /> : <Node key={node.id} node={node} one={one} />;
          })}
        </div>
      </div>
    </section>
  );
}

const place = (node: Placed) => ({ left: `${node.x}px`, top: `${node.y}px` });

function Fact({ node }: { node: Placed }) {
  return <span class="fact" style={place(node)} title={node.id}>{node.id}</span>;
}

const SIGNS: Readonly<Record<Insight["state"], string>> = { live: "", waiting: "◌ waiting", unavailable: "○ unavailable", failed: "▲ failed" };

function Node({ node, one }: { node: Placed; one: Insight }) {
  void beat.value;
  const outputs = named(one.name).filter((s) => s.ring.length > 0 || s.text !== "");
  const [first] = outputs;
  const at = now();
  const old = first !== undefined && isOld(first);
  const unit = unitOf(one.name, one.unit);
  return (
    <button type="button" class={`insight ${one.state}${old ? " old" : ""}`} style={place(node)} aria-pressed={chosen.value === one.name} onClick={() => (chosen.value = chosen.value === one.name ? "" : one.name)}>
      <span class="title">{one.name}</span>
      <span class="now">
        {one.state !== "live" ? (
          <span class="state">{SIGNS[one.state]}</span>
        ) : first === undefined ? (
          <span class="state">no value yet</span>
        ) : first.text !== "" ? (
          <span class="text">{first.text}</span>
        ) : (
          <Value value={first.ring.value(first.ring.length - 1)} unit={unit} />
        )}
        {first !== undefined && first.ring.length > 1 && <Spark ring={first.ring} now={at} spanMs={SPAN_MS} slack={slackOf(first.intervalMs)} />}
      </span>
      <span class="sub">
        {outputs.length > 1 ? `${Object.values(first?.labels ?? {})[0] ?? ""}, first of ${outputs.length} groups` : (Object.values(first?.labels ?? {})[0] ?? "one value")}
        {first !== undefined && <Age of={first} now={at} />}
      </span>
    </button>
  );
}

function Details({ one }: { one: Insight }) {
  void beat.value;
  const at = now();
  const outputs = named(one.name).slice(0, GROUPS_MAX);
  return (
    <section class="details" aria-label={`Insight ${one.name}`}>
      <h2>{one.name}</h2>
      {one.help !== "" && <p>{one.help}</p>}
      {one.state !== "live" && (
        <Note bad={one.state === "failed"}>
          {one.state}{one.reason ? `: ${one.reason}` : ""}
          {one.remedy !== "" && <span class="remedy"> → {one.remedy}</span>}
        </Note>
      )}
      <pre tabIndex={0}><code>{one.sql}</code></pre>
      <dl>
        <dt>inputs</dt>
        <dd>{one.inputs.join(", ")}</dd>
        <dt>table</dt>
        <dd><code>{one.table}</code></dd>
        <dt>cost</dt>
        <dd>{one.evaluations > 0 ? `${plain(seconds(one.cost_ns_mean / 1e9))} an evaluation, ${one.evaluations.toLocaleString("en")} of them` : "not evaluated yet"}</dd>
        <dt>made</dt>
        <dd>{one.builtin ? "built in" : "at run time or by configuration"}</dd>
      </dl>
      {outputs.length > 0 && (
        <table>
          <tbody>
            {outputs.map((s) => (
              <tr key={s.key} class={isOld(s) ? "old" : ""}>
                <th scope="row">{Object.entries(s.labels).map(([k, v]) => `${k}=${v}`).join(" ") || "all"}</th>
                <td class="num">{s.text !== "" ? s.text : s.ring.length > 0 ? plain(quantity(s.ring.value(s.ring.length - 1), s.unit)) : "–"}</td>
                <td><Age of={s} now={at} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {one.groups > Math.max(1, outputs.length) && <p class="sub">{one.groups} groups in all</p>}
      {!one.builtin && <Drop one={one} />}
    </section>
  );
}

function Drop({ one }: { one: Insight }) {
  const answer = useSignal("");
  if (api.control.value === "") return null;
  const drop = async () => {
    if (!confirm(`Drop the insight ${one.name}? Its streams end; insights that read it are refused.`)) return;
    try {
      await api.changeInsight(`DROP INSIGHT ${one.name}`);
      chosen.value = "";
      await load();
    } catch (error) {
      answer.value = words(error);
    }
  };
  return (
    <>
      <button type="button" onClick={() => void drop()}>Drop this insight</button>
      {answer.value !== "" && <Note bad>{answer.value}</Note>}
    </>
  );
}

