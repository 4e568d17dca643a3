"""The fifteen insights of Apollo's Table 1: each has rows, or says why it has none and what would help."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from harness import FIXTURES, QUICK, Agent, baro, eventually

Start = Callable[..., Agent]

# Row of the table, and the insight that answers it.
FIFTEEN = {
    1: "device.sensitivity.ratio",
    2: "device.interference.ratio",
    3: "filesystem.performance.bytes_per_second",
    4: "block.hotness.ops",
    5: "device.health.ratio",
    6: "network.health.seconds",
    7: "device.fault_tolerance.count",
    8: "device.degradation.per_block",
    9: "availability",
    10: "tier.free.bytes",
    11: "node.energy.joules_per_transfer",
    12: "node.time.seconds",
    13: "device.load.ratio",
    14: "energy.per_transfer",
    15: "job.allocation.nodes.count",
}
IDS = [f"row {row}" for row in FIFTEEN]


def insights(agent: Agent) -> dict[str, dict[str, Any]]:
    """All insights by name, as SQL tells of them."""
    rows = agent.sql("SELECT name, \"table\", state, reason, remedy, groups FROM insights")
    return {row["name"]: row for row in rows}


def settled(agent: Agent, name: str) -> dict[str, Any]:
    """An insight once its sources have been read often enough to know."""

    def look() -> dict[str, Any] | None:
        found = insights(agent)[name]
        return None if found["state"] == "waiting" else found

    return eventually(look, f"{name} is live or says why not")


def rows(agent: Agent, table: str) -> list[dict[str, Any]]:
    """What a SELECT over an insight gives; nothing where it has no table yet."""
    done = agent.run("sql", f"SELECT * FROM {table} WHERE newest", "--json")
    return json.loads(done.stdout) if done.returncode == 0 else []


@pytest.mark.parametrize("name", FIFTEEN.values(), ids=IDS)
def test_each_is_answered_in_sql(live: Agent, name: str) -> None:
    insight = settled(live, name)
    if insight["state"] == "live":
        found = eventually(lambda: rows(live, insight["table"]), f"rows of {name}")
        assert all(isinstance(row["value"], (int, float)) for row in found)
        assert insight["reason"] == "" and insight["remedy"] == ""
        return
    assert insight["state"] == "unavailable", insight
    assert len(insight["reason"]) > 15 and len(insight["remedy"]) > 5, insight
    assert not any(row["value"] is not None for row in rows(live, insight["table"]))


def test_an_insight_without_a_table_says_why_when_asked_for(live: Agent) -> None:
    for name in FIFTEEN.values():
        insight = settled(live, name)
        if insight["state"] == "live" or live.has(name):
            continue
        message = live.error("sql", f"SELECT * FROM {insight['table']}")
        assert name in message and "unavailable" in message


def test_the_same_words_everywhere(live: Agent) -> None:
    for name in FIFTEEN.values():
        settled(live, name)

    def agree() -> bool:
        told = insights(live)
        over_http = {i["name"]: i for i in live.get("/api/v1/insights").json}
        listed = {i["name"]: i for i in live.ask("insight", "list")}
        table, doctor = live.out("insight", "list"), live.out("doctor")
        for name, insight in told.items():
            words = [insight["state"], insight["reason"], insight["remedy"]]
            for other in (over_http[name], listed[name]):
                if [other["state"], other["reason"], other["remedy"]] != words:
                    return False
            if insight["state"] == "live":
                continue
            explained = live.out("insight", "explain", name)
            shown = [insight["reason"], insight["remedy"]]
            if not all(text in page for text in shown for page in (table, doctor, explained)):
                return False
        return all(name in doctor for name in told)

    # The documents are written anew every few seconds: a look may fall between two of them.
    eventually(agree, "all ways tell the same")


def test_doctor_without_an_agent_tells_of_insights_too() -> None:
    empty = FIXTURES / "empty" / "first"
    done = baro("doctor", "--probe", "--sys-root", empty, "--run-dir", "/no/such")
    assert done.returncode == 0, done.stderr
    for name in FIFTEEN.values():
        assert name in done.stdout
    assert "insights are live" in done.stdout


def test_nothing_there_is_told_with_the_sources_reason(start: Start) -> None:
    agent = start("--sys-root", FIXTURES / "empty" / "first", config=QUICK)
    insight = settled(agent, "device.load.ratio")
    assert insight["state"] == "unavailable"
    assert "from source disk" in insight["reason"] and "is missing" in insight["reason"]
    assert insight["remedy"]


def test_a_source_that_is_off_is_told_with_its_switch(start: Start) -> None:
    agent = start(config="[sources.poll.disk]\nenabled = false\n")
    insight = settled(agent, "device.load.ratio")
    assert "source disk is off" in insight["reason"]
    assert "set sources.poll.disk.enabled = true" in insight["remedy"]


def test_an_insight_of_ones_own_says_what_it_lacks(start: Start) -> None:
    agent = start("--sys-root", FIXTURES / "empty" / "first", config=QUICK)
    agent.ask("insight", "create", "CREATE INSIGHT my.free AS SELECT value * 2 FROM memory_capacity")
    insight = settled(agent, "my.free")
    assert insight["state"] == "unavailable"
    assert "memory.available.bytes from source memory" in insight["reason"]


def test_the_page_and_the_terminal_have_no_rule_of_their_own(start: Start) -> None:
    agent = start("--sys-root", machine_of("nvme-v2"), config=QUICK)
    told = eventually(lambda: agent.latest("node.saturated.seconds"), "what the outlook says of disks")
    assert {sample["value"] for sample in told} == {0.0}
    assert {disk["saturated"] for disk in agent.ask("top")["disks"]} == {False}


def machine_of(name: str) -> Any:
    """A fixture machine as it was at the first look."""
    return FIXTURES / name / "first"
