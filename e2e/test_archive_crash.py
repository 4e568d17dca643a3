"""History in trouble: the agent is killed, the disk is full, the bound is reached."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from harness import QUICK, Agent, eventually

Start = Callable[..., Agent]

ROUNDS = int(os.environ.get("BARO_KILL_ROUNDS", "12"))
# The smallest segments, so that a short life has many of them.
SMALL = "segment_bytes_max = 65536\nsegment_seconds_max = 1\n"


def document(agent: Agent) -> dict[str, Any]:
    """The agent's report on its archive."""
    return agent.ask("status")["archive"]


def verified(agent: Agent) -> dict[str, Any]:
    """The result of verifying an archive that must be whole."""
    found = json.loads(agent.run("archive", "verify", "--json").stdout)
    # Files that were being made or deleted, also when the agent was killed: they do not count.
    found["findings"] = [f for f in found["findings"] if "left by a crash" not in f["what"]]
    assert found["findings"] == [] and found["twice"] == 0, found
    return found


def test_killed_at_random_moments_nothing_is_there_twice_or_missing(start: Start) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    agent = start(config=f'[archive]\ndurable = ["*"]\n{SMALL}{QUICK}')
    for _ in range(ROUNDS):
        time.sleep(chance.random() * 1.5)
        seen = agent.ask("archive", "ls")["samples"]
        if chance.random() < 0.3:
            agent.ask("archive", "seal")
        time.sleep(chance.random() * 0.2)
        assert agent.process
        agent.process.kill()
        agent.process.wait()
        after = verified(agent)
        assert after["samples"] >= seen, "what a reader saw is still there"
        assert after["missing"] == 0
        agent.start()
        again = verified(agent)
        assert again["samples"] >= after["samples"] and again["missing"] == 0
    assert agent.stop() == 0
    agent.ask("archive", "seal")
    rows = duckdb.sql(
        f"SELECT count(*), count(DISTINCT number), min(number), max(number) "
        f"FROM read_parquet('{agent.archive_dir}/raw/**/*.parquet') GROUP BY name, labels, life"
    ).fetchall()
    assert rows and all(row == (row[0], row[0], 1, row[0]) for row in rows)
    lives = duckdb.sql(
        f"SELECT count(DISTINCT life) FROM read_parquet('{agent.archive_dir}/raw/**/*.parquet') "
        "WHERE name = 'memory.total.bytes'"
    ).fetchall()
    assert lives[0][0] > ROUNDS // 2


def test_a_torn_tail_is_cut_and_counted(start: Start) -> None:
    agent = start()
    eventually(lambda: document(agent)["samples"] > 100, "samples on disk")
    assert agent.process
    agent.process.kill()
    agent.process.wait()
    log = max((agent.archive_dir / "nodes").rglob("*.log"))
    before = agent.ask("archive", "ls")["samples"]
    with log.open("ab") as file:
        file.write(os.urandom(1000))
    assert agent.ask("archive", "ls")["samples"] == before, "a reader sees what is whole"
    agent.start()
    assert document(agent)["losses"]["torn_bytes"] >= 1000
    assert "they were cut" in agent.out("status")
    assert verified(agent)["samples"] >= before


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB; only root can make one."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Uses up all remaining room."""
    file = os.open(folder / "ballast", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with suppress(OSError):
        for _ in range(16 << 20 >> 12):
            os.write(file, b"\0" * 4096)
    os.close(file)


def test_a_full_disk_takes_history_and_nothing_else(start: Start, small: Path) -> None:
    config = f"[archive]\nfree_bytes_min = 65536\n{SMALL}{QUICK}"
    agent = start("--archive-dir", small / "archive", config=config)
    eventually(lambda: document(agent)["files"] > 0, "something sealed")

    def in_trouble() -> Any:
        fill(small)
        return document(agent)["trouble"]

    trouble = eventually(in_trouble, "trouble is told")
    assert any(word in trouble.lower() for word in ("space", "full", "free")), trouble

    def outlook() -> Any:
        fill(small)
        return "history is not written" in (agent.value("node.outlook.text") or "")

    eventually(outlook, "the outlook says so")
    assert "history is not written" in agent.out("doctor")
    eventually(lambda: document(agent)["losses"]["shed_samples"], "the oldest is shed")
    # Everything else continues.
    before = agent.ask("streams", "agent.cpu.seconds")[0]["samples"]
    eventually(lambda: agent.ask("streams", "agent.cpu.seconds")[0]["samples"] > before, "it observes")
    assert not agent.latest("memory.total.bytes")[0]["stale"]
    assert agent.sql("SELECT value FROM memory_total_bytes WHERE newest")
    assert agent.post_sql("SELECT value FROM memory_total_bytes WHERE newest").status == 200

    (small / "ballast").unlink()
    eventually(lambda: document(agent)["trouble"] == "", "it is written again")
    count = document(agent)["samples"]
    eventually(lambda: document(agent)["samples"] > count, "more and more")
    assert verified(agent)["samples"] > 0
    assert agent.stop() == 0


def test_raw_samples_go_when_they_are_old_and_tiers_stay(start: Start) -> None:
    agent = start(config=f"[archive]\nkeep_raw_days = 0.00003\n{SMALL}{QUICK}")

    def kinds() -> dict[str, float]:
        groups = agent.ask("archive", "ls")["groups"]
        return {group["kind"]: group["from_ts"] for group in groups if group["rows"]}

    first = eventually(lambda: {"raw", "1min"} <= set(found := kinds()) and found, "something sealed")
    eventually(lambda: kinds().get("raw", 1 << 63) > first["raw"], "the oldest raw samples are gone")
    assert kinds()["1min"] <= first["1min"]
    assert document(agent)["trouble"] == ""


def test_the_bound_of_bytes_holds(start: Start) -> None:
    bytes_max = 1 << 20
    config = f"[archive]\nbytes_max = {bytes_max}\nbuffer_bytes_max = 65536\n{SMALL}"
    agent = start(config=config + QUICK.replace("200", "10"))
    shed = 0

    def more_is_shed() -> bool:
        # On a busy machine the sealer may be slower than the writer of the log for any time. Then
        # the writer waits at a quarter beyond the bound. On top come the segment that is open, a
        # batch, which is at most the buffer, and the files that are made of one segment.
        assert agent.ask("archive", "ls")["bytes"] <= 2 * bytes_max
        return document(agent)["losses"]["shed_samples"] > shed

    for _ in range(4):
        eventually(more_is_shed, "the oldest is shed", seconds=120)
        shed = document(agent)["losses"]["shed_samples"]
    # As soon as less is written than the sealer can seal, it holds.
    agent.stop()
    agent.config.write_text(config)
    agent.start()
    eventually(lambda: agent.ask("archive", "ls")["bytes"] <= bytes_max + 4 * 65536, "the bound holds", seconds=120)
    verified(agent)
