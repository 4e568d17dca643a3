"""Strangers on one node: which agents are trusted, and which of their texts reach a terminal."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import BARO, QUICK, ROOT, Agent, baro, environment, eventually

Start = Callable[..., Agent]

ESCAPES = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202egnp.exe"
# Control characters that work in any terminal: they begin, end or reverse the shown text.
ORDERS = [chr(code) for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), 0x202E) if chr(code) != "\n"]


def orders(text: str) -> list[str]:
    """The characters in a text that a terminal would obey."""
    return [order for order in ORDERS if order in text]


@pytest.fixture
def hostile(start: Start) -> Agent:
    """An agent that received names and texts that a terminal would obey."""
    agent = start(config=QUICK + "[applications]\nenabled = true\n")
    tag = ESCAPES.replace(" ", "\\ ").replace(",", "\\,").replace("=", "\\=")
    line = f'guest,who={tag} said="{ESCAPES}",n=1i'
    answer = agent.request("POST", "/write", line.encode(), way="read.sock")
    assert answer.status == 204, answer.text
    eventually(lambda: agent.sql("SELECT name FROM streams WHERE name LIKE 'app.guest.%'"), "it is a stream")
    return agent


COMMANDS = [
    ("streams", "app.guest.*"),
    ("latest", "app.guest.*"),
    ("watch", "app.guest.said", "--count", "1"),
    ("sql", "SELECT * FROM streams WHERE name LIKE 'app.guest.%'"),
    ("sql", "SELECT value AS \"" + ESCAPES + "\" FROM app_guest_said"),
    ("sql", "SELECT * FROM publications"),
    ("sql", f'SELECT * FROM "no_such_table_{ESCAPES}"'),
    ("latest", "app.guest.none" + ESCAPES),
    ("insight", "explain", "none" + ESCAPES),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_is_given_no_orders_of_others(hostile: Agent, command: tuple[str, ...]) -> None:
    first, *rest = command
    found = baro(first, "--run-dir", hostile.run_dir, *rest) if first != "insight" else baro(
        first, rest[0], "--run-dir", hostile.run_dir, *rest[1:]
    )
    assert not orders(found.stdout), found.stdout
    assert not orders(found.stderr), found.stderr
    assert "\\u{9b}" in found.stdout + found.stderr or "publications" in command[-1]


def test_json_says_the_same_by_escapes(hostile: Agent) -> None:
    found = baro("latest", "--json", "--run-dir", hostile.run_dir, "app.guest.said")
    assert not orders(found.stdout), found.stdout
    assert json.loads(found.stdout)[0]["value"] == ESCAPES
    found = baro("sql", "--json", "--run-dir", hostile.run_dir, "SELECT value FROM app_guest_said LIMIT 1")
    assert not orders(found.stdout), found.stdout
    assert json.loads(found.stdout)[0]["value"] == ESCAPES


def test_csv_is_as_it_is_but_for_a_terminal(hostile: Agent) -> None:
    command = ["sql", "--format", "csv", "--run-dir", hostile.run_dir, "SELECT value FROM app_guest_said"]
    assert ESCAPES in baro(*command).stdout
    ours, theirs = pty.openpty()
    with subprocess.Popen([BARO, *map(str, command)], stdout=theirs, stdin=subprocess.DEVNULL, env=environment()) as shown:
        os.close(theirs)
        text = b""
        while piece := read_or_end(ours):
            text += piece
        assert shown.wait(30) == 0
    os.close(ours)
    assert "\\u{1b}" in text.decode() and not orders(text.decode().replace("\r", "")), text


def read_or_end(descriptor: int) -> bytes:
    """The next output on a terminal; empty once nothing writes to it."""
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    agent = Agent(tmp_path, config=QUICK)
    before = os.umask(0o077)
    try:
        agent.start()
    finally:
        os.umask(before)
    try:
        for name in ("segment", "agent.json", "sources.json"):
            found = eventually(lambda name=name: (agent.run_dir / name).exists() and (agent.run_dir / name).stat(), name)
            assert stat.S_IMODE(found.st_mode) == 0o644, name
    finally:
        agent.destroy()


# Runs in a mount namespace of its own with another /dev/shm, so that no other program uses the
# default paths.
SQUATTED = """
set -euf
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p /dev/shm/theirs
chmod 1777 /dev/shm/theirs
as() { user=$1; shift; setpriv --reuid "$user" --regid "$user" --clear-groups "$@"; }
setpriv --reuid 12345 --regid 12345 --clear-groups \\
    "$BARO" up --http off --run-dir /dev/shm/barograph-65534 --state-dir /dev/shm/theirs/12345 >/dev/shm/theirs/log 2>&1 &
stranger=$!
trap 'kill $stranger; wait $stranger || true' EXIT
for _ in $(seq 600); do grep -q 'barograph ready' /dev/shm/theirs/log && break; sleep 0.05; done
for command in status streams 'latest *' 'call fire checkpoint' 'knob set a.b 1' 'sql SELECT(1)' 'insight list' 'doctor'; do
    echo "== $command"
    as 65534 "$BARO" $command 2>&1 && echo "exit 0" || echo "exit $?"
done
echo "== named"
as 65534 "$BARO" status --run-dir /dev/shm/barograph-65534 && echo "exit 0" || echo "exit $?"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users, and mount")
def test_a_strangers_directory_is_not_read_unless_it_is_named() -> None:
    ran = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SQUATTED],
        env=environment(BARO=BARO),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    parts = dict(part.split("\n", 1) for part in ran.stdout.split("== ")[1:])
    named = parts.pop("named")
    assert "alive" in named and named.endswith("exit 0\n"), named
    for command, said in parts.items():
        assert "/dev/shm/barograph-65534 belongs to user 12345, not to this user or root" in said, (command, said)
        assert said.endswith("exit 1\n"), (command, said)


def test_the_helpers_group_is_no_files_group() -> None:
    users = (ROOT / "etc/barograph.sysusers").read_text()
    socket = (ROOT / "etc/barograph-helper.socket").read_text()
    service = (ROOT / "etc/barograph.service").read_text()
    assert "SocketGroup=barograph-helper\n" in socket
    assert "\nm barograph barograph-helper\n" in users
    assert "\nUser=barograph\n" in service and "\nGroup=" not in service


