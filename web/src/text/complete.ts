// Completion of SQL: finds the word at the caret, and the candidates for it. Pure.

export interface Table {
  readonly name: string;
  readonly columns: readonly string[];
}

export interface Candidate {
  readonly text: string;
  readonly kind: "table" | "column" | "word";
  /** The table of a column, or the columns of a table. */
  readonly note: string;
}

const WORDS = [
  "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "ON", "USING", "AS", "AND", "OR", "NOT", "IN",
  "BETWEEN", "LIKE", "IS NULL", "DESC", "DISTINCT", "UNION ALL", "CASE", "WHEN", "THEN", "ELSE", "END", "WITH",
  "sum(", "avg(", "min(", "max(", "count(", "now_ns()", "iso(", "history(", "rate(", "quantile(", "topk(", "asof(", "family(",
  "frames(",
];

/** The word at the caret, where it begins, and the table before its dot. */
export interface Word {
  readonly from: number;
  readonly text: string;
  readonly qualifier: string;
}

export function wordAt(sql: string, caret: number): Word {
  const before = sql.slice(0, caret);
  const match = /(?:([A-Za-z_]\w*)\.)?([A-Za-z_]\w*)?$/.exec(before);
  const text = match?.[2] ?? "";
  return { from: caret - text.length, text, qualifier: match?.[1] ?? "" };
}

/** Whether the caret is inside a string or a comment, where nothing is completed. */
export function inText(sql: string, caret: number): boolean {
  const before = sql.slice(0, caret).replace(/--[^\n]*\n/g, "").replace(/\/\*[\s\S]*?\*\//g, "").replace(/'[^']*'/g, "");
  return /'|--|\/\*/.test(before);
}

/** The aliases and tables that the statement names: alias or table to table. */
export function tablesIn(sql: string): Map<string, string> {
  const found = new Map<string, string>();
  const pattern = /\b(?:from|join)\s+([A-Za-z_]\w*)(?:\s+(?:as\s+)?(?!(?:where|group|order|limit|join|on|using|left|inner|cross|natural|union|having)\b)([A-Za-z_]\w*))?/gi;
  for (const match of sql.matchAll(pattern)) {
    const table = match[1] ?? "";
    found.set(table, table);
    const alias = match[2];
    if (alias !== undefined) found.set(alias, table);
  }
  return found;
}

/** The candidates at the caret, best first. */
export function complete(sql: string, caret: number, tables: readonly Table[], limit: number): Candidate[] {
  if (inText(sql, caret)) return [];
  const word = wordAt(sql, caret);
  const byName = new Map(tables.map((table) => [table.name, table]));
  const named = tablesIn(sql);
  if (word.qualifier !== "") {
    const table = byName.get(named.get(word.qualifier) ?? word.qualifier);
    return rank(word.text, columnsOf(table === undefined ? [] : [table]), limit);
  }
  const afterFrom = /\b(?:from|join)\s+\w*$/i.test(sql.slice(0, caret));
  const known: Candidate[] = tables.map((t) => ({ text: t.name, kind: "table", note: t.columns.join(", ") }));
  if (afterFrom) return rank(word.text, known, limit);
  if (word.text === "") return [];
  const used = [...new Set(named.values())].flatMap((name) => byName.get(name) ?? []);
  const words: Candidate[] = WORDS.map((text) => ({ text, kind: "word", note: "" }));
  return rank(word.text, [...columnsOf(used), ...words, ...known], limit);
}

function columnsOf(tables: readonly Table[]): Candidate[] {
  const seen = new Map<string, Candidate>();
  for (const table of tables) {
    for (const text of table.columns) if (!seen.has(text)) seen.set(text, { text, kind: "column", note: table.name });
  }
  return [...seen.values()];
}

/**
 * Ranks the candidates: matches at the beginning first, then at the beginning of a part (`read` in
 * `disk_read_bytes`), then at any place.
 */
function rank(typed: string, all: readonly Candidate[], limit: number): Candidate[] {
  const want = typed.toLowerCase();
  const bins: Candidate[][] = [[], [], []];
  for (const one of all) {
    const text = one.text.toLowerCase();
    if (text === want) continue;
    const bin = text.startsWith(want) ? 0 : text.includes(`_${want}`) ? 1 : one.kind !== "word" && want.length > 1 && text.includes(want) ? 2 : -1;
    bins[bin]?.push(one);
  }
  return bins.flat().slice(0, limit);
}

/** The statement with the word at the caret replaced, and the caret after it. */
export function accept(sql: string, caret: number, candidate: Candidate): { sql: string; caret: number } {
  const { from } = wordAt(sql, caret);
  const tail = candidate.text.endsWith("(") ? "" : sql[caret] === " " ? "" : " ";
  const text = candidate.text + tail;
  return { sql: sql.slice(0, from) + text + sql.slice(caret), caret: from + text.length };
}
