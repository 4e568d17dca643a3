"""Throughput and latency of puts and gets of blocks: staging over shared memory and TCP, Redis over a unix socket and
TCP, files on tmpfs, and copies in memory, in one run and in turns.

All clients are in one process and do one operation at a time. Each system has as many blocks of a size as make
`COLD_BYTES`, with a bound, which are used in turn, so that what is read is not in a processor's cache; *hot* ones use
one block."""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from staging_servers import Redis, RedisServer, StageServer

SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20]
# Four times the last cache of a large processor's core complex.
COLD_BYTES = 128 << 20
BLOCKS_MAX = 2048
# Longest time of one measurement, with its least and most operations.
SLOT_SECONDS = 0.15
OPERATIONS = (5, 20_000)
# Operations before each measurement, which do not count.
WARM_UP = 2


@dataclass(frozen=True)
class Case:
    """A system with a put and a get of the block of a number."""

    name: str
    title: str
    put: Callable[[int, memoryview], object]
    get: Callable[[int, memoryview], object]
    is_hot: bool = False


@contextlib.contextmanager
def cases(folder: Path, size: int) -> Iterator[list[Case]]:
    """The systems for blocks of a size, which have their blocks already."""
    import barograph

    with contextlib.ExitStack() as ends:
        server, redis = (
            StageServer(folder / f"stage-{size}", "4GiB", has_tcp=True),
            RedisServer(folder / f"redis-{size}"),
        )
        for each in (server, redis):
            ends.callback(each.end)
            each.start()
        user = os.getuid()
        local = barograph.StagingClient([server.socket])
        remote = barograph.StagingClient([server.ready()["tcp"]], token=server.token, user=user)
        over_tcp, over_unix = Redis(("127.0.0.1", redis.port)), Redis(str(redis.socket))
        ends.callback(over_tcp.close)
        ends.callback(over_unix.close)
        files = folder / f"files-{size}"
        files.mkdir()
        memory = Memory(size)
        found = [
            Case(
                "staging",
                "staging on the node",
                lambda n, it: local.put(("local", n), it),
                lambda n, it: local.get_into(("local", n), it),
            ),
            Case(
                "staging-tcp",
                "staging, loopback TCP",
                lambda n, it: remote.put(("tcp", n), it),
                lambda n, it: remote.get_into(("tcp", n), it),
            ),
            Case(
                "redis-tcp",
                "Redis, loopback TCP",
                lambda n, it: over_tcp.put(b"t%d" % n, it),
                lambda n, it: over_tcp.get_into(b"t%d" % n, it),
            ),
            Case(
                "redis-unix",
                "Redis, unix socket",
                lambda n, it: over_unix.put(b"u%d" % n, it),
                lambda n, it: over_unix.get_into(b"u%d" % n, it),
            ),
            Case("tmpfs", "file on tmpfs", lambda n, it: put_file(files, n, it), lambda n, it: get_file(files, n, it)),
            Case("memcpy", "memcpy", memory.put, memory.get),
            Case(
                "staging-hot",
                "staging on the node, one block",
                lambda _, it: local.put(("local", 0), it),
                lambda _, it: local.get_into(("local", 0), it),
                is_hot=True,
            ),
            Case(
                "memcpy-hot",
                "memcpy, one block",
                lambda _, it: memory.put(0, it),
                lambda _, it: memory.get(0, it),
                is_hot=True,
            ),
        ]
        data = memoryview(bytearray(os.urandom(size)))
        for case in found:
            for number in range(1 if case.is_hot else blocks_of(size)):
                case.put(number, data)
        yield found


def blocks_of(size: int) -> int:
    """How many blocks of a size are used in turn."""
    return min(COLD_BYTES // size, BLOCKS_MAX)


class Memory:
    """Blocks that are copied to and from by memcpy."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.blocks = bytearray(size * blocks_of(size))
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.blocks))

    def put(self, number: int, data: memoryview) -> None:
        """Copies to a block."""
        ctypes.memmove(self.start + number * self.size, address_of(data), self.size)

    def get(self, number: int, data: memoryview) -> None:
        """Copies from a block."""
        ctypes.memmove(address_of(data), self.start + number * self.size, self.size)


def address_of(data: memoryview) -> int:
    """Where memory is."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


def put_file(folder: Path, number: int, data: memoryview) -> None:
    """Writes a file as a whole: under another name first."""
    beside, path = f"{folder}/{number}.new", f"{folder}/{number}"
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        done = 0
        while done < len(data):
            done += os.write(file, data[done:])
    finally:
        os.close(file)
    os.rename(beside, path)


def get_file(folder: Path, number: int, data: memoryview) -> None:
    """Reads a file into memory."""
    file = os.open(f"{folder}/{number}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        done = 0
        while done < len(data):
            got = os.readv(file, [data[done:]])
            if got == 0:
                raise RuntimeError("a file is too short")
            done += got
    finally:
        os.close(file)


def timed(operation: Callable[[int, memoryview], object], data: memoryview, start: int, blocks: int) -> list[float]:
    """Seconds of each operation of one measurement, on blocks in turn from one on."""
    seconds: list[float] = []
    for number in range(WARM_UP):
        operation((start + number) % blocks, data)
    begin = time.perf_counter()
    end = begin + SLOT_SECONDS
    number = start + WARM_UP
    while (begin < end or len(seconds) < OPERATIONS[0]) and len(seconds) < OPERATIONS[1]:
        operation(number % blocks, data)
        now = time.perf_counter()
        seconds.append(now - begin)
        begin = now
        number += 1
    return seconds


def row(case: Case, size: int, direction: str, repeat: int, seconds: list[float]) -> dict[str, Any]:
    """The figures of a measurement."""
    ranked = sorted(seconds)
    return {
        "case": case.name,
        "size": size,
        "direction": direction,
        "repeat": repeat,
        "count": len(seconds),
        "least_s": ranked[0],
        "median_s": statistics.median(ranked),
        "p99_s": ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))],
        "bytes_per_second": size * len(seconds) / sum(seconds),
    }


def check(found: list[Case], size: int) -> None:
    """Makes sure that each system gives back what was put."""
    data = memoryview(bytearray(os.urandom(size)))
    for case in found:
        case.put(1 if not case.is_hot else 0, data)
        back = memoryview(bytearray(size))
        case.get(1 if not case.is_hot else 0, back)
        if back != data:
            raise RuntimeError(f"{case.title} gives back other bytes than were put")


def measure(folder: Path, repeats: int) -> dict[str, Any]:
    """All sizes; within one, each repeat has all systems in turn, beginning with another one."""
    rows, loads = [], [os.getloadavg()[0]]
    titles: dict[str, str] = {}
    for size in SIZES:
        with cases(folder, size) as found:
            check(found, size)
            titles |= {case.name: case.title for case in found}
            data = memoryview(bytearray(os.urandom(size)))
            blocks = blocks_of(size)
            for repeat in range(repeats):
                for direction in ("put", "get"):
                    for case in found[repeat % len(found) :] + found[: repeat % len(found)]:
                        operation = case.put if direction == "put" else case.get
                        rows.append(row(case, size, direction, repeat, timed(operation, data, repeat * 17, blocks)))
        loads.append(os.getloadavg()[0])
        print(f"{size} bytes: load {loads[-1]:.1f}", flush=True)
    return {"titles": titles, "repeats": repeats, "loads": loads, "rows": rows}
