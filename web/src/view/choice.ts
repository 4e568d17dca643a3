// The chosen publication, the device whose load is shown with it, and the span; kept in the
// address.

import { signal } from "@preact/signals";
import { formatRoute, parseRoute } from "../route";
import { SPAN_DEFAULT, spanOf, spanText } from "./range";
import type { Range } from "./range";
import type { Timeline } from "./timeline";

/** Key of the publication; empty while none is chosen. */
export const chosen = signal("");
/** The stream in the lane below; if empty, the page chooses one; NO_LOAD shows none. */
export const load = signal("");
export const NO_LOAD = "none";

const span = signal(SPAN_DEFAULT);
export const line: Timeline = { span, setSpan: (seconds) => ((span.value = seconds), write()), frozen: signal<Range | null>(null), cursor: signal<number | null>(null) };

/** The address of a publication, with the present load and span. */
export function addressOf(pub: string): string {
  const query = new URLSearchParams();
  if (pub !== "") query.set("pub", pub);
  if (load.value !== "") query.set("load", load.value);
  const text = spanText(span.value);
  if (text !== "") query.set("span", text);
  return formatRoute("applications", query);
}

const write = (): void => history.replaceState(null, "", addressOf(chosen.value));

export function readAddress(): void {
  const { view, query } = parseRoute(location.hash);
  if (view !== "applications") return;
  // A view that is opened again shows the previous choice, unless its address has another.
  if (query.size === 0) return write();
  const pub = query.get("pub") ?? "";
  if (pub !== chosen.value) line.frozen.value = null;
  chosen.value = pub;
  load.value = query.get("load") ?? "";
  span.value = spanOf(query.get("span"));
}

export function setLoad(key: string): void {
  load.value = key;
  write();
}
