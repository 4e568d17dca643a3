// A chart of one unit over time (uPlot), with the axes and inks of the page. Several charts can
// share cursor and zoom.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { bandAlpha, certainty, EXPECTED_DASH, faded, lineAlpha } from "../sheet/ahead";
import type { Stop } from "../sheet/ahead";
import { inks } from "../theme";
import { plain, quantity } from "../text/format";
import { axisLabels } from "./range";

const [FINE, BOLD] = [1.5, 3.2];

/** Colour and thickness of the n-th series. Dashes have only one meaning: not measured. */
export const SERIES_STYLES = [
  { ink: "read", width: FINE },
  { ink: "write", width: FINE },
  { ink: "green", width: FINE },
  { ink: "ink", width: FINE },
  { ink: "read", width: BOLD },
  { ink: "write", width: BOLD },
  { ink: "green", width: BOLD },
  { ink: "ink", width: BOLD },
] as const;

/** Times in seconds that are marked on the paper. */
export interface Marks {
  /** Short ticks at the foot: frames. */
  readonly ticks: readonly number[];
  /**
   * Lines over the whole height, with a flag at the top, and its name if there is room: calls into
   * programs.
   */
  readonly flags: readonly { readonly at: number; readonly label: string; readonly isBad: boolean }[];
}

/** The parts of a chart that are drawn as not measured. */
export interface Ahead {
  /** Indices of the lines that have three rows of predictions: low, high and line. */
  readonly of: readonly number[];
  /** The time in seconds from which on the paper is white. */
  readonly now: number;
  /** Hollow marks on the lines, at times in seconds: derived values. */
  readonly hollow: readonly { readonly line: number; readonly at: number; readonly value: number }[];
}

/** Ticks closer together than this are drawn as one stretch, in CSS pixels. */
const TICK_PX_MIN = 3;

/** Opacity of a band, as the last two digits of its colour. */
const BAND_ALPHA = "2e";

export interface Line {
  readonly label: string;
  /** Index into SERIES_STYLES. */
  readonly style: number;
}

const styleOf = (line: Line | undefined) => SERIES_STYLES[(line?.style ?? 0) % SERIES_STYLES.length] ?? SERIES_STYLES[0];

export interface ChartProps {
  readonly unit: string;
  readonly lines: readonly Line[];
  /**
   * Times, then a row for each line. With `bands`, a row of lows and one of highs for each line
   * come before these. After them come low, high and line of the prediction for each line in
   * `ahead`.
   */
  readonly data: uPlot.AlignedData;
  readonly bands?: boolean;
  /** Shown time in seconds; that of the data if omitted. */
  readonly range?: readonly [number, number] | undefined;
  readonly height: number;
  readonly syncKey?: string;
  readonly name: string;
  readonly marks?: Marks;
  readonly ahead?: Ahead | undefined;
  readonly onZoom?: (from: number, to: number) => void;
  readonly onCursor?: (ts: number | null) => void;
}

export function Chart(props: ChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const live = useRef(props);
  live.current = props;
  const shape = JSON.stringify([props.unit, props.lines, props.height, props.bands, props.ahead?.of]);
  const look = inks.value;
  useEffect(() => {
    const box = host.current;
    if (box === null) return undefined;
    const made = new uPlot(options(live, box.clientWidth), live.current.data, box);
    plot.current = made;
    const sized = new ResizeObserver(() => made.setSize({ width: box.clientWidth, height: live.current.height }));
    sized.observe(box);
    return () => {
      sized.disconnect();
      made.destroy();
    };
  }, [shape, look]);
  useEffect(() => {
    const made = plot.current;
    if (made === undefined || made.series.length !== props.data.length) return;
    made.setData(props.data, props.range === undefined);
    if (props.range !== undefined) made.setScale("x", { min: props.range[0], max: props.range[1] });
  }, [props.data, props.range?.[0], props.range?.[1], props.marks, shape, look]);
  return <div class="chart" ref={host} role="img" aria-label={props.name} />;
}

function options(live: { readonly current: ChartProps }, width: number): uPlot.Options {
  const { unit, lines, height, syncKey } = live.current;
  const banded = live.current.bands === true ? lines.length : 0;
  const expected = live.current.ahead?.of ?? [];
  /** Index of the first of the three series of the n-th prediction: low, high, line. */
  const rowOf = (n: number) => 1 + 2 * banded + lines.length + 3 * n;
  /** Whether the cursor is at a time without measurements. */
  const isAhead = (u: uPlot) => expected.length > 0 && u.posToVal(u.cursor.left ?? 0, "x") > (live.current.ahead?.now ?? Infinity);
  const isEdge = (i: number) => i <= 2 * banded || (i >= rowOf(0) && (i - rowOf(0)) % 3 !== 2);
  const edge: uPlot.Series = { width: 0, spanGaps: false, points: { show: false } };
  const look = inks.value;
  const style = getComputedStyle(document.body);
  const font = `12px ${style.fontFamily}`;
  const axis = { stroke: look.muted, font, ticks: { stroke: look["rule-strong"], width: 1, size: 4 }, grid: { stroke: look.rule, width: 1 } };
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 30, 0, 0],
    cursor: {
      drag: { x: live.current.onZoom !== undefined, y: false, setScale: false },
      points: { size: (u, i) => (isEdge(i) || i >= rowOf(0) !== isAhead(u) ? 0 : 7) },
      ...(syncKey === undefined ? {} : { sync: { key: syncKey } }),
    },
    scales: { x: { time: true }, y: { range: (_u, min, max) => yRange(unit, min, max) } },
    axes: [
      { ...axis, space: 80, size: 32, values: (u, splits, _axis, _space, step) => axisLabels(splits, step).map((label, i) => (isAtNow(u, splits[i] ?? 0, live.current.ahead?.now) ? "" : label)) },
      { ...axis, size: unit === "time" ? 150 : 72, ...(unit === "flag" ? { splits: () => [0, 1] } : {}), values: (_u, splits) => axisNumbers(splits, unit) },
    ],
    bands: [
      ...Array.from({ length: banded }, (_, i): uPlot.Band => ({ series: [1 + banded + i, 1 + i], fill: `${look[styleOf(lines[i]).ink]}${BAND_ALPHA}` })),
      ...expected.map((line, n): uPlot.Band => ({ series: [rowOf(n) + 1, rowOf(n)], fill: (u) => faded(u.ctx, look[styleOf(lines[line]).ink], stopsOf(u, rowOf(n), bandAlpha)) })),
    ],
    series: [
      {},
      ...Array.from({ length: 2 * banded }, () => edge),
      ...lines.map((line): uPlot.Series => {
        const s = styleOf(line);
        return { label: line.label, stroke: look[s.ink], width: s.width, spanGaps: false, points: { show: false } };
      }),
      ...expected.flatMap((line, n): uPlot.Series[] => {
        const s = styleOf(lines[line]);
        const stroke = (u: uPlot) => faded(u.ctx, look[s.ink], stopsOf(u, rowOf(n), lineAlpha));
        return [edge, edge, { label: `${lines[line]?.label ?? ""} expected`, stroke, width: s.width, dash: [...EXPECTED_DASH], spanGaps: false, points: { show: false, fill: look[s.ink] } }];
      }),
    ],
    hooks: {
      drawClear: [(u) => live.current.ahead !== undefined && drawWhite(u, live.current.ahead.now)],
      draw: [
        (u) => live.current.ahead !== undefined && drawAhead(u, live.current.ahead, lines),
        (u) => drawNow(u, live.current.ahead?.now, font),
        (u) => live.current.marks !== undefined && drawMarks(u, live.current.marks, font),
      ],
      setSelect: [
        (u) => {
          if (u.select.width > 4) live.current.onZoom?.(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
      setCursor: [(u) => live.current.onCursor?.(u.cursor.left === undefined || u.cursor.left < 0 ? null : u.posToVal(u.cursor.left, "x") * 1000)],
    },
  };
}

/** Opacity of the ink along a prediction, by its certainty: its rows are `low`, high and line. */
function stopsOf(u: uPlot, low: number, alphaOf: (sure: number) => number): Stop[] {
  const shown = (u.scales["y"]?.max ?? 0) - (u.scales["y"]?.min ?? 0);
  const [times, lows, highs, line] = [u.data[0], u.data[low] ?? [], u.data[low + 1] ?? [], u.data[low + 2] ?? []];
  const stops: Stop[] = [];
  for (let i = 0; i < times.length; i += 1) {
    const [a, b] = [lows[i], highs[i]];
    if (typeof line[i] !== "number") continue;
    const sure = typeof a === "number" && typeof b === "number" ? certainty((b - a) / 2, shown) : 0;
    stops.push({ x: u.valToPos(times[i] ?? 0, "x", true), alpha: alphaOf(sure) });
  }
  return stops;
}

/** Paints the paper right of now white. */
function drawWhite(u: uPlot, now: number): void {
  const { ctx, bbox } = u;
  const x = Math.max(bbox.left, u.valToPos(now, "x", true));
  const width = bbox.left + bbox.width - x;
  if (!(width > 1)) return;
  ctx.fillStyle = inks.value.ahead;
  ctx.fillRect(x, bbox.top, width, bbox.height);
  ctx.fillStyle = inks.value.edge;
  ctx.fillRect(x, bbox.top, devicePixelRatio, bbox.height);
}

const HOLLOW_PX = 2.4;

/** Draws hollow marks on derived values. */
function drawAhead(u: uPlot, { hollow }: Ahead, lines: readonly Line[]): void {
  const look = inks.value;
  const { ctx, bbox } = u;
  const px = devicePixelRatio;
  ctx.save();
  ctx.lineWidth = px;
  ctx.fillStyle = look.sheet;
  for (const { line, at, value } of hollow) {
    const [x, y] = [u.valToPos(at, "x", true), u.valToPos(value, "y", true)];
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = look[styleOf(lines[line]).ink];
    ctx.beginPath();
    ctx.arc(x, y, HOLLOW_PX * px, 0, 2 * Math.PI);
    ctx.fill();
    ctx.stroke();
  }
  ctx.restore();
}

/**
 * White paper narrower than this gets no word on the axis; labels nearer to the word than this are
 * left out.
 */
const NOW_PX = 36;

const isNowShown = (u: uPlot, now: number | undefined): now is number => now !== undefined && u.valToPos(now, "x") + NOW_PX < u.bbox.width / devicePixelRatio;
const isAtNow = (u: uPlot, split: number, now: number | undefined): boolean => isNowShown(u, now) && Math.abs(u.valToPos(split, "x") - u.valToPos(now, "x")) < NOW_PX;

/** Draws the word `now` on the axis of time, where measurements end. */
function drawNow(u: uPlot, now: number | undefined, font: string): void {
  if (!isNowShown(u, now)) return;
  const { ctx, bbox } = u;
  const px = devicePixelRatio;
  ctx.save();
  ctx.font = font.replace(/^\d+px/, `${12 * px}px`);
  ctx.textBaseline = "top";
  ctx.textAlign = "center";
  ctx.fillStyle = inks.value.ink;
  ctx.fillText("now", u.valToPos(now, "x", true), bbox.top + bbox.height + 9 * px);
  ctx.restore();
}

/** Longest label of the value axis, in letters. */
const AXIS_LETTERS_MAX = 9;

/**
 * The labels of a value axis with their unit; without it if the unit is a long word of a program.
 */
function axisNumbers(splits: readonly number[], unit: string): string[] {
  const texts = splits.map((v) => plain(quantity(v, unit)));
  return unit !== "time" && texts.some((text) => text.length > AXIS_LETTERS_MAX) ? splits.map((v) => plain(quantity(v, ""))) : texts;
}

/**
 * The range of the value axis: ratios show the whole from 0 to 1; quantities that are never
 * negative begin at zero.
 */
function yRange(unit: string, min: number | null, max: number | null): [number, number] {
  if (min === null || max === null) return [0, 1];
  if (unit === "flag") return [-0.1, 1.1];
  if (unit === "ratio" && min >= 0 && max <= 1) return [0, 1];
  // A constant point in time is not drawn on a range that begins in 1970.
  const span = max - min || (unit === "time" ? 60 : Math.abs(max)) || 1;
  const low = min >= 0 && min < span * 2 ? 0 : min - span * 0.08;
  return [low, max + span * 0.08];
}

function drawMarks(u: uPlot, { ticks, flags }: Marks, font: string): void {
  const look = inks.value;
  const { ctx, bbox } = u;
  const px = devicePixelRatio;
  const inside = (x: number) => x >= bbox.left && x <= bbox.left + bbox.width;
  const foot = bbox.top + bbox.height;
  ctx.save();
  ctx.fillStyle = look.muted;
  let last = NaN;
  for (const at of ticks) {
    const x = u.valToPos(at, "x", true);
    if (!inside(x)) continue;
    // Frames that are close together become a stretch, so that a tick is always one frame.
    if (x - last < TICK_PX_MIN * px) ctx.fillRect(last, foot - 2 * px, x - last, 2 * px);
    else ctx.fillRect(x, foot - 5 * px, px, 5 * px);
    last = x;
  }
  ctx.font = font.replace(/^\d+px/, `${11 * px}px`);
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  const seen = flags.map((flag) => ({ ...flag, x: u.valToPos(flag.at, "x", true) })).filter(({ x }) => inside(x));
  seen.forEach(({ x, label, isBad }, i) => {
    ctx.fillStyle = ctx.strokeStyle = isBad ? look.red : look.ink;
    ctx.setLineDash([2 * px, 3 * px]);
    ctx.lineWidth = px;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, foot);
    ctx.stroke();
    ctx.beginPath();
    for (const [dx, dy] of isBad ? [[-4, 8], [4, 8], [0, 0]] : [[-4, 4], [0, 8], [4, 4], [0, 0]]) ctx.lineTo(x + (dx ?? 0) * px, bbox.top + (dy ?? 0) * px);
    ctx.fill();
    const end = Math.min(seen[i + 1]?.x ?? Infinity, bbox.left + bbox.width);
    if (x + ctx.measureText(label).width + 13 * px < end) ctx.fillText(label, x + 7 * px, bbox.top);
  });
  ctx.restore();
}
