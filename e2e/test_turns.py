"""Unmodified programs take turns: `baro io --schedule` with programs of the system, and real agents."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import BARO, Agent, environment, eventually
from test_io import shim  # noqa: F401
from test_schedule import config

Start = Callable[..., Agent]
MIB = 1 << 20
PYTHON = os.path.realpath(sys.executable)
NAME = Path(PYTHON).name
# A program that does what it is told, a line each: writes a MiB again and again until it is told something else.
PROGRAM = """
import os, select, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, b"little")
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "close":
        os.close(fd)
        print("closed", flush=True)
    while line.strip() == "write":
        os.pwrite(fd, bytes(1 << 20), 0)
        print("written", flush=True)
        if select.select([sys.stdin], [], [], 0.02)[0]:
            break
"""

# A program that begins a phase by itself, before or after its writes are much.
ASKING = """
import os, sys, time, barograph
volume = barograph.io_volume(os.path.dirname(sys.argv[1]), application="asking", run_dir=sys.argv[2])
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)

def write():
    for _ in range(4):
        os.pwrite(fd, bytes(1 << 20), 0)

print("ready", flush=True)
for line in sys.stdin:
    begun = time.monotonic()
    if line == "write\\n":
        write()
    with volume.phase(4 << 20, wait=60) as phase:
        print(phase.grant, flush=True)
        write()
        sys.stdin.readline()
        write()
    print("fast" if time.monotonic() - begun < 40 else "slow", flush=True)
"""


class Unchanged:
    """A program under `baro io --schedule`."""

    def __init__(self, run_dir: Path, library: Path, *command: object, job: str = "") -> None:
        full = [BARO, "io", "--run-dir", run_dir, "--schedule", "--", *command]
        beside = environment(BAROGRAPH_IO_LIBRARY=str(library), **({"SLURM_JOB_ID": job} if job else {}))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([*map(str, full)], env=beside, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def tell(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def says(self, what: str) -> None:
        """Waits until it has said something."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == what:
                return
        raise AssertionError(f"it has not said {what}")

    def ends(self) -> str:
        """Waits for its end; returns what it has said on stderr."""
        _, said = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, said
        return said


@pytest.fixture
def begin(shim: Path) -> Iterator[Callable[..., Unchanged]]:  # noqa: F811
    """Starts programs; none of them outlives the test."""
    programs: list[Unchanged] = []

    def run(agent: Agent, *command: object, **more: str) -> Unchanged:
        programs.append(Unchanged(agent.run_dir, shim, *command, **more))
        return programs[-1]

    yield run
    for one in programs:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def holder(begin: Callable[..., Unchanged]) -> Callable[..., Unchanged]:
    """Starts a program that writes when it is told to, and that the agent knows."""

    def run(agent: Agent, path: Path, **more: str) -> Unchanged:
        one = begin(agent, PYTHON, "-I", "-S", "-c", PROGRAM, path, **more)
        one.says("ready")
        known = f"SELECT 1 FROM publications WHERE pid = {one.process.pid}"
        eventually(lambda: agent.rows(known), "a program that is known")
        return one

    return run


def states(agent: Agent) -> list[tuple[str, str]]:
    """The phases that are not over: application and state."""
    rows = agent.rows("SELECT application, state FROM io_phases WHERE ended_ts IS NULL ORDER BY id")
    return [(row["application"], row["state"]) for row in rows]


def test_programs_of_the_system_write_one_after_the_other(
    start: Start, begin: Callable[..., Unchanged], holder: Callable[..., Unchanged], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(4 * MIB))
    (volume := tmp_path / "volume").mkdir()
    # The volume is known by a link to it.
    (link := tmp_path / "link").symlink_to(volume)
    agent = start(config=config(link))
    first = holder(agent, volume / "first")
    first.tell("write")
    eventually(lambda: states(agent) == [(NAME, "granted")], "a program with a grant")
    copy = begin(agent, "cp", "--reflink=never", source, volume / "copied")
    eventually(lambda: ("cp", "waiting") in states(agent), "one that waits")
    disk = begin(agent, "dd", "if=/dev/zero", f"of={volume / 'zeros'}", "bs=1M", "count=4", "conv=fsync")
    eventually(lambda: ("dd", "waiting") in states(agent), "two that wait")
    # Two runs of one program are two.
    second = holder(agent, volume / "second")
    second.tell("write")
    eventually(lambda: states(agent).count((NAME, "waiting")) == 1, "three that wait")
    assert [state for _, state in states(agent)] == ["granted", "waiting", "waiting", "waiting"]
    # Less than is worth a turn may have been written.
    assert all((volume / name).stat().st_size < MIB for name in ("copied", "zeros"))
    first.tell("close")
    first.says("closed")
    assert "turns" not in copy.ends() + disk.ends()
    assert (volume / "copied").read_bytes() == source.read_bytes() == (volume / "zeros").read_bytes()
    second.says("written")
    second.tell("close")
    second.says("closed")
    ended = "SELECT application, waited_s, took_s, begun_ts, started_ts, ended_ts, done_bytes, job FROM io_phases ORDER BY id"
    rows = eventually(lambda: len(rows := agent.rows(ended)) == 4 and all(row["ended_ts"] for row in rows) and rows, "all ended")
    assert [row["application"] for row in rows] == [NAME, "cp", "dd", NAME]
    for before, after in zip(rows, rows[1:], strict=False):
        assert after["started_ts"] >= before["ended_ts"], rows
    assert rows[2]["done_bytes"] == 4 * MIB and len({row["job"] for row in rows}) == 4
    # What is not on the volume does not wait, and neither does little.
    third = holder(agent, volume / "third")
    third.tell("write")
    eventually(lambda: states(agent) == [(NAME, "granted")], "a program with a grant")
    begin(agent, "cp", source, tmp_path / "elsewhere").ends()
    begin(agent, "dd", "if=/dev/zero", f"of={volume / 'little'}", "bs=1k", "count=100").ends()


def test_ranks_of_a_job_go_together(start: Start, holder: Callable[..., Unchanged], tmp_path: Path) -> None:
    agent = start(config=config(tmp_path))
    ranks = [holder(agent, tmp_path / f"rank{n}", job="7") for n in range(2)]
    for rank in ranks:
        rank.tell("write")
        rank.says("written")
    open_ = "SELECT state, processes, job FROM io_phases WHERE ended_ts IS NULL"
    one = [{"state": "granted", "processes": 2, "job": "7"}]
    eventually(lambda: agent.rows(open_) == one, "one phase of two processes")


def test_a_program_that_asks_by_itself_does_not_wait_for_itself(
    start: Start, begin: Callable[..., Unchanged], holder: Callable[..., Unchanged], tmp_path: Path
) -> None:
    agent = start(config=config(tmp_path))
    asking = begin(agent, sys.executable, "-c", ASKING, tmp_path / "asked", agent.run_dir)
    other = holder(agent, tmp_path / "other")
    asking.says("ready")
    known = f"SELECT 1 FROM publications WHERE pid = {asking.process.pid}"
    eventually(lambda: agent.rows(known), "a program that is known")
    for first in ("begin", "write"):
        asking.tell(first)
        asking.says("granted")
        # Both of its files are one phase of one process, and another program waits for both.
        open_ = "SELECT state, processes FROM io_phases WHERE ended_ts IS NULL"
        eventually(lambda: agent.rows(open_) == [{"state": "granted", "processes": 1}], "one phase")
        other.tell("write")
        eventually(lambda: [state for _, state in states(agent)] == ["granted", "waiting"], "one that waits")
        asking.tell("go on")
        asking.says("fast")
        other.says("written")
        other.tell("pause")
    assert "turns" not in asking.ends()
    was_alone = "SELECT count(*) AS n FROM app_io_phase_stage WHERE value = 3"
    assert agent.rows(was_alone) == [{"n": 0}]


def test_who_is_killed_or_pauses_holds_up_nobody(start: Start, holder: Callable[..., Unchanged], tmp_path: Path) -> None:
    agent = start(config=config(tmp_path))
    killed, pauses, last = (holder(agent, tmp_path / name) for name in ("killed", "pauses", "last"))
    killed.tell("write")
    killed.says("written")
    pauses.tell("write")
    eventually(lambda: states(agent) == [(NAME, "granted"), (NAME, "waiting")], "one that waits")
    killed.process.send_signal(signal.SIGKILL)
    pauses.says("written")
    last.tell("write")
    eventually(lambda: states(agent) == [(NAME, "granted"), (NAME, "waiting")], "the next one that waits")
    # It does nothing more, with its file open: its lease ends.
    pauses.tell("pause")
    last.says("written")
    # It comes back, and waits for its turn.
    pauses.tell("write")
    eventually(lambda: states(agent) == [(NAME, "granted"), (NAME, "waiting")], "one that waits again")
    last.tell("close")
    eventually(lambda: states(agent) == [(NAME, "granted")], "its next turn")
    assert agent.rows("SELECT count(*) AS n FROM io_phases WHERE state = 'expired'") == [{"n": 0}]


def test_turns_are_taken_away_at_calls(start: Start, holder: Callable[..., Unchanged], tmp_path: Path) -> None:
    agent = start(config=config(tmp_path, policy="round-robin", more="turn_seconds = 0.3"))
    both = [holder(agent, tmp_path / name) for name in ("one", "other")]
    for one in both:
        one.tell("write")
    # Neither closes its file, and both go on.
    for _ in range(3):
        for one in both:
            one.says("written")
    sql = "SELECT count(*) AS n FROM app_io_phase_stage WHERE value = 1"
    eventually(lambda: agent.rows(sql)[0]["n"] >= 6, "turns")


def test_without_turns_it_says_why_and_goes_on(start: Start, begin: Callable[..., Unchanged], tmp_path: Path) -> None:
    write = ("dd", "if=/dev/zero", f"of={tmp_path / 'zeros'}", "bs=1M", "count=4")
    agent = start()
    said = begin(agent, *write).ends()
    assert "without turns" in said and "[schedule.volumes]" in said
    agent.stop()
    said = begin(agent, *write).ends()
    assert "without turns" in said and "no agent" in said
    assert (tmp_path / "zeros").stat().st_size == 4 * MIB


def test_an_agent_that_is_killed_holds_up_nobody(
    start: Start, begin: Callable[..., Unchanged], holder: Callable[..., Unchanged], tmp_path: Path
) -> None:
    agent = start(config=config(tmp_path))
    first = holder(agent, tmp_path / "first")
    first.tell("write")
    eventually(lambda: states(agent) == [(NAME, "granted")], "a program with a grant")
    disk = begin(agent, "dd", "if=/dev/zero", f"of={tmp_path / 'zeros'}", "bs=1M", "count=4")
    eventually(lambda: ("dd", "waiting") in states(agent), "one that waits")
    agent.stop(signal.SIGKILL)
    disk.ends()
    first.tell("close")
    first.says("closed")
