"""Trees that are watched by comparing walks, on a file system whose answers take long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import QUICK, Agent, eventually
from test_examples import needs

Start = Callable[..., Agent]

STAND_IN = Path(__file__).with_name("slow_fs.py")


class SlowTree:
    """A mounted tree; each answer takes some milliseconds."""

    def __init__(self, path: Path, milliseconds: int, directories: int, files: int) -> None:
        self.path = path
        words = [path, milliseconds, directories, files]
        command = [sys.executable, str(STAND_IN), *map(str, words)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"

    def make(self, name: str) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "made\n"


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowTree]:
    needs(os.geteuid() == 0, "the right to mount")
    if "\tfuse\n" not in Path("/proc/filesystems").read_text() or not Path("/dev/fuse").exists():
        pytest.skip("the kernel has no FUSE")
    path = tmp_path / "slow"
    path.mkdir()
    tree = SlowTree(path, 2, 40, 50)
    yield tree
    assert tree.process.stdin
    tree.process.stdin.close()
    tree.process.wait()


def watch(path: Path, name: str, threads: int) -> str:
    return f"[[event.watch]]\npath = '{path}'\nname = '{name}'\ncollector = 'scan'\nscan_seconds = 1\nscan_threads = {threads}\n"


def test_many_threads_find_what_one_finds(start: Start, slow: SlowTree) -> None:
    agent = start(config=watch(slow.path, "one", 1) + watch(slow.path, "many", 16) + QUICK)
    live = "SELECT directories FROM watches WHERE state = 'live'"
    eventually(lambda: agent.rows(live) == [{"directories": 41}] * 2, "both have walked the tree", 60)
    for name in ("d00007/new", "fresh/deep/er", "top"):
        slow.make(name)
    told = "SELECT kind, path FROM events WHERE source = '{}' AND kind IN ('create', 'mkdir') ORDER BY path"
    expect = [
        {"kind": kind, "path": str(slow.path / name)}
        for kind, name in [("create", "d00007/new"), ("mkdir", "fresh"), ("mkdir", "fresh/deep"), ("create", "fresh/deep/er"), ("create", "top")]
    ]
    for name in ("one", "many"):
        eventually(lambda n=name: agent.rows(told.format(n)) == expect, f"{name} tells what is new", 60)
