"""Figures of a real disk beside those of iostat and fio."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import COMMAND_SECONDS_MAX, QUICK, Agent, eventually
from test_examples import needs

# Seconds for which rates are compared, and for which fio writes.
INTERVAL, WRITING = 8, 11
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


def test_rates_and_counts_are_those_of_iostat_and_fio(
    start: Callable[..., Agent], device: str, tmp_path: Path
) -> None:
    agent = start(config=QUICK)
    counts = {"disk.read.bytes": "kB_read", "disk.write.bytes": "kB_wrtn"}

    def counted() -> dict[str, float]:
        return {name: agent.value(name, f"device={device}") for name in counts}

    def counts_between() -> dict[str, float]:
        """Counts of the agent that lie between those of iostat before and after."""
        before = iostat()[device]
        # The agent looks at the disk anew.
        time.sleep(0.5)
        ours = counted()
        after = iostat()[device]
        for name, theirs in counts.items():
            assert before[theirs] <= ours[name] // 1024 <= after[theirs], (name, before, ours, after)
        return ours

    eventually(lambda: agent.latest("disk.write.bytes", f"device={device}"), "the disk")
    first = counts_between()
    with written_by_fio(tmp_path, WRITING) as fio:
        try:
            time.sleep(1)
            begin = time.time_ns()
            theirs = iostat("-x", "-y", INTERVAL, 1)[device]
            end = time.time_ns()
            causes: list[dict[str, Any]] = agent.ask("top")["causes"]
            told = json.loads(fio.communicate(timeout=COMMAND_SECONDS_MAX)[0])
        finally:
            fio.kill()
    assert fio.returncode == 0
    # Others may write too.
    moved = told["jobs"][0]["write"]["io_bytes"]
    assert moved > 0
    last = eventually(
        lambda: (now := counts_between())["disk.write.bytes"] - first["disk.write.bytes"] >= moved and now,
        "all bytes of fio",
    )
    assert last
    if os.getuid() == 0:
        assert any(cause["name"].startswith("fio") for cause in causes), causes

    def mean(metric: str) -> float:
        query = f"SELECT twa(value, ts, quality) AS mean FROM {metric} WHERE device = '{device}'"
        value: float = agent.sql(f"{query} AND ts BETWEEN {begin} AND {end}")[0]["mean"]
        return value

    # The two intervals differ by a look at either end.
    assert mean("disk_write_bytes_per_second") / 1024 == pytest.approx(theirs["wkB/s"], rel=0.25)
    assert 100 * mean("disk_busy_ratio") == pytest.approx(theirs["util"], abs=10)
