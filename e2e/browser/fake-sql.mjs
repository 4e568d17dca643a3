// The SQL of the fake agent: a few forms of statements, recognized by the table that they read. The
// calm node has no calls and knobs at all, like agents before they existed.

import { bandwidthsOf, peersOf, declaredOf, firingsOf, forecastsOf, interferenceOf, frameOf, knobsOf, policiesOf, publicationsOf, valueOf } from "./scenarios.mjs";

const ns = (ms) => Number(`${Math.round(ms)}000000`);
const table = (rows, columns = Object.keys(rows[0] ?? {})) => ({ columns, rows: rows.map((row) => columns.map((name) => row[name] ?? null)), elapsed_ns: 210_000 });
const PEER = ["node", "state", "heard_ts", "round_trip_ns", "ahead_ns", "streams", "samples", "missed", "holes", "fault"];
const PUBLICATION = ["scope", "name", "labels", "application", "user", "pid", "incarnation", "started_ts", "values", "frame", "taken", "lost", "missed", "dropped", "damaged", "refused", "refusal", "newest_ts"];

/** The answer to a statement over applications; undefined for other statements. */
export function answerApplications(state, sql) {
  const { scenario, start } = state;
  const now = Date.now();
  const all = publicationsOf(scenario, start);
  const alive = all.filter((p) => p.ended_ms > now);
  const system = scenario === "calm" ? {} : { forecasts: () => forecastsOf(scenario), ...(scenario === "busy" ? { policies: policiesOf, interference: () => interferenceOf(start).map(withTimes) } : {}), calls: () => firingsOf(scenario, start).map(withTimes), knobs: () => knobsOf(start).map(withTimes), rules: () => declaredOf(start).map(withTimes) };
  const from = /\bfrom\s+(\w+)/i.exec(sql)?.[1] ?? "";
  if (from === "publications") return table(alive.map((p) => publication(p, now)), PUBLICATION);
  if (from === "asof") return table(all.map((p) => ({ name: `app.${p.name}.frame`, labels: JSON.stringify(p.labels), sample_ts: ns(newest(p, now)), value: frameOf(p, now) })), ["name", "labels", "sample_ts", "value"]);
  if (from === "tables" && / in /i.test(sql)) return table(Object.keys(system).filter((name) => sql.includes(`'${name}'`)).map((name) => ({ name })), ["name"]);
  const meant = /\bnode = '([^']*)'/.exec(sql)?.[1];
  if (from === "peers") return table(peersOf(scenario, start, state.silence).filter(({ node }) => node === (meant ?? node)).map(withTimes), PEER);
  if (from === "forecast" && scenario === "busy") return table(bandwidthsOf(start).map(withTimes));
  if (system[from] !== undefined) return table(system[from]());
  const named = /^frames$/.test(from) ? /frames\('([^']+)'/.exec(sql)?.[1] : /^app_(\w+)_frame$/.exec(from)?.[1];
  const p = all.find((one) => one.name === named && Object.entries(one.labels).every(([name, value]) => !new RegExp(`\\b${name} = '`).test(sql) || sql.includes(`${name} = '${value}'`)));
  return p === undefined ? undefined : from === "frames" ? frames(p, sql, now) : table(times(p, sql, now).map((ts) => ({ ts: ns(ts) })), ["ts"]);
}

const withTimes = ({ target, labels, ...row }) => ({
  ...row,
  ...Object.fromEntries(Object.entries(row).filter(([name]) => name === "ts" || name.endsWith("_ts")).map(([name, ms]) => [name, ms === null ? null : ns(ms)])),
  ...(target === undefined ? {} : { target: JSON.stringify(target) }),
  ...(labels === undefined ? {} : { labels: JSON.stringify(labels) }),
});

const newest = (p, t) => Math.floor(Math.min(t, p.ended_ms) * p.frames_s / 1000) * 1000 / p.frames_s;

function publication(p, now) {
  const frame = frameOf(p, now);
  return { ...p, labels: JSON.stringify(p.labels), started_ts: ns(p.started_ms), values: p.values.length, frame, taken: frame * p.values.length, damaged: 0, newest_ts: ns(newest(p, now)) };
}

/** Times of the newest frames, newest first, within the limits of the statement. */
function times(p, sql, now) {
  const until = Math.min(now, p.ended_ms, Number(/ts <= (\d+)/.exec(sql)?.[1] ?? Infinity) / 1e6);
  const limit = Number(/limit (\d+)/i.exec(sql)?.[1] ?? 100);
  const last = newest(p, until);
  return Array.from({ length: limit }, (_, i) => last - (i * 1000) / p.frames_s).filter((ts) => ts >= p.started_ms);
}

function frames(p, sql, now) {
  const [from, to] = /frames\('[^']+', (\d+), (\d+)\)/.exec(sql)?.slice(1).map((text) => Number(text) / 1e6) ?? [0, now];
  const rows = times(p, sql.replace(/where.*/i, `ts <= ${ns(to)} LIMIT 20`), now).filter((ts) => ts >= from);
  const values = (ts) => Object.fromEntries([...p.values].sort().map((name) => [name, Number(valueOf(p, name, ts)) === Number(valueOf(p, name, ts)) ? Number(valueOf(p, name, ts)) : valueOf(p, name, ts)]));
  return table(rows.map((ts) => ({ ts: ns(ts), frame: frameOf(p, ts), node: "lab-3", ...p.labels, ...values(ts) })));
}
