"""Unmodified programs appear as applications: `baro io` and the library that it preloads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import BARO, ROOT, Agent, environment, eventually
from test_applications import INCLUDE, LIBRARY

Start = Callable[..., Agent]
MIB = 1 << 20


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built as `make install` builds it."""
    build, root = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("root")
    for name in ("libbaro.so", "libbaro.a"):
        (build / name).symlink_to(LIBRARY / name)
    (build / "baro").symlink_to(BARO)
    subprocess.run([ROOT / "scripts" / "install.sh", build, root, "/usr"], check=True)
    assert INCLUDE.is_dir()
    return root / "usr" / "lib" / "libbaro_io.so"


def run(agent: Agent, shim: Path, *command: object, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A command with its I/O published."""
    full = [BARO, "io", "--run-dir", agent.run_dir, *options, "--", *command]
    beside = environment(BAROGRAPH_IO_LIBRARY=str(shim))
    return subprocess.run([*map(str, full)], env=beside, capture_output=True, text=True, timeout=120, check=False)


def newest(agent: Agent, application: str) -> dict[str, float]:
    """The counts of an application's last frame."""
    sql = f"SELECT * FROM frames('io') WHERE application = '{application}' ORDER BY ts DESC, frame DESC LIMIT 1"
    rows = agent.rows(sql)
    return rows[0] if rows else {}


def test_a_program_of_the_system_appears_as_an_application(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    done = run(agent, shim, "dd", "if=/dev/zero", f"of={tmp_path / 'a'}", "bs=65536", "count=64", "conv=fsync")
    assert done.returncode == 0, done.stderr
    frame = eventually(lambda: newest(agent, "dd"), "the frame of dd")
    # /dev/zero is no storage; the file is.
    assert (frame["write_calls_count"], frame["write_bytes"]) == (64, 4 * MIB)
    assert frame["read_bytes"] == 0 and frame["sync_calls_count"] == 1
    assert frame["sync_seconds"] > 0 and 0 < frame["write_max_seconds"] <= frame["write_seconds"]
    assert done.stdout == "" and "4194304 bytes" in done.stderr


def test_threads_children_and_errors_are_counted(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import os, threading
def work(name):
    fd = os.open({str(tmp_path)!r} + "/" + name, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(100): os.write(fd, b"x" * 1000)
    os.pread(fd, 50_000, 0)
    os.close(fd)
threads = [threading.Thread(target=work, args=(f"t{{n}}",)) for n in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
child = os.fork()
if child == 0:
    work("child")
    raise SystemExit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
fd = os.open({str(program)!r}, os.O_RDONLY)
try: os.write(fd, b"no")
except OSError: pass
"""
    )
    done = run(agent, shim, os.path.realpath(sys.executable), "-I", "-S", program)
    assert done.returncode == 0, done.stderr
    name = Path(os.path.realpath(sys.executable)).name

    def frames() -> list[dict[str, float]]:
        # Whether they have streams of their own depends on whether both lived when the agent came to them.
        return agent.rows(
            f"""SELECT write_bytes AS bytes, write_errors_count AS errors, read_bytes AS read FROM frames('io')
                WHERE application = '{name}'"""
        )

    def both() -> list[dict[str, float]]:
        seen[:] = frames()
        return seen if {100_000, 400_000} <= {row["bytes"] for row in seen} else []

    seen: list[dict[str, float]] = []
    try:
        rows = eventually(both, "both processes")
    except AssertionError as late:
        raise AssertionError(f"{late}: {seen}") from None
    parent = [row for row in rows if row["bytes"] == 400_000]
    assert max(row["errors"] for row in parent) == 1
    assert max(row["read"] for row in parent) >= 200_000


def test_what_a_killed_program_did_before_its_last_frame_is_there(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    program = f"""
import os, time
fd = os.open({str(tmp_path / 'f')!r}, os.O_WRONLY | os.O_CREAT, 0o600)
while True:
    os.write(fd, b"x" * 4096)
    time.sleep(0.001)
"""
    command = [BARO, "io", "--run-dir", agent.run_dir, "--each", "--interval", "10", "--"]
    beside = environment(BAROGRAPH_IO_LIBRARY=str(shim))
    python = os.path.realpath(sys.executable)
    with subprocess.Popen([*map(str, command), python, "-I", "-S", "-c", program], env=beside) as running:
        name = Path(python).name
        eventually(lambda: newest(agent, name).get("write_bytes", 0) > 100 * 4096, "some writes")
        running.send_signal(signal.SIGKILL)
    frame = newest(agent, name)
    assert frame["write_bytes"] == 4096 * frame["write_calls_count"]
    # With --each, every write before the kill, give or take the last, has its time.
    eventually(lambda: not list((agent.run_dir / "ingest").iterdir()), "the file of the dead is removed")
    frame = newest(agent, name)
    [each] = agent.sql("SELECT count(*) AS n, min(value) AS least FROM app_io_write_each_seconds")
    assert each["n"] + 1 >= frame["write_calls_count"] and each["least"] > 0


def test_what_cannot_be_run_is_said(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    done = run(agent, shim, tmp_path / "nothing")
    assert done.returncode == 1 and "cannot run" in done.stderr
    done = run(agent, tmp_path / "no.so", "true")
    assert done.returncode == 1 and "BAROGRAPH_IO_LIBRARY" in done.stderr
    assert run(agent, shim, "false").returncode == 1
    # Without an agent the program runs as ever.
    agent.stop()
    assert run(agent, shim, "cat", ROOT / "README.md").stdout == (ROOT / "README.md").read_text()
