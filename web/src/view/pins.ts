// The pinned streams and the span; kept in the address.

import { signal } from "@preact/signals";
import { formatRoute, parseRoute } from "../route";
import { SPAN_DEFAULT, spanOf, spanText } from "./range";

/** Most streams pinned at once: more could not be distinguished. */
export const PINS_MAX = 8;

export const pins = signal<readonly string[]>([]);
/** Seconds shown while the view is live. */
export const span = signal(SPAN_DEFAULT);

/** Whether the address names streams. */
export const addressed = (): boolean => parseRoute(location.hash).query.has("pin");

export function readAddress(): void {
  const { view, query } = parseRoute(location.hash);
  if (view !== "streams") return;
  pins.value = [...new Set(query.getAll("pin"))].slice(0, PINS_MAX);
  span.value = spanOf(query.get("span"));
}

function writeAddress(): void {
  const query = new URLSearchParams(pins.value.map((pin) => ["pin", pin]));
  const text = spanText(span.value);
  if (text !== "") query.set("span", text);
  history.replaceState(null, "", formatRoute("streams", query));
}

export function setPins(next: readonly string[]): void {
  pins.value = next;
  writeAddress();
}

export function setSpan(seconds: number): void {
  span.value = seconds;
  writeAddress();
}

export const toggle = (key: string) =>
  setPins(pins.value.includes(key) ? pins.value.filter((pin) => pin !== key) : [...pins.value, key].slice(0, PINS_MAX));
