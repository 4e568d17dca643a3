// The SQL view: an editor with completion, a table and a chart of the answer, and the query in the
// address.

import { signal, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type uPlot from "uplot";
import * as api from "../data/api";
import { formatRoute, parseRoute } from "../route";
import { accept, complete } from "../text/complete";
import type { Candidate, Table } from "../text/complete";
import { plain, seconds, unitOf, words } from "../text/format";
import { asNumber, BigText } from "../text/json";
import { Chart, SERIES_STYLES } from "./chart";
import { Note } from "./parts";

const FIRST = "SELECT name, labels, value, unit, age_ns FROM latest\nORDER BY name LIMIT 50";
const EXAMPLES: readonly (readonly [string, string])[] = [
  ["newest of all", FIRST],
  ["busy over time", "SELECT ts, device, value AS busy FROM disk_busy_ratio\nORDER BY ts"],
  ["tables", "SELECT name, columns FROM tables ORDER BY name"],
  ["room by tier", "SELECT tier, value FROM tier_available_bytes WHERE newest"],
];
/** Most rows shown; all rows are counted and drawn. */
const ROWS_SHOWN_MAX = 500;
const CANDIDATES_MAX = 12;
/** Most lines in one chart. */
const LINES_MAX = SERIES_STYLES.length;

const text = signal(FIRST);
const tables = signal<readonly Table[]>([]);

type Answer = { readonly table?: api.SqlTable; readonly fault?: string; readonly tookMs: number };
const answer = signal<Answer | null>(null);
const running = signal<AbortController | null>(null);

async function run(): Promise<void> {
  running.value?.abort();
  const abort = new AbortController();
  running.value = abort;
  const sql = text.value;
  history.replaceState(null, "", formatRoute("sql", new URLSearchParams({ q: sql })));
  const start = performance.now();
  try {
    const table = await api.sql(sql, abort.signal);
    answer.value = { table, tookMs: performance.now() - start };
  } catch (error) {
    if (!abort.signal.aborted) answer.value = { fault: words(error), tookMs: performance.now() - start };
  }
  if (running.value === abort) running.value = null;
}

async function loadTables(): Promise<void> {
  try {
    const { rows } = await api.sql("SELECT name, columns FROM tables ORDER BY name");
    tables.value = rows.map(([name, columns]) => ({ name: String(name), columns: String(columns ?? "").split(/\s*,\s*/).filter(Boolean) }));
  } catch {
    // Completion is optional: the editor works without it.
  }
}

function readQuery(): void {
  const { view, query } = parseRoute(location.hash);
  const q = query.get("q");
  if (view === "sql" && q !== null) text.value = q;
}

export function Sql() {
  useEffect(() => {
    const linked = parseRoute(location.hash).query.has("q");
    readQuery();
    addEventListener("hashchange", readQuery);
    void loadTables();
    if (linked) void run();
    return () => removeEventListener("hashchange", readQuery);
  }, []);
  return (
    <main id="main" class="sql">
      <Editor />
      <Result />
    </main>
  );
}

function Editor() {
  const area = useRef<HTMLTextAreaElement>(null);
  const found = useSignal<readonly Candidate[]>([]);
  const at = useSignal(0);
  const suggest = () => {
    const box = area.current;
    if (box === null) return;
    found.value = box.selectionStart === box.selectionEnd ? complete(box.value, box.selectionStart, tables.value, CANDIDATES_MAX) : [];
    at.value = 0;
  };
  const take = (candidate: Candidate) => {
    const box = area.current;
    if (box === null) return;
    const next = accept(box.value, box.selectionStart, candidate);
    text.value = box.value = next.sql;
    box.setSelectionRange(next.caret, next.caret);
    box.focus();
    found.value = [];
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      found.value = [];
      void run();
    } else if (event.key === " " && event.ctrlKey) suggest();
    else if (found.value.length === 0) return;
    else if (event.key === "ArrowDown") at.value = (at.value + 1) % found.value.length;
    else if (event.key === "ArrowUp") at.value = (at.value + found.value.length - 1) % found.value.length;
    else if (event.key === "Escape") found.value = [];
    else if (event.key === "Tab" || event.key === "Enter") {
      const candidate = found.value[at.value];
      if (candidate !== undefined) take(candidate);
    } else return;
    event.preventDefault();
  };
  const open = found.value.length > 0;
  return (
    <section class="editor" aria-label="Query">
      <div class="field">
        <textarea
          ref={area}
          aria-label="SQL query"
          aria-autocomplete="list"
          aria-controls="candidates"
          aria-activedescendant={open ? `candidate-${at.value}` : undefined}
          rows={Math.max(4, Math.min(16, text.value.split("\n").length + 1))}
          spellcheck={false}
          autocapitalize="off"
          value={text.value}
          onInput={(e) => {
            text.value = e.currentTarget.value;
            suggest();
          }}
          onKeyDown={key}
          onBlur={() => (found.value = [])}
        />
        <ul id="candidates" role="listbox" aria-label="Completions" hidden={!open}>
          {found.value.map((one, i) => (
            <li
              id={`candidate-${i}`}
              role="option"
              aria-selected={i === at.value}
              onPointerDown={(event) => {
                event.preventDefault();
                take(one);
              }}
            >
              <span class="name">{one.text}</span> <span class="kind">{one.kind}</span> <span class="note">{one.note}</span>
            </li>
          ))}
        </ul>
      </div>
      <p class="acts">
        <button type="button" class="run" onClick={() => void run()} aria-keyshortcuts="Control+Enter">Run</button>
        {running.value !== null ? <button type="button" onClick={() => running.value?.abort()}>Stop</button> : <span class="tip"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span>}
        <span class="examples">
          {EXAMPLES.map(([name, sql]) => (
            <button type="button" class="plain" onClick={() => ((text.value = sql), void run())}>{name}</button>
          ))}
        </span>
      </p>
    </section>
  );
}

function Result() {
  const one = answer.value;
  if (one === null) return <p class="hint">Every stream is a table, read where it lies; each has <code>ts</code>, <code>value</code>, <code>quality</code>, its labels, and <code>newest</code>. Read-only.</p>;
  if (one.fault !== undefined || one.table === undefined) return <Note bad>{one.fault}</Note>;
  return <Rows table={one.table} tookMs={one.tookMs} />;
}

function Rows({ table, tookMs }: { table: api.SqlTable; tookMs: number }) {
  const { columns, rows } = table;
  const chart = useMemo(() => chartOf(table), [table]);
  const numeric = columns.map((_, c) => rows.length > 0 && rows.every((row) => row[c] === null || !Number.isNaN(asNumber(row[c]))));
  return (
    <section class="result" aria-label="Answer">
      <p class="took" role="status">
        {rows.length.toLocaleString("en")} {rows.length === 1 ? "row" : "rows"} in {plain(seconds(table.elapsed_ns / 1e9))}, {plain(seconds(tookMs / 1000))} with the way here
      </p>
      {chart !== null && <Chart {...chart} height={240} name={`Chart of ${chart.lines.map((line) => line.label).join(", ")}`} />}
      {chart !== null && (
        <ul class="keys">
          {chart.lines.map((line) => {
            const s = SERIES_STYLES[line.style % LINES_MAX] ?? SERIES_STYLES[0];
            return <li><svg class="swatch" viewBox="0 0 24 6" aria-hidden="true"><path d="M0,3H24" style={{ stroke: `var(--${s.ink})`, strokeWidth: s.width }} /></svg> {line.label}</li>;
          })}
        </ul>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label="Rows">
        <table>
          <thead>
            <tr>{columns.map((name, c) => <th scope="col" class={numeric[c] === true ? "num" : ""}>{name}</th>)}</tr>
          </thead>
          <tbody>
            {rows.slice(0, ROWS_SHOWN_MAX).map((row) => (
              <tr>{row.map((cell, c) => <Cell cell={cell} column={columns[c] ?? ""} numeric={numeric[c] === true} />)}</tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > ROWS_SHOWN_MAX && <p class="sub">The first {ROWS_SHOWN_MAX} of {rows.length.toLocaleString("en")} rows are shown.</p>}
    </section>
  );
}

const isTime = (name: string): boolean => /^(ts|timestamp|looked|.*_ts)$/i.test(name);

export function Cell({ cell, column, numeric }: { cell: unknown; column: string; numeric: boolean }) {
  if (cell === null || cell === undefined) return <td class="null">null</td>;
  if (isTime(column) && (cell instanceof BigText || asNumber(cell) > 1e15)) {
    const at = new Date(asNumber(cell) / 1e6);
    return <td class="num" title={String(cell)}>{at.toLocaleTimeString("en-GB")}<span class="unit">.{String(at.getMilliseconds()).padStart(3, "0")}</span></td>;
  }
  if (typeof cell === "number" && !Number.isInteger(cell)) return <td class="num" title={String(cell)}>{rounded(cell)}</td>;
  return <td class={numeric ? "num" : ""}>{String(cell)}</td>;
}

/** Six figures are enough to read; the tooltip has all of them. */
const rounded = (value: number): string => String(Number(value.toPrecision(6)));

/** A chart, if there is a time and a number; text columns beside them separate the lines. */
function chartOf({ columns, rows }: api.SqlTable): { unit: string; lines: { label: string; style: number }[]; data: uPlot.AlignedData } | null {
  const timeAt = columns.findIndex(isTime);
  if (timeAt < 0 || rows.length < 2) return null;
  const numbers = columns.flatMap((name, c) => (c !== timeAt && !/^(newest|error|quality)$/i.test(name) && rows.some((row) => typeof row[c] === "number") ? [c] : []));
  const value = numbers[0];
  if (value === undefined) return null;
  const parts = columns.flatMap((name, c) => (rows.every((row) => typeof row[c] === "string") && !/^(node|quality|unit)$/i.test(name) ? [c] : []));
  const lines = new Map<string, Map<number, number>>();
  for (const row of rows) {
    const label = parts.map((c) => String(row[c])).join(" ") || (columns[value] ?? "value");
    let line = lines.get(label);
    if (line === undefined) {
      if (lines.size >= LINES_MAX) continue;
      lines.set(label, (line = new Map()));
    }
    const v = asNumber(row[value]);
    if (!Number.isNaN(v)) line.set(asNumber(row[timeAt]) / 1e9, v);
  }
  const times = [...new Set([...lines.values()].flatMap((line) => [...line.keys()]))].sort((a, b) => a - b);
  if (times.length < 2) return null;
  const data = [times, ...[...lines.values()].map((line) => times.map((t) => line.get(t)))] as uPlot.AlignedData;
  return { unit: unitOf(columns[value] ?? "", ""), lines: [...lines.keys()].map((label, style) => ({ label, style })), data };
}
