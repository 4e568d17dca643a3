// The servers of programs: for each map of servers its epoch and the changes of it, and for each server
// whether it is in the map, its load, and its times. It needs the control right, since it tells what
// each user does.

import styles from "./maps.css";
import { control, controlled, loader, Note, now, signal, useEffect } from "../shared";
import { changeText, easyLast, isUneasy, mapsOf, restOf, slowestOf, sparkOf } from "../data/maps";
import type { EpochChange, MapServer, ServerMap } from "../data/maps";
import type { Row } from "../data/publications";
import { figures, plain, seconds } from "../text/format";
import { harmless } from "../text/harmless";
import { DRAWN_MS, TimeLine } from "./timelines";

const EVERY_MS = 2_000;
/** Most maps, servers of a map, and changes of a map that are shown. */
const MAPS_MAX = 16;
const SERVERS_MAX = 16;
const CHANGES_MAX = 3;
/** Windows of a sparkline, and its size in its own units. */
const WINDOWS = 30;
const SPARK = [100, 20] as const;

const sheet = new CSSStyleSheet();
sheet.replaceSync(styles);
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];

const maps = signal<readonly ServerMap[]>([]);
const fault = signal("");

const load = loader(async () => {
  const rows = control.value === "" ? [] : (await controlled("maps", {}))["maps"];
  maps.value = mapsOf((rows ?? []) as readonly Row[], now());
}, fault);

export function Maps() {
  useEffect(() => {
    void load();
    const timer = setInterval(() => document.hidden || void load(), EVERY_MS);
    return () => clearInterval(timer);
  }, [control.value]);
  const all = maps.value;
  if (fault.value !== "" && control.value !== "") return <Note bad>Servers that programs write to: {fault.value}</Note>;
  if (all.length === 0) return null;
  const shown = easyLast(all).slice(0, MAPS_MAX);
  return (
    <section class="maps" aria-label="Servers">
      <h2>Servers that programs write to.</h2>
      {shown.map((map) => <OneMap key={map.key} map={map} />)}
      {all.length > shown.length && <Note>{all.length - shown.length} more maps are not shown: <code>baro control maps</code> lists all.</Note>}
    </section>
  );
}

function OneMap({ map: { name, sentence, changes, servers } }: { map: ServerMap }) {
  const drawn = changes.filter(({ ended }) => ended > now() - DRAWN_MS);
  const shown = slowestOf(servers, SERVERS_MAX);
  const rest = restOf(servers, shown);
  const top = Math.max(...shown.flatMap(({ recent }) => recent).filter((median) => median > 0), 0) || 1;
  return (
    <article>
      <p>{sentence}</p>
      {drawn.length > 0 && <Epochs name={name} changes={drawn} />}
      <ul class="changes sub">
        {(drawn.length > 0 ? drawn : changes.slice(-1)).slice(-CHANGES_MAX).reverse().map((change, at) => <li key={at}>{changeText(change, now())}</li>)}
      </ul>
      {shown.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Servers of ${harmless(name)}`}>
          <table class="sources">
            <thead>
              <tr>
                <th scope="col">server</th>
                <th scope="col">state</th>
                <th scope="col" class="num">requests/s</th>
                <th scope="col" class="num">median time</th>
                <th scope="col">last 30 s</th>
              </tr>
            </thead>
            <tbody>{shown.map((one) => <ServerRow key={one.server} one={one} top={top} />)}</tbody>
          </table>
        </div>
      )}
      {rest !== "" && <p class="sub">{rest}.</p>}
    </article>
  );
}

const or = (value: number, say: (value: number) => string): string => (Number.isNaN(value) ? "–" : say(value));
const span = (value: number): string => plain(seconds(value));

function ServerRow({ one, top }: { one: MapServer; top: number }) {
  const { server, state, requests, service, recent, ratio, falseAlarms } = one;
  const path = sparkOf(recent, WINDOWS, top, SPARK);
  const known = recent.filter((median) => median >= 0);
  return (
    <tr>
      <th scope="row">{server}</th>
      <td class={isUneasy(one) ? "state some" : "state"} title={ratio > 0 ? `false alarms among equal servers: ${figures(falseAlarms)} a window` : undefined}>
        {isUneasy(one) && <span aria-hidden="true">▲ </span>}
        {state}
        {ratio > 0 && `, ${ratio.toFixed(1)} times slower than its peers`}
      </td>
      <td class="num">{or(requests, figures)}</td>
      <td class="num">{or(service, span)}</td>
      <td>
        {path === "" ? "–" : (
          <svg class="spark" viewBox={`0 0 ${SPARK.join(" ")}`} preserveAspectRatio="none" role="img" aria-label={`medians from ${span(Math.min(...known))} to ${span(Math.max(...known))}`}>
            <line x2={SPARK[0]} y1={SPARK[1]} y2={SPARK[1]} stroke="var(--edge)" vector-effect="non-scaling-stroke" />
            <path d={path} stroke-linecap="round" />
          </svg>
        )}
      </td>
    </tr>
  );
}

function Epochs({ name, changes }: { name: string; changes: readonly EpochChange[] }) {
  const marks = changes.map((change) => ({
    from: change.begun,
    until: change.ended,
    isDone: change.aborted === "",
    beside: `epoch ${change.epoch}${change.aborted === "" ? "" : " aborted"}`,
    title: changeText(change, now()),
  }));
  return <TimeLine lanes={[{ name: "changes", marks }]} says={`${harmless(name)}: ${changes.length} changes of its epoch`} legend="high: a new epoch, low: aborted" />;
}
