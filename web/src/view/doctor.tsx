// The Doctor view: every source, what it sees and costs, what is missing and what would help; the
// forecasts and their quality; and every insight that is not live, with the reason and the remedy.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import * as api from "../data/api";
import { now } from "../data/feed";
import type { Insight, Source, Status } from "../data/contract";
import { clock, duration, plain, seconds, words } from "../text/format";
import { Archive } from "./archive";
import { Forecasts } from "./forecasts";
import { Later } from "./later";
import { Note } from "./parts";

const all = signal<readonly Source[] | null>(null);
const insights = signal<readonly Insight[]>([]);
const status = signal<Status | null>(null);
const fault = signal("");
const at = signal(0);

const SIGNS: Readonly<Record<Source["state"], string>> = { ok: "●", partial: "◐", unavailable: "○", down: "▲", off: "–" };
const ORDER: readonly Source["state"][] = ["down", "partial", "unavailable", "ok", "off"];

async function load(): Promise<void> {
  try {
    [all.value, insights.value, status.value] = await Promise.all([api.sources(), api.insights(), api.status()]);
    at.value = now();
    fault.value = "";
  } catch (error) {
    fault.value = words(error);
  }
}

export function Doctor() {
  useEffect(() => {
    void load();
    const timer = setInterval(() => document.hidden || void load(), 3000);
    return () => clearInterval(timer);
  }, []);
  const list = all.value;
  const rank = (one: Source) => ORDER.indexOf(one.state);
  const sorted = [...(list ?? [])].sort((a, b) => rank(a) - rank(b) || a.source.localeCompare(b.source));
  return (
    <main id="main" class={fault.value !== "" && list !== null ? "doctor dead" : "doctor"}>
      <h1>{list === null ? "Asking the sources…" : summary(list)}</h1>
      {fault.value !== "" && <Note bad>{fault.value}{list === null ? "" : `; what is below was told at ${clock(at.value, now())}`}</Note>}
      {status.value !== null && <Archive of={status.value.archive ?? null} now={status.value.now_ts / 1e6} />}
      {list !== null && <Table list={sorted} />}
      <Forecasts />
      <Later isPart show={({ Bandwidths, Controllers }) => <><Bandwidths /><Controllers /></>} />
      {insights.value.length > 0 && <Insights list={insights.value} />}
    </main>
  );
}

function summary(list: readonly Source[]): string {
  const count = (state: Source["state"]) => list.filter((one) => one.state === state).length;
  const parts = [
    `${count("ok")} of ${list.length - count("off")} sources see all they can`,
    count("partial") > 0 ? `${count("partial")} a part` : "",
    count("unavailable") > 0 ? `${count("unavailable")} not available here` : "",
    count("down") > 0 ? `${count("down")} down` : "",
    count("off") > 0 ? `${count("off")} more can be switched on` : "",
  ];
  return `${parts.filter((part) => part !== "").join(", ")}.`;
}

function Table({ list }: { list: readonly Source[] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Sources">
      <table class="sources">
        <thead>
          <tr>
            <th scope="col">source</th>
            <th scope="col">state</th>
            <th scope="col">sees</th>
            <th scope="col" class="num">streams</th>
            <th scope="col" class="num">every</th>
            <th scope="col" class="num">a poll costs</th>
            <th scope="col" class="num">polls</th>
            <th scope="col" class="num">errors</th>
          </tr>
        </thead>
        {list.map((one) => (
          <tbody key={one.source} class={one.state}>
            <tr>
              <th scope="row">{one.source}</th>
              <td class="state"><span aria-hidden="true">{SIGNS[one.state]}</span> {one.state}</td>
              <td class="sees">{typeof one.sees === "string" ? one.sees : one.sees.join(", ")}</td>
              <td class="num">{one.streams}</td>
              <td class="num">{one.interval_ns > 0 ? duration(one.interval_ns / 1e6) : "–"}</td>
              <td class="num">{one.polls > 0 ? plain(seconds(one.cost_ns_mean / 1e9)) : "–"}</td>
              <td class="num">{one.polls.toLocaleString("en")}</td>
              <td class={one.errors > 0 ? "num some" : "num"}>{one.errors.toLocaleString("en")}</td>
            </tr>
            {one.last_error !== null && one.last_error !== "" && one.state !== "ok" && (
              <tr class="more"><td /><td colSpan={7}><strong>last error</strong> {one.last_error}</td></tr>
            )}
            {one.missing.map((missing) => (
              <tr class="more">
                <td />
                <td colSpan={7}>
                  <strong>{missing.what}</strong> {missing.why}
                  {missing.remedy !== "" && <span class="remedy">→ {missing.remedy}</span>}
                </td>
              </tr>
            ))}
          </tbody>
        ))}
      </table>
    </div>
  );
}

/** Groups the insights with equal reasons and remedies: each group is one line. */
export function alike(list: readonly Insight[]): readonly (readonly Insight[])[] {
  const groups = new Map<string, Insight[]>();
  for (const one of list) {
    if (one.state === "live") continue;
    const words = JSON.stringify([one.state, one.reason, one.remedy]);
    const group = groups.get(words);
    if (group === undefined) groups.set(words, [one]);
    else group.push(one);
  }
  return [...groups.values()];
}

function Insights({ list }: { list: readonly Insight[] }) {
  const live = list.filter((one) => one.state === "live").length;
  return (
    <section aria-label="Insights">
      <h2>{live} of {list.length} insights are live.</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Insights without a value">
        <table class="sources">
          <tbody>
            {alike(list).map((group) => {
              const [first] = group;
              return first === undefined ? null : (
                <tr key={first.name}>
                  <th scope="row">{group.map((one) => one.name).join(", ")}</th>
                  <td class="state">{first.state}</td>
                  <td class="sees">
                    {first.reason}
                    {first.remedy !== "" && <span class="remedy">→ {first.remedy}</span>}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
