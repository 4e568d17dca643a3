// The agent's HTTP answers as the page reads them. Times are nanoseconds since the epoch.

export type Labels = Readonly<Record<string, string>>;
export type Raw = number | boolean | string | readonly number[] | null;

export interface StreamInfo {
  readonly name: string;
  readonly labels: Labels;
  readonly type: string;
  readonly unit: string;
  readonly kind: string;
  readonly help: string;
  readonly interval_ns: number;
  readonly samples?: number;
  readonly depth?: number;
}

export interface WatchedStream extends StreamInfo {
  readonly index: number;
}

export interface Tick {
  readonly ts: number;
  readonly samples: readonly (readonly [number, number, Raw, number | string, number])[];
  readonly looked: readonly (readonly [number, number])[];
  /** Streams whose interval of looks has changed. */
  readonly intervals?: readonly (readonly [number, number])[];
  /** Number of streams that match but are not followed, because there are too many. */
  readonly left_out?: number;
}

export interface History {
  readonly name: string;
  readonly labels: Labels;
  readonly unit: string;
  readonly kind: string;
  readonly interval_ns: number;
  readonly ts: readonly number[];
  readonly value: readonly Raw[];
  readonly quality: readonly (number | string)[];
  /** Indices of the samples before which nobody looked: another life of the stream begins. */
  readonly begins?: readonly number[];
}

/** Samples in buckets of `step_ns`, which start at `ts`. */
export interface BucketHistory {
  readonly name: string;
  readonly labels: Labels;
  readonly node: string;
  readonly unit: string;
  readonly kind: string;
  readonly interval_ns: number;
  readonly step_ns: number;
  readonly ts: readonly number[];
  readonly count: readonly number[];
  /** The time in which known values held, in ns; 0 if it was not counted. */
  readonly held_ns: readonly number[];
  readonly min: readonly Raw[];
  readonly max: readonly Raw[];
  /** The mean over that time. */
  readonly mean: readonly (number | null)[];
  readonly last: readonly Raw[];
}

export interface Latest {
  readonly name: string;
  readonly labels: Labels;
  readonly ts: number;
  readonly value: Raw;
  readonly quality: string | number;
  readonly error: number;
  readonly age_ns: number;
  /** Whether the next look is overdue, or nobody writes: of a mirror, its node is not heard. */
  readonly stale?: boolean;
  readonly looked_ts: number;
  readonly unit: string;
}

export interface Missing {
  readonly what: string;
  readonly why: string;
  readonly remedy: string;
}

export interface Source {
  readonly source: string;
  readonly state: "ok" | "partial" | "unavailable" | "down" | "off";
  readonly sees: string | readonly string[];
  readonly streams: number;
  readonly missing: readonly Missing[];
  readonly polls: number;
  readonly errors: number;
  readonly cost_ns_mean: number;
  readonly interval_ns: number;
  readonly last_error: string | null;
}

export interface Insight {
  readonly name: string;
  readonly table: string;
  readonly sql: string;
  readonly builtin: boolean;
  readonly unit: string;
  readonly help: string;
  readonly inputs: readonly string[];
  readonly groups: number;
  readonly state: "live" | "waiting" | "unavailable" | "failed";
  /** The reason why it is not live, and what would help; both are empty if it is live. */
  readonly reason: string;
  readonly remedy: string;
  readonly evaluations: number;
  readonly cost_ns_mean: number;
}

export interface Status {
  readonly node: string;
  readonly version: string;
  readonly pid: number;
  readonly started_ts: number;
  readonly now_ts: number;
  readonly streams: number;
  readonly streams_max: number;
  readonly samples: number;
  readonly sources_up: number;
  readonly sources: number;
  readonly run_dir: string;
  readonly http: string;
  /** Null if the agent keeps no archive. */
  readonly archive?: ArchiveStatus | null;
}

/** The agent's document about its archive. */
export interface ArchiveStatus {
  readonly dir: string;
  /** Bytes of all its files, and of those that are not Parquet yet. */
  readonly bytes: number;
  readonly log_bytes: number;
  readonly files: number;
  /** Samples written since the agent started. */
  readonly samples: number;
  /** Time of the oldest sample kept, in any tier; null if there is none. */
  readonly oldest_ts: number | null;
  readonly waiting_bytes: number;
  /**
   * Files that wait to be copied to the target, and copies that wait to be removed there; absent in
   * answers of older agents.
   */
  readonly waiting_copies?: number;
  readonly stale_copies?: number;
  readonly losses: Readonly<Record<string, number>>;
  /** The reason why nothing is written now; empty if all is well. */
  readonly trouble: string;
}

export const NS_PER_MS = 1e6;

/** A raw value as a number: flags are 0 and 1, texts and null are NaN. */
export function numberOf(raw: Raw): number {
  if (typeof raw === "number") return raw;
  return typeof raw === "boolean" ? Number(raw) : NaN;
}

const QUALITY_NUMBER: Readonly<Record<string, number>> = { measured: 0, derived: 1, predicted: 2, reconciled: 3, ended: 4 };

/** Quality as its number, from either form. */
export function qualityOf(raw: number | string): number {
  return typeof raw === "number" ? raw : (QUALITY_NUMBER[raw] ?? 0);
}
