// Tables that not every agent has: the list of tables is read rarely, and only existing tables are
// queried, so that no request fails visibly.

import type { Signal } from "@preact/signals";
import * as api from "./api";
import { now } from "./feed";
import { rowsOf } from "./publications";
import type { Row } from "./publications";
import { words } from "../text/format";

/** Interval at which the list of tables is read. */
const SELDOM_MS = 30_000;

/**
 * Whether a statement was refused because there is no such table, or no frame of that publication
 * yet.
 */
export const isAbsent = (error: unknown): boolean => error instanceof api.ApiError && /\bno (such )?table\b|no publication of this name/i.test(error.message);

/** A set of such tables. */
export class Optional<Name extends string> {
  private has: readonly unknown[] = [];
  private looked = -Infinity;

  constructor(private readonly names: readonly Name[]) {}

  /** Reads the list of tables if it is due, or at once if demanded; returns whether it did. */
  async look(atOnce = false): Promise<boolean> {
    if (!atOnce && now() - this.looked <= SELDOM_MS) return false;
    this.has = (await api.sql(`SELECT name FROM tables WHERE name IN ('${this.names.join("', '")}')`)).rows.map(([name]) => name);
    this.looked = now();
    return true;
  }

  /** At most so many rows of one table; none if the table does not exist. */
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

/** Returns a function that runs `ask` unless it is running; `fault` gets the error text. */
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
