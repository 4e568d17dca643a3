// The control of time, shared by views with charts: spans, zoom, moving, live or paused.

import type { Signal } from "@preact/signals";
import { now } from "../data/feed";
import { asking, pasts } from "../data/past";
import { clock, duration } from "../text/format";
import { ForecastToggle } from "./forecasting";
import { move, nextSpan, SPANS, zoom } from "./range";
import type { Range } from "./range";

/** The stretch of time that a view shows, and the place of its cursor. */
export interface Timeline {
  /** Seconds shown while the view is live. */
  readonly span: Signal<number>;
  readonly setSpan: (seconds: number) => void;
  /** The stretch shown while the view is paused; null while it is live. */
  readonly frozen: Signal<Range | null>;
  /** Time under the cursor in ms. */
  readonly cursor: Signal<number | null>;
}

export const shown = ({ frozen, span }: Timeline): Range => frozen.value ?? [now() / 1000 - span.value, now() / 1000];

function zoomOut(line: Timeline): void {
  const longer = nextSpan(line.span.value, 1);
  if (line.frozen.value === null && longer !== line.span.value) line.setSpan(longer);
  else line.frozen.value = zoom(shown(line), 2, now() / 1000);
}

function zoomIn(line: Timeline): void {
  const shorter = nextSpan(line.span.value, -1);
  if (line.frozen.value === null && shorter !== line.span.value) line.setSpan(shorter);
  else line.frozen.value = zoom(shown(line), 0.5, now() / 1000);
}

const step = (line: Timeline, share: number): void => void (line.frozen.value = move(shown(line), share, now() / 1000));

const KEYS: Readonly<Record<string, (line: Timeline) => void>> = {
  ArrowLeft: (line) => step(line, -0.25),
  ArrowRight: (line) => line.frozen.value !== null && step(line, 0.25),
  "+": zoomIn,
  "=": zoomIn,
  "-": zoomOut,
  Escape: (line) => (line.frozen.value = null),
};

/** The keys of charts; KEYS_TOLD describes them to readers who cannot see the charts. */
export function steer(line: Timeline, event: KeyboardEvent): void {
  const act = KEYS[event.key];
  const inside = event.target as Element;
  if (act === undefined || event.ctrlKey || event.metaKey || event.altKey || inside.closest("input, textarea, select") !== null) return;
  act(line);
  event.preventDefault();
}
export const KEYS_TOLD = "Charts: left and right move in time, plus and minus zoom, Escape goes on live";

export function Tools({ line, range, at, long, forecast }: { line: Timeline; range: Range; at: number; long: boolean; forecast: boolean }) {
  const live = line.frozen.value === null;
  const [past] = pasts.value.values();
  return (
    <div class="tools">
      <span class="spans" role="group" aria-label="Time shown">
        {SPANS.map(({ name, seconds }) => (
          <button type="button" aria-pressed={live && line.span.value === seconds} onClick={() => (line.setSpan(seconds), (line.frozen.value = null))}>{name}</button>
        ))}
      </span>
      <span class="spans" role="group" aria-label="Zoom">
        <button type="button" aria-label="Zoom out" title="zoom out: −" onClick={() => zoomOut(line)}>−</button>
        <button type="button" aria-label="Zoom in" title="zoom in: +" onClick={() => zoomIn(line)}>+</button>
      </span>
      <button type="button" class="pause" aria-pressed={!live} onClick={() => (line.frozen.value = live ? range : null)}>
        {live ? "Pause" : "Go on live"}
      </button>
      {forecast && <ForecastToggle />}
      <span class="cursor-time" role="status">
        {live ? "live" : `paused at ${clock(Math.min(range[1] * 1000, at), at)}`}
        {long && (asking.value ? ", asking for the past" : past === undefined ? "" : `, ${duration(past.stepMs)} a bucket`)}
      </span>
      <span class="tip">drag to zoom, arrows move</span>
    </div>
  );
}
