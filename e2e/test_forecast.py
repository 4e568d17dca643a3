"""What streams will be: configured, asked for through SQL, command line and Python, and explained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import barograph
import pytest
from harness import QUICK, Agent, baro, eventually

Start = Callable[..., Agent]
MEMORY = "memory.available.bytes"
CONFIG = QUICK + f"[forecast]\nstreams = ['{MEMORY}', 'memory.total.bytes']\n"


def test_what_is_configured_is_forecast_everywhere(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = start(config=CONFIG)
    ask = f"SELECT ts, value, error, quality, unit, now_ns() AS now FROM forecast('{MEMORY}', horizon => '1 s')"
    row = eventually(lambda: agent.sql(ask), "a forecast")[0]
    assert row["quality"] == "predicted" and row["unit"] == "bytes"
    measured = agent.value(MEMORY)
    assert abs(row["value"] - measured) < measured, row
    assert 0 < row["ts"] - row["now"] < 2_000_000_000, row

    # The total never changes: what is said is exact, once it could be compared.
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
    # Not over what is there; and what is there is whole.
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
    # What the agent holds is too short, and says so; the archive is read without it.
    short = agent.error("forecast", "train", "--from", MEMORY, "--out", str(tmp_path / "other.txt"))
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
