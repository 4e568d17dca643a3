"""`--sys-root`: fixture machines whose values were computed by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import QUICK, Agent, eventually, machine, replace_file, values

Start = Callable[..., Agent]
KIB = 1024
SECTOR = 512

# /proc/diskstats of nvme0n1: 1000 10 8000 200 2000 20 32000 200 0 1000 1500 5 0 4096 1 7 3
NVME_V2 = {
    "disk.read.ops{device=nvme0n1}": 1000,
    "disk.read.merged.ops{device=nvme0n1}": 10,
    "disk.read.bytes{device=nvme0n1}": 8000 * SECTOR,
    "disk.read.seconds{device=nvme0n1}": 0.2,
    "disk.write.ops{device=nvme0n1}": 2000,
    "disk.write.merged.ops{device=nvme0n1}": 20,
    "disk.write.bytes{device=nvme0n1}": 32000 * SECTOR,
    "disk.write.seconds{device=nvme0n1}": 0.2,
    "disk.inflight.requests{device=nvme0n1}": 0,
    "disk.busy.seconds{device=nvme0n1}": 1.0,
    "disk.queue.seconds{device=nvme0n1}": 1.5,
    "disk.discard.bytes{device=nvme0n1}": 4096 * SECTOR,
    "disk.flush.ops{device=nvme0n1}": 7,
    "disk.size.bytes{device=nvme0n1}": 7501476528 * SECTOR,
    "disk.rotational.flag{device=nvme0n1}": False,
    "disk.scheduler.name{device=nvme0n1}": "none",
    "disk.model.name{device=nvme0n1}": "ACME Fast 3.84TB",
    "disk.tier.name{device=nvme0n1}": "nvme",
    # The counters do not change.
    "disk.busy.ratio{device=nvme0n1}": 0.0,
    "disk.read.bytes_per_second{device=nvme0n1}": 0.0,
    # /proc/meminfo is in KiB.
    "memory.total.bytes": 263785236 * KIB,
    "memory.free.bytes": 201000000 * KIB,
    "memory.available.bytes": 240000000 * KIB,
    "memory.buffers.bytes": 204800 * KIB,
    "memory.cached.bytes": 38000000 * KIB,
    "memory.dirty.bytes": 128 * KIB,
    "memory.writeback.bytes": 0,
    "memory.swap.total.bytes": 8388604 * KIB,
    "memory.swap.free.bytes": 8388604 * KIB,
    # /proc/vmstat counts pgpgin in KiB.
    "vm.pagein.bytes": 123456 * KIB,
    "vm.pageout.bytes": 654321 * KIB,
    "vm.faults.count": 7000000,
    "vm.major_faults.count": 4000,
    # /proc/stat is in hundredths of a second.
    "cpu.user.seconds": 100.0,
    "cpu.nice.seconds": 1.0,
    "cpu.system.seconds": 40.0,
    "cpu.idle.seconds": 8000.0,
    "cpu.iowait.seconds": 6.0,
    "cpu.softirq.seconds": 0.7,
    "cpu.switches.count": 395235,
    "cpu.forks.count": 5780,
    "cpu.running.tasks": 7,
    "cpu.blocked.tasks": 0,
    "cpu.online.count": 4,
    "cpu.load1.tasks": 0.16,
    "cpu.load5.tasks": 0.10,
    "cpu.load15.tasks": 0.06,
    # /proc/pressure/io totals are in microseconds.
    "pressure.io.some.seconds": 4.881101,
    "pressure.io.full.seconds": 1.0,
    "network.receive.bytes{device=eth0}": 23630378100,
    "network.receive.packets{device=eth0}": 9199,
    "network.receive.errors.packets{device=eth0}": 1,
    "network.receive.dropped.packets{device=eth0}": 2,
    "network.transmit.bytes{device=eth0}": 625458,
    "network.transmit.packets{device=eth0}": 6376,
    "network.transmit.bytes{device=ib0}": 6,
    "cgroup.io.read.bytes{cgroup=/system.slice/db.service}": 4096,
    "cgroup.io.write.bytes{cgroup=/system.slice/db.service}": 8192,
    "cgroup.io.read.ops{cgroup=/system.slice/db.service}": 1,
    "cgroup.io.write.ops{cgroup=/system.slice/db.service}": 2,
    "cgroup.memory.bytes{cgroup=/system.slice/db.service}": 900000,
    "source.up.flag{source=disk}": True,
    # Insights over these values.
    "memory.capacity": 240000000 * KIB,
    "availability": 1,
}

HDD_V1 = {
    # sda: 5000 10 80000 40000 700 300 9000 8000 0 30000 48000
    "disk.read.ops{device=sda}": 5000,
    "disk.read.bytes{device=sda}": 80000 * SECTOR,
    "disk.read.seconds{device=sda}": 40.0,
    "disk.write.bytes{device=sda}": 9000 * SECTOR,
    "disk.busy.seconds{device=sda}": 30.0,
    "disk.rotational.flag{device=sda}": True,
    "disk.scheduler.name{device=sda}": "cfq",
    "disk.tier.name{device=sda}": "hdd",
    "disk.read.bytes{device=cciss/c0d0}": 80 * SECTOR,
    "cgroup.io.read.bytes{cgroup=/slurm/uid_1000/job_7}": 4096,
    "cgroup.io.read.ops{cgroup=/slurm/uid_1000/job_7}": 1,
    "cgroup.memory.bytes{cgroup=/slurm/uid_1000/job_7}": 3000,
    "memory.total.bytes": 16269032 * KIB,
    "memory.swap.total.bytes": 0,
}


def test_the_values_of_a_machine_with_nvme_and_cgroup_v2(fixed: Agent) -> None:
    eventually(lambda: "disk.busy.ratio{device=nvme0n1}" in values(fixed), "a second round")
    seen = values(fixed)
    assert {name: seen.get(name) for name in NVME_V2} == pytest.approx(NVME_V2)


def test_the_values_of_a_machine_with_hard_disks_and_cgroup_v1(start: Start, tmp_path: Path) -> None:
    seen = values(start("--sys-root", machine("hdd-v1", tmp_path)))
    assert {name: seen.get(name) for name in HDD_V1} == pytest.approx(HDD_V1)


@pytest.mark.parametrize("name", ["container", "empty"])
def test_a_machine_that_shows_little_says_what_is_missing(start: Start, tmp_path: Path, name: str) -> None:
    agent = start("--sys-root", machine(name, tmp_path))
    poor = [report for report in agent.ask("doctor") if report["state"] != "ok"]
    assert poor
    assert all(report["missing"] or report["last_error"] for report in poor)


def test_disks_that_stand_on_others_are_left_out(fixed: Agent) -> None:
    devices = {sample["labels"]["device"] for sample in fixed.latest("disk.read.bytes")}
    assert devices == {"nvme0n1", "nvme1n1"}


def test_file_systems_are_those_of_the_mount_table(fixed: Agent) -> None:
    tree = Path(fixed.options[fixed.options.index("--sys-root") + 1])
    expected = {
        "/scratch": ("xfs", "nvme"),
        "/lustre/work space": ("lustre", "pfs"),
        "/home": ("nfs4", "pfs"),
    }
    found = {sample["labels"]["mount"]: sample for sample in fixed.latest("filesystem.total.bytes")}
    for mount, (fstype, tier) in expected.items():
        place = os.statvfs(tree / mount[1:])
        assert found[mount]["value"] == place.f_blocks * place.f_frsize
        assert found[mount]["labels"]["fstype"] == fstype
        assert found[mount]["labels"]["tier"] == tier
    # The same file system under a second name, and pseudo file systems.
    assert not set(found) & {"/jobs", "/proc", "/sys", "/sys/fs/cgroup"}


def test_mounts_that_cannot_be_asked_are_reported(fixed: Agent) -> None:
    (report,) = [r for r in fixed.ask("doctor") if r["source"] == "filesystem"]
    assert report["state"] == "partial"
    assert any("/hung" in missing["what"] for missing in report["missing"])


def test_tiers_by_configuration(start: Start, tree: Path) -> None:
    (tree / "scratch").mkdir()
    rules = '[[sources.tiers.rules]]\nmount = "/scratch*"\ntier = "burst"\n'
    rules += '[[sources.tiers.rules]]\ndevice = "nvme1*"\ntier = "cold"\n'
    agent = start("--sys-root", tree, config=rules)
    assert agent.value("disk.tier.name{device=nvme1n1}") == "cold"
    assert agent.value("disk.tier.name{device=nvme0n1}") == "nvme"
    burst = eventually(lambda: agent.value("tier.total.bytes{tier=burst}"), "the tier's size")
    assert burst == agent.value("filesystem.total.bytes{mount=/scratch}")


def test_rates_and_curated_insights_follow_the_counters(start: Start, tree: Path) -> None:
    disk = "[sources.disk]\n"
    agent = start(
        "--sys-root", tree, config=QUICK.replace(disk, disk + "bandwidth_max = { nvme0n1 = 1000000 }\n")
    )
    lines = (tree / "proc/diskstats").read_text()
    eventually(lambda: agent.has("disk.read.bytes_per_second"), "two rounds")
    replace_file(tree / "proc/diskstats", lines.replace(" 1000 10 8000 ", " 1000 10 28000 "))
    eventually(lambda: agent.value("disk.read.bytes{device=nvme0n1}") == 28000 * SECTOR, "the new counter")

    def most(table: str) -> float:
        return agent.sql(f"SELECT max(value) AS most FROM {table}")[0]["most"]

    rate = most("disk_read_bytes_per_second")
    assert rate > 0
    (sample,) = agent.latest("disk.read.bytes_per_second{device=nvme0n1}")
    assert sample["quality"] == "derived"
    # Nothing else runs on the node, so all of it is the device's.
    assert most("node_read_bytes_per_second") == pytest.approx(rate)
    assert most("device_load_ratio") == pytest.approx(1)
    assert most("device_interference_ratio") == pytest.approx(rate / 1000000)
