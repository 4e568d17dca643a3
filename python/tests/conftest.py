"""A run directory with living streams for every test: the client's example `demo_run_dir`.

`BARO_DEMO` is the path of its binary (`cargo build -p barograph-client --example demo_run_dir`).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import barograph


class Demo:
    """A running writer that obeys: restart, unplug, plug, close."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Begins a writer's life in the run directory."""
        self._process = subprocess.Popen(
            [os.environ["BARO_DEMO"], str(self.run_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer("ready")

    def tell(self, command: str) -> None:
        """Gives a command and waits until it is done."""
        assert self._process and self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._answer(command)

    def kill(self) -> None:
        """Ends the writer with SIGKILL: nothing is said to its readers."""
        assert self._process
        self._process.kill()
        self._reap()

    def stop(self) -> None:
        """Ends the writer's input, and so the writer."""
        if self._process:
            assert self._process.stdin
            self._process.stdin.close()
            self._reap()

    def _reap(self) -> None:
        assert self._process and self._process.stdin and self._process.stdout
        self._process.wait(timeout=20)
        self._process.stdin.close()
        self._process.stdout.close()
        self._process = None

    def _answer(self, expected: str) -> None:
        assert self._process and self._process.stdout
        assert self._process.stdout.readline().strip() == expected


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Demo]:
    with tempfile.TemporaryDirectory(prefix="barograph-demo-") as path:
        monkeypatch.setenv("BAROGRAPH_RUN_DIR", path)
        demo = Demo(Path(path))
        yield demo
        demo.stop()


@pytest.fixture
def observer(demo: Demo) -> barograph.Observer:
    return barograph.connect(demo.run_dir)
