"""Packed files over several tiers: placed, read, moved by a rule, joined, and killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import progressive_reader
import pytest
from harness import BARO, QUICK, Agent, eventually

Start = Callable[..., Agent]


def baro(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BARO, "data", *map(str, words)], capture_output=True, text=True, timeout=120)


def told(*words: object) -> dict[str, Any]:
    done = baro(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Place:
    """A packed field, and directories for tiers of which one is on another device."""

    def __init__(self, root: Path) -> None:
        self.root = root
        x, y = np.meshgrid(np.linspace(0, 6, 300), np.linspace(0, 4, 260), indexing="ij")
        self.values = np.sin(x * y) + np.random.default_rng(3).normal(0, 1e-4, x.shape)
        np.save(root / "field.npy", self.values)
        self.file = root / "field.baro"
        told("pack", root / "field.npy", "-o", self.file)
        self.bytes = self.file.read_bytes()
        self.fast, self.slow = root / "fast", root / "slow"
        self.fast.mkdir()
        self.slow.mkdir()

    def place(self, *more: object) -> dict[str, Any]:
        return told("place", self.file, "--tier", f"{self.fast}={len(self.bytes) // 10}", "--tier", self.slow, *more)

    def leftovers(self) -> list[str]:
        """What a command has left beside the file."""
        return sorted(path.name for path in self.root.glob("field.baro.*"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_placed_file_is_read_by_its_name_and_by_the_documented_format(place: Place, tmp_path: Path) -> None:
    planned = place.place("--dry-run")
    assert place.file.read_bytes() == place.bytes and planned["dry_run"]
    done = place.place()
    assert [tier["bytes"] for tier in planned["tiers"]] == [tier["bytes"] for tier in done["tiers"]]
    fast, slow = done["tiers"]
    assert 0 < fast["bytes"] <= len(place.bytes) // 10 and fast["bytes"] + slow["bytes"] == len(place.bytes)
    assert Path(fast["part"]).parent == place.fast and 1e-7 < fast["nrmse"] < 1e-3 and slow["nrmse"] == 0
    assert progressive_reader.bytes_of(place.file) == place.bytes
    out = tmp_path / "out.npy"
    assert told("unpack", place.file, "-o", out)["error"]["linf"] == 0
    assert np.load(out).tobytes() == place.values.tobytes()
    part = tmp_path / "part.npy"
    told("unpack", place.file, "--region", "20:60,200:220", "-o", part)
    assert np.load(part).tobytes() == place.values[20:60, 200:220].tobytes()
    seen = told("inspect", place.file)
    assert [it["file"] for it in seen["parts"]] == [fast["part"], slow["part"]]
    numbers = [bucket["part"] for bucket in seen["buckets"]]
    assert numbers == sorted(numbers) and set(numbers) == {0, 1}
    page = baro("inspect", place.file).stdout
    assert f"part 1: {slow['bytes']} bytes in {slow['part']}" in page and " part " in page
    assert told("join", place.file)["bytes"] == len(place.bytes)
    assert place.file.read_bytes() == place.bytes
    assert not list(place.fast.iterdir()) and not list(place.slow.iterdir()) and not place.leftovers()


def test_without_the_slow_tier_a_coarse_reading_goes_on(place: Place, tmp_path: Path) -> None:
    fast, slow = place.place()["tiers"]
    os.unlink(slow["part"])
    out = tmp_path / "out.npy"
    read = told("unpack", place.file, "--error", f"nrmse={fast['nrmse']}", "-o", out)
    assert read["error"]["nrmse"] <= fast["nrmse"] and read["bytes"] <= fast["bytes"]
    refused = baro("unpack", place.file, "-o", tmp_path / "all.npy")
    assert refused.returncode == 1 and f"part {slow['part']}: No such file" in refused.stderr
    assert not (tmp_path / "all.npy").exists()
    refused = baro("join", place.file)
    assert refused.returncode == 1 and not place.leftovers()


def test_what_cannot_be_placed_says_what_to_do(place: Place) -> None:
    refused = baro("place", place.file, "--tier", f"{place.fast}=1kB", "--tier", f"{place.slow}=2kB")
    assert refused.returncode == 2 and "no room for" in refused.stderr and "give one more tier" in refused.stderr
    for tier, expect in ((place.root / "none", "No such file"), (f"{place.slow}=much", "much"), (f"{place.slow}=200%", "0 to 100 %")):
        refused = baro("place", place.file, "--tier", tier)
        assert refused.returncode == 2 and expect in refused.stderr, refused.stderr
    refused = baro("place", place.file, "--tier", place.slow, "--by-speed", "--run-dir", place.root / "no agent")
    assert refused.returncode != 0 and refused.stderr
    refused = baro("join", place.file)
    assert refused.returncode == 2 and "one file already" in refused.stderr
    assert place.file.read_bytes() == place.bytes and not place.leftovers()
    place.place()
    refused = baro("pack", place.root / "field.npy", "-o", place.file, "--append", "--step", 7)
    assert refused.returncode != 0 and "join it first" in refused.stderr
    index = json.loads(place.file.read_text())
    index["parts"][1]["id"] = "0" * 32
    place.file.write_text(json.dumps(index))
    refused = baro("unpack", place.file, "-o", place.root / "out.npy")
    assert refused.returncode == 1 and "part of another file" in refused.stderr


def kills() -> Iterator[float]:
    """Times at which a command is killed, from at once to after its end."""
    random = Random(11)
    for _ in range(40):
        yield random.uniform(0, 0.03)


def test_whenever_it_is_killed_the_file_is_whole_and_nothing_stays(place: Place) -> None:
    words = [
        ["place", place.file, "--tier", f"{place.fast}={len(place.bytes) // 10}", "--tier", place.slow],
        ["place", place.file, "--tier", place.slow],
        ["join", place.file],
    ]
    killed = 0
    for number, after in enumerate(kills()):
        with subprocess.Popen([BARO, "data", *map(str, words[number % 3])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            time.sleep(after)
            running.send_signal(signal.SIGKILL)
            killed += running.wait() == -signal.SIGKILL
        assert progressive_reader.bytes_of(place.file) == place.bytes
    assert killed > 0
    place.place()
    told("join", place.file)
    assert place.file.read_bytes() == place.bytes
    assert not list(place.fast.iterdir()) and not list(place.slow.iterdir()) and not place.leftovers()


def test_a_rule_places_what_is_packed(start: Start, place: Place) -> None:
    agent = start(config=QUICK)
    inbox = place.root / "inbox"
    inbox.mkdir()
    agent.out("event", "add", inbox, "--name", "inbox")
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")
    tiers = f"'--tier' '{place.fast}={len(place.bytes) // 10}' '--tier' '{place.slow}'"
    agent.out("rule", "create", f"CREATE RULE tiers ON EVENT rename WHERE ext = 'baro' THEN RUN '{BARO}' 'data' 'place' '{{path}}' {tiers}")
    packed = inbox / "new.baro"
    told("pack", place.root / "field.npy", "-o", packed)
    eventually(lambda: len(list(place.slow.iterdir())) == 1 and packed.stat().st_size < 2000, "the file is placed")
    assert progressive_reader.bytes_of(packed) == place.bytes
    eventually(lambda: not agent.sql("SELECT 1 FROM actions WHERE state IN ('waiting', 'running')"), "nothing is left")
    assert agent.sql("SELECT reason FROM actions WHERE state = 'dead'") == []
    assert agent.sql("SELECT count(*) AS n FROM actions")[0]["n"] <= 3
    assert len(list(place.slow.iterdir())) == len(list(place.fast.iterdir())) == 1
