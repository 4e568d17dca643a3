// The Now view: the outlook, the present troubles and since when they last, the sheet, the tiers,
// and the processes that cause the load.

import { shownNode } from "../data/api";
import { ageMs, beat, filled, isOld, lastHeard, link, named, now } from "../data/feed";
import type { Series } from "../data/feed";
import { fills, FREE, reachWords } from "../data/fills";
import type { Fill } from "../data/fills";
import { FORECAST_PREFIX } from "../data/projection";
import { heard, heardFault, heardOf } from "../data/heard";
import { IN_MEMORY, tierOrder } from "../data/tiers";
import { outlook, troubles } from "../data/trouble";
import type { Trouble } from "../data/trouble";
import { WHO_MATCHES } from "../data/who";
import { clock, duration, moment, percent, plain, size } from "../text/format";
import { Sheet, SHEET_MATCHES } from "../sheet/sheet";
import { Value } from "./parts";
import { Who } from "./who";

/**
 * The streams of this view. The page follows them in every view, since the head shows troubles too.
 */
export const NOW_MATCHES = [...SHEET_MATCHES, "tier.available.bytes", "tier.used.ratio", "tier.total.bytes", ...WHO_MATCHES, "filesystem.responding.flag", "source.up.flag", "node.outlook.text", FORECAST_PREFIX + FREE];

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
  // Of a node that is not mirrored here nothing comes, and one that has gone counts as gone before its
  // values are old.
  if (heardFault.value === "" && heardOf(heard.value, at).isBad) return <LostNode since={filled.value ? (heard.value?.heard ?? NaN) : NaN} at={at} />;
  if (link.value.state === "connecting" || !filled.value) {
    return (
      <div class="outlook">
        <h1>Listening for {shownNode || "the agent"}…</h1>
      </div>
    );
  }
  const all = troubles(named, at);
  const [stream] = named("node.outlook.text");
  const told = stream === undefined || isOld(stream) ? "" : stream.text;
  // The page also sees which streams are old; if there are any, the agent's `calm` is not the whole
  // truth.
  const text = told === "" || (isCalm(told) && all.length > 0) ? outlookOf(all, at) : told;
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

/** Without a sentence and troubles, a node is calm, unless its sentence is merely not mirrored. */
const outlookOf = (all: readonly Trouble[], at: number): string => (all.length === 0 && shownNode !== "" && named("node.outlook.text").length === 0 ? `Its sentence is not mirrored; nothing is wrong in what is mirrored of ${shownNode}` : outlook(all, at));

const isCalm = (text: string): boolean => /^calm\b/i.test(text);

/**
 * The outlook as a sentence. The agent writes `calm`, which gets a capital; the name of a device
 * stays unchanged.
 */
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
  // This node's agent answers, so it is the other node that is silent.
  if (shownNode !== "" && heardFault.value === "") return <LostNode since={heard.value?.heard ?? NaN} at={at} />;
  const wasHeard = lastHeard() > 0 && Number.isFinite(since);
  return (
    <div class="outlook lost" role="alert">
      <h1>
        <span class="mark" aria-hidden="true">○</span>
        {wasHeard ? <>The agent is silent since {clock(since, at)}.</> : <>The agent does not answer.</>}
      </h1>
      <p class="note">
        {duration(at - since)} without a word. What is below is old. Trying again by itself; on the node, <code>baro up</code> starts the agent.
      </p>
    </div>
  );
}

function LostNode({ since, at }: { since: number; at: number }) {
  return (
    <div class="outlook lost" role="alert">
      <h1>
        <span class="mark" aria-hidden="true">○</span>
        {since > 0 ? <>{shownNode} is not heard since {clock(since, at)}.</> : <>Nothing is heard of {shownNode}.</>}
      </h1>
      <p class="note">
        {since > 0 && "What is below is old. "}It goes on by itself when {shownNode} is heard again; <code>baro cluster status</code> on the node that serves this page says more.
      </p>
    </div>
  );
}

function Tanks() {
  void beat.value;
  const totals = inOrder(named("tier.total.bytes"));
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
            key={total.labels["tier"]}
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

const newest = (one: Series | undefined): number => (one === undefined || one.ring.length === 0 ? NaN : one.ring.value(one.ring.length - 1));

/** The tiers in their order; a tier whose size is not known yet is the last of its place. */
function inOrder(totals: readonly Series[]): Series[] {
  const sized = totals.map((one) => ({ one, name: one.labels["tier"] ?? "", total: newest(one) || 0 }));
  return sized.sort(tierOrder).map(({ one }) => one);
}

interface TankOf {
  readonly total: Series;
  readonly available: Series | undefined;
  readonly usedRatio: Series | undefined;
  readonly fill: Fill | undefined;
}

/**
 * A tier with the figures of df: the bytes that users can still write, and the used share of the
 * bytes that they can have.
 */
function Tank({ total, available, usedRatio, fill }: TankOf) {
  // Its streams are the same objects at each beat, with other values.
  void beat.value;
  const name = total.labels["tier"] ?? "";
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
            {name === IN_MEMORY && <span class="sub">tmpfs and the like, not the node's RAM</span>}
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
