"""All controllers of an agent in one list: they are explained, paused, put in a dry run and reverted by those who
may, over restarts of the agent; and their decisions are archived, each user's own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Agent, eventually
from test_control import PLAN, REPORT, field
from test_schedule import MIB, Program, config, program, states

__all__ = ["program"]

Start = Callable[..., Agent]
SCRATCH = "io-schedule/scratch"


def modes(agent: Agent) -> dict[str, str]:
    return {row["name"]: row["mode"] for row in agent.ask("control", "list")["controllers"]}


def device() -> str:
    return sorted(path.name for path in Path("/sys/block").iterdir())[0]


def test_every_controller_is_listed_and_explained(start: Start, tmp_path: Path) -> None:
    agent = start(config=config(tmp_path))
    expected = {"augmentation": "live", "weight": "live", "placement": "live", SCRATCH: "live", "server-maps": "off"}
    assert modes(agent) == expected
    rows = eventually(lambda: agent.rows("SELECT name, level, mode, decisions FROM controllers ORDER BY name"), "a table")
    assert [(row["name"], row["level"], row["mode"]) for row in rows] == [
        ("augmentation", "node", "live"),
        (SCRATCH, "node", "live"),
        ("placement", "node", "live"),
        ("server-maps", "global", "off"),
        ("weight", "node", "live"),
    ]
    listed = agent.out("control", "list")
    assert f"which programs may do I/O below {tmp_path}" in listed
    explained = agent.out("control", "explain", SCRATCH)
    assert "would begin at once, with 100 % of the volume" in explained
    # The only volume is meant by its kind as well.
    assert agent.out("control", "explain", "io-schedule") == explained
    assert "a first read has what its error bound needs" in agent.out("control", "explain", "augmentation")
    assert "no controller is called" in agent.error("control", "explain", "epochs")


def test_a_paused_volume_lets_all_go_and_stays_paused_over_a_restart(
    start: Start, program: Callable[..., Program], tmp_path: Path
) -> None:
    agent = start(config=config(tmp_path))
    first, second = (program(agent, tmp_path / name, name) for name in ("first", "second"))
    first.begin("a", 3 * MIB)
    assert first.answer() == "granted 1.0"
    second.begin("b")
    eventually(lambda: states(agent) == [("first", "granted"), ("second", "waiting")], "one that waits")
    paused = agent.out("control", "pause", SCRATCH, "--for", "10m", "--reason", "a test")
    assert f"{SCRATCH} is paused by " in paused and "a test" in paused
    # Who waited is let go, without a grant.
    assert second.answer().split()[0] == "off"
    for words in (("pause", SCRATCH), ("resume", "weight"), ("dry-run", "weight", "off")):
        agent.error("control", *words)
    assert "resume it first" in agent.error("control", "pause", SCRATCH)
    assert "is not paused" in agent.error("control", "resume", "weight")
    assert f"{SCRATCH} is paused by" in agent.out("doctor")
    eventually(lambda: agent.rows("SELECT 1 FROM controllers WHERE mode = 'paused' AND reason = 'a test'"), "it is in SQL")
    agent.stop(signal.SIGKILL)
    agent.start()
    assert modes(agent)[SCRATCH] == "paused"
    late = program(agent, tmp_path / "late", "late")
    late.begin("c")
    assert late.answer().split()[0] == "off"
    resumed = agent.ask("control", "resume", SCRATCH)
    assert (resumed["name"], resumed["mode"]) == (SCRATCH, "live")
    for one, name in ((first, "a"), (second, "b"), (late, "c")):
        assert one.do("end", name, MIB) == "ended"
    late.begin("d")
    assert late.answer() == "granted 1.0"
    # Who did what is in the record, also of what an earlier agent did.
    changes = "SELECT value, user, reason FROM decisions WHERE subject = 'mode' ORDER BY id"
    eventually(lambda: agent.rows(changes)[-1:] and agent.rows(changes)[-1]["value"] == "live", "the change")
    agent.restart()
    assert "resumed by" in agent.rows(changes)[-1]["reason"]


def test_grants_are_decisions_that_are_archived_explained_and_taken_back(
    start: Start, program: Callable[..., Program], tmp_path: Path
) -> None:
    agent = start(config=config(tmp_path))
    first, second = (program(agent, tmp_path / name, name) for name in ("first", "second"))
    first.begin("a", 8 * MIB)
    assert first.answer() == "granted 1.0"
    second.begin("b")
    eventually(lambda: states(agent) == [("first", "granted"), ("second", "waiting")], "one that waits")
    listed = agent.ask("control", "decisions", SCRATCH)
    assert [(row["label"], row["value"]) for row in listed] == [("second", 0), ("first", 1)]
    grant = listed[1]["id"]
    assert "never says how far it is" in agent.error("control", "revert", grant)
    assert first.do("step", "a", MIB) == "granted"
    assert first.do("step", "a", MIB) == "granted"
    taken = eventually(lambda: (it := agent.run("control", "revert", grant, "--reason", "a test")).returncode == 0 and it, "a program that stops")
    assert "it waits from its next word on" in taken.stdout
    assert second.answer() == "granted 1.0"
    first.tell("step", "a", 2 * MIB)
    eventually(lambda: states(agent) == [("first", "waiting"), ("second", "granted")], "the first one waits")
    assert "cannot be taken back" in agent.error("control", "revert", grant)
    assert "has no decision 4711" in agent.error("control", "revert", 4711)
    assert second.do("end", "b", MIB) == "ended"
    assert first.answer() == "granted"
    assert first.do("end", "a", 8 * MIB) == "ended"
    ended = f"SELECT * FROM decisions WHERE controller = '{SCRATCH}' AND effect IS NOT NULL"
    eventually(lambda: len(agent.rows(ended)) == 5, "all is observed: three grants and two waits")
    page = agent.out("control", "explain", grant)
    assert "first may do I/O, with 100 %" in page and "it was carried out and taken back" in page and "a test" in page
    # Another life of the agent has none of them in memory, and numbers go on.
    before = {row["id"]: row["outcome"] for row in agent.rows("SELECT id, outcome FROM decisions")}
    agent.restart()
    known = {row["id"]: row["outcome"] for row in agent.rows("SELECT id, outcome FROM decisions")}
    assert known == before
    assert agent.ask("control", "decisions") == []
    assert "it was carried out and taken back" in agent.out("control", "explain", grant)
    assert agent.rows("SELECT id FROM decisions('-1s') WHERE made_ts < 0") == []
    assert len(agent.rows("SELECT id FROM decisions('-1h')")) == len(before)
    plan = agent.request("POST", PLAN, field(device()), "control.sock").json
    assert plan["decision"] == max(before) + 1


def test_a_dry_run_of_turns_decides_and_holds_nobody_up(
    start: Start, program: Callable[..., Program], tmp_path: Path
) -> None:
    agent = start(config=config(tmp_path))
    assert "is in a dry run by" in agent.out("control", "dry-run", SCRATCH, "on")
    first, second = (program(agent, tmp_path / name, name) for name in ("first", "second"))
    for one in (first, second):
        one.begin("a", 3 * MIB)
        assert one.answer().split()[0] == "off"
    planned = agent.ask("control", "decisions", SCRATCH)
    told = [(row["label"], row["value"], row["outcome"]) for row in planned if row["subject"] != "mode"]
    assert told == [("second", 0, "dry_run"), ("first", 1, "dry_run")]
    assert "already in a dry run" in agent.error("control", "dry-run", SCRATCH, "on")
    agent.out("control", "dry-run", SCRATCH, "off")
    assert modes(agent)[SCRATCH] == "live"


def test_an_augmentation_that_is_paused_reads_what_bounds_need(start: Start) -> None:
    agent = start()
    agent.out("control", "pause", "augmentation", "--reason", "a test")
    plan = agent.request("POST", PLAN, field(device()), "control.sock").json
    assert plan["buckets"] == 3 and "augmentation is paused by" in plan["reason"], plan
    assert plan["probe"] is None
    report = {"decision": plan["decision"], "bytes": 31_000_000, "seconds": 0.5}
    assert agent.request("POST", REPORT, report, "control.sock").status == 200
    refused = agent.error("control", "revert", plan["decision"])
    assert "baro control pause augmentation" in refused
    # The archive has the decision as it was last.
    rows = "SELECT outcome, inputs FROM decisions WHERE id = {}".format(plan["decision"])
    eventually(lambda: [row["outcome"] for row in agent.rows(rows)] == ["done"], "the report")
    raw = "SELECT value FROM control_decision WHERE controller = 'augmentation' ORDER BY ts DESC LIMIT 1"

    def newest() -> list[tuple[int, str]]:
        values = [json.loads(row["value"]) for row in agent.rows(raw)]
        return [(value["id"], value["outcome"]) for value in values]

    eventually(lambda: newest() == [(plan["decision"], "done")], "the last state of it")


def test_only_those_who_may_control_switch_controllers(start: Start) -> None:
    agent = start()
    body: dict[str, Any] = {"controller": "weight", "on": True}
    for path in ("pause", "resume", "dry-run"):
        for way in ("read.sock", "tcp"):
            refused = agent.request("POST", f"/api/v1/control/{path}", body, way)
            assert refused.status == 401, refused.text
    for path in ("list", "explain"):
        answer = agent.request("POST", f"/api/v1/control/{path}", {"controller": "weight"}, "read.sock")
        assert answer.status == 200, answer.text
    for wrong, status in (({"controller": "x"}, 404), ({}, 400), ({"controller": "weight", "seconds": -1}, 400)):
        refused = agent.request("POST", "/api/v1/control/pause", wrong, "control.sock")
        assert refused.status == status, refused.text
    assert "--for" in agent.error("control", "pause", "weight", "--for", "soon", status=2)
    assert set(modes(agent).values()) == {"live", "off"}
