"""One user against the others: a program of one user publishes beside another user who does
everything possible to the ingest directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import QUICK, Agent, environment, eventually
from test_applications import ALL, counting, held, number, published, run  # noqa: F401

EVE, BOB = 4_711, 4_712
LOST_OF_BOB = f"SELECT coalesce(max(value), 0) AS n FROM app_process_lost_count WHERE user = '{BOB}'"

# Most memory that the agent may keep for a user who wants all of it, as the guide states, and that
# of any agent.
MEMORY_BYTES_MAX = 32 << 20
AGENT_BYTES_MAX = 160 << 20

# Files that are not ingest files, links that lead elsewhere, and files with a valid header: with a
# mebibyte of declarations that are refused, and with rings that are always full of damaged records.
# It knocks without a pause.
HOSTILE = r"""
import fcntl, os, socket, struct, sys, time

ingest, door, files, user = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
# Not before: this interpreter may lie where that user may not go.
os.setgroups([])
os.setgid(user)
os.setuid(user)
for n in range(20_000):
    open(f"{ingest}/junk-{n}", "w").close()
for n in range(2_000):
    with open(f"{ingest}/{n:032x}.ingest", "w") as file:
        file.write("junk")
for n in range(100):
    os.symlink("/proc/self/mem", f"{ingest}/{n + 10_000:032x}.ingest")
    os.mkfifo(f"{ingest}/{n + 20_000:032x}.ingest")

def text(words):
    return struct.pack("<H", len(words)) + words.encode()

def declaration(kind, body):
    body += bytes(-(len(body)) % 8)
    return struct.pack("<II", 8 + len(body), kind) + body

declared = declaration(2, struct.pack("<B", 2) + text("flood") + struct.pack("<H", 0))
while len(declared) < (1 << 20) - 300:
    name = "No Name" if len(declared) % 3 else f"v{len(declared)}"
    body = struct.pack("<IBB", 0, 1, 1) + text(name) + text("") + text("x" * 150)
    declared += declaration(3, body)
RINGS_AT = 8_192 + (1 << 20)
kept = []
for n in range(files):
    incarnation = os.urandom(16)
    path = f"{ingest}/{incarnation.hex()}"
    fd = os.open(path + ".new", os.O_RDWR | os.O_CREAT, 0o660)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.ftruncate(fd, RINGS_AT + 8_192)
    header = bytearray(256)
    header[:8] = b"BAROING\0"
    struct.pack_into("<IIIIQ", header, 8, 1, 1, 0x01020304, 4_096, RINGS_AT + 8_192)
    header[32:48] = incarnation
    struct.pack_into("<qQQQQQQQQQQQQ", header, 48, time.time_ns(), os.getpid(), 0, 1, 2, len(declared), 8_192, 1 << 20,
                     4_096, 1, 1, RINGS_AT, 256)
    os.pwrite(fd, header, 0)
    os.pwrite(fd, struct.pack("<Q", 1), 2_048)
    os.pwrite(fd, declared, 8_192)
    os.rename(path + ".new", path + ".ingest")
    kept.append(fd)
knock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
print("ready", flush=True)
committed = 256
while True:
    committed += 256
    for fd in kept:
        os.pwrite(fd, struct.pack("<QQ", committed, committed), 4_096)
    for _ in range(20):
        try:
            knock.sendto(os.urandom(16), door)
        except OSError:
            break
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that other users can reach."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users")
def test_a_hostile_user_takes_nothing_from_another(shared: Path, counting: Path) -> None:  # noqa: F811
    limits = f'[applications]\nusers = "all"\nmemory_bytes_max = {MEMORY_BYTES_MAX}\n'
    agent = Agent(shared, config=limits + QUICK).start()
    hostile = [sys.executable, "-c", HOSTILE, agent.run_dir / "ingest", agent.run_dir / "ingest.sock", "100", str(EVE)]
    try:
        with subprocess.Popen(hostile, stdout=subprocess.PIPE, env=environment(), cwd="/") as eve:
            try:
                assert eve.stdout and eve.stdout.readline() == b"ready\n"
                # Several lives, so that some knock while the directory is read, and some do not.
                for life in range(1, 6):
                    with run(counting, agent, 100, 1_000, 2, user=BOB, group=BOB, extra_groups=[]) as bob:
                        assert bob.wait(60) == 0
                    eventually(lambda n=life: published(agent) and number(agent, ALL) == n * 1_000, "all of his values")
                assert number(agent, LOST_OF_BOB) == 0
                assert held(agent)[1] < AGENT_BYTES_MAX
                refused = "SELECT coalesce(max(refused), 0) AS n FROM publications WHERE name = 'flood'"
                eventually(lambda: number(agent, refused) > 1_000, "what is refused is counted")
                damaged = "SELECT coalesce(max(damaged), 0) AS n FROM publications WHERE name = 'flood'"
                eventually(lambda: number(agent, damaged) > 1_000, "what makes no sense is counted")
            finally:
                eve.kill()
        eventually(
            lambda: not [p for p in (agent.run_dir / "ingest").iterdir() if is_large(p)], "files of the dead are removed"
        )
    finally:
        agent.stop()


def is_large(path: Path) -> bool:
    """Whether the file is one of those with a valid header, and still exists."""
    try:
        return path.lstat().st_size > 1_000
    except FileNotFoundError:
        return False
