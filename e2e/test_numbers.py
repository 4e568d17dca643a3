"""Numbers beside independent references: df, and what a sum over programs must be."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from harness import QUICK, Agent, eventually
from test_refused import MANY, python, said

Start = Callable[..., Agent]


def df(mounts: set[str]) -> tuple[int, int]:
    """Bytes used and available on these file systems, as df sees them."""
    command = ["df", "--block-size=1", "--output=used,avail", *sorted(mounts)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    pairs = [list(map(int, line.split())) for line in lines]
    assert len(pairs) == len(mounts)
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def test_room_is_what_df_says(start: Start) -> None:
    agent = start(config=QUICK)
    eventually(lambda: agent.latest("tier.used.ratio"), "tiers")
    labels = [stream["labels"] for stream in agent.latest("filesystem.total.bytes")]
    for tier in {one["tier"] for one in labels if "tier" in one}:
        mounts = {one["mount"] for one in labels if one.get("tier") == tier}

        def agrees(tier: str = tier, mounts: set[str] = mounts) -> bool:
            # Others write meanwhile: between two looks of df, or nearly.
            before = df(mounts)
            time.sleep(0.3)
            available = agent.value("tier.available.bytes", f"tier={tier}")
            used = agent.value("tier.used.ratio", f"tier={tier}")
            after = df(mounts)
            low, high = min(before[1], after[1]), max(before[1], after[1])
            share = after[0] / (after[0] + after[1])
            return low - (1 << 20) <= available <= high + (1 << 20) and abs(used - share) < 0.001

        eventually(agrees, f"tier {tier} on {mounts}")


def test_times_as_people_write_them(start: Start) -> None:
    agent = start(config=QUICK)
    eventually(lambda: agent.rows("SELECT * FROM memory_available_bytes"), "samples")
    count = "SELECT count(*) AS n FROM memory_available_bytes WHERE "
    before = agent.sql(f"{count} ts <= '-1ns'")[0]["n"]
    assert before > 0
    assert agent.sql(f"{count} ts > '-10m'")[0]["n"] >= before
    assert agent.sql(f"{count} '-10m' < ts AND ts >= '2020-01-01T00:00:00Z'")[0]["n"] >= before
    assert agent.sql(f"{count} ts BETWEEN '-2h' AND '-1h'")[0]["n"] == 0
    assert agent.sql(f"{count} ts > '2100-01-01T00:00:00Z'")[0]["n"] == 0
    assert agent.sql(f"{count} ts > instant('-10m')")[0]["n"] >= before
    refused = agent.error("sql", f"{count} ts > 'yesterday'")
    assert "yesterday" in refused and "-1h" in refused and "2026-11-20T08:00:00Z" in refused
    rows = agent.sql("SELECT * FROM history('memory.available.bytes', '-5m', NULL, '10s')")
    assert rows and all(row["ts"] % 10_000_000_000 == 0 for row in rows)
    held = agent.sql("SELECT value FROM asof('memory.available.bytes', '-1ns')")
    assert len(held) == 1 and held[0]["value"] > 0
    assert "10s" in agent.error("sql", "SELECT * FROM history('memory.available.bytes', '-5m', NULL, 'often')")


def test_what_has_ended_is_in_no_sum(start: Start) -> None:
    agent = start(config=QUICK)

    def total() -> float:
        query = "/api/v1/query?query=count(barograph_app_gone_v0)%20or%20vector(0)"
        (series,) = agent.request("GET", query, way="read.sock").json["data"]["result"]
        return float(series["value"][1])

    program = MANY.replace("for i in range(count)})", 'for i in range(count)}, readers="all")')
    assert program != MANY
    with python(agent, program, "gone", 1) as first:
        said(first, 0)
        eventually(lambda: total() == 1, "one runs")
        first.kill()
    # Its last look was at its last value; nothing looks at it any more.
    eventually(lambda: total() == 0, "none runs", 30)
    history = agent.sql("SELECT count(*) AS n FROM app_gone_v0")
    assert history[0]["n"] > 0
