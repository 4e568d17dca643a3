"""Figures of a real disk beside those of iostat and fio."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import COMMAND_SECONDS_MAX, QUICK, Agent, eventually
from test_examples import needs

# Seconds for which means are compared, and how often they are before they count as different.
INTERVAL, ATTEMPTS = 8, 3
# Bytes per second that fio writes.
RATE = "20m"


def iostat(*options: object) -> dict[str, dict[str, float]]:
    """The last report of iostat, by device."""
    command = ["iostat", "-d", "-k", "-o", "JSON", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=COMMAND_SECONDS_MAX)
    reports = json.loads(done.stdout)["sysstat"]["hosts"][0]["statistics"]
    return {disk["disk_device"]: disk for disk in reports[-1]["disk"]}


@pytest.fixture
def device(tmp_path: Path) -> str:
    """The name of the disk that holds the test's directory."""
    needs(bool(shutil.which("iostat")), "iostat")
    needs(bool(shutil.which("fio")), "fio")
    number = tmp_path.stat().st_dev
    place = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not place.exists():
        pytest.skip("the directory for temporary files is on no disk")
    place = place.resolve()
    name = place.parent.name if (place / "partition").exists() else place.name
    if name not in iostat():
        pytest.skip(f"iostat does not know {name}")
    return name


def written_by_fio(folder: Path, seconds: int) -> subprocess.Popen[str]:
    """fio, which writes at a steady rate, past the cache."""
    command = [
        "fio", "--name=steady", f"--directory={folder}", "--rw=write", "--bs=128k", "--size=64m", "--direct=1",
        f"--rate={RATE}", "--time_based", f"--runtime={seconds}", "--ioengine=psync", "--output-format=json",
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


class Counts:
    """The counts of a disk that an agent gives, each checked against two reports of iostat."""

    IOSTAT = {"disk.read.bytes": "kB_read", "disk.write.bytes": "kB_wrtn"}

    def __init__(self, agent: Agent, device: str) -> None:
        self.agent, self.device = agent, device

    def now(self) -> dict[str, float]:
        """Counts that lie between those of iostat before and after."""
        before = iostat()[self.device]

        def looked_since() -> dict[str, float] | None:
            ours = {name: self.agent.value(name, f"device={self.device}") for name in self.IOSTAT}
            is_later = all(ours[name] // 1024 >= before[theirs] for name, theirs in self.IOSTAT.items())
            return ours if is_later else None

        ours: dict[str, float] = eventually(looked_since, "a look after that of iostat")
        after = iostat()[self.device]
        for name, theirs in self.IOSTAT.items():
            assert ours[name] // 1024 <= after[theirs], (name, ours, after)
        return ours


def test_counts_are_those_of_iostat_and_fio(start: Callable[..., Agent], device: str, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    eventually(lambda: agent.latest("disk.write.bytes", f"device={device}"), "the disk")
    counts = Counts(agent, device)
    first = counts.now()["disk.write.bytes"]
    with written_by_fio(tmp_path, 3) as fio:
        try:
            if os.getuid() == 0:
                fio_writes = "fio is the one who writes"
                eventually(lambda: any(c["name"].startswith("fio") for c in agent.ask("top")["causes"]), fio_writes)
            told = json.loads(fio.communicate(timeout=COMMAND_SECONDS_MAX)[0])
        finally:
            fio.kill()
    assert fio.returncode == 0
    # Others may write too.
    moved = told["jobs"][0]["write"]["io_bytes"]
    assert moved > 0
    eventually(lambda: counts.now()["disk.write.bytes"] - first >= moved, "all bytes of fio")


def test_means_over_time_are_those_of_iostat(start: Callable[..., Agent], device: str, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    eventually(lambda: agent.latest("disk.busy.ratio", f"device={device}"), "the disk")

    def compared() -> list[tuple[float, float]]:
        """Our mean and iostat's of an interval: of the rate in kB/s, and of the utilisation in %."""
        with written_by_fio(tmp_path, INTERVAL + 3) as fio:
            try:
                time.sleep(1)
                begin = time.time_ns()
                theirs = iostat("-x", "-y", INTERVAL, 1)[device]
                end = time.time_ns()
            finally:
                fio.kill()

        def mean(metric: str) -> float:
            query = f"SELECT twa(value, ts, quality) AS mean FROM {metric} WHERE device = '{device}'"
            value: float = agent.sql(f"{query} AND ts BETWEEN {begin} AND {end}")[0]["mean"]
            return value

        rate = mean("disk_write_bytes_per_second") / 1024
        return [(rate, theirs["wkB/s"]), (100 * mean("disk_busy_ratio"), theirs["util"])]

    # The two intervals differ by a look at either end, where another program's burst may be: it is in
    # one of them then. So several are tried.
    tried = []
    for _ in range(ATTEMPTS):
        tried.append(compared())
        (rate, their_rate), (busy, their_busy) = tried[-1]
        if rate == pytest.approx(their_rate, rel=0.2) and busy == pytest.approx(their_busy, abs=10):
            return
    pytest.fail(f"the means differ: {tried}")
