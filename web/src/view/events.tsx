// The Events view: what happens to files, by directory; rules that act, and their actions that have
// failed; the watched trees.

import styles from "./events.css";
import { beat, link, Note, now, Right, useEffect } from "../shared";
import { DIRECTORIES_MAX, EVENT_SPANS_S, sentenceOf, several } from "../data/events";
import type { Counted, Directory, FileEvent, Stretch, Watch } from "../data/events";
import { choose, directory, fault, load, readAddress, readAt, REFRESH_MS, seen, span, stretch, until } from "../data/eventload";
import { clock, duration, moment, plain, quantity } from "../text/format";
import { Ago, Bars, Name } from "./event-parts";
import { Failed } from "./failed";
import { Rules } from "./rules";

const DOCS = "https://github.com/barograph/barograph/blob/main/docs/guide";

const sheet = new CSSStyleSheet();
sheet.replaceSync(styles);
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];

export function Events() {
  useEffect(() => {
    readAddress();
    void load();
    addEventListener("hashchange", readAddress);
    const timer = setInterval(() => document.hidden || void load(), REFRESH_MS);
    return () => {
      removeEventListener("hashchange", readAddress);
      clearInterval(timer);
    };
  }, []);
  const all = seen.value;
  const isOld = link.value.state === "lost" || (fault.value !== "" && all !== null);
  return (
    <main id="main" class={isOld ? "events dead" : "events"}>
      <h1>{all === null ? "Asking for the events…" : sentenceOf(all, span.value)}</h1>
      {fault.value !== "" && <Note bad>{fault.value}{all === null ? "" : `; what is below was told at ${clock(readAt.value, now())}`}</Note>}
      {all !== null && (
        <>
          {(all.counted.total > 0 || all.watches.length > 0 || !Number.isNaN(until.value)) && <Time />}
          {all.counted.total > 0 && <Directories counted={all.counted} at={stretch.value} />}
          {(all.counted.total > 0 || directory.value !== null) && <Newest events={all.newest} />}
          {all.counted.total === 0 && all.watches.length > 0 && <Note>Nothing happened to the files of the watched trees in this time.</Note>}
          {all.watches.length === 0 && <Begin />}
          <Failed dead={all.dead} />
          <Rules rules={all.rules} />
          {all.watches.length > 0 && <Watches watches={all.watches} />}
          {all.dead.list.length > 0 && <section aria-label="The control right"><Right /></section>}
          <p class="note readers">
            This page shows watches whose readers are <code>all</code>, and the actions on their events: over TCP everyone on the node is one reader. <code>baro event list</code> and <code>baro action list</code> show those that you may read. More: <a href={`${DOCS}/events.md`}>docs/guide/events.md</a>, <a href={`${DOCS}/event-rules.md`}>docs/guide/event-rules.md</a>.
          </p>
        </>
      )}
    </main>
  );
}

/** Chooses the time of the events, and stops it. */
function Time() {
  void beat.value;
  const isLive = Number.isNaN(until.value);
  return (
    <div class="tools">
      <span class="spans" role="group" aria-label="Time shown">
        {EVENT_SPANS_S.map((seconds) => (
          <button type="button" aria-pressed={span.value === seconds} onClick={() => choose(() => (span.value = seconds))}>{duration(seconds * 1000)}</button>
        ))}
      </span>
      <button type="button" class="pause" aria-pressed={!isLive} onClick={() => choose(() => (until.value = isLive ? now() : NaN))}>
        {isLive ? "Pause" : "Go on live"}
      </button>
      <span class="cursor-time" role="status">{isLive ? "live" : `paused at ${clock(until.value, now())}; rules, actions and watches are those of now`}</span>
    </div>
  );
}

function Directories({ counted, at }: { counted: Counted; at: Stretch }) {
  const top = Math.max(...counted.directories.flatMap((one) => one.slots));
  return (
    <section aria-label="Directories">
      <h2>By directory</h2>
      <p class="sub">
        A bar is {duration(at.stepMs)}, the highest is {several(top, "event")}.
        {!Number.isNaN(counted.since) && ` There are too many events for the whole time: those since ${clock(counted.since, now())} are counted.`}
        {counted.all > DIRECTORIES_MAX && ` The ${DIRECTORIES_MAX} directories with most events of ${counted.all.toLocaleString("en")} are shown.`}
        {" "}A click on a directory shows its events alone.
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="List of directories">
        <table>
          <thead>
            <tr>
              <th scope="col">directory</th>
              <th scope="col">last {duration(span.value * 1000)}</th>
              <th scope="col" class="num">events</th>
              <th scope="col" class="wide">of these kinds</th>
              <th scope="col" class="wide">newest</th>
            </tr>
          </thead>
          <tbody>{counted.directories.map((one) => <Line key={one.path} one={one} at={at} top={top} />)}</tbody>
        </table>
      </div>
    </section>
  );
}

/** The name of a directory without the slash at its end. */
const nameOf = (path: string): string => (path === "" ? "without a path" : path.length > 1 ? path.replace(/\/$/, "") : path);

function Line({ one, at, top }: { one: Directory; at: Stretch; top: number }) {
  const isChosen = directory.value === one.path;
  const peak = Math.max(...one.slots);
  const peakAt = at.start + one.slots.indexOf(peak) * at.stepMs;
  const says = `${several(one.events, "event")}, most of them at ${clock(peakAt, now())}: ${peak.toLocaleString("en")} in ${duration(at.stepMs)}`;
  return (
    <tr class={isChosen ? "chosen" : undefined}>
      <th scope="row">
        <button type="button" class="plain" aria-pressed={isChosen} onClick={() => choose(() => (directory.value = isChosen ? null : one.path))}><Name of={nameOf(one.path)} max={80} /></button>
      </th>
      <td><Bars counts={one.slots} top={top} says={says} /></td>
      <td class="num">{one.events.toLocaleString("en")}</td>
      <td class="wide sub">{one.kinds.map(([kind, n]) => `${n.toLocaleString("en")} ${kind}`).join(", ")}</td>
      <td class="wide sub"><Ago at={one.newest} now={at.stop} /></td>
    </tr>
  );
}

/** Kinds that tell that something is missing. */
const isLoss = (kind: string): boolean => kind === "gap";

function Newest({ events }: { events: readonly FileEvent[] }) {
  const chosen = directory.value;
  return (
    <section aria-label="Newest events">
      <h2>Newest events{chosen !== null && <> of <Name of={nameOf(chosen)} max={60} /> <button type="button" class="plain" onClick={() => choose(() => (directory.value = null))}>show all</button></>}</h2>
      {events.length === 0 && <Note>None in this time.</Note>}
      {events.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="List of events">
          <table>
            <thead>
              <tr>
                <th scope="col">time</th>
                <th scope="col">what</th>
                <th scope="col">path</th>
                <th scope="col" class="num wide">size</th>
                <th scope="col" class="wide">by</th>
              </tr>
            </thead>
            <tbody>
              {events.map((event) => (
                <tr key={event.key} class={isLoss(event.kind) ? "bad" : undefined}>
                  <td class="sub"><time title={moment(event.at)}>{clock(event.at, now())}</time></td>
                  <td class="kind">
                    {isLoss(event.kind) && <span aria-hidden="true">▲ </span>}
                    {event.kind}
                    {event.isReconciled && <span class="sub" title="not seen when it happened, but found by comparing the tree with what was known of it"> found later</span>}
                  </td>
                  <td>
                    <Name of={event.path} />
                    {event.oldPath !== "" && <span class="sub"> before: <Name of={event.oldPath} /></span>}
                    {isLoss(event.kind) && event.path === "" && "events were lost here"}
                  </td>
                  <td class="num wide">{Number.isNaN(event.size) ? "" : plain(quantity(event.size, "B"))}</td>
                  <td class="wide sub"><Name of={event.by} max={40} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** How to begin: the text while no tree is watched that may be seen here. */
function Begin() {
  return (
    <section aria-label="How to begin">
      <p class="note">No watched tree may be seen here. Watch a directory with all below it, for all users of this node to see:</p>
      <pre tabIndex={0} aria-label="The command"><code>baro event add DIRECTORY --readers all</code></pre>
    </section>
  );
}

const SIGNS: Readonly<Record<string, string>> = { live: "●", starting: "◐", walking: "◐", troubled: "▲", failed: "▲" };

function Watches({ watches }: { watches: readonly Watch[] }) {
  return (
    <section aria-label="Watched trees">
      <h2>Watched trees</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="List of watched trees">
        <table class="states">
          <thead>
            <tr>
              <th scope="col">tree</th>
              <th scope="col">state</th>
              <th scope="col" class="num">gaps</th>
              <th scope="col" class="num">events</th>
              <th scope="col" class="num wide" title="found by comparing after a gap">found later</th>
              <th scope="col" class="num wide">not on disk yet</th>
              <th scope="col" class="wide">watched by</th>
              <th scope="col" class="wide">name</th>
            </tr>
          </thead>
          {watches.map((watch) => (
            <tbody key={watch.name} class={watch.trouble !== "" || watch.state === "failed" ? "bad" : watch.state === "live" ? "ok" : undefined}>
              <tr>
                <th scope="row"><Name of={watch.path} max={80} /></th>
                <td class="state"><span aria-hidden="true">{SIGNS[watch.state] ?? "○"}</span> <span class="word">{watch.state}</span></td>
                <td class={watch.gaps > 0 ? "num some" : "num"} title={watch.gaps > 0 ? "events were lost; the tree was then compared with what was known of it" : undefined}>{watch.gaps.toLocaleString("en")}</td>
                <td class="num">{watch.events.toLocaleString("en")}</td>
                <td class="num wide">{watch.reconciled.toLocaleString("en")}</td>
                <td class="num wide">{watch.waitingBytes > 0 ? plain(quantity(watch.waitingBytes, "B")) : "–"}</td>
                <td class="wide">{watch.collector}</td>
                <td class="wide"><Name of={watch.name} max={40} /></td>
              </tr>
              {watch.trouble !== "" && <tr class="more"><td colSpan={8}><Name of={watch.trouble} max={300} /></td></tr>}
            </tbody>
          ))}
        </table>
      </div>
    </section>
  );
}
