import assert from "node:assert/strict";
import { test } from "node:test";
import { age, duration, figures, percent, plain, quantity, rate, seconds, size, unitOf } from "../src/text/format";

const check = <T>(f: (input: T) => string, cases: readonly (readonly [T, string])[]) => {
  for (const [input, expect] of cases) assert.equal(f(input), expect, `of ${String(input)}`);
};

test("figures: three of them, no idle zeros", () => {
  check(figures, [[0, "0"], [1, "1"], [1.234, "1.23"], [12.34, "12.3"], [12, "12"], [123.4, "123"], [99.96, "100"], [9.996, "10"], [0.5, "0.5"], [-3.14159, "-3.14"], [0.0123, "0.012"], [0.00001, "1.0e-5"]]);
});

test("rates have SI prefixes, sizes IEC ones", () => {
  check((v: number) => plain(rate(v)), [[0, "0 B/s"], [999, "999 B/s"], [1000, "1 kB/s"], [999_600, "1 MB/s"], [48.5e6, "48.5 MB/s"], [2.5e9, "2.5 GB/s"], [-1500, "-1.5 kB/s"]]);
  check((v: number) => plain(size(v)), [[0, "0 B"], [1023, "1023 B"], [1024, "1 KiB"], [1536, "1.5 KiB"], [2 ** 40, "1 TiB"], [3.4 * 2 ** 40, "3.4 TiB"], [2 ** 70, "1024 EiB"]]);
});

test("ratios, short times, durations", () => {
  check((v: number) => plain(percent(v)), [[0, "0 %"], [0.051, "5.1 %"], [0.123, "12 %"], [1, "100 %"], [0.0996, "10 %"]]);
  check((v: number) => plain(seconds(v)), [[0, "0 s"], [2e-9, "2 ns"], [15e-6, "15 µs"], [0.0123, "12.3 ms"], [0.9996, "1 s"], [40, "40 s"], [250, "4 min 10 s"]]);
  check(duration, [[0, "0 s"], [40_000, "40 s"], [59_600, "1 min"], [250_000, "4 min 10 s"], [3_600_000, "1 h"], [12_000_000, "3 h 20 min"], [2 * 86_400_000 + 4 * 3_600_000, "2 d 4 h"], [-5, "0 s"]]);
  check(age, [[100, "now"], [2600, "3 s old"], [240_000, "4 min old"]]);
});

test("values in the unit of their stream", () => {
  check(([v, unit]: readonly [number, string]) => plain(quantity(v, unit)), [
    [[NaN, "s"], "–"], [[0.5, "1"], "50 %"], [[0, "flag"], "no"], [[1, "flag"], "yes"], [[1e6, "By/s"], "1 MB/s"], [[1024, "By"], "1 KiB"],
    [[12, "requests"], "12 requests"], [[3_400_000, "tasks"], "3.4 M tasks"], [[0.002, "seconds"], "2 ms"],
    [[Infinity, "time"], "–"], [[1e13, "time"], "–"], [[new Date(2026, 10, 20, 8, 5, 9).getTime() / 1000, "time"], "2026-11-20 08:05:09"],
  ]);
  check(([name, unit]: readonly [string, string]) => unitOf(name, unit), [
    [["disk.read.bytes_per_second", ""], "B/s"], [["disk.busy.ratio", "1"], "ratio"], [["source.up.flag", ""], "flag"], [["cpu.load1.tasks", "tasks"], "tasks"],
    [["archive.oldest.time.seconds", "seconds"], "time"], [["disk.read.latency.seconds", "seconds"], "seconds"],
  ]);
});
