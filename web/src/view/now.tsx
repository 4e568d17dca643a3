// Now: the sentence, what is wrong and since when, the sheet, the tanks, and who causes it.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import * as api from "../data/api";
import { ageMs, beat, current, filled, isOld, lastHeard, link, named, now } from "../data/feed";
import type { Series } from "../data/feed";
import type { Source } from "../data/contract";
import { fills, FREE, reachWords } from "../data/fills";
import type { Fill } from "../data/fills";
import { FORECAST_PREFIX } from "../data/projection";
import { andComing, filling, outlook, troubles } from "../data/trouble";
import type { Trouble } from "../data/trouble";
import { clock, duration, moment, percent, plain, size } from "../text/format";
import { Sheet, SHEET_MATCHES } from "../sheet/sheet";
import { slackOf } from "../sheet/geometry";
import { Age, Spark, Value } from "./parts";

/** What this view needs. The page follows it in every view: the head tells of trouble too. */
export const NOW_MATCHES = [...SHEET_MATCHES, "tier.available.bytes", "tier.used.ratio", "tier.total.bytes", "cgroup.io.*.bytes_per_second", "filesystem.responding.flag", "source.up.flag", "node.outlook.text", FORECAST_PREFIX + FREE];
/** Most lines of who causes the I/O. */
const WHO_MAX = 8;
/** Below this an originator is not worth a line, in bytes a second. */
const WHO_MIN = 1;

export function Now() {
  return (
    <main id="main" class="now">
      <Outlook />
      <div class="desk">
        <Sheet />
        <Tanks />
      </div>
      <Who />
    </main>
  );
}

function Outlook() {
  void beat.value;
  const at = now();
  if (link.value.state === "lost") return <Lost since={link.value.since} at={at} />;
  if (link.value.state === "connecting" || !filled.value) {
    return (
      <div class="outlook">
        <h1>Listening for the agent…</h1>
      </div>
    );
  }
  const all = troubles(named, at);
  const [stream] = named("node.outlook.text");
  const told = stream === undefined || isOld(stream) ? "" : stream.text;
  // The page also sees what is old; then the agent's calm is not the whole truth.
  const text = told === "" || (isCalm(told) && all.length > 0) ? outlook(all, at) : andComing(told, filling(named, at));
  const calm = isCalm(text);
  const bad = all.some((one) => one.level === "bad");
  const tone = calm ? "calm" : bad ? "bad" : "warn";
  return (
    <div class={`outlook ${tone}`} aria-live="polite">
      <h1>
        <span class="mark" aria-hidden="true">{calm ? "●" : "▲"}</span>
        {sentence(text)}
      </h1>
      <Troubles all={all} at={at} />
    </div>
  );
}

const isCalm = (text: string): boolean => /^calm\b/i.test(text);

/** The agent writes `calm`; a sentence begins with a capital, the name of a device stays as it is. */
const sentence = (text: string): string => (isCalm(text) ? `C${text.slice(1)}` : text).replace(/([^.!?…])$/, "$1.");

function Troubles({ all, at }: { all: readonly Trouble[]; at: number }) {
  if (all.length === 0) return null;
  return (
    <ul class="troubles">
      {all.map((one) => (
        <li class={one.level}>
          <span class="sign" aria-hidden="true">{one.level === "bad" ? "▲" : "△"}</span>
          <strong>{one.where}</strong> <span>{one.what}</span>{" "}
          {!Number.isNaN(one.since) && (
            <time title={moment(one.since)}>
              since {clock(one.since, at)} <span class="for">({duration(at - one.since)})</span>
            </time>
          )}
        </li>
      ))}
    </ul>
  );
}

function Lost({ since, at }: { since: number; at: number }) {
  const heard = lastHeard() > 0 && Number.isFinite(since);
  return (
    <div class="outlook lost" role="alert">
      <h1>
        <span class="mark" aria-hidden="true">○</span>
        {heard ? <>The agent is silent since {clock(since, at)}.</> : <>The agent does not answer.</>}
      </h1>
      <p class="note">
        {duration(at - since)} without a word. What is below is old. Trying again by itself; on the node, <code>baro up</code> starts the agent.
      </p>
    </div>
  );
}

function Tanks() {
  void beat.value;
  const totals = named("tier.total.bytes");
  if (totals.length === 0) return null;
  const byTier = (name: string) => new Map(named(name).map((one) => [one.labels["tier"] ?? "", one]));
  const available = byTier("tier.available.bytes");
  const used = byTier("tier.used.ratio");
  const full = link.value.state === "lost" ? [] : fills(named(FORECAST_PREFIX + FREE), now());
  return (
    <section class="tanks" aria-label="Tiers">
      <h2>Tiers</h2>
      <ul>
        {totals.map((total) => (
          <Tank
            total={total}
            available={available.get(total.labels["tier"] ?? "")}
            usedRatio={used.get(total.labels["tier"] ?? "")}
            fill={full.find((one) => one.tier === total.labels["tier"])}
          />
        ))}
      </ul>
    </section>
  );
}

interface TankOf {
  readonly total: Series;
  readonly available: Series | undefined;
  readonly usedRatio: Series | undefined;
  readonly fill: Fill | undefined;
}

/** A tier as df has it: what users can still write, and how much of what they can have is used. */
function Tank({ total, available, usedRatio, fill }: TankOf) {
  const name = total.labels["tier"] ?? "";
  const newest = (one: Series | undefined): number => (one === undefined || one.ring.length === 0 ? NaN : one.ring.value(one.ring.length - 1));
  const all = newest(total);
  const left = newest(available);
  const used = newest(usedRatio);
  const old = available !== undefined && isOld(available);
  const full = used > 0.95;
  const known = !Number.isNaN(used);
  return (
    <li class={`tank${old ? " old" : ""}${full ? " full" : ""}`}>
      <span class="vessel" aria-hidden="true">
        <span class="level" style={{ height: `${known ? Math.max(0, Math.min(100, used * 100)) : 0}%` }} />
      </span>
      <span class="words">
        <strong>{name}</strong>
        {known ? (
          <>
            <span class="free">
              <Value of={size(left)} /> available
            </span>
            <span class="sub">
              {full && <span aria-hidden="true">▲ </span>}
              {plain(percent(used))} used, {plain(size(all))} in all
            </span>
            {fill !== undefined && <span class="sub fills">{fill.mount} full in {reachWords(fill.reach)}</span>}
            {old && available !== undefined && <span class="sub">{duration(ageMs(available))} old</span>}
          </>
        ) : (
          <span class="sub">not known yet</span>
        )}
      </span>
    </li>
  );
}

/** Sources as last told, to say why nobody is named. */
const told = signal<readonly Source[]>([]);

interface Originator {
  readonly name: string;
  readonly read: Series | undefined;
  readonly write: Series | undefined;
  readonly sum: number;
}

function Who() {
  void beat.value;
  useEffect(() => {
    const ask = () => void api.sources().then((all) => (told.value = all), () => undefined);
    ask();
    const timer = setInterval(ask, 15_000);
    return () => clearInterval(timer);
  }, []);
  const lines = originators();
  const busy = lines.filter((one) => one.sum >= WHO_MIN).slice(0, WHO_MAX);
  const at = now();
  return (
    <section class="causes" aria-label="Who causes the I/O">
      <h2>Who</h2>
      {busy.length === 0 ? (
        <p class="note">{whyNobody(lines.length)}</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">control group</th>
              <th scope="col" class="num is-read">read</th>
              <th scope="col" class="num is-write">write</th>
              <th scope="col" class="wide">last five minutes</th>
              <th scope="col" class="wide">age</th>
            </tr>
          </thead>
          <tbody>
            {busy.map((one) => {
              const main = current(one.write) > current(one.read) || one.read === undefined ? one.write : one.read;
              return (
                <tr key={one.name}>
                  <th scope="row" class="path">{one.name}</th>
                  <td class="num"><Value value={current(one.read)} unit="B/s" /></td>
                  <td class="num"><Value value={current(one.write)} unit="B/s" /></td>
                  <td class="wide">{main && <Spark ring={main.ring} now={at} spanMs={300_000} slack={slackOf(main.intervalMs)} />}</td>
                  <td class="wide">{main && <Age of={main} now={at} />}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </section>
  );
}

/** The root group holds the sum of all others: it names nobody. */
const ROOT = "/";

function originators(): Originator[] {
  const all = new Map<string, { read?: Series; write?: Series }>();
  const add = (side: "read" | "write", list: readonly Series[]) => {
    for (const one of list) {
      const name = one.labels["cgroup"] ?? "";
      const entry = all.get(name) ?? {};
      entry[side] = one;
      all.set(name, entry);
    }
  };
  add("read", named("cgroup.io.read.bytes_per_second"));
  add("write", named("cgroup.io.write.bytes_per_second"));
  const flow = (one: Series | undefined) => current(one) || 0;
  return [...all]
    .filter(([name]) => name !== ROOT)
    .map(([name, { read, write }]) => ({ name, read, write, sum: flow(read) + flow(write) }))
    .sort((a, b) => b.sum - a.sum || a.name.localeCompare(b.name));
}

function whyNobody(known: number): string {
  if (known > 0) return `Nobody now: ${known === 1 ? "the one control group is idle" : `all ${known} control groups are idle`}.`;
  if (named("cgroup.io.read.bytes_per_second").length > 0) return "Not visible here: only the root control group counts its I/O. No group below it is in the io (blkio) controller: put jobs into groups of that controller to see them here.";
  const source = told.value.find((one) => one.source.startsWith("cgroup"));
  const missing = source?.missing.find((one) => /io/i.test(one.what)) ?? source?.missing[0];
  if (missing !== undefined) return `Not visible here: ${missing.what}: ${missing.why}.${missing.remedy === "" ? "" : ` To see it: ${missing.remedy}.`}`;
  if (source !== undefined && source.state !== "ok") return `Not visible here: the source ${source.source} is ${source.state}${source.last_error === null ? "" : ` (${source.last_error})`}.`;
  return "Not visible here: no control group reports its I/O. The Doctor says what each source sees.";
}
