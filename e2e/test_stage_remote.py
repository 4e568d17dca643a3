"""Blocks in stores of objects: real servers of S3 and of Redis, which are killed, and servers of blocks that are."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from harness import environment, eventually
from test_cluster import free_address
from test_examples import needs
from test_stage import MIB, Server, asked, done, read, refused
from test_target import CREDENTIALS, SERVER, answers

BUCKET = "blocks"
# One program has both names, and is what its first word says.
REDIS = shutil.which("redis-server") or shutil.which("redis-check-rdb")


class Store:
    """A server of objects that can be killed and started again with what it has kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.address = free_address()
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str], executable: str | None = None, **more: str) -> None:
        with (self.folder / "log").open("ab") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "env": environment(**more)}
            self.process = subprocess.Popen(command, executable=executable, **options)  # type: ignore[call-overload]

    def signal(self, number: int) -> None:
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()

    def start(self) -> None:
        raise NotImplementedError

    def tier(self) -> str:
        raise NotImplementedError

    def objects(self) -> set[str]:
        raise NotImplementedError

    def options(self) -> list[str]:
        return []


class S3(Store):
    def start(self) -> None:
        for part in ("buckets", "metadata"):
            (self.folder / part).mkdir(exist_ok=True)
        roots = {
            "ROOT_ACCESS_KEY": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_KEY": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        }
        places = ["--sidecar", str(self.folder / "metadata"), str(self.folder / "buckets")]
        self.run([SERVER, "--quiet", "--port", self.address, "posix", *places], **roots)
        eventually(lambda: answers(self.client()), "the server of S3")
        if not any(bucket["Name"] == BUCKET for bucket in self.client().list_buckets()["Buckets"]):
            self.client().create_bucket(Bucket=BUCKET)

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=f"http://{self.address}",
            region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"max_attempts": 1}),
        )

    def tier(self) -> str:
        return f"s3://{BUCKET}/stage"

    def options(self) -> list[str]:
        return ["--s3-endpoint", f"http://{self.address}"]

    def objects(self) -> set[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="stage/u")
        return {item["Key"] for page in pages for item in page.get("Contents", [])}


class Redis(Store):
    def start(self) -> None:
        port = self.address.rpartition(":")[2]
        kept = ["--dir", str(self.folder), "--appendonly", "yes", "--appendfsync", "always"]
        self.run(["redis-server", "--bind", "127.0.0.1", "--port", port, *kept], executable=REDIS)
        eventually(self.is_there, "the server of Redis")

    def ask(self, *words: str) -> bytes:
        host, _, port = self.address.rpartition(":")
        with closing(socket.create_connection((host, int(port)))) as connection:
            connection.sendall(" ".join(words).encode() + b"\r\nQUIT\r\n")
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    def is_there(self) -> bool:
        try:
            return self.ask("PING").startswith(b"+PONG")
        except OSError:
            return False

    def tier(self) -> str:
        return f"redis://{self.address}/2/site"

    def objects(self) -> set[str]:
        host, _, port = self.address.rpartition(":")
        with closing(socket.create_connection((host, int(port)))) as connection:
            connection.sendall(b"SELECT 2\r\nKEYS site/u*\r\nQUIT\r\n")
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        return {line.decode() for line in answer.split(b"\r\n") if line.startswith(b"site/")}


KINDS: dict[str, type[Store]] = {"s3": S3, "redis": Redis}


@pytest.fixture(params=sorted(KINDS))
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store of objects that runs."""
    if request.param == "s3":
        needs(bool(shutil.which(SERVER)), "a server of S3")
    else:
        needs(bool(REDIS), "redis-server")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    store = KINDS[request.param](tmp_path / "store")
    try:
        store.start()
        yield store
    finally:
        store.kill()


@pytest.fixture
def serve(tmp_path: Path, store: Store) -> Iterator[Callable[..., Server]]:
    """Starts servers of blocks over the store alone; none of them outlives the test."""
    servers: list[Server] = []

    def begin(*options: object, room: str = "1GB") -> Server:
        tier = ["--tier", f"{store.tier()}={room}", *store.options()]
        servers.append(Server(tmp_path / f"server{len(servers)}", *tier, *options, tier=False))
        return servers[-1].start()

    yield begin
    for server in servers:
        server.kill()


def lower(server: Server) -> dict[str, Any]:
    """What the server says of the store."""
    tier: dict[str, Any] = server.status()["tiers"][-1]
    return tier


def test_a_killed_server_finds_its_blocks(serve: Callable[..., Server], store: Store) -> None:
    server = serve("--memory", "64MiB")
    here = [server]
    # Three parts of S3, nearly.
    large = os.urandom(MIB) * 20
    longest = "n" * 4_096
    blocks = {"large": large, longest: b"long name", "empty": b"", "new": b"new"}
    done("put", "d", "new", "--version", 1, servers=here, input=b"old")
    for name, data in blocks.items():
        assert asked("put", "d", name, "--durable", servers=here, input=data)["failed"] == []
    done("put", "d", "gone", "--durable", servers=here, input=b"gone")
    assert server.status()["dirty_bytes"] == 0
    assert lower(server)["tier"] == store.tier() and lower(server)["blocks"] >= 5
    done("rm", "d", "gone", servers=here)
    eventually(lambda: len(store.objects()) == 4, "what is in force no longer is removed")
    server.stop(signal.SIGKILL)
    server.start()
    assert server.ready["found"] == 4
    for name, data in blocks.items():
        assert "may be older" in refused(1, "get", "d", name, servers=here)
        assert read(name, here, "--accept-unconfirmed") == data
    assert "may have missed" in refused(1, "get", "d", "gone", servers=here)
    counts = server.status()["store"]
    assert counts["promoted"] == 4 and counts["corrupt"] == 0
    # All of it can be removed, and is.
    for name in blocks:
        done("rm", "d", name, servers=here)
    assert store.objects() == set()


def test_a_stop_in_order_leaves_everything_there(serve: Callable[..., Server], store: Store) -> None:
    server = serve("--memory", "8MiB")
    here = [server]
    for number in range(20):
        done("put", "d", number, servers=here, input=bytes([number]) * MIB)
    assert server.stop() == 0
    assert len(store.objects()) == 20
    server.start()
    for number in range(20):
        assert read(number, here) == bytes([number]) * MIB
    assert "no such block\n" in refused(1, "get", "d", "none", servers=here)


def test_a_store_that_is_killed_while_blocks_are_put(serve: Callable[..., Server], store: Store) -> None:
    server = serve("--memory", "64MiB", "--dirty", "32MiB")
    here = [server]
    put = 0

    def some(count: int) -> None:
        nonlocal put
        for _ in range(count):
            done("put", "d", put, "--version", 1, servers=here, input=bytes([put]) * MIB)
            put += 1

    some(4)
    store.kill()
    some(8)
    eventually(lambda: lower(server)["faults"] > 0, "the fault is counted")
    assert server.status()["dirty_bytes"] >= 8 * MIB
    assert store.tier() in refused(1, "put", "d", "x", "--durable", servers=here, input=b"x")
    # What is in memory is read as before.
    assert read(0, here) == bytes(MIB) and read(11, here) == bytes([11]) * MIB
    store.start()
    eventually(lambda: server.status()["dirty_bytes"] == 0, "everything arrives")
    some(4)
    eventually(lambda: server.status()["dirty_bytes"] == 0, "it goes on")
    assert not lower(server)["passed_over"]
    server.stop(signal.SIGKILL)
    server.start()
    assert server.ready["found"] == put
    for number in range(put):
        assert read(number, here, "--accept-unconfirmed") == bytes([number]) * MIB


def test_a_store_that_answers_nothing(serve: Callable[..., Server], store: Store) -> None:
    server = serve("--memory", "64MiB")
    here = [server]
    done("put", "d", 0, "--durable", servers=here, input=b"first")
    store.signal(signal.SIGSTOP)
    try:
        for number in range(1, 5):
            done("put", "d", number, servers=here, input=b"while it is stopped")
            assert read(number, here) == b"while it is stopped"
        eventually(lambda: lower(server)["faults"] > 0, "the fault is counted")
    finally:
        store.signal(signal.SIGCONT)
    eventually(lambda: server.status()["dirty_bytes"] == 0, "everything arrives")
    eventually(lambda: len(store.objects()) == 5, "nothing else is left there")


def test_what_cannot_be_served_says_what_to_do(serve: Callable[..., Server], store: Store, tmp_path: Path) -> None:
    server = serve()
    words = ("--socket", tmp_path / "no.sock")
    tier = store.tier()

    def fails(status: int, *more: object) -> str:
        return refused(status, "serve", *words, *more, *store.options(), servers=[])

    assert "100GB" in fails(2, "--tier", tier)
    assert "a directory comes before" in fails(2, "--tier", f"{tier}=1GB", "--tier", tmp_path)
    store.kill()
    assert "leave this tier out" in fails(1, "--tier", f"{tier}=1GB")
    server.kill()
