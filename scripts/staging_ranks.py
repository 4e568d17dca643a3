"""The processes of the experiment with tiers: ranks that compute and write a block at each step, those that empty
buffers to the file system, and others that write to the same disks. All I/O is direct.

They are started once and told each run, so that no start of Python is measured."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK_BYTES = 8 << 20
PIECE_BYTES = 1 << 20
# How often a write that waits for room looks, and one that empties looks for blocks.
LOOK_SECONDS = 0.005
ROOM_SECONDS_MAX = 60.0
# The share of its computing time by which a rank may differ.
VARIATION = 0.2
# Others on a disk: in each period some time at some share of its bandwidth, with so many requests at once.
OTHERS_PERIOD_SECONDS = 6.0
OTHERS_ON_SECONDS = 2.0
OTHERS_SHARE = (0.3, 0.8)
OTHERS_REQUESTS = 4
OTHERS_BYTES = 32 << 20


@dataclass(frozen=True)
class Target:
    """A directory on a disk, and the bandwidth that it was made with."""

    name: str
    path: str
    bytes_per_second: float


@dataclass(frozen=True)
class Run:
    """What ranks are told of a run."""

    policy: str
    seed: int
    steps: int
    compute_seconds: float


@dataclass(frozen=True)
class Together:
    """What ranks share: a barrier, and the targets that one of them has chosen for all."""

    barrier: Any
    chosen: Any


@dataclass(frozen=True)
class Written:
    """A step of a rank, in seconds of the monotonic clock."""

    step: int
    begin: float
    end: float
    target: int
    # Of the time from begin to end: for the question where to write, and for the wait for room.
    asked: float
    waited: float


def aligned(size: int) -> mmap.mmap:
    """Memory that direct I/O can use."""
    memory = mmap.mmap(-1, size)
    memory.write(random.Random(size).randbytes(PIECE_BYTES) * (size // PIECE_BYTES))
    return memory


def write_block(folder: str, name: str, memory: mmap.mmap) -> float:
    """Writes a block as a file, and returns how long it has waited for room. Room is taken before the first byte."""
    path = f"{folder}/{name}"
    file = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    try:
        waited = wait_for_room(file, len(memory))
        view = memoryview(memory)
        for start in range(0, len(memory), PIECE_BYTES):
            if os.pwrite(file, view[start : start + PIECE_BYTES], start) != PIECE_BYTES:
                raise OSError(errno.EIO, "a write was cut short")
    finally:
        os.close(file)
    os.rename(f"{path}.part", f"{path}.block")
    return waited


def wait_for_room(file: int, size: int) -> float:
    """Takes room for a file, and waits for it if there is none; returns the seconds."""
    begin = time.monotonic()
    is_first = True
    while True:
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            if error.errno != errno.ENOSPC or time.monotonic() > begin + ROOM_SECONDS_MAX:
                raise
            # What it has got so far would keep others from theirs.
            os.ftruncate(file, 0)
            is_first = False
            time.sleep(LOOK_SECONDS)
            continue
        return 0.0 if is_first else time.monotonic() - begin


def free_bytes(path: str) -> int:
    """Bytes that can be written to the file system of a directory."""
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize


# ---- Policies ----


class Chooser:
    """Chooses a target for each block, by the policy of a run. The last target is the file system, the others are
    buffers."""

    def __init__(self, targets: list[Target], run_dir: str, ranks: int) -> None:
        import barograph

        self.targets, self.ranks = targets, ranks
        self.number = {target.path: at for at, target in enumerate(targets)}
        self.agent = barograph.Adviser(run_dir)
        # Where no agent is, an adviser hashes by the weights that it is given.
        self.hashing = barograph.Adviser(f"{run_dir}/none")
        self.decision: int | None = None

    def choose(self, policy: str, rank: int, step: int) -> int:
        """The number of the target."""
        self.decision = None
        pfs, turn = len(self.targets) - 1, step * self.ranks + rank
        if policy == "pfs":
            return pfs
        if policy == "blind":
            return turn % pfs
        if policy == "capacity":
            return next_with_room([free_bytes(target.path) for target in self.targets[:-1]], turn, BLOCK_BYTES)
        key = f"step-{step}/rank-{rank}"
        if policy == "hashing":
            weighted = [(target.path, target.bytes_per_second / 1e6) for target in self.targets[:-1]]
            return self.of_path(self.hashing.advise(weighted, BLOCK_BYTES, [key]).blocks[0].path)
        advice = self.agent.advise([target.path for target in self.targets], BLOCK_BYTES, [key], label=f"step {step}")
        self.decision = advice.decision
        return self.of_path(advice.blocks[0].path)

    def of_path(self, path: str | None) -> int:
        """The number of the target with a path; that of the file system if nothing has room."""
        return len(self.targets) - 1 if path is None else self.number[path]

    def choose_all(self, step: int) -> list[int]:
        """The numbers of the targets of all ranks, by one question to the agent."""
        keys = [f"step-{step}/rank-{rank}" for rank in range(self.ranks)]
        advice = self.agent.advise([target.path for target in self.targets], BLOCK_BYTES, keys, label=f"step {step}")
        return [self.of_path(block.path) for block in advice.blocks]

    def report(self, seconds: float) -> None:
        """Tells the agent what came of the last choice, if that was its own."""
        if self.decision is not None:
            self.agent.report(self.decision, BLOCK_BYTES, seconds)


def next_with_room(free: list[int], turn: int, size: int) -> int:
    """The number of the next buffer in turn that has room; if none has, that of the file system, which is the last."""
    order = [(turn + at) % len(free) for at in range(len(free))]
    return next((at for at in order if free[at] >= size), len(free))


# ---- The processes ----


def rank_process(
    rank: int, ranks: int, targets: list[Target], run_dir: str, together: Together, tasks: Any, answers: Any
) -> None:
    """A rank: answers each run that it is told with its steps; ends when it is told None."""
    chooser, memory = Chooser(targets, run_dir, ranks), aligned(BLOCK_BYTES)
    while (run := tasks.get()) is not None:
        answers.put((rank, rank_run(rank, run, chooser, memory, together)))


def rank_run(rank: int, run: Run, chooser: Chooser, memory: mmap.mmap, together: Together) -> list[Written]:
    """The steps of a rank in a run. Computing is sleeping, so that it takes no processor from others."""
    drawn = random.Random(run.seed * 1000 + rank)
    steps = []
    for step in range(run.steps):
        time.sleep(run.compute_seconds * drawn.uniform(1 - VARIATION, 1 + VARIATION))
        together.barrier.wait(ROOM_SECONDS_MAX)
        begin = time.monotonic()
        if run.policy == "ours-together":
            # The first rank asks for all, which wait for it.
            chooser.decision = None
            if rank == 0:
                together.chosen[:] = chooser.choose_all(step)
            together.barrier.wait(ROOM_SECONDS_MAX)
            target = together.chosen[rank]
        else:
            target = chooser.choose(run.policy, rank, step)
        asked = time.monotonic() - begin
        waited = write_block(chooser.targets[target].path, f"{step:03}-{rank:03}", memory)
        end = time.monotonic()
        steps.append(Written(step, begin, end, target, asked, waited))
        chooser.report(end - begin - asked)
    return steps


def drain_process(buffer: str, pfs: str, is_on: Any, is_idle: Any, is_over: Any) -> None:
    """Empties a buffer to the file system, a block at a time, the oldest first, as long as it is on."""
    memory = aligned(PIECE_BYTES)
    while not is_over.is_set():
        oldest = min(Path(buffer).glob("*.block"), default=None) if is_on.is_set() else None
        if oldest is None:
            is_idle.set()
            time.sleep(LOOK_SECONDS)
            continue
        is_idle.clear()
        drain_block(oldest, f"{pfs}/{Path(buffer).name}-{oldest.stem}", memory)


def drain_block(source: Path, path: str, memory: mmap.mmap) -> None:
    """Copies a block to the file system, and removes it where it was."""
    with contextlib.ExitStack() as open_files:
        read = os.open(source, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        open_files.callback(os.close, read)
        written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT | os.O_CLOEXEC, 0o600)
        open_files.callback(os.close, written)
        at = 0
        while (got := os.preadv(read, [memory], at)) > 0:
            os.pwrite(written, memoryview(memory)[:got], at)
            at += got
    source.unlink()


def others_process(path: str, bytes_per_second: float, number: int, tasks: Any) -> None:
    """Others that use a disk: writes to a file of theirs during a run, of which it is told the seed and the seconds;
    ends when it is told None. What the disk does not take at that rate is not made up for."""
    file = os.open(f"{path}/others", os.O_WRONLY | os.O_CREAT | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    os.posix_fallocate(file, 0, OTHERS_BYTES)
    memory = aligned(PIECE_BYTES)
    while (told := tasks.get()) is not None:
        seed, seconds = told
        requests = others_requests(random.Random(seed * 10 + number), bytes_per_second, seconds)
        begin = time.monotonic()
        threads = [
            others_thread(file, memory, begin, requests[n::OTHERS_REQUESTS], tasks) for n in range(OTHERS_REQUESTS)
        ]
        for thread in threads:
            thread.join()
    os.close(file)


def others_thread(file: int, memory: mmap.mmap, begin: float, times: list[float], tasks: Any) -> threading.Thread:
    """A thread that writes at times after the begin, or as soon as the write before has ended, until the next task is
    there."""

    def write() -> None:
        for at, due in enumerate(times):
            while (left := begin + due - time.monotonic()) > 0:
                if not tasks.empty():
                    return
                time.sleep(min(left, 0.1))
            if left > -0.5:
                os.pwrite(file, memory, at * PIECE_BYTES % OTHERS_BYTES)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def others_requests(drawn: random.Random, bytes_per_second: float, seconds: float) -> list[float]:
    """When others begin to write a piece, in seconds after the begin of a run."""
    times = []
    period = 0.0
    while period < seconds:
        start = period + drawn.uniform(0, OTHERS_PERIOD_SECONDS - OTHERS_ON_SECONDS)
        between = PIECE_BYTES / (bytes_per_second * drawn.uniform(*OTHERS_SHARE))
        times += [start + at * between for at in range(int(OTHERS_ON_SECONDS / between))]
        period += OTHERS_PERIOD_SECONDS
    return times
