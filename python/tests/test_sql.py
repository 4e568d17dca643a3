"""SQL in this process, to rows, Arrow and pandas."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pyarrow
import pytest
from conftest import Demo

import barograph

BUSY = "SELECT device, value, quality FROM disk_busy_ratio WHERE newest"
READS = "SELECT device, value FROM disk_read_bytes WHERE newest ORDER BY device"
# A statement that counts for longer than anyone waits.
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def test_rows(demo: Demo) -> None:
    result = barograph.sql(BUSY)
    assert result.columns == ["device", "value", "quality"]
    assert result.rows() == [{"device": "vda", "value": 0.25, "quality": "derived"}]
    assert list(result) == result.rows() and len(result) == 1
    reads = barograph.sql(READS).rows()
    assert [row["device"] for row in reads] == ["vda", "vdb"]
    assert reads[1]["value"] == 2 * reads[0]["value"] > 0


def test_arrow(demo: Demo) -> None:
    table = barograph.sql(BUSY).arrow()
    assert table.column_names == ["device", "value", "quality"]
    assert table.to_pylist() == [{"device": "vda", "value": 0.25, "quality": "derived"}]
    assert table.schema.field("value").type == pyarrow.float64()
    assert pyarrow.table(barograph.sql(BUSY)).equals(table), "through the PyCapsule"
    empty = barograph.sql(BUSY + " AND device = 'none'")
    assert (len(empty), empty.arrow().num_rows, empty.rows()) == (0, 0, [])
    assert empty.columns == empty.arrow().column_names == ["device", "value", "quality"]


def test_arrow_has_times_and_bytes(demo: Demo) -> None:
    table = barograph.sql("SELECT ts, ts AS at, x'00ff' AS b FROM disk_busy_ratio WHERE newest").arrow()
    assert table.schema.types == [pyarrow.timestamp("ns", tz="UTC"), pyarrow.int64(), pyarrow.binary()]
    assert table["ts"].cast(pyarrow.int64()).equals(table["at"])


def test_pandas(demo: Demo) -> None:
    frame = barograph.sql(READS).pandas()
    assert list(frame.columns) == ["device", "value"]
    assert list(frame["device"]) == ["vda", "vdb"]
    assert frame["value"].dtype.kind == "i"


def test_types_of_fields(demo: Demo) -> None:
    sql = "SELECT 9007199254740993 AS i, 0.5 AS f, 'é' AS t, x'00ff' AS b, NULL AS n, 1 AS i"
    (row,) = barograph.sql(sql)
    expect = {"i": 2**53 + 1, "f": 0.5, "t": "é", "b": b"\0\xff", "n": None, "i_2": 1}
    assert row == expect
    (flag,) = barograph.sql("SELECT value, newest FROM disk_rotational_flag WHERE newest")
    assert flag["value"] is False
    (nan,) = barograph.sql("SELECT value FROM demo_nan_ratio WHERE newest")
    assert nan["value"] is None, "NaN is SQL's null"


def test_representation(demo: Demo) -> None:
    assert repr(barograph.sql("SELECT device, value FROM disk_busy_ratio WHERE newest")) == (
        "device  value\n------  -----\nvda     0.25\n(1 rows)"
    )
    many = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 50) SELECT i FROM n"
    )
    lines = repr(barograph.sql(many)).splitlines()
    assert (len(lines), lines[-1]) == (23, "(50 rows, 30 not shown)")


@pytest.mark.parametrize(
    ("sql", "kind", "says"),
    [
        ("SELEC 1", "statement", "SELEC"),
        ("SELECT value FROM disk_raed_bytes", "statement", "disk_read_bytes"),
        ("CREATE TABLE t (a)", "refused", "refused"),
        ("ATTACH 'x' AS y", "refused", "refused"),
    ],
)
def test_statements_that_are_not_answered(demo: Demo, sql: str, kind: str, says: str) -> None:
    with pytest.raises(barograph.QueryError, match=says) as e:
        barograph.sql(sql)
    assert e.value.kind == kind


def test_limits(observer: barograph.Observer) -> None:
    with pytest.raises(barograph.QueryError) as e:
        observer.sql(READS, rows_max=1)
    assert e.value.kind == "limit"
    with pytest.raises(barograph.QueryError) as e:
        observer.sql(ENDLESS, seconds_max=0.3)
    assert e.value.kind == "limit"
    with pytest.raises(ValueError, match="seconds_max"):
        observer.sql(READS, seconds_max=0)


def test_ctrl_c_ends_a_long_query(observer: barograph.Observer) -> None:
    timer = threading.Timer(0.4, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        observer.sql(ENDLESS, seconds_max=600)
    timer.join()


def test_queries_cross_a_restart(demo: Demo) -> None:
    before = barograph.sql("SELECT value FROM demo_ticks_count WHERE newest").rows()
    demo.tell("restart")
    after = barograph.sql("SELECT value FROM demo_ticks_count WHERE newest").rows()
    assert before and len(after) == 1


def test_without_pyarrow(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    result = barograph.sql(BUSY)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.ipc", raising=False)
    with pytest.raises(ImportError, match=r"barograph\[arrow\]"):
        result.arrow()
    assert result.rows()
