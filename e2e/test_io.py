"""Unmodified programs appear as applications: `baro io` and the library that it preloads."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import BARO, ROOT, Agent, environment, eventually
from test_applications import INCLUDE, LIBRARY, compiled

Start = Callable[..., Agent]
MIB = 1 << 20
PYTHON = os.path.realpath(sys.executable)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built as by `make install`."""
    build, root = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("root")
    for name in ("libbaro.so", "libbaro.a"):
        (build / name).symlink_to(LIBRARY / name)
    (build / "baro").symlink_to(BARO)
    subprocess.run([ROOT / "scripts" / "install.sh", build, root, "/usr"], check=True)
    assert INCLUDE.is_dir()
    return root / "usr" / "lib" / "libbaro_io.so"


def test_nothing_that_is_installed_carries_debug_information(shim: Path) -> None:
    lib = shim.parent
    installed = [lib.parent / "bin" / "baro", *sorted(lib.glob("libbaro*"))]
    assert len(installed) >= 5
    for path in installed:
        sections = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True)
        # The section that names scripts for a debugger is 34 bytes and part of the program.
        found = set(re.findall(r"\] \.(?:rela\.)?debug_\w+", sections.stdout))
        assert found <= {"] .debug_gdb_scripts"}, path
        assert sections.stdout.count("[ 1]"), path


def run(agent: Agent, shim: Path, *command: object, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs a command with its I/O published."""
    place = () if "--run-dir" in options else ("--run-dir", agent.run_dir)
    full = [BARO, "io", *place, *options, "--", *command]
    beside = environment(BAROGRAPH_IO_LIBRARY=str(shim))
    return subprocess.run([*map(str, full)], env=beside, capture_output=True, text=True, timeout=120, check=False)


def newest(agent: Agent, application: str) -> dict[str, float]:
    """The counts of an application's last frame."""
    sql = f"SELECT * FROM frames('io') WHERE application = '{application}' ORDER BY ts DESC, frame DESC LIMIT 1"
    rows = agent.rows(sql)
    return rows[0] if rows else {}


def python(agent: Agent, shim: Path, program: str, *options: str) -> str:
    """Runs a Python program with its I/O published; returns the name of its application."""
    done = run(agent, shim, PYTHON, "-I", "-S", "-c", program, options=options)
    assert done.returncode == 0, done.stderr
    return Path(PYTHON).name


def total(agent: Agent, application: str, value: str) -> int:
    """A value summed over all processes of a run, as in the guide."""
    sql = f"""SELECT sum(v) AS v FROM (SELECT max({value}) AS v FROM frames('io')
              WHERE application = '{application}' GROUP BY pid, begun_ns)"""
    rows = agent.rows(sql)
    return rows[0]["v"] or 0 if rows else 0


def all_is_read(agent: Agent) -> None:
    """Waits until every process has ended and its file was read."""
    eventually(lambda: not list((agent.run_dir / "ingest").iterdir()), "the files of the ended are removed")


def test_a_program_of_the_system_appears_as_an_application(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    done = run(agent, shim, "dd", "if=/dev/zero", f"of={tmp_path / 'a'}", "bs=65536", "count=64", "conv=fsync")
    assert done.returncode == 0, done.stderr
    frame = eventually(
        lambda: (f := newest(agent, "dd")).get("sync_calls_count") == 1 and f, "the last frame of dd"
    )
    # /dev/zero is no storage, but the file is.
    assert (frame["write_calls_count"], frame["write_bytes"]) == (64, 4 * MIB)
    assert frame["read_bytes"] == 0 and frame["sync_calls_count"] == 1
    # Each maximum covers the time since the frame before.
    longest = agent.sql("SELECT max(write_max_seconds) AS s FROM frames('io') WHERE application = 'dd'")[0]["s"]
    assert frame["sync_seconds"] > 0 and 0 < longest <= frame["write_seconds"]
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

    all_is_read(agent)
    # Whether the processes have streams of their own depends on whether both lived at the agent's
    # look.
    rows = agent.sql(
        f"""SELECT write_bytes AS bytes, write_errors_count AS errors, read_bytes AS read FROM frames('io')
            WHERE application = '{name}'"""
    )
    assert {100_000, 400_000} <= {row["bytes"] for row in rows}, rows
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
    with subprocess.Popen([*map(str, command), PYTHON, "-I", "-S", "-c", program], env=beside) as running:
        name = Path(PYTHON).name
        eventually(lambda: newest(agent, name).get("write_bytes", 0) > 100 * 4096, "some writes")
        running.send_signal(signal.SIGKILL)
    all_is_read(agent)
    frame = newest(agent, name)
    # It may have been killed between two additions.
    assert abs(frame["write_bytes"] - 4096 * frame["write_calls_count"]) <= 4096
    # With --each, every write before the kill has its time, except perhaps the last.
    each = "SELECT count(*) AS n, min(value) AS least FROM app_io_write_each_seconds"
    calls = frame["write_calls_count"]
    eventually(lambda: abs(agent.sql(each)[0]["n"] - calls) <= 1, f"the times of {calls} calls")
    assert agent.sql(each)[0]["least"] > 0


def test_the_sum_over_all_processes_is_what_was_written(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    # Like fio and rsync: children that write and leave by _exit, and others that become another
    # program.
    name = python(agent, shim, f"""
import os
def write(blocks):
    fd = os.open({str(tmp_path / "data")!r}, os.O_WRONLY | os.O_CREAT, 0o600)
    for _ in range(blocks): os.write(fd, bytes(1000))
write(1)
for n in range(8):
    if os.fork() == 0:
        write(100 + n)
        os._exit(0)
if os.fork() == 0:
    write(3)
    os.execv({PYTHON!r}, [{PYTHON!r}, "-I", "-S", "-c", "import os; os.write(os.open({str(tmp_path / "data")!r}, os.O_WRONLY), bytes(500))"])
for n in range(9): assert os.wait()[1] == 0
write(1)
os._exit(0)
""")
    all_is_read(agent)
    assert total(agent, name, "write_bytes") == 1000 * (2 + sum(100 + n for n in range(8)) + 3) + 500
    rows = agent.sql(f"SELECT DISTINCT pid, begun_ns FROM frames('io') WHERE application = '{name}'")
    assert len(rows) == 11 and len({row["pid"] for row in rows}) == 10
    # Each process begins at 0.
    [first] = agent.sql(f"SELECT count(*) AS n, max(write_bytes) AS most FROM frames('io') WHERE application = '{name}' AND frame = 0")
    assert (first["n"], first["most"]) == (11, 0)


def test_an_agent_that_comes_later_finds_it_and_when_it_was(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    agent.stop()
    write = f"import os; os.write(os.open({str(tmp_path / 'f')!r}, os.O_WRONLY | os.O_CREAT), bytes(777))"
    name = python(agent, shim, write)
    ended_ns = time.time_ns()
    time.sleep(0.2)
    agent.start()
    # A frame and its values are separate streams: the frame may appear a moment earlier.
    frame = eventually(lambda: (row := newest(agent, name)).get("write_bytes") and row, "the frame")
    assert frame["write_bytes"] == 777 and frame["ts"] <= ended_ns
    assert frame["begun_ns"] < frame["ts"]


def test_frames_go_on_over_a_restart_of_the_agent(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    program = f"""
import os, sys
fd = os.open({str(tmp_path / "f")!r}, os.O_WRONLY | os.O_CREAT, 0o600)
for line in sys.stdin:
    os.write(fd, bytes(1000))
    print("written", flush=True)
"""
    command = [BARO, "io", "--run-dir", agent.run_dir, "--interval", "10", "--", PYTHON, "-I", "-S", "-c", program]
    beside, name = environment(BAROGRAPH_IO_LIBRARY=str(shim)), Path(PYTHON).name
    with subprocess.Popen(
        [*map(str, command)], env=beside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin and running.stdout
        for number in range(1, 7):
            running.stdin.write("once more\n")
            running.stdin.flush()
            assert running.stdout.readline() == "written\n"
            eventually(lambda n=number: newest(agent, name).get("write_bytes") == 1000 * n, f"write {number}")
            if number % 2 == 0:
                agent.restart(signal.SIGKILL if number == 2 else signal.SIGINT)
        running.stdin.close()
    all_is_read(agent)
    frames = agent.sql(
        f"SELECT ts, frame, pid, begun_ns, write_bytes FROM frames('io') WHERE application = '{name}' ORDER BY ts"
    )
    numbers = [row["frame"] for row in frames]
    assert numbers == sorted(set(numbers)) and numbers[0] == 0, "\n".join(map(str, frames))
    written = [row["write_bytes"] for row in frames]
    assert written == sorted(written)
    assert total(agent, name, "write_bytes") == 6000


def test_what_does_nothing_has_no_streams(start: Start, shim: Path) -> None:
    agent = start()
    assert run(agent, shim, "true").returncode == 0
    all_is_read(agent)
    assert not agent.has("app.*")


def test_a_program_that_publishes_keeps_its_own_publisher(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    program = compiled(tmp_path)
    with (tmp_path / "out").open("w") as out:
        command = [BARO, "io", "--run-dir", agent.run_dir, "--", program, "100", "0"]
        beside = environment(BAROGRAPH_IO_LIBRARY=str(shim))
        subprocess.run([*map(str, command)], env=beside, stdout=out, check=True)
    all_is_read(agent)
    [own] = agent.sql("SELECT max(number) AS most, count(*) AS frames FROM frames('counting')")
    assert (own["most"], own["frames"]) == (1000, 100)
    assert total(agent, "counting", "write_bytes") == (tmp_path / "out").stat().st_size


def test_a_limit_on_files_is_said_and_kills_nobody(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    script = 'ulimit -f 10; exec "$@"'
    baro_io = [BARO, "io", "--run-dir", agent.run_dir, "--", "dd", "if=/dev/zero", f"of={tmp_path / 'a'}", "bs=1", "count=9"]
    beside = environment(BAROGRAPH_IO_LIBRARY=str(shim))
    done = subprocess.run(["sh", "-c", script, "sh", *map(str, baro_io)], env=beside, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ulimit -f" in done.stderr


def test_what_cannot_be_run_is_said(start: Start, shim: Path, tmp_path: Path) -> None:
    agent = start()
    done = run(agent, shim, tmp_path / "nothing")
    assert done.returncode == 1 and "cannot run" in done.stderr
    done = run(agent, tmp_path / "no.so", "true")
    assert done.returncode == 1 and "BAROGRAPH_IO_LIBRARY" in done.stderr
    assert run(agent, shim, "false").returncode == 1
    mistyped = run(agent, shim, "true", options=("--run-dir", str(tmp_path / "rnu")))
    assert mistyped.returncode == 0 and "ingest directory" in mistyped.stderr
    assert not (tmp_path / "rnu").exists()
    # Without an agent the program runs as usual.
    agent.stop()
    assert run(agent, shim, "cat", ROOT / "README.md").stdout == (ROOT / "README.md").read_text()
