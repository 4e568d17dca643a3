// The hash route: `#/streams?pin=a&pin=b`. Pure reading and writing; main.tsx follows it.

export const VIEWS = ["now", "nodes", "streams", "applications", "insights", "sql", "doctor"] as const;
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

/** The control token of `#control=TOKEN`, if the hash has that form. */
export function controlToken(hash: string): string | null {
  const match = /^#control=([A-Za-z0-9_\-+/=.~]+)$/.exec(hash);
  return match?.[1] ?? null;
}
