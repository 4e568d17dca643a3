"""Successive lives of an agent in the same run directory, and what readers see in between."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable

from harness import Agent, baro, eventually, patient_lines

Start = Callable[..., Agent]


def kill(agent: Agent) -> None:
    """Kills the agent with SIGKILL, so that it cannot end in order."""
    assert agent.process
    agent.process.kill()
    agent.process.wait()


def test_a_second_agent_is_refused_while_the_first_lives(start: Start, tmp_path: object) -> None:
    agent = start()
    assert agent.process
    second = baro(
        "up", "--run-dir", agent.run_dir, "--state-dir", f"{tmp_path}/state", "--http", "127.0.0.1:0"
    )
    assert second.returncode == 1
    assert str(agent.process.pid) in second.stderr and str(agent.run_dir) in second.stderr
    assert "barograph ready" not in second.stdout
    # The first agent has not noticed.
    assert agent.get("/healthz").status == 200
    assert agent.get("/healthz", "read.sock").status == 200
    eventually(lambda: not agent.latest("memory.total.bytes")[0]["stale"], "it is fresh")


def test_a_second_agent_is_refused_while_the_first_stands_still(start: Start, tmp_path: object) -> None:
    agent = start()
    assert agent.process
    agent.freeze()
    second = baro("up", "--run-dir", agent.run_dir, "--state-dir", f"{tmp_path}/state", "--http", "off")
    assert second.returncode == 1 and str(agent.process.pid) in second.stderr


def test_two_agents_in_two_directories_run_side_by_side(start: Start) -> None:
    one, other = start("--node", "one"), start("--node", "other")
    assert one.port != other.port
    assert one.get("/healthz").json["node"] == "one"
    assert other.get("/healthz").json["node"] == "other"


def test_after_sigkill_the_last_values_are_there_and_old(start: Start) -> None:
    agent = start()
    before = eventually(lambda: agent.latest("memory.total.bytes"), "a sample")[0]
    kill(agent)
    (after,) = agent.latest("memory.total.bytes")
    assert after["value"] == before["value"]
    eventually(lambda: agent.latest("memory.total.bytes")[0]["stale"], "it is said to be old")
    assert "old" in agent.out("latest", "memory.total.bytes")
    status = eventually(
        lambda: (done := agent.run("status", "--json")).returncode == 1 and done, "a dead agent"
    )
    assert json.loads(status.stdout)["alive"] is False
    assert "dead" in status.stderr
    assert all(sample["stale"] for sample in agent.latest("*"))
    assert agent.sql("SELECT value FROM memory_total_bytes WHERE newest") == [{"value": before["value"]}]
    age = agent.sql("SELECT age_ns FROM memory_total_bytes WHERE newest")[0]["age_ns"]
    assert age > 0
    agent.error("insight", "create", "CREATE INSIGHT a.b AS SELECT sum(value) FROM memory_total_bytes")


def test_after_sigkill_the_next_agent_takes_over(start: Start) -> None:
    agent = start()
    first = agent.ask("status")
    kill(agent)
    agent.start()
    second = agent.ask("status")
    assert second["alive"] and second["pid"] != first["pid"]
    assert second["incarnation"] != first["incarnation"]
    assert agent.get("/healthz").status == 200
    assert agent.get("/healthz", "read.sock").status == 200
    eventually(lambda: not agent.latest("memory.total.bytes")[0]["stale"], "it is fresh")


def test_series_keep_their_identity_over_a_restart(start: Start) -> None:
    agent = start()
    before = {stream["name"]: stream["id"] for stream in agent.ask("streams", "memory.*")}
    agent.restart()
    assert {stream["name"]: stream["id"] for stream in agent.ask("streams", "memory.*")} == before


def test_a_watch_goes_on_over_restarts(start: Start) -> None:
    agent = start()
    with agent.command_running("watch", "agent.cpu.seconds", "--json") as process:
        lines = patient_lines(process)
        json.loads(next(lines))
        for end in (lambda: kill(agent), lambda: agent.stop()):
            end()
            ended_ns = time.time_ns()
            agent.start()
            assert any(json.loads(line)["ts"] > ended_ns for line in lines)
            assert process.poll() is None


def test_a_stopped_agent_is_not_shown_as_fresh(start: Start) -> None:
    agent = start()
    assert agent.process
    agent.freeze()
    eventually(lambda: all(sample["stale"] for sample in agent.latest("memory.*")), "they are old")
    eventually(lambda: agent.run("status").returncode == 1, "the agent counts as dead")
    agent.process.send_signal(signal.SIGCONT)
    eventually(
        lambda: not any(sample["stale"] for sample in agent.latest("memory.*")), "they are fresh again"
    )
    eventually(lambda: agent.run("status").returncode == 0, "the agent counts as alive")


def test_a_segment_that_is_no_segment_is_an_error(start: Start) -> None:
    agent = start()
    agent.stop()
    segment = agent.run_dir / "segment"
    for content in (b"", b"junk", b"\x00" * 100_000, os.urandom(100_000)):
        segment.unlink()
        segment.write_bytes(content)
        assert str(segment) in agent.error("latest", "memory.total.bytes")
    # The next agent is not affected.
    agent.start()
    assert agent.latest("memory.total.bytes")


def test_a_segment_that_is_cut_is_an_error(start: Start) -> None:
    agent = start()
    agent.stop()
    segment = agent.run_dir / "segment"
    for size in (1_000_000, 5000, 100):
        os.truncate(segment, size)
        assert str(segment) in agent.error("latest", "memory.total.bytes")
