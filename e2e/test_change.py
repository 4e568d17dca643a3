"""A machine that changes under the agent: hot-plug, files of /proc cut or gone, names of every
kind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Agent, eventually, fresh, patient_lines, replace_file, values

Start = Callable[..., Agent]
SECTOR = 512


def test_a_disk_comes_goes_and_comes_back(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    table = tree / "proc/diskstats"
    before = table.read_text()
    assert not agent.has("disk.*{device=sda}")

    replace_file(tree / "sys/block/sda/size", "2000\n")
    replace_file(table, before + "   8       0 sda 5 0 80 1 1 0 8 1 0 1 1\n")
    eventually(lambda: agent.value("disk.read.bytes{device=sda}") == 80 * SECTOR, "the disk's streams")
    eventually(lambda: agent.value("disk.size.bytes{device=sda}") == 2000 * SECTOR, "its attributes")

    shutil.rmtree(tree / "sys/block/sda")
    replace_file(table, before)
    eventually(lambda: not fresh(agent, "disk.*{device=sda}"), "no stream of it as fresh")
    eventually(lambda: not agent.has("disk.*{device=sda}"), "its streams are gone")
    assert agent.sql("SELECT * FROM disk_read_bytes WHERE newest AND device = 'sda'") == []
    # Another source has streams of the device too, and looks in its own turn.
    eventually(lambda: "sda" not in agent.get("/metrics").text, "it is in no metric")
    agent.error("latest", "disk.read.bytes", "device=sda")

    # Another disk with the same name: its counter begins anew, which must not give a negative rate.
    replace_file(tree / "sys/block/sda/size", "3000\n")
    replace_file(table, before + "   8       0 sda 1 0 8 1 1 0 8 1 0 1 1\n")
    eventually(lambda: agent.value("disk.read.bytes{device=sda}") == 8 * SECTOR, "the new disk's streams")
    rates = agent.sql("SELECT min(value) AS least FROM disk_read_bytes_per_second")
    assert rates[0]["least"] >= 0
    assert agent.value("disk.read.bytes{device=nvme0n1}") == 8000 * SECTOR


def test_a_watch_follows_a_disk_that_comes(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    table = tree / "proc/diskstats"
    with agent.command_running("watch", "disk.read.ops*", "--json") as process:
        lines = patient_lines(process)
        next(lines)
        replace_file(tree / "sys/block/sda/size", "2000\n")
        replace_file(table, table.read_text() + "   8       0 sda 5 0 80 1 1 0 8 1 0 1 1\n")
        assert any('"sda"' in line for line in lines)


def test_a_mount_comes_and_goes(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    table = tree / "proc/self/mountinfo"
    before = table.read_text()
    (tree / "mnt/new").mkdir(parents=True)
    replace_file(table, before + "90 27 8:1 / /mnt/new rw - xfs /dev/sdz1 rw\n")
    pattern = "filesystem.*{mount=/mnt/new}"
    place = os.statvfs(tree / "mnt/new")
    eventually(
        lambda: agent.value("filesystem.total.bytes{mount=/mnt/new}") == place.f_blocks * place.f_frsize,
        "the mount's streams",
    )
    replace_file(table, before)
    eventually(lambda: not agent.has(pattern), "its streams are gone")


def test_a_control_group_comes_and_goes(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    group = tree / "sys/fs/cgroup/job.slice"
    replace_file(group / "io.stat", "259:0 rbytes=512 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n")
    replace_file(group / "memory.current", "77\n")
    eventually(lambda: agent.value("cgroup.io.read.bytes{cgroup=/job.slice}") == 512, "the group's streams")
    shutil.rmtree(group)
    eventually(lambda: not agent.has("cgroup.*{cgroup=/job.slice}"), "its streams are gone")


def test_a_network_device_comes_and_goes(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    table = tree / "proc/net/dev"
    before = table.read_text()
    replace_file(table, before + "  eth9: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n")
    eventually(lambda: agent.value("network.transmit.bytes{device=eth9}") == 200, "its streams")
    replace_file(table, before)
    eventually(lambda: not agent.has("network.*{device=eth9}"), "its streams are gone")


# A file of /proc and the place of a cut within a number, whose beginning must not be taken for the
# whole.
CUTS = [
    ("disk", "proc/diskstats", "nvme0n1 1000 10 80"),
    ("disk", "proc/diskstats", "nvme1n1 300 0 2400 60 400 0 64"),
    ("memory", "proc/meminfo", "MemAvailable:   24000"),
    ("memory", "proc/meminfo", "MemTo"),
    ("vm", "proc/vmstat", "pgpgin 1234"),
    ("cpu", "proc/stat", "ctxt 3952"),
    ("cpu", "proc/stat", "cpu  10000 100 40"),
    ("cpu", "proc/loadavg", "0.1"),
    ("pressure", "proc/pressure/io", "total=48811"),
    ("network", "proc/net/dev", "eth0:236303"),
    ("filesystem", "proc/self/mountinfo", "/dev/mapper/vg-scra"),
    ("cgroup", "sys/fs/cgroup/system.slice/db.service/io.stat", "rbytes=40"),
    ("cgroup", "sys/fs/cgroup/system.slice/db.service/memory.current", "9000"),
]
# Values that depend on the time of the look, or on the use of this machine's own file systems.
MOVING = ("ratio", "per_second", "depth", "latency.seconds", "filesystem.a", "filesystem.f")


@pytest.mark.parametrize(("source", "file", "cut"), CUTS, ids=[f"{file} {cut}" for _, file, cut in CUTS])
def test_a_file_cut_in_the_middle_gives_no_wrong_value(
    start: Start, tree: Path, source: str, file: str, cut: str
) -> None:
    agent = start("--sys-root", tree)
    pattern = f"{source}.*"
    whole = (tree / file).read_text()
    at = whole.index(cut) + len(cut)

    def still() -> dict[str, Any]:
        return {name: value for name, value in values(agent, pattern).items() if not is_moving(name)}

    before = still()
    assert before
    polls = agent.value("source.polls.count", f"source={source}")
    replace_file(tree / file, whole[:at])
    eventually(lambda: agent.value("source.polls.count", f"source={source}") >= polls + 3, "three more polls")
    during = still()
    assert {name: value for name, value in during.items() if before.get(name, value) != value} == {}
    replace_file(tree / file, whole)
    eventually(lambda: still() == before, "as it was before")


def is_moving(name: str) -> bool:
    return any(word in name for word in MOVING)


@pytest.mark.parametrize(("source", "file"), [("disk", "proc/diskstats"), ("memory", "proc/meminfo")])
def test_a_file_that_is_gone_marks_its_source_down(start: Start, tree: Path, source: str, file: str) -> None:
    agent = start("--sys-root", tree)
    whole = (tree / file).read_text()
    eventually(lambda: fresh(agent, f"{source}.*"), "it is fresh")
    replace_file(tree / file, "")

    eventually(lambda: agent.value("source.up.flag", f"source={source}") is False, "the flag")
    eventually(lambda: not fresh(agent, f"{source}.*"), "nothing of it is shown as fresh")

    def report() -> dict[str, Any]:
        return next(r for r in agent.ask("doctor") if r["source"] == source)

    eventually(lambda: report()["state"] in ("down", "unavailable"), "the doctor's word")
    assert report()["last_error"] or report()["missing"]
    assert agent.value("source.up.flag", "source=cpu") is True
    replace_file(tree / file, whole)
    eventually(lambda: agent.value("source.up.flag", f"source={source}") is True, "it is up again")
    eventually(lambda: report()["state"] == "ok", "the doctor's word")


def test_names_that_are_not_utf_8(start: Start, tree: Path) -> None:
    odd = b"caf\xe9"
    root = os.fsencode(tree)
    os.makedirs(root + b"/mnt/" + odd)
    group = root + b"/sys/fs/cgroup/" + odd + b".slice"
    os.makedirs(group)
    with open(group + b"/io.stat", "wb") as file:
        file.write(b"259:0 rbytes=512 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n")
    with open(tree / "proc/self/mountinfo", "ab") as file:
        file.write(b"90 27 8:1 / /mnt/" + odd + b" rw - xfs /dev/sd" + odd + b" rw\n")
    agent = start("--sys-root", tree)

    def found(name: str, label: str) -> list[dict[str, Any]]:
        return [sample for sample in agent.latest(name) if "caf" in sample["labels"][label]]

    (mount,) = eventually(lambda: found("filesystem.total.bytes", "mount"), "the mount")
    place = os.statvfs(root + b"/mnt/" + odd)
    assert mount["value"] == place.f_blocks * place.f_frsize
    (control_group,) = eventually(lambda: found("cgroup.io.read.bytes", "cgroup"), "the control group")
    assert control_group["value"] == 512
    # A name that is shown can be used in a query.
    assert agent.latest("filesystem.total.bytes", f"mount={mount['labels']['mount']}")
    assert agent.sql(
        "SELECT count(*) AS n FROM cgroup_io_read_bytes WHERE newest AND cgroup LIKE '/caf%'"
    ) == [{"n": 1}]
    for path in ("/metrics", "/api/v1/streams", "/api/v1/latest", "/api/v1/sources"):
        answer = agent.get(path)
        assert answer.status == 200 and "caf" in answer.text
    assert "caf" in agent.out("doctor") and agent.out("top", "--once")


def test_a_disk_whose_name_is_not_utf_8_is_followed_or_said_to_be_missing(start: Start, tree: Path) -> None:
    os.makedirs(os.fsencode(tree) + b"/sys/block/sdcaf\xe9")
    with open(tree / "proc/diskstats", "ab") as file:
        file.write(b"   8       0 sdcaf\xe9 5 0 80 1 1 0 8 1 0 1 1\n")
    agent = start("--sys-root", tree)
    (report,) = [report for report in agent.ask("doctor") if report["source"] == "disk"]
    assert "sdcaf" in str(report)


def test_names_with_odd_characters_come_through(start: Start, tree: Path) -> None:
    odd = 'a "b" \\ {c}=d,e'
    (tree / "sys/fs/cgroup" / odd).mkdir()
    replace_file(
        tree / "sys/fs/cgroup" / odd / "io.stat", "259:0 rbytes=512 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n"
    )
    agent = start("--sys-root", tree)

    def found() -> list[dict[str, Any]]:
        return [s for s in agent.latest("cgroup.io.read.bytes") if "{c}" in s["labels"]["cgroup"]]

    (sample,) = eventually(found, "the group")
    assert sample["labels"]["cgroup"] == f"/{odd}"
    assert agent.latest("cgroup.io.read.bytes", f"cgroup=/{odd}")
    rows = agent.sql("SELECT cgroup FROM cgroup_io_read_bytes WHERE newest AND value = 512")
    assert rows == [{"cgroup": f"/{odd}"}]
