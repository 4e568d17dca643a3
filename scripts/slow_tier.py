"""An emulated slow tier: bench/slow_disk as a block device with a file system and control groups, set up and
taken down as a whole.

The disk has one server that reads and writes share. On it are a loop device with direct I/O, the scheduler bfq without
its favours for interactive programs, ext4, and a control group of its own for each program that is measured.

Everything has a fixed name or lies below one folder, so what a killed run has left behind is found and removed by
the next one."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import packages
from steps import ROOT

SOURCE = ROOT / "bench" / "slow_disk" / "slow_disk.c"
# The control group above those of the programs, and only ever ours.
GROUP = "barograph-interference"
# Programs that are needed, with the Debian packages that have them.
NEEDED = {"cc": "gcc", "losetup": "mount", "mount": "mount", "mkfs.ext4": "e2fsprogs"}
HEADER = Path("/usr/include/linux/fuse.h")
# Memory that has to be free beside the content of the disk.
SPARE_MEBIBYTES = 1024
# The number of the capability with which file systems are mounted (capabilities(7)).
CAP_SYS_ADMIN = 21
# How long the parts may take to come up and to go away.
SECONDS_MAX = 20


class Missing(Exception):
    """Something that the tier needs and that this machine does not have, in one sentence."""


@dataclass(frozen=True)
class Disk:
    """The emulated disk. These figures are those of the hard disk that Tango was measured on, roughly."""

    mebibytes: int = 1024
    megabytes_per_second: float = 120
    seek_milliseconds: float = 4


@dataclass(frozen=True)
class Groups:
    """A hierarchy of control groups in which bfq has weights."""

    root: Path
    version: int
    name: str = GROUP

    @property
    def folder(self) -> Path:
        return self.root / self.name

    @property
    def weight_file(self) -> str:
        return "blkio.bfq.weight" if self.version == 1 else "io.bfq.weight"

    def make(self, names: list[str]) -> None:
        """Makes the groups with the default weight."""
        self.folder.mkdir()
        if self.version == 2:
            (self.folder / "cgroup.subtree_control").write_text("+io")
        for name in names:
            (self.folder / name).mkdir()

    @contextlib.contextmanager
    def with_controller(self) -> Iterator[None]:
        """Enables the I/O controller for groups of the root, where version 2 needs that, as long as it is in use."""
        enabled = self.root / "cgroup.subtree_control"
        if self.version == 1 or "io" in enabled.read_text().split():
            yield
            return
        enabled.write_text("+io")
        try:
            yield
        finally:
            enabled.write_text("-io")

    def set_weight(self, name: str, weight: int) -> None:
        """Sets a weight, and makes sure that the kernel has taken it."""
        file = self.folder / name / self.weight_file
        file.write_text(str(weight))
        if self.weight(name) != weight:
            raise Missing(f"{file} has {file.read_text()!r} after {weight} was written to it")

    def weight(self, name: str) -> int:
        """The weight of a group; its file may say `default` before the number."""
        return int((self.folder / name / self.weight_file).read_text().split()[-1])


@dataclass(frozen=True)
class Tier:
    """A slow tier that is there."""

    mount: Path
    device: str
    groups: Groups
    disk: Disk


def find_groups(mounts: str, controllers: Callable[[Path], str]) -> Groups | None:
    """The hierarchy with the I/O controller, from the text of /proc/self/mounts and what `controllers` reads of a
    hierarchy of version 2. Version 1 comes first: where both are mounted, its hierarchy has the controller."""
    rows = [row.split() for row in mounts.splitlines()]
    for row in rows:
        if len(row) > 3 and row[2] == "cgroup" and "blkio" in row[3].split(","):
            return Groups(Path(row[1]), 1)
    for row in rows:
        if len(row) > 3 and row[2] == "cgroup2" and "io" in controllers(Path(row[1])).split():
            return Groups(Path(row[1]), 2)
    return None


def controllers_of(root: Path) -> str:
    """The controllers of a hierarchy of version 2."""
    with contextlib.suppress(OSError):
        return (root / "cgroup.controllers").read_text()
    return ""


def groups_here() -> Groups | None:
    """The hierarchy of this machine."""
    return find_groups(Path("/proc/self/mounts").read_text(), controllers_of)


def available_mebibytes(meminfo: str) -> int:
    """Memory that programs can have, from the text of /proc/meminfo."""
    for row in meminfo.splitlines():
        if row.startswith("MemAvailable:"):
            return int(row.split()[1]) >> 10
    return 0


def may_mount(status: str) -> bool:
    """Whether a process may mount, from the text of its /proc/<pid>/status."""
    sets = dict(row.split(":", 1) for row in status.splitlines() if ":" in row)
    return bool(int(sets.get("CapEff", "0").strip(), 16) >> CAP_SYS_ADMIN & 1)


def missing(disk: Disk, root: Path = Path("/"), user: int | None = None) -> str | None:
    """What this machine lacks for the tier, or None. `root` and `user` are for tests."""
    if (os.geteuid() if user is None else user) != 0:
        return "the emulated disk needs root: mounts, loop devices and control groups are made"
    if not may_mount((root / "proc/self/status").read_text()):
        return "root may not mount here: give this container the capability SYS_ADMIN, or use the machine itself"
    for device, option in {"dev/fuse": "CONFIG_FUSE_FS", "dev/loop-control": "CONFIG_BLK_DEV_LOOP"}.items():
        if not (root / device).exists():
            return f"/{device} is not there: load its module or use a kernel with {option}"
    for program, package in NEEDED.items():
        if not shutil.which(program):
            return f"{program} is not installed: apt-get install {package}"
    if not (root / HEADER.relative_to("/")).exists():
        return f"{HEADER} is not there: apt-get install linux-libc-dev"
    free = available_mebibytes((root / "proc/meminfo").read_text())
    if free < disk.mebibytes + SPARE_MEBIBYTES:
        return f"the disk keeps {disk.mebibytes} MiB in memory and {free} MiB are available: {disk.mebibytes + SPARE_MEBIBYTES} are needed"
    mounts = (root / "proc/self/mounts").read_text()
    groups = find_groups(mounts, lambda place: controllers_of(root / place.relative_to("/")))
    if groups is None:
        return "no control groups with the controller blkio (version 1) or io (version 2) are mounted"
    if not os.access(root / groups.root.relative_to("/"), os.W_OK):
        return f"no control groups can be made in {groups.root}: mount it for writing"
    return None


def install() -> None:
    """Installs what is missing with the system's package manager, as root."""
    wanted = {package for program, package in NEEDED.items() if not shutil.which(program)}
    if not HEADER.exists():
        wanted.add("linux-libc-dev")
    if wanted:
        packages.install("slow tier", *sorted(wanted))


@contextlib.contextmanager
def running(folder: Path, disk: Disk, names: list[str], group: str = GROUP) -> Iterator[Tier]:
    """Sets up the tier below `folder`, with a control group for each name below `group`; takes it down at the end, also
    after a failure, and before it begins whatever an earlier run has left. Raises Missing if the machine cannot have it."""
    lack = missing(disk)
    groups = groups_here()
    if lack or groups is None:
        raise Missing(lack or "no control groups are mounted")
    groups = replace(groups, name=group)
    take_down(folder, groups)
    with groups.with_controller():
        try:
            yield set_up(folder, disk, groups, names)
        finally:
            take_down(folder, groups)


def set_up(folder: Path, disk: Disk, groups: Groups, names: list[str]) -> Tier:
    """Makes the disk, its device, its file system and the groups."""
    folder.mkdir(parents=True)
    program, file, mount = folder / "slow_disk", folder / "disk", folder / "mount"
    run(["cc", "-std=gnu11", "-O2", "-o", program, SOURCE, "-lpthread"])
    file.touch()
    mount.mkdir()
    words = [program, file, disk.mebibytes, disk.megabytes_per_second, disk.seek_milliseconds]
    # The program ends when its file is unmounted, so nobody has to keep its number.
    with (folder / "log").open("wb") as log:
        subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    wait_for(lambda: is_mounted(file), lambda: f"the emulated disk did not come up: {(folder / 'log').read_text()}")
    try:
        device = run(["losetup", "--find", "--show", "--direct-io=on", file]).strip()
    except RuntimeError as error:
        raise Missing(f"no loop device can be had: {error}") from error
    queue = Path("/sys/block") / Path(device).name / "queue"
    if (queue.parent / "loop" / "dio").read_text().strip() != "1":
        raise Missing(f"{device} has no direct I/O, without which its cache would be measured: use a newer kernel")
    try:
        (queue / "scheduler").write_text("bfq")
    except OSError:
        raise Missing("the kernel has no scheduler bfq: load its module (modprobe bfq) or use a kernel with CONFIG_IOSCHED_BFQ") from None
    (queue / "iosched" / "low_latency").write_text("0")
    # It has a head that moves, which the scheduler takes into account.
    (queue / "rotational").write_text("1")
    # All tables are written now: otherwise the kernel would write them during the measurement.
    run(["mkfs.ext4", "-q", "-F", "-N", "1024", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", device])
    run(["mount", "-o", "noatime", device, mount])
    groups.make(names)
    if not (groups.folder / names[0] / groups.weight_file).exists():
        raise Missing(f"control groups have no {groups.weight_file}: use a kernel with CONFIG_BFQ_GROUP_IOSCHED")
    return Tier(mount, device, groups, disk)


def take_down(folder: Path, groups: Groups) -> None:
    """Removes the tier below `folder` as far as it is there. Raises RuntimeError if something stays."""
    left = []
    for step in (
        lambda: remove_groups(groups.folder),
        lambda: unmount(folder / "mount"),
        lambda: detach(folder / "disk"),
        lambda: unmount(folder / "disk"),
        lambda: shutil.rmtree(folder) if folder.exists() else None,
    ):
        try:
            step()
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            left.append(str(error))
    if left:
        raise RuntimeError("the slow tier could not be taken down: " + "; ".join(left))


def remove_groups(folder: Path) -> None:
    """Ends the programs in our groups, which were started by a run of this, and removes the groups."""
    if not folder.is_dir():
        return
    for group in sorted(path for path in folder.iterdir() if path.is_dir()):
        for number in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
        wait_for(lambda group=group: removed(group), lambda group=group: f"{group} still has processes")
    wait_for(lambda: removed(folder), lambda: f"{folder} cannot be removed")


def removed(group: Path) -> bool:
    """Whether a group is gone, which it is not as long as a process of it ends."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def unmount(place: Path) -> None:
    """Unmounts a place. What still uses it a moment later is left with a mount that nobody else sees."""
    if not is_mounted(place):
        return
    deadline = time.monotonic() + SECONDS_MAX / 4
    while time.monotonic() < deadline:
        if subprocess.run(["umount", place], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.2)
    run(["umount", "--lazy", place])


def detach(file: Path) -> None:
    """Detaches the loop devices of a file."""
    for device in loop_devices(file, Path("/sys/block")):
        run(["losetup", "--detach", f"/dev/{device}"])
    wait_for(lambda: not loop_devices(file, Path("/sys/block")), lambda: f"a loop device of {file} is still in use")


def loop_devices(file: Path, blocks: Path) -> list[str]:
    """The names of the loop devices of a file."""
    found = []
    for backing in sorted(blocks.glob("loop*/loop/backing_file")):
        with contextlib.suppress(OSError):
            if backing.read_text().strip().removesuffix(" (deleted)") == str(file):
                found.append(backing.parent.parent.name)
    return found


def is_mounted(place: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether something is mounted at a place."""
    escaped = str(place).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    return any(row.split(" ")[1] == escaped for row in mounts.read_text().splitlines())


def wait_for(is_done: Callable[[], bool], failure: Callable[[], str]) -> None:
    """Waits for something that takes a moment; raises RuntimeError if it takes too long."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_done():
        if time.monotonic() > deadline:
            raise RuntimeError(failure())
        time.sleep(0.05)


def run(command: list[object]) -> str:
    """The output of a command; raises RuntimeError with its complaint."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(str(command[0])).name}: {done.stderr.strip() or done.returncode}")
    return done.stdout
