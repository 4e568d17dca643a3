"""I/O in turns: programs begin phases of I/O and wait for each other; holders are killed, agents restarted."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE_SECONDS, QUICK, Agent, baro, environment, eventually

Start = Callable[..., Agent]

MIB = 1 << 20
# A program that does what it is told, a line each, and says what came of it.
PROGRAM = """
import sys, barograph
volume = barograph.io_volume(sys.argv[1], application=sys.argv[2])
phases = {}
print("ready", volume.error, flush=True)
for line in sys.stdin:
    verb, name, *rest = line.split()
    if verb == "begin":
        phases[name] = volume.phase(int(rest[0]), wait=float(rest[1]))
        phases[name].__enter__()
        print(phases[name].grant, phases[name].share, flush=True)
    elif verb == "step":
        print(phases[name].step(int(rest[0])), flush=True)
    elif verb == "end":
        phases[name].done(int(rest[0]))
        phases[name].__exit__(None, None, None)
        print("ended", flush=True)
"""


# Blocks of Python that say nothing of what they have done.
BLOCKS = """
import sys, barograph
volume = barograph.io_volume(sys.argv[1], application="blocks")
with volume.phase(1000):
    pass
with volume.phase(2000) as phase:
    phase.done(300)
with volume.phase():
    pass
try:
    with volume.phase(4000):
        raise OSError
except OSError:
    pass
"""
# Knocks at the door for phases all the time, as processes that do not exist.
FLOOD = """
import os, socket, sys
door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
door.connect(sys.argv[1])
print("ready", flush=True)
while True:
    door.send(os.urandom(16))
"""


def config(folder: Path, *, policy: str = "fcfs", more: str = "", lease: float = 60) -> str:
    """One volume that writes 1 MiB/s."""
    volume = f'[schedule.volumes.scratch]\npath = "{folder}"\nbandwidth = {MIB}\npolicy = "{policy}"\n{more}'
    return f"{QUICK}[schedule]\nlease_seconds = {lease}\n{volume}\n"


class Program:
    """A program that does I/O on a volume."""

    def __init__(self, run_dir: Path, volume: object, application: str, job: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(volume), application],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(BAROGRAPH_RUN_DIR=str(run_dir), **({"SLURM_JOB_ID": job} if job else {})),
        )
        self.trouble = self.answer().removeprefix("ready ")

    def tell(self, *words: object) -> None:
        """Tells the program to do something that may take a while."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def has_answered(self) -> bool:
        """Whether there is an answer, or one comes at once."""
        return bool(select.select([self.process.stdout], [], [], 0.05)[0])

    def answer(self) -> str:
        """What came of it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def is_known(self, agent: Agent) -> None:
        """Waits until an agent has taken the program in."""
        known = f"SELECT 1 FROM publications WHERE pid = {self.process.pid}"
        eventually(lambda: agent.rows(known), "a program that is known")

    def begin(self, name: str, size: int = MIB, wait: float = 30) -> None:
        self.tell("begin", name, size, wait)

    def do(self, *words: object) -> str:
        self.tell(*words)
        return self.answer()


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    """Starts programs; none of them outlives the test."""
    programs: list[Program] = []

    def begin(where: Agent | Path, volume: object, application: str, **more: Any) -> Program:
        run_dir = where.run_dir if isinstance(where, Agent) else where
        programs.append(Program(run_dir, volume, application, **more))
        if isinstance(where, Agent):
            # Who has no answer in two seconds does its I/O: an agent may need as long for the first program of a user.
            programs[-1].is_known(where)
        return programs[-1]

    yield begin
    for one in programs:
        one.process.kill()
        one.process.communicate()


def states(agent: Agent) -> list[tuple[str, str]]:
    """The phases that are not over: application and state."""
    rows = agent.rows("SELECT application, state FROM io_phases WHERE ended_ts IS NULL ORDER BY id")
    return [(row["application"], row["state"]) for row in rows]


def test_one_after_the_other_and_everything_is_told(start: Start, program: Callable[..., Program], tmp_path: Path) -> None:
    agent = start(config=config(tmp_path))
    first, second = (program(agent, tmp_path / name, name) for name in ("first", "second"))
    first.begin("a", 3 * MIB)
    assert first.answer() == "granted 1.0"
    second.begin("b")
    eventually(lambda: states(agent) == [("first", "granted"), ("second", "waiting")], "one that waits")
    told = agent.request("POST", "/api/v1/control/phases", "{}", "control.sock").json
    assert (told["volumes"], [phase["state"] for phase in told["phases"]]) == (["scratch"], ["granted", "waiting"])
    assert "I/O in turns: scratch (1 at work, 1 waiting)" in agent.out("doctor")
    # Over TCP, it needs the right to control.
    assert agent.request("POST", "/api/v1/control/phases", "{}").status == 401
    listed = agent.out("control", "phases", "--open")
    assert "by fcfs, 1 " in listed and "3 MiB" in listed, listed
    [row] = [row for row in agent.ask("control", "phases", "scratch") if row["state"] == "granted"]
    assert (row["application"], row["processes"], row["declared_bytes"]) == ("first", 1, 3 * MIB)
    assert first.do("end", "a", 3 * MIB) == "ended"
    assert second.answer() == "granted 1.0"
    assert second.do("end", "b", MIB) == "ended"
    ended = "SELECT application, done_bytes, waited_s, took_s FROM io_phases WHERE state = 'ended' ORDER BY id"
    rows = eventually(lambda: len(rows := agent.rows(ended)) == 2 and rows, "both have ended")
    assert [(row["application"], row["done_bytes"]) for row in rows] == [("first", 3 * MIB), ("second", MIB)]
    # The second waited while the first did its I/O, and before that.
    assert rows[1]["waited_s"] > 0 and rows[0]["took_s"] > 0
    # What the programs said is history, like all values: it waited, had a grant, and ended.
    stages = "SELECT value FROM app_io_phase_stage WHERE application = 'second' ORDER BY ts"

    def has_ended() -> list[int] | None:
        said = [stage for stage, _ in groupby(row["value"] for row in agent.rows(stages))]
        return said if said[-1:] == [0] else None

    assert eventually(has_ended, "a last stage") == [1, 2, 0]
    # Every policy can be tried on it.
    replayed = agent.ask("control", "replay", tmp_path, "--since", "-1h")
    assert (replayed["phases"], replayed["applications"]) == (2, 2)
    told = {row["policy"]: row["slowdown_worst"] for row in replayed["policies"]}
    assert told["as recorded"] > 1 and {"fcfs", "adaptive", "all at a time"} <= told.keys()
    assert "no phase of I/O has ended" in agent.error("control", "replay", "/somewhere/else")
    assert "--interference" in agent.error("control", "replay", "--interference", "1000", status=2)
    volume = "SELECT value FROM io_schedule_ended_count WHERE newest AND volume = 'scratch'"
    eventually(lambda: agent.rows(volume) == [{"value": 2}], "a counter")


def test_blocks_of_python_have_done_what_they_declared_unless_they_say_otherwise(start: Start, tmp_path: Path) -> None:
    agent = start(config=config(tmp_path))
    settings = environment(BAROGRAPH_RUN_DIR=str(agent.run_dir))
    subprocess.run([sys.executable, "-c", BLOCKS, str(tmp_path)], check=True, env=settings)
    done = "SELECT done_bytes FROM io_phases WHERE state = 'ended' ORDER BY id"
    rows = eventually(lambda: len(rows := agent.rows(done)) == 4 and rows, "all have ended")
    assert [row["done_bytes"] for row in rows] == [1000, 300, 0, 0]


def test_ranks_of_a_job_have_one_grant(start: Start, program: Callable[..., Program], tmp_path: Path) -> None:
    agent = start(config=config(tmp_path))
    ranks = [program(agent, tmp_path, "solver", job="7") for _ in range(2)]
    other = program(agent, tmp_path, "solver", job="8")
    ranks[0].begin("a")
    assert ranks[0].answer() == "granted 1.0"
    other.begin("o")
    eventually(lambda: [state for _, state in states(agent)] == ["granted", "waiting"], "another job that waits")
    ranks[1].begin("a")
    assert ranks[1].answer() == "granted 1.0"
    assert ranks[0].do("end", "a", MIB) == "ended"
    # One rank is still at work, and the next phase of the other one is behind the other job.
    ranks[0].begin("b")
    eventually(lambda: [state for _, state in states(agent)] == ["granted", "waiting", "waiting"], "a next phase")
    assert ranks[1].do("end", "a", MIB) == "ended"
    assert other.answer() == "granted 1.0"
    assert other.do("end", "o", MIB) == "ended"
    assert ranks[0].answer() == "granted 1.0"


def test_who_dies_or_says_nothing_is_not_waited_for(start: Start, program: Callable[..., Program], tmp_path: Path) -> None:
    agent = start(config=config(tmp_path, lease=5))
    killed, quiet, last = (program(agent, "scratch", name) for name in ("killed", "quiet", "last"))
    killed.begin("a")
    assert killed.answer() == "granted 1.0"
    quiet.begin("b")
    eventually(lambda: len(states(agent)) == 2, "two phases")
    killed.process.kill()
    assert quiet.answer() == "granted 1.0"
    # The other one never ends its phase; its lease does.
    last.begin("c")
    assert last.answer() == "granted 1.0"
    assert last.do("end", "c", MIB) == "ended"
    # To end what is not known any more, and to end it twice, changes nothing.
    assert quiet.do("end", "b", MIB) == "ended"
    assert quiet.do("end", "b", MIB) == "ended"
    reasons = "SELECT application, state, reason FROM io_phases ORDER BY id"
    over = [("killed", "ended"), ("quiet", "expired"), ("last", "ended")]

    def are_over() -> bool:
        return [(row["application"], row["state"]) for row in agent.rows(reasons)] == over

    eventually(are_over, "three phases that are over")
    assert "nothing was heard" in agent.rows(reasons)[1]["reason"]


def test_nobody_is_held_up(start: Start, program: Callable[..., Program], tmp_path: Path) -> None:
    agent = start(config=config(tmp_path))
    holder, late = (program(agent, tmp_path, name) for name in ("holder", "late"))
    holder.begin("a")
    assert holder.answer() == "granted 1.0"
    late.begin("b", wait=0.5)
    assert late.answer().startswith("late")
    eventually(lambda: states(agent) == [("holder", "granted"), ("late", "alone")], "one without a grant")
    assert late.do("end", "b", MIB) == "ended"
    # I/O elsewhere is not scheduled, whatever it is called.
    for volume in ("/somewhere/else", "x" * 100, "scratch/", "../scratch"):
        elsewhere = program(agent, volume, "elsewhere")
        elsewhere.begin("a")
        assert elsewhere.answer() == "off None", volume
    # The agent is killed while one waits.
    late.begin("c")
    eventually(lambda: ("late", "waiting") in states(agent), "one that waits")
    agent.stop(signal.SIGKILL)
    assert late.answer().startswith("no_agent")
    late.begin("d")
    assert late.answer().split()[0] in ("no_agent", "off")
    assert late.do("end", "d", MIB) == "ended"
    # A new one knows who waits, and hears of the holder when it says something.
    agent.start()
    late.is_known(agent)
    late.begin("e")
    assert late.answer() == "granted 1.0"
    assert holder.do("step", "a", 1) in ("granted", "off")
    assert late.do("end", "e", MIB) == "ended"


def test_phases_that_say_how_far_they_are_have_turns(start: Start, program: Callable[..., Program], tmp_path: Path) -> None:
    agent = start(config=config(tmp_path, policy="round-robin", more="turn_seconds = 0.3"))
    holder, waits = (program(agent, tmp_path, name) for name in ("holder", "waits"))
    holder.begin("a", 100 * MIB)
    assert holder.answer() == "granted 1.0"
    # Who says twice that it is at work can stop.
    assert [holder.do("step", "a", MIB) for _ in range(2)] == ["granted", "granted"]
    waits.begin("a", 100 * MIB)
    # Phases that say how far they are have turns.
    turns = 0
    until = time.monotonic() + PATIENCE_SECONDS
    told = {holder: True, waits: False}
    while turns < 6 and time.monotonic() < until:
        for one in told:
            if told[one]:
                one.tell("step", "a", MIB)
                told[one] = False
        rows = agent.rows("SELECT application FROM io_phases WHERE state = 'granted'")
        assert len(rows) <= 1, rows
        for one in (holder, waits):
            # What the table says may be over: the one whose turn it is then has answered.
            if not told[one] and one.has_answered():
                answer = one.answer()
                assert answer.startswith("granted"), answer
                told[one] = True
                turns += 1
    assert turns >= 6
    assert agent.stop() == 0


def test_who_knocks_all_the_time_keeps_nobody_from_a_grant(start: Start, program: Callable[..., Program], tmp_path: Path) -> None:
    agent = start(config=config(tmp_path))
    asks = program(agent, tmp_path, "asks")
    flood = [sys.executable, "-c", FLOOD, str(agent.run_dir / "phases.sock")]
    with subprocess.Popen(flood, stdout=subprocess.PIPE) as hostile:
        assert hostile.stdout is not None and hostile.stdout.readline() == b"ready\n"
        try:
            for number in range(20):
                asks.begin(f"p{number}")
                assert asks.answer() == "granted 1.0"
                assert asks.do("end", f"p{number}", MIB) == "ended"
        finally:
            hostile.kill()
    eventually(lambda: agent.rows("SELECT count(*) AS n FROM io_phases WHERE state = 'ended'") == [{"n": 20}], "20 phases")


def test_without_an_agent_it_costs_nothing_and_bad_settings_are_refused(program: Callable[..., Program], tmp_path: Path) -> None:
    alone = program(tmp_path / "run", tmp_path, "alone")
    assert "No such file" in alone.trouble
    for number in range(20):
        alone.begin(f"p{number}")
        assert alone.answer().split()[0] in ("no_agent", "off")
        assert alone.do("end", f"p{number}", MIB) == "ended"
    for text, expect in (
        ('[schedule.volumes.a]\npath = "relative"\nbandwidth = 1', "absolute"),
        ('[schedule.volumes.a]\npath = "/a"', "bandwidth"),
        ('[schedule.volumes.a]\npath = "/a"\nbandwidth = 1\npolicy = "fastest"', "unknown variant"),
        ('[schedule.volumes.a]\npath = "/a"\nbandwidth = 1\nat_once = 0', "at_once"),
        ("[schedule]\nlease_seconds = 0", "lease_seconds"),
    ):
        file = tmp_path / "bad.toml"
        file.write_text(text)
        run = baro("up", "--config", file, "--run-dir", tmp_path / "r", "--state-dir", tmp_path / "s", "--http", "off")
        assert run.returncode != 0 and expect in run.stderr, run.stderr
