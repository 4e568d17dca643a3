"""The past: samples and buckets from memory, log and Parquet, and in other libraries."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Demo

import barograph

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")

TICKS = "demo.ticks.count"
SAMPLE = ["ts", "name", "labels", "value", "exact", "text", "unit", "quality", "error", "node"]
BUCKET = [
    "ts", "name", "labels", "unit", "count", "min", "max", "sample_mean", "last",
    "min_exact", "max_exact", "last_exact", "last_text", "held_ns", "time_mean", "node",
]  # fmt: skip


def ticked(count: int) -> None:
    """Waits until the demonstration has reached this number of ticks."""
    ticks = barograph.stream(TICKS)
    until = time.monotonic() + 20
    while (ticks.value() or 0) < count:
        assert time.monotonic() < until, "it ticks every 50 ms"
        time.sleep(0.01)


def values(rows: barograph.Result | list[dict[str, Any]]) -> list[float]:
    return [row["value"] for row in rows]


def test_history_is_every_sample_once(demo: Demo) -> None:
    ticked(5)
    demo.tell("seal")
    ticked(10)
    result = barograph.history(TICKS)
    assert result.columns == SAMPLE
    assert values(result) == list(range(1, len(result) + 1)) and len(result) >= 10
    (first, *_) = result
    assert (first["labels"], first["node"], first["unit"]) == ("{}", "demo", "count")
    assert (first["quality"], first["error"], first["exact"]) == ("measured", 0.0, None)
    (vda,) = barograph.history("disk.busy.ratio", device="vda")
    assert json.loads(vda["labels"]) == {"device": "vda"} and vda["value"] == 0.25
    (text,) = barograph.history("disk.scheduler.name")
    assert (text["value"], text["text"]) == (None, "none")


def test_times_and_steps(demo: Demo) -> None:
    ticked(10)
    all_of_it = list(barograph.history(TICKS))
    third, sixth = all_of_it[2]["ts"], all_of_it[5]["ts"]
    assert values(barograph.history(TICKS, third, sixth)) == [3, 4, 5]
    assert values(barograph.history(TICKS, start="-1h", stop=third)) == [1, 2]
    assert len(barograph.history(TICKS, stop="1999-12-31T00:00:00Z")) == 0
    (*_, hour) = barograph.history(TICKS, step="1h")
    assert list(hour) == BUCKET
    assert hour["ts"] % 3_600_000_000_000 == 0 and hour["count"] >= 1
    assert hour["min"] <= hour["time_mean"] <= hour["max"] == hour["last"]
    assert hour["held_ns"] > 0
    fine = barograph.history(TICKS, step=1_000_000_000)
    assert sum(row["count"] for row in fine) >= 10


def test_wrong_questions(demo: Demo) -> None:
    with pytest.raises(barograph.QueryError, match="more than 1 samples") as e:
        ticked(3)
        barograph.history(TICKS, samples_max=1)
    assert e.value.kind == "limit"
    with pytest.raises(barograph.Error, match="is not a time"):
        barograph.history(TICKS, start="yesterday")
    with pytest.raises(barograph.Error, match="is not a length of time"):
        barograph.history(TICKS, step="often")
    with pytest.raises(TypeError, match="ns since the epoch"):
        barograph.history(TICKS, start=1.5)  # type: ignore[arg-type]
    with pytest.raises(barograph.QueryError, match="there are raw, 1s, 1min, 1h"):
        barograph.archive().files("2s")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not both"):
        barograph.archive("a", "b")


def test_no_archive(tmp_path: Path) -> None:
    with pytest.raises(barograph.Error, match="there is no archive in"):
        barograph.archive(path=tmp_path / "none")
    with pytest.raises(barograph.NoAgentError):
        barograph.archive(tmp_path)


def test_files_and_tail(demo: Demo) -> None:
    archive = barograph.archive()
    assert archive.path == demo.run_dir / "archive"
    assert repr(archive) == f"<Archive in {archive.path}>"
    assert archive.nodes == ["demo"]
    assert archive.files() == [] and len(archive.tail(TICKS)) >= 1
    ticked(5)
    demo.tell("seal")
    ticked(10)
    files, rest = archive.moment("raw", TICKS)
    assert all("/raw/node=demo/date=" in file and file.endswith(".parquet") for file in files)
    assert files == archive.files()
    assert archive.files(stop="1999-12-31T00:00:00Z") == archive.files(match="no.such") == []
    assert rest.columns == [*SAMPLE, "life", "number"]
    numbers = [row["number"] for row in rest]
    assert 1 < numbers[0] <= 11 and numbers == list(range(numbers[0], numbers[-1] + 1))
    in_files = duckdb.execute(
        "SELECT number FROM read_parquet(?) WHERE name = ? ORDER BY number", [files, TICKS]
    ).fetchall()
    assert [n for (n,) in in_files] == list(range(1, numbers[0])), "the seam"


def test_an_archive_by_itself(demo: Demo) -> None:
    ticked(5)
    demo.tell("seal")
    demo.stop()
    archive = barograph.archive(path=demo.run_dir / "archive")
    found = values(archive.table(TICKS))
    assert len(found) >= 5 and found == list(range(1, len(found) + 1))


def test_duckdb_has_each_sample_once(demo: Demo) -> None:
    for count in (3, 6, 9):
        ticked(count)
        demo.tell("seal")
    ticked(12)
    demo.tell("restart")
    ticked(3)
    connection = barograph.archive().duckdb()
    lives = connection.sql(
        f"SELECT life, count(*), count(DISTINCT number), min(number), max(number) FROM samples"
        f" WHERE name = '{TICKS}' GROUP BY life ORDER BY life"
    ).fetchall()
    assert len(lives) == 2
    for _, count, distinct, first, last in lives:
        assert count == distinct == last and first == 1
    assert lives[0][1] >= 12
    described = {name: kind for name, kind, *_ in connection.sql("DESCRIBE samples").fetchall()}
    assert list(described) == [*SAMPLE, "life", "number"]
    assert (described["ts"], described["value"], described["node"]) == ("BIGINT", "DOUBLE", "VARCHAR")
    assert connection.sql("SELECT DISTINCT node FROM samples").fetchall() == [("demo",)]


def test_duckdb_over_a_tier(demo: Demo) -> None:
    ticked(5)
    demo.tell("seal")
    ticked(10)
    connection = duckdb.connect()
    archive = barograph.archive()
    assert archive.duckdb(connection, tier="1min") is connection
    (total, least) = connection.sql(
        f"SELECT sum(count), min(min) FROM samples WHERE name = '{TICKS}'"
    ).fetchall()[0]
    assert total >= 10 and least == 1


def test_pandas_and_polars(demo: Demo) -> None:
    ticked(5)
    demo.tell("seal")
    archive = barograph.archive()
    frame = archive.pandas("disk.*", start="-1h")
    assert list(frame.columns) == SAMPLE
    assert frame["ts"].dtype == "int64" and frame["value"].dtype == "float64"
    assert set(frame["name"]) >= {"disk.read.bytes", "disk.scheduler.name"}
    by_hour = archive.pandas(TICKS, step="1h")
    assert list(by_hour.columns) == BUCKET and by_hour["count"].sum() >= 5
    other = archive.polars("disk.*")
    assert other.columns == SAMPLE
    assert other.filter(polars.col("name") == "disk.busy.ratio")["value"].to_list() == [0.25]


def test_a_library_that_is_missing(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ImportError, match=r"pip install 'barograph\[duckdb\]'"):
        barograph.archive().duckdb()
