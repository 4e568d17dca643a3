// The hash route: `#/streams?pin=a&pin=b`. Pure reading and writing; main.tsx follows it.
//
// The node that is shown stands before it (`?node=b#/streams`), so that another node is another page,
// which the browser loads anew: nothing that a page has kept of one node can stand under the name of
// another, and the links between the views stay at the node.

export const VIEWS = ["now", "nodes", "streams", "applications", "events", "insights", "sql", "doctor"] as const;
export type View = (typeof VIEWS)[number];

export interface Route {
  readonly view: View;
  readonly query: URLSearchParams;
}

/** Parses a hash to a route; an unknown view becomes Now. */
export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const view = VIEWS.find((name) => name === path) ?? "now";
  return { view, query: new URLSearchParams(query) };
}

export function formatRoute(view: View, query?: URLSearchParams): string {
  const text = query?.toString() ?? "";
  return text === "" ? `#/${view}` : `#/${view}?${text}`;
}

/** The other node that an address names by its part from `?` to `#`; empty for the agent's own node. */
export const nodeOf = (search: string): string => new URLSearchParams(search).get("node") ?? "";

/** The address of a route of another node, or of the agent's own node if the name is empty. */
export const formatPage = (node: string, route: string): string => `./${node === "" ? "" : `?${new URLSearchParams({ node })}`}${route}`;

/** The control token of `#control=TOKEN`, if the hash has that form. */
export function controlToken(hash: string): string | null {
  const match = /^#control=([A-Za-z0-9_\-+/=.~]+)$/.exec(hash);
  return match?.[1] ?? null;
}
