"""The parts of the slow tier on fixture trees, and the whole of it where this machine can have it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import slow_tier
from slow_tier import Disk, Groups, Missing

V1 = "cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0\n"
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,relatime 0 0\n"
SMALL = Disk(mebibytes=64, megabytes_per_second=1000, seek_milliseconds=0)
GROUP = "barograph-test-slow-tier"


@pytest.mark.parametrize(
    ("mounts", "controllers", "expect"),
    [
        (V1, "", (1, "/sys/fs/cgroup/blkio")),
        (V2 + V1, "hugetlb", (1, "/sys/fs/cgroup/blkio")),
        (V2, "cpu io memory", (2, "/sys/fs/cgroup")),
        (V2, "cpu memory", None),
        ("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n", "io", None),
        ("", "", None),
        ("torn\n", "io", None),
    ],
)
def test_hierarchy(mounts, controllers, expect):
    found = slow_tier.find_groups(mounts, lambda _: controllers)
    assert (found and (found.version, str(found.root))) == expect


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """The root of a machine that has everything."""
    for file, text in {
        "dev/fuse": "",
        "dev/loop-control": "",
        "usr/include/linux/fuse.h": "",
        "proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable:    4194304 kB\n",
        "proc/self/mounts": V2,
        "proc/self/status": "Name:\tx\nCapEff:\t000001ffffffffff\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu io\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    monkeypatch.setattr(slow_tier.shutil, "which", lambda name: f"/bin/{name}")
    return tmp_path


def test_a_machine_with_everything(machine):
    assert slow_tier.missing(Disk(), machine, user=0) is None


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("dev/fuse", "/dev/fuse is not there: load its module"),
        ("dev/loop-control", "CONFIG_BLK_DEV_LOOP"),
        ("usr/include/linux/fuse.h", "apt-get install linux-libc-dev"),
        ("sys/fs/cgroup/cgroup.controllers", "no control groups"),
    ],
)
def test_what_is_missing_is_said(machine, gone, said):
    (machine / gone).unlink()
    assert said in slow_tier.missing(Disk(), machine, user=0)


def test_root_programs_and_memory_are_needed(machine, monkeypatch):
    assert "root" in slow_tier.missing(Disk(), machine, user=1000)
    assert "4096 MiB are available: 5024 are needed" in slow_tier.missing(Disk(mebibytes=4000), machine, user=0)
    monkeypatch.setattr(slow_tier.shutil, "which", lambda name: None if name == "losetup" else name)
    assert slow_tier.missing(Disk(), machine, user=0) == "losetup is not installed: apt-get install mount"


def test_root_without_rights(machine):
    (machine / "proc/self/status").write_text("CapEff:\t00000000a80425fb\n")
    assert "SYS_ADMIN" in slow_tier.missing(Disk(), machine, user=0)
    (machine / "proc/self/status").write_text("Name:\tx\n")
    assert "SYS_ADMIN" in slow_tier.missing(Disk(), machine, user=0)


def test_control_groups_that_cannot_be_made(machine, monkeypatch):
    monkeypatch.setattr(slow_tier.os, "access", lambda *_: False)
    assert "no control groups can be made in /sys/fs/cgroup" in slow_tier.missing(Disk(), machine, user=0)


@pytest.mark.parametrize(("before", "written"), [("cpu", ["+io", "-io"]), ("cpu io", ["cpu io"] * 2)])
def test_the_controller_is_enabled_for_as_long_as_it_is_used(tmp_path, before, written):
    file = tmp_path / "cgroup.subtree_control"
    file.write_text(before)
    seen = []
    with Groups(tmp_path, 2, GROUP).with_controller():
        seen.append(file.read_text())
    assert [*seen, file.read_text()] == written


def test_mounts_with_spaces_are_found(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text("slow_disk /a\\040b/disk fuse.slow_disk rw 0 0\n")
    assert slow_tier.is_mounted(Path("/a b/disk"), mounts)
    assert not slow_tier.is_mounted(Path("/a"), mounts)


def test_loop_devices_are_found_by_their_file(tmp_path):
    for device, file in {"loop0": "/x/disk", "loop1": "/y/disk", "loop2": "/x/disk (deleted)"}.items():
        (tmp_path / device / "loop").mkdir(parents=True)
        (tmp_path / device / "loop" / "backing_file").write_text(f"{file}\n")
    (tmp_path / "loop3").mkdir()
    assert slow_tier.loop_devices(Path("/x/disk"), tmp_path) == ["loop0", "loop2"]


@pytest.mark.parametrize(("text", "expect"), [("100\n", 100), ("default 250\n", 250)])
def test_weights_of_both_versions(tmp_path, text, expect):
    groups = Groups(tmp_path, 1, GROUP)
    (groups.folder / "reader").mkdir(parents=True)
    (groups.folder / "reader" / groups.weight_file).write_text(text)
    assert groups.weight("reader") == expect
    groups.set_weight("reader", 1000)
    assert groups.weight("reader") == 1000


def test_a_weight_that_is_not_taken_is_an_error(tmp_path, monkeypatch):
    groups = Groups(tmp_path, 2, GROUP)
    (groups.folder / "reader").mkdir(parents=True)
    monkeypatch.setattr(Groups, "weight", lambda *_: 100)
    with pytest.raises(Missing, match="after 1000 was written"):
        groups.set_weight("reader", 1000)


def test_nothing_is_taken_down_where_nothing_is(tmp_path):
    slow_tier.take_down(tmp_path / "tier", Groups(tmp_path / "cgroup", 1, GROUP))


def test_a_command_that_fails_says_why():
    with pytest.raises(RuntimeError, match="ls: .*none"):
        slow_tier.run(["ls", "/none"])


needs_compiler = pytest.mark.skipif(
    not (shutil.which("cc") and slow_tier.HEADER.exists()), reason="the disk is compiled with cc and the kernel's headers"
)


@needs_compiler
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "usage: slow_disk FILE"),
        (["x", "0", "120", "4"], "MEBIBYTES: 0 is no number from 1"),
        (["x", "64", "nan", "4"], "MEGABYTES_PER_SECOND: nan"),
        (["x", "64", "120", "-1"], "SEEK_MILLISECONDS: -1"),
        (["x", "64", "120", "4ms"], "SEEK_MILLISECONDS: 4ms"),
    ],
)
def test_the_disk_refuses_wrong_words(tmp_path, words, said):
    program = tmp_path / "slow_disk"
    strict = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *strict, "-o", program, slow_tier.SOURCE, "-lpthread"], check=True)
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and said in done.stderr


@pytest.fixture
def tier_folder(tmp_path):
    """A place for a real tier, where the machine can have one."""
    lack = slow_tier.missing(SMALL)
    if lack:
        pytest.skip(lack)
    return tmp_path / "a tier"


def is_gone(folder: Path) -> bool:
    group = slow_tier.groups_here().root / GROUP
    devices = slow_tier.loop_devices(folder / "disk", Path("/sys/block"))
    return not (folder.exists() or group.exists() or devices or slow_tier.is_mounted(folder / "disk"))


def real_tier(folder: Path):
    return slow_tier.running(folder, SMALL, ["reader"], GROUP)


def test_a_real_tier_keeps_what_is_written(tier_folder):
    try:
        with real_tier(tier_folder) as tier:
            written = os.urandom(3 << 20)
            (tier.mount / "file").write_bytes(written)
            slow_tier.run(["umount", tier.mount])
            slow_tier.run(["mount", tier.device, tier.mount])
            assert (tier.mount / "file").read_bytes() == written
            tier.groups.set_weight("reader", 500)
            assert Path("/sys/block", Path(tier.device).name, "queue/scheduler").read_text().count("[bfq]") == 1
    except Missing as lack:
        pytest.skip(str(lack))
    assert is_gone(tier_folder)


def test_a_real_tier_is_taken_down_after_a_failure_and_by_the_next_run(tier_folder):
    try:
        with pytest.raises(ZeroDivisionError), real_tier(tier_folder) as tier:
            sleeper = subprocess.Popen(["sleep", "1000"], cwd=tier.mount)
            (tier.groups.folder / "reader" / "cgroup.procs").write_text(str(sleeper.pid))
            raise ZeroDivisionError
    except Missing as lack:
        pytest.skip(str(lack))
    assert sleeper.wait() == -9
    assert is_gone(tier_folder)
    # A run that was killed takes nothing down: the next one does.
    killed = "import sys, slow_tier; from test_slow_tier import *; tier = real_tier(Path(sys.argv[1])); tier.__enter__(); os._exit(9)"
    paths = os.pathsep.join(str(path) for path in (Path(__file__).parent, Path(__file__).parent.parent))
    command = [sys.executable, "-c", killed, str(tier_folder)]
    assert subprocess.run(command, check=False, env=os.environ | {"PYTHONPATH": paths}).returncode == 9
    assert not is_gone(tier_folder)
    with real_tier(tier_folder) as tier:
        assert not list(tier.mount.glob("file"))
    assert is_gone(tier_folder)
