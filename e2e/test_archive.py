"""History on disk: written while sampling, readable by other programs, and kept over a restart."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from harness import QUICK, Agent, baro, eventually

Start = Callable[..., Agent]

# Rings so short that most of what SQL shows must come from disk.
SHORT = "[streams]\ndepth = 8\n" + QUICK


@pytest.fixture
def agent(start: Start) -> Agent:
    """An agent of this machine with short rings."""
    return start("--node", "node_1", config=SHORT)


def raw(folder: Path) -> str:
    """The samples of all Parquet files, as DuckDB reads them."""
    return f"read_parquet('{folder}/raw/**/*.parquet', hive_partitioning = true)"


def samples(agent: Agent, name: str) -> int:
    """Number of samples that a stream has had."""
    return agent.ask("streams", name)[0]["samples"]


def document(agent: Agent) -> dict[str, Any]:
    """The agent's report on its archive."""
    return agent.ask("status")["archive"]


def test_duckdb_reads_what_sql_shows(agent: Agent) -> None:
    name = "agent.cpu.seconds"
    eventually(lambda: samples(agent, name) > 12, "more samples than the ring holds")
    until = time.time_ns()
    assert agent.ask("archive", "seal")["sealed"]
    where = f"ts <= {until} ORDER BY ts"
    ours = agent.sql(f"SELECT ts, value FROM agent_cpu_seconds WHERE {where}")
    assert len(ours) > 12
    table = raw(agent.archive_dir)
    theirs = duckdb.sql(f"SELECT ts, value FROM {table} WHERE name = '{name}' AND {where}").fetchall()
    assert theirs == [(row["ts"], row["value"]) for row in ours]


def test_every_stream_agrees_row_for_row(agent: Agent) -> None:
    eventually(lambda: samples(agent, "agent.cpu.seconds") > 12, "some samples")
    agent.stop()
    agent.ask("archive", "seal")
    table = raw(agent.archive_dir)
    counted = duckdb.sql(
        f"SELECT name, labels, count(*), max(number) FROM {table} GROUP BY name, labels, life"
    ).fetchall()
    assert counted and all(rows == newest for _, _, rows, newest in counted), "none is lost or there twice"
    streams = {stream["name"]: stream for stream in agent.ask("streams") if not stream["labels"]}
    found = {name: rows for name, labels, rows, _ in counted if labels in ("", "{}")}
    assert {name: stream["samples"] for name, stream in streams.items() if stream["samples"]} == found
    for name in ("memory.available.bytes", "cpu.user.seconds", "node.outlook.text", "archive.samples.count"):
        value = "text" if name.endswith("text") else "value"
        ours = agent.sql(f"SELECT ts, value FROM {name.replace('.', '_')} ORDER BY ts")
        theirs = duckdb.sql(f"SELECT ts, {value} FROM {table} WHERE name = '{name}' ORDER BY ts").fetchall()
        assert [(row["ts"], row["value"]) for row in ours] == theirs, name


def test_partitions_are_columns(agent: Agent) -> None:
    agent.ask("archive", "seal")
    rows = duckdb.sql(f"SELECT DISTINCT node, date, hour FROM {raw(agent.archive_dir)}").fetchall()
    now = time.gmtime()
    assert {node for node, _, _ in rows} == {"node_1"}
    assert {str(date)[:4] for _, date, _ in rows} <= {str(now.tm_year), str(now.tm_year - 1)}


def test_pandas_reads_it_as_it_is(agent: Agent) -> None:
    import pandas

    agent.ask("archive", "seal")
    frame = pandas.read_parquet(agent.archive_dir / "raw")
    assert {"ts", "name", "labels", "value", "life", "number", "node", "date", "hour"} <= set(frame.columns)
    assert (frame[frame.name == "memory.total.bytes"].value > 0).all()


def test_history_from_before_a_restart_is_there(agent: Agent) -> None:
    eventually(lambda: samples(agent, "agent.cpu.seconds") > 3, "some samples")
    agent.stop()
    # The last look at a value may be the one that found it: two samples of one time, of which one ends it.
    every = "SELECT ts, quality, value FROM agent_cpu_seconds ORDER BY ts, quality = 'ended'"
    before = agent.sql(every)
    assert len(before) > 3
    agent.start()
    eventually(lambda: samples(agent, "agent.cpu.seconds") > 1, "samples of the second life")
    after = agent.sql(every)
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert len({(row["ts"], row["quality"]) for row in after}) == len(after), "none twice"
    assert agent.post_sql("SELECT count(*) AS n FROM agent_cpu_seconds").json[0]["n"] >= len(after)


def test_the_agent_says_where_its_archive_is_and_how_it_does(agent: Agent) -> None:
    written = json.loads((agent.run_dir / "agent.json").read_text())
    assert written["archive"] == str(agent.archive_dir)
    eventually(lambda: document(agent)["samples"] > 100, "samples on disk")
    found = document(agent)
    assert found["dir"] == str(agent.archive_dir)
    assert found["bytes"] >= found["log_bytes"] > 0
    assert found["trouble"] == "" and not any(found["losses"].values()), found
    eventually(lambda: agent.value("archive.samples.count"), "the stream of it")
    assert agent.value("archive.lost.samples.count{reason=overflow}") == 0
    assert agent.value("archive.total.bytes") > 0
    assert agent.value("archive.trouble.text") == ""
    assert "archive" in agent.out("status") and str(agent.archive_dir) in agent.out("doctor")
    assert agent.get("/api/v1/status").json["archive"]["dir"] == str(agent.archive_dir)


def test_ls_counts_what_is_there(agent: Agent) -> None:
    eventually(lambda: document(agent)["samples"] > 100, "samples on disk")
    agent.stop()
    logged = agent.ask("archive", "ls")
    agent.ask("archive", "seal")
    sealed = agent.ask("archive", "ls")
    assert sealed["samples"] == logged["samples"] > 100
    kinds = {group["kind"] for group in sealed["groups"]}
    assert {"raw", "1min", "1h"} <= kinds
    table = raw(agent.archive_dir)
    assert duckdb.sql(f"SELECT count(*) FROM {table}").fetchall() == [(sealed["samples"],)]
    files = {Path(file["path"]) for file in sealed["files"] if file["kind"] == "raw"}
    assert files == set((agent.archive_dir / "raw").rglob("*.parquet"))
    assert sum(file["bytes"] for file in sealed["files"]) == sealed["bytes"]
    text = agent.out("archive", "ls")
    assert "bytes per sample" in text and "node_1" in text
    assert all(path.name in agent.out("archive", "ls", "--files") for path in files)


def test_compaction_leaves_one_file_an_hour_and_all_samples(agent: Agent) -> None:
    for _ in range(3):
        count = samples(agent, "agent.cpu.seconds")
        eventually(lambda: samples(agent, "agent.cpu.seconds") > count, "something to seal")
        agent.ask("archive", "seal")
    agent.stop()
    before = agent.ask("archive", "ls")
    assert agent.ask("archive", "compact")["replaced_files"] > 0
    after = agent.ask("archive", "ls")
    assert after["samples"] == before["samples"]
    raws = [Path(file["path"]).parent for file in after["files"] if file["kind"] == "raw"]
    assert len(raws) == len(set(raws)), "one file an hour"
    verified = agent.ask("archive", "verify")
    assert verified["samples"] == before["samples"] and not verified["findings"] and not verified["twice"]


def test_verify_finds_a_damaged_file(agent: Agent) -> None:
    agent.ask("archive", "seal")
    agent.stop()
    assert agent.ask("archive", "verify")["findings"] == []
    assert "whole" in agent.out("archive", "verify")
    file = max((agent.archive_dir / "raw").rglob("*.parquet"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    for at in range(len(content) // 3, len(content) // 3 + 64):
        content[at] ^= 0xFF
    file.write_bytes(content)
    done = agent.run("archive", "verify", "--json")
    assert done.returncode == 1 and "panicked" not in done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["path"] == str(file)


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_export(agent: Agent, tmp_path: Path, form: str) -> None:
    eventually(lambda: samples(agent, "agent.cpu.seconds") > 3, "some samples")
    agent.stop()
    out = tmp_path / f"out.{form}"
    command = ["archive", "export", "--match", "agent.*", "--start", "-1h", "--format", form, "--out", out]
    assert agent.ask(*command)["samples"] > 0
    reader = {"parquet": raw(out), "csv": f"read_csv('{out}')", "jsonl": f"read_json('{out}')"}[form]
    rows = duckdb.sql(f"SELECT name, ts FROM {reader} ORDER BY name, ts").fetchall()
    assert {name for name, _ in rows} >= {"agent.cpu.seconds", "agent.memory.bytes"}
    assert all(name.startswith("agent.") for name, _ in rows)
    theirs = [ts for name, ts in rows if name == "agent.cpu.seconds"]
    ours = agent.sql("SELECT ts FROM agent_cpu_seconds ORDER BY ts")
    assert theirs == [row["ts"] for row in ours]
    # An existing file is not overwritten.
    assert str(out) in agent.error(*command)


def test_export_of_a_time_to_the_standard_output(agent: Agent) -> None:
    eventually(lambda: samples(agent, "agent.cpu.seconds") > 6, "some samples")
    agent.stop()
    times = [row["ts"] for row in agent.sql("SELECT ts FROM agent_cpu_seconds ORDER BY ts")]
    span = ["--start", times[1], "--stop", times[4]]
    text = agent.out("archive", "export", "--match", "agent.cpu.seconds", *span, "--format", "jsonl", "--out", "-")
    assert [json.loads(line)["ts"] for line in text.splitlines()] == times[1:4]


def test_what_is_left_out_is_not_written(start: Start) -> None:
    agent = start(config='[archive]\nleave_out = ["vm.*"]\n' + QUICK)
    agent.ask("archive", "seal")
    names = duckdb.sql(f"SELECT DISTINCT name FROM {raw(agent.archive_dir)}").fetchall()
    assert ("memory.total.bytes",) in names
    assert not [name for (name,) in names if name.startswith("vm.")]


def test_an_agent_without_an_archive(start: Start) -> None:
    agent = start("--no-archive")
    assert json.loads((agent.run_dir / "agent.json").read_text())["archive"] is None
    assert not agent.archive_dir.exists()
    assert agent.ask("status")["archive"] is None
    assert not agent.has("archive.*")
    assert agent.value("memory.total.bytes") > 0 and agent.sql("SELECT * FROM memory_total_bytes")
    assert "keeps no history" in agent.error("archive", "ls")
    assert "history is off" in agent.error("archive", "seal")


def without_archive(agent: Agent, why: str) -> None:
    """Checks that an agent observes without an archive, and reports the reason everywhere."""
    assert why in agent.output()
    assert why in document(agent)["trouble"]
    for command in ("status", "doctor"):
        assert why in agent.out(command)
    outlook = eventually(lambda: agent.value("node.outlook.text"), "the outlook")
    assert "history is not written" in outlook
    assert agent.value("memory.total.bytes") > 0 and agent.sql("SELECT * FROM memory_total_bytes")
    assert agent.get("/healthz").status == 200
    assert "there is no archive to work on" in agent.error("archive", "seal")


def test_a_directory_that_cannot_be_written_is_no_reason_not_to_observe(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    agent = start("--archive-dir", tmp_path / "file" / "archive")
    without_archive(agent, str(tmp_path / "file" / "archive"))


def test_a_second_agent_of_an_archive_observes_without_it(start: Start, tmp_path: Path) -> None:
    first = start("--node", "node_1", "--archive-dir", tmp_path / "archive")
    second = start("--node", "node_1", "--archive-dir", tmp_path / "archive")
    without_archive(second, "is held by another agent")
    assert document(first)["trouble"] == ""
    # Another node has its own part of the same directory.
    third = start("--node", "node_3", "--archive-dir", tmp_path / "archive")
    assert document(third)["trouble"] == ""
    first.ask("archive", "seal")
    third.ask("archive", "seal")
    nodes = duckdb.sql(f"SELECT DISTINCT node FROM {raw(tmp_path / 'archive')} ORDER BY node").fetchall()
    assert nodes == [("node_1",), ("node_3",)]


def test_work_on_an_archive_that_a_living_agent_holds_is_its_own(start: Start, tmp_path: Path) -> None:
    agent = start("--archive-dir", tmp_path / "archive")
    eventually(lambda: document(agent)["samples"], "samples on disk")
    done = baro("archive", "seal", "--archive-dir", tmp_path / "archive", "--run-dir", tmp_path / "none")
    assert done.returncode == 1 and "is held by another agent" in done.stderr
    assert agent.ask("archive", "seal", "--archive-dir", tmp_path / "archive")["sealed"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["archive", "ls", "--archive-dir", "/no/such"], "there is no archive at /no/such"),
        (["archive", "verify", "--archive-dir", "/no/such"], "there is no archive at /no/such"),
        (["archive", "export", "--out", "x", "--start", "soon"], "is not a time"),
        (["archive", "export", "--out", "x", "--match", "a{b}"], "a label is not name=value"),
        (["archive", "export", "--out", "x", "--start", "2", "--stop", "1"], "--stop is not after --start"),
        (["archive", "export", "--out", "-"], "give --out DIR"),
        (["up", "--no-archive", "--archive-dir", "/tmp/x"], "cannot be used with"),
    ],
)
def test_wrong_use_is_said(arguments: list[str], says: str) -> None:
    done = baro(*arguments)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr and "panicked" not in done.stderr


def test_a_recorded_machine_has_an_archive_too(start: Start, tree: Path) -> None:
    agent = start("--sys-root", tree)
    agent.ask("archive", "seal")
    rows = duckdb.sql(f"SELECT value FROM {raw(agent.archive_dir)} WHERE name = 'memory.total.bytes'").fetchall()
    assert rows == [(agent.value("memory.total.bytes"),)]
    assert os.listdir(agent.archive_dir / "nodes") == [agent.node]
