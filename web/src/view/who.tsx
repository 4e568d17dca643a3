// The Who list: the agent's sentence, the processes, jobs and groups that move bytes now, and what
// is not counted here.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import * as api from "../data/api";
import { shownNode } from "../data/api";
import { beat, current, isOld, named, now } from "../data/feed";
import type { Series } from "../data/feed";
import type { Source } from "../data/contract";
import { originators, uncounted } from "../data/who";
import type { Originator } from "../data/who";
import { slackOf } from "../sheet/geometry";
import { Spark, Value } from "./parts";

/** The newest report of the sources, which shows what is not counted. */
const told = signal<readonly Source[]>([]);

export function Who() {
  void beat.value;
  useEffect(() => {
    // The sources of another node are told by its agent alone.
    if (shownNode !== "") return undefined;
    const ask = () => void api.sources().then((all) => (told.value = all), () => undefined);
    ask();
    const timer = setInterval(ask, 15_000);
    return () => clearInterval(timer);
  }, []);
  const lines = originators(named, current);
  const text = sentence();
  // A process that is in no line may not be counted at all.
  const reasons = lines.length === 0 || text.includes("not counted here") ? uncounted(told.value) : [];
  return (
    <section class="causes" aria-label="Who causes the I/O">
      <h2>Who</h2>
      <p>{text}</p>
      {lines.length > 0 && <Lines lines={lines} />}
      {reasons.map((reason) => <p class="note">{reason}</p>)}
      {shownNode !== "" && <p class="note">Processes, jobs and control groups of {shownNode} are listed if they are mirrored (<code>cluster.mirror</code>); on {shownNode}, <code>baro top</code> has them all.</p>}
    </section>
  );
}

/**
 * The agent's text as a sentence. It begins with "no", "not" or a name, and a name stays unchanged.
 */
function sentence(): string {
  const [stream] = named("node.who.text");
  const text = (stream !== undefined && !isOld(stream) && stream.text) || "not known yet";
  return `${text.replace(/^not? /, (word) => `N${word.slice(1)}`)}.`;
}

function Lines({ lines }: { lines: readonly Originator<Series>[] }) {
  const at = now();
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">who</th>
          <th scope="col">counted by</th>
          <th scope="col">device</th>
          <th scope="col" class="num is-read">read</th>
          <th scope="col" class="num is-write">write</th>
          <th scope="col" class="wide">last five minutes</th>
        </tr>
      </thead>
      <tbody>
        {lines.map((one) => {
          const main = current(one.write) > current(one.read) || one.read === undefined ? one.write : one.read;
          return (
            <tr>
              <th scope="row" class="path">{one.name}</th>
              <td>{one.kind}</td>
              <td>{one.device || "–"}</td>
              <td class="num"><Value value={current(one.read)} unit="B/s" /></td>
              <td class="num"><Value value={current(one.write)} unit="B/s" /></td>
              <td class="wide">{main && <Spark ring={main.ring} now={at} spanMs={300_000} slack={slackOf(main.intervalMs)} />}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
