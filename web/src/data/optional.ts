// Tables that not every agent has: which there are is asked seldom, and only those are asked for, so
// that nothing is refused aloud.

import type { Signal } from "@preact/signals";
import * as api from "./api";
import { now } from "./feed";
import { rowsOf } from "./publications";
import type { Row } from "./publications";
import { words } from "../text/format";

/** Which tables there are is asked for this often. */
const SELDOM_MS = 30_000;

/** A statement was refused since there is no such table, or no frame of that publication yet. */
export const isAbsent = (error: unknown): boolean => error instanceof api.ApiError && /\bno (such )?table\b|no publication of this name/i.test(error.message);

/** Some of such tables. */
export class Optional<Name extends string> {
  private has: readonly unknown[] = [];
  private looked = -Infinity;

  constructor(private readonly names: readonly Name[]) {}

  /** Asks which there are, if that is due or wanted at once; whether it did. */
  async look(atOnce = false): Promise<boolean> {
    if (!atOnce && now() - this.looked <= SELDOM_MS) return false;
    this.has = (await api.sql(`SELECT name FROM tables WHERE name IN ('${this.names.join("', '")}')`)).rows.map(([name]) => name);
    this.looked = now();
    return true;
  }

  /** At most so many rows of one; none where it is not there. */
  async rows(name: Name, limit: number, order = ""): Promise<Row[]> {
    if (!this.has.includes(name)) return [];
    try {
      return rowsOf(await api.sql(`SELECT * FROM ${name} ${order}LIMIT ${limit}`));
    } catch (error) {
      if (isAbsent(error)) return [];
      throw error;
    }
  }
}

/** Asks, unless that is under way; `fault` has why nothing came. */
export function loader(ask: () => Promise<void>, fault: Signal<string>): () => Promise<void> {
  let asking = false;
  return async () => {
    if (asking) return;
    asking = true;
    try {
      await ask();
      fault.value = "";
    } catch (error) {
      fault.value = words(error);
    } finally {
      asking = false;
    }
  };
}
