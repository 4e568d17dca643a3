"""A run directory with living streams for every test, and real agents for those that publish.

`BARO_DEMO` is the path of the client's example `demo_run_dir` (`cargo build -p barograph-client --example
demo_run_dir`), `BARO_STAGE_SERVER` that of the example `stage_server` of staging, `BARO_BIN` that
of `baro`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barograph


class Demo:
    """A running writer that obeys commands: restart, unplug, plug, close."""

    def __init__(self, run_dir: Path, node: str = "demo") -> None:
        self.run_dir = run_dir
        self._node = node
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Starts a writer in the run directory."""
        self._process = subprocess.Popen(
            [os.environ["BARO_DEMO"], str(self.run_dir), self._node],
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
        """Ends the writer with SIGKILL: its readers are not informed."""
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


class Agent:
    """`baro up` in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "run"
        self._folder = folder
        self._log = folder / "agent.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it reports that it is ready."""
        places = ["--run-dir", str(self.run_dir), "--state-dir", str(self._folder / "state")]
        command = [os.environ["BARO_BIN"], "up", "--http", "127.0.0.1:0", *places]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("BAROGRAPH")}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean
            )
        eventually(self._has_come, "the agent is ready")

    def stop(self) -> None:
        """Ends it, if it was started."""
        if self._process:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(timeout=30)
            finally:
                self._process.kill()
                self._process.wait(timeout=30)
                self._process = None

    def applications(self) -> barograph.Observer | None:
        """The publications of this user's programs for their owner; None before the first."""
        try:
            return barograph.connect(self.run_dir / "applications" / f"u{os.getuid()}")
        except barograph.Error:
            return None

    def rows(self, sql: str) -> list[dict[str, object]]:
        """Rows from the publications of this user's programs; none while there is no such table
        yet.
        """
        applications = self.applications()
        try:
            return applications.sql(sql).rows() if applications else []
        except barograph.Error:
            return []

    def _has_come(self) -> bool:
        said = self._log.read_text(errors="replace")
        assert self._process and self._process.poll() is None, f"the agent ended: {said}"
        return "barograph ready: " in said


class StageServer:
    """A server of staging with 16 MiB of memory and a tier of files."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "stage.sock"
        self._tier = folder / "tier"
        self._tier.mkdir()
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it serves."""
        self._process = subprocess.Popen(
            [os.environ["BARO_STAGE_SERVER"], self.socket, str(16 << 20), self._tier],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer("ready")

    def tell(self, command: str, answer: str) -> None:
        """Gives it a command, and waits until it is done."""
        assert self._process and self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._answer(answer)

    def stop(self) -> None:
        """Stops it in order, if it runs."""
        if self._process:
            assert self._process.stdin and self._process.stdout
            self._process.stdin.close()
            self._process.wait(timeout=120)
            self._process.stdout.close()
            self._process = None

    def _answer(self, expected: str) -> None:
        assert self._process and self._process.stdout
        assert self._process.stdout.readline().strip() == expected


def eventually(holds: Callable[[], object], what: str) -> None:
    """Waits until the condition holds: long, because machines are shared."""
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until, f"not within 30 s: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent that all tests share: each publishes under names of its own."""
    agent = Agent(tmp_path_factory.mktemp("agent"))
    try:
        agent.start()
        yield agent
    finally:
        agent.stop()


@pytest.fixture
def late_agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent that the test starts."""
    agent = Agent(tmp_path)
    yield agent
    agent.stop()


@pytest.fixture
def stage_server(tmp_path: Path) -> Iterator[StageServer]:
    server = StageServer(tmp_path)
    yield server
    server.stop()


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
