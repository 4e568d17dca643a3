"""The loadable extension in two foreign SQLites: the sqlite3 shell's and apsw's.

Expects BARO_SQLITE_SO (the built libbaro_sqlite.so) and BARO_DEMO_SEGMENT (the built example
`demo_segment`; without it cargo runs it).
"""

import os
import shutil
import subprocess
from pathlib import Path

import apsw
import pytest

EXTENSION = os.environ["BARO_SQLITE_SO"]
WORKSPACE = Path(__file__).resolve().parents[4]
RESOURCE_QUERY = (
    "SELECT MAX(Timestamp), metric FROM pfs_capacity "
    "UNION SELECT MAX(Timestamp), metric FROM node_1_memory_capacity"
)
RESOURCES = [(1700000006000000000, 0.5), (1700000007000000000, 123456)]


class Demo:
    """A run directory whose writer lives until the test ends."""

    def __init__(self, run_dir: Path, *archive: Path):
        self.run_dir = run_dir
        built = os.environ.get("BARO_DEMO_SEGMENT")
        cargo = ["cargo", "run", "-q", "-p", "barograph-query", "--example", "demo_segment", "--"]
        self.process = subprocess.Popen(
            [*([built] if built else cargo), str(run_dir), *map(str, archive)],
            cwd=WORKSPACE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"

    def add_late_stream(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "late\n"

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0
        self.process.stdout.close()


@pytest.fixture
def demo(tmp_path, monkeypatch):
    run_dir = tmp_path / "run"
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(run_dir))
    demo = Demo(run_dir)
    yield demo
    demo.close()


def connect():
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(EXTENSION)
    return connection


def rows(connection, sql):
    return list(connection.execute(sql))


def test_resource_query_in_the_shell(demo):
    shell = shutil.which("sqlite3")
    assert shell, "the sqlite3 shell is needed: install sqlite3"
    scheduler = "SELECT value FROM disk_scheduler_name WHERE newest = 1"
    script = f".load {EXTENSION}\n{RESOURCE_QUERY};\n{scheduler};\n"
    done = subprocess.run(
        [shell, "-batch", ":memory:"], input=script, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout == "1700000006000000000|0.5\n1700000007000000000|123456\nmq-deadline\n"


def test_resource_query_in_apsw(demo):
    assert rows(connect(), RESOURCE_QUERY) == RESOURCES


def test_tables_beside_the_hosts_own(demo):
    connection = connect()
    connection.execute("CREATE TABLE limits(device TEXT, most INTEGER)")
    connection.execute("INSERT INTO limits VALUES ('vda', 300), ('vdb', 9000)")
    over = rows(
        connection,
        "SELECT l.device, r.value FROM limits l JOIN disk_read_bytes r"
        " ON r.device = l.device AND r.newest = 1 WHERE r.value > l.most",
    )
    assert over == [("vda", 400)]


def listed(connection):
    """Names of our tables in the schema `baro`."""
    return {name for (name,) in rows(connection, "SELECT name FROM baro.sqlite_schema WHERE type = 'table'")}


@pytest.mark.parametrize("options", [[], ["-readonly"]], ids=["read-write", "read-only"])
def test_the_shell_lists_the_tables(demo, tmp_path, options):
    host = tmp_path / "host.db"
    apsw.Connection(str(host)).execute("CREATE TABLE nodes(own TEXT); INSERT INTO nodes VALUES ('mine')")
    load = f".load {EXTENSION}\n"
    script = f"{load}{load}.tables\n.schema disk_busy_ratio\nSELECT * FROM nodes;\nSELECT streams FROM baro.nodes;\n"
    done = subprocess.run(
        ["sqlite3", "-batch", *options, str(host)], input=script, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    words = done.stdout.split()
    for table in ("baro.disk_busy_ratio", "baro.disk_read_bytes", "baro.latest", "baro.family_disk"):
        assert words.count(table) == 1, done.stdout
    assert "baro.disk_busy_ratio(ts,value,quality,error,node" in done.stdout, "the schema has the columns"
    # A table of the host with one of our names stays the host's.
    assert done.stdout.splitlines()[-2:] == ["mine", "10"]
    assert rows(apsw.Connection(str(host)), "SELECT name FROM sqlite_schema") == [("nodes",)]


def test_listed_tables_follow(demo):
    connection = connect()
    assert {"disk_read_bytes", "latest", "nodes"} <= listed(connection)
    assert "late_arrival_count" not in listed(connection) and "history" not in listed(connection)
    demo.add_late_stream()
    rows(connection, "SELECT baro_refresh()")
    assert "late_arrival_count" in listed(connection)
    # New columns appear too, in a table that is listed already; a second load changes nothing.
    connection.load_extension(EXTENSION)
    assert rows(connection, "SELECT value FROM baro.late_arrival_count") == [(1,)]
    assert rows(connection, RESOURCE_QUERY) == RESOURCES


def test_loaded_within_a_transaction(demo):
    connection = apsw.Connection(":memory:")
    connection.enable_load_extension(True)
    connection.execute("BEGIN")
    connection.load_extension(EXTENSION)
    assert rows(connection, "SELECT count(*) FROM disk_busy_ratio") == [(3,)]
    connection.execute("ROLLBACK")
    assert rows(connection, "SELECT count(*) FROM disk_busy_ratio") == [(3,)]


def test_a_schema_of_the_hosts_is_left_alone(demo, tmp_path):
    connection = apsw.Connection(":memory:")
    connection.execute("ATTACH ? AS baro", (str(tmp_path / "own.db"),))
    connection.enable_load_extension(True)
    connection.load_extension(EXTENSION)
    assert listed(connection) == set()
    assert rows(connection, "SELECT count(*) FROM disk_busy_ratio") == [(3,)]


def test_functions(demo):
    connection = connect()
    assert rows(connection, "SELECT count(*) FROM history('disk.*')") == [(15,)]
    assert rows(connection, "SELECT iso(0)") == [("1970-01-01T00:00:00.000000000Z",)]
    assert rows(connection, "SELECT node, streams FROM nodes") == [("Node-1", 10)]


def test_new_metrics_come_with_a_refresh(demo):
    connection = connect()
    before = rows(connection, "SELECT baro_refresh()")
    demo.add_late_stream()
    # System tables and functions see it at once; the refresh registers its own table.
    assert rows(connection, "SELECT value FROM latest WHERE name = 'late.arrival.count'") == [(1,)]
    with pytest.raises(Exception, match="no such table: late_arrival_count"):
        rows(connection, "SELECT * FROM late_arrival_count")
    assert rows(connection, "SELECT baro_refresh()") == [(before[0][0] + 1,)]
    assert rows(connection, "SELECT value FROM late_arrival_count") == [(1,)]


def test_another_run_directory(demo, tmp_path):
    connection = connect()
    other = Demo(tmp_path / "other")
    try:
        other.add_late_stream()
        path = str(other.run_dir)
        assert list(connection.execute("SELECT baro_open(?)", (path,))) == [(11,)]
        assert rows(connection, "SELECT value FROM late_arrival_count") == [(1,)]
    finally:
        other.close()
    assert rows(connection, "SELECT state FROM nodes") == [("closed",)]
    with pytest.raises(Exception, match="no agent serves"):
        list(connection.execute("SELECT baro_open(?)", (str(tmp_path / "nowhere"),)))


def test_the_archive_too(tmp_path, monkeypatch):
    run_dir, archive = tmp_path / "run", tmp_path / "archive"
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(run_dir))
    demo = Demo(run_dir, archive)
    try:
        connection = connect()
        # Two samples are in Parquet files; the third is in the log within about a second.
        select = "SELECT job, value FROM old_job_count ORDER BY ts"
        assert rows(connection, select)[:2] == [("7", 10), ("7", 20)]
        assert rows(connection, "SELECT tier, rows FROM archive WHERE tier = 'raw'") == [("raw", 2)]
        assert rows(connection, RESOURCE_QUERY) == RESOURCES
        wide = "SELECT job_count FROM family_old() WHERE job = '7' ORDER BY ts LIMIT 2"
        assert rows(connection, wide) == [(10,), (20,)]
    finally:
        demo.close()
    # Closing it has flushed all samples. The archive can be read without the agent.
    whole = [("7", 10), ("7", 20), ("7", 30)]
    assert rows(connection, select) == whole
    assert rows(connection, f"SELECT baro_open('{archive}')") == [(0,)]
    assert rows(connection, select) == whole
    assert rows(connection, "SELECT value FROM old_job_count WHERE newest") == [(30,)]
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("BAROGRAPH_ARCHIVE_DIR", str(archive))
    assert rows(connect(), select) == whole


def test_without_an_agent_loading_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(Exception, match="no agent serves .*nowhere.*baro up"):
        connect()
