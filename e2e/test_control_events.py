"""Control events: ranks and programs tell each other what happens, over restarts and nodes; the agent tells of
its I/O schedules."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import barograph
import pytest
from harness import PATIENCE_SECONDS, QUICK, Agent, environment, eventually
from test_cluster import cluster
from test_examples import EXAMPLES, compile_with, library, needs, told
from test_schedule import config, program

__all__ = ["library", "program"]

Start = Callable[..., Agent]

MIB = 1 << 20
RANKS = 4
EVENTS = 200

# Publishes the events that it reads: kind, subject, value, confidence and properties as JSON.
TELLER = """
import json, sys, barograph
for line in sys.stdin:
    told = json.loads(line)
    done = barograph.control_event(*told["event"], properties=told["properties"], readers=sys.argv[1], application="teller")
    print(done, flush=True)
"""


class Teller:
    """A program beside an agent that publishes what it is told."""

    def __init__(self, run_dir: Path, readers: str = "owner", **labels: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TELLER, readers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(BAROGRAPH_RUN_DIR=str(run_dir), **labels),
        )

    def tell(self, *event: object, **properties: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"event": event, "properties": properties}) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "True\n"

    def __enter__(self) -> Teller:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=PATIENCE_SECONDS)


def test_ranks_hear_each_other_in_three_ways(start: Start, library: Path, tmp_path: Path) -> None:
    needs(bool(shutil.which("mpicc") and shutil.which("mpirun")), "MPI (mpich)")
    agent = start()
    ranks = compile_with("mpicc", library, EXAMPLES / "control" / "ranks.c", tmp_path / "ranks", "-lbaro")
    run = ["mpirun", "-n", str(RANKS), str(ranks), str(EVENTS)]
    beside = environment(BAROGRAPH_RUN_DIR=str(agent.run_dir))
    output = subprocess.run(run, stdout=subprocess.PIPE, text=True, env=beside, check=True, timeout=120).stdout
    heard = sorted(told(output), key=lambda line: str(line["rank"]))
    assert [(line["rank"], line["way"]) for line in heard] == [(1, "wait"), (2, "check"), (3, "callback")]
    for line in heard:
        assert (line["events"], line["missed"]) == (EVENTS, 0), line
        assert line["servers"] == sum(range(EVENTS))
    # They are history as well, with the rank as the launcher gave it.
    counted = "SELECT kind, count(*) AS n, max(sequence) AS last FROM control_events WHERE rank = '0' GROUP BY kind ORDER BY kind"
    half = EVENTS // 2
    expect = [
        {"kind": "server.back", "n": half, "last": EVENTS},
        {"kind": "server.slow", "n": half, "last": EVENTS - 1},
    ]
    eventually(lambda: agent.rows(counted) == expect, "all events")
    row = agent.rows("SELECT * FROM control_events ORDER BY ts, sequence LIMIT 1")[0]
    assert (row["subject"], row["confidence"], json.loads(row["properties"])) == ("/scratch", 0.9, {"server": "0"})
    # The plain streams are there too.
    plain = agent.rows("SELECT count(*) AS n FROM app_control_event_record")
    assert plain == [{"n": EVENTS}]


def test_a_program_hears_what_it_wants_over_restarts(start: Start) -> None:
    agent = start()
    node = barograph.connect(agent.run_dir)
    with Teller(agent.run_dir, SLURM_JOB_ID="7") as teller, Teller(agent.run_dir, SLURM_JOB_ID="8") as other:
        events = node.control_events("io.*", sources={"job": "7"}, properties={"policy": "set*"}, confidence_min=0.5)
        everything = node.control_events()
        other.tell("io.late", "/other", policy="set10")
        teller.tell("epoch.begun")
        teller.tell("io.late", "/scratch", 2.5, policy="set10")
        event = events.wait(PATIENCE_SECONDS)
        assert event is not None
        assert (event.kind, event.subject, event.value) == ("io.late", "/scratch", 2.5)
        assert event.labels["application"] == "teller" and event.labels["job"] == "7"
        assert (event.sequence, event.missed, event.is_own) == (2, 0, False)
        assert event.pid == teller.process.pid and event.properties == {"policy": "set10"}
        assert 0 <= event.age_ns < PATIENCE_SECONDS * 1e9
        heard = [everything.wait(PATIENCE_SECONDS) for _ in range(3)]
        assert sorted(event.subject for event in heard if event) == ["", "/other", "/scratch"]
        assert events.check() is None
        # Each event is given once, by whichever agent.
        agent.restart()
        teller.tell("io.late", "again", policy="set10")
        event = events.wait(PATIENCE_SECONDS)
        assert event is not None and (event.subject, event.sequence, event.missed) == ("again", 3, 0)
        assert events.check() is None and events.missed == 0
        # Who comes later may ask for what was.
        past = node.control_events("io.*", past=3600)
        assert [event.subject for event in [past.check()] if event] == ["again"]
        assert past.check() is None
    subjects = "SELECT subject FROM control_events WHERE job = '7' ORDER BY ts"
    eventually(lambda: [row["subject"] for row in agent.rows(subjects)] == ["", "/scratch", "again"], "the history")
    listed = agent.ask("control", "events", "--kind", "io.*", "--source", "job=7")
    assert [row["subject"] for row in listed] == ["again", "/scratch"]
    table = agent.out("control", "events")
    assert "teller job 7" in table and '{"policy":"set10"}' in table, table
    assert "no column rack" in agent.error("control", "events", "--source", "rack=1")


def test_a_command_follows_events(start: Start) -> None:
    agent = start()
    follow = ("control", "events", "--follow", "--kind", "a.*", "--count", "2")
    with Teller(agent.run_dir) as teller, agent.command_running(*follow) as command:
        assert command.stdout is not None
        for number in range(1_000):
            # It begins at some moment.
            teller.tell("a.b", "subject", number, name="text")
            if command.poll() is not None:
                break
            time.sleep(0.05)
        lines = [command.stdout.readline() for _ in range(2)]
        for line in lines:
            assert "teller  a.b subject" in line and "name=text" in line, line
    assert "0 to 1" in agent.error("control", "events", "--follow", "--confidence", "2", status=2)


def test_the_agent_tells_of_its_schedules(start: Start, program: Callable[..., Any], tmp_path: Path) -> None:
    agent = start(config=config(tmp_path))
    events = barograph.connect(agent.run_dir).control_events("io.*")
    first, second = (program(agent, tmp_path, name) for name in ("first", "second"))
    assert first.do("begin", "a", MIB, 30) == "granted 1.0"
    # It has not the patience to wait for the other.
    second.tell("begin", "b", MIB, 0.5)
    assert second.answer().startswith("late")
    event = events.wait(PATIENCE_SECONDS)
    assert event is not None
    assert (event.kind, event.subject, event.value) == ("io.alone", "scratch", 1.0)
    assert event.properties == {"policy": "fcfs"} and event.labels == {} and event.node == agent.node
    row = agent.rows("SELECT kind, application, sequence FROM control_events")
    assert row == [{"kind": "io.alone", "application": None, "sequence": 1}]
    assert "agent" in agent.out("control", "events")
    assert agent.value("control.event.dropped.count") == 0


def test_events_of_other_nodes_are_heard(start: Start) -> None:
    _, (a, b) = cluster(start, ["a", "b"], QUICK)
    here = barograph.connect(a.run_dir)
    events = here.control_events("server.*")
    of_a = here.control_events("server.*", sources={"node": "a"})
    with Teller(b.run_dir, "all") as teller, Teller(b.run_dir, "owner") as private, Teller(a.run_dir) as own:
        # What only its owner may read stays on its node.
        private.tell("server.slow", "private")
        teller.tell("server.slow", "/scratch", 3.5, server="7")
        event = events.wait(PATIENCE_SECONDS)
        assert event is not None
        assert (event.node, event.subject, event.value) == ("b", "/scratch", 3.5)
        assert event.properties == {"server": "7"} and event.labels["application"] == "teller"
        # Both clocks are the same, and the age is corrected by what is known of their difference.
        assert event.age_ns < PATIENCE_SECONDS * 1e9
        own.tell("server.back", "own")
        event = events.wait(PATIENCE_SECONDS)
        assert event is not None and (event.node, event.subject) == ("a", "own")
        event = of_a.wait(PATIENCE_SECONDS)
        assert event is not None and event.subject == "own"
        rows = "SELECT node, kind, subject, value FROM cluster_control_events ORDER BY ts"
        found = [{"node": "b", "kind": "server.slow", "subject": "/scratch", "value": 3.5}]
        eventually(lambda: a.post_sql(rows).json == found, "what everyone may read, over HTTP")
        ours = {"node": "a", "kind": "server.back", "subject": "own", "value": None}
        eventually(lambda: a.sql(rows) == [*found, ours], "and what its user may read")
        assert len(a.ask("control", "events")) == 2
        of_node = "SELECT count(*) AS n FROM control_events"
        assert (a.post_sql(of_node).json, a.sql(of_node)) == ([{"n": 0}], [{"n": 1}]), "the node's own"


@pytest.mark.parametrize("event", [("", ""), ("a b", ""), ("a", "x" * 1_100), ("a", "", 1.0, 7)])
def test_what_can_be_no_event_is_refused(event: tuple[Any, ...]) -> None:
    more = {"confidence": event[3]} if len(event) > 3 else {}
    with pytest.raises(ValueError, match="event"):
        barograph.control_event(*event[:3], application="refused", run_dir="/nowhere/at/all", **more)
