"""A real agent in directories of its own, and the ways to reach it: command line, HTTP, sockets."""

from __future__ import annotations

import http.client
import json
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BARO = os.environ.get("BARO_BIN", str(ROOT / "target" / "debug" / "baro"))
FIXTURES = ROOT / "crates" / "source" / "tests" / "fixtures"

READY = re.compile(r"^barograph ready: (?P<place>\S+) \(node (?P<node>.+)\)$", re.MULTILINE)

# Longest time that a test waits for anything: generous, since machines are shared.
PATIENCE_SECONDS = 30.0
# Longest time of one command.
COMMAND_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0

# Sources that are polled often, so that tests see changes soon; attributes and new groups too.
OFTEN = ("disk", "filesystem", "memory", "vm", "cpu", "pressure", "network", "cgroup")
# The sources that are on by default.
SOURCES = OFTEN + (
    "device", "health", "raid", "btrfs", "zfs", "nfs", "lustre", "lustre_jobs", "gpfs", "job", "process",
    "power", "clock", "peer",
)  # fmt: skip
QUICK = "".join(f"[sources.poll.{name}]\ninterval_ms = 200\n" for name in OFTEN) + (
    "[sources.disk]\nattributes_interval_ms = 200\n[sources.cgroup]\nscan_interval_ms = 200\n"
)


def environment(**more: str) -> dict[str, str]:
    """The environment of a command: without variables that name another agent."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BAROGRAPH_")}
    return kept | more


def baro(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs `baro` and returns the finished process, even if it failed."""
    options = {"capture_output": True, "text": True, "timeout": COMMAND_SECONDS_MAX, "env": environment()}
    command = [BARO, *map(str, arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False, **(options | more))


def eventually(look: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Calls `look` until its result is true, and returns that; otherwise fails with `what` and the
    last result."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what} (last look: {seen!r})"
        time.sleep(0.05)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=COMMAND_SECONDS_MAX)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Answer:
    """The answer to one request."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.type = response.headers.get("content-type", "")
        self.headers = response.headers
        self.body = response.read()

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def kind(self) -> str:
        """The kind of an error."""
        return self.json["error"]["kind"]

    @property
    def message(self) -> str:
        """The message of an error."""
        return self.json["error"]["message"]


class Agent:
    """`baro up` in a directory, which is used again after a restart."""

    def __init__(self, folder: Path, *options: object, config: str = "") -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.state_dir = folder / "state"
        self.archive_dir = self.state_dir / "archive"
        self.options = [str(option) for option in options]
        self.config = folder / "barograph.toml"
        self.config.write_text(config)
        # What the command line begins with, such as `ip netns exec NAME`.
        self.prefix: list[str] = []
        self.log = folder / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.place = ""
        self.node = ""
        self.port = 0

    def command(self) -> list[str]:
        """The command line. Options of the agent come last and win."""
        places = ["--run-dir", str(self.run_dir), "--state-dir", str(self.state_dir)]
        common = ["--config", str(self.config), *places]
        if "--http" not in self.options:
            common += ["--http", "127.0.0.1:0"]
        return [*self.prefix, BARO, "up", *common, *self.options]

    def start(self) -> Agent:
        """Starts the agent and waits for its ready line."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment()
            )
        found = eventually(lambda: READY.search(self.output()) or self.ended(), "the ready line")
        assert found is not True, f"the agent ended: {self.output()}"
        self.place, self.node = found["place"], found["node"]
        if self.place.startswith("http://"):
            self.port = int(self.place.rpartition(":")[2])
        return self

    def output(self) -> str:
        """Everything that it has printed so far, including logs."""
        return self.log.read_text(errors="replace")

    def ended(self) -> bool:
        """Whether the process has ended."""
        assert self.process
        return self.process.poll() is not None

    def stop(self, number: int = signal.SIGINT) -> int:
        """Ends the agent with a signal; returns its exit status."""
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS_MAX)

    def freeze(self) -> None:
        """Stops the process as a debugger does, and waits until none of its threads runs: on a busy machine
        the thread that takes the signal may wait for a processor while others go on."""
        assert self.process
        self.process.send_signal(signal.SIGSTOP)
        pid = self.process.pid
        eventually(lambda: threads_run(pid) == [], "all threads have stopped")

    def restart(self, number: int = signal.SIGINT) -> None:
        """Ends the agent and starts it again in the same directories."""
        self.stop(number)
        self.start()

    def destroy(self) -> None:
        """Ends the process, whatever state it is in."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(STOP_SECONDS_MAX)

    # The command line.

    def run(self, *arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
        """Runs a client command on this agent."""
        return baro(*arguments, "--run-dir", self.run_dir, **more)

    def out(self, *arguments: object) -> str:
        """The output of a command, which must succeed and print nothing to standard error."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        assert done.stderr == "", f"{arguments} succeeded, but complained"
        return done.stdout

    def ask(self, *arguments: object) -> Any:
        """The output of a command with --json."""
        return json.loads(self.out(*arguments, "--json"))

    def error(self, *arguments: object, status: int = 1) -> str:
        """The error of a command that must fail with `status`: one line for the user, and no
        panic."""
        done = self.run(*arguments)
        assert done.returncode == status, f"{arguments}: {done.returncode} {done.stdout}{done.stderr}"
        assert done.stdout == "", f"{arguments}: {done.stdout}{done.stderr}"
        assert "panicked" not in done.stderr
        return done.stderr

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """The rows of a query that the command runs in its own process."""
        return self.ask("sql", statement)

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """The same as `sql`, but no rows while the tables do not exist yet."""
        done = self.run("sql", statement, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else []

    def latest(self, name: str, *labels: str) -> list[dict[str, Any]]:
        """The newest values of the matching streams; none if no stream matches."""
        done = self.run("latest", name, *labels, "--json")
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout) if done.returncode == 0 else []

    def value(self, name: str, *labels: str) -> Any:
        """The newest value of the one matching stream; None before its first sample."""
        found = self.latest(name, *labels)
        assert len(found) <= 1, found
        return found[0]["value"] if found else None

    def names(self, pattern: str = "*") -> set[str]:
        """The names of the matching streams, without labels."""
        return {stream["name"] for stream in self.ask("streams", pattern)}

    def has(self, pattern: str) -> bool:
        """Whether any stream matches a pattern."""
        done = self.run("streams", pattern, "--json")
        return done.returncode == 0 and bool(json.loads(done.stdout))

    # HTTP.

    def connection(self, way: str = "tcp") -> http.client.HTTPConnection:
        """A connection over `tcp`, `read.sock` or `control.sock`."""
        if way == "tcp":
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=COMMAND_SECONDS_MAX)
        return UnixConnection(self.run_dir / way)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        way: str = "tcp",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Makes one request; a body that is neither text nor bytes is sent as JSON."""
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        connection = self.connection(way)
        try:
            # A refused request may be answered before its whole body was read.
            with suppress(BrokenPipeError):
                connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str, way: str = "tcp") -> Answer:
        """Makes a GET request."""
        return self.request("GET", path, way=way)

    def post_sql(self, statement: str, form: str = "rows", way: str = "tcp") -> Answer:
        """Has the agent run a query over HTTP."""
        return self.request("POST", f"/api/v1/sql?format={form}", statement, way)

    def token(self) -> str:
        """The token for control over TCP."""
        return (self.run_dir / "control.token").read_text()

    @contextmanager
    def command_running(self, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """Runs a client command until the end of the block."""
        command = [BARO, *map(str, arguments), "--run-dir", str(self.run_dir)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment(),
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=STOP_SECONDS_MAX)


def machine(name: str, folder: Path) -> Path:
    """A copy of a fixture tree that a test may change."""
    tree = folder / "tree"
    shutil.copytree(FIXTURES / name / "first", tree, symlinks=True)
    return tree


def replace_file(path: Path, content: str | bytes) -> None:
    """Writes a file so that a reader that opens it sees either the whole new content or the old
    one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(content)
        file.truncate()


def patient_lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """The lines of a command as they arrive; ends with the command, fails if no more arrive."""
    assert process.stdout
    os.set_blocking(process.stdout.fileno(), False)
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    held = b""
    while True:
        assert selector.select(PATIENCE_SECONDS), "no line came"
        piece = os.read(process.stdout.fileno(), 65536)
        if not piece:
            return
        held += piece
        *lines, held = held.split(b"\n")
        yield from (line.decode() for line in lines)


def threads_run(pid: int) -> list[str]:
    """The threads of a process that have not been stopped."""
    running = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "T":
                running.append(task.name)
    return running


def values(agent: Agent, pattern: str = "*") -> dict[str, Any]:
    """The newest value of every matching stream that has one, by name and labels."""
    return {
        series(sample): sample["value"] for sample in agent.latest(pattern) if sample["value"] is not None
    }


def series(sample: dict[str, Any]) -> str:
    """The name of a sample's stream with its labels."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(sample["labels"].items()))
    return sample["name"] + (f"{{{labels}}}" if labels else "")


def fresh(agent: Agent, pattern: str) -> dict[str, Any]:
    """The same as `values`, without values that are marked as stale."""
    return {series(sample): sample["value"] for sample in agent.latest(pattern) if not sample["stale"]}
