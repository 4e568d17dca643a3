// Draws one strip's canvas. It knows pixels and colours; the data come as numbers.

import { endOf, knotsBetween } from "../data/projection";
import type { Projection } from "../data/projection";
import type { Ring } from "../data/ring";
import type { Inks } from "../theme";
import { bandAlpha, certainty, EXPECTED_DASH, faded, lineAlpha } from "./ahead";
import { columns, grid, niceMax, PEN_WIDTHS, rules, runs, slackOf, timeAt, timeStep, xOf } from "./geometry";
import type { Grid, Paper } from "./geometry";

/** One quantity of a strip. */
export interface Trace {
  readonly ring: Ring;
  readonly intervalMs: number;
}

export interface Traces {
  readonly busy: Trace | undefined;
  readonly read: Trace | undefined;
  readonly write: Trace | undefined;
  readonly readLatency: Trace | undefined;
  readonly writeLatency: Trace | undefined;
  /** How long it has been saturated, in seconds. */
  readonly saturated: Trace | undefined;
  /** The projection of the busy ratio. */
  readonly expected: Projection | undefined;
}

/** Opacity of the areas' edges, which must not compete with the line. */
const EDGE_ALPHA = 0.5;
/** Room above the full-scale line, so that a saturated line is not cut. */
const HEAD_PX = 7;
/** Room below zero, so that a pen at rest is not cut. */
const FOOT_PX = 4;
/** Least full scale of the rates, in bytes a second. */
const RATE_SCALE_MIN = 1e6;
/** Least distance of labelled time rules. */
export const RULE_PX_MIN = 92;

/** Six rows of columns, reused by all strips: they are painted one after the other. */
class Columns {
  busy = new Float64Array(0);
  read = new Float64Array(0);
  write = new Float64Array(0);
  slow = new Float64Array(0);
  other = new Float64Array(0);
  saturated = new Float64Array(0);

  fit(count: number): void {
    if (this.busy.length >= count) return;
    for (const row of ["busy", "read", "write", "slow", "other", "saturated"] as const) this[row] = new Float64Array(count + 64);
  }
}
const cols = new Columns();

/** Paints the measured side of a strip and returns the full scale of its rates. */
export function paintStrip(canvas: HTMLCanvasElement, p: Paper, traces: Traces, ink: Inks, pale: boolean): number {
  const height = canvas.clientHeight;
  const ctx = fit(canvas, p.width, height);
  if (ctx === null) return RATE_SCALE_MIN;
  const g = grid(p);
  load(g, p, traces);
  paintRules(ctx, p, height, ink);
  const base = height - FOOT_PX;
  const scale = niceMax(peakTotal(g.count), RATE_SCALE_MIN);
  const perRate = (base - HEAD_PX) / scale;
  const x = (k: number) => xOf(p, g.t0 + (k + 0.5) * g.dt);
  const low = (k: number) => base - zero(cols.read[k]) * perRate;
  const high = (k: number) => base - sum(k) * perRate;
  const [read, write] = pale ? [ink.old, ink.old] : [ink.read, ink.write];
  paintArea(ctx, g.count, x, high, low, pale ? ink.rule : ink["write-wash"], write, cols.write);
  paintArea(ctx, g.count, x, low, () => base, pale ? ink.rule : ink["read-wash"], read, cols.read);
  paintLine(ctx, g.count, x, (v) => yOf(v, height), ink, pale);
  return scale;
}

/** The y of a ratio on a strip of this height. */
const yOf = (share: number, height: number): number => height - FOOT_PX - Math.min(1.02, Math.max(0, share)) * (height - FOOT_PX - HEAD_PX);

/** The state of the pen's nib. */
export interface Nib {
  readonly value: number;
  readonly alarm: boolean;
  readonly expected: Projection | undefined;
}

/**
 * Paints the white side: level rules, the prediction, and the pen with its nib at the newest value.
 */
export function paintPen(canvas: HTMLCanvasElement, p: Paper, { value, alarm, expected }: Nib, ink: Inks, pale: boolean): void {
  const width = p.width - p.penX;
  const height = canvas.clientHeight;
  const ctx = fit(canvas, width, height);
  if (ctx === null) return;
  if (!pale) {
    // A dead agent has no predictions.
    ctx.fillStyle = ink.ahead;
    ctx.fillRect(0, 0, width, height);
  }
  levels(ctx, width, height, ink);
  ctx.fillStyle = ink.edge;
  ctx.fillRect(0, 0, 1 / ratio(), height);
  if (expected !== undefined && !pale) paintExpected(ctx, p, height, expected, ink);
  if (Number.isNaN(value) || pale) return;
  const at = yOf(value, height);
  ctx.fillStyle = alarm ? ink.red : ink.ink;
  ctx.beginPath();
  ctx.moveTo(0, at);
  ctx.lineTo(8, at - 3.5);
  ctx.lineTo(8, at + 3.5);
  ctx.closePath();
  ctx.fill();
  ctx.fillRect(8, at - 0.5, Math.min(14, width - 10), 1);
}

/** Paints the predicted line, dashed, in its band; both fade as the error grows. */
function paintExpected(ctx: CanvasRenderingContext2D, p: Paper, height: number, expected: Projection, ink: Inks): void {
  const to = p.now + (p.width - p.penX) * p.msPerPx;
  const from = Math.max(p.now, expected.ts);
  const knots = knotsBetween(expected, from, Math.max(from, Math.min(to, endOf(expected))));
  const x = (ts: number) => (ts - p.now) / p.msPerPx;
  const points = knots.map(({ ts, value, half }) => ({ x: x(ts), value, half, sure: certainty(half, 1) }));
  // An unknown error has no band.
  const known = points.filter(({ half }) => Number.isFinite(half));
  ctx.fillStyle = faded(ctx, ink.ink, known.map(({ x: at, sure }) => ({ x: at, alpha: bandAlpha(sure) })));
  ctx.beginPath();
  for (const one of known) ctx.lineTo(one.x, yOf(one.value + one.half, height));
  for (const one of [...known].reverse()) ctx.lineTo(one.x, yOf(one.value - one.half, height));
  ctx.fill();
  ctx.strokeStyle = faded(ctx, ink.ink, points.map(({ x: at, sure }) => ({ x: at, alpha: lineAlpha(sure) })));
  ctx.lineWidth = 1.4;
  ctx.lineCap = "butt";
  ctx.setLineDash([...EXPECTED_DASH]);
  ctx.beginPath();
  for (const one of points) ctx.lineTo(one.x, yOf(one.value, height));
  ctx.stroke();
  ctx.setLineDash([]);
}

/** Device pixels per CSS pixel; more than three are not visible. */
export const ratio = (): number => Math.min(3, devicePixelRatio || 1);

function fit(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const w = Math.round(width * ratio());
  const h = Math.round(height * ratio());
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const ctx = canvas.getContext("2d");
  ctx?.setTransform(ratio(), 0, 0, ratio(), 0, 0);
  ctx?.clearRect(0, 0, width, height);
  return ctx;
}

function load(g: Grid, p: Paper, t: Traces): void {
  cols.fit(g.count);
  const one = (trace: Trace | undefined, out: Float64Array) => {
    if (trace === undefined) out.fill(NaN, 0, g.count);
    else columns(trace.ring, g, slackOf(trace.intervalMs), p.now, out);
  };
  one(t.busy, cols.busy);
  one(t.read, cols.read);
  one(t.write, cols.write);
  one(t.readLatency, cols.slow);
  one(t.writeLatency, cols.other);
  one(t.saturated, cols.saturated);
  for (let k = 0; k < g.count; k += 1) {
    const other = cols.other[k] ?? NaN;
    if (!(other <= (cols.slow[k] ?? NaN))) cols.slow[k] = Number.isNaN(other) ? (cols.slow[k] ?? NaN) : other;
  }
}

const zero = (value: number | undefined): number => (value === undefined || Number.isNaN(value) ? 0 : value);
const sum = (k: number): number => zero(cols.read[k]) + zero(cols.write[k]);

function peakTotal(count: number): number {
  let peak = 0;
  for (let k = 0; k < count; k += 1) peak = Math.max(peak, sum(k));
  return peak;
}

/** Rounds to whole device pixels, so that rules stay fine. */
const snap = (v: number): number => (Math.round(v * ratio()) + 0.5) / ratio();

function paintRules(ctx: CanvasRenderingContext2D, p: Paper, height: number, ink: Inks): void {
  const step = timeStep(p.msPerPx, RULE_PX_MIN);
  const offset = -new Date(p.now).getTimezoneOffset() * 60_000;
  ctx.lineWidth = 1 / ratio();
  for (const [every, colour] of [[step / 5, ink.rule], [step, ink["rule-strong"]]] as const) {
    ctx.strokeStyle = colour;
    ctx.beginPath();
    for (const t of rules(timeAt(p, 0), p.now, every, offset)) {
      const x = snap(xOf(p, t));
      ctx.moveTo(x, 0);
      ctx.lineTo(x, height);
    }
    ctx.stroke();
  }
  levels(ctx, p.width, height, ink);
}

/** The level rules: 25 and 75 % fine; 0, 50 and 100 % strong. */
function levels(ctx: CanvasRenderingContext2D, width: number, height: number, ink: Inks): void {
  ctx.lineWidth = 1 / ratio();
  for (const [shares, colour] of [[[0.25, 0.75], ink.rule], [[0, 0.5, 1], ink["rule-strong"]]] as const) {
    ctx.strokeStyle = colour;
    ctx.beginPath();
    for (const share of shares) {
      const y = snap(yOf(share, height));
      ctx.moveTo(0, y);
      ctx.lineTo(width, y);
    }
    ctx.stroke();
  }
}

type AtColumn = (k: number) => number;

function paintArea(ctx: CanvasRenderingContext2D, count: number, x: AtColumn, top: AtColumn, bottom: AtColumn, wash: string, edge: string, known: Float64Array): void {
  for (let from = 0; from < count; from += 1) {
    if (!(zero(known[from]) > 0)) continue;
    let to = from;
    while (to + 1 < count && zero(known[to + 1]) > 0) to += 1;
    const line = new Path2D();
    // A saturation of a single column is drawn too.
    const left = Math.max(0, from - 1);
    line.moveTo(x(left), bottom(left));
    for (let k = from; k <= to; k += 1) line.lineTo(x(k), top(k));
    const right = Math.min(count - 1, to + 1);
    line.lineTo(x(right), to === right ? top(right) : bottom(right));
    const area = new Path2D(line);
    for (let k = right; k >= left; k -= 1) area.lineTo(x(k), bottom(k));
    ctx.fillStyle = wash;
    ctx.fill(area);
    ctx.strokeStyle = edge;
    ctx.lineWidth = 0.75;
    ctx.globalAlpha = EDGE_ALPHA;
    ctx.stroke(line);
    ctx.globalAlpha = 1;
    from = to;
  }
}

function paintLine(ctx: CanvasRenderingContext2D, count: number, x: AtColumn, y: (v: number) => number, ink: Inks, pale: boolean): void {
  ctx.lineJoin = "round";
  ctx.lineCap = "round";
  for (const run of runs(cols.busy, cols.slow, cols.saturated, count)) {
    ctx.strokeStyle = pale ? ink.old : run.alarm ? ink.red : ink.ink;
    ctx.lineWidth = PEN_WIDTHS[run.pen] ?? 1;
    ctx.beginPath();
    ctx.moveTo(x(run.from), y(cols.busy[run.from] ?? 0));
    for (let k = run.from + 1; k <= run.to; k += 1) ctx.lineTo(x(k), y(cols.busy[k] ?? 0));
    if (run.from === run.to) ctx.lineTo(x(run.from) + 0.1, y(cols.busy[run.from] ?? 0));
    ctx.stroke();
  }
}

/** Paints the axis of time: labels that move with the paper. */
export function paintAxis(canvas: HTMLCanvasElement, p: Paper, ink: Inks, font: string): void {
  const height = canvas.clientHeight;
  const ctx = fit(canvas, p.width, height);
  if (ctx === null) return;
  const step = timeStep(p.msPerPx, RULE_PX_MIN);
  const offset = -new Date(p.now).getTimezoneOffset() * 60_000;
  ctx.font = font;
  ctx.textBaseline = "alphabetic";
  ctx.textAlign = "center";
  const ahead = (p.width - p.penX) * p.msPerPx;
  for (const t of rules(p.now - p.penX * p.msPerPx, p.now + ahead, step, offset)) {
    const x = Math.round(xOf(p, t));
    if (x < 22 || x > p.width - 22 || Math.abs(x - p.penX) < 44) continue;
    ctx.fillStyle = ink.muted;
    ctx.fillText(label(t, step), x, height - 7);
    ctx.fillStyle = ink["rule-strong"];
    ctx.fillRect(x, height - 4, 1, 4);
  }
  ctx.fillStyle = ink.ink;
  ctx.fillText("now", p.penX, height - 7);
}

function label(ms: number, step: number): string {
  const at = new Date(ms);
  const two = (n: number) => String(n).padStart(2, "0");
  const text = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return step < 60_000 ? `${text}:${two(at.getSeconds())}` : text;
}
