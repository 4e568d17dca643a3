"""`baro top` in a real terminal: it draws, follows the size of the screen, and restores it at the
end."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BARO, PATIENCE_SECONDS, Agent, environment, eventually

ENTER_SCREEN = b"\x1b[?1049h"
LEAVE_SCREEN = b"\x1b[?1049l"


class Terminal:
    """A screen of a given size that shows `baro top`."""

    def __init__(self, agent: Agent, lines: int = 30, columns: int = 100) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(lines, columns)
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.seen = b""
        command = [BARO, "top", "--every", "100", "--run-dir", str(agent.run_dir)]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env=environment(TERM="xterm-256color"),
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_until(self, text: bytes) -> None:
        """Reads what is drawn until it contains a text."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} was never drawn: {self.seen[-3000:]!r}"
            if select.select([self.ours], [], [], left)[0]:
                self.seen += os.read(self.ours, 65536)

    def type(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def ended(self) -> int:
        """Waits for its end while it draws on; returns the exit status."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            if select.select([self.ours], [], [], 0.05)[0]:
                self.seen += os.read(self.ours, 65536)
        while select.select([self.ours], [], [], 0)[0]:
            self.seen += os.read(self.ours, 65536)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(fixed: Agent) -> Iterator[Terminal]:
    screen = Terminal(fixed)
    yield screen
    screen.close()


@pytest.mark.parametrize("key", [b"q", b"\x1b", b"\x03"], ids=["q", "escape", "ctrl-c"])
def test_it_draws_until_a_key_ends_it(terminal: Terminal, key: bytes) -> None:
    terminal.read_until(ENTER_SCREEN)
    for text in (b"node_1", b"nvme0n1", b"nvme1n1", b"pfs", b"quit"):
        terminal.read_until(text)
    terminal.type(key)
    assert terminal.ended() == 0
    assert LEAVE_SCREEN in terminal.seen
    assert b"panicked" not in terminal.seen
    assert termios.tcgetattr(terminal.theirs) == terminal.before


def test_tiers_on_devices_lead_and_memory_is_not_the_ram(start: Callable[..., Agent], tree: Path) -> None:
    # The table of mounts begins with /dev/shm.
    for mount in ("dev/shm", "scratch", "home"):
        (tree / mount).mkdir(parents=True, exist_ok=True)
    agent = start("--sys-root", tree)

    def tiers() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = agent.ask("top")["tiers"]
        return found if {"nvme", "pfs", "memory"} <= {tier["tier"] for tier in found} else []

    shown = eventually(tiers, "all tiers")
    assert shown[-1]["tier"] == "memory", shown
    screen = Terminal(agent)
    try:
        # Only cells that change are drawn, and blanks between words do not.
        screen.read_until(b"tmpfs")
    finally:
        screen.close()


def test_it_pauses(terminal: Terminal) -> None:
    terminal.read_until(b"quit")
    terminal.type(b"p")
    terminal.read_until(b"paus")
    terminal.type(b"pq")
    assert terminal.ended() == 0


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (5, 20), (200, 500)], ids=str)
def test_a_screen_of_any_size_will_do(terminal: Terminal, size: tuple[int, int]) -> None:
    terminal.read_until(b"quit")
    terminal.resize(*size)
    terminal.process.send_signal(signal.SIGWINCH)
    terminal.type(b"xyz")
    time.sleep(0.5)
    terminal.type(b"q")
    assert terminal.ended() == 0
    assert b"panicked" not in terminal.seen


def test_it_goes_on_when_the_agent_dies_and_says_so(start: Callable[..., Agent]) -> None:
    agent = start("--node", "mortal")
    screen = Terminal(agent)
    try:
        screen.read_until(b"mortal")
        agent.process.send_signal(signal.SIGKILL)
        screen.read_until(b"dead")
        screen.type(b"q")
        assert screen.ended() == 0
    finally:
        screen.close()
