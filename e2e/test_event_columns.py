"""File events in sealed Parquet files, as columns for programs that know no records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
from harness import QUICK, Agent, baro, eventually
from test_event_feeds import watched

Start = Callable[..., Agent]


def test_other_programs_read_events_as_columns(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    (tree / "a").mkdir()
    (tree / "a" / "one").write_text("12345")
    (tree / "a" / "one").rename(tree / "a" / "zwei-ä")
    os.close(os.open(os.fsencode(tree) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    (tree / "last").touch()
    eventually(lambda: agent.sql(f"SELECT 1 FROM events WHERE path = '{tree}/last'"), "the last event")

    def check() -> None:
        """DuckDB has what SQL has, whichever files there are."""
        columns = "ts, kind, path, old_path, size, uid, gid, job, directory, complete, idx, source, quality"
        files = [str(file) for file in (agent.state_dir / "applications").rglob("*.parquet") if "/raw/" in str(file)]
        theirs = duckdb.sql(
            f"SELECT {columns}, path_bytes, bytes FROM read_parquet({files}, union_by_name = true) "
            "WHERE name = 'events' ORDER BY idx"
        ).fetchall()
        ours = agent.sql(f"SELECT {columns} FROM events ORDER BY idx")
        flags = ("directory", "complete")
        assert [row[:13] for row in theirs] == [
            tuple(bool(row[name]) if name in flags else row[name] for name in columns.split(", ")) for row in ours
        ]
        # The bytes of a path are there where it is no text, and the record always.
        odd = [row for row in theirs if row[13] is not None]
        assert {row[13] for row in odd} == {os.fsencode(tree) + b"/\xff"}
        assert all(row[14] for row in theirs)

    agent.run("archive", "seal")
    check()
    (tree / "later").touch()
    eventually(lambda: agent.sql(f"SELECT 1 FROM events WHERE path = '{tree}/later'"), "an event")
    agent.run("archive", "seal")
    agent.run("archive", "compact")
    check()
    archive = agent.state_dir / "applications" / "all" / "archive"
    verified = json.loads(baro("archive", "verify", "--archive-dir", archive, "--json").stdout)
    assert verified["samples"] >= len(agent.sql("SELECT 1 FROM events")) and not verified["findings"]
