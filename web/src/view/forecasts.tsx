// The tables of forecasts: the predictor of each stream and its quality, and the streams that are
// looked at seldom because of their forecast.

import { useEffect } from "preact/hooks";
import { fault, foretold, load, meanCoverage, policies, without } from "../data/forecasts";
import type { Foretold, Horizon, Policy } from "../data/forecasts";
import { formatRoute } from "../route";
import { duration, figures, percent, plain, quantity, spanUnit } from "../text/format";
import { Note } from "./parts";

const EVERY_MS = 5000;
/** Most streams that are listed; the others are counted. */
const LISTED_MAX = 40;

export function Forecasts() {
  useEffect(() => {
    void load();
    const timer = setInterval(() => document.hidden || void load(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <>
      {foretold.value.length > 0 && <Foretolds all={foretold.value} />}
      {policies.value.length > 0 && <Policies all={policies.value} />}
      {fault.value !== "" && foretold.value.length + policies.value.length > 0 && <Note bad>{fault.value}</Note>}
    </>
  );
}

function Foretolds({ all }: { all: readonly Foretold[] }) {
  const listed = all.slice(0, LISTED_MAX);
  return (
    <section class="forecasts" aria-label="Forecasts">
      <h2>{headline(all)}</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Forecasts by stream and horizon">
        <table class="sources">
          <thead>
            <tr>
              <th scope="col">stream, and how far ahead</th>
              <th scope="col">follows</th>
              <th scope="col" class="num">within the error</th>
              <th scope="col" class="num">error</th>
              <th scope="col" class="num">of persistence's loss</th>
              <th scope="col">why</th>
            </tr>
          </thead>
          {listed.map((one) => (
            <tbody key={one.key}>
              <tr>
                <th scope="row" colSpan={6} class="path"><a href={formatRoute("streams", new URLSearchParams([["pin", one.key]]))}>{one.key}</a></th>
              </tr>
              {one.horizons.map((horizon) => <HorizonRow key={`${horizon.ms} ${horizon.stepMs}`} one={one} horizon={horizon} />)}
            </tbody>
          ))}
        </table>
      </div>
      {all.length > listed.length && <p class="sub">and {(all.length - listed.length).toLocaleString("en")} more: <code>SELECT * FROM forecasts</code></p>}
      {without.value.length > 0 && <p class="sub">Not forecast: {without.value.slice(0, LISTED_MAX).join("; ")}.</p>}
      <p class="sub">Persistence says that it stays as it is: what is below 1 loses less than that.</p>
    </section>
  );
}

function headline(all: readonly Foretold[]): string {
  const coverage = meanCoverage(all);
  const asked = all[0]?.confidence ?? NaN;
  const streams = all.length === 1 ? "One stream is forecast" : `${all.length.toLocaleString("en")} streams are forecast`;
  if (Number.isNaN(coverage)) return `${streams}; how well is not known yet.`;
  return `${streams}; ${plain(percent(coverage))} of what came was within the error${Number.isNaN(asked) ? "" : `, ${plain(percent(asked))} was asked for`}.`;
}

function HorizonRow({ one, horizon }: { one: Foretold; horizon: Horizon }) {
  const loss = horizon.losses.find(([name]) => name === horizon.follows)?.[1] ?? NaN;
  const all = horizon.losses.map(([name, of]) => `${name} ${figures(of)}`).join(", ");
  return (
    <tr>
      <td class="horizon" title={`in steps of ${duration(horizon.stepMs)}`}>{duration(horizon.ms)}</td>
      <td>{horizon.follows}</td>
      <td class="num">{Number.isNaN(horizon.coverage) ? "–" : plain(percent(horizon.coverage))}</td>
      <td class="num">{Number.isNaN(horizon.error) ? "not known yet" : `± ${plain(quantity(horizon.error, spanUnit(one.unit)))}`}</td>
      <td class="num" title={all}>{Number.isNaN(loss) ? "–" : figures(loss)}</td>
      <td class="sees">{horizon.reason}{all !== "" && <span class="sub"> {all}</span>}</td>
    </tr>
  );
}

function Policies({ all }: { all: readonly Policy[] }) {
  const n = all.filter((one) => one.matches).length;
  return (
    <section class="policies" aria-label="Policies">
      <h2>{n === 1 ? "One stream is" : `${n.toLocaleString("en")} streams are`} looked at by a policy.</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Policies and the streams that they look at">
        <table class="sources">
          <thead>
            <tr>
              <th scope="col">policy</th>
              <th scope="col">stream</th>
              <th scope="col">kind</th>
              <th scope="col" class="num">error allowed</th>
              <th scope="col" class="num">every</th>
              <th scope="col">between looks</th>
              <th scope="col" class="num">wrong</th>
              <th scope="col" class="num">looks a second</th>
              <th scope="col" class="num">saved</th>
              <th scope="col">why</th>
            </tr>
          </thead>
          <tbody>
            {all.slice(0, LISTED_MAX).map((one) => (
              <tr key={`${one.name} ${one.stream}`}>
                <th scope="row">{one.name}</th>
                <td class={one.matches ? "path" : "path old"}>{one.stream}</td>
                <td>{one.kind}</td>
                <td class="num">{one.error === "" ? "–" : one.error}</td>
                <td class="num">{one.intervalMs > 0 ? plain(quantity(one.intervalMs / 1000, "s")) : "–"}</td>
                <td>{one.said}</td>
                <td class="num">{share(one.wrong)}</td>
                <td class="num">{Number.isNaN(one.looksPerS) ? "–" : figures(one.looksPerS)}</td>
                <td class="num">{share(one.saved)}</td>
                <td class="sees">{one.reason}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {all.length > LISTED_MAX && <p class="sub">and {(all.length - LISTED_MAX).toLocaleString("en")} more: <code>SELECT * FROM policies</code></p>}
    </section>
  );
}

const share = (of: number): string => (Number.isNaN(of) ? "–" : plain(percent(of)));
