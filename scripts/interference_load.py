"""The programs of the interference experiment, each a process in a control group of its own: a writer of checkpoints,
and a reader of a packed array.

    interference_load.py writer|reader SETTINGS

SETTINGS is JSON. Times in it are those of the monotonic clock, which all processes share, so that they begin
together. Each checkpoint and each step of reading is a line of JSON on the standard output."""

from __future__ import annotations

import http.client
import itertools
import json
import mmap
import os
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PIECE_BYTES = 1 << 20
# Direct I/O is in whole blocks.
BLOCK_BYTES = 4096
READER_THREADS = 4
AGENT_SECONDS_MAX = 2


def main() -> None:
    """Enters the group, and works until the end."""
    role, settings = sys.argv[1], json.loads(sys.argv[2])
    Path(settings["group"], "cgroup.procs").write_text(str(os.getpid()))
    {"writer": write, "reader": read}[role](settings)


def periods(begin: float, period: float, end: float) -> Iterator[tuple[float, int]]:
    """Waits for each period, and gives its time since the beginning and the periods that passed while the one before
    was still at work: work that takes too long is not made up for."""
    at, late = 0, 0
    while begin + at * period < end:
        time.sleep(max(0.0, begin + at * period - time.monotonic()))
        yield at * period, late
        following = max(at + 1, -int(-(time.monotonic() - begin) // period))
        late = following - at - 1
        at = following


def tell(**facts: object) -> None:
    """Prints a line."""
    print(json.dumps(facts), flush=True)


# ---- The writer ----


def write(settings: dict[str, Any]) -> None:
    """Writes a checkpoint in each period, one piece after the other, over the one before."""
    buffer = mmap.mmap(-1, PIECE_BYTES)
    descriptor = os.open(settings["path"], os.O_WRONLY | os.O_DIRECT)
    for at, late in periods(settings["begin"], settings["period_s"], settings["end"]):
        start = time.monotonic()
        for offset in range(0, settings["bytes"], PIECE_BYTES):
            os.pwrite(descriptor, buffer, offset)
        tell(at=at, late=late, seconds=time.monotonic() - start, bytes=settings["bytes"])


# ---- The reader ----


@dataclass(frozen=True)
class Packed:
    """The places of the buckets of a packed array, and the error of a reading that ends with each."""

    ends: list[int]
    errors: list[float]

    @staticmethod
    def of(inspected: dict[str, Any]) -> Packed:
        """From what `baro data inspect --json` says of it."""
        buckets = inspected["buckets"]
        return Packed([bucket["bytes_so_far"] for bucket in buckets], [bucket["error"]["nrmse"] for bucket in buckets])

    def error_of(self, length: int) -> float | None:
        """The error of a reading of the first bytes; None if they are not even a bucket."""
        within = [error for end, error in zip(self.ends, self.errors, strict=True) if end <= length]
        return within[-1] if within else None

    def needed(self, error: float | None) -> int:
        """The bytes to the first bucket that keeps a bound; the base without one, all if no bucket keeps it."""
        if error is None:
            return self.ends[0]
        keeping = (end for end, reached in zip(self.ends, self.errors, strict=True) if reached <= error)
        return next(keeping, self.ends[-1])

    def question(self, path: str, error: float | None, priority: int, period_s: float) -> dict[str, Any]:
        """What the agent is asked before each step; the first bucket is the base, which is always read."""
        sizes = [end - begin for begin, end in itertools.pairwise(self.ends)]
        buckets = [{"bytes": size, "nrmse": nrmse} for size, nrmse in zip(sizes, self.errors[1:], strict=True)]
        return {
            "path": path,
            "label": Path(path).name,
            "buckets": buckets,
            "base_bytes": self.ends[0],
            "base_nrmse": self.errors[0],
            "error": None if error is None else {"nrmse": error},
            "priority": priority,
            "interval_s": period_s,
            "dry_run": False,
        }


class OverSocket(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=AGENT_SECONDS_MAX)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Refused(Exception):
    """The agent did not answer, or said why it would not."""


def ask(control: str, way: str, question: dict[str, Any]) -> dict[str, Any]:
    """One call of the agent over its control socket; `way` is plan or report."""
    connection = OverSocket(control)
    try:
        body = json.dumps(question)
        connection.request("POST", f"/api/v1/control/{way}", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise Refused(f"no answer: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise Refused(f"{response.status}: {text[:500]}")
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise Refused(f"no JSON: {text[:100]}") from error
    if not isinstance(answer, dict):
        raise Refused(f"no object: {text[:100]}")
    return answer


# What is kept of an answer of the agent, for the results.
KEPT = ("decision", "buckets", "degree", "bandwidth", "weight", "weight_reason", "reason")


class Reader:
    """Reads the beginning of a packed array in each step."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.packed = Packed(settings["ends"], settings["errors"])
        self.descriptor = os.open(settings["path"], os.O_RDONLY | os.O_DIRECT)
        self.pool = ThreadPoolExecutor(READER_THREADS)
        self.buffers = [mmap.mmap(-1, PIECE_BYTES) for _ in range(READER_THREADS)]

    def step(self) -> dict[str, Any]:
        """One step, with the agent's plan if there is an agent; says what was read and how long that took."""
        control = self.settings.get("control")
        if control is None:
            return self.took(self.settings["bytes"])
        try:
            question = self.packed.question(*(self.settings[name] for name in ("path", "error", "priority", "period_s")))
            answer = ask(control, "plan", question)
            length = self.planned(answer)
        except (Refused, KeyError, TypeError, ValueError) as error:
            # Without an agent, a reader reads what its bound needs.
            return self.took(self.packed.needed(self.settings["error"])) | {"refused": f"plan: {error}"}
        taken = self.took(length) | {"plan": {name: answer.get(name) for name in KEPT}}
        done = {"decision": answer.get("decision"), "bytes": length, "seconds": taken["seconds"], "nrmse": taken["nrmse"]}
        try:
            ask(control, "report", done)
        except Refused as error:
            taken["refused"] = f"report: {error}"
        return taken

    def planned(self, answer: dict[str, Any]) -> int:
        """The bytes that a plan wants: whole buckets, and the beginning of the next one if that is to measure the disk."""
        whole = self.packed.ends[min(max(int(answer["buckets"]), 0), len(self.packed.ends) - 1)]
        probe = answer.get("probe") or {}
        return min(whole + max(int(probe.get("bytes", 0)), 0), self.packed.ends[-1])

    def took(self, length: int) -> dict[str, Any]:
        """Reads the first bytes with all threads, each of which takes the next piece."""
        whole = -(-length // BLOCK_BYTES) * BLOCK_BYTES
        offsets = iter(range(0, whole, PIECE_BYTES))
        start = time.monotonic()
        read = sum(self.pool.map(lambda buffer: self.pieces(buffer, offsets, whole), self.buffers))
        seconds = time.monotonic() - start
        if read < length:
            raise OSError(f"{self.settings['path']}: {read} bytes of {length} were read")
        return {"seconds": seconds, "bytes": length, "nrmse": self.packed.error_of(length)}

    def pieces(self, buffer: mmap.mmap, offsets: Iterator[int], whole: int) -> int:
        """Reads pieces as long as there are some; the iterator gives each to one thread alone."""
        read = 0
        for offset in offsets:
            view = memoryview(buffer)[: min(PIECE_BYTES, whole - offset)]
            read += os.preadv(self.descriptor, [view], offset)
        return read


class PackageReader:
    """Reads as an analysis does, with the package of Python: through the page cache, and decoded. Its time is that until
    the values are there."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from barograph import progressive

        path, control = settings["path"], settings["control"]
        more = {"agent": control is not None, "interval": settings["period_s"]}
        if control is not None:
            more["run_dir"] = str(Path(control).parent)
        # Without an agent, all is read.
        self.array = progressive.open(path, settings["error"], settings["priority"], **more)
        self.descriptor = os.open(path, os.O_RDONLY)

    def step(self) -> dict[str, Any]:
        """One step; the page cache does not have the file at its beginning."""
        os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.monotonic()
        self.array.read()
        seconds = time.monotonic() - start
        last = self.array.last
        plan = {"decision": last.id, "buckets": last.buckets, "degree": last.degree, "weight": last.weight}
        plan |= {"weight_reason": last.weight_reason, "reason": last.reason}
        facts = {"seconds": seconds, "bytes": last.bytes, "nrmse": last.nrmse, "plan": plan}
        return facts if last.reported or last.id is None else facts | {"refused": last.reason}


def read(settings: dict[str, Any]) -> None:
    """Reads in each period."""
    reader = PackageReader(settings) if settings["is_package"] else Reader(settings)
    for at, late in periods(settings["begin"], settings["period_s"], settings["end"]):
        tell(at=at, late=late, **reader.step())


if __name__ == "__main__":
    main()
