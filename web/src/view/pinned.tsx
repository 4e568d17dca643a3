// The pinned streams on one axis of time, with the actions for each of them.

import { signal, useSignal } from "@preact/signals";
import { shownNode } from "../data/api";
import { beat } from "../data/feed";
import type { Series } from "../data/feed";
import { formatRoute } from "../route";
import { asCurl, asPromql, asPython, asSql, matchOf } from "../text/copy";
import { pins, setSpan, span, toggle } from "./pins";
import { Plotted } from "./plotted";
import type { Timeline } from "./timeline";

const line: Timeline = { span, setSpan, frozen: signal(null), cursor: signal(null) };

export function Pinned() {
  void beat.value;
  return (
    <Plotted
      line={line}
      sync="streams"
      pins={pins.value}
      goesOn
      acts={({ pin, one }) => (
        <>
          {one !== undefined && <CopyMenu one={one} />}
          <button type="button" aria-label={`Unpin ${pin}`} onClick={() => toggle(pin)}>Unpin</button>
        </>
      )}
    />
  );
}

function CopyMenu({ one }: { one: Series }) {
  const done = useSignal("");
  const ways: readonly (readonly [string, () => string])[] = [
    ["SQL", () => asSql(one, shownNode)],
    // PromQL is about the agent's own node alone.
    ...(shownNode === "" ? [["PromQL", () => asPromql(one)] as const] : []),
    ["Python", () => asPython(one, shownNode)],
    ["curl", () => asCurl(one, location.origin, shownNode)],
    ["link", () => `${location.origin}${location.pathname}${location.search}${formatRoute("streams", new URLSearchParams([["pin", matchOf(one)]]))}`],
  ];
  const copy = async (name: string, text: string) => {
    try {
      await navigator.clipboard.writeText(text);
      done.value = `${name} copied`;
    } catch {
      // Without permission to write the clipboard, the text is shown instead, ready to be copied.
      done.value = text;
    }
  };
  return (
    <details class="copy">
      <summary>Copy as</summary>
      <span class="ways">
        {ways.map(([name, text]) => (
          <button type="button" data-text={text()} onClick={() => void copy(name, text())}>{name}</button>
        ))}
        <output>{done.value}</output>
      </span>
    </details>
  );
}
