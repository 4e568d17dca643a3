// The barograph sheet: a strip for each device, one axis of time, one cursor across all.

import { signal, useSignal } from "@preact/signals";
import type { Signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ageMs, beat, expectedOf, filled, get, isOld, link, named, now } from "../data/feed";
import type { Series } from "../data/feed";
import { endOf, expectedAt, FORECAST_PREFIX, furthest } from "../data/projection";
import type { Knot, Projection } from "../data/projection";
import { SATURATED, saturatedSince, stripSentence } from "../data/trouble";
import type { Reading } from "../data/trouble";
import { clock, duration, errorBeside, expectedText, moment, plain, rate } from "../text/format";
import { streamText } from "../text/fuzzy";
import { forecasting, ForecastToggle } from "../view/forecasting";
import { Value } from "../view/parts";
import { AHEAD, AHEAD_EXPECTED, PEN_LATENCIES_S, PEN_WIDTHS, slackOf, timeAt } from "./geometry";
import { Roll } from "./roll";
import type { Trace } from "./painter";

/** The cursor's place on the paper, in pixels from its left edge; shared by all strips. */
const cursor = signal<number | null>(null);

const WINDOWS_MIN = [2, 5, 15] as const;
/** Most devices without folding; with more, those that did nothing are folded. */
const UNFOLDED_MAX = 6;

const ROWS = {
  busy: "disk.busy.ratio",
  read: "disk.read.bytes_per_second",
  write: "disk.write.bytes_per_second",
  readLatency: "disk.read.latency.seconds",
  writeLatency: "disk.write.latency.seconds",
  saturated: SATURATED,
} as const;
export const SHEET_MATCHES = [...Object.values(ROWS), "disk.tier.name", FORECAST_PREFIX + ROWS.busy];

/** The projection of a device's line, if there is one and it is to be shown. */
const expected = (device: string): Projection | undefined => (forecasting.value ? expectedOf(streamText(ROWS.busy, { device })) : undefined);

const of = (name: string, device: string): Series | undefined => get(streamText(name, { device }));

/** Every device that has a strip; labels other than `device` are ignored. */
function devices(): string[] {
  return [...new Set(named(ROWS.busy).map((one) => one.labels["device"] ?? ""))].filter((name) => name !== "");
}

function isIdle(device: string): boolean {
  return [ROWS.busy, ROWS.read, ROWS.write].every((name) => {
    const one = of(name, device);
    if (one === undefined) return true;
    if (isOld(one) && link.value.state === "live") return false;
    for (let i = 0; i < one.ring.length; i += 1) if (one.ring.value(i) > 0.001) return false;
    return true;
  });
}

export function Sheet() {
  const minutes = useSignal<number>(5);
  const unfolded = useSignal(false);
  const roll = useMemo(() => new Roll(minutes.peek() * 60_000), []);
  useEffect(() => () => roll.stop(), []);
  void beat.value;
  const all = devices();
  const idle = all.length > UNFOLDED_MAX ? all.filter(isIdle) : [];
  const shown = unfolded.value ? all : all.filter((device) => !idle.includes(device));
  const density = shown.length <= 1 ? "single" : shown.length <= 3 ? "tall" : shown.length <= 8 ? "middle" : shown.length <= 20 ? "low" : "dense";
  const lost = link.value.state === "lost";
  const isForecast = shown.some((device) => expectedOf(streamText(ROWS.busy, { device })) !== undefined);
  const isDrawn = isForecast && forecasting.value;
  useEffect(() => roll.setAhead(isDrawn ? AHEAD_EXPECTED : AHEAD), [isDrawn]);
  return (
    <section class={`sheet ${density}${lost ? " dead" : ""}`} aria-label="Sheet of the storage devices">
      <Axis roll={roll} />
      <div class="strips" onPointerMove={(e) => point(e)} onPointerLeave={() => (cursor.value = null)}>
        {shown.map((device) => (
          <Strip key={device} device={device} roll={roll} />
        ))}
        {all.length === 0 && <p class="note empty">{filled.value ? "No block device is seen here: the Doctor says why." : "Waiting for the agent."}</p>}
        <CursorLine />
      </div>
      <Legend forecast={isDrawn} />
      <footer class="sheet-foot">
        {idle.length > 0 && <Fold idle={idle} open={unfolded} />}
        {isForecast && <ForecastToggle />}
        <span class="spans" role="group" aria-label="Time on the sheet">
          {WINDOWS_MIN.map((n) => (
            <button
              type="button"
              aria-pressed={minutes.value === n}
              onClick={() => {
                minutes.value = n;
                roll.setWindow(n * 60_000);
              }}
            >
              {n} min
            </button>
          ))}
        </span>
      </footer>
    </section>
  );
}

function Fold({ idle, open }: { idle: readonly string[]; open: Signal<boolean> }) {
  return (
    <button type="button" class="fold" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
      {open.value ? "Fold" : "Show"} {idle.length} idle {idle.length === 1 ? "device" : "devices"}: {idle.slice(0, 6).join(", ")}
      {idle.length > 6 ? " …" : ""}
    </button>
  );
}

/** Sets the cursor to the pointer's place; beside the paper there is no cursor. */
function point(event: PointerEvent): void {
  const strip = (event.target as Element).closest(".strip")?.querySelector(".paper");
  if (strip === null || strip === undefined) return;
  const box = strip.getBoundingClientRect();
  // Relative to the inside of the paper's border.
  const x = event.clientX - box.left - 1;
  cursor.value = x >= 0 && x <= box.width ? x : null;
}

/** The time labels; also the element by which the keyboard moves the cursor. */
function Axis({ roll }: { roll: Roll }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    roll.setAxis(canvas.current);
    return () => roll.setAxis(null);
  }, []);
  const move = (event: KeyboardEvent) => {
    const p = roll.paper;
    const at = cursor.value ?? p.penX;
    const step = event.shiftKey ? 50 : 5;
    // Right of the pen there are only predictions.
    const last = reach() === undefined ? p.penX : p.width;
    const to = { ArrowLeft: at - step, ArrowRight: at + step, PageUp: at - 100, PageDown: at + 100, Home: 0, End: p.penX }[event.key];
    if (to !== undefined) cursor.value = Math.max(0, Math.min(last, to));
    else if (event.key === "Escape") cursor.value = null;
    else return;
    event.preventDefault();
  };
  const x = cursor.value;
  const p = roll.paper;
  const coming = reach();
  const at = x === null ? p.now : timeAt(p, coming === undefined ? Math.min(x, p.penX) : x);
  const ago = now() - at;
  const isAhead = x !== null && x > p.penX;
  return (
    <div class="axis">
      <span class="cursor-time">{x === null ? "" : isAhead && coming === undefined ? "not yet" : <time title={moment(at)}>{clock(at, now())}</time>}</span>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="slider"
        aria-label="Cursor in time over all strips; arrow keys move it, Escape lets go"
        aria-valuemin={-Math.round((p.penX * p.msPerPx) / 1000) || -1}
        aria-valuemax={coming === undefined ? 0 : Math.round(((p.width - p.penX) * p.msPerPx) / 1000)}
        aria-valuenow={coming === undefined ? -Math.round(Math.max(0, ago) / 1000) : Math.round(-ago / 1000)}
        aria-valuetext={x === null ? "now" : `${clock(at, now())}, ${ago < 0 ? `in ${duration(-ago)}` : `${duration(ago)} ago`}`}
        onKeyDown={move}
        onBlur={() => (cursor.value = null)}
      />
      <span class="heads" aria-hidden="true">
        <span>busy</span>
        <span class="is-read">read</span>
        <span class="is-write">write</span>
        <span>latency</span>
      </span>
    </div>
  );
}

/** The time up to which any line is predicted; undefined if none is. */
function reach(): number | undefined {
  const ends = devices().flatMap((device) => {
    const projection = expected(device);
    return projection === undefined ? [] : [endOf(projection)];
  });
  return ends.length === 0 ? undefined : Math.max(...ends);
}

function CursorLine() {
  return <div class="cursor-line" hidden={cursor.value === null} style={{ transform: `translateX(${cursor.value ?? 0}px)` }} aria-hidden="true" />;
}

const trace = (one: Series | undefined): Trace | undefined => one && { ring: one.ring, intervalMs: one.intervalMs };

function Strip({ device, roll }: { device: string; roll: Roll }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const pen = useRef<HTMLCanvasElement>(null);
  const scale = useSignal(0);
  useEffect(() => {
    if (canvas.current === null || pen.current === null) return undefined;
    const traces = () => ({
      busy: trace(of(ROWS.busy, device)),
      read: trace(of(ROWS.read, device)),
      write: trace(of(ROWS.write, device)),
      readLatency: trace(of(ROWS.readLatency, device)),
      writeLatency: trace(of(ROWS.writeLatency, device)),
      saturated: trace(of(ROWS.saturated, device)),
      expected: expected(device),
    });
    return roll.attach(canvas.current, pen.current, traces, (to) => (scale.value = to));
  }, [device]);
  void beat.value;
  const at = now();
  const latest = reading(device, null);
  const x = cursor.value;
  const p = roll.paper;
  const isAhead = x !== null && x > p.penX;
  const ahead = isAhead && reach() !== undefined ? timeAt(p, x) : null;
  const knot = ahead === null ? undefined : knotAt(device, ahead);
  const r = ahead !== null ? { ...UNKNOWN, busy: knot?.value ?? NaN } : x === null || isAhead ? latest : reading(device, timeAt(p, x));
  const bad = !latest.old && !Number.isNaN(latest.since);
  const state = latest.old ? "silent" : bad ? "saturated" : "";
  const tier = of("disk.tier.name", device)?.text ?? "";
  return (
    <div class={`strip ${state}`} data-device={device}>
      <div class="who">
        <h2>{device}</h2>
        {tier !== "" && <span class="tier">{tier}</span>}
        {bad && (
          <span class="state bad">
            <span aria-hidden="true">▲ </span>saturated <span class="for">{duration(at - latest.since)}</span>
          </span>
        )}
        {latest.old && link.value.state === "live" && <span class="state old">no news for {duration(latest.silentMs)}</span>}
      </div>
      <div class="paper">
        <div class="past">
          <canvas ref={canvas} role="img" aria-label={stripSentence({ ...latest, expected: expectedWords(device, p.now + (p.width - p.penX) * p.msPerPx) }, at)} />
        </div>
        <canvas ref={pen} class="pen" aria-hidden="true" />
        {scale.value > 0 && (
          <span class={latest.busy > 0.5 ? "scale low" : "scale"} aria-hidden="true" title="full height of the areas: read below, write on top of it">
            {plain(rate(scale.value))}
          </span>
        )}
      </div>
      <div class={latest.old && x === null ? "readings old" : "readings"} aria-hidden="true">
        <Value value={r.busy} unit="ratio" />
        <Value value={r.read} unit="B/s" />
        <Value value={r.write} unit="B/s" />
        <Value value={r.latency} unit="s" />
        {x !== null && <span class="provenance">{ahead !== null ? foretold(knot, ahead) : provenance(device, isAhead ? null : timeAt(p, x))}</span>}
      </div>
    </div>
  );
}

const UNKNOWN = { read: NaN, write: NaN, latency: NaN };

/** The prediction for a device's line at a time. */
function knotAt(device: string, ts: number): Knot | undefined {
  const projection = expected(device);
  return projection === undefined ? undefined : expectedAt(projection, ts);
}

/** The prediction at the end of the sheet, or at the end of the forecast: `45 % ± 5 in 30 s`. */
function expectedWords(device: string, end: number): string {
  const projection = expected(device);
  const at = now();
  const knot = projection === undefined ? undefined : furthest(projection, at, end);
  return knot === undefined ? "" : expectedText(knot.value, knot.half, "ratio", knot.ts - at);
}

/** A text that marks the value under the cursor as predicted, with its error. */
function foretold(knot: Knot | undefined, ts: number): string {
  if (knot === undefined) return "not forecast";
  const error = Number.isFinite(knot.half) ? `± ${errorBeside(knot.value, knot.half, "ratio")}` : "error not known yet";
  return `${error}, expected${ts > now() ? ` in ${duration(ts - now())}` : ""}`;
}

/** The known values of a device at a time; `null` is now. */
function reading(device: string, ts: number | null): Reading {
  const value = (name: string): number => {
    const one = of(name, device);
    if (one === undefined || one.ring.length === 0) return NaN;
    const i = ts === null ? one.ring.length - 1 : one.ring.at(ts, slackOf(one.intervalMs));
    return i < 0 ? NaN : one.ring.value(i);
  };
  const busy = of(ROWS.busy, device);
  const latencies = [value(ROWS.readLatency), value(ROWS.writeLatency)].filter((v) => !Number.isNaN(v));
  return {
    device,
    busy: value(ROWS.busy),
    read: value(ROWS.read),
    write: value(ROWS.write),
    latency: latencies.length === 0 ? NaN : Math.max(...latencies),
    since: saturatedSince(of(ROWS.saturated, device)?.ring),
    silentMs: busy === undefined ? 0 : ageMs(busy),
    old: busy !== undefined && busy.looked > 0 && isOld(busy),
  };
}

/** Age and quality of the value under the cursor. */
function provenance(device: string, ts: number | null): string {
  const one = of(ROWS.busy, device);
  if (one === undefined || ts === null) return "";
  const i = one.ring.at(ts, slackOf(one.intervalMs));
  if (i < 0) return "nothing known: gap";
  return `${duration(now() - Math.min(ts, one.ring.held(i)))} old, ${one.ring.quality(i)}`;
}

function Legend({ forecast }: { forecast: boolean }) {
  const bounds = PEN_LATENCIES_S.map((s) => `≤ ${s * 1000} ms`);
  return (
    <p class="legend">
      <span>
        <svg viewBox="0 0 26 10" aria-hidden="true"><path class="l-ink" d="M1,8C7,8 8,3 13,3S20,6 25,4" /></svg> line: busy, up to 100 %
      </span>
      <span>
        <svg viewBox="0 0 26 10" aria-hidden="true"><path class="l-read" d="M1,9V6L9,5L17,7L25,4V9Z" /></svg> read
      </span>
      <span>
        <svg viewBox="0 0 26 10" aria-hidden="true"><path class="l-write" d="M1,9V4L9,6L17,3L25,5V9Z" /></svg> write, on top of it
      </span>
      <span>↥ full height of the areas</span>
      {forecast && (
        <span>
          <svg viewBox="0 0 26 10" aria-hidden="true"><path class="l-band" d="M1,4L25,1V9L1,6Z" /><path class="l-expected" d="M1,5H25" /></svg> dashed: expected, within its error
        </span>
      )}
      <span class="pens">
        pen, by latency:
        {PEN_WIDTHS.map((width, i) => (
          <span>
            <svg viewBox="0 0 26 10" class="pen" aria-hidden="true"><path d="M4,5H22" style={{ strokeWidth: width }} /></svg> {bounds[i] ?? "more"}
          </span>
        ))}
      </span>
    </p>
  );
}
