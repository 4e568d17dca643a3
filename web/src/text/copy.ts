// A stream in the syntax of other tools: SQL, PromQL, Python, curl. Pure. `node` is the other node
// whose stream it is, by its mirror; empty for the agent's own.

export interface StreamName {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** The SQL table of a metric. */
export const tableOf = (name: string): string => name.replaceAll(".", "_");

export const sqlText = (text: string): string => `'${text.replaceAll("'", "''")}'`;
export const sqlName = (name: string): string => (/^[a-z_][a-z0-9_]*$/i.test(name) ? name : `"${name.replaceAll('"', '""')}"`);
const quoted = (text: string): string => JSON.stringify(text);

/** The SQL conditions that select these labels. */
export const whereOf = (labels: StreamName["labels"]): string[] => Object.keys(labels).sort().map((label) => `${sqlName(label)} = ${sqlText(labels[label] ?? "")}`);

export function asSql({ name, labels }: StreamName, node = ""): string {
  const where = [...(node === "" ? [] : [`node = ${sqlText(node)}`]), ...whereOf(labels)];
  const table = `${node === "" ? "" : "cluster_"}${tableOf(name)}`;
  return `SELECT ts, value, quality FROM ${sqlName(table)}${where.length > 0 ? ` WHERE ${where.join(" AND ")}` : ""} ORDER BY ts`;
}

export function asPromql({ name, labels }: StreamName): string {
  const pairs = Object.keys(labels).sort().map((label) => `${label}=${quoted(labels[label] ?? "")}`);
  return pairs.length > 0 ? `${tableOf(name)}{${pairs.join(",")}}` : tableOf(name);
}

export function asPython({ name, labels }: StreamName, node = ""): string {
  const pairs = Object.keys(labels).sort();
  const simple = pairs.every((label) => /^[a-z_][a-z0-9_]*$/i.test(label) && !PYTHON_WORDS.has(label));
  const args = simple
    ? pairs.map((label) => `, ${label}=${quoted(labels[label] ?? "")}`).join("")
    : `, **{${pairs.map((label) => `${quoted(label)}: ${quoted(labels[label] ?? "")}`).join(", ")}}`;
  const of = node === "" ? "" : `of_node(${quoted(node)}).`;
  return `import barograph\nbarograph.${of}latest(${quoted(name)}${args})`;
}

const PYTHON_WORDS = new Set(["class", "from", "in", "is", "for", "global", "import", "lambda", "pass", "with", "as", "def", "del", "not", "or", "and", "if", "try"]);

/** The pattern that matches this stream alone. */
export function matchOf({ name, labels }: StreamName): string {
  const pairs = Object.keys(labels).sort().map((label) => `${label}=${labels[label]}`);
  return pairs.length > 0 ? `${name}{${pairs.join(",")}}` : name;
}

export function asCurl(stream: StreamName, origin: string, node = ""): string {
  const shell = `'match=${matchOf(stream).replaceAll("'", "'\\''")}'`;
  const of = node === "" ? "" : ` --data-urlencode 'node=${node.replaceAll("'", "'\\''")}'`;
  return `curl -sG ${origin}/api/v1/latest --data-urlencode ${shell}${of}`;
}
