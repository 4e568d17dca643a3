// The bandwidth that a reader will get from each device to which others write: a line with its band
// over the next steps, the next bursts of the writers below it, and the reasons in words.

import { control, loader, Optional, now, rowsOf, signal, sql, useEffect } from "../shared";
import { burstsOf, devicesOf, nextOf } from "../data/bandwidths";
import type { Device, Writer } from "../data/bandwidths";
import { formatRoute } from "../route";
import { duration, percent, plain, quantity, seconds } from "../text/format";
import { streamText } from "../text/fuzzy";

const EVERY_MS = 10_000;
const ROWS_MAX = 1000;
/** Most writers that are listed of a device, and most bursts that are marked of each. */
const WRITERS_MAX = 24;
const BURSTS_MAX = 60;
/** Size of the chart in its own units. */
const WIDTH = 600;
const HEIGHT = 90;
const LANE = 12;

const STREAM = "disk.bandwidth.available";
const devices = signal<readonly Device[]>([]);
const fault = signal("");
const tables = new Optional(["interference"]);

const load = loader(async () => {
  await tables.look();
  const rows = await tables.rows("interference", ROWS_MAX);
  const ahead = rows.length === 0 ? [] : rowsOf(await sql(`SELECT labels, ts, value, error FROM forecast('${STREAM}') LIMIT ${ROWS_MAX}`));
  devices.value = devicesOf(rows, ahead);
}, fault);

export function Bandwidths() {
  useEffect(() => {
    void load();
    const timer = setInterval(() => document.hidden || void load(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  if (devices.value.length === 0) return null;
  return (
    <section class="bandwidths" aria-label="Bandwidths">
      <h2>What a reader will get beside those who write.</h2>
      {devices.value.map((device) => <OneDevice key={device.name} device={device} />)}
      {control.value === "" && <p class="sub">What controllers decided for readers is shown to those with the control right: <a href={formatRoute("insights")}>Insights</a> has the field for its token.</p>}
    </section>
  );
}

const speed = (bytes: number): string => plain(quantity(bytes, "bytes/s"));

function sentence({ name, bandwidth, error, confidence, capacity, origin }: Device): string {
  const most = Number.isNaN(capacity) ? "" : ` of at most ${speed(capacity)} (${origin})`;
  if (Number.isNaN(bandwidth)) return `${name}${most}: no forecast.`;
  return `${name}: ${speed(bandwidth)} ± ${speed(error)} now${most}; ${plain(percent(confidence))} of what comes should be within the error.`;
}

function OneDevice({ device }: { device: Device }) {
  const { name, writers, steps, reason } = device;
  const pin = streamText(STREAM, { device: name });
  return (
    <>
      <p><a href={formatRoute("streams", new URLSearchParams([["pin", pin]]))}>{sentence(device)}</a></p>
      {steps.length > 1 && <Chart device={device} />}
      <p class="sub">{reason}</p>
      {writers.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Writers of ${name}`}>
          <table class="sources">
            <thead>
              <tr>
                <th scope="col">writes to {name}</th>
                <th scope="col" class="num">every</th>
                <th scope="col" class="num">next</th>
                <th scope="col" class="num">within</th>
                <th scope="col" class="num">a burst</th>
                <th scope="col" class="num">mean</th>
                <th scope="col">why</th>
              </tr>
            </thead>
            <tbody>{writers.slice(0, WRITERS_MAX).map((writer) => <WriterRow key={writer.name} writer={writer} />)}</tbody>
          </table>
        </div>
      )}
      {writers.length > WRITERS_MAX && <p class="sub">and {writers.length - WRITERS_MAX} more: <code>SELECT * FROM interference</code></p>}
    </>
  );
}

function WriterRow({ writer }: { writer: Writer }) {
  const { name, periodMs, jitterMs, burstBytes, rate, reason } = writer;
  const span = (ms: number) => (Number.isNaN(ms) ? "–" : duration(ms));
  const ahead = nextOf(writer, now()) - now();
  return (
    <tr>
      <th scope="row" class="path">{name}</th>
      <td class="num">{span(periodMs)}</td>
      <td class="num">{ahead < 0 ? `due for ${duration(-ahead)}` : span(ahead)}</td>
      <td class="num">{Number.isNaN(jitterMs) ? "–" : `± ${plain(seconds(jitterMs / 1000))}`}</td>
      <td class="num">{Number.isNaN(burstBytes) ? "–" : plain(quantity(burstBytes, "bytes"))}</td>
      <td class="num">{Number.isNaN(rate) ? "–" : speed(rate)}</td>
      <td class="sees">{reason}</td>
    </tr>
  );
}

function Chart({ device: { name, capacity, steps, writers } }: { device: Device }) {
  const [from, until] = [steps[0]?.at ?? 0, steps.at(-1)?.at ?? 0];
  const x = (at: number) => (((at - from) / (until - from)) * WIDTH).toFixed(1);
  const y = (value: number) => ((1 - Math.min(Math.max(value / capacity, 0), 1)) * HEIGHT).toFixed(1);
  const upper = steps.map(({ at, value, error }) => `${x(at)},${y(value + error)}`);
  const lower = steps.map(({ at, value, error }) => `${x(at)},${y(value - error)}`).reverse();
  const lanes = writers.filter(({ periodMs }) => periodMs > 0).slice(0, WRITERS_MAX);
  const last = steps.at(-1)?.value ?? NaN;
  const label = `${name}: the bandwidth of the next ${duration(until - from)}, at the end ${speed(last)}; the next bursts of ${lanes.length} writers below`;
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + LANE * lanes.length}`} width="100%" style={{ maxWidth: `${WIDTH * 1.6}px`, display: "block" }} role="img" aria-label={label}>
      <path d={`M0 0H${WIDTH}M0 ${HEIGHT}H${WIDTH}`} stroke="var(--muted)" stroke-width="0.5" />
      <polygon points={[...upper, ...lower].join(" ")} fill="var(--read-wash)" />
      <polyline points={steps.map(({ at, value }) => `${x(at)},${y(value)}`).join(" ")} fill="none" stroke="var(--read)" stroke-width="1.5" />
      {lanes.map((writer, lane) => {
        const top = HEIGHT + LANE * lane;
        const marks = burstsOf(writer, until, BURSTS_MAX).filter((at) => at >= from);
        return (
          <g key={writer.name}>
            <path d={marks.map((at) => `M${x(at)} ${top + 2}v${LANE - 3}`).join("")} stroke="var(--write)" stroke-width="2.5" />
            <text x="2" y={top + LANE - 3} font-size="8" fill="var(--muted)">{writer.name}</text>
          </g>
        );
      })}
    </svg>
  );
}
