"""Data placement with real processes on emulated tiers: ranks of an application that computes and writes, shaped as
VPIC-IO, on four disks of bench/slow_disk with ext4, beside a real agent that observes them.

It needs root, and what scripts/slow_tier.py needs but control groups."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agent
import slow_tier
import staging_servers
from slow_tier import Missing
from staging_loss import SPAWN
from staging_ranks import (
    BLOCK_BYTES,
    OTHERS_BYTES,
    Run,
    Target,
    Together,
    Written,
    drain_process,
    others_process,
    rank_process,
)

RANKS = 8
STEPS = 8
COMPUTE_SECONDS = 0.6
POLICIES = {
    "pfs": "file system only",
    "blind": "round robin, blind",
    "capacity": "round robin, capacity-aware",
    "hashing": "hashing",
    "ours": "ours, a question of each rank",
    "ours-together": "ours, one question for all ranks",
}
POLL_MILLISECONDS = 200
# Of unshare(2).
CLONE_NEWNS = 0x20000
# Longest time of a run, for which the load of others is drawn.
RUN_SECONDS_MAX = 120.0
# After a run, until all that was written counts as gone.
SETTLE_SECONDS = 1.0
# Blocks of 4 KiB and all tables written: otherwise the kernel would write them during the measurement.
MKFS = "mkfs.ext4 -q -F -b 4096 -m 0 -N 1024 -O ^has_journal -E nodiscard,lazy_itable_init=0".split()


@dataclass(frozen=True)
class DiskShape:
    """An emulated disk, of which others take some in turns if it is shared."""

    name: str
    mebibytes: int
    megabytes_per_second: float
    is_shared: bool = False


DISKS = [
    DiskShape("nvme0", 48, 100),
    DiskShape("nvme1", 48, 100),
    DiskShape("bb0", 512 + (OTHERS_BYTES >> 20), 60, is_shared=True),
    DiskShape("pfs", 1536, 40, is_shared=True),
]


@dataclass(frozen=True)
class Disk:
    """A disk that is there."""

    shape: DiskShape
    device: str
    mount: Path

    @property
    def target(self) -> Target:
        """The directory of blocks on it."""
        return Target(self.shape.name, str(self.mount / self.shape.name), self.shape.megabytes_per_second * 1e6)


def unshare_mounts() -> None:
    """Gives this process mounts of its own: a process of somebody else that copies the mounts of the machine meanwhile
    would keep the disks in use after their end."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise Missing(f"this process may not have mounts of its own: {os.strerror(ctypes.get_errno())}")
    slow_tier.run(["mount", "--make-rprivate", "/"])


@contextlib.contextmanager
def disks(folder: Path) -> Iterator[list[Disk]]:
    """All disks, with file systems that are mounted below `folder`; they are taken down at the end."""
    memory = sum(shape.mebibytes for shape in DISKS)
    lack = slow_tier.missing(slow_tier.Disk(mebibytes=memory))
    if lack and "control groups" not in lack:
        raise Missing(lack)
    unshare_mounts()
    folder.mkdir()
    program = folder / "slow_disk"
    slow_tier.run(["cc", "-std=gnu11", "-O2", "-o", program, slow_tier.SOURCE, "-lpthread"])
    with contextlib.ExitStack() as ends:
        yield [ends.enter_context(disk(folder / shape.name, program, shape)) for shape in DISKS]


@contextlib.contextmanager
def disk(folder: Path, program: Path, shape: DiskShape) -> Iterator[Disk]:
    """One disk. Its file system has no journal, so that room of removed files is there at once."""
    file, mount = folder / "disk", folder / "mount"
    mount.mkdir(parents=True)
    file.touch()
    words = [program, file, shape.mebibytes, shape.megabytes_per_second, 0]
    with (folder / "log").open("wb") as log:
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
        process = subprocess.Popen(list(map(str, words)), **options)
    try:
        slow_tier.wait_for(lambda: slow_tier.is_mounted(file), lambda: f"no disk: {(folder / 'log').read_text()}")
        device = slow_tier.run(["losetup", "--find", "--show", "--direct-io=on", file]).strip()
        (Path("/sys/block") / Path(device).name / "queue" / "scheduler").write_text("none")
        slow_tier.run([*MKFS, device])
        slow_tier.run(["mount", "-o", "noatime", device, mount])
        (mount / shape.name).mkdir()
        yield Disk(shape, device, mount)
    finally:
        slow_tier.unmount(mount)
        slow_tier.detach(file)
        slow_tier.unmount(file)
        process.wait(slow_tier.SECONDS_MAX)
        shutil.rmtree(folder)


def config_of(found: list[Disk]) -> str:
    """The configuration of the agent: as an administrator writes it who knows the disks."""
    rates = ", ".join(f"{Path(disk.device).name} = {round(disk.shape.megabytes_per_second * 1e6)}" for disk in found)
    polled = "".join(f"[sources.poll.{name}]\ninterval_ms = {POLL_MILLISECONDS}\n" for name in ("disk", "filesystem"))
    return f"[sources.disk]\nskip = []\nbandwidth_max = {{ {rates} }}\nattributes_interval_ms = 1000\n{polled}"


class Application:
    """Ranks, those that empty buffers, and others on the disks: processes that go on from run to run."""

    def __init__(self, found: list[Disk], run_dir: str, ends: contextlib.ExitStack) -> None:
        targets = [disk.target for disk in found]
        self.targets = targets
        self.answers = SPAWN.Queue()
        self.is_on, self.is_over = SPAWN.Event(), SPAWN.Event()
        # Kept as long as the processes, which could not open it otherwise.
        self.together = Together(SPAWN.Barrier(RANKS), SPAWN.Array("i", RANKS))
        self.ranks = [SPAWN.Queue() for _ in range(RANKS)]
        shared = [disk for disk in found if disk.shape.is_shared]
        self.others = [SPAWN.Queue() for _ in shared]
        self.idle = [SPAWN.Event() for _ in targets[:-1]]
        works: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (rank_process, (n, RANKS, targets, run_dir, self.together, tasks, self.answers))
            for n, tasks in enumerate(self.ranks)
        ]
        works += [
            (drain_process, (target.path, targets[-1].path, self.is_on, idle, self.is_over))
            for target, idle in zip(targets[:-1], self.idle, strict=True)
        ]
        works += [
            (others_process, (str(disk.mount), disk.shape.megabytes_per_second * 1e6, n, tasks))
            for n, (disk, tasks) in enumerate(zip(shared, self.others, strict=True))
        ]
        self.processes = [SPAWN.Process(target=work, args=words, daemon=True) for work, words in works]
        ends.callback(self.end)
        for process in self.processes:
            process.start()

    def end(self) -> None:
        """Ends all processes: in order if they can, since nobody can unmount what they use."""
        self.is_over.set()
        for tasks in (*self.ranks, *self.others):
            tasks.put(None)
        deadline = time.monotonic() + 5
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()

    def run(self, run: Run) -> dict[str, Any]:
        """A run of a policy on empty tiers."""
        load = os.getloadavg()[0]
        self.is_on.set()
        for tasks in self.others:
            tasks.put((run.seed, RUN_SECONDS_MAX))
        for tasks in self.ranks:
            tasks.put(run)
        steps = dict(self.answers.get(timeout=RUN_SECONDS_MAX) for _ in self.ranks)
        self.is_on.clear()
        for tasks in self.others:
            # The others end a run as soon as there is another one for them: here one that is over at once.
            tasks.put((run.seed, 0.0))
        for event in self.idle:
            event.clear()
            event.wait(RUN_SECONDS_MAX)
        for target in self.targets:
            for file in Path(target.path).iterdir():
                file.unlink()
        time.sleep(SETTLE_SECONDS)
        return figures([steps[rank] for rank in range(RANKS)], len(self.targets)) | {
            "policy": run.policy,
            "seed": run.seed,
            "load": [load, os.getloadavg()[0]],
        }


def figures(ranks: list[list[Written]], targets: int) -> dict[str, Any]:
    """What is kept of a run. The I/O time of a step is that from its begin to the end of its last write."""
    steps, last_asked, unasked = [], 0.0, 0.0
    for of_step in zip(*ranks, strict=True):
        last = max(of_step, key=lambda it: it.end)
        steps.append(last.end - min(it.begin for it in of_step))
        last_asked += last.asked
        unasked += max(it.end - it.begin - it.asked for it in of_step)
    written = [it for rank in ranks for it in rank]
    return {
        "io_seconds": sum(steps),
        "steps": [round(step, 4) for step in steps],
        "targets": [sum(it.target == at for it in written) for at in range(targets)],
        "waits": sum(it.waited > 0 for it in written),
        "asked_seconds": sorted(round(it.asked, 6) for it in written),
        # Of the I/O time, the share of questions of those who were last, and of all ranks in the mean.
        # The I/O time if nobody had to ask.
        "unasked_seconds": unasked,
        "asked_share_last": last_asked / sum(steps),
        "asked_share": sum(it.asked for it in written) / sum(it.end - it.begin for it in written),
    }


def measure(folder: Path, repeats: int, policies: list[str], keep: Callable[[dict[str, Any]], None]) -> None:
    """Each repeat has all policies, beginning with another one, and the same load of others for each. What is measured
    is kept after each repeat."""
    with contextlib.ExitStack() as ends:
        found = ends.enter_context(disks(folder / "disks"))
        names = ends.enter_context(
            agent.running(staging_servers.BUILT / "baro", folder / "agent.log", config_of(found))
        )
        application = Application(found, names["BAROGRAPH_RUN_DIR"], ends)
        # The agent has looked at the disks twice by then, and the processes are there.
        time.sleep(5)
        runs: list[dict[str, Any]] = []
        for repeat in range(repeats):
            for policy in policies[repeat % len(policies) :] + policies[: repeat % len(policies)]:
                told = application.run(Run(policy, repeat, STEPS, COMPUTE_SECONDS))
                text = f"{told['io_seconds']:.2f} s, blocks {told['targets']}, {told['waits']} waited"
                print(f"{repeat + 1}/{repeats} {policy}: {text}", flush=True)
                runs.append(told | {"repeat": repeat})
            keep(settings() | {"repeats": repeat + 1, "runs": runs})


def settings() -> dict[str, Any]:
    """The figures of which the page tells."""
    return {
        "disks": [vars(shape) for shape in DISKS],
        "titles": POLICIES,
        "ranks": RANKS,
        "steps": STEPS,
        "compute_seconds": COMPUTE_SECONDS,
        "block_bytes": BLOCK_BYTES,
        "poll_ms": POLL_MILLISECONDS,
        "poll_default": "1 s for disks, 10 s for file systems",
    }
