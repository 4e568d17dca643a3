"""Forecasts: configured, queried through SQL, command line and Python, and explained."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import barograph
import pytest
from harness import QUICK, Agent, baro, eventually

Start = Callable[..., Agent]
MEMORY = "memory.available.bytes"
FREE = "filesystem.available.bytes"
CONFIG = QUICK + f"[forecast]\nstreams = ['{MEMORY}', 'memory.total.bytes']\n"


def test_what_is_configured_is_forecast_everywhere(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = start(config=CONFIG)
    ask = f"SELECT ts, value, error, quality, unit, now_ns() AS now FROM forecast('{MEMORY}', horizon => '1 s')"
    row = eventually(lambda: agent.sql(ask), "a forecast")[0]
    assert row["quality"] == "predicted" and row["unit"] == "bytes"
    measured = agent.value(MEMORY)
    assert abs(row["value"] - measured) < measured, row
    assert 0 < row["ts"] - row["now"] < 2_000_000_000, row

    # The total never changes: its forecast is exact, once it could be compared.
    exact = "SELECT value, error FROM forecast('memory.total.bytes', '400ms')"
    found = eventually(lambda: [r for r in agent.sql(exact) if r["error"] is not None], "an error")[0]
    assert (found["value"], found["error"]) == (agent.value("memory.total.bytes"), 0)

    knots = agent.sql(f"SELECT after_ns, quality FROM forecast('{MEMORY}')")
    assert knots[0] == {"after_ns": 0, "quality": "measured"} and len(knots) > 4

    shown = agent.ask("forecast", "show", "memory.*", "--horizon", "1s")
    assert {sample["name"] for sample in shown} == {MEMORY, "memory.total.bytes"}
    assert all(sample["quality"] == "predicted" for sample in shown)

    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(agent.run_dir))
    samples = barograph.expected(MEMORY, 0.5)
    assert [s.quality for s in samples] == ["predicted"] and samples[0].unit == "bytes"
    assert barograph.expected("cpu.*", 0.5) == []


def test_latest_may_be_predicted(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = start(config=CONFIG)
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(agent.run_dir))
    ask = f"SELECT value, quality, error, age_ns, ts - now_ns() AS after FROM latest('{MEMORY}', allow_predicted => 1)"

    def predicted() -> list[dict[str, object]]:
        return [row for row in agent.sql(ask) if row["quality"] == "predicted" and row["error"] is not None]

    # At the exact time of a look the value is measured.
    row = eventually(predicted, "a prediction with an error")[0]
    assert row["value"] > 0 and row["age_ns"] > 0 and -1_000_000_000 < row["after"] <= 0, row
    assert agent.sql("SELECT DISTINCT quality FROM latest WHERE quality = 'predicted' AND name LIKE 'memory.%'") == []

    def qualities(ask: Callable[[], object]) -> Callable[[], bool]:
        return lambda: ask() == "predicted"

    named = f"/api/v1/latest?match={MEMORY}&allow_predicted="
    eventually(qualities(lambda: agent.get(named + "true").json[0]["quality"]), "HTTP")
    assert agent.get(named + "false").json[0]["quality"] == "measured"
    assert agent.get(named + "perhaps").status == 400

    eventually(qualities(lambda: agent.ask("latest", MEMORY, "--predicted")[0]["quality"]), "the command line")
    assert agent.latest(MEMORY)[0]["quality"] == "measured"
    assert "WITHIN" in agent.out("latest", MEMORY, "--predicted")

    eventually(qualities(lambda: barograph.latest(MEMORY, allow_predicted=True).quality), "Python")
    held = barograph.stream(MEMORY)
    eventually(qualities(lambda: held.latest(allow_predicted=True).quality), "a handle")
    assert held.latest().quality == barograph.latest(MEMORY).quality == "measured"
    by_name = {sample.name: sample for sample in barograph.latest_all("memory.*", allow_predicted=True)}
    assert by_name["memory.free.bytes"].quality == "measured"


def test_when_a_level_is_reached(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = start(config=CONFIG)
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(agent.run_dir))
    known = f"SELECT * FROM time_to('{MEMORY}') WHERE horizon_ns > 0"
    row = eventually(lambda: agent.sql(known), "a forecast whose error is known")[0]
    assert (row["stream"], row["level"], row["unit"]) == (MEMORY, 0, "bytes")

    # A level that the value already has is reached now; a constant value reaches no other level.
    total = agent.value("memory.total.bytes")
    rows = agent.sql(f"SELECT reach_ns FROM time_to('memory.total.bytes', level => {total})")
    assert rows == [{"reach_ns": 0}]
    nowhere = "SELECT level, reach_ns FROM time_to('memory.total.bytes', level => '1 KiB')"
    assert agent.sql(nowhere) == [{"level": 1024, "reach_ns": None}]
    half = agent.sql(f"SELECT level FROM time_to('{MEMORY}', level => '50 %')")
    assert half == [{"level": total / 2}]
    assert "'90 %'" in agent.post_sql(f"SELECT * FROM time_to('{MEMORY}', level => 'full')").message

    reach = ("forecast", "reach", "memory.total.bytes", "--level", "1KiB")
    eventually(lambda: "not within" in agent.out(*reach), "an error that is known")
    assert agent.ask("forecast", "reach", "memory.*", "--level", "1KiB")[1]["stream"] == "memory.total.bytes"
    assert "--level" in agent.out("forecast", "reach", "memory.total.bytes")
    agent.error("forecast", "reach", MEMORY, "--level", "full", status=2)
    assert "forecast.streams" in agent.error("forecast", "reach", "memory.free.bytes")

    found = barograph.time_to("memory.*", "90 %").rows()
    assert [row["stream"] for row in found] == [MEMORY, "memory.total.bytes"]
    assert barograph.time_to(MEMORY, 5, mount="/nowhere").rows() == []
    assert barograph.time_to(MEMORY, total * 2).rows()[0]["level"] == total * 2
    with pytest.raises(barograph.QueryError, match="90 %"):
        barograph.time_to(MEMORY, float("inf"))


@pytest.fixture
def filling() -> Iterator[Path]:
    """A file system of 64 MiB of its own. Its path is short, so that the outlook has room for it beside
    whatever else the machine has to tell."""
    mount = Path(tempfile.mkdtemp(prefix="fill-"))
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", mount], capture_output=True)
    if made.returncode != 0:
        mount.rmdir()
        pytest.skip(f"mounting a tmpfs is not permitted here: {made.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)
    mount.rmdir()


def test_a_steady_fill_is_foreseen_within_a_minute(start: Start, filling: Path) -> None:
    """256 KiB a second take some four minutes to fill it; the forecast is compared with the time
    computed from the bytes written."""
    agent = start(config=QUICK + f"[forecast]\nstreams = ['{FREE}']\n")
    asked = f"SELECT * FROM time_to('{FREE}{{mount={filling}}}')"
    young = eventually(lambda: agent.sql(asked), "the mount")[0]
    assert (young["reach_ns"], young["basis"]) == (None, None)

    written, began = 0, time.monotonic()
    told = f"{filling} fills in"
    with (filling / "file").open("wb", buffering=0) as file:

        def write() -> int:
            time.sleep(0.25)
            return file.write(bytes(64 << 10))

        while not (rows := agent.sql(f"{asked} WHERE reach_ns > 0")):
            assert time.monotonic() - began < 60, agent.sql(asked)
            written += write()
        rate = written / (time.monotonic() - began)
        state = os.statvfs(filling)
        # The sentence says it for as long as it goes on.
        while told not in (outlook := str(agent.value("node.outlook.text"))):
            assert time.monotonic() - began < 120, outlook
            write()
    expect = state.f_bavail * state.f_frsize / rate
    (row,) = rows
    assert row["basis"] == "not calibrated", row
    assert 0.8 < row["reach_ns"] / 1e9 / expect < 1.25, (row, expect)
    assert "not calibrated yet" in agent.out("forecast", "reach", FREE, f"mount={filling}")


def test_who_is_followed_is_explained(start: Start) -> None:
    agent = start(config=CONFIG)
    of_total = "SELECT horizon_ns, follows, reason FROM forecasts WHERE name = 'memory.total.bytes' ORDER BY 1"
    rows = eventually(lambda: agent.sql(of_total), "the table")
    assert [row["horizon_ns"] for row in rows[:4]] == [200_000_000 * steps for steps in (1, 4, 16, 64)]
    assert all(row["follows"] == "persistence" and row["reason"] for row in rows), rows
    assert "persistence" in agent.out("forecast", "explain", "memory.total.bytes")
    explained = agent.ask("forecast", "explain", MEMORY)
    assert "persistence" in explained[0]["losses"]


def test_what_is_not_forecast_says_so(start: Start) -> None:
    agent = start(config=CONFIG)
    eventually(lambda: agent.sql("SELECT * FROM forecasts"), "forecasts")
    assert "forecast.streams" in agent.error("forecast", "show", "memory.free.bytes")
    assert "forecast.streams" in agent.error("forecast", "explain", "memory.free.bytes")
    assert "memory.available.bytes" in agent.error("forecast", "show", "memory.avialable.bytes")
    assert "like '30s'" in agent.post_sql(f"SELECT * FROM forecast('{MEMORY}', 'soon')").message
    agent.error("forecast", "show", MEMORY, "--horizon", "soon", status=2)


def test_insights_and_applications_are_forecast_and_coverage_is_told(start: Start) -> None:
    names = [MEMORY, "my.spare.bytes", "app.ramp.v"]
    agent = start(config=QUICK + f"[forecast]\nstreams = {names}\n[applications]\nhttp_ingest = true\n")
    agent.ask("insight", "create", "CREATE INSIGHT my.spare.bytes AS SELECT value / 2 AS value FROM memory_available_bytes")
    row = eventually(lambda: agent.sql("SELECT value, error FROM forecast('my.spare.bytes', '1 s')"), "an insight's")[0]
    assert abs(row["value"] * 2 - agent.value(MEMORY)) < agent.value(MEMORY), row

    # One value per 100 ms, all put late and at once; the step is the time between them.
    now = time.time_ns()
    lines = [f"ramp v={at}i {now + (at - 60) * 100_000_000}" for at in range(60)]
    assert agent.request("POST", "/write", "\n".join(lines)).status == 204
    knots = eventually(lambda: agent.sql("SELECT after_ns, value FROM forecast('app.ramp.v')"), "an application's")
    at = {knot["after_ns"]: knot["value"] for knot in knots}
    assert at[0] == 59 and abs(at[400_000_000] - 63) < 1, knots
    levels = "SELECT step_ns FROM forecasts WHERE name = 'app.ramp.v'"
    assert eventually(lambda: agent.sql(levels), "its row")[0] == {"step_ns": 100_000_000}
    assert "persistence" in agent.out("forecast", "explain", "app.ramp.v")

    ask = f"SELECT value, horizon FROM forecast_coverage_ratio WHERE stream = '{MEMORY}' AND horizon = '0.2'"
    told = eventually(lambda: agent.has("forecast.coverage.ratio") and agent.sql(ask), "coverage")
    assert 0 <= told[0]["value"] <= 1


def test_streams_beyond_the_limit_are_told(start: Start) -> None:
    agent = start(config=QUICK + "[forecast]\nstreams = ['memory.*']\nstreams_max = 2\n")
    count = "SELECT count FROM loss WHERE what LIKE 'streams not forecast%'"
    lost = eventually(lambda: [r for r in agent.sql(count) if r["count"] > 0], "the loss")[0]["count"]
    assert agent.value("agent.forecast.streams.count") == 2
    assert agent.value("agent.forecast.beyond.count") == lost
    rows = agent.sql("SELECT name FROM forecasts WHERE reason = 'no place: forecast.streams_max is 2'")
    assert len(rows) == lost
    assert f"{lost} streams are not forecast" in agent.out("doctor")
    assert "forecast.streams_max is 2" in agent.out("forecast", "explain", rows[0]["name"])


def test_weights_are_trained_on_what_the_node_was(start: Start, tmp_path: Path) -> None:
    trace = tmp_path / "saw.csv"
    rows = "".join(f"{second * 10**9},{second * 7 % 40 + second % 3}\n" for second in range(600))
    trace.write_text("# interval_ns 1000000000\ntime_ns,load\n" + rows)
    weights = tmp_path / "weights.txt"
    quick = ("--examples", "1000", "--out", str(weights))
    train = ("forecast", "train", "--traces", str(trace), *quick)
    report = json.loads(baro(*train, "--json").stdout)
    assert [s["name"] for s in report["series"]] == ["saw.csv load"] and report["horizons"] == [1, 4, 16, 64]
    assert (report["series"][0]["learned"], report["series"][0]["held_out"]) == (480, 120)
    assert all(0 < error < 2 for error in report["built_in"] + report["trained"]), report
    # An existing file is not overwritten, and it is complete.
    again = baro(*train)
    assert again.returncode == 2 and "--force" in again.stderr
    forced = baro(*train, "--force")
    assert "TRAINED" in forced.stdout and f'delphi = "{weights}"' in forced.stdout
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("weights")) == ["weights.txt"]
    replay = ("lab", "replay", str(trace), "--what", "predictors", "--json", "--weights", str(weights))
    names = [score["predictor"] for score in json.loads(baro(*replay).stdout)[0]["predictors"]]
    assert names[-3:] == ["delphi (trained)", "selector", "selector, with delphi (trained)"]

    agent = start(config=CONFIG + f"delphi = '{weights}'\n")
    of_memory = f"SELECT losses FROM forecasts WHERE name = '{MEMORY}'"
    assert "delphi" in eventually(lambda: agent.sql(of_memory), "the table")[0]["losses"]
    # The agent's rings are too short, and the error names that; the archive can be read without the
    # agent.
    short = agent.error("forecast", "train", "--from", MEMORY, "--since", "7d", "--out", str(tmp_path / "other.txt"))
    assert "1 series are too short" in short, short
    assert "no stream" in agent.error("forecast", "train", "--from", "node.*.text", "--out", str(tmp_path / "other.txt"))
    agent.stop()
    weights.write_text(weights.read_text().replace("trust", "thrust", 1))
    refused = baro(*replay)
    assert refused.returncode == 1 and f"{weights}: line 18" in refused.stderr, refused.stderr
    config = tmp_path / "bad.toml"
    config.write_text(f"[forecast]\ndelphi = '{weights}'\n")
    up = baro("up", "--config", str(config), "--run-dir", str(tmp_path / "run"))
    assert up.returncode != 0 and f"forecast.delphi = {weights} is refused: line 18" in up.stderr, up.stderr
