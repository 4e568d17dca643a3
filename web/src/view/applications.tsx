// The Applications view: the publications of programs, one publication in full beside the load of a
// device, and the calls into programs.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { beat, now, want } from "../data/feed";
import { alive, ALIVE_MAX, ended, fault, load as loadAll, looks } from "../data/applications";
import { PARTS, rateOf, summary } from "../data/publications";
import type { Publication } from "../data/publications";
import { age, figures, moment } from "../text/format";
import { find } from "../text/fuzzy";
import { Begin } from "./begin";
import { Calls } from "./calls";
import { addressOf, chosen, readAddress } from "./choice";
import { Note } from "./parts";
import { Detail } from "./publication";

const REFRESH_MS = 3000;
/** Most lines of the list; typing reduces it. */
const LIST_MAX = 100;
/** Number of publications from which on the list can be searched. */
const FINDER_MIN = 9;

export function Applications() {
  useEffect(() => {
    readAddress();
    void loadAll();
    addEventListener("hashchange", readAddress);
    const timer = setInterval(() => document.hidden || void loadAll(), REFRESH_MS);
    return () => {
      removeEventListener("hashchange", readAddress);
      clearInterval(timer);
      want("applications", []);
    };
  }, []);
  const living = alive.value;
  if (living === null) {
    return (
      <main id="main" class="applications">
        <h1>Asking for what applications publish…</h1>
        {fault.value !== "" && <Note bad>{fault.value}</Note>}
      </main>
    );
  }
  const all = [...living, ...ended.value];
  const one = all.find((other) => other.key === chosen.value) ?? (chosen.value === "" ? all[0] : undefined);
  return (
    <main id="main" class="applications">
      <h1>{summary(living, ended.value.length)}</h1>
      {fault.value !== "" && <Note bad>{fault.value}</Note>}
      {all.length > 0 && <List all={all} one={one} />}
      {all.length === 0 && <Begin />}
      {chosen.value !== "" && one === undefined && <Note>{chosen.value} is not there: it has ended more than a day ago, or not begun.</Note>}
      {one !== undefined && <Detail key={one.key} one={one} all={all} />}
      <Calls one={one} />
      {all.length > 0 && <Readers />}
    </main>
  );
}

/** A note that explains which publications this page can show. */
export function Readers() {
  return (
    <p class="note readers">
      This page shows publications whose readers are <code>all</code>: over TCP everyone on the node is one reader. <code>baro sql "SELECT * FROM publications"</code> shows those that you may read.
    </p>
  );
}

function List({ all, one }: { all: readonly Publication[]; one: Publication | undefined }) {
  void beat.value;
  const query = useSignal("");
  const found = find(query.value, all, (other) => `${other.key} ${other.application} ${other.user} ${other.pid}`, all.length);
  const searched = all.length >= FINDER_MIN;
  return (
    <section class="publications" aria-label="Publications">
      {searched && (
        <p class="finder">
          <input type="search" aria-label="Find a publication" placeholder="Find a publication" autocomplete="off" spellcheck={false} value={query.value} onInput={(e) => (query.value = e.currentTarget.value)} />
          <span class="count" role="status">{found.length > LIST_MAX ? `the first ${LIST_MAX} of ${found.length}` : `${found.length} of ${all.length}`}{all.length >= ALIVE_MAX && ", more are not asked for"}</span>
        </p>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label="List of publications">
        <table class="sources">
          <thead>
            <tr>
              <th scope="col">publication</th>
              <th scope="col">state</th>
              <th scope="col" class="num">frame</th>
              <th scope="col" class="num">frames/s</th>
              <th scope="col" class="num">lost</th>
              <th scope="col" class="num wide">values</th>
              <th scope="col" class="wide">application</th>
              <th scope="col" class="wide">user</th>
              <th scope="col" class="num wide">pid</th>
              <th scope="col" class="wide">last put</th>
            </tr>
          </thead>
          {found.slice(0, LIST_MAX).map((other) => <Line key={`${other.key} ${other.incarnation}`} of={other} current={other === one} />)}
        </table>
      </div>
    </section>
  );
}

/** The labels that have no column. */
export const ownLabels = ({ labels }: Publication): string =>
  Object.keys(labels).filter((label) => label !== "application" && label !== "user").sort().map((label) => `${label}=${labels[label]}`).join(" ");

function Line({ of, current }: { of: Publication; current: boolean }) {
  const at = now();
  const rate = of.alive ? rateOf(looks.value, of.key) : NaN;
  return (
    <tbody class={of.alive ? "ok" : "unavailable"}>
      <tr>
        <th scope="row">
          <a href={addressOf(of.key)} aria-current={current ? "true" : undefined}>
            {of.name}
            {ownLabels(of) !== "" && <span class="labels"> {ownLabels(of)}</span>}
          </a>
        </th>
        <td class="state"><span aria-hidden="true">{of.alive ? "●" : "○"}</span> <span class="word">{of.alive ? "alive" : "ended"}</span></td>
        <td class="num">{Number.isNaN(of.frame) ? "–" : of.frame.toLocaleString("en")}</td>
        <td class="num">{Number.isNaN(rate) ? "–" : figures(rate)}</td>
        <td class={of.lost > 0 ? "num some" : "num"} title={of.alive ? lostParts(of) : undefined}>{of.alive ? of.lost.toLocaleString("en") : "–"}</td>
        <td class="num wide">{of.alive ? of.values : "–"}</td>
        <td class="wide">{of.application}</td>
        <td class="wide">{of.user}</td>
        <td class="num wide">{Number.isNaN(of.pid) ? "–" : of.pid}</td>
        <td class="wide age">{of.newest > 0 ? <time title={moment(of.newest)}>{age(at - of.newest)}</time> : "nothing yet"}</td>
      </tr>
      {of.refusal !== "" && (
        <tr class="more"><td colSpan={10}><span class="some"><span aria-hidden="true">▲ </span>{of.refused > 0 ? `${of.refused.toLocaleString("en")} refused: ` : "refused: "}{of.refusal}</span></td></tr>
      )}
    </tbody>
  );
}

/** The losses of a process, by cause. */
export function lostParts({ lost, parts }: Publication): string {
  if (lost === 0) return "nothing was lost";
  const words = { missed: "missed: lapped before the agent read them", dropped: "dropped by the program", damaged: "damaged" } as const;
  return PARTS.filter((part) => parts[part] > 0).map((part) => `${parts[part].toLocaleString("en")} ${words[part]}`).join(", ") || `${lost.toLocaleString("en")} lost`;
}
