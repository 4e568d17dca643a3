// The page: header, route, view. Everything else is in its own file.

import { computed, effect, signal } from "@preact/signals";
import { render } from "preact";
import * as api from "./data/api";
import { beat, leftOut, link, named, now, start, want } from "./data/feed";
import { shownNode } from "./data/api";
import { troubles } from "./data/trouble";
import type { Status } from "./data/contract";
import { controlToken, formatPage, formatRoute, parseRoute, VIEWS } from "./route";
import type { View } from "./route";
import { setTheme, startTheme, theme, THEMES } from "./theme";
import { clock, duration } from "./text/format";
import { Now, NOW_MATCHES } from "./view/now";
import { Nodes } from "./view/nodes";
import { Streams } from "./view/streams";
import { Applications } from "./view/applications";
import { Insights } from "./view/insights";
import { Later } from "./view/later";
import { Sql } from "./view/sql";
import { Doctor } from "./view/doctor";
import { Sign } from "./view/sign";
import "uplot/dist/uPlot.min.css";
import "./app.css";

const NAMES: Readonly<Record<View, string>> = { now: "Now", nodes: "Nodes", streams: "Streams", applications: "Applications", events: "Events", insights: "Insights", sql: "SQL", doctor: "Doctor" };
const SCREENS: Readonly<Record<View, () => preact.JSX.Element>> = { now: Now, nodes: Nodes, streams: Streams, applications: Applications, events: () => <Later show={({ Events }) => <Events />} />, insights: Insights, sql: Sql, doctor: Doctor };

/** Views for which the mirror of another node has no data. */
const ABSENT: readonly View[] = ["applications", "events", "insights", "sql", "doctor"];

/** A stream that exists where the agent is in a cluster. */
const CLUSTER_STREAM = "fabric.connected.count";

const view = signal<View>("now");
const status = signal<Status | null>(null);
/**
 * Whether something is wrong: it is shown in every view, and in the title for a reader in another
 * tab.
 */
const alarm = computed(() => {
  void beat.value;
  return link.value.state === "live" && troubles(named, now()).some((one) => one.level === "bad");
});

/** Follows the address; a control token in it is stored and removed from sight. */
function follow(): void {
  const token = controlToken(location.hash);
  if (token !== null) {
    api.setControl(token);
    history.replaceState(null, "", formatRoute(view.value));
  }
  view.value = parseRoute(location.hash).view;
}

function App() {
  const Screen = SCREENS[view.value];
  const isOther = shownNode !== "";
  const here = status.value?.node ?? "";
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>To the content</a>
      <Head />
      {isOther && <Sign here={here} />}
      {isOther && ABSENT.includes(view.value) ? <Later show={({ Absent }) => <Absent view={view.value} here={here} />} /> : <Screen />}
      <Foot />
    </>
  );
}

/** The hash is the route, so the skip link moves the focus itself. */
function skip(event: Event): void {
  event.preventDefault();
  const main = document.getElementById("main");
  main?.setAttribute("tabindex", "-1");
  main?.focus();
}

function Head() {
  void beat.value;
  return (
    <header class="head">
      <p class="name">
        <svg viewBox="0 0 34 20" aria-hidden="true"><path d="M1,14C7,14 8,6 12,6S17,11 20,10S24,3 28,3" /><path class="arm" d="M27,3L33,3" /></svg>
        barograph
        <span class="node">{shownNode || status.value?.node}</span>
      </p>
      <nav aria-label="Views">
        {VIEWS.filter(isOffered).map((name) => (
          <a href={formatRoute(name)} aria-current={view.value === name ? "page" : undefined}>
            {NAMES[name]}
            {name === "now" && alarm.value && <span class="alarm" title="something is wrong"> ▲</span>}
          </a>
        ))}
      </nav>
      <LinkState />
      <button type="button" class="theme" onClick={nextTheme} title="Light, dark, or as the system says" aria-label={`Theme: ${theme.value}`}>
        <svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="6.2" /><path d="M8,1.8A6.2,6.2 0 0 1 8,14.2Z" /></svg>
        <span>{theme.value}</span>
      </button>
    </header>
  );
}

/** The view of nodes is for clusters; a node that is alone has it only by its address. */
const isOffered = (name: View): boolean => name !== "nodes" || view.value === "nodes" || shownNode !== "" || named(CLUSTER_STREAM).length > 0;

function nextTheme(): void {
  setTheme(THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "auto");
}

function LinkState() {
  void beat.value;
  const { state, since } = link.value;
  const text = { live: "live", connecting: "connecting", lost: `silent since ${clock(since, now())}` }[state];
  return (
    <p class={`link ${state}`} role="status">
      <span aria-hidden="true">{state === "live" ? "●" : "○"}</span> {text}
    </p>
  );
}

function Foot() {
  const s = status.value;
  if (s === null) return null;
  const up = duration(s.now_ts / 1e6 - s.started_ts / 1e6);
  return (
    <footer class="foot">
      {shownNode !== "" && <span>the agent of {s.node}, which serves this page:</span>}
      <span>barograph {s.version}</span>
      <span>{s.streams.toLocaleString("en")} streams</span>
      <span>{s.sources_up} of {s.sources} sources</span>
      <span>up {up}</span>
      <span class="path">{s.run_dir}</span>
      {leftOut.value > 0 && <span>{leftOut.value} streams beyond the page's limit are not shown</span>}
    </footer>
  );
}

function askStatus(): void {
  void api.status().then((answer) => {
    status.value = answer;
    // The name of the agent's own node is no other node.
    if (answer.node === shownNode) location.replace(formatPage("", location.hash));
  }, () => undefined);
}

startTheme();
follow();
addEventListener("hashchange", follow);
start();
want("now", [...NOW_MATCHES, CLUSTER_STREAM]);
askStatus();
setInterval(() => document.hidden || askStatus(), 30_000);
// A restarted agent may have another version, node name or run directory.
effect(() => {
  if (link.value.state === "live") askStatus();
});
effect(() => {
  document.title = `${link.value.state === "lost" ? "○ " : alarm.value ? "▲ " : ""}${NAMES[view.value]}${shownNode === "" ? "" : ` of ${shownNode}`} · barograph`;
});
// A silent agent sends no ticks, yet the text about its silence must be updated.
setInterval(() => {
  if (link.value.state !== "live" && !document.hidden) beat.value += 1;
}, 1000);

export * from "./shared";

render(<App />, document.getElementById("app") as HTMLElement);
