"""Where blocks should go: the table of targets, the advice of the agent, its decisions and what becomes of
both without state, in a pause and without an agent."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, Agent, eventually

Start = Callable[..., Agent]
ADVISE, REPORT = "/api/v1/control/advise", "/api/v1/control/report"
MIB = 1 << 20


def targets(agent: Agent) -> list[dict[str, Any]]:
    return agent.rows("SELECT * FROM targets ORDER BY mount")


def advise(agent: Agent, way: str = "read.sock", **question: Any) -> dict[str, Any]:
    answer = agent.request("POST", ADVISE, question, way)
    assert answer.status == 200, answer.text
    return answer.json


def places(advice: dict[str, Any]) -> list[str]:
    return [piece["path"] for block in advice["blocks"] for piece in block["pieces"]]


def test_targets_are_the_file_systems_with_what_their_streams_say(start: Start) -> None:
    agent = start(config=QUICK)
    rows = eventually(lambda: targets(agent), "targets")
    streams = agent.rows("SELECT labels FROM latest WHERE name = 'filesystem.available.bytes'")
    assert [row["mount"] for row in rows] == sorted(json.loads(row["labels"])["mount"] for row in streams)
    for row in rows:
        if row["responding"]:
            stat = os.statvfs(row["mount"])
            assert row["capacity_bytes"] == stat.f_blocks * stat.f_frsize
            assert 0 <= row["free_bytes"] <= row["capacity_bytes"] and row["free_age_ns"] >= 0
    for mount in [row["mount"] for row in rows if row["disks"]]:
        # What a file system on a disk has comes from that disk, as soon as it was looked at twice.
        queue = f"SELECT queue_bytes, queue_age_ns FROM targets WHERE mount = '{mount}' AND queue_bytes >= 0"
        (row,) = eventually(lambda queue=queue: agent.rows(queue), "a queue")
        assert row["queue_age_ns"] >= 0


def test_an_answer_is_a_decision_and_its_report_is_the_outcome(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    eventually(lambda: targets(agent), "targets")
    advice = advise(agent, bytes=MIB, targets=[str(tmp_path), "/dev/shm"], keys=["a", "b", "c"], label="step 1")
    assert [block["key"] for block in advice["blocks"]] == ["a", "b", "c"]
    assert set(places(advice)) <= {str(tmp_path), "/dev/shm"} and len(places(advice)) == 3
    known = {target["path"]: target for target in advice["targets"]}
    assert known[str(tmp_path)]["free_bytes"] > 0 and known[str(tmp_path)]["free_age_s"] >= 0
    report = {"decision": advice["decision"], "bytes": 3 * MIB, "seconds": 0.125}
    assert agent.request("POST", REPORT, report, "read.sock").status == 200
    assert "already" in agent.request("POST", REPORT, report, "read.sock").message
    select = f"SELECT * FROM decisions WHERE id = {advice['decision']} AND outcome = 'done'"
    (row,) = eventually(lambda: agent.rows(select), "the outcome is in SQL")
    assert (row["controller"], row["label"], row["subject"]) == ("placement", "step 1", "3 blocks")
    assert "free" in json.loads(row["inputs"])[str(tmp_path)]
    assert json.loads(row["effect"])["after"] == 0.125
    page = agent.out("control", "explain", advice["decision"])
    assert "3 blocks of 1048576 bytes" in page and "observed 0.1 s" in page
    assert "hashing alone" in agent.error("control", "revert", advice["decision"])


def test_people_look_without_a_trace(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    eventually(lambda: targets(agent), "targets")
    shown = agent.out("control", "advise", "--bytes", "4KiB", "--key", "x", tmp_path)
    assert str(tmp_path) in shown and "GOES TO" in shown and "decision" not in shown
    assert agent.ask("control", "decisions", "placement") == []
    kept = agent.ask("control", "advise", "--keep", f"{tmp_path}=2.5", "/dev/shm")
    assert kept["decision"] > 0
    assert [it["id"] for it in agent.ask("control", "decisions", "placement")] == [kept["decision"]]
    assert "is no size" in agent.error("control", "advise", "--bytes", "many", tmp_path, status=2)
    divided = agent.ask("control", "advise", "--bytes", "1GB", "--pieces", "1MiB", "--read", tmp_path)
    assert divided["blocks"][0]["pieces"][0]["bytes"] == 1_000_000_000


@pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
def test_a_target_that_is_full_gets_nothing(start: Start, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], check=True)
    try:
        agent = start(config=QUICK)

        def answer(size: int) -> dict[str, Any]:
            return advise(agent, bytes=size, targets=[str(small), str(tmp_path)])

        eventually(lambda: str(small) in [row["mount"] for row in targets(agent)], "the mount is a target")
        assert places(answer(4 * MIB)) == [str(tmp_path)]
        assert "all of it has" in answer(4 * MIB)["targets"][0]["excluded"]
        (small / "file").write_bytes(bytes(3 * MIB // 2))
        # What was written shows as soon as the agent has looked.
        eventually(lambda: "bytes free" in (answer(MIB)["targets"][0]["excluded"] or ""), "it is full")
        assert places(answer(MIB)) == [str(tmp_path)]
        nowhere = advise(agent, bytes=MIB, targets=[str(small)])
        assert places(nowhere) == [] and "room nowhere" in nowhere["reason"]
    finally:
        subprocess.run(["umount", small], check=True)


def test_bad_questions_and_a_pause(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    eventually(lambda: targets(agent), "targets")
    for question, message in (
        ({"bytes": 1}, "missing field `targets`"),
        ({"bytes": 1, "targets": []}, "send 1 to 32"),
        ({"bytes": 1, "targets": ["here"]}, "absolute path"),
        ({"bytes": 1, "targets": ["/a/../b"]}, "without `..`"),
        ({"bytes": 1, "targets": ["/a"], "keys": ["x" * 4097]}, "4096 bytes at most"),
        ({"bytes": 1, "targets": ["/a"], "keys": ["x"] * 257}, "256 at most"),
    ):
        refused = agent.request("POST", ADVISE, question, "read.sock")
        assert refused.status == 400 and message in refused.message, refused.text
    assert agent.request("POST", ADVISE, {"bytes": 1, "targets": ["/a"]}).status == 401
    both = {"bytes": MIB, "targets": [str(tmp_path), "/dev/shm"], "keys": [str(n) for n in range(64)]}
    agent.out("control", "pause", "placement", "--for", "10m", "--reason", "a test")
    paused = advise(agent, **both)
    assert "by hashing alone" in paused["reason"] and "a test" in paused["reason"]
    # The same blocks go to the same places, whatever the state is.
    assert places(advise(agent, **both)) == places(paused)
    agent.out("control", "resume", "placement")
    dry = advise(agent, dry_run=True, **both)
    assert dry["dry_run"] and places(dry) == places(paused)
