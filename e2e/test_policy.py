"""Policies: created, followed while a stream is constant, dropped, kept over a restart, refused,
woken."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import barograph
import pytest
from harness import QUICK, Agent, eventually, replace_file

Start = Callable[..., Agent]
MEMORY = "memory.available.bytes"
CONFIGURED_NS = 200_000_000
MADE = f"CREATE POLICY calm FOR '{MEMORY}' ERROR '1 %' BETWEEN '200 ms' AND '5 s' HELP 'it is still'"
KIB = 1024


def rows(agent: Agent, name: str) -> list[dict[str, Any]]:
    """The rows of a policy in the table."""
    return agent.sql(f"SELECT * FROM policies WHERE name = '{name}' ORDER BY stream")


def interval_ns(agent: Agent, source: str) -> int:
    """The present interval of a source."""
    return agent.sql(f"SELECT interval_ns FROM sources WHERE source = '{source}'")[0]["interval_ns"]


def grown(agent: Agent, name: str, least_ns: int) -> dict[str, Any]:
    """The first row of a policy, once its stream is looked at rarely enough."""

    def look() -> dict[str, Any] | None:
        found = [row for row in rows(agent, name) if (row["interval_ns"] or 0) >= least_ns]
        return found[0] if found else None

    return eventually(look, f"an interval of {least_ns} ns", 60)


def planned(agent: Agent, name: str, least_s: int) -> dict[str, Any]:
    """The newest look and the time to the next one, soon after a look and while that time is long
    enough."""
    ask = "SELECT interval_ns, looked, now_ns() AS now FROM streams JOIN latest USING (name)"

    def look() -> dict[str, Any] | None:
        [row] = agent.sql(f"{ask} WHERE name = '{name}'")
        is_long = row["interval_ns"] >= least_s * 1_000_000_000 and row["now"] - row["looked"] < row["interval_ns"] / 4
        return row if is_long else None

    return eventually(look, f"a wait of {least_s} s", 120)


def test_a_quiet_stream_is_looked_at_seldom_until_its_policy_is_dropped(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    eventually(lambda: agent.value(MEMORY), "a value")
    assert interval_ns(agent, "memory") == CONFIGURED_NS
    assert agent.sql("SELECT * FROM policies") == []
    assert "no policies" in agent.out("policy", "ls")

    made = agent.ask("policy", "create", MADE)
    assert made["name"] == "calm" and made["matched"] == 1 and made["kind"] == "error_bounded", made
    row = grown(agent, "calm", 3 * CONFIGURED_NS)
    assert row["stream"] == MEMORY and row["source"] == "memory" and row["said"] in ("held", "forecast")
    assert (row["error"], row["confidence"]) == ("1 %", 0.9)
    assert (row["origin"], row["help"]) == ("made", "it is still")
    assert row["sql"] == MADE and row["looks"] > 0 and row["reason"]
    saves = "SELECT saved_share FROM policies WHERE saved_share > 0"
    saved = eventually(lambda: agent.sql(saves), "what is saved")
    assert saved[0]["saved_share"] < 1
    assert interval_ns(agent, "memory") > CONFIGURED_NS
    # Other streams of the same source still have values, and no other source is affected.
    assert agent.value("memory.total.bytes") and interval_ns(agent, "disk") == CONFIGURED_NS

    assert MEMORY in agent.out("policy", "ls")
    page = agent.out("policy", "explain", "calm")
    assert MADE in page and "within 1 % for 90 % of the time" in page and "every 200 ms to 5.0 s" in page
    assert agent.ask("policy", "explain", "calm")[0]["name"] == "calm"
    assert [row["name"] for row in agent.get("/api/v1/policies").json] == ["calm"]

    assert agent.out("policy", "drop", "calm") == "dropped calm\n"
    eventually(lambda: interval_ns(agent, "memory") == CONFIGURED_NS, "the configured interval")
    assert rows(agent, "calm") == []


def test_what_was_made_survives_a_restart(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    agent.ask("policy", "create", MADE)
    agent.ask("policy", "create", f"CREATE POLICY other FOR '{MEMORY}' KIND 'fixed' BETWEEN '1 s' AND '1 s'")
    agent.ask("policy", "drop", "other")
    agent.restart()
    grown(agent, "calm", 2 * CONFIGURED_NS)
    assert rows(agent, "other") == []
    # A policy that is no longer valid is left out with a message, and does not prevent a start.
    agent.stop()
    kept = agent.state_dir / "policies.json"
    text = kept.read_text()
    assert "ERROR '1 %'" in text
    kept.write_text(text.replace("ERROR '1 %'", "ERROR 'much'"))
    agent.start()
    assert rows(agent, "calm") == []
    assert "a policy is left out" in agent.output()
    assert agent.ask("policy", "create", MADE)["name"] == "calm"


def test_a_fixed_policy_is_what_it_says(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    statement = f"POLICY slow FOR '{MEMORY}' KIND 'fixed' BETWEEN '{{0}}' AND '{{0}}'"
    agent.ask("policy", "create", "CREATE " + statement.format("1 s"))
    eventually(lambda: interval_ns(agent, "memory") == 1_000_000_000, "an interval of 1 s")
    assert "already" in agent.error("policy", "create", "CREATE " + statement.format("2 s"))
    agent.ask("policy", "create", "CREATE OR REPLACE " + statement.format("2 s"))
    eventually(lambda: interval_ns(agent, "memory") == 2_000_000_000, "an interval of 2 s")


CONFIG = (
    QUICK
    + f"""
[[policy]]
name = "configured"
streams = ["{MEMORY}"]
error = "1 %"
interval_min_ms = 200
interval_max_ms = 5000
"""
)


def test_policies_of_the_configuration_are_changed_there(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree, config=CONFIG)
    assert grown(agent, "configured", 2 * CONFIGURED_NS)["origin"] == "configured"
    for statement in ("DROP POLICY configured", "DROP POLICY IF EXISTS configured"):
        assert "[[policy]]" in agent.error("policy", "drop", statement)
    replacing = MADE.replace("CREATE POLICY calm", "CREATE OR REPLACE POLICY configured")
    assert "[[policy]]" in agent.error("policy", "create", replacing)
    # A created policy wins over a configured one, whatever its name, and releases the stream when
    # it is dropped.
    agent.ask("policy", "create", f"CREATE POLICY over FOR '{MEMORY}' KIND 'fixed' BETWEEN '1 s' AND '1 s'")
    eventually(lambda: rows(agent, "over")[0]["stream"] == MEMORY, "the made one")
    streams = "SELECT stream FROM policies WHERE name = 'configured'"
    eventually(lambda: agent.sql(streams) == [{"stream": None}], "nothing left for the other")
    agent.ask("policy", "drop", "over")
    eventually(lambda: agent.sql(streams) == [{"stream": MEMORY}], "the stream again")


def test_one_that_matches_nothing_says_so(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    made = agent.ask("policy", "create", "CREATE POLICY none FOR 'no.such.stream' ERROR '1 %'")
    assert made["matched"] == 0
    [row] = rows(agent, "none")
    assert row["stream"] is None and row["interval_ns"] is None and row["reason"]
    assert "none of no.such.stream" in agent.out("policy", "ls")


REFUSED = [
    ("CREATE POLICY a FOR 'x'", "ERROR: is missing"),
    ("CREATE POLICY a FOR 'x' ERROR 'much'", "neither a share"),
    ("CREATE POLICY a FOR 'x' ERROR '1 %' CONFIDENCE 2", "0.5 to 0.999"),
    ("CREATE POLICY a FOR 'x' ERROR '1 %' BETWEEN '1 min' AND '1 s'", "shortest"),
    ("CREATE POLICY a FOR 'x' ERROR '1 %' BETWEEN '1' AND '2'", "length of time"),
    ("CREATE POLICY a FOR 'x' KIND 'often'", "error_bounded, fixed"),
    ("CREATE POLICY a FOR 'x' ERROR '1 %' PRESSURE 'disk'", "io some 150ms 2s"),
    ("CREATE POLICY a FOR 'x' KIND 'fixed' PRESSURE 'io some 150ms 2s'", "no room for calls"),
    ("CREATE POLICY a FOR 'x' ERROR '1 %' EVERY '1 s'", "found EVERY"),
    ("CREATE POLICY a ERROR '1 %'", "expected FOR"),
    ("CREATE POLICY A FOR 'x' ERROR '1 %'", "lower-case"),
    ("CREATE INSIGHT a AS SELECT 1", "expected POLICY"),
    ("nonsense", "write CREATE POLICY"),
    ("DROP POLICY nobody", "there is no policy nobody"),
]


@pytest.mark.parametrize(("statement", "says"), REFUSED, ids=lambda text: text[:60])
def test_what_is_refused_says_why(fixed: Agent, statement: str, says: str) -> None:
    assert says in fixed.error("policy", "create", statement)
    answer = fixed.request("POST", "/api/v1/policies", {"sql": statement}, "control.sock")
    assert answer.status == 400 and answer.kind == "statement" and says in answer.message
    assert fixed.sql("SELECT * FROM policies") == []


def test_policies_are_made_by_who_may_control(fixed: Agent) -> None:
    for way in ("tcp", "read.sock"):
        answer = fixed.request("POST", "/api/v1/policies", {"sql": MADE}, way)
        assert answer.status in (401, 403) and answer.kind == "refused"
    assert fixed.get("/api/v1/policies").json == []
    assert "POLICY" in fixed.error("sql", MADE), "SQL reads"


def test_python_makes_and_drops(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    control = barograph.control(agent.run_dir)
    assert control.create_policy(MADE)["streams"] == [MEMORY]
    with pytest.raises(barograph.ControlError, match="already") as error:
        control.create_policy(MADE)
    assert error.value.kind == "statement"
    assert control.drop_policy("calm")["name"] == "calm"
    assert rows(agent, "calm") == []


def test_a_sentinel_wakes_what_is_looked_at_seldom(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    eventually(lambda: agent.value("disk.write.bytes", "device=nvme0n1"), "the counter")
    agent.ask(
        "policy", "create",
        f"CREATE POLICY woken FOR '{MEMORY}' ERROR '1 %' BETWEEN '200 ms' AND '10 min' "
        "SENTINEL 'disk.write.bytes{device=nvme0n1}'",
    )  # fmt: skip
    before = planned(agent, MEMORY, 5)
    meminfo, diskstats = tree / "proc/meminfo", tree / "proc/diskstats"
    replace_file(meminfo, meminfo.read_text().replace("240000000", "200000000"))
    written = diskstats.read_text()
    assert " 32000 " in written
    # The meaning of a sentinel's first changes is unknown: they cause looks.
    replace_file(diskstats, written.replace(" 32000 ", " 64000 "))
    now = 200_000_000 * KIB
    found = eventually(lambda: [s for s in agent.latest(MEMORY) if s["value"] == now], "the new value")
    assert found[0]["ts"] < before["looked"] + before["interval_ns"], (before, found)


@pytest.mark.skipif(not os.access("/proc/pressure/cpu", os.W_OK), reason="the kernel tells no pressure")
def test_the_kernels_word_of_pressure_is_a_look(start: Start) -> None:
    agent = start()
    total = "memory.total.bytes"
    eventually(lambda: agent.value(total), "a value")
    statement = f"FOR '{total}' KIND 'aimd_simple' BETWEEN '3 s' AND '10 min'"
    made = agent.ask("policy", "create", f"CREATE POLICY pressed {statement} PRESSURE 'cpu some 200ms 2s'")
    assert made["matched"] == 1
    assert "no call" not in rows(agent, "pressed")[0]["reason"]
    before = planned(agent, total, 10)
    # More processes than cores, for longer than one window.
    spin = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    spinners = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2 * (os.cpu_count() or 1))]
    # The value stays the same, so that the waits between planned looks only grow. All looks count,
    # since several may happen before this busy machine answers.
    looks = f"SELECT ts FROM source_polls_count WHERE source = 'memory' AND ts >= {before['looked']} ORDER BY ts"

    def called() -> bool:
        times = [row["ts"] for row in agent.sql(looks)]
        return any(late - early < before["interval_ns"] * 3 / 4 for early, late in itertools.pairwise(times))

    try:
        eventually(called, "a look before it was planned", 50)
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
