"""A node that keeps the history of others on its disk."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

from harness import QUICK, Agent, baro, eventually
from test_cluster import cluster, peer

Start = Callable[..., Agent]
AGGREGATOR = QUICK + '[cluster.aggregator]\nstreams = ["memory.*", "node.*"]\nnodes = ["b", "c"]\n'
OWN = "SELECT ts, value FROM memory_available_bytes WHERE ts <= {until} ORDER BY ts"
KEPT = OWN.replace("FROM ", "FROM b_")


def archived(directory: Path) -> int:
    """Number of samples of memory.available.bytes in an archive, read without an agent."""
    match = ["--match", "memory.available.bytes", "--format", "csv", "--out", "-"]
    listed = baro("archive", "export", "--archive-dir", directory, *match)
    if "nothing to export" in listed.stderr:
        return 0
    assert listed.returncode == 0, listed
    return len(listed.stdout.splitlines()) - 1


def first_kept(a: Agent) -> int:
    """The time of the first sample of b that the aggregator has on its disk: what is in its memory alone
    is lost with it."""
    directory = a.state_dir / "aggregated" / "b"
    eventually(lambda: peer(a, "b").get("samples", 0) > 0 and directory.is_dir(), "the mirror of b")
    eventually(lambda: archived(directory) > 3, "the history of b on the disk")
    return int(a.rows(KEPT.format(until=time.time_ns()))[0]["ts"])


def test_the_history_of_a_node_is_kept_through_crashes_of_either_side(start: Start) -> None:
    _, (a, b, c) = cluster(start, ["a", "b", "c"], AGGREGATOR)
    eventually(lambda: peer(a, "b").get("samples", 0) > 0, "the mirror")
    began = time.time_ns()

    def agrees(until: int) -> bool:
        # What b had before the feed began is in its archive alone.
        kept = a.rows(KEPT.format(until=until))
        own = [row for row in b.sql(OWN.format(until=until)) if kept and row["ts"] >= kept[0]["ts"]]
        return len(own) > 0 and kept == own

    eventually(lambda: agrees(began), "the history of b")
    # The aggregator is killed and comes back: nothing is missing, nothing is there twice.
    a.stop(signal.SIGKILL)
    time.sleep(2)
    a.start()
    eventually(lambda: peer(a, "b")["state"] == "connected", "the aggregator is back")
    crashed = time.time_ns()
    eventually(lambda: agrees(crashed), "the history goes on")
    rows = a.sql("SELECT count(*) AS rows, count(DISTINCT ts) AS times FROM b_memory_available_bytes")
    assert rows[0]["rows"] == rows[0]["times"] > 5
    assert a.sql("SELECT fault FROM peers WHERE fault IS NOT NULL") == []
    eventually(lambda: a.ask("cluster", "status")["kept"] == 2, "both histories")
    assert "the history of 2 nodes" in a.out("cluster", "status")
    # A node that is gone is still history, and its next life another one.
    b.stop(signal.SIGKILL)
    eventually(lambda: peer(a, "b")["state"] == "gone", "b is gone")
    before = a.sql(KEPT.format(until=crashed))
    assert before and before[-1]["ts"] > began
    b.start()
    eventually(lambda: peer(a, "b")["state"] == "connected", "b is back")
    returned = time.time_ns()
    later = f"SELECT 1 FROM b_memory_available_bytes WHERE ts > {returned}"
    eventually(lambda: a.sql(later), "samples of its next life")
    assert a.sql(KEPT.format(until=crashed)) == before
    gaps = a.sql("SELECT count(*) AS gaps FROM gaps('memory.available.bytes') WHERE node = 'b'")
    assert gaps == [{"gaps": 1}], "the time between its two lives"
    # What is not named is not kept, and without an agent the archive is one like any other.
    a.stop()
    directory = a.state_dir / "aggregated"
    assert sorted(path.name for path in directory.iterdir()) == ["b", "c"]
    assert archived(directory / "b") >= len(before)
    merged = baro("archive", "merge", *directory.iterdir(), "--out", a.state_dir / "merged", "--json")
    assert merged.returncode == 0 and json.loads(merged.stdout)["nodes"] == 2, merged
    assert archived(a.state_dir / "merged") > archived(directory / "b")
    again = baro("archive", "merge", directory / "b", "--out", a.state_dir / "merged")
    assert again.returncode == 1 and "merge into" in again.stderr, again
    nothing = baro("archive", "merge", a.run_dir, "--out", a.state_dir / "x")
    assert nothing.returncode == 2 and "is no archive" in nothing.stderr, nothing
    kept = baro("archive", "verify", "--archive-dir", directory / "b")
    assert kept.returncode == 0, kept
    listed = baro("archive", "ls", "--archive-dir", directory / "b", "--json")
    assert listed.returncode == 0 and json.loads(listed.stdout), listed
    assert c.process


def test_what_the_rings_have_lost_comes_from_the_archive_of_the_node(start: Start) -> None:
    _, (a, b) = cluster(start, ["a", "b"], AGGREGATOR + "[streams]\ndepth = 16\n")

    began = first_kept(a)
    a.stop(signal.SIGKILL)
    # The ring of b turns over more than once: then it no longer has what the aggregator lacks.
    away = time.time_ns()
    changes = f"SELECT count(*) AS changes FROM memory_available_bytes WHERE ts > {away}"
    eventually(lambda: b.sql(changes)[0]["changes"] > 40, "changes while nobody keeps them")
    a.start()
    eventually(lambda: peer(a, "b")["state"] == "connected", "the aggregator is back")
    returned = time.time_ns()
    until = OWN.format(until=returned)
    own = [row for row in b.sql(until) if row["ts"] >= began]
    eventually(lambda: a.rows(KEPT.format(until=returned)) == own, "the same history")
    assert peer(a, "b")["missed"] == 0
    # The counts are told once a second.
    eventually(lambda: b.ask("cluster", "status")["past"] > 20, "samples of the archive")
    assert b.ask("cluster", "status")["lost"] == 0
    assert "of them from the archive" in b.out("cluster", "status")


def test_lives_that_ended_while_nobody_kept_them_are_kept_afterwards(start: Start) -> None:
    _, (a, b) = cluster(start, ["a", "b"], AGGREGATOR)

    began = first_kept(a)
    a.stop(signal.SIGKILL)
    # Meanwhile the node is killed, and stopped in order: one life has ended in the middle, and one begun and ended.
    for how in (signal.SIGKILL, signal.SIGTERM):
        life = time.time_ns()
        changes = f"SELECT count(*) AS changes FROM memory_available_bytes WHERE ts > {life}"
        eventually(lambda changes=changes: b.sql(changes)[0]["changes"] > 8, "changes while nobody keeps them")
        b.stop(how)
        b.start()
    a.start()
    eventually(lambda: peer(a, "b").get("state") == "connected", "the aggregator is back")
    returned = time.time_ns()
    own = [row for row in b.sql(OWN.format(until=returned)) if row["ts"] >= began]
    eventually(lambda: a.rows(KEPT.format(until=returned)) == own, "the same history, with all lives")
    assert peer(a, "b")["missed"] == 0
    assert b.ask("cluster", "status")["lost"] == 0
    assert a.sql("SELECT fault FROM peers WHERE fault IS NOT NULL") == []


def test_a_directory_that_cannot_be_written_is_said_and_tried_again(start: Start, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file in place of the directory")
    _, (a, b) = cluster(start, ["a", "b"], AGGREGATOR + f'dir = "{blocked}"\n')
    fault = "SELECT fault FROM peers WHERE fault LIKE '%history is not kept%'"
    eventually(lambda: a.sql(fault), "the reason")
    blocked.unlink()
    eventually(lambda: peer(a, "b").get("samples", 0) > 0, "it is kept when that is over")
    assert b.process


def test_bad_values_are_refused(start: Start, tmp_path: Path) -> None:
    check = {
        'streams = ["a{"]': "cluster.aggregator.streams",
        "commit_seconds = 0": "cluster.aggregator.commit_seconds = 0 is refused",
        "bytes_max = 5": "cluster.aggregator.bytes_max = 5 is refused",
        "stream = 1": "unknown field `stream`",
    }
    for text, reason in check.items():
        config = tmp_path / "bad.toml"
        config.write_text(f"[cluster.aggregator]\n{text}\n")
        done = baro("up", "--config", config, "--run-dir", tmp_path / "run", "--state-dir", tmp_path / "state")
        assert done.returncode != 0 and reason in done.stderr, done
