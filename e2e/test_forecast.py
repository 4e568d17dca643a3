"""What streams will be: configured, asked for through SQL, command line and Python, and explained."""

from __future__ import annotations

from collections.abc import Callable

import barograph
import pytest
from harness import QUICK, Agent, eventually

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
