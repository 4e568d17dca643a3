"""What is lost when servers of blocks are killed: writers put blocks all the time, a server is killed (SIGKILL) at a
random moment and started again, and at the end each block that was acknowledged is read and compared.

Each writer is a process. Some of its puts are new blocks, which are written once and so depend on their replicas; the
others are later versions of a few blocks, of which old ones may come back."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from staging_servers import Redis, RedisError, RedisServer, StageServer

BLOCK_BYTES = 16384
WRITERS = 3
# Blocks of each writer that get later versions.
HOT_BLOCKS = 32
# Between two puts of a writer, so that the processors are not all that is measured.
PAUSE_SECONDS = 0.004
# Of so many puts, one is of a new block.
NEW_BLOCK_EVERY = 4
# From a kill to the start of the server that was killed.
DOWN_SECONDS = 0.3
# Between the moment when all is in order and the next kill.
GAP_SECONDS = (0.3, 1.2)
WAIT_MILLISECONDS = 1000
SEED = 13
PATTERN = random.Random(SEED).randbytes(2 * BLOCK_BYTES)
SPAWN = multiprocessing.get_context("spawn")

Key = tuple[int, int]


@dataclass
class Puts:
    """What a writer has done: the version that was acknowledged last of each block, and the last one it has tried."""

    acknowledged: dict[Key, int] = field(default_factory=dict)
    tried: dict[Key, int] = field(default_factory=dict)
    # Times of the ends of puts, of the monotonic clock.
    good: list[float] = field(default_factory=list)
    bad: list[float] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A system that is tested."""

    name: str
    title: str
    is_redis: bool = False
    # Whether each put waits until a replica of Redis has it.
    waits: bool = False
    # Whether servers of staging have a directory, and what is done with all blocks after each restart.
    has_tier: bool = False
    reads: bool = False
    puts_again: bool = False


KINDS = [
    Kind("staging-again", "staging, memory alone, all put again after each restart", reads=True, puts_again=True),
    Kind("staging-read", "staging, memory alone, all read after each restart", reads=True),
    Kind("staging-tier", "staging, memory and a directory, nothing between kills", has_tier=True),
    Kind("redis", "Redis, asynchronous replica", is_redis=True),
    Kind("redis-wait", "Redis, `WAIT 1` after each put", is_redis=True, waits=True),
]


def content(writer: int, key: int, version: int) -> bytes:
    """The bytes of a version of a block."""
    start = (writer * 7919 + key * 104729 + version * 31) % BLOCK_BYTES
    return b"%-8d%-8d%-16d" % (writer, key, version) + PATTERN[start : start + BLOCK_BYTES - 32]


def version_of(data: bytes, writer: int, key: int) -> int | None:
    """The version whose bytes these are, all of them; None if they are of none."""
    with contextlib.suppress(ValueError):
        version = int(data[16:32])
        if data == content(writer, key, version):
            return version
    return None


def key_of(writer: int, number: int) -> Key:
    """The block of a put: a new one now and then, and else one of a few in turn."""
    return (writer, number % HOT_BLOCKS if number % NEW_BLOCK_EVERY else HOT_BLOCKS + number)


# ---- Ways to put and to get ----


class Way(Protocol):
    """A client of one of the systems."""

    def put(self, key: Key, version: int, data: bytes) -> str | None:
        """Puts a block; None if it is acknowledged, and else the reason."""

    def get(self, key: Key) -> bytes | str:
        """Reads a block, or says why there is none: `not_found`, or another code."""


class StagingWay:
    """The client of staging."""

    def __init__(self, sockets: list[str], accept_unconfirmed: bool = False) -> None:
        import barograph  # pyright: ignore  # It is there when the servers are.

        self.errors = barograph.StagingError
        self.client = barograph.StagingClient(sockets, replicas=2, accept_unconfirmed=accept_unconfirmed)

    def put(self, key: Key, version: int, data: bytes) -> str | None:
        try:
            self.client.put((f"loss/{key[0]}", key[1]), data, version=version)
        except self.errors as error:
            return str(error.code)
        return None

    def get(self, key: Key) -> bytes | str:
        try:
            found: bytes = self.client.get((f"loss/{key[0]}", key[1]))
        except self.errors as error:
            return str(error.code)
        return found


class RedisWay:
    """A client of Redis that asks for the master each time that it has lost it."""

    def __init__(self, master: Callable[[], int], waits: bool) -> None:
        self.master, self.waits = master, waits
        self.connection: Redis | None = None

    def connected(self) -> Redis:
        """The connection to the master."""
        if self.connection is None:
            self.connection = Redis(("127.0.0.1", self.master()))
        return self.connection

    def lost(self) -> None:
        """Forgets the connection."""
        if self.connection:
            self.connection.close()
        self.connection = None

    def put(self, key: Key, version: int, data: bytes) -> str | None:
        del version
        try:
            connection = self.connected()
            connection.put(b"%d/%d" % key, memoryview(data))
            if self.waits and int(connection.call(b"WAIT", b"1", b"%d" % WAIT_MILLISECONDS)) < 1:
                return "no replica in time"
        except OSError:
            self.lost()
            return "connection"
        except RedisError as error:
            self.lost()
            return str(error).split()[0]
        return None

    def get(self, key: Key) -> bytes | str:
        memory = memoryview(bytearray(BLOCK_BYTES))
        length = self.connected().get_into(b"%d/%d" % key, memory)
        return "not_found" if length is None else bytes(memory[:length])


# ---- Writers ----


def write(writer: int, kind: Kind, addresses: list[str], master: Any, stop: Any, answers: Any) -> None:
    """The work of a writer, until it is told to stop; it answers with what it has done."""
    way: Way = RedisWay(lambda: master.value, kind.waits) if kind.is_redis else StagingWay(addresses)
    puts = Puts()
    number = 0
    while not stop.is_set():
        number += 1
        key = key_of(writer, number)
        data = content(*key, number)
        puts.tried[key] = number
        reason = way.put(key, number, data)
        now = time.monotonic()
        if reason is None:
            puts.acknowledged[key] = number
            puts.good.append(now)
        else:
            puts.bad.append(now)
            puts.reasons[reason] = puts.reasons.get(reason, 0) + 1
        time.sleep(PAUSE_SECONDS)
    answers.put(puts)


@contextlib.contextmanager
def writing(kind: Kind, addresses: list[str], master: Any) -> Iterator[Callable[[], list[Puts]]]:
    """Writers that write meanwhile; gives the function that stops them and says what they have done."""
    stop, answers = SPAWN.Event(), SPAWN.Queue()
    processes = [
        SPAWN.Process(target=write, args=(n, kind, addresses, master, stop, answers), daemon=True)
        for n in range(WRITERS)
    ]
    for process in processes:
        process.start()

    def stopped() -> list[Puts]:
        stop.set()
        done: list[Puts] = [answers.get(timeout=60) for _ in processes]
        for process in processes:
            process.join(10)
        return done

    try:
        yield stopped
    finally:
        for process in processes:
            process.kill()


# ---- A run ----


def run(kind: Kind, folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kills servers of a system as often as is said, and returns what became of the blocks."""
    folder.mkdir()
    load = os.getloadavg()[0]
    with contextlib.ExitStack() as ends:
        told = (
            run_redis(kind, folder, kills, seed, ends)
            if kind.is_redis
            else run_staging(kind, folder, kills, seed, ends)
        )
    told |= {"kind": kind.name, "title": kind.title, "kills": kills, "load": [load, os.getloadavg()[0]]}
    return told


def run_staging(kind: Kind, folder: Path, kills: int, seed: int, ends: contextlib.ExitStack) -> dict[str, Any]:
    """The loop of kills of three servers of staging, one of which is killed at a time."""
    servers = [StageServer(folder / f"server{n}", has_tier=kind.has_tier) for n in range(3)]
    for server in servers:
        ends.callback(server.end)
        server.start()
    drawn = random.Random(seed)
    times, scrubs = [], []
    addresses = [str(server.socket) for server in servers]
    stopped = ends.enter_context(writing(kind, addresses, SPAWN.Value("i", 0)))
    time.sleep(1.5)
    for _ in range(kills):
        time.sleep(drawn.uniform(*GAP_SECONDS))
        victim = drawn.choice(servers)
        times.append(time.monotonic())
        victim.end()
        time.sleep(DOWN_SECONDS)
        victim.start()
        if kind.reads:
            begin = time.monotonic()
            read_all(addresses, kind.puts_again)
            scrubs.append(time.monotonic() - begin)
    time.sleep(1)
    puts = stopped()
    told = compared(puts, StagingWay(addresses), times)
    told["repair_seconds"] = scrubs
    if told["unreadable"]:
        # What nobody can confirm is no more given: this says what it is.
        again = compared(puts, StagingWay(addresses, accept_unconfirmed=True), times)
        told["accepted"] = {name: again[name] for name in ("lost", "stale", "wrong", "unreadable")}
    return told


def read_all(addresses: list[str], puts_again: bool) -> None:
    """Reads each block that is listed once, and puts it again with its version if that is wanted, after which it has
    all replicas. Blocks that are put meanwhile have them anyway."""
    way = StagingWay(addresses)
    for block in way.client.list("loss/"):
        # It may be gone, or replaced by a later version.
        with contextlib.suppress(way.errors):
            data = way.client.get(block.key)
            if puts_again:
                way.client.put(block.key, data, version=block.version)


def run_redis(kind: Kind, folder: Path, kills: int, seed: int, ends: contextlib.ExitStack) -> dict[str, Any]:
    """The loop of kills of the master of two servers of Redis, after which the script promotes the replica at once."""
    servers = [RedisServer(folder / f"server{n}") for n in range(2)]
    servers[1].master = servers[0].port
    for server in servers:
        ends.callback(server.end)
        server.start()
    servers[0].wait_for_replica()
    drawn = random.Random(seed)
    times, syncs = [], []
    port = SPAWN.Value("i", servers[0].port)
    stopped = ends.enter_context(writing(kind, [], port))
    time.sleep(1.5)
    master, replica = servers
    for _ in range(kills):
        time.sleep(drawn.uniform(*GAP_SECONDS))
        times.append(time.monotonic())
        master.end()
        with contextlib.closing(replica.client()) as client:
            client.call(b"REPLICAOF", b"NO", b"ONE")
        port.value = replica.port
        time.sleep(DOWN_SECONDS)
        master.master = replica.port
        begin = time.monotonic()
        master.start()
        master, replica = replica, master
        master.wait_for_replica()
        syncs.append(time.monotonic() - begin)
    time.sleep(1)
    told = compared(stopped(), RedisWay(lambda: master.port, waits=False), times)
    told["repair_seconds"] = syncs
    return told


def compared(writers: list[Puts], way: Way, kills: list[float]) -> dict[str, Any]:
    """What became of the blocks that were acknowledged, and how long writes stopped."""
    counts = {"blocks": 0, "lost": 0, "stale": 0, "wrong": 0, "unreadable": 0}
    reasons: dict[str, int] = {}
    for puts in writers:
        for key, version in puts.acknowledged.items():
            counts["blocks"] += 1
            fate = fate_of(way.get(key), key, version, puts.tried[key])
            if fate != "good":
                counts[fate] += 1
        for reason, count in puts.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    good = sorted(at for puts in writers for at in puts.good)
    bad = sorted(at for puts in writers for at in puts.bad)
    return counts | {
        "acknowledged": len(good),
        "refused": len(bad),
        "reasons": reasons,
        "first_seconds": [first_after(good, at) for at in kills],
        "all_seconds": [
            last_within(bad, at, until) for at, until in zip(kills, [*kills[1:], float("inf")], strict=True)
        ],
    }


def fate_of(found: bytes | str, key: Key, acknowledged: int, tried: int) -> str:
    """What became of a block: `good`, `lost`, `stale`, `wrong` or `unreadable`. A later version than the one that was
    acknowledged is good if it was tried: its put may have been done although nobody heard of it."""
    if isinstance(found, str):
        return "lost" if found in ("not_found", "not_known") else "unreadable"
    version = version_of(found, *key)
    if version is None or version > tried:
        return "wrong"
    return "stale" if version < acknowledged else "good"


def first_after(times: list[float], at: float) -> float | None:
    """Seconds from a time until the first of others after it; None if none is."""
    return next((time - at for time in times if time > at), None)


def last_within(times: list[float], at: float, until: float) -> float:
    """Seconds from a time until the last of others that are before the end; 0 if none is."""
    return max((time - at for time in times if at < time < until), default=0.0)


def measure(folder: Path, kills: int) -> list[dict[str, Any]]:
    """All systems, one after the other, with kills that are drawn from the same seed."""
    runs = []
    for kind in KINDS:
        told = run(kind, folder / f"loss-{kind.name}", kills, SEED)
        print(f"{kind.title}: {told}", flush=True)
        runs.append(told)
    return runs
