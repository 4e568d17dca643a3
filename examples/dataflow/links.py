"""The emulated links between nodes: each byte that goes from one node to another passes the token bucket of
the sender's way out and that of the receiver's way in. All nodes are on this machine, and without this a read
from another one would be as fast as its loopback."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

# A node forwards so many bytes at a time, and a bucket lets as many pass at once.
CHUNK = 64 << 10


class Bucket:
    """A token bucket: bytes pass at a rate, in the order in which they come."""

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s = bytes_s
        self._free_s = 0.0
        self.passed = 0

    def book(self, length: int) -> float:
        """Books room for bytes, and gives the time at which the last one has passed."""
        self.passed += length
        full_s = time.monotonic() - CHUNK / self._bytes_s
        self._free_s = max(self._free_s, full_s) + length / self._bytes_s
        return self._free_s


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, buckets: Sequence[Bucket]) -> None:
    """Forwards one direction of a connection until its end."""
    while chunk := await reader.read(CHUNK):
        passed_s = max(bucket.book(len(chunk)) for bucket in buckets)
        if (wait_s := passed_s - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        writer.write(chunk)
        await writer.drain()


async def serve(servers: Sequence[tuple[str, int]], bytes_s: float, parent: Connection) -> None:
    """Listens for each pair of nodes, and forwards to the server of the first one until the parent ends."""
    nodes = range(len(servers))
    out = [Bucket(bytes_s) for _ in nodes]
    into = [Bucket(bytes_s) for _ in nodes]

    async def connect(pair: tuple[int, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        of, by = pair
        try:
            behind_reader, behind = await asyncio.open_connection(*servers[of])
        except OSError:
            writer.close()
            return
        ways = (
            asyncio.create_task(forward(reader, behind, (out[by], into[of]))),
            asyncio.create_task(forward(behind_reader, writer, (out[of], into[by]))),
        )
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        writer.close()
        behind.close()

    ports: dict[tuple[int, int], int] = {}
    for of in nodes:
        for by in nodes:
            if of != by:
                listening = await asyncio.start_server(partial(connect, (of, by)), "127.0.0.1", 0)
                ports[of, by] = listening.sockets[0].getsockname()[1]
    parent.send(ports)
    while await asyncio.to_thread(answers, parent):
        parent.send(sum(bucket.passed for bucket in out))


def answers(parent: Connection) -> bool:
    """Waits for the next question of the parent; false at its end."""
    try:
        return bool(parent.recv())
    except EOFError:
        return False


def run(servers: Sequence[tuple[str, int]], bytes_s: float, ours: Connection, theirs: Connection) -> None:
    theirs.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(serve(servers, bytes_s, ours))


class Links:
    """The links of a cluster, in a process of their own."""

    def __init__(self, servers: Sequence[tuple[str, int]], bytes_s: float) -> None:
        self._parent, child = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._process: BaseProcess = context.Process(
            target=run, args=(servers, bytes_s, child, self._parent), daemon=True
        )
        self._process.start()
        child.close()
        self._ports: dict[tuple[int, int], int] = self._parent.recv()

    def address(self, of: int, by: int) -> str:
        """The address of a node's server for another node."""
        return f"127.0.0.1:{self._ports[of, by]}"

    def passed(self) -> int:
        """Bytes that have passed between nodes, with all frames around blocks."""
        self._parent.send(True)
        return int(self._parent.recv())

    def stop(self) -> None:
        self._parent.send(False)
        self._process.join()
