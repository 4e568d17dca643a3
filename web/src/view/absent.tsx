// What stands in place of a view for which the mirror of another node has no data: why, and what
// tells it.

import { shownNode } from "../shared";
import { sqlText } from "../text/copy";
import { formatPage, formatRoute } from "../route";
import type { View } from "../route";

interface Absence {
  readonly title: string;
  readonly why: string;
  /** The command that tells it on the node itself. */
  readonly command: string;
  /** The statement that asks the node for it from here. */
  readonly sql: string;
}

const ABSENCES: Readonly<Partial<Record<View, Absence>>> = {
  events: {
    title: "Events",
    why: "Watches, rules and their actions are described by the agent of the node itself, and are not mirrored. Events that everyone may read can be mirrored: they are in the table cluster_events.",
    command: "baro event list",
    sql: "SELECT * FROM rules",
  },
  applications: {
    title: "Applications",
    why: "What programs publish there, and the calls into them, are not mirrored.",
    command: 'baro sql "SELECT * FROM publications"',
    sql: "SELECT * FROM publications",
  },
  insights: {
    title: "Insights",
    why: "The graph of insights is described by the agent of the node itself, and is not mirrored. The values of those that are mirrored are in the view Streams. Insights are made and dropped on the node.",
    command: "baro insight list",
    sql: "SELECT * FROM insights",
  },
  sql: {
    title: "SQL",
    why: "Statements of this page run on the tables of the agent that serves it, and not on those of the other node.",
    command: 'baro sql "SELECT …"',
    sql: "SELECT * FROM tables",
  },
  doctor: {
    title: "Doctor",
    why: "Sources, archive and forecasts are described by the agent of the node itself, and are not mirrored.",
    command: "baro doctor",
    sql: "SELECT * FROM sources",
  },
};

/** `here` is the name of the node whose agent serves the page; empty until it is known. */
export function Absent({ view, here }: { view: View; here: string }) {
  const one = ABSENCES[view];
  if (one === undefined) return null;
  const from = here === "" ? "this node" : here;
  const query = `SELECT device, ts, value FROM cluster_disk_busy_ratio\nWHERE node = ${sqlText(shownNode)} ORDER BY ts`;
  return (
    <main id="main" class="absent">
      <h1>{one.title} of {shownNode}: not here.</h1>
      <p class="note">{one.why}</p>
      <dl>
        <dt>On {shownNode}</dt>
        <dd><code class="command">{one.command}</code></dd>
        <dt>From {from}</dt>
        <dd><code class="command">baro sql --nodes {shownNode} "{one.sql}"</code></dd>
        {view === "sql" && (
          <>
            <dt>Its mirrored streams</dt>
            <dd>
              are in the tables <code>cluster_…</code> of {from}: <a href={formatPage("", formatRoute("sql", new URLSearchParams({ q: query })))}>how busy its devices were</a>
            </dd>
          </>
        )}
      </dl>
    </main>
  );
}
