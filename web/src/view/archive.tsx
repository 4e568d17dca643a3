// The line about the archive in Doctor: the start of history, its size, its losses, and its present
// trouble.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import * as api from "../data/api";
import type { ArchiveStatus } from "../data/contract";
import { clock, duration, figures, plain, size } from "../text/format";
import { asNumber } from "../text/json";

/** Each kind of loss, with its meaning. */
const LOSSES: readonly (readonly [string, string])[] = [
  ["overflow_samples", "samples that came faster than they could be written"],
  ["failed_samples", "samples whose write failed"],
  ["shed_samples", "samples let go early for want of room"],
  ["torn_bytes", "bytes of a torn end, cut after a crash"],
  ["corrupt_files", "damaged files, set aside"],
];

/** More bytes than this wait only if the disk does not keep up. */
const WAITING_BYTES_QUIET = 1 << 20;

/** Interval at which the files are counted. */
const COUNT_MS = 60_000;
const SIZES = "SELECT sum(bytes) AS bytes, sum(rows) AS samples FROM archive WHERE tier = 'raw'";

/** One sentence about the history that is kept. */
export function archiveSentence(one: ArchiveStatus, nowMs: number, bytesPerSample = NaN): string {
  if (one.oldest_ts === null) return `History is kept in ${one.dir}; nothing is there yet.`;
  const since = one.oldest_ts / 1e6;
  const parts = [
    `${plain(size(one.bytes))} in ${one.files.toLocaleString("en")} files and a log of ${plain(size(one.log_bytes))}${bytesPerSample > 0 ? `, ${figures(bytesPerSample)} bytes a sample once it is Parquet` : ""}`,
  ];
  if (one.waiting_bytes > WAITING_BYTES_QUIET) parts.push(`${plain(size(one.waiting_bytes))} wait to be written`);
  if ((one.waiting_copies ?? 0) > 0) parts.push(`${(one.waiting_copies ?? 0).toLocaleString("en")} files wait to be copied`);
  return `History since ${clock(since, nowMs)} (${duration(nowMs - since)}): ${parts.join("; ")}.`;
}

/** The losses in words; empty if there were none. */
export function lossWords(losses: Readonly<Record<string, number>>): string[] {
  return LOSSES.flatMap(([key, words]) => ((losses[key] ?? 0) > 0 ? [`${(losses[key] ?? 0).toLocaleString("en")} ${words}`] : []));
}

/** Bytes per sample in the files that contain every sample; NaN while unknown. */
async function measure(): Promise<number> {
  try {
    const [row] = (await api.sql(SIZES)).rows;
    return asNumber(row?.[0]) / asNumber(row?.[1]);
  } catch {
    return NaN; // The line does without it.
  }
}

export function Archive({ of, now }: { of: ArchiveStatus | null; now: number }) {
  const bytesPerSample = useSignal(NaN);
  const kept = of !== null;
  useEffect(() => {
    if (!kept) return undefined;
    const look = () => void (document.hidden || measure().then((bytes) => (bytesPerSample.value = bytes)));
    look();
    const timer = setInterval(look, COUNT_MS);
    return () => clearInterval(timer);
  }, [kept]);
  if (of === null) return <p class="archive">No history is kept: what is older than the rings is gone.</p>;
  const lost = lossWords(of.losses);
  return (
    <div class="archive">
      <p title={of.dir}>
        {archiveSentence(of, now, bytesPerSample.value)}
        {of.trouble === "" && lost.length === 0 && " Nothing was lost."}
      </p>
      {lost.length > 0 && <p class="some">Lost: {lost.join("; ")}.</p>}
      {of.trouble !== "" && <p class="note bad" role="alert"><span aria-hidden="true">▲ </span>{of.trouble}</p>}
    </div>
  );
}
