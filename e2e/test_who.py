"""The attribution of disk traffic to processes, compared with the kernel's counts: `/proc/PID/io`,
`/proc/diskstats`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, ROOT, Agent, eventually, machine, replace_file

Start = Callable[..., Agent]
SECTOR = 512
PROCESSES = QUICK + "[sources.poll.process]\ninterval_ms = 200\n[sources.poll.job]\ninterval_ms = 200\n"

WRITER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(file, os.urandom(4 << 20), 0)
    os.fsync(file)
    print("written", flush=True)
    time.sleep(0.05)
"""


@contextmanager
def writer(file: Path) -> Iterator[int]:
    """A process that writes to a file and to its disk again and again; yields its pid."""
    command = [sys.executable, "-c", WRITER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"written\n"
        # A second process reads on, since the first would wait for a reader of its pipe.
        with subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL) as sink:
            try:
                yield process.pid
            finally:
                process.kill()
                process.wait()
                sink.wait()


def written_by(pid: int) -> int:
    """The bytes that a process wrote, from the kernel."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def written_to(device: str) -> int:
    """The bytes that were written to a disk, from the kernel."""
    lines = [line.split() for line in Path("/proc/diskstats").read_text().splitlines()]
    return next(int(words[9]) for words in lines if words[2] == device) * SECTOR


def disk_of(folder: Path) -> str:
    """The whole disk that contains a directory; skips the test if there is none."""
    number = os.stat(folder).st_dev
    link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not link.exists():
        pytest.skip(f"{folder} is on no block device")
    place = link.resolve()
    disk = place.parent.name if (place / "partition").exists() else place.name
    if disk.startswith(("dm-", "md", "loop", "bcache")):
        pytest.skip(f"{disk} stands on other disks, whose counts are others")
    return disk


def at_least(agent: Agent, name: str, label: str, low: int) -> int:
    """A counter, as soon as it has reached the kernel's earlier value."""
    return eventually(lambda: (seen := agent.value(name, label) or 0) >= low and seen, f"{name} of {label}")


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk, if there is one: directories for temporary files may be in memory."""
    target = ROOT / "target"
    folder = (target if target.is_dir() else ROOT) / f"who-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    try:
        yield folder
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def test_a_writer_is_named_and_counted_as_the_kernel_does(start: Start, scratch: Path) -> None:
    disk = disk_of(scratch)
    agent = start(config=PROCESSES)
    with writer(scratch / "file") as pid:
        if written_by(pid) == 0:
            pytest.skip("the kernel does not count what processes write")

        def lines() -> list[dict[str, Any]]:
            causes = agent.ask("top")["causes"]
            return [one for one in causes if one["kind"] == "process" and f"({pid})" in one["name"] and one["write"] > 0]

        line = eventually(lines, "the writer is among those who write")[0]
        assert line["device"] is None
        low = written_by(pid)
        assert low <= at_least(agent, "process.write.bytes", f"pid={pid}", low) <= written_by(pid)
        low = written_to(disk)
        assert low <= at_least(agent, "disk.write.bytes", f"device={disk}", low) <= written_to(disk)
        # Other processes may write on this machine: one of them is named, or the text explains that
        # they are not counted.
        assert agent.value("node.who.text") not in ("", "no disk moves anything")
        assert agent.ask("top")["who"]


def test_groups_of_this_machine_are_counted_or_said_not_to_be(start: Start, scratch: Path) -> None:
    root = Path("/sys/fs/cgroup/blkio")
    files = [root / f"blkio.{kind}.io_service_bytes_recursive" for kind in ("throttle", "bfq")]
    if not any(file.exists() for file in files):
        pytest.skip("this machine has no version 1 of control groups for block devices")
    disk = disk_of(scratch)
    number = Path(f"/sys/block/{disk}/dev").read_text().strip()
    if any(f"{number} " in file.read_text() for file in files if file.exists()):
        pytest.skip(f"{disk} has a limit or a scheduler with which version 1 counts")
    agent = start(config=PROCESSES)
    with writer(scratch / "file"):
        eventually(lambda: agent.value("node.who.text") not in (None, "no disk moves anything"), "a disk moves")
        assert not agent.has("cgroup.io.*")
        (report,) = [one for one in agent.ask("doctor") if one["source"] == "cgroup"]
        # Of many devices some are named: loop devices stay after they were used.
        told = [one for one in report["missing"] if disk in one["what"] or "more by control group" in one["what"]]
        assert told and "limit" in told[0]["why"] and "version 2" in told[0]["remedy"]


def test_never_nobody_while_a_disk_moves(start: Start, tmp_path: Path) -> None:
    tree = machine("empty", tmp_path)
    blkio, proc = tree / "sys/fs/cgroup/blkio", tree / "proc"
    replace_file(tree / "sys/block/vda/dev", "254:0\n")
    sectors = 0

    def move(busy: int = 0) -> None:
        nonlocal sectors
        sectors += 20_000
        replace_file(proc / "diskstats", f"254 0 vda 0 0 0 0 {sectors} 0 {sectors} 9 0 {busy} 9\n")

    def group(path: str, text: str) -> None:
        for counts in ("service_bytes", "serviced"):
            replace_file(blkio / path / f"blkio.throttle.io_{counts}_recursive", text)

    def who_with(part: str) -> str:
        def look() -> str | None:
            move()
            told = agent.ask("top")["who"]
            return told if part in told else None

        return eventually(look, part)

    move()
    for path in ("", "job", "job/step"):
        group(path, "Total 0\n")
    agent = start("--sys-root", tree, config=PROCESSES)
    told = who_with("not counted here")
    assert "baro doctor" in told and agent.ask("top")["causes"] == []
    frame = agent.out("top", "--once")
    assert "not counted here" in frame or "no disk moves" in frame
    assert "no control group reads or writes" not in frame
    (report,) = [one for one in agent.ask("doctor") if one["source"] == "cgroup"]
    assert any("I/O on vda" in one["what"] and one["remedy"] for one in report["missing"])

    # A limit is set: from then on groups are counted, and named with their device.
    bytes_written = 0

    def count() -> bool:
        nonlocal bytes_written
        move()
        bytes_written += 20_000 * SECTOR
        for path in ("", "job", "job/step"):
            group(path, f"254:0 Read 0\n254:0 Write {bytes_written}\n254:0 Total {bytes_written}\nTotal {bytes_written}\n")
        return "/job/step writes" in agent.ask("top")["who"]

    def lines() -> set[tuple[str, str, str]]:
        return {(one["kind"], one["name"], one["device"]) for one in agent.ask("top")["causes"]}

    eventually(count, "the group is named")
    step = ("control group", "/job/step", "vda")
    eventually(lambda: count() and step in lines(), "its line, with the device")

    # A process is better evidence, even one that renames itself.
    wrote = 0

    def process() -> bool:
        nonlocal wrote
        move()
        wrote += 20_000 * SECTOR
        queue = ("flush-254:0", "events")[wrote // (20_000 * SECTOR) % 2]
        stat = f"9 (kworker/u8:2-{queue}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 50 9 9\n"
        replace_file(proc / "9/stat", stat)
        replace_file(
            proc / "9/io", f"read_bytes: 0\nwrite_bytes: {wrote}\ncancelled_write_bytes: 0\n"
        )
        return "(9) writes" in agent.ask("top")["who"]

    eventually(process, "the process is named")
    eventually(lambda: agent.value("process.write.bytes") == wrote, "its bytes")
    assert [one["labels"] for one in agent.latest("process.write.bytes")] == [
        {"command": "kworker/u8:2", "pid": "9"}
    ]
    lives = agent.sql("SELECT DISTINCT command FROM process_write_bytes")
    assert lives == [{"command": "kworker/u8:2"}]
