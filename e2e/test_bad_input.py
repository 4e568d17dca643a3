"""Wrong input, at the start of an agent and while it runs: a clear error, never a panic."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import BARO, QUICK, Agent, baro, environment, eventually

Start = Callable[..., Agent]
# Time after which a start that should fail counts as successful.
REFUSAL_SECONDS_MAX = 10.0


def refused(tmp_path: Path, *options: object, config: str | None = None, status: int = 1) -> str:
    """The error of `baro up` when it does not start."""
    places = ["--run-dir", tmp_path / "run", "--state-dir", tmp_path / "state", "--http", "127.0.0.1:0"]
    # An option may be given only once.
    for name in options[::2]:
        if name in places:
            at = places.index(name)
            del places[at : at + 2]
    if config is not None:
        (tmp_path / "file.toml").write_text(config)
        places += ["--config", tmp_path / "file.toml"]
    try:
        done = baro("up", *places, *options, timeout=REFUSAL_SECONDS_MAX)
    except subprocess.TimeoutExpired as running:
        pytest.fail(f"it was not refused: {(running.stdout or b'').decode()}")
    assert done.returncode == status, f"{done.returncode}: {done.stdout}{done.stderr}"
    assert "barograph ready" not in done.stdout and "panicked" not in done.stderr
    return done.stderr


def test_an_occupied_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        message = refused(tmp_path, "--http", place)
    assert place in message and "--http" in message
    # Nothing remains that looks like an agent.
    assert baro("status", "--run-dir", tmp_path / "run").returncode == 1
    assert not (tmp_path / "run" / "read.sock").exists()


@pytest.mark.parametrize("place", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
def test_an_address_that_others_can_reach(tmp_path: Path, place: str) -> None:
    message = refused(tmp_path, "--http", place)
    assert place in message and "127.0.0.1" in message


@pytest.mark.parametrize("place", ["nonsense", "127.0.0.1", "127.0.0.1:99999", "localhost:x", ""])
def test_an_address_that_is_none(tmp_path: Path, place: str) -> None:
    done = baro("up", "--run-dir", tmp_path / "run", "--state-dir", tmp_path / "state", "--http", place)
    assert done.returncode in (1, 2) and "http" in done.stderr and "127.0.0.1:7070" in done.stderr


@pytest.mark.parametrize("option", ["--run-dir", "--state-dir"])
def test_a_directory_that_is_a_file(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused(tmp_path, option, tmp_path / "file")


@pytest.mark.parametrize("option", ["--run-dir", "--state-dir"])
def test_a_directory_that_cannot_be_made(tmp_path: Path, option: str) -> None:
    assert "/proc/none" in refused(tmp_path, option, "/proc/none")


@pytest.mark.parametrize("option", ["--run-dir", "--state-dir"])
def test_a_directory_that_may_not_be_written(tmp_path: Path, option: str) -> None:
    closed = Path("/sys/kernel") if os.getuid() == 0 else Path("/")
    message = refused(tmp_path, option, closed / "barograph-test")
    assert str(closed / "barograph-test") in message and option in message


def test_a_state_directory_that_is_read_only_is_noticed_at_the_start(tmp_path: Path) -> None:
    """The directory exists, but nothing can be kept there: the user should learn this now, not when
    an insight is lost."""
    closed = "/sys/kernel" if os.getuid() == 0 else "/"
    assert closed in refused(tmp_path, "--state-dir", closed)


def in_namespace(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell script in a mount namespace of its own, where it may mount."""
    unshare = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let its user mount")
    prelude = f"set -eu; cd {shlex.quote(str(tmp_path))}; baro={shlex.quote(BARO)}; mkdir -p shm; "
    return subprocess.run(
        [*unshare, "bash", "-c", prelude + script], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=60, env=environment(),
    )  # fmt: skip


@pytest.mark.parametrize("size", ["16k", "256k", "4m"])
def test_a_full_shared_memory_at_the_start(tmp_path: Path, size: str) -> None:
    script = f"mount -t tmpfs -o size={size} none shm; "
    script += '"$baro" up --run-dir shm/run --state-dir state --http off'
    done = in_namespace(tmp_path, script)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "shm/run" in done.stderr and "No space left" in done.stderr
    assert "panicked" not in done.stderr


def test_shared_memory_that_fills_up_while_the_agent_runs(tmp_path: Path) -> None:
    script = r"""
        mount -t tmpfs -o size=64m none shm
        "$baro" up --run-dir shm/run --state-dir state --http off >log 2>&1 &
        agent=$!
        for i in $(seq 600); do grep -q "^barograph ready" log && break; sleep 0.05; done
        dd if=/dev/zero of=shm/fill bs=64k 2>/dev/null || true
        "$baro" insight create "CREATE INSIGHT my.a AS SELECT count(*) FROM memory_total_bytes" --run-dir shm/run || true
        "$baro" watch agent.cpu.seconds --count 4 --run-dir shm/run >/dev/null
        "$baro" latest memory.total.bytes --run-dir shm/run
        "$baro" status --run-dir shm/run
        rm shm/fill
        kill $agent
        wait $agent
    """
    done = in_namespace(tmp_path, script)
    log = (tmp_path / "log").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + log
    assert "memory.total.bytes" in done.stdout and "alive" in done.stdout
    assert "panicked" not in log and "No space left" in log


CONFIGS = [
    ('node = "a"\n\n[streams]\nmaxx = 3\n', "line 4", "maxx"),
    ('node = "a"\n[streams]\nmax = "x"\n', "line 3", "u32"),
    ("nodes = 1\n", "line 1", "nodes"),
    ("node = \n", "line 1", "node"),
    ("[streams\n", "line 1", ""),
    ("[sources.poll.nonsense]\n", "line 1", "nonsense"),
    ("\n[sources.disk]\nskipp = []\n", "line 3", "skipp"),
    ("[streams]\nmax = 0\n", "streams.max", "1 to"),
    ("[streams]\ndepth = 1\n", "streams.depth", "2 to"),
    ("[query]\nthreads = 0\n", "query.threads", "1 to"),
    ("[query]\nseconds_max = -1.0\n", "query.seconds_max", "0"),
    ("[sources.poll.disk]\ninterval_ms = 0\n", "poll.disk.interval_ms", "between"),
    ('http = "nonsense"\n', "http", "127.0.0.1:7070"),
]


@pytest.mark.parametrize(("text", "where", "what"), CONFIGS, ids=[text.strip() for text, _, _ in CONFIGS])
def test_a_configuration_that_is_wrong(tmp_path: Path, text: str, where: str, what: str) -> None:
    options = [
        "--config",
        tmp_path / "file.toml",
        "--run-dir",
        tmp_path / "run",
        "--state-dir",
        tmp_path / "state",
    ]
    (tmp_path / "file.toml").write_text(text)
    done = baro("up", *options)
    assert done.returncode in (1, 2), done.stderr
    assert where in done.stderr and what in done.stderr
    assert "panicked" not in done.stderr
    if where.startswith("line"):
        assert str(tmp_path / "file.toml") in done.stderr


def test_an_error_is_said_once(tmp_path: Path) -> None:
    message = refused(tmp_path, config="nodes = 1\n")
    assert message.count("unknown field `nodes`") == 1
    message = refused(tmp_path, "--state-dir", "/proc/none")
    assert message.count("No such file or directory") == 1


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    assert "none.toml" in refused(tmp_path, "--config", tmp_path / "none.toml")


def test_a_configuration_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert "binary.toml" in refused(tmp_path, "--config", tmp_path / "binary.toml")


def test_a_tree_that_is_not_there(tmp_path: Path) -> None:
    assert "/no/such" in refused(tmp_path, "--sys-root", "/no/such")


@pytest.mark.parametrize("name", ["a" * 64, "a\nb"], ids=["long", "two lines"])
def test_a_node_name_that_cannot_be(tmp_path: Path, name: str) -> None:
    assert "node" in refused(tmp_path, "--node", name)


def test_node_names_with_odd_characters_have_tables(start: Start) -> None:
    agent = start("--node", "login-01.cluster")
    (row,) = agent.sql("SELECT name FROM tables WHERE name = 'memory_total_bytes'")
    assert row
    found = agent.sql("SELECT value FROM login_01_cluster_memory_total_bytes WHERE newest")
    assert found == [{"value": agent.value("memory.total.bytes")}]


def test_the_log_has_no_colours_where_there_is_no_screen(start: Start) -> None:
    agent = start(config='insights = ["CREATE INSIGHT nonsense"]\n' + QUICK)
    assert "WARN" in agent.output()
    assert "\x1b" not in agent.output()


@pytest.mark.parametrize(
    "command", ["streams", "latest *", "sql SELECT\t*\tFROM\tlatest", "doctor", "insight list"]
)
def test_a_reader_that_has_left_is_no_failure(live: Agent, command: str) -> None:
    done = into_closed_pipe(*command.split(" "), "--run-dir", str(live.run_dir))
    assert done.returncode == 0 and done.stderr == ""


def test_a_reader_of_the_completion_that_has_left_is_no_failure() -> None:
    done = into_closed_pipe("completion", "bash")
    assert done.returncode == 0 and done.stderr == ""


def into_closed_pipe(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command whose output has no reader any more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [BARO, *command],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
            env=environment(),
        )
    finally:
        os.close(writer)


def test_the_output_may_be_full(live: Agent) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [BARO, "streams", "--run-dir", live.run_dir],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1 and "No space left" in done.stderr


def test_a_run_directory_that_is_removed_under_the_agent(start: Start) -> None:
    agent = start()
    shutil.rmtree(agent.run_dir)
    assert agent.process
    eventually(lambda: agent.get("/healthz").status in (200, 500, 503), "an answer")
    assert not agent.ended()
    assert agent.stop() == 0


def test_the_ready_line_comes_once_and_last(live: Agent) -> None:
    assert len(re.findall("^barograph ready", live.output(), re.MULTILINE)) == 1
