// The past before the rings: buckets of the pinned streams for the shown stretch of time, requested
// when needed and kept only for that stretch.

import { batch, signal } from "@preact/signals";
import * as api from "./api";
import { now } from "./feed";
import { NS_PER_MS } from "./contract";
import type { BucketHistory } from "./contract";
import { cut, join, pastOf } from "./buckets";
import type { Past } from "./buckets";
import { words } from "../text/format";
import { streamText } from "../text/fuzzy";

/** Most buckets of one stream: about one for each pixel of a chart. */
export const POINTS_MAX = 600;
/**
 * Shortest interval at which the newest buckets are read again while the view is live; otherwise it
 * is the step.
 */
const REFRESH_MS_MIN = 5000;
const REFRESH_MS_MAX = 60_000;
/** Time without further changes after which a new stretch is requested. */
const SETTLE_MS = 120;

/** A stretch of time of this length, up to `end`, or up to now if that is null. */
export interface Stretch {
  readonly lengthMs: number;
  readonly end: number | null;
}

/** The known buckets of the shown stretch, by stream. */
export const pasts = signal<ReadonlyMap<string, Past>>(new Map());
/** Whether an answer is awaited for a stretch of which nothing is known yet. */
export const asking = signal(false);
/** The error text of the last request; empty if it succeeded. */
export const pastFault = signal("");

let timer: ReturnType<typeof setTimeout> | undefined;
let abort = new AbortController();

/** Shows the past of these streams, instead of what was shown before. */
export function showPast(pins: readonly string[], stretch: Stretch): void {
  hidePast();
  asking.value = true;
  timer = setTimeout(() => void load(pins, stretch, abort.signal), SETTLE_MS);
}

/** Stops the requests, and forgets the past that was shown. */
export function hidePast(): void {
  clearTimeout(timer);
  abort.abort();
  abort = new AbortController();
  batch(() => {
    asking.value = false;
    pastFault.value = "";
    if (pasts.value.size > 0) pasts.value = new Map();
  });
}

async function load(pins: readonly string[], stretch: Stretch, gone: AbortSignal): Promise<void> {
  const told = now();
  const stop = Math.min(stretch.end ?? told, told);
  const from = (stretch.end ?? told) - stretch.lengthMs;
  let stepMs = 0;
  try {
    // A hidden page requests nothing; it catches up when it is visible again.
    if (!document.hidden || pasts.value.size === 0) {
      const answer = await api.buckets(pins, { ...grain(from), stop }, gone);
      const fresh = answer.filter((one) => pins.includes(streamText(one.name, one.labels)));
      stepMs = (fresh[0]?.step_ns ?? 0) / NS_PER_MS;
      batch(() => {
        pasts.value = joined(pasts.value, fresh, from, told);
        pastFault.value = "";
      });
    }
  } catch (error) {
    if (gone.aborted) return;
    pastFault.value = words(error);
  }
  if (gone.aborted) return;
  asking.value = false;
  if (stretch.end === null) timer = setTimeout(() => void load(pins, stretch, gone), Math.min(REFRESH_MS_MAX, Math.max(REFRESH_MS_MIN, stepMs)));
}

/**
 * The next request: at first a number of points; then the newest bucket again and those after it.
 */
function grain(from: number): { start: number; stepMs?: number; points?: number } {
  const known = [...pasts.value.values()];
  const [first] = known;
  if (first === undefined) return { start: from, points: POINTS_MAX };
  return { start: Math.max(from, ...known.map((past) => past.ts.at(-1) ?? 0)), stepMs: first.stepMs };
}

function joined(old: ReadonlyMap<string, Past>, fresh: readonly BucketHistory[], from: number, told: number): Map<string, Past> {
  const all = new Map<string, Past>();
  for (const [key, past] of old) all.set(key, cut({ ...past, told }, from));
  for (const one of fresh) {
    const key = streamText(one.name, one.labels);
    all.set(key, join(all.get(key), pastOf(one, told)));
  }
  return all;
}
