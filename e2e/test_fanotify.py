"""File events by fanotify for an agent that is not root: the privileged helper opens the group, for file
systems that root has listed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BARO, QUICK, Agent, eventually

HELPER = Path(BARO).with_name("barograph-helper")
# The agent's user, and another one.
USER, OTHER = 12345, 12346


def may_run() -> bool:
    """Whether this machine lets a test mount, and other users run the binary."""
    if os.geteuid() != 0 or not HELPER.exists():
        return False
    namespace = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    version = as_user(USER, BARO, "--version")
    return namespace.returncode == 0 and version.returncode == 0


def as_user(uid: int, *command: object) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user without a name."""
    who = {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **who)


pytestmark = pytest.mark.skipif(not may_run(), reason="it takes root, mounts, and a binary that others may run")


class HelperSocket:
    """A stand-in for systemd's socket with `Accept=yes`: a helper for each connection, which sees a list of
    its own in place of that of the machine."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "helper.sock"
        self.list = folder / "etc" / "barograph" / "fanotify"
        self.list.parent.mkdir(parents=True)
        self.list.write_text("")
        self.statuses: list[int] = []
        own = f"mount --bind {folder / 'etc'} /etc && mount -t tmpfs none /run"
        self.program = ["unshare", "--mount", "sh", "-c", f"{own} && exec {HELPER}"]
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.path))
        self.path.chmod(0o666)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                helper = subprocess.Popen(self.program, stdin=connection, stdout=connection)
            self.statuses.append(helper.wait())

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


class Place:
    """A file system with directories of two users, a helper, and an agent of one of them."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.tree = folder / "tree"
        self.tree.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0777", "none", self.tree], check=True)
        for name, mode in [("open", 0o755), ("hidden", 0o700)]:
            (self.tree / name).mkdir()
            (self.tree / name).chmod(mode)
            os.chown(self.tree / name, OTHER, OTHER)
        self.helper = HelperSocket(folder)
        (folder / "agent").mkdir()
        os.chown(folder / "agent", USER, USER)
        config = (
            f'{QUICK}\n[sources.helper]\nsocket = "{self.helper.path}"\n'
            f'[[event.watch]]\npath = "{self.tree}"\nname = "tree"\ncollector = "fanotify"\n'
        )
        self.agent = Agent(folder / "agent", config=config)
        self.agent.prefix = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]

    def rows(self, statement: str) -> list[dict[str, Any]]:
        done = as_user(USER, BARO, "sql", statement, "--json", "--run-dir", self.agent.run_dir)
        return json.loads(done.stdout) if done.returncode == 0 else []

    def watch(self) -> dict[str, Any]:
        """The row of the watch, once its first walk is over."""
        ready = "SELECT * FROM watches WHERE state IN ('live', 'troubled') AND directories > 0"
        return eventually(lambda: self.rows(ready), "a watch")[0]

    def made(self, where: str = "1") -> list[dict[str, Any]]:
        return self.rows(f"SELECT * FROM events WHERE kind IN ('create', 'mkdir') AND {where} ORDER BY idx")

    def make(self, uid: int, *names: str) -> None:
        for name in names:
            assert as_user(uid, "touch", self.tree / name).returncode == 0

    def groups(self) -> list[str]:
        """What the kernel tells of the agent's fanotify groups."""
        assert self.agent.process
        folder = Path(f"/proc/{self.agent.process.pid}")
        of_group = [fd.name for fd in (folder / "fd").iterdir() if "[fanotify]" in os.readlink(fd)]
        return [(folder / "fdinfo" / fd).read_text() for fd in of_group]

    def close(self) -> None:
        self.agent.destroy()
        self.helper.close()
        subprocess.run(["umount", "--lazy", self.tree], check=True)


@pytest.fixture
def place() -> Iterator[Place]:
    # Folders above a mount point must be root's alone, which those of the tests' other files are not.
    folder = Path(tempfile.mkdtemp(prefix="barograph-test-", dir="/var/lib"))
    try:
        made = Place(folder)
        try:
            yield made
        finally:
            made.close()
    finally:
        shutil.rmtree(folder)


def test_an_agent_that_is_not_root_sees_what_others_make(place: Place) -> None:
    place.helper.list.write_text(f"# for a test\n{place.tree}\n")
    place.agent.start()
    watch = place.watch()
    assert watch["collector"] == "fanotify", watch
    assert 0 in place.helper.statuses, "the helper has ended"
    # It was told to close the group on exec, and has a mark on the whole file system.
    (group,) = place.groups()
    flags = next(line.split()[1] for line in group.splitlines() if line.startswith("flags:"))
    assert int(flags, 8) & os.O_CLOEXEC, group
    place.make(OTHER, "open/a")
    assert as_user(OTHER, "mkdir", "-m", "700", place.tree / "late").returncode == 0
    place.make(OTHER, "late/b", "hidden/c")
    place.make(USER, "last")
    eventually(lambda: place.made(f"path = '{place.tree}/last'"), "the last file")
    paths = {row["path"]: row for row in place.made()}
    # A directory that was made since has its place, whoever may read it; of one that was there and may not be
    # read, the path is not guessed.
    whole = [f"{place.tree}/{name}" for name in ("open/a", "late", "late/b", "last")]
    assert set(paths) == {*whole, "c"}
    incomplete = {path for path, row in paths.items() if not row["complete"]}
    assert incomplete == {"c"}, paths
    assert "1 directories cannot be read" in place.watch()["trouble"]


def test_without_the_right_inotify_serves_and_says_why(place: Place) -> None:
    place.agent.start()
    watch = place.watch()
    assert watch["collector"] == "inotify", watch
    assert f"by a line `{place.tree}` in /etc/barograph/fanotify" in watch["trouble"]
    assert place.groups() == []
    place.make(OTHER, "open/a")
    eventually(lambda: place.made(f"path = '{place.tree}/open/a'"), "an event by inotify")
    # A list that others may write is not believed.
    place.agent.stop()
    place.helper.list.write_text(f"{place.tree}\n")
    place.helper.list.chmod(0o666)
    place.agent.start()
    assert "others than root may write /etc/barograph/fanotify" in place.watch()["trouble"]
    # Without a helper the remedy is named.
    place.agent.stop()
    place.helper.path.unlink()
    place.agent.start()
    assert "install barograph-helper" in place.watch()["trouble"]


def test_a_helper_that_is_killed_costs_nothing_but_the_right(place: Place) -> None:
    place.helper.list.write_text(f"{place.tree}\n")
    helper = place.helper.program
    place.helper.program = ["sh", "-c", "read request; kill -9 $$"]
    place.agent.start()
    watch = place.watch()
    assert watch["collector"] == "inotify" and set(place.helper.statuses) == {-9}
    assert "fanotify is not possible: the helper's answer is cut" in watch["trouble"]
    place.make(USER, "before")
    eventually(lambda: place.made(f"path = '{place.tree}/before'"), "an event by inotify")
    # The next start has a helper. The collectors know files by other identities, so that what happened
    # between is a gap and not told again.
    place.helper.program = helper
    place.agent.restart()
    eventually(lambda: place.watch()["collector"] == "fanotify", "fanotify")
    place.make(OTHER, "open/after")
    eventually(lambda: place.made(f"path = '{place.tree}/open/after'"), "an event by fanotify")
    assert [Path(row["path"]).name for row in place.made()] == ["before", "after"]
    assert place.rows("SELECT 1 FROM events WHERE kind = 'gap'")
    numbers = [row["idx"] for row in place.rows("SELECT idx FROM events ORDER BY idx")]
    assert numbers == sorted(set(numbers))
