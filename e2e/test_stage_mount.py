"""Files on staging: programs that know files alone, several mounts, and kills of servers and mounts."""

from __future__ import annotations

import filecmp
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BARO, COMMAND_SECONDS_MAX, STOP_SECONDS_MAX, environment, eventually
from test_examples import needs
from test_stage import MIB, Server, stage

Mounts = Callable[..., "Mount"]
Serve = Callable[..., Server]


class Mount:
    """`baro stage mount` at a directory of its own."""

    def __init__(self, folder: Path, servers: list[Server], *options: object) -> None:
        self.path = folder / "files"
        self.path.mkdir(parents=True)
        self.log = folder / "log"
        ways = [word for server in servers for word in ("--server", server.socket)]
        command = [BARO, "stage", "mount", "--json", self.path, *ways, *options]
        env = environment(BAROGRAPH_RUN_DIR=str(folder / "run"))
        with self.log.open("wb") as log:
            where: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "env": env}
            self.process = subprocess.Popen([str(word) for word in command], **where)
        eventually(lambda: "\n" in self.output() or self.process.poll() is not None, "the mount is ready")
        assert self.process.poll() is None, self.output()
        self.ready = json.loads(self.output().splitlines()[-1])

    def output(self) -> str:
        return self.log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends the mount with a signal; returns its exit status."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS_MAX)

    def end(self) -> None:
        """Ends it, and unmounts what a kill has left."""
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)
        subprocess.run(["umount", "--lazy", str(self.path)], capture_output=True, check=False)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Serve]:
    """Starts servers; none of them outlives the test."""
    started: list[Server] = []

    def begin(*options: object, **more: Any) -> Server:
        started.append(Server(tmp_path / f"server{len(started)}", *options, **more))
        return started[-1].start()

    yield begin
    for server in started:
        server.kill()


@pytest.fixture
def mount(servers: Serve, tmp_path: Path) -> Iterator[Mounts]:
    """Mounts file systems; none of them outlives the test, or its servers."""
    needs(os.geteuid() == 0, "the right to mount")
    needs(Path("/dev/fuse").exists(), "/dev/fuse")
    mounts: list[Mount] = []

    def begin(among: list[Server], *options: object) -> Mount:
        mounts.append(Mount(tmp_path / f"mount{len(mounts)}", among, *options))
        return mounts[-1]

    yield begin
    for one in mounts:
        one.end()


def run(*words: object, **more: Any) -> str:
    """The output of a program, which must succeed without a complaint."""
    options = {"capture_output": True, "text": True, "timeout": COMMAND_SECONDS_MAX, "stdin": subprocess.DEVNULL}
    finished = subprocess.run([str(word) for word in words], check=False, **(options | more))
    assert (finished.returncode, finished.stderr) == (0, ""), (words, finished.stderr[:2_000])
    return finished.stdout


def make_tree(root: Path, seed: int) -> Path:
    """Directories, files of several lengths, a link and an empty directory."""
    numbers = random.Random(seed)
    for name in ("a", "a/b", "c", "empty"):
        (root / name).mkdir(parents=True)
    for number in range(40):
        folder = root / ("a", "a/b", "c")[number % 3]
        (folder / f"file {number}").write_bytes(numbers.randbytes(numbers.choice((0, 1, 4_096, 70_000, 300_000))))
    (root / "c" / "large").write_bytes(numbers.randbytes(9 * MIB + 5))
    (root / "a" / "script").write_text("#!/bin/sh\necho runs from here\n")
    (root / "a" / "script").chmod(0o755)
    (root / "link").symlink_to("a/b/file 1")
    return root


def test_programs_work_with_files(servers: Serve, mount: Mounts, tmp_path: Path) -> None:
    files = mount([servers("--memory", "128MiB")]).path
    tree = make_tree(tmp_path / "tree", 1)
    run("cp", "-rp", tree, files / "copy")
    run("diff", "-r", "--no-dereference", tree, files / "copy")
    assert (files / "copy/a/script").stat().st_mtime_ns == (tree / "a/script").stat().st_mtime_ns
    assert run(files / "copy/a/script") == "runs from here\n"
    assert run("readlink", files / "copy/link") == "a/b/file 1\n"

    with tarfile.open(tmp_path / "tree.tar", "w") as archive:
        archive.add(tree, "tree")
    run("tar", "-xf", tmp_path / "tree.tar", "-C", files)
    run("tar", "-cf", files / "again.tar", "-C", files, "tree")
    run("tar", "-df", files / "again.tar", "-C", tmp_path)

    # Writes at any place, beyond the end, and behind it.
    for place in (tmp_path, files):
        run("dd", f"if={tree}/c/large", f"of={place}/image", "bs=64k", "seek=3", "status=none")
        run("dd", f"if={tree}/a/script", f"of={place}/image", "bs=7", "seek=900001", "conv=notrunc", "status=none")
        run("sh", "-c", f"echo appended >> {place}/image; truncate -s +70000 {place}/image; echo more >> {place}/image")
    run("cmp", tmp_path / "image", files / "image")

    (files / "notes").write_text("one\ntwo needles\n" * 1_000)
    assert run("grep", "-c", "needles", files / "notes") == "1000\n"
    assert f"{files}/copy/a/script" in run("grep", "-rl", "runs from here", files)
    run("mv", files / "copy", files / "moved")
    run("diff", "-r", "--no-dereference", tree, files / "moved")
    run("rm", "-r", files / "moved", files / "tree")
    assert sorted(path.name for path in files.iterdir()) == ["again.tar", "image", "notes"]
    size, free = run("df", "--output=size,avail", files).splitlines()[1].split()
    assert int(size) > int(free) > 0


def test_a_program_in_python_reads_and_writes_parts(servers: Serve, mount: Mounts) -> None:
    files = mount([servers()], "--block-size", "64KiB").path
    numbers = random.Random(2)
    path, expect = files / "data", bytearray(numbers.randbytes(MIB))
    path.write_bytes(expect)
    with path.open("r+b") as file:
        for _ in range(200):
            at, data = numbers.randrange(MIB), numbers.randbytes(numbers.randrange(5_000))
            file.seek(at)
            file.write(data)
            expect[at : at + len(data)] = data
            file.seek(at // 2)
            assert file.read(999) == expect[at // 2 : at // 2 + 999]
        file.flush()
        with pytest.raises(OSError, match="No such device"):
            mmap.mmap(file.fileno(), 0)
    assert path.read_bytes() == expect
    with path.open("rb") as reader, mmap.mmap(reader.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[70_000:90_000] == expect[70_000:90_000]
    with pytest.raises(OSError, match="not supported"):
        os.link(path, files / "hard")
    with pytest.raises(OSError, match="not supported"):
        os.setxattr(path, "user.x", b"1")


def test_two_mounts_see_what_the_other_has_closed(servers: Serve, mount: Mounts) -> None:
    among = [servers(), servers()]
    one, two = (mount(among, "--replicas", 2) for _ in range(2))
    make_tree(one.path / "tree", 3)
    run("diff", "-r", "--no-dereference", one.path / "tree", two.path / "tree")
    for number in range(30):
        (two.path / "tree/c/large").write_text(f"{number}\n")
        assert (one.path / "tree/c/large").read_text() == f"{number}\n"
    with (one.path / "open").open("w") as file:
        file.write("half")
        file.flush()
        assert not (two.path / "open").exists()
    assert (two.path / "open").read_text() == "half"
    other = mount(among, "--replicas", 2, "--name", "other")
    assert list(other.path.iterdir()) == []
    # A stop in order leaves nothing behind, and neither does umount.
    assert one.stop() == 0
    run("umount", two.path)
    assert two.process.wait(STOP_SECONDS_MAX) == 0
    assert not one.path.is_mount() and not two.path.is_mount()
    again = mount(among, "--replicas", 2, "--read-only")
    assert (again.path / "tree/c/large").read_text() == "29\n"
    with pytest.raises(OSError, match="Read-only"):
        (again.path / "new").write_text("x")


def test_a_copy_goes_on_when_one_of_two_servers_is_killed(servers: Serve, mount: Mounts, tmp_path: Path) -> None:
    among = [servers("--memory", "128MiB"), servers("--memory", "128MiB")]
    files = mount(among, "--replicas", 2, "--block-size", "256KiB")
    tree = make_tree(tmp_path / "tree", 4)
    copies = [files.path / f"copy{number}" for number in range(3)]
    failed: list[str] = []

    def copy() -> None:
        for target in copies:
            done = subprocess.run(["cp", "-r", tree, target], capture_output=True, text=True, check=False)
            failed.extend([done.stderr] if done.returncode else [])

    copying = threading.Thread(target=copy)
    copying.start()
    eventually(lambda: (copies[0] / "a").exists(), "the first copy is under way")
    among[0].kill()
    copying.join()
    assert failed == []
    for target in copies:
        run("diff", "-r", "--no-dereference", tree, target)
    assert "has fewer replicas" in files.output()
    # It comes back with old blocks: what is read is what was written, and repairs it.
    among[0].start()
    again = mount(among, "--replicas", 2)
    for target in copies:
        run("diff", "-r", "--no-dereference", tree, again.path / target.name)


def test_all_servers_gone_is_an_error_at_once(servers: Serve, mount: Mounts) -> None:
    server = servers()
    files = mount([server]).path
    (files / "file").write_text("kept")
    assert server.stop() == 0
    for words in (("cat", files / "file"), ("cp", "/etc/hostname", files / "new"), ("ls", files)):
        failed = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
        assert failed.returncode != 0 and "Input/output error" in failed.stderr, failed
    server.start()
    assert (files / "file").read_text() == "kept"


WRITER = """
import os, sys
folder, number = sys.argv[1], 0
while True:
    for name in ("same", f"file{number % 20}"):
        with open(f"{folder}/{name}", "wb") as file:
            file.write(number.to_bytes(8, "little") * (20_000 + number % 7 * 1_000))
    print(number, flush=True)
    number += 1
"""


def test_a_mount_that_is_killed_loses_no_closed_file(servers: Serve, mount: Mounts) -> None:
    server = servers("--memory", "128MiB")
    written: dict[str, int] = {}
    for kill in range(4):
        files = mount([server], "--block-size", "32KiB", *(["--clean"] if kill else []))
        if kill:
            assert files.ready["removed"] >= 0
            check_written(files.path, written)
        command = [sys.executable, "-c", WRITER, str(files.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writer:
            assert writer.stdout
            for number in range(10 + 7 * kill):
                assert int(writer.stdout.readline()) == number
            files.stop(signal.SIGKILL)
            for line in writer.stdout:
                number = int(line)
            assert writer.wait(STOP_SECONDS_MAX) != 0
        written = {f"file{past % 20}": past for past in range(number + 1)} | {"same": number}
        with pytest.raises(OSError, match="not connected"):
            os.listdir(files.path)
        files.end()
        # The names of the next round begin anew.
        check = mount([server])
        check_written(check.path, written)
        assert check.stop() == 0


def check_written(files: Path, written: dict[str, int]) -> None:
    """Each file is what was closed last, or what was being written after that; all are whole."""
    for name, number in written.items():
        data = (files / name).read_bytes()
        found = int.from_bytes(data[:8], "little")
        assert found == number or (found == number + 1 and name in ("same", f"file{found % 20}"))
        assert data == found.to_bytes(8, "little") * (20_000 + found % 7 * 1_000)


def test_memory_is_bounded_while_much_is_written(servers: Serve, mount: Mounts, tmp_path: Path) -> None:
    server = servers("--memory", "512MiB", "--dirty", "512MiB")
    files = mount([server], "--buffer", "16MiB")

    def own_bytes() -> int:
        """Memory of the mount's own: pages of the server that it has read are not."""
        status = Path(f"/proc/{files.process.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) << 10

    before = own_bytes()
    open_files = [(files.path / f"part{number}").open("wb", buffering=0) for number in range(60)]
    data = random.Random(5).randbytes(MIB)
    most = 0
    for _ in range(3):
        for file in open_files:
            file.write(data)
            most = max(most, own_bytes())
    for file in open_files:
        file.close()
        most = max(most, own_bytes())
    # 180 MiB were written, and no block was full: 16 MiB, and what four requests hold.
    assert most - before < 64 * MIB
    source = tmp_path / "part"
    source.write_bytes(data * 3)
    assert all(filecmp.cmp(source, files.path / f"part{number}", shallow=False) for number in range(60))


def test_what_cannot_be_mounted_says_what_to_do(servers: Serve, tmp_path: Path) -> None:
    server = servers()
    for status, words, text in (
        (1, (tmp_path / "none",), "No such file"),
        (1, (server.log,), "at a directory"),
        (2, (tmp_path, "--name", "a/b"), "letters"),
        (2, (tmp_path, "--buffer", "5MiB"), "two blocks"),
        (2, (tmp_path, "--acks", 2), "--acks"),
    ):
        finished = stage("mount", *words, servers=[server])
        assert (finished.returncode, text in finished.stderr.decode()) == (status, True), finished.stderr
    server.kill()
    finished = stage("mount", tmp_path, servers=[server])
    assert finished.returncode == 75, finished.stderr
