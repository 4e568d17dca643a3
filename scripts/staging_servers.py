"""Servers of blocks for the evaluation of staging: `baro stage serve` and redis-server, as real processes that are
killed and started again, with a client of Redis that copies as little as possible."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from steps import ROOT

# The folders with what was built: `baro`, and the Python module as lib_barograph.so. They are named after the profile.
BUILT = Path(os.environ.get("BARO_BUILT", ROOT / "target" / "release"))
MODULE = Path(os.environ.get("BARO_MODULE", BUILT))
SECONDS_MAX = 30.0
# The longest answer of Redis that is no block.
LINE_BYTES_MAX = 4096


class Missing(Exception):
    """Something that is needed and that is not here, in one sentence."""


@contextlib.contextmanager
def package(folder: Path) -> Iterator[Path]:
    """The Python package with the module that was built, below `folder`; this process and those that it starts can
    import it."""
    module = MODULE / "lib_barograph.so"
    if not module.exists():
        raise Missing(f"{module} is not there: cargo build --release --locked -p barograph-python")
    place = folder / "package" / "barograph"
    place.mkdir(parents=True)
    for file in (ROOT / "python" / "barograph").glob("*.py"):
        (place / file.name).symlink_to(file)
    (place / "_barograph.abi3.so").symlink_to(module.resolve())
    sys.path.insert(0, str(place.parent))
    try:
        yield place.parent
    finally:
        sys.path.remove(str(place.parent))


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = SECONDS_MAX) -> None:
    """Waits for something; raises RuntimeError if it does not come."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"it did not come in {seconds:g} s: {what}")
        time.sleep(0.005)


class Process:
    """A server that is a process, with a log of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir()

    def command(self) -> list[str]:
        """What it is started with."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether it serves."""
        raise NotImplementedError

    def start(self, environment: dict[str, str] | None = None) -> Self:
        """Starts it, and returns when it serves."""
        with self.log.open("wb") as log:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": self.folder}
            self.process = subprocess.Popen(self.command(), env=os.environ | (environment or {}), **options)
        wait_until(lambda: self.has_ended() or self.is_ready(), f"the start of {self.folder.name}")
        if self.has_ended():
            raise RuntimeError(f"a server ended: {self.log.read_text(errors='replace')[-2000:]}")
        return self

    def has_ended(self) -> bool:
        """Whether the process is over."""
        return self.process is not None and self.process.poll() is not None

    def end(self, number: int = signal.SIGKILL) -> None:
        """Ends the process with a signal, and waits for its end."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(SECONDS_MAX)


class StageServer(Process):
    """`baro stage serve`, of its own user, over a unix socket and over TCP if it has tokens."""

    def __init__(self, folder: Path, memory: str = "2GiB", *, has_tier: bool = False, has_tcp: bool = False) -> None:
        super().__init__(folder)
        self.socket = folder / "stage.sock"
        self.token = b""
        self.options = ["--memory", memory]
        if has_tier:
            (folder / "tier").mkdir()
            self.options += ["--tier", f"{folder / 'tier'}=8GiB"]
        if has_tcp:
            tokens = folder / "tokens"
            tokens.mkdir(mode=0o700)
            self.token = os.urandom(24).hex().encode()
            file = tokens / str(os.getuid())
            file.touch(mode=0o600)
            file.write_bytes(self.token)
            self.options += ["--tcp", "127.0.0.1:0", "--tokens", str(tokens)]

    def command(self) -> list[str]:
        words = ["stage", "serve", "--json", "--socket", self.socket, "--run-dir", self.folder / "run", *self.options]
        return [str(BUILT / "baro"), *map(str, words)]

    def is_ready(self) -> bool:
        return self.log.read_bytes().endswith(b"}\n")

    def ready(self) -> dict[str, Any]:
        """What it has said when it was ready."""
        found: dict[str, Any] = json.loads(self.log.read_text().splitlines()[-1])
        return found


class RedisServer(Process):
    """redis-server without files, on a port of loopback and a unix socket."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.program = redis_program()
        self.port = free_port()
        self.socket = folder / "redis.sock"
        self.master: int | None = None

    def command(self) -> list[str]:
        words = [
            "--port",
            self.port,
            "--bind",
            "127.0.0.1",
            "--unixsocket",
            self.socket,
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        # A replica that has lost its master for a moment gets what it lacks, or all of it at once, without files.
        words += ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", 0, "--repl-diskless-load", "on-empty-db"]
        # A replica that is slow for a moment is not put off.
        words += ["--client-output-buffer-limit", "replica 1gb 1gb 0", "--repl-backlog-size", "64mb"]
        if self.master is not None:
            words += ["--replicaof", f"127.0.0.1 {self.master}"]
        return [self.program, *map(str, words)]

    def is_ready(self) -> bool:
        return b"Ready to accept connections" in self.log.read_bytes()

    def client(self) -> Redis:
        """A connection to it."""
        return Redis(("127.0.0.1", self.port))

    def replication(self) -> tuple[int, int | None]:
        """What it has written as a master, and how much of that its replica has told that it has; None if it sends it
        nothing yet. A replica says that its link is up a second before its master sends what came during the first
        copy, so only the master knows."""
        with contextlib.closing(self.client()) as client:
            return replication_of(client.call(b"INFO", b"replication").decode())

    def wait_for_replica(self) -> None:
        """Waits until its replica has all that was written, also what came while it got the first copy."""
        wait_until(lambda: bool(self.replication()[1]), "a replica that has answered")
        written, _ = self.replication()
        wait_until(lambda: (self.replication()[1] or 0) >= written, "a replica that has everything")


def replication_of(told: str) -> tuple[int, int | None]:
    """Offsets of a master and of its first replica if that is online, from what `INFO replication` says."""
    rows = dict(line.split(":", 1) for line in told.splitlines() if ":" in line)
    replica = dict(word.split("=", 1) for word in rows.get("slave0", "").split(",") if "=" in word)
    is_online = replica.get("state") == "online"
    return int(rows["master_repl_offset"]), int(replica["offset"]) if is_online else None


def redis_program() -> str:
    """The program of Redis."""
    program = shutil.which("redis-server")
    if program is None:
        raise Missing("redis-server is not installed: scripts/peers.sh does that")
    return program


def redis_version() -> str:
    """The version of Redis here."""
    told = subprocess.run([redis_program(), "--version"], check=True, capture_output=True, text=True).stdout
    return next(word[2:] for word in told.split() if word.startswith("v="))


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class RedisError(Exception):
    """An error that Redis has answered with, or an answer that is none."""


class Redis:
    """A connection to Redis, which sends blocks without a copy and reads them into memory that is there already."""

    def __init__(self, address: tuple[str, int] | str) -> None:
        is_path = isinstance(address, str)
        self.socket = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
        self.socket.settimeout(10)
        self.socket.connect(address)
        if not is_path:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def close(self) -> None:
        """Closes the connection."""
        self.socket.close()

    def send(self, *words: bytes | memoryview) -> None:
        """Sends a command."""
        parts: list[bytes | memoryview] = []
        head = b"*%d\r\n" % len(words)
        for word in words:
            parts += [head + b"$%d\r\n" % len(word), word]
            head = b"\r\n"
        send_all(self.socket, [*parts, b"\r\n"])

    def line(self) -> bytes:
        """The next line of an answer, without its end."""
        while (end := self.rest.find(b"\r\n")) < 0:
            if len(self.rest) > LINE_BYTES_MAX:
                raise RedisError("an answer without an end")
            self.rest += self.received(65536)
        found, self.rest = self.rest[:end], self.rest[end + 2 :]
        if found.startswith(b"-"):
            raise RedisError(found[1:].decode(errors="replace"))
        return found

    def received(self, size: int) -> bytes:
        """Bytes that have come."""
        got = self.socket.recv(size)
        if not got:
            raise ConnectionResetError("the server has closed the connection")
        return got

    def bulk_into(self, memory: memoryview) -> int | None:
        """Reads the string that is answered into memory; returns its length, or None if there is none."""
        head = self.line()
        if not head.startswith(b"$"):
            raise RedisError(f"no string: {head!r}")
        length = int(head[1:])
        if length < 0:
            return None
        if length > len(memory):
            raise RedisError(f"{length} bytes, and room for {len(memory)}")
        have = min(length, len(self.rest))
        memory[:have] = self.rest[:have]
        self.rest = self.rest[have:]
        while have < length:
            got = self.socket.recv_into(memory[have:length])
            if got == 0:
                raise ConnectionResetError("the server has closed the connection")
            have += got
        while len(self.rest) < 2:
            self.rest += self.received(2 - len(self.rest))
        self.rest = self.rest[2:]
        return length

    def call(self, *words: bytes) -> bytes:
        """Sends a command whose answer is a line or a short string, and returns that."""
        self.send(*words)
        head = self.line()
        if not head.startswith(b"$"):
            return head[1:]
        length = int(head[1:])
        while len(self.rest) < length + 2:
            self.rest += self.received(65536)
        found, self.rest = self.rest[:length], self.rest[length + 2 :]
        return found

    def put(self, key: bytes, data: memoryview) -> None:
        """SET."""
        self.send(b"SET", key, data)
        self.line()

    def get_into(self, key: bytes, memory: memoryview) -> int | None:
        """GET."""
        self.send(b"GET", key)
        return self.bulk_into(memory)


def send_all(connection: socket.socket, parts: list[bytes | memoryview]) -> None:
    """Sends all parts with as few calls as possible."""
    left = sum(map(len, parts))
    while left:
        sent = connection.sendmsg(parts)
        left -= sent
        while parts and sent >= len(parts[0]):
            sent -= len(parts[0])
            parts = parts[1:]
        if sent:
            parts = [memoryview(parts[0])[sent:], *parts[1:]]
