// The sign that another node is shown: its name, how it is heard, and the way back. It stands in every
// view and does not scroll away.

import { useEffect } from "preact/hooks";
import { shownNode } from "../data/api";
import { beat, now } from "../data/feed";
import { heard, heardFault, heardOf, loadHeard } from "../data/heard";
import { formatPage } from "../route";
import { moment } from "../text/format";

const EVERY_MS = 1000;

/** `here` is the name of the node whose agent serves the page; empty until it is known. */
export function Sign({ here }: { here: string }) {
  void beat.value;
  useEffect(() => {
    void loadHeard();
    const timer = setInterval(() => document.hidden || void loadHeard(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  const one = heard.value;
  const told = heardFault.value === "" ? heardOf(one, now()) : { isBad: true, text: `${heardFault.value}: how it is heard is not known` };
  return (
    <aside class={told.isBad ? "shown bad" : "shown"} aria-label={`The node ${shownNode} is shown`}>
      <strong><span aria-hidden="true">{told.isBad ? "▲" : "◆"}</span> {shownNode}</strong>
      <span class="how" title={one !== null && one !== undefined && one.heard > 0 ? `heard ${moment(one.heard)}` : undefined}>
        {here === "" ? "" : `as ${here} mirrors it: `}{told.text}
      </span>
      <a href={formatPage("", location.hash)}>Back to {here === "" ? "this node" : here}</a>
    </aside>
  );
}
