"""A node that keeps the history of others on its disk."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import QUICK, Agent, baro, eventually
from test_cluster import cluster, free_address, peer

Start = Callable[..., Agent]
AGGREGATOR = QUICK + '[cluster.aggregator]\nstreams = ["memory.*", "node.*"]\nnodes = ["b", "c"]\n'
OWN = "SELECT ts, value FROM memory_available_bytes WHERE ts <= {until} ORDER BY ts"
KEPT = OWN.replace("FROM ", "FROM b_")


def samples(directory: Path) -> list[dict[str, str]]:
    """The samples of memory.available.bytes in an archive, read without an agent."""
    match = ["--match", "memory.available.bytes", "--format", "csv", "--out", "-"]
    listed = baro("archive", "export", "--archive-dir", directory, *match)
    if "nothing to export" in listed.stderr:
        return []
    assert listed.returncode == 0, listed
    return list(csv.DictReader(io.StringIO(listed.stdout)))


def archived(directory: Path) -> int:
    """Number of these samples."""
    return len(samples(directory))


def keeper(nodes: list[str]) -> str:
    """The configuration of an aggregator of these nodes."""
    return AGGREGATOR.replace('["b", "c"]', json.dumps(nodes))


def rack(start: Start, configs: dict[str, str]) -> list[Agent]:
    """Agents of these names, each with a configuration of its own."""
    address = free_address()
    agents = []
    for at, (name, config) in enumerate(configs.items()):
        where = ["--listen", address] if at == 0 else ["--listen", "127.0.0.1:0", "--peer", address]
        agents.append(start("--node", name, "--cluster", "rack", *where, config=config))
    return agents


def changes_of(b: Agent, number: int, what: str) -> None:
    """Waits until so many further samples of b are there."""
    begun = time.time_ns()
    changes = f"SELECT count(*) AS changes FROM memory_available_bytes WHERE ts > {begun}"
    eventually(lambda: b.sql(changes)[0]["changes"] >= number, what)


def first_kept(a: Agent, directory: Path | None = None) -> int:
    """The time of the first sample of b that the aggregator has on its disk: what is in its memory alone
    is lost with it."""
    directory = (directory or a.state_dir / "aggregated") / "b"
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path) -> None:
    """Writes until there is no room."""
    with place.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_is_said_harms_nothing_else_and_leaves_no_hole(start: Start, small_disk: Path) -> None:
    short = "[streams]\ndepth = 16\n"
    config = keeper(["b"]) + f'dir = "{small_disk}"\n[archive]\nfree_bytes_min = 0\n' + short
    a, b = rack(start, {"a": config, "b": QUICK + short})
    began = first_kept(a, small_disk)
    assert peer(a, "b")["fault"] is None
    filler = small_disk / "filler"
    fill(filler)
    fault = "SELECT fault FROM peers WHERE node = 'b' AND fault LIKE '%history is not%No space left%'"
    eventually(lambda: a.sql(fault), "the reason")
    full = time.time_ns()
    finding = r"b is not wholly mirrored\n +why +history is not written: .*No space left"
    eventually(lambda: re.search(finding, a.out("doctor")), "the finding")
    # The ring of b turns over more than once.
    changes_of(b, 40, "changes while nobody can keep them")
    # Values are mirrored, and the aggregator's own history, which has another disk, goes on.
    newest = f"SELECT 1 FROM b_memory_available_bytes WHERE newest AND ts > {full}"
    eventually(lambda: a.sql(newest), "the mirror goes on")
    assert a.sql(f"SELECT count(*) AS rows FROM memory_available_bytes WHERE ts > {full}")[0]["rows"] > 0
    lost = a.sql("SELECT max(value) AS lost FROM archive_lost_samples_count WHERE newest")
    assert lost[0]["lost"] in (None, 0), lost

    def heal() -> int:
        filler.unlink()
        # What failed is tried again after half a minute at most.
        healed = "SELECT 1 FROM peers WHERE node = 'b' AND fault IS NULL AND samples > 0"
        eventually(lambda: a.sql(healed), "there is room again", seconds=90)
        return time.time_ns()

    def has_all(since: int, until: int) -> bool:
        owned = [row for row in b.sql(OWN.format(until=until)) if row["ts"] >= since]
        return len(owned) > 40 and [row for row in a.rows(KEPT.format(until=until)) if row["ts"] >= since] == owned

    until = heal()
    eventually(lambda: has_all(began, until), "the history without a hole")
    # The aggregator is killed and comes back while there is no room: that is said too, and by then the oldest
    # history may have been deleted for newer one, as on any full disk.
    fill(filler)
    eventually(lambda: a.sql(fault), "the reason")
    full = time.time_ns()
    a.stop(signal.SIGKILL)
    a.start()
    eventually(lambda: a.rows("SELECT 1 FROM peers WHERE node = 'b' AND fault LIKE '%history is not%'"), "the reason")
    changes_of(b, 40, "changes while nobody can keep them")
    until = heal()
    eventually(lambda: has_all(full, until), "the history without a hole")
    assert peer(a, "b")["missed"] == 0
    assert b.ask("cluster", "status")["lost"] == 0


def test_what_a_lost_aggregator_had_and_what_another_has_is_everything_once(start: Start, tmp_path: Path) -> None:
    # What the second one finds in the rings of b is less than what the first one has.
    a, b = rack(start, {"a": keeper(["b"]), "b": QUICK + "[streams]\ndepth = 16\n"})
    began = first_kept(a)
    changes_of(b, 20, "what only the first aggregator has")
    # The second one joins later.
    a_listens = a.options[a.options.index("--listen") + 1]
    where = ["--listen", "127.0.0.1:0", "--peer", a_listens]
    c = start("--node", "c", "--cluster", "rack", *where, config=keeper(["b"]))
    later = first_kept(c)
    assert later > began
    changes_of(b, 20, "what both have")
    a.stop(signal.SIGKILL)
    rescued = tmp_path / "rescued"
    shutil.copytree(a.state_dir / "aggregated" / "b", rescued)
    shutil.rmtree(a.state_dir)
    changes_of(b, 20, "what only the second aggregator has")
    until = b.sql("SELECT max(ts) AS ts FROM memory_available_bytes")[0]["ts"]
    kept = c.state_dir / "aggregated" / "b"
    c_has = KEPT.format(until=until)
    eventually(lambda: [row["ts"] for row in c.rows(c_has)][-1:] == [until], "the newest sample")
    # The lost one comes back with nothing, and begins anew.
    a.start()
    assert first_kept(a) > later
    c.stop()
    only_one = {row["ts"] for row in samples(kept)}
    merged = tmp_path / "merged"
    done = baro("archive", "merge", rescued, kept, "--out", merged, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["doubles"] > 0, done
    rows = samples(merged)
    owned = [row for row in b.sql(OWN.format(until=until)) if row["ts"] >= began]
    found = [int(row["value"]) for row in rows if int(row["ts"]) <= until]
    assert found == [row["value"] for row in owned]
    assert len(only_one) < len({row["ts"] for row in rows}) == len(rows)


def test_two_aggregators_share_the_nodes_of_a_rack(start: Start) -> None:
    a, b, c, d = rack(start, {"a": keeper(["c"]), "b": keeper(["d"]), "c": QUICK, "d": QUICK})
    shards = {a: ("c", "d"), b: ("d", "c")}
    for aggregator, (kept, other) in shards.items():
        directory = aggregator.state_dir / "aggregated"
        eventually(lambda directory=directory, kept=kept: (directory / kept).is_dir(), "the directory of the history")
        eventually(lambda directory=directory, kept=kept: archived(directory / kept) > 3, "the history on the disk")
        # The other node is mirrored, and not kept.
        eventually(lambda at=aggregator, other=other: peer(at, other).get("samples", 0) > 0, "the mirror")
        eventually(lambda at=aggregator: at.ask("cluster", "status")["kept"] == 1, "one history")
        assert [path.name for path in directory.iterdir()] == [kept]
    assert c.process and d.process


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
