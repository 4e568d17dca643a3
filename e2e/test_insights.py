"""Insights made at run time: equal to their SELECT, kept over restarts, refused with a reason."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, Agent, eventually, machine, replace_file

Start = Callable[..., Agent]


@pytest.fixture
def agent(start: Start, tree: Path) -> Agent:
    """An agent of a fixture machine with two file systems of its own."""
    for mount in ("scratch", "home"):
        (tree / mount).mkdir()
    return start("--sys-root", tree, "--node", "node_1")


def create(agent: Agent, statement: str) -> dict[str, Any]:
    return agent.ask("insight", "create", f"CREATE INSIGHT {statement}")


SELECTS = {
    "sum": "SELECT sum(value) AS value FROM disk_read_bytes",
    "avg": "SELECT avg(value) AS value FROM disk_read_bytes",
    "min": "SELECT min(value) AS value FROM disk_read_bytes",
    "max": "SELECT max(value) AS value FROM disk_read_bytes",
    "count": "SELECT count(*) AS value FROM disk_read_bytes",
    "arithmetic": "SELECT sum(value) / 1024.0 - 2 * count(*) AS value FROM disk_read_bytes",
    "filter on a label": "SELECT sum(value) AS value FROM disk_read_bytes WHERE device = 'nvme1n1'",
    "filter on a value": "SELECT count(*) AS value FROM disk_read_bytes WHERE value > 2000000",
    "group by": "SELECT device, sum(value) AS value FROM disk_read_bytes GROUP BY device",
    "group by of several": "SELECT tier, fstype, max(value) AS value FROM filesystem_total_bytes GROUP BY tier, fstype",
}  # fmt: skip


@pytest.mark.parametrize("select", SELECTS.values(), ids=SELECTS.keys())
def test_an_insight_is_its_select_over_the_newest(agent: Agent, select: str) -> None:
    create(agent, f"my.insight AS {select}")
    head, _, tail = select.partition(" GROUP BY ")
    newest = f"{head} {'AND' if 'WHERE' in head else 'WHERE'} newest" + (f" GROUP BY {tail}" if tail else "")
    labels = [label.strip() for label in tail.split(",")] if tail else []
    expected = agent.sql(newest)

    def key(row: dict[str, Any]) -> list[str]:
        return [str(row[label]) for label in labels]

    def rows() -> list[dict[str, Any]]:
        columns = ", ".join([*labels, "value"])
        return agent.sql(f"SELECT {columns} FROM my_insight WHERE newest")

    found = eventually(lambda: agent.has("my.insight") and rows(), "the insight's streams")
    assert sorted(found, key=key) == sorted(expected, key=key)
    assert agent.latest("my.insight")[0]["quality"] == "derived"


def test_create_says_what_was_made(agent: Agent) -> None:
    made = create(agent, "my.sum.bytes AS SELECT sum(value) FROM disk_read_bytes")
    assert made["name"] == "my.sum.bytes" and made["table"] == "my_sum_bytes"
    assert made["builtin"] is False and made["inputs"] == ["disk.read.bytes"]
    done = agent.out(
        "insight", "create", "CREATE INSIGHT my.other.bytes AS SELECT max(value) FROM disk_read_bytes"
    )
    assert "my.other.bytes" in done
    assert agent.value("my.sum.bytes") == 4096000 + 1228800
    assert {"my.sum.bytes", "my.other.bytes"} <= {i["name"] for i in agent.ask("insight", "list")}


def test_insights_on_insights(agent: Agent) -> None:
    create(agent, "my.first.bytes AS SELECT device, sum(value) FROM disk_read_bytes GROUP BY device")
    create(agent, "my.second.bytes AS SELECT sum(value) * 2 FROM my_first_bytes")
    assert agent.value("my.second.bytes") == 2 * (4096000 + 1228800)
    assert "my.second.bytes" in agent.error("insight", "drop", "my.first.bytes")


def test_drop(agent: Agent) -> None:
    create(agent, "my.sum.bytes AS SELECT sum(value) FROM disk_read_bytes")
    assert agent.has("my.sum.bytes")
    assert "my.sum.bytes" in agent.out("insight", "drop", "my.sum.bytes")
    assert not agent.has("my.sum.bytes")
    create(agent, "my.sum.bytes AS SELECT sum(value) FROM disk_write_bytes")
    assert agent.value("my.sum.bytes") == (32000 + 6400) * 512
    agent.ask("insight", "drop", "DROP INSIGHT my.sum.bytes")
    assert not agent.has("my.sum.bytes")


def test_a_dry_run_changes_nothing(agent: Agent) -> None:
    statement = (
        "CREATE INSIGHT my.sum.bytes AS SELECT device, sum(value) FROM disk_read_bytes GROUP BY device"
    )
    tried = agent.ask("insight", "create", statement, "--dry-run")
    assert {(row["device"], row["value"]) for row in tried["rows"]} == {
        ("nvme0n1", 4096000),
        ("nvme1n1", 1228800),
    }
    assert "4096000" in agent.out("insight", "create", statement, "--dry-run")
    assert not agent.has("my.sum.bytes")
    assert "my.sum.bytes" not in agent.out("insight", "list")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_insights_survive_a_restart(agent: Agent, number: signal.Signals) -> None:
    create(agent, "my.first.bytes AS SELECT sum(value) FROM disk_read_bytes")
    create(agent, "my.second.bytes AS SELECT sum(value) + 1 FROM my_first_bytes")
    create(agent, "my.dropped.bytes AS SELECT sum(value) FROM disk_read_bytes")
    agent.ask("insight", "drop", "my.dropped.bytes")
    agent.restart(number)
    assert agent.value("my.first.bytes") == 4096000 + 1228800
    assert agent.value("my.second.bytes") == 4096000 + 1228800 + 1
    assert not agent.has("my.dropped.bytes")


REFUSED = [
    ("my.a AS SELECT sum(value) FROM disk_read_byte", "disk_read_byte"),
    ("my.a AS SELECT sum(value) FROM my_a", "my"),
    ("my.a AS SELECT sum(vaule) FROM disk_read_bytes", "vaule"),
    ("my.a AS SELECT nonsense, sum(value) FROM disk_read_bytes GROUP BY nonsense", "nonsense"),
    ("my.a AS SELECT median(value) FROM disk_read_bytes", "median"),
    ("tier.available.bytes AS SELECT sum(value) FROM disk_read_bytes", "tier.available.bytes"),
    ("disk.read.bytes AS SELECT sum(value) FROM disk_write_bytes", "disk.read.bytes"),
    ("My Name AS SELECT sum(value) FROM disk_read_bytes", ""),
    ("my.a AS DELETE FROM disk_read_bytes", ""),
    ("my.a", ""),
    ("my.a AS SELECT sum(value) FROM disk_read_bytes; DROP INSIGHT b", ""),
    ("my.a AS SELECT", ""),
]


@pytest.mark.parametrize(("statement", "says"), REFUSED, ids=[statement for statement, _ in REFUSED])
def test_what_cannot_be_is_refused_with_a_reason(fixed: Agent, statement: str, says: str) -> None:
    message = fixed.error("insight", "create", f"CREATE INSIGHT {statement}")
    assert says in message and len(message) > 15
    assert not fixed.has("my.a")


def test_an_unknown_input_names_near_ones(fixed: Agent) -> None:
    statement = "CREATE INSIGHT my.a AS SELECT sum(value) FROM disk_read_byte"
    assert "disk_read_bytes" in fixed.error("insight", "create", statement)


def test_a_cycle_is_refused(agent: Agent) -> None:
    create(agent, "my.a AS SELECT sum(value) FROM disk_read_bytes")
    create(agent, "my.b AS SELECT sum(value) FROM my_a")
    again = "CREATE OR REPLACE INSIGHT my.a AS SELECT sum(value) FROM my_b"
    message = agent.error("insight", "create", again)
    assert "my.a" in message and "my.b" in message
    assert agent.value("my.b") == 4096000 + 1228800


def test_other_statements_are_refused(fixed: Agent) -> None:
    for statement in ("SELECT 1", "DROP TABLE streams", "nonsense", ""):
        assert fixed.error("insight", "create", statement).strip()


def test_never_through_read_only_sql(fixed: Agent) -> None:
    statement = "CREATE INSIGHT my.a AS SELECT sum(value) FROM disk_read_bytes"
    fixed.error("sql", statement)
    assert fixed.post_sql(statement, way="control.sock").status in (400, 403)
    assert not fixed.has("my.a")


def test_an_insight_that_cannot_be_kept_is_not_made(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    # The state directory is replaced by a file: even root cannot write below it.
    shutil.rmtree(agent.state_dir)
    agent.state_dir.write_text("")
    statement = "CREATE INSIGHT my.a.bytes AS SELECT sum(value) FROM disk_read_bytes"
    message = agent.error("insight", "create", statement)
    assert str(agent.state_dir) in message
    assert not agent.has("my.a.bytes")
    assert "my.a.bytes" not in [insight["name"] for insight in agent.ask("insight", "list")]


def test_an_insight_of_a_disk_that_goes_is_not_fresh(start: Start, tmp_path: Path) -> None:
    tree = machine("nvme-v2", tmp_path)
    agent = start("--sys-root", tree)
    create(agent, "my.read.bytes AS SELECT device, sum(value) FROM disk_read_bytes GROUP BY device")
    create(agent, "my.total.bytes AS SELECT sum(value) FROM disk_read_bytes")
    assert agent.value("my.read.bytes{device=nvme1n1}") == 1228800
    table = tree / "proc/diskstats"
    replace_file(table, "".join(line for line in table.read_text().splitlines(True) if "nvme1n1" not in line))
    eventually(lambda: not agent.has("my.read.bytes{device=nvme1n1}"), "its group is gone")
    eventually(lambda: agent.value("my.total.bytes") == 4096000, "the sum without it")


def test_a_state_file_that_is_broken_does_not_keep_the_agent_from_starting_silently(agent: Agent) -> None:
    create(agent, "my.a.bytes AS SELECT sum(value) FROM disk_read_bytes")
    agent.stop()
    kept = agent.state_dir / "insights.json"
    os.truncate(kept, kept.stat().st_size // 2)
    assert agent.process
    try:
        agent.start()
    except AssertionError:
        assert str(kept) in agent.output() and "panicked" not in agent.output()
        return
    assert str(kept) in agent.output() or agent.value("my.a.bytes") is not None


def test_configured_insights_that_do_not_hold_are_named(start: Start) -> None:
    agent = start(
        config='insights = ["CREATE INSIGHT my.broken AS SELECT sum(value) FROM no_such"]\n' + QUICK
    )
    assert "no_such" in agent.output()
    assert agent.get("/healthz").status == 200
