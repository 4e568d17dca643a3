"""Servers of blocks and the commands for their blocks: bounds, faults, kills, users, maps of servers and streams."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from harness import BARO, COMMAND_SECONDS_MAX, STOP_SECONDS_MAX, Agent, environment, eventually

NOBODY = 65534
MIB = 1 << 20
TRY_AGAIN = 75


class Server:
    """`baro stage serve` in a directory of its own, which is used again after a restart."""

    def __init__(self, folder: Path, *options: object, tier: bool = True) -> None:
        self.folder = folder
        folder.mkdir(mode=0o755)
        self.socket = folder / "stage.sock"
        self.tier = folder / "tier"
        self.tier.mkdir()
        self.options = ["--socket", self.socket, *(["--tier", f"{self.tier}=1GiB"] if tier else []), *options]
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}

    def start(self, **more: Any) -> Server:
        command = [BARO, "stage", "serve", "--json", *map(str, self.options)]
        env = environment(BAROGRAPH_RUN_DIR=str(self.folder / "run"))
        with self.log.open("wb") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "env": env} | more
            self.process = subprocess.Popen(command, **options)
        ready = eventually(lambda: self.output().endswith("\n") or self.ended(), "the ready line")
        assert ready and not self.ended(), f"the server ended: {self.output()}"
        self.ready = json.loads(self.output().splitlines()[-1])
        return self

    def output(self) -> str:
        return self.log.read_text()

    def ended(self) -> bool:
        assert self.process
        return self.process.poll() is not None

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends the server with a signal; returns its exit status."""
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.stop(signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        return asked("status", servers=[self])[0]

    def files(self) -> list[Path]:
        """The files of blocks on the tier."""
        return sorted(self.tier.glob("u*/*.block"))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers; none of them outlives the test."""
    servers: list[Server] = []

    def begin(*options: object, **more: Any) -> Server:
        servers.append(Server(tmp_path / f"server{len(servers)}", *options, **more))
        return servers[-1].start()

    yield begin
    for server in servers:
        server.kill()


def stage(verb: str, *words: object, servers: list[Server], **more: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs a command on servers and returns the finished process, even if it failed."""
    ways = [word for server in servers for word in ("--server", server.socket)]
    options = {"capture_output": True, "timeout": COMMAND_SECONDS_MAX, "env": environment(), "input": b""}
    command = [BARO, "stage", verb, *map(str, ways), *map(str, words)]
    return subprocess.run(command, **(options | more))


def done(verb: str, *words: object, servers: list[Server], **more: Any) -> bytes:
    """The output of a command, which must succeed without a complaint."""
    finished = stage(verb, *words, servers=servers, **more)
    assert (finished.returncode, finished.stderr) == (0, b""), (verb, words[:2], finished.stderr[:2_000])
    return finished.stdout


def asked(verb: str, *words: object, servers: list[Server], **more: Any) -> Any:
    """The output of a command with --json."""
    return json.loads(done(verb, "--json", *words, servers=servers, **more))


def refused(status: int, verb: str, *words: object, servers: list[Server], **more: Any) -> str:
    """The error of a command that must fail with this status: for people, and no panic."""
    finished = stage(verb, *words, servers=servers, **more)
    error = finished.stderr.decode()
    assert finished.returncode == status, (verb, words[:2], finished.returncode, error[:2_000])
    assert finished.stdout == b"" and error.startswith(("baro: ", "error: ")) and "panicked" not in error
    return error


def read(name: object, servers: list[Server], *options: object) -> bytes:
    return done("get", "d", name, *options, servers=servers)


def test_blocks_come_back(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve()
    here = [server]
    large = tmp_path / "large"
    large.write_bytes(os.urandom(MIB) * 64)
    longest = "n" * 4_096
    assert asked("put", "d", "empty", servers=here)["bytes"] == 0
    assert asked("put", "d", longest, servers=here, input=b"long name")["name"] == longest
    assert asked("put", "d", "large", large, servers=here)["bytes"] == 64 * MIB
    assert asked("put", "d", 7, "--numbered", "-", servers=here, input=b"number")["number"] == 7
    put = asked("put", "other", "x", "--version", 5, servers=here, input=b"\x00\xff\x1b")
    assert (put["version"], put["servers"], put["failed"]) == (5, [0], [])
    assert read("empty", here) == b""
    assert read(longest, here) == b"long name"
    assert read("large", here) == large.read_bytes()
    assert read(7, here, "--numbered") == b"number"
    copy = tmp_path / "copy"
    assert asked("get", "other", "x", "-o", copy, servers=here)["repaired"] == 0
    assert copy.read_bytes() == b"\x00\xff\x1b"
    assert "--force" in refused(2, "get", "other", "x", "-o", copy, servers=here)
    assert b"3 B, version 5" in done("get", "other", "x", "-o", copy, "--force", servers=here)
    stat = asked("stat", "other", "x", servers=here)
    assert (stat["bytes"], stat["version"], stat["confirmed"]) == (3, 5, True)
    assert "version 5" in refused(1, "put", "other", "x", "--version", 4, servers=here)
    # A name that is no number is not the number.
    assert "no such block" in refused(1, "get", "d", 7, servers=here)
    assert b"other x is removed" in done("rm", "other", "x", servers=here)
    assert "no such block" in refused(1, "rm", "other", "x", servers=here)
    assert "no such block" in refused(1, "get", "other", "x", servers=here)


def test_lists_have_prefixes_and_pages(serve: Callable[..., Server]) -> None:
    here = [serve()]
    for name in ("a1", "a2", "b1", "c\x1b[2J"):
        done("put", "run/1", name, servers=here, input=name.encode())
    done("put", "run/1", 3, "--numbered", servers=here)
    done("put", "run/2", "a1", servers=here)

    def names(*words: object) -> list[object]:
        blocks = asked("ls", *words, servers=here)["blocks"]
        return [block.get("name", block.get("number")) for block in blocks]

    assert names() == [3, "a1", "a2", "b1", "c\x1b[2J", "a1"]
    assert names("run/2") == ["a1"]
    assert names("run/1", "a") == ["a1", "a2"]
    assert names("none") == []
    page = asked("ls", "--limit", 2, servers=here)
    assert page["next"] == {"dataset": "run/1", "name": "a1"}
    assert names("--limit", 3, "--after", "run/1", "a1") == ["a2", "b1", "c\x1b[2J"]
    assert names("--after", "run/1", 3, "--numbered", "--limit", 1) == ["a1"]
    shown = done("ls", servers=here)
    assert b"\x1b" not in shown and b"\\u{1b}" in shown and b"#3" in shown
    assert done("ls", "none", servers=here) == b"no blocks\n"


def test_where_blocks_are_is_told_and_what_changes(serve: Callable[..., Server]) -> None:
    both = [serve(), serve()]
    two = ("--replicas", 2)
    for name in ("a", "b"):
        done("put", "d", name, *two, servers=both, input=name.encode())
    found = asked("locate", "d", "a", "nowhere", *two, servers=both)
    assert (found["epoch"], found["unreachable"]) == (0, [])
    a, nowhere = found["blocks"]
    assert (a["name"], nowhere["name"], nowhere["replicas"]) == ("a", "nowhere", [])
    assert sorted(replica["server"] for replica in a["replicas"]) == [0, 1]
    first = a["replicas"][0]
    assert (first["tier"], first["path"], first["bytes"], first["confirmed"]) == (0, None, 1, True)
    shown = done("locate", "d", "a", "nowhere", *two, servers=both).decode()
    assert "memory" in shown and "nowhere" in shown and "READ" in shown
    # After a restart they are in the directory, from which a read over the socket is timed.
    both[1].stop()
    both[1].start()
    a = asked("locate", "d", "a", *two, servers=both)["blocks"][0]
    replica = next(it for it in a["replicas"] if it["server"] == 1)
    assert (replica["tier"], replica["path"]) == (1, str(both[1].tier))
    ways = [word for server in both for word in ("--server", server.socket)]
    command = [BARO, "stage", "locate", "d", "b", "--json", "--watch", "--replicas", "2", *map(str, ways)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as watch:
        assert watch.stdout
        try:
            news = (json.loads(line) for line in watch.stdout)
            assert len(next(news)["blocks"][0]["replicas"]) == 2
            done("rm", "d", "b", *two, servers=both)
            assert any(found["blocks"][0]["replicas"] == [] for found in news)
            both[0].kill()
            assert any(found["unreachable"] == [0] for found in news)
        finally:
            watch.kill()
    gone = stage("locate", "d", "a", *two, servers=both)
    assert gone.returncode == 0 and b"could not be asked: 0;" in gone.stderr
    assert "4096" in refused(2, "locate", "d", "x" * 5_000, servers=both).replace(",", "")


def test_wrong_uses_say_what_is_right(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve("--memory", "4MiB")
    here = [server]
    assert "at most 4096 bytes" in refused(2, "put", "d", "n" * 4_097, servers=here)
    assert "1 to 255 bytes" in refused(2, "put", "d" * 256, "x", servers=here)
    assert "1 to 255 bytes" in refused(2, "put", "", "x", servers=here)
    assert "no number" in refused(2, "stat", "d", "x", "--numbered", servers=here)
    assert "2 replicas need 2 servers" in refused(2, "get", "d", "x", "--replicas", 2, servers=here)
    assert "HOST:PORT" in refused(2, "get", "d", "x", "--server", "stage.sock", servers=[])
    assert "cannot open" in refused(1, "put", "d", "x", tmp_path / "none", servers=here)
    assert "--output" in refused(2, "get", "d", "x", "--json", servers=here)
    nowhere = ["--run-dir", tmp_path / "run"]
    assert "baro stage serve" in refused(1, "ls", *nowhere, servers=[])
    assert "no server of m is known" in refused(2, "ls", "--map", "m", *nowhere, servers=[])
    # A server that contradicts itself does not begin.
    for options, why in [
        (["--tier", f"{server.tier}=1MiB"], "another server has it"),
        (["--tier", tmp_path / "none"], "No such file"),
        (["--memory", "much"], "like 4GiB"),
        (["--tcp", "127.0.0.1:0"], "--tokens"),
        (["--tcp", "0.0.0.0:0", "--tokens", tmp_path], "loopback"),
        (["--map", "m"], "--server"),
        (["--socket", tmp_path / ("s" * 108)], "107 bytes"),
    ]:
        place = [] if "--socket" in options else ["--socket", tmp_path / "s"]
        finished = stage("serve", *place, *options, "--run-dir", tmp_path / "run", servers=[])
        error = finished.stderr.decode()
        assert finished.returncode in (1, 2) and why in error, (options, error)
    assert "use" in (again := stage("serve", "--socket", server.socket, servers=[]).stderr.decode()), again


def test_a_stop_in_order_keeps_what_was_in_memory(serve: Callable[..., Server]) -> None:
    server = serve("--dirty", "8MiB")
    for name in range(5):
        done("put", "d", name, servers=[server], input=bytes([name]) * 200_000)
    assert server.stop() == 0
    assert "staging stopped (terminated)" in server.output()
    assert len(server.files()) == 5
    server.start()
    assert server.ready["found"] == 5
    for name in range(5):
        assert read(name, [server]) == bytes([name]) * 200_000
        assert asked("stat", "d", name, servers=[server])["confirmed"]
    assert server.stop(signal.SIGINT) == 0
    # Nobody is there any more, and that is said at once.
    assert "all replicas are gone" in refused(TRY_AGAIN, "get", "d", 1, servers=[server])


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=0755", "tmpfs", folder], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not permitted here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(server: Server) -> list[int]:
    """Puts blocks until one is refused; returns those that were acknowledged."""
    for name in range(40):
        words = ["d", name, "--wait", 0.2]
        finished = stage("put", *words, servers=[server], input=bytes([name]) * MIB)
        if finished.returncode != 0:
            assert b"no room" in finished.stderr or b"No space" in finished.stderr, finished.stderr
            return list(range(name))
    pytest.fail("the tier took everything")


def test_a_tier_that_is_full_refuses_and_loses_nothing(serve: Callable[..., Server]) -> None:
    server = serve(tier=False)
    server.kill()
    server.options += ["--memory", "2MiB", "--tier", f"{server.tier}=5MiB"]
    server.start()
    there = fill(server)
    assert 5 <= len(there) <= 7
    for name in there:
        assert read(name, [server]) == bytes([name]) * MIB
    counts = server.status()["store"]
    assert counts["refused_full"] + counts["refused_busy"] >= 1
    for name in there[:3]:
        done("rm", "d", name, servers=[server])
    done("put", "d", "more", "--wait", 20, servers=[server], input=b"y" * MIB)
    assert read("more", [server]) == b"y" * MIB


def test_a_file_system_that_is_full_refuses_and_loses_nothing(serve: Callable[..., Server], small: Path) -> None:
    # The server believes that there is more room than there is: another program has taken it.
    server = serve(tier=False)
    server.kill()
    server.options += ["--memory", "2MiB", "--tier", f"{small}=100%"]
    server.start()
    (small / "other").write_bytes(bytes(3 * MIB))
    there = fill(server)
    assert there
    for name in there:
        assert read(name, [server]) == bytes([name]) * MIB
    (small / "other").unlink()
    done("put", "d", "more", "--wait", 20, servers=[server], input=b"y" * MIB)
    assert read("more", [server]) == b"y" * MIB


def test_what_is_durable_is_there_after_servers_were_killed_in_turns(serve: Callable[..., Server]) -> None:
    both = [serve(), serve()]
    acknowledged: dict[str, bytes] = {}
    for life in range(4):
        victim = both[life % 2]
        for number in range(8):
            name, block = f"{life}-{number}", os.urandom(1_000 + 40_000 * number)
            if number == 6:
                victim.kill()
            finished = stage("put", "d", name, "--durable", "--replicas", 2, servers=both, input=block)
            if finished.returncode == 0:
                acknowledged[name] = block
            else:
                assert finished.returncode == TRY_AGAIN and b"1 of 2 servers" in finished.stderr, finished.stderr
        victim.start()
        for name, block in acknowledged.items():
            # After both were killed, neither knows for certain that it missed nothing.
            assert read(name, both, "--replicas", 2, "--accept-unconfirmed") == block, (life, name)
    assert len(acknowledged) == 24


def test_puts_go_on_while_a_server_is_killed_in_a_loop(serve: Callable[..., Server]) -> None:
    keeper, victim = both = [serve(), serve()]
    acknowledged: dict[str, bytes] = {}
    block = os.urandom(3 * MIB)
    for life in range(5):
        # The kill comes at any moment of the put.
        way = [word for server in both for word in ("--server", str(server.socket))]
        command = [BARO, "stage", "put", "d", str(life), "--replicas", "2", *way]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment()) as put:
            assert put.stdin
            put.stdin.write(block[: len(block) - life])
            put.stdin.close()
            puts = victim.status()["store"]["puts"]
            if life % 2:
                eventually(lambda: put.poll() is not None or victim.status()["store"]["puts"] > puts, "the put")
            victim.kill()
            if put.wait(COMMAND_SECONDS_MAX) == 0:
                acknowledged[str(life)] = block[: len(block) - life]
        victim.start()
    for name, expected in acknowledged.items():
        assert read(name, both, "--replicas", 2) == expected
        assert read(name, [keeper]) == expected


def test_a_server_that_comes_back_with_old_blocks_is_not_believed(serve: Callable[..., Server]) -> None:
    both = [serve(), serve()]
    for name in range(6):
        done("put", "d", name, "--durable", "--version", 1, "--replicas", 2, servers=both, input=b"old")
    both[0].kill()
    for name in range(6):
        words = ["d", name, "--version", 2, "--replicas", 2, "--acks", 1, "--json"]
        done("put", *words, servers=both, input=b"new")
    both[0].start()
    assert "may be older" in refused(1, "get", "d", 0, servers=both[:1])
    assert read(0, both[:1], "--accept-unconfirmed") == b"old"
    assert {block["confirmed"] for block in asked("ls", servers=both[:1])["blocks"]} == {False}
    for name in range(6):
        assert read(name, both, "--replicas", 2) == b"new"
    # Those that were read from the other one were put right.
    versions = [block["version"] for block in asked("ls", servers=both[:1])["blocks"]]
    assert 2 in versions
    both[1].kill()
    for name, version in enumerate(versions):
        if version == 2:
            assert read(name, both[:1]) == b"new"
        else:
            assert "may be older" in refused(1, "get", "d", name, servers=both[:1])


def test_a_checksum_that_does_not_hold_is_repaired_and_counted(serve: Callable[..., Server], tmp_path: Path) -> None:
    both = [serve(), serve()]
    block = os.urandom(300_000)
    for name in range(8):
        done("put", "d", name, "--durable", "--replicas", 2, servers=both, input=block)
    assert both[0].stop() == 0
    files = both[0].files()
    assert len(files) == 8
    for file in files:
        with file.open("r+b") as bytes_of:
            bytes_of.seek(-1, os.SEEK_END)
            last = bytes_of.read(1)[0]
            bytes_of.seek(-1, os.SEEK_END)
            bytes_of.write(bytes([last ^ 1]))
    both[0].start()
    repaired = 0
    for name in range(8):
        copy = tmp_path / f"copy{name}"
        repaired += asked("get", "d", name, "--replicas", 2, "-o", copy, servers=both)["repaired"]
        assert copy.read_bytes() == block
    counts = both[0].status()["store"]
    # Blocks whose first replica is the other server were not looked at here.
    assert repaired == counts["corrupt"] and 0 < repaired <= 8
    left = 8 - repaired
    for name in range(8):
        finished = stage("get", "d", name, servers=both[:1])
        left -= finished.returncode != 0
        assert finished.stdout in (b"", block)
    assert left == 0


def test_replicas_that_are_all_gone_are_said_at_once(serve: Callable[..., Server]) -> None:
    both = [serve(), serve()]
    done("put", "d", "x", "--replicas", 2, servers=both, input=b"x")
    for server in both:
        server.kill()
    patient = ["--replicas", 2, "--timeout", 3_600]
    assert "all replicas are gone" in refused(TRY_AGAIN, "get", "d", "x", *patient, servers=both)
    refused(TRY_AGAIN, "put", "d", "x", *patient, servers=both)
    refused(TRY_AGAIN, "ls", *patient, servers=both)
    refused(TRY_AGAIN, "rm", "d", "x", *patient, servers=both)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
@pytest.mark.parametrize("users", ["own", "all"])
def test_another_user_reads_no_block(public: Path, users: str) -> None:
    server = Server(public / "server", "--users", users).start()
    try:
        here = [server]
        nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        done("put", "d", "secret", "--durable", servers=here, input=b"secret bytes")
        if users == "own":
            assert "Permission denied" in refused(TRY_AGAIN, "get", "d", "secret", servers=here, **nobody)
        else:
            assert "no such block" in refused(1, "get", "d", "secret", servers=here, **nobody)
            assert asked("ls", servers=here, **nobody)["blocks"] == []
            assert "no such block" in refused(1, "rm", "d", "secret", servers=here, **nobody)
            assert "own user" in refused(1, "status", servers=here, **nobody)
            # The same key is another block.
            done("put", "d", "secret", servers=here, input=b"nobody's", **nobody)
            assert done("get", "d", "secret", servers=here, **nobody) == b"nobody's"
        assert read("secret", here) == b"secret bytes"
        (file,) = [file for file in server.files() if file.parent.name == "u0"]
        found = subprocess.run(["cat", file], capture_output=True, **nobody)
        assert found.returncode != 0 and b"secret bytes" not in found.stdout
        # Nor is there anything to open in the memory of the server.
        assert server.process
        maps = subprocess.run(["ls", f"/proc/{server.process.pid}/map_files"], capture_output=True, **nobody)
        assert maps.returncode != 0
    finally:
        server.kill()


@pytest.mark.parametrize("reach", [("127.0.0.1:0",), ("0.0.0.0:0", "--network")], ids=["loopback", "network"])
def test_tcp_knows_users_by_tokens(serve: Callable[..., Server], reach: tuple[str, ...], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    token = tokens / str(os.geteuid())
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    server = serve("--tcp", *reach, "--tokens", tokens)
    way = ["--server", server.ready["tcp"]]
    done("put", "d", "x", *way, "--token-file", token, servers=[], input=b"over tcp")
    assert done("get", "d", "x", *way, "--token-file", token, servers=[]) == b"over tcp"
    other = tmp_path / "other"
    other.write_text("fedcba9876543210fedcba9876543210\n")
    assert "token" in refused(1, "get", "d", "x", *way, "--token-file", other, servers=[])
    assert "token" in refused(1, "get", "d", "x", *way, servers=[])


def test_a_client_that_sends_nonsense_is_cut_off(serve: Callable[..., Server]) -> None:
    server = serve()
    for nonsense in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, bytes(64)):
        with socket.socket(socket.AF_UNIX) as way:
            way.connect(str(server.socket))
            with suppress(ConnectionError):
                way.sendall(nonsense)
                way.shutdown(socket.SHUT_WR)
                while way.recv(4_096):
                    pass
    done("put", "d", "x", servers=[server], input=b"x")
    assert server.status()["requests"]["broken"] + server.status()["requests"]["unknown"] >= 4


def in_map(agent: Agent, number: int, folder: Path, *options: object) -> Server:
    """A server of the map `m`, with its socket in the run directory of its agent."""
    server = Server(folder / f"map{number}", "--map", "m", "--server", number, "--run-dir", agent.run_dir, *options)
    server.options = server.options[2:]
    return server


def test_servers_of_a_map_refuse_epochs_that_are_over(start: Callable[..., Agent], tmp_path: Path) -> None:
    agent = start()
    servers = [in_map(agent, number, tmp_path).start() for number in range(2)]
    try:
        way = ["--map", "m", "--run-dir", agent.run_dir]
        two = [*way, "--replicas", 2]
        # On a busy machine an agent tells a server late of its map, and until then it refuses puts.
        def put() -> subprocess.CompletedProcess[bytes] | None:
            tried = stage("put", "--json", "d", "x", *two, servers=[], input=b"1")
            return tried if tried.returncode == 0 else None

        first = eventually(put, "both servers know their map")
        assert sorted(json.loads(first.stdout)["servers"]) == [0, 1]
        row = {"name": "m", "epoch": 1, "servers": [0, 1], "running_servers": [0, 1]}
        maps = agent.ask("control", "maps", "m")
        assert {name: maps[0][name] for name in row} == row
        # Who knows no map is of epoch 0, which is over.
        sockets = [agent.run_dir / f"stage-m-{number}.sock" for number in range(2)]
        assert servers[0].ready["socket"] == str(sockets[0])
        blind = ["--server", sockets[0], "--server", sockets[1]]
        assert "epoch 0 is over" in refused(1, "get", "d", "x", *blind, servers=[])
        # A server is taken out, and puts go to the other one.
        agent.out("control", "maps", "m", "--remove", 1)
        eventually(lambda: agent.ask("control", "maps", "m")[0]["servers"] == [0], "the change")
        put = asked("put", "d", "x", "--durable", *way, servers=[], input=b"2")
        assert (put["servers"], put["epoch"]) == ([0], agent.ask("control", "maps", "m")[0]["epoch"])
        # It comes back with what is old, which nobody is given.
        agent.out("control", "maps", "m", "--add", 1)
        eventually(lambda: agent.ask("control", "maps", "m")[0]["servers"] == [0, 1], "the change")
        eventually(lambda: agent.ask("control", "maps", "m")[0]["stage"] == "in force", "the change")
        for _ in range(3):
            assert done("get", "d", "x", *two, servers=[]) == b"2"
        # Servers go on when their agent is started again.
        agent.restart()
        assert done("get", "d", "x", *two, servers=[]) == b"2"
        done("put", "d", "after", *two, servers=[], input=b"after")
        # A server that is killed and started again is told anew.
        servers[0].kill()
        servers[0].start()
        assert servers[0].ready["fence"] >= 3
        assert sorted(asked("put", "d", "y", *two, servers=[], input=b"y")["servers"]) == [0, 1]
        assert done("get", "d", "x", "--accept-unconfirmed", *two, servers=[]) == b"2"
        for server in servers:
            assert server.stop() == 0
    finally:
        for server in servers:
            server.kill()


def test_a_server_of_a_map_without_an_agent_serves_epoch_0(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    server = in_map(agent, 4, tmp_path).start()
    try:
        way = ["--map", "m", "--run-dir", tmp_path / "run"]
        assert server.ready["fence"] == 0
        assert asked("put", "d", "x", *way, servers=[], input=b"x")["servers"] == [4]
        assert done("get", "d", "x", *way, servers=[]) == b"x"
        # An agent that comes later tells the server and its clients.
        agent.start()
        epoch = asked("put", "d", "x", *way, servers=[], input=b"y")["epoch"]
        assert epoch == agent.ask("control", "maps", "m")[0]["epoch"] >= 1
        assert done("get", "d", "x", *way, servers=[]) == b"y"
    finally:
        server.kill()
        agent.destroy()


def test_the_state_of_a_server_is_streams(start: Callable[..., Agent], tmp_path: Path) -> None:
    agent = start()
    server = Server(tmp_path / "server", "--memory", "8MiB", "--run-dir", agent.run_dir).start()
    try:
        done("put", "d", "x", servers=[server], input=b"x" * 1_000)
        done("get", "d", "x", servers=[server])
        eventually(lambda: agent.value("app.stage.puts") == 1, "the put as a stream")
        tiers = {row["labels"]["tier"]: row["value"] for row in agent.latest("app.stage.tier.capacity.bytes")}
        assert tiers == {"memory": 8 * MIB, str(server.tier): 1 << 30}
        held = {row["labels"]["tier"]: row["value"] for row in agent.latest("app.stage.tier.blocks")}
        assert held["memory"] == 1
        rows = agent.sql("SELECT puts, gets, corrupt FROM frames('stage') ORDER BY ts DESC LIMIT 1")
        assert rows[0]["puts"] == 1 and rows[0]["corrupt"] == 0
        # The server goes on without its agent.
        agent.stop()
        done("put", "d", "y", servers=[server], input=b"y")
        assert server.stop() == 0
    finally:
        server.kill()
