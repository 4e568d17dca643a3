"""SQL over the live streams: the query of Apollo, similar names, refusals, hostile queries."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from http.client import IncompleteRead
from typing import Any

import pytest
from harness import QUICK, Agent, eventually

APOLLO = (
    "SELECT MAX(Timestamp), metric FROM pfs_capacity UNION "
    "SELECT MAX(Timestamp), metric FROM node_1_memory_capacity UNION "
    "SELECT MAX(Timestamp), metric FROM node_1_availability"
)


@pytest.mark.parametrize("statement", [APOLLO, APOLLO + ";"], ids=["plain", "with semicolon"])
def test_the_resource_query_of_apollo(fixed: Agent, statement: str) -> None:
    rows = fixed.sql(statement)
    assert [set(row) for row in rows] == [{"MAX(Timestamp)", "metric"}] * 3
    assert None not in capacities(fixed)

    def agrees(way: str) -> bool:
        # The free space of the file system below the tree changes while others write to it.
        before = capacities(fixed)
        answer = fixed.post_sql(statement, way=way)
        assert answer.status == 200
        return before == {row["metric"] for row in answer.json} == capacities(fixed)

    for way in ("tcp", "read.sock", "control.sock"):
        eventually(lambda way=way: agrees(way), "the newest values")


def capacities(agent: Agent) -> set[Any]:
    """The newest values of the metrics in the query."""
    return {agent.value(name) for name in ("pfs.capacity", "memory.capacity", "availability")}


def test_a_metric_is_a_table_under_both_names(fixed: Agent) -> None:
    plain = fixed.sql("SELECT * FROM memory_total_bytes")
    assert plain == fixed.sql("SELECT * FROM node_1_memory_total_bytes")
    assert set(plain[0]) == {"ts", "value", "quality", "error", "node", "newest"}
    # A value that holds is appended again after some minutes: there may be several rows.
    assert plain[-1]["node"] == "node_1" and [row["newest"] for row in plain] == [0] * (len(plain) - 1) + [1]
    hidden = fixed.sql("SELECT Timestamp, ts, metric, value, looked, age_ns, unit FROM memory_total_bytes")[0]
    assert hidden["Timestamp"] == hidden["ts"] and hidden["metric"] == hidden["value"]
    assert hidden["unit"] == "bytes" and hidden["looked"] >= hidden["ts"] and hidden["age_ns"] >= 0


def test_labels_are_columns(fixed: Agent) -> None:
    rows = fixed.sql("SELECT mount, fstype, tier FROM filesystem_total_bytes WHERE newest AND tier = 'pfs'")
    assert {row["mount"] for row in rows} == {"/home", "/lustre/work space"}


def test_rows_are_all_that_the_ring_holds_and_newest_is_one_of_them(live: Agent) -> None:
    eventually(lambda: live.ask("streams", "agent.cpu.seconds")[0]["samples"] > 2, "some samples")
    rows = live.sql("SELECT ts, newest FROM agent_cpu_seconds ORDER BY ts")
    assert len(rows) > 2
    assert [row["newest"] for row in rows] == [0] * (len(rows) - 1) + [1]
    middle = rows[1]["ts"]
    ranged = live.sql(f"SELECT ts FROM agent_cpu_seconds WHERE ts > {rows[0]['ts']} AND ts <= {middle}")
    assert [row["ts"] for row in ranged] == [middle]


@pytest.mark.parametrize("table", ["streams", "latest", "tables", "sources", "insights", "nodes", "loss"])
def test_system_tables(fixed: Agent, table: str) -> None:
    assert fixed.sql(f"SELECT * FROM {table}")


def test_the_system_tables_agree_with_the_commands(fixed: Agent) -> None:
    tables = {row["name"] for row in fixed.sql("SELECT name FROM tables")}
    assert {"disk_read_bytes", "tier_available_bytes", "streams"} <= tables
    names = {row["name"] for row in fixed.sql("SELECT name FROM streams")}
    assert names == fixed.names()
    assert {row["node"] for row in fixed.sql("SELECT node FROM nodes")} == {"node_1"}
    sources = {row["source"] for row in fixed.sql("SELECT source FROM sources")}
    assert sources == {report["source"] for report in fixed.ask("doctor")}


def test_table_functions(live: Agent) -> None:
    eventually(lambda: live.ask("streams", "agent.cpu.seconds")[0]["samples"] > 2, "some samples")
    rows = live.sql("SELECT * FROM history('agent.cpu.seconds')")
    assert len(rows) > 2
    assert live.sql("SELECT * FROM rate('agent.cpu.seconds')")
    assert live.sql("SELECT * FROM family('memory')")
    assert live.sql("SELECT * FROM quantile('agent.cpu.seconds', 0.5)")


def test_functions_of_time(live: Agent) -> None:
    (row,) = live.sql("SELECT now_ns() AS now, iso(1000000000000000000) AS text")
    assert row["now"] > 1_700_000_000_000_000_000
    assert row["text"].startswith("2001-09-09T01:46:40")


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("disk_read_byte", "disk_read_bytes"),
        ("disk_busy_rato", "disk_busy_ratio"),
        ("memory_totl_bytes", "memory_total_bytes"),
        ("node_1_memory_capacty", "memory_capacity"),
        ("stream", "streams"),
    ],
)
def test_an_unknown_table_names_near_ones(fixed: Agent, wrong: str, near: str) -> None:
    eventually(lambda: fixed.has("disk.busy.ratio"), "a second round")
    assert near in fixed.error("sql", f"SELECT * FROM {wrong}")
    answer = fixed.post_sql(f"SELECT * FROM {wrong}")
    assert answer.status == 400 and answer.kind == "statement"
    assert near in answer.message


def test_an_unknown_column_is_named(fixed: Agent) -> None:
    assert "vale" in fixed.error("sql", "SELECT vale FROM memory_total_bytes")


REFUSED = [
    "CREATE TABLE x (a)",
    "CREATE TEMP TABLE x (a)",
    "CREATE VIEW x AS SELECT 1",
    "CREATE INSIGHT a.b AS SELECT sum(value) FROM disk_read_bytes",
    "DROP TABLE streams",
    "DELETE FROM streams",
    "UPDATE memory_total_bytes SET value = 1",
    "INSERT INTO memory_total_bytes (value) VALUES (1)",
    "ATTACH '/tmp/x.db' AS x",
    "DETACH main",
    "PRAGMA journal_mode = wal",
    "PRAGMA table_list",
    "VACUUM",
    "VACUUM INTO '/tmp/x.db'",
    "BEGIN",
    "SAVEPOINT a",
    "SELECT load_extension('x')",
    "SELECT writefile('/tmp/x', 'a')",
    "SELECT readfile('/etc/passwd')",
    "SELECT * FROM pragma_database_list",
    "SELECT 1; DROP TABLE streams",
]


@pytest.mark.parametrize("statement", REFUSED)
def test_what_does_more_than_read_is_refused(fixed: Agent, statement: str) -> None:
    assert fixed.error("sql", statement).strip()
    for way in ("tcp", "read.sock", "control.sock"):
        answer = fixed.post_sql(statement, way=way)
        assert answer.status in (400, 403), answer.text
        assert answer.kind in ("refused", "statement")


HOSTILE = [
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n ORDER BY random()",
    "SELECT count(*) FROM streams a, streams b, streams c, streams d",
    "SELECT sum(length(randomblob(100000000))) FROM streams a, streams b",
    "WITH RECURSIVE n(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM n) SELECT max(length(s)) FROM n",
    "SELECT a.name FROM latest a, latest b, latest c ORDER BY a.name || b.name || c.name",
    "SELECT count(*) FROM streams a, streams b, streams c, latest d WHERE a.help NOT LIKE '%a%e%' || d.name || '%'",
]


# The same over the archive: rings hold eight samples, the rest is read from log and Parquet.
HOSTILE_HISTORY = [
    "SELECT count(*) FROM memory_available_bytes a, memory_free_bytes b, memory_cached_bytes c, vm_faults_count d",
    "SELECT a.ts FROM agent_cpu_seconds a, agent_cpu_seconds b, agent_cpu_seconds c ORDER BY a.value * b.value + c.ts",
    "SELECT sum(a.value) FROM history('*') a, history('*') b, history('*') c",
    "SELECT max(q.value) FROM streams a, streams b, quantile('*', 0.5) q",
    "SELECT count(*) FROM rate('*') a, rate('*') b, rate('*') c WHERE a.value <> b.value",
    "SELECT count(*) FROM family('memory') a, family('memory') b, family('vm') c, family('vm') d",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n, history('*')",
    "SELECT group_concat(h.name || h.value) FROM history('*') h, streams s, latest l, archive a",
]


def median_skew(agent: Agent, since: int) -> float:
    """The median lateness of polls after an instant, in seconds."""
    rows = agent.sql(f"SELECT value FROM source_skew_seconds WHERE ts > {since}")
    return statistics.median(row["value"] for row in rows)


def newest_skew(agent: Agent) -> int:
    return agent.sql("SELECT max(ts) AS ts FROM source_skew_seconds")[0]["ts"]


@pytest.mark.parametrize(
    ("rings", "hostile"), [("", HOSTILE), ("[streams]\ndepth = 8\n", HOSTILE_HISTORY)], ids=["live", "archive"]
)
def test_eight_hostile_queries_do_not_disturb_the_polls(
    start: Callable[..., Agent], rings: str, hostile: list[str]
) -> None:
    limits = "[query]\nseconds_max = 4.0\nmemory_bytes_max = 67108864\n"
    agent = start(config=rings + limits + QUICK)
    polls = "SELECT sum(value) AS n FROM source_polls_count WHERE newest"
    eventually(lambda: agent.sql(polls)[0]["n"] >= 8 * 10, "ten rounds without a query")
    quiet = median_skew(agent, 0)

    since, polled = newest_skew(agent), agent.sql(polls)[0]["n"]
    answers: list[tuple[str, int, str]] = []

    def ask(statement: str, way: str) -> None:
        try:
            answer = agent.post_sql(statement, way=way)
        except IncompleteRead:
            # The beginning of an answer of more than 8 MiB is sent before its end is known.
            answers.append((statement, 200, "cut off"))
        else:
            answers.append((statement, answer.status, answer.kind if answer.status != 200 else ""))

    ways = ["tcp", "read.sock"] * 4
    threads = [threading.Thread(target=ask, args=pair) for pair in zip(hostile, ways, strict=True)]
    for thread in threads:
        thread.start()
    # Other requests are served in the meantime.
    assert agent.get("/healthz").status == 200
    assert agent.get("/api/v1/latest?match=memory.*").json
    for thread in threads:
        thread.join()
    loaded = median_skew(agent, since)

    assert len(answers) == 8
    for statement, status, kind in answers:
        # Over a young archive some of them end by themselves; most do not.
        ended = status == 200 and hostile is HOSTILE_HISTORY
        assert ended or kind in ("limit", "busy", "refused", "cut off"), (statement, status, kind)
    assert sum(kind != "" for _, _, kind in answers) >= 4
    # Sources are polled every 200 ms here: no poll waited for a query.
    assert agent.sql(polls)[0]["n"] > polled
    assert loaded <= max(20 * quiet, 0.2 / 2), f"skew went from {quiet} s to {loaded} s"
    # Afterwards the agent answers as before.
    assert agent.post_sql("SELECT 1 AS x").json == [{"x": 1}]


def test_an_answer_of_too_many_rows_is_refused_as_a_limit(start: Callable[..., Agent]) -> None:
    agent = start(config="[query]\nrows_max = 10\n" + QUICK)
    answer = agent.post_sql("SELECT * FROM streams")
    assert answer.status != 200 and answer.kind == "limit" and "10" in answer.message
    assert len(agent.post_sql("SELECT * FROM streams LIMIT 10").json) == 10


def test_a_waiting_room_that_is_full_says_busy(start: Callable[..., Agent]) -> None:
    agent = start(config="[query]\nthreads = 1\nwaiting_max = 1\nseconds_max = 2.0\n" + QUICK)
    kinds: list[str] = []

    def ask() -> None:
        kinds.append(agent.post_sql(HOSTILE[0]).kind)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(kinds) == {"busy", "limit"}
