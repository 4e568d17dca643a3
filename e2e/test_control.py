"""Controllers: readers plan and report, decisions are in SQL, and I/O weights of control groups are set for a
time and restored whatever ends it. Weights need a real control group on a real device with bfq; where the
machine has none, these tests are skipped with the reason."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, Agent, baro, eventually

PLAN, REPORT = "/api/v1/control/plan", "/api/v1/control/report"
NOBODY = 65534
WEIGHT_DEFAULT = 100

# A process that enters a control group and then asks the agent what it is told to, one line for each answer.
READER = """
import http.client, json, socket, sys
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
with open(sys.argv[2], "w") as procs:
    procs.write("0")
for line in sys.stdin:
    path, body = json.loads(line)
    connection = Unix("localhost")
    connection.request("POST", path, json.dumps(body))
    print(connection.getresponse().read().decode(), flush=True)
"""


def field(device: str, **more: Any) -> dict[str, Any]:
    """An array of ten buckets, of which its error bound needs three."""
    buckets = [{"bytes": 10_000_000, "nrmse": 10.0 ** -(at + 1)} for at in range(10)]
    plan = {"device": device, "label": "field.baro", "buckets": buckets, "base_bytes": 1_000_000}
    return {**plan, "error": {"nrmse": 1.5e-3}, "priority": 9, **more}


def test_a_reader_plans_and_reports_and_the_decision_explains_itself(start: Callable[..., Agent]) -> None:
    agent = start()
    device = sorted(path.name for path in Path("/sys/block").iterdir())[0]
    plan = agent.request("POST", PLAN, field(device), "control.sock").json
    assert (plan["buckets"], plan["bytes"], plan["device"]) == (3, 31_000_000, device)
    assert plan["bandwidth"] == {"value": None, "error": None, "basis": "none"}
    assert plan["weight"] is None or plan["weight"] > 0
    report = {"decision": plan["decision"], "bytes": 31_000_000, "seconds": 0.5, "nrmse": 9e-4}
    assert agent.request("POST", REPORT, report, "control.sock").json["decision"] == plan["decision"]
    again = agent.request("POST", REPORT, report, "control.sock")
    assert again.status == 400 and "already" in again.message
    decisions = "SELECT * FROM decisions WHERE controller = 'augmentation'"
    row = eventually(lambda: [row for row in agent.rows(decisions) if row["outcome"] == "done"], "the report is told")[0]
    assert (row["id"], row["label"], row["device"], row["proposal"]) == (plan["decision"], "field.baro", device, 3)
    assert json.loads(row["effect"])["after"] == 62_000_000
    assert json.loads(row["inputs"])["bound"] == "NRMSE 0.0015"
    listed = agent.ask("control", "decisions")
    assert [it["id"] for it in listed if it["controller"] == "augmentation"] == [plan["decision"]]
    page = agent.out("control", "show", plan["decision"])
    assert 'reads 3 buckets of "field.baro"' in page and "reported 62 MB/s" in page
    assert "has no decision 4711" in agent.error("control", "show", 4711)
    assert "controllers: decisions are carried out" in agent.out("doctor")


def test_rights_bad_input_and_the_ways_in(start: Callable[..., Agent]) -> None:
    agent = start(config=QUICK + '[control]\nweights = "off"\n')
    device = sorted(path.name for path in Path("/sys/block").iterdir())[0]
    assert agent.request("POST", PLAN, field(device)).status == 401
    bearer = {"authorization": f"Bearer {agent.token()}"}
    by_token = agent.request("POST", PLAN, field(device), headers=bearer).json
    assert "weights are off" in by_token["weight_reason"]
    guest = agent.request("POST", PLAN, field(device), "read.sock")
    assert guest.status == 200
    # A number of nobody, and one of another user.
    for way, decision in (("read.sock", 4711), ("read.sock", by_token["decision"] + 1000)):
        refused = agent.request("POST", REPORT, {"decision": decision, "bytes": 1, "seconds": 1}, way)
        assert refused.status == 404, refused.text
    for body, message in (
        ("{", "no JSON object"),
        ({}, "missing field"),
        (field(device, priority=99), "send 1 (least) to 10"),
        (field("no-such-disk"), "is no block device"),
        (field(device, buckets=[{"bytes": 1, "nrmse": 1}] * 4097), "send the first 4096"),
        (field(device, error={"linf": 0.1}), "send it as error"),
    ):
        refused = agent.request("POST", PLAN, body, "read.sock")
        assert refused.status == 400 and message in refused.message, refused.text
    dry = agent.request("POST", PLAN, field(device, dry_run=True), "read.sock").json
    assert dry["dry_run"] and dry["weight"] is None
    # Another agent makes no decisions at all.
    off = start(config=QUICK + '[control]\nmode = "off"\n')
    refused = off.request("POST", PLAN, field(device), "control.sock")
    assert refused.status == 403 and "control.mode" in refused.message


@dataclass
class Group:
    """A control group of version 1, and a device whose scheduler is bfq."""

    path: Path
    name: str
    device: str

    def weight(self) -> int:
        return int((self.path / "blkio.bfq.weight").read_text())


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """A group of this test alone, and a loop device with bfq."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = [line.split(" - ") for line in mounts]
    blkio = [before.split()[4] for before, after in fields if after.split()[0] == "cgroup" and "blkio" in after]
    if os.geteuid() != 0 or not blkio or not shutil.which("losetup"):
        pytest.skip("this needs root, losetup and control groups of version 1 with blkio")
    image = tmp_path / "image"
    image.write_bytes(bytes(8 << 20))
    made = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"loop devices are not permitted here: {made.stderr.strip()}")
    loop = made.stdout.strip()
    device = loop.removeprefix("/dev/")
    scheduler = Path(f"/sys/block/{device}/queue/scheduler")
    before = next((word.strip("[]") for word in scheduler.read_text().split() if word.startswith("[")), "none")
    directory = Path(blkio[0]) / f"baro_e2e_{os.getpid()}"
    try:
        try:
            scheduler.write_text("bfq")
        except OSError as error:
            pytest.skip(f"this kernel has no bfq: {error}")
        directory.mkdir()
        if not (directory / "blkio.bfq.weight").exists():
            pytest.skip("groups have no blkio.bfq.weight here")
        yield Group(directory, directory.name, device)
    finally:
        if directory.exists():
            for pid in (directory / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            eventually(lambda: not (directory / "cgroup.procs").read_text(), "the group is empty")
            directory.rmdir()
        scheduler.write_text(before)
        subprocess.run(["losetup", "--detach", loop], check=True)


@pytest.fixture
def ask(group: Group) -> Iterator[Callable[[Agent, str, dict[str, Any]], Any]]:
    """Asks an agent as a process in the group; `ask.process` is that process."""
    readers: dict[Path, subprocess.Popen[str]] = {}

    def asked(agent: Agent, path: str, body: dict[str, Any]) -> Any:
        socket = agent.run_dir / "control.sock"
        if socket not in readers:
            command = [sys.executable, "-c", READER, str(socket), str(group.path / "cgroup.procs")]
            readers[socket] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        reader = readers[socket]
        asked.process = reader  # type: ignore[attr-defined]
        assert reader.stdin and reader.stdout
        reader.stdin.write(json.dumps([path, body]) + "\n")
        reader.stdin.flush()
        return json.loads(reader.stdout.readline())

    yield asked
    for reader in readers.values():
        reader.kill()
        reader.communicate()


def test_a_weight_is_set_for_the_readers_group_and_restored_by_its_report(
    start: Callable[..., Agent], group: Group, ask: Callable[..., Any]
) -> None:
    agent = start()
    plan = ask(agent, PLAN, field(group.device))
    assert plan["weight"] == group.weight() > WEIGHT_DEFAULT, plan
    assert plan["weight_reason"] is None and plan["lease_s"] == 30
    again = ask(agent, PLAN, field(group.device, priority=1))
    assert again["weight"] == group.weight() < plan["weight"]
    ask(agent, REPORT, {"decision": again["decision"], "bytes": 31_000_000, "seconds": 1})
    assert group.weight() == WEIGHT_DEFAULT
    weights = "SELECT * FROM decisions WHERE controller = 'weight' AND outcome = 'reverted' ORDER BY id"
    rows = eventually(lambda: (rows := agent.rows(weights)) if len(agent.rows(weights)) == 2 else None, "both have ended")
    assert [row["plan"] for row in rows] == [plan["decision"], again["decision"]]
    assert all(row["subject"] == group.name for row in rows)
    assert "went on" in rows[0]["outcome_reason"] and "100 was restored" in rows[1]["outcome_reason"]


@pytest.mark.parametrize("by", ["the next start", "baro weights restore", "an ordered stop"])
def test_a_weight_is_restored_whatever_ends_the_agent(
    start: Callable[..., Agent], group: Group, ask: Callable[..., Any], by: str
) -> None:
    agent = start()
    plan = ask(agent, PLAN, field(group.device))
    assert plan["weight"] == group.weight() > WEIGHT_DEFAULT, plan
    running = agent.error("weights", "restore")
    assert "stop it before" in running
    if by == "an ordered stop":
        agent.stop()
        assert group.weight() == WEIGHT_DEFAULT
        return
    agent.stop(signal.SIGKILL)
    assert group.weight() == plan["weight"], "nobody could restore it"
    if by == "the next start":
        agent.start()
    else:
        assert agent.ask("weights", "restore") == [
            {"group": group.name, "outcome": "100 was restored", "is_settled": True}
        ]
        assert "nothing was left" in agent.out("weights", "restore")
    assert group.weight() == WEIGHT_DEFAULT


def test_a_weight_ends_with_its_process(start: Callable[..., Agent], group: Group, ask: Callable[..., Any]) -> None:
    agent = start()
    assert ask(agent, PLAN, field(group.device))["weight"] == group.weight() > WEIGHT_DEFAULT
    ask.process.kill()  # type: ignore[attr-defined]
    ask.process.wait()  # type: ignore[attr-defined]
    eventually(lambda: group.weight() == WEIGHT_DEFAULT, "the weight is restored")


def test_what_another_controller_writes_is_left(start: Callable[..., Agent], group: Group, ask: Callable[..., Any]) -> None:
    agent = start()
    plan = ask(agent, PLAN, field(group.device))
    assert plan["weight"] == group.weight()
    (group.path / "blkio.bfq.weight").write_text("77")
    ask(agent, REPORT, {"decision": plan["decision"], "bytes": 31_000_000, "seconds": 1})
    assert group.weight() == 77


def test_root_gives_one_file_to_a_user(group: Group) -> None:
    status = baro("weights", "status", group.name, "--device", group.device, "--json")
    [disk] = json.loads(status.stdout)["disks"]
    assert (disk["file"], disk["present"], disk["scheduler"]) == ("blkio.bfq.weight", "100", "bfq")
    assert (disk["min"], disk["max"]) == (1, 1000)
    file = group.path / "blkio.bfq.weight"
    assert disk["path"] == str(file)
    done = baro("weights", "setup", group.name, "--user", NOBODY, "--device", group.device)
    assert done.returncode == 0, done.stderr
    assert f"undo    chown 0 {file}" in done.stdout and file.stat().st_uid == NOBODY
    others = [path for path in group.path.iterdir() if path != file]
    assert all(path.stat().st_uid == 0 for path in others), "nothing else was given"
    # That user can set the weight, and cannot move processes.
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "sh", "-c"]
    if shutil.which("setpriv"):
        subprocess.run([*as_nobody, f"echo 300 > {file}"], check=True)
        assert group.weight() == 300
        moved = subprocess.run([*as_nobody, f"echo 0 > {group.path}/cgroup.procs"], capture_output=True, check=False)
        assert moved.returncode != 0


def test_status_says_what_speaks_against_weights_and_setup_gives_nothing_then() -> None:
    status = baro("weights", "status", "no/such/group", "--json")
    assert status.returncode == 0, status.stderr
    for disk in json.loads(status.stdout)["disks"]:
        assert disk["file"] is None
        assert all(refusal["reason"] and refusal["remedy"] for refusal in disk["refused"])
    for group in ("../..", "a/../b", "/"):
        done = baro("weights", "setup", group, "--user", NOBODY)
        assert done.returncode == 1 and "none was given" in done.stderr, done
    for words in (["--user", "x"], ["a", "--user", "no such user"], ["a", "--user", "0", "--device", ".."]):
        done = baro("weights", "setup", *words)
        assert done.returncode == 2 and "panicked" not in done.stderr, done
