"""The bandwidth beside others who write: from control groups of a fixture tree, and from real groups that
write to a real device where this machine counts them."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, Agent, eventually, replace_file

Start = Callable[..., Agent]
MB = 1_000_000
# Steps of a second, so that tests need not wait for minutes.
STEPS = "[interference]\nstep_seconds = 1\nread_bytes = 4000000\nsteps = 20\n"
CAPACITY = "[sources.disk.bandwidth_max]\nnvme0n1 = 120000000\n"
AVAILABLE = "disk.bandwidth.available"
# A writer is called periodic after some bursts.
LEARNING_SECONDS = 90.0


@contextmanager
def writers(tree: Path, groups: dict[str, Callable[[float], int]]) -> Iterator[None]:
    """Control groups of a fixture tree, with the bytes that each has written by the seconds since the start."""
    done = threading.Event()
    begin = time.monotonic()
    files = {}
    for name in groups:
        path = tree / "sys/fs/cgroup" / name / "io.stat"
        replace_file(path, line(0))
        files[name] = os.open(path, os.O_WRONLY)

    def write() -> None:
        while not done.wait(0.02):
            for name, written in groups.items():
                # In place, as the agent holds the file open.
                os.pwrite(files[name], line(written(time.monotonic() - begin)).encode(), 0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for file in files.values():
            os.close(file)


def line(written: int) -> str:
    return f"259:0 rbytes=1000 wbytes={written:015d} rios=1 wios=1 dbytes=0 dios=0\n"


def bursts(period: float, seconds: float, rate: float) -> Callable[[float], int]:
    """Bytes after a time: at a rate for some seconds of each period."""

    def written(at: float) -> int:
        return int((at // period * seconds + min(at % period, seconds)) * rate)

    return written


def found(agent: Agent, writer: str) -> list[dict[str, Any]]:
    return agent.rows(f"SELECT * FROM interference WHERE writer = '{writer}' AND periodic")


def test_schedules_are_found_and_the_bandwidth_is_forecast(start: Start, tree: Path) -> None:
    groups = {"simulation.slice": bursts(4, 1, 80 * MB), "log.slice": bursts(1, 1, MB)}
    with writers(tree, groups):
        agent = start("--sys-root", tree, config=QUICK + STEPS + CAPACITY)
        row = eventually(lambda: found(agent, "/simulation.slice"), "a period", LEARNING_SECONDS)[0]
        assert 3.8e9 < row["period_ns"] < 4.2e9, row
        assert 60 * MB < row["burst_bytes"] < 100 * MB, row
        log = agent.sql("SELECT periodic, reason FROM interference WHERE writer = '/log.slice'")[0]
        assert not log["periodic"] and log["reason"], log

        device = agent.sql("SELECT * FROM interference WHERE writer IS NULL")[0]
        assert (device["device"], device["capacity"], device["capacity_source"]) == ("nvme0n1", 120e6, "configured")
        assert device["follows"] in ("schedules", "mean", "holt-winters", "transform"), device
        sample = agent.latest(AVAILABLE, "device=nvme0n1")[0]
        assert sample["quality"] == "predicted" and sample["unit"] == "bytes/s", sample
        assert 0 <= sample["value"] <= 120e6 and 0 <= sample["error"] <= 120e6, sample
        table = agent.sql("SELECT value, error FROM disk_bandwidth_available WHERE newest")
        assert len(table) == 1, table

        steps = agent.sql(f"SELECT after_ns, value, error, quality FROM forecast('{AVAILABLE}')")
        assert [row["after_ns"] for row in steps] == [second * 1_000_000_000 for second in range(20)]
        assert {row["quality"] for row in steps[1:]} == {"predicted"}, steps
        later = agent.sql(f"SELECT value FROM forecast('{AVAILABLE}', horizon => '3 s')")
        assert len(later) == 1, later

        rows = agent.ask("interference", "nvme0n1")
        assert [row["writer"] for row in rows][:1] == [None] and len(rows[0]["steps"]) == 20, rows
        text = agent.out("interference", "/dev/nvme0n1")
        assert "nvme0n1, of at most 120 MB/s (configured): a reader gets" in text, text
        assert "/simulation.slice" in text and "why: " in text, text
        assert "there are nvme0n1" in agent.error("interference", "sdz")


def test_without_a_period_the_mean_is_the_forecast_and_says_so(start: Start, tree: Path) -> None:
    with writers(tree, {"log.slice": bursts(1, 1, 30 * MB)}):
        agent = start("--sys-root", tree, config=QUICK + STEPS + CAPACITY)
        ask = "SELECT * FROM interference WHERE writer IS NULL AND bandwidth > 0"
        row = eventually(lambda: agent.rows(ask), "a forecast")[0]
        assert (row["follows"], row["reason"]) == ("mean", "no period found: the mean"), row


def test_what_is_not_known_is_said(start: Start, tree: Path) -> None:
    config = QUICK + STEPS + "devices = ['nothing']\n"
    agent = start("--sys-root", tree, config=config)
    row = eventually(lambda: agent.rows("SELECT * FROM interference"), "a row")[0]
    assert row["bandwidth"] is None and "no control group has written to it" in row["reason"], row
    assert "no forecast" in agent.out("interference", "nothing")
    assert not agent.has(AVAILABLE)


def test_it_can_be_switched_off(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree, config=QUICK + "[interference]\nenabled = false\n")
    eventually(lambda: (agent.run_dir / "interference.json").exists(), "the document")
    assert agent.ask("interference") == []
    assert "no bandwidth is forecast" in agent.out("interference")
    assert "nothing is forecast of sda" in agent.error("interference", "sda")


@pytest.mark.parametrize("key", ["step_seconds = 0", "window = 1", "steps = 100", "confidence = 2.0"])
def test_bad_values_are_refused(tmp_path: Path, key: str) -> None:
    agent = Agent(tmp_path, config=f"[interference]\n{key}\n")
    done = subprocess.run(agent.command(), capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode != 0 and f"interference.{key.split()[0]}" in done.stderr, done.stderr


# Real groups on a real device.

BLKIO = Path("/sys/fs/cgroup/blkio")


def command(*arguments: object) -> str:
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{arguments[0]} does not work here: {done.stderr.strip()}")
    return done.stdout.strip()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A loop device whose requests the groups of version 1 count, since its scheduler is bfq."""
    if os.geteuid() != 0:
        pytest.skip("making a loop device and control groups takes root")
    if not (BLKIO / "blkio.bfq.io_service_bytes_recursive").exists():
        pytest.skip("this machine has no blkio controller with bfq (version 1)")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(256 << 20)
    path = command("losetup", "-f", "--show", image)
    name = path.removeprefix("/dev/")
    try:
        try:
            Path(f"/sys/block/{name}/queue/scheduler").write_text("bfq")
        except OSError as error:
            pytest.skip(f"the scheduler bfq cannot be chosen: {error}")
        yield name
    finally:
        subprocess.run(["losetup", "-d", path], check=False)


@contextmanager
def group_that_writes(device: str, period: float, mebibytes: int) -> Iterator[str]:
    """A real control group with a process that writes to the device once in each period."""
    name = f"barograph-test-{os.getpid()}-{period:g}"
    group = BLKIO / name
    group.mkdir()
    dd = f"dd if=/dev/zero of=/dev/{device} bs=1M count={mebibytes} oflag=direct status=none"
    # The shell keeps to a clock, whatever a write takes.
    script = f"echo $$ > {group}/cgroup.procs; while :; do {dd} & sleep {period}; done"
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    try:
        yield f"/{name}"
    finally:
        os.killpg(process.pid, 9)
        process.wait()

        def is_gone() -> bool:
            with suppress(OSError):
                group.rmdir()
            return not group.exists()

        eventually(is_gone, "the group is removed")


def test_real_groups_on_a_real_device(start: Start, device: str) -> None:
    config = QUICK + STEPS + f"devices = ['{device}']\n"
    with group_that_writes(device, 3, 60) as first, group_that_writes(device, 5, 100) as second:
        agent = start(config=config)
        for writer, period in ((first, 3e9), (second, 5e9)):
            row = eventually(lambda writer=writer: found(agent, writer), f"the period of {writer}", LEARNING_SECONDS)[0]
            assert 0.9 * period < row["period_ns"] < 1.1 * period, row
            assert row["device"] == device, row
        row = agent.sql("SELECT * FROM interference WHERE writer IS NULL")[0]
        # Loop devices are left out of the disks, so what the groups have reached is the greatest bandwidth.
        assert row["capacity_source"] == "seen" and row["capacity"] > 0, row
        assert row["bandwidth"] is not None and "2 of 2 writers are periodic" in row["reason"], row
        print(json.dumps(row))
