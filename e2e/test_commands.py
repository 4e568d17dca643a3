"""Every client command, with and without --json, and the exit codes: 0 done, 1 failed, 2 wrong
use."""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal
import subprocess
from typing import Any

import pyarrow.ipc
import pytest
from harness import BARO, FIXTURES, SOURCES, Agent, baro, environment, eventually, patient_lines

# Keys of the output: those that must exist, and those that may exist.
LATEST_KEYS = {"name", "labels", "ts", "value", "quality", "error", "age_ns", "looked_ts"}
LATEST_MORE = {"unit", "stale"}


def test_status(live: Agent) -> None:
    status = live.ask("status")
    assert status["alive"] is True
    assert status["node"] == live.node
    assert live.process and status["pid"] == live.process.pid
    assert status["http"] == live.place
    assert status["run_dir"] == str(live.run_dir)
    assert 0 < status["streams"] <= status["streams_max"]
    text = live.out("status")
    assert f"pid {live.process.pid}" in text and live.place in text


def test_streams(live: Agent) -> None:
    everything = live.ask("streams")
    assert len(everything) > 50
    one = live.ask("streams", "memory.total.bytes")
    assert len(one) == 1
    expected = {"name", "labels", "type", "unit", "kind", "help", "id", "depth", "samples", "interval_ns"}
    assert set(one[0]) == expected
    assert one[0]["unit"] == "bytes" and one[0]["depth"] == 1024
    heading, *lines = live.out("streams", "memory.*").splitlines()
    assert heading.split() == ["STREAM", "TYPE", "KIND", "UNIT", "SAMPLES", "WHAT"]
    assert len(lines) == len(live.ask("streams", "memory.*")) > 3


def test_cumulative_counters_say_so(fixed: Agent) -> None:
    kinds = {stream["name"]: stream["kind"] for stream in fixed.ask("streams")}
    assert kinds["disk.read.bytes"] == "counter"
    assert kinds["memory.free.bytes"] == "gauge"
    assert kinds["disk.scheduler.name"] == "state"


def test_streams_of_a_pattern_with_labels(fixed: Agent) -> None:
    found = fixed.ask("streams", "disk.*{device=nvme1*}")
    # Labels alone match any name.
    alone = [one["name"] for one in fixed.ask("streams", "{device=nvme1*}")]
    assert set(alone) > {one["name"] for one in found}
    assert found and {stream["labels"]["device"] for stream in found} == {"nvme1n1"}


def test_a_pattern_that_nothing_matches_is_an_empty_list(live: Agent) -> None:
    assert live.ask("streams", "no.such.*") == []


def check_latest(sample: dict[str, Any]) -> None:
    assert LATEST_KEYS <= set(sample) <= LATEST_KEYS | LATEST_MORE
    assert isinstance(sample["name"], str) and isinstance(sample["labels"], dict)
    if sample["value"] is None:
        return
    assert isinstance(sample["ts"], int) and isinstance(sample["looked_ts"], int)
    assert sample["ts"] <= sample["looked_ts"]
    assert isinstance(sample["age_ns"], int) and sample["age_ns"] >= 0
    assert sample["quality"] in ("measured", "derived", "predicted", "reconciled")
    # Null is an unknown error, such as that of a clock that nothing synchronises.
    assert sample["error"] is None or sample["error"] >= 0


def test_latest(live: Agent) -> None:
    everything = live.latest("*")
    assert len(everything) > 50
    for sample in everything:
        check_latest(sample)
    (total,) = live.latest("memory.total.bytes")
    with open("/proc/meminfo") as file:
        assert total["value"] == int(file.readline().split()[1]) * 1024
    heading, line = live.out("latest", "memory.total.bytes").splitlines()
    assert heading.split() == ["STREAM", "VALUE", "QUALITY", "AGE"]
    assert line.startswith("memory.total.bytes ") and "measured" in line


def test_latest_with_labels(fixed: Agent) -> None:
    (sample,) = fixed.latest("disk.read.bytes", "device=nvme0n1")
    assert sample["labels"] == {"device": "nvme0n1"}
    assert {s["labels"]["device"] for s in fixed.latest("disk.read.bytes")} == {"nvme0n1", "nvme1n1"}


def test_latest_works_while_the_agent_stands_still(start: Any) -> None:
    agent = start()
    eventually(lambda: agent.latest("memory.total.bytes"), "a sample")
    agent.freeze()
    assert agent.value("memory.total.bytes") > 0
    assert agent.sql("SELECT value FROM memory_total_bytes WHERE newest")
    agent.process.send_signal(signal.SIGCONT)


def test_watch(live: Agent) -> None:
    lines = live.out("watch", "agent.cpu.seconds", "--count", "2").splitlines()
    assert len(lines) == 2 and all("agent.cpu.seconds" in line for line in lines)
    samples = [json.loads(line) for line in live.out("watch", "cpu.*", "--count", "3", "--json").splitlines()]
    assert len(samples) == 3
    for sample in samples:
        assert set(sample) >= {"name", "labels", "ts", "value", "quality", "error", "lost"}
        assert sample["name"].startswith("cpu.")


def test_watch_goes_on_until_its_reader_leaves(live: Agent) -> None:
    with live.command_running("watch", "agent.cpu.seconds", "--json") as process:
        lines = patient_lines(process)
        times = [json.loads(next(lines))["ts"] for _ in range(3)]
        assert process.poll() is None
        assert times == sorted(set(times))
        assert process.stdout
        process.stdout.close()
        assert process.wait(60) == 0


def test_sql(fixed: Agent) -> None:
    rows = fixed.sql("SELECT device, value FROM disk_read_bytes WHERE newest ORDER BY device")
    assert rows == [{"device": "nvme0n1", "value": 4096000}, {"device": "nvme1n1", "value": 1228800}]
    text = fixed.out("sql", "SELECT device, value FROM disk_read_bytes WHERE newest ORDER BY device")
    assert [line.split() for line in text.splitlines()[:3]] == [
        ["device", "value"],
        ["nvme0n1", "4096000"],
        ["nvme1n1", "1228800"],
    ]
    assert fixed.sql("SELECT 1 AS x WHERE 0") == []
    types = fixed.sql("SELECT 1 AS i, 2.5 AS r, 'a' AS t, NULL AS n")
    assert types == [{"i": 1, "r": 2.5, "t": "a", "n": None}]


def test_sql_in_other_forms(fixed: Agent) -> None:
    query = "SELECT device, value FROM disk_read_bytes WHERE newest ORDER BY device"
    rows = list(csv.reader(io.StringIO(fixed.out("sql", query, "--format", "csv"))))
    assert rows == [["device", "value"], ["nvme0n1", "4096000"], ["nvme1n1", "1228800"]]
    done = fixed.run("sql", query, "--format", "arrow", text=False)
    table = pyarrow.ipc.open_stream(done.stdout).read_all()
    assert table.to_pydict() == {"device": ["nvme0n1", "nvme1n1"], "value": [4096000, 1228800]}


def test_sql_from_standard_input(fixed: Agent) -> None:
    command = ["sql", "-", "--json", "--run-dir", str(fixed.run_dir)]
    done = subprocess.run(
        [BARO, *command], input="SELECT 7 AS x", text=True, capture_output=True, check=True, env=environment()
    )
    assert json.loads(done.stdout) == [{"x": 7}]


def test_a_statement_may_begin_with_a_comment(fixed: Agent) -> None:
    assert fixed.sql("-- how many\nSELECT 7 AS x") == [{"x": 7}]
    # A misspelt option is an error.
    assert "--jsn" in fixed.error("sql", "--jsn", status=2)
    statement = "-- why\nCREATE INSIGHT e2e.comment.bytes AS SELECT sum(value) FROM disk_read_bytes"
    made = fixed.ask("insight", "create", statement, "--dry-run")
    assert made["rows"], made
    assert "--jsn" in fixed.error("insight", "create", "--jsn", status=2)


def test_the_run_directory_may_be_named_by_the_environment(fixed: Agent) -> None:
    done = baro("status", "--json", env=environment(BAROGRAPH_RUN_DIR=str(fixed.run_dir)))
    assert json.loads(done.stdout)["node"] == "node_1"


def test_insight_list_and_explain(fixed: Agent) -> None:
    listed = fixed.ask("insight", "list")
    names = {insight["name"] for insight in listed}
    curated = {
        "tier.available.bytes",
        "tier.total.bytes",
        "device.load.ratio",
        "device.interference.ratio",
        "device.sensitivity.ratio",
        "node.read.bytes_per_second",
        "node.write.bytes_per_second",
        "node.storage.available.bytes",
        "node.busiest.ratio",
        "pfs.capacity",
        "memory.capacity",
        "availability",
    }
    assert curated <= names
    assert all(i["builtin"] is True for i in listed)
    text = fixed.out("insight", "list")
    assert all(name in text for name in curated)
    explained = fixed.ask("insight", "explain", "memory.capacity")
    assert explained["inputs"] == ["memory.available.bytes"]
    assert [v["value"] for v in explained["values"]] == [fixed.value("memory.available.bytes")]
    page = fixed.out("insight", "explain", "memory.capacity")
    assert "memory.available.bytes" in page and "SELECT" in page


def test_doctor(live: Agent) -> None:
    reports = live.ask("doctor")
    assert {report["source"] for report in reports if report["state"] != "off"} == set(SOURCES)
    for report in reports:
        assert report["state"] in ("ok", "partial", "unavailable", "down", "off")
        for missing in report["missing"]:
            assert missing["what"] and missing["why"] and missing["remedy"]
    text = live.out("doctor")
    assert all(source in text for source in SOURCES)


def test_doctor_probes_without_an_agent(fixed: Agent) -> None:
    empty = FIXTURES / "empty" / "first"
    probed = baro("doctor", "--probe", "--sys-root", empty, "--json", "--run-dir", "/no/such")
    assert probed.returncode == 0, probed.stderr
    reports = json.loads(probed.stdout)
    assert {report["source"] for report in reports if report["state"] != "off"} == set(SOURCES)
    for report in reports:
        assert report["state"] != "ok", report
        assert report["missing"] or report["last_error"], report
    text = baro("doctor", "--probe", "--sys-root", empty, "--run-dir", "/no/such").stdout
    assert "why" in text and "remedy" in text


def test_top_once(live: Agent) -> None:
    frame = live.out("top", "--once")
    assert live.node in frame.splitlines()[0]
    board = live.ask("top")
    assert isinstance(board, dict) and board


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    done = baro("completion", shell)
    assert done.returncode == 0
    for word in ("status", "streams", "latest", "sys-root"):
        assert word in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


def test_completion_bash_completes() -> None:
    script = baro("completion", "bash").stdout
    ask = "COMP_WORDS=(baro st); COMP_CWORD=1; _baro baro st baro; echo ${COMPREPLY[*]}"
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], text=True, capture_output=True, check=True)
    assert sorted(done.stdout.split()) == ["stage", "status", "streams"]


COMMANDS = [
    "up", "status", "streams", "latest", "watch", "sql", "insight", "insight create", "insight drop",
    "insight list", "insight explain", "policy create", "policy drop", "policy ls", "policy explain",
    "call fire", "call list", "rule create", "rule drop", "rule list", "rule explain", "trigger fire", "trigger declared",
    "doctor", "top", "completion",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    done = baro(*command.split(), "--help")
    assert done.returncode == 0 and f"baro {command}" in done.stdout
    short = baro(*command.split(), "-h")
    assert short.returncode == 0
    if command not in ("insight", "completion"):
        assert "--json" in done.stdout and "--run-dir" in done.stdout


def test_version() -> None:
    done = baro("--version")
    assert done.returncode == 0 and done.stdout.split()[0] == "baro"


WRONG_USE = [
    (),
    ("nonsense",),
    ("status", "--no-such-flag"),
    ("latest",),
    ("watch",),
    ("sql",),
    ("insight",),
    ("insight", "create"),
    ("insight", "nonsense"),
    ("watch", "memory.total.bytes", "--count", "many"),
    ("sql", "SELECT 1", "--format", "nonsense"),
    ("sql", "SELECT 1", "--seconds-max", "-1"),
    ("top", "--every", "1"),
    ("completion", "nonsense"),
    ("doctor", "--sys-root", "/"),
    ("up", "--http"),
    ("up", "stray"),
]


@pytest.mark.parametrize("arguments", WRONG_USE, ids=" ".join)
def test_wrong_use_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    done = baro(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip() and "panicked" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("latest", "a{"), ("latest", "memory.total.bytes", "stray"), ("streams", "a{b"), ("watch", "a{device}")],
    ids=" ".join,
)
def test_a_malformed_pattern_is_exit_code_2(live: Agent, arguments: tuple[str, ...]) -> None:
    live.error(*arguments, status=2)


FAILS = [
    (("latest", "memory.totl.bytes"), "memory.total.bytes"),
    (("latest", "memory.total.bytes", "device=nothing"), "memory.total.bytes"),
    (("streams", "memory.totl.bytes"), "memory.total.bytes"),
    (("watch", "memory.totl.bytes"), "memory.total.bytes"),
    (("sql", "SELECT * FROM memory_totl_bytes"), "memory_total_bytes"),
    (("sql", "SELECT vaule FROM memory_total_bytes"), "vaule"),
    (("sql", "SELEC 1"), "SELEC"),
    (("sql", ""), "no statement"),
    (("sql", "SELECT 1; SELECT 2"), "one statement"),
    (("sql", "SELECT count(*) FROM latest a, latest b, latest c, latest d, latest e, latest f",
      "--seconds-max", "0.2"), "0.2"),
    (("sql", "SELECT * FROM streams", "--rows-max", "1"), "1"),
    (("insight", "explain", "memory.capacty"), "memory.capacity"),
    (("insight", "drop", "no.such"), "no.such"),
    (("insight", "drop", "tier.available.bytes"), "built in"),
    (("policy", "explain", "x"), "no policy is called x"),
    (("policy", "drop", "x"), "no policy x"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), FAILS, ids=lambda value: str(value)[:40])
def test_what_fails_is_exit_code_1_and_names_what_was_meant(
    live: Agent, arguments: tuple[str, ...], says: str
) -> None:
    assert says in live.error(*arguments)


CLIENTS = [
    ("status",), ("streams",), ("latest", "x"), ("watch", "x"), ("sql", "SELECT 1"), ("insight", "list"),
    ("insight", "explain", "x"), ("insight", "create", "CREATE INSIGHT a.b AS SELECT 1"),
    ("insight", "drop", "x"), ("policy", "ls"), ("policy", "explain", "x"), ("policy", "drop", "x"),
    ("policy", "create", "CREATE POLICY a FOR 'x' ERROR '1 %'"), ("top", "--once"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", CLIENTS, ids=" ".join)
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_without_an_agent_every_client_says_so(
    arguments: tuple[str, ...], form: tuple[str, ...], tmp_path: Any
) -> None:
    done = baro(*arguments, *form, "--run-dir", tmp_path / "none")
    assert done.returncode == 1, done.stdout
    assert done.stdout == ""
    assert str(tmp_path / "none") in done.stderr and "agent" in done.stderr
