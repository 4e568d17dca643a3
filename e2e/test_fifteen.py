"""The fifteen insights of Apollo's Table 1: each has rows, or reports why it has none and the
remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from time import time as now
from typing import Any

import pytest
from harness import FIXTURES, QUICK, ROOT, Agent, baro, eventually, machine

Start = Callable[..., Agent]

# Row of the table, and its insight.
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
    10: "tier.available.bytes",
    11: "node.energy.joules_per_transfer",
    12: "node.time.seconds",
    13: "device.load.ratio",
    14: "energy.per_transfer",
    15: "job.allocation.nodes.count",
}
IDS = [f"row {row}" for row in FIFTEEN]


def insights(agent: Agent) -> dict[str, dict[str, Any]]:
    """All insights by name, from SQL."""
    rows = agent.sql("SELECT name, \"table\", state, reason, remedy, groups FROM insights")
    return {row["name"]: row for row in rows}


def settled(agent: Agent, name: str) -> dict[str, Any]:
    """An insight, once its sources have been read often enough."""

    def look() -> dict[str, Any] | None:
        found = insights(agent)[name]
        return None if found["state"] == "waiting" else found

    return eventually(look, f"{name} is live or says why not")


def rows(agent: Agent, table: str) -> list[dict[str, Any]]:
    """The rows of an insight; none if it has no table yet."""
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

    # The documents are written every few seconds: a look may fall between two of them.
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
    assert "from source disk" in insight["reason"] and "cannot see" in insight["reason"]
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
    agent = start("--sys-root", FIXTURES / "nvme-v2" / "first", config=QUICK)
    told = eventually(lambda: agent.latest("node.saturated.seconds"), "what the outlook says of disks")
    assert {sample["value"] for sample in told} == {0.0}
    assert {disk["saturated"] for disk in agent.ask("top")["disks"]} == {False}


# The results for the four larger machines, computed by hand from the files of their trees.

Observe = Callable[..., Agent]


@pytest.fixture
def observe(start: Start, tmp_path: Path) -> Observe:
    """Starts an agent of a fixture machine, with the directories of its mounts."""

    def begin(name: str, mounts: tuple[str, ...] = (), config: str = "") -> Agent:
        tree = machine(name, tmp_path)
        for mount in mounts:
            (tree / mount).mkdir(parents=True, exist_ok=True)
        return start("--sys-root", tree, "--node", "node_1", config=QUICK + config)

    return begin


def by(agent: Agent, name: str, label: str) -> dict[str, Any]:
    """The newest values of an insight that must be live, by a label."""
    assert settled(agent, name)["state"] == "live", insights(agent)[name]
    return {sample["labels"][label]: sample["value"] for sample in agent.latest(name)}


def tuple_of_row(row: int) -> str:
    """The guide's query for a row of the table that is a tuple."""
    guide = (ROOT / "docs" / "guide" / "insights.md").read_text()
    found = re.search(rf"    -- row {row}:[^\n]*\n((?:    [^\n]*\n)+)", guide)
    assert found, f"the guide has no query for row {row}"
    return found[1]


def test_four_nvme_drives(observe: Observe) -> None:
    agent = observe("nvme-four", ("data", "scratch", "boot"))
    # NVMe drives count no bad blocks; `available_spare` of the four is 100, 4, 97 and 100 percent.
    health = {"nvme0n1": 1.0, "nvme1n1": 0.04, "nvme2n1": 0.97, "nvme3n1": 1.0}
    assert by(agent, "device.health.ratio", "device") == pytest.approx(health)
    # Plain disks keep one copy.
    assert by(agent, "device.fault_tolerance.count", "device") == pytest.approx(health)
    # A data unit is 1000 blocks of 512 bytes.
    units = {
        "nvme0n1": 62679808 + 639454618,
        "nvme1n1": 812345678 + 9402345678,
        "nvme2n1": 204877120 + 1711040256,
        "nvme3n1": 61002311 + 640118830,
    }
    expected = {disk: health[disk] / (1000 * moved) for disk, moved in units.items()}
    assert by(agent, "device.degradation.per_block", "device") == pytest.approx(expected)
    # Four lanes of 16 GT/s with 128 data bits in 130, of which nine tenths are usable. The scratch
    # volume is on the third and the fourth drive, and the fourth has half the lanes.
    fast = 4 * 16e9 / 8 * 128 / 130 * 0.9
    best = by(agent, "filesystem.performance.bytes_per_second", "mount")
    mounts = {mount: best[mount] for mount in ("/", "/boot", "/data", "/scratch")}
    assert mounts == pytest.approx(dict.fromkeys(mounts, fast))
    assert set(by(agent, "device.load.ratio", "device").values()) == {0.0}, "a tree that stands still"
    (time,) = agent.latest("node.time.seconds")
    assert time["value"] == pytest.approx(now(), abs=60)
    # maxerror of adjtimex, in microseconds.
    assert time["error"] == pytest.approx(0.2645, rel=0.01)
    assert "block_trace is off" in settled(agent, "block.hotness.ops")["reason"]
    assert "sources.poll.block_trace.enabled = true" in settled(agent, "block.hotness.ops")["remedy"]


def test_four_nvme_drives_that_are_traced(observe: Observe) -> None:
    agent = observe("nvme-four", config="[sources.poll.block_trace]\nenabled = true\n")
    assert settled(agent, "block.hotness.ops")["state"] == "live"
    hottest = agent.sql(tuple_of_row(4))[0]
    # The recording has ten requests for this MiB of the first drive. Half of the number is left
    # after each minute.
    place = (hottest["device"], int(hottest["rank"]), hottest["offset_bytes"])
    assert place == ("nvme0n1", 1, 8 << 20), hottest
    assert 0 < hottest["ops"] <= 10, hottest


def test_a_file_server_with_a_raid_6_in_recovery(observe: Observe) -> None:
    # Nothing in the tree shows the link of the disks, and they are idle: the configuration sets
    # their bandwidth.
    limits = "[sources.disk.bandwidth_max]\n'sd*' = 250000000\n"
    agent = observe("hdd-raid", ("export", "archive", "boot/efi", "tank/home"), limits)
    health = by(agent, "device.health.ratio", "device")
    # sdd: 24 sectors reallocated (the lower half of the raw value), 8 pending, of 23437770752.
    worst = 1 - 32 / 23437770752
    assert health["sda"] == 1.0 and health["sdd"] == pytest.approx(worst, abs=1e-15)
    # One of two parity disks is lost: two copies are left, each as good as the worst member.
    tolerance = by(agent, "device.fault_tolerance.count", "device")
    assert tolerance["md0"] == pytest.approx(2 * worst, abs=1e-14)
    assert tolerance["sda"] == 1.0
    assert agent.value("node.power.watts") == 186
    energy = settled(agent, "energy.per_transfer")
    assert energy["state"] == "unavailable" and "transfers nothing" in energy["reason"]
    assert settled(agent, "filesystem.performance.bytes_per_second")["state"] == "live"
    tuples = {row["mount"]: row for row in agent.sql(tuple_of_row(3))}
    row = tuples["/export"]
    assert (row["compression"], row["block_bytes"], row["raid"], row["devices"]) == ("none", 4096, "raid6", 6)
    assert row["max_bytes_per_second"] == 250e6


def test_a_lustre_client_in_the_middle_of_two_jobs(observe: Observe) -> None:
    agent = observe("lustre-client")
    assert by(agent, "job.allocation.nodes.count", "job") == {"4711": 2, "4712": 1}
    assert by(agent, "job.allocation.tasks.per_node", "job") == {"4711": 2.0, "4712": 1.0}
    assert by(agent, "job.read.bytes", "job") == {"4711": 4194304, "4712": 1048576}
    assert by(agent, "job.write.bytes", "job") == {"4711": 2097152, "4712": 1048576}
    found = {row["job"]: row for row in agent.sql(tuple_of_row(15))}
    row = found["4711"]
    assert (row["nodes"], row["tasks_per_node"], row["read_bytes"]) == (2, 2.0, 4194304)


def test_a_lustre_server(observe: Observe) -> None:
    agent = observe("lustre-server", config="[sources.poll.bmc]\nenabled = true\n")
    read = by(agent, "job.read.bytes", "job")
    assert (read["4711"], read["4712"], read["cp.0"]) == (16000000000, 40200000, 2147483648)
    written = by(agent, "job.write.bytes", "job")
    assert (written["4711"], written["4712"]) == (80000000, 12000100000)
    assert agent.value("node.power.watts") == 217
    assert agent.latest("node.power.metered.watts", "meter=bmc")[0]["value"] == 217
    (time,) = agent.latest("node.time.seconds")
    assert time["value"] == pytest.approx(now(), abs=60)
    assert 0 < time["error"] < 0.001
