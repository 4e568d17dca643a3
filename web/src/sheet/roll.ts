// The roll that moves the paper: one animation loop for all strips of a sheet.
//
// A strip is painted when its data changed, once per tick, a little further than the pen; between
// ticks the painted paper is only shifted beneath the pen, by whole device pixels, which costs
// almost nothing. Only visible strips are painted or moved, none while the page is hidden. With
// reduced motion the paper steps on each tick.

import { effect } from "@preact/signals";
import { beat, link, now } from "../data/feed";
import { inks, stillness } from "../theme";
import { AHEAD, past, paper, slackOf, valueAt } from "./geometry";
import type { Paper } from "./geometry";
import { paintAxis, paintPen, paintStrip, ratio } from "./painter";
import type { Trace, Traces } from "./painter";

/**
 * How far the pen lags behind the agent's clock. A sample arrives up to a poll and a tick late;
 * with this lag the next one always arrives before the pen reaches it, and the line appears evenly
 * instead of by jumps.
 */
export const PEN_LAG_MS = 2000;
/**
 * How far beyond the pen the paper is painted: the part that appears until the next tick, and some
 * more.
 */
const OVER_MS = 2500;

interface Strip {
  readonly pen: HTMLCanvasElement;
  readonly traces: () => Traces;
  readonly scaled: (scale: number) => void;
  visible: boolean;
  scale: number;
}

export class Roll {
  private readonly strips = new Map<HTMLCanvasElement, Strip>();
  private readonly seen = new IntersectionObserver((entries) => this.see(entries), { rootMargin: "80px" });
  private readonly sized = new ResizeObserver(() => this.measure());
  private readonly unwatch: () => void;
  private axis: HTMLCanvasElement | null = null;
  private font = "";
  private width = 0;
  private dirty = true;
  /**
   * The paper as it was last painted; `shift` is how far it has been shifted since, in CSS pixels.
   */
  private painted: Paper | null = null;
  private shift = 0;
  private request = 0;
  private ahead = AHEAD;

  constructor(private windowMs: number) {
    this.unwatch = effect(() => {
      void [beat.value, inks.value, link.value.state];
      this.dirty = true;
    });
    const frame = () => {
      this.frame();
      this.request = requestAnimationFrame(frame);
    };
    // The browser stops calling while the page is hidden.
    this.request = requestAnimationFrame(frame);
  }

  /** The paper at the present time. */
  get paper(): Paper {
    return paper(this.width, now() - PEN_LAG_MS, this.windowMs, this.ahead);
  }

  setWindow(windowMs: number): void {
    this.windowMs = windowMs;
    this.dirty = true;
  }

  /** Sets the share of the paper right of the pen. */
  setAhead(share: number): void {
    if (share === this.ahead) return;
    this.ahead = share;
    this.measure();
  }

  setAxis(canvas: HTMLCanvasElement | null): void {
    if (this.axis !== null) this.sized.unobserve(this.axis);
    this.axis = canvas;
    if (canvas !== null) this.sized.observe(canvas);
  }

  attach(canvas: HTMLCanvasElement, pen: HTMLCanvasElement, traces: () => Traces, scaled: (scale: number) => void): () => void {
    this.strips.set(canvas, { pen, traces, scaled, visible: false, scale: 0 });
    this.seen.observe(canvas);
    // The height of the strips depends on their number.
    this.sized.observe(pen);
    return () => {
      this.strips.delete(canvas);
      this.seen.unobserve(canvas);
      this.sized.unobserve(pen);
    };
  }

  stop(): void {
    cancelAnimationFrame(this.request);
    this.seen.disconnect();
    this.sized.disconnect();
    this.unwatch();
  }

  private see(entries: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting } of entries) {
      const strip = this.strips.get(target as HTMLCanvasElement);
      if (strip !== undefined) strip.visible = isIntersecting;
    }
    this.dirty = true;
  }

  private measure(): void {
    if (this.axis === null) return;
    this.width = this.axis.clientWidth;
    this.axis.closest<HTMLElement>(".sheet")?.style.setProperty("--pen", `${this.paper.penX}px`);
    const style = getComputedStyle(this.axis);
    this.font = `${style.fontSize} ${style.fontFamily}`;
    this.dirty = true;
  }

  private frame(): void {
    if (this.width === 0 || inks.value.ink === undefined) return;
    const p = this.paper;
    const over = Math.ceil(OVER_MS / p.msPerPx);
    const from = this.painted?.now ?? 0;
    const shift = Math.round(((p.now - from) / p.msPerPx) * ratio()) / ratio();
    if (this.dirty || shift > over || shift < 0) this.paint(p, over);
    else if (shift !== this.shift && !stillness.value) this.move(p, shift);
  }

  /** Paints all known data on the paper. */
  private paint(p: Paper, over: number): void {
    this.dirty = false;
    this.painted = p;
    const pale = link.value.state === "lost";
    for (const [canvas, strip] of this.strips) {
      if (!strip.visible) continue;
      canvas.style.width = `${p.penX + over}px`;
      const scale = paintStrip(canvas, past(p, over), strip.traces(), inks.value, pale);
      if (scale !== strip.scale) {
        strip.scale = scale;
        strip.scaled(scale);
      }
    }
    this.move(p, 0);
  }

  /** Shifts the painted paper; the pens follow the line beneath them. */
  private move(p: Paper, shift: number): void {
    this.shift = shift;
    const pale = link.value.state === "lost";
    if (this.axis !== null) paintAxis(this.axis, p, inks.value, this.font);
    for (const [canvas, strip] of this.strips) {
      if (!strip.visible) continue;
      canvas.style.transform = `translateX(${-shift}px)`;
      const { busy, saturated, expected } = strip.traces();
      const at = (trace: Trace | undefined) => (trace === undefined ? NaN : valueAt(trace.ring, p.now, slackOf(trace.intervalMs)));
      paintPen(strip.pen, p, { value: at(busy), alarm: at(saturated) > 0, expected }, inks.value, pale);
    }
  }
}
