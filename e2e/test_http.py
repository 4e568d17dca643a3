"""HTTP: every endpoint, JSON, Arrow, server-sent events and the Prometheus exposition."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pyarrow.ipc
import pytest
from harness import OFTEN, SOURCES, Agent, eventually

WAYS = ("tcp", "read.sock", "control.sock")


@pytest.mark.parametrize("way", WAYS)
def test_healthz(fixed: Agent, way: str) -> None:
    answer = fixed.get("/healthz", way)
    assert answer.status == 200
    assert answer.json["status"] == "ok" and answer.json["node"] == "node_1"
    assert re.fullmatch("[0-9a-f]{32}", answer.json["incarnation"])


@pytest.mark.parametrize("way", WAYS)
def test_status(fixed: Agent, way: str) -> None:
    status = fixed.get("/api/v1/status", way).json
    assert set(status) == {
        "node", "version", "incarnation", "pid", "started_ts", "now_ts", "streams", "streams_max", "samples",
        "sources_up", "sources", "run_dir", "http", "archive",
    }  # fmt: skip
    assert status["node"] == "node_1" and status["http"] == fixed.place
    assert status["sources"] == len(SOURCES) and len(OFTEN) <= status["sources_up"] <= len(SOURCES)
    assert fixed.process and status["pid"] == fixed.process.pid


def test_streams(fixed: Agent) -> None:
    # The first forecasts may add a stream between two answers.
    def is_same() -> bool:
        return {stream["name"] for stream in fixed.get("/api/v1/streams").json} == fixed.names()

    eventually(is_same, "the same names")
    found = fixed.get("/api/v1/streams?match=disk.read.bytes").json
    assert {stream["labels"]["device"] for stream in found} == {"nvme0n1", "nvme1n1"}
    assert set(found[0]) == {
        "name", "labels", "type", "unit", "kind", "help", "id", "depth", "samples", "interval_ns",
    }  # fmt: skip
    both = fixed.get("/api/v1/streams?match=disk.read.bytes&match=memory.total.bytes").json
    assert len(both) == 3


def test_latest(fixed: Agent) -> None:
    (sample,) = fixed.get(f"/api/v1/latest?match={quote('disk.read.bytes{device=nvme0n1}')}").json
    assert set(sample) >= {"name", "labels", "ts", "value", "quality", "error", "age_ns", "looked_ts", "unit"}
    assert sample["value"] == 4096000 and sample["quality"] == "measured"
    assert fixed.get("/api/v1/latest?match=no.such").json == []


def test_history(live: Agent) -> None:
    path = "/api/v1/history?match=agent.cpu.seconds"
    eventually(lambda: len(live.get(path).json[0]["ts"]) > 2, "some samples")
    (series,) = live.get(path).json
    assert set(series) == {"name", "labels", "node", "unit", "kind", "interval_ns", "ts", "value", "quality", "begins"}
    assert series["begins"] == []
    assert len(series["ts"]) == len(series["value"]) == len(series["quality"])
    assert series["ts"] == sorted(series["ts"])
    first, second = series["ts"][:2]
    (part,) = live.get(f"{path}&start={first}&stop={second}").json
    assert part["ts"] == [first]
    (buckets,) = live.get(f"{path}&start=-1h&step=1h").json
    assert sum(buckets["count"]) >= len(series["ts"]), (series["ts"], buckets)
    assert buckets["min"][0] <= buckets["mean"][0] <= buckets["max"][-1]
    (few,) = live.get(f"{path}&start=-1h&points=60").json
    # The buckets divide the time for which samples exist, not the hour that was requested.
    assert len(few["ts"]) <= 60 and few["step_ns"] <= 120 * 10**9


def test_sources(fixed: Agent) -> None:
    reports = fixed.get("/api/v1/sources").json
    assert {report["source"] for report in reports if report["state"] != "off"} == set(SOURCES)
    for report in reports:
        assert set(report) == {
            "source", "state", "sees", "streams", "missing", "polls", "errors", "cost_ns_mean", "interval_ns",
            "last_error", "pace",
        }  # fmt: skip


def test_insights(fixed: Agent) -> None:
    insights = fixed.get("/api/v1/insights").json
    assert "tier.available.bytes" in {insight["name"] for insight in insights}
    for insight in insights:
        assert set(insight) == {
            "name", "table", "sql", "builtin", "unit", "help", "inputs", "groups", "state", "reason",
            "remedy", "evaluations", "cost_ns_mean",
        }  # fmt: skip


QUERY = "SELECT device, value, 0.5 AS half FROM disk_read_bytes WHERE newest ORDER BY device"
ROWS = [
    {"device": "nvme0n1", "value": 4096000, "half": 0.5},
    {"device": "nvme1n1", "value": 1228800, "half": 0.5},
]


@pytest.mark.parametrize("way", WAYS)
def test_sql_as_rows(fixed: Agent, way: str) -> None:
    assert fixed.post_sql(QUERY, way=way).json == ROWS
    assert fixed.request("POST", "/api/v1/sql", QUERY, way).json == ROWS
    assert (
        fixed.request("POST", "/api/v1/sql", {"sql": QUERY}, way, {"Content-Type": "application/json"}).json
        == ROWS
    )


def test_sql_as_a_table(fixed: Agent) -> None:
    table = fixed.post_sql(QUERY, "table").json
    assert "nvme0n1" in json.dumps(table) and "half" in json.dumps(table)


@pytest.mark.parametrize("way", WAYS)
def test_sql_as_arrow(fixed: Agent, way: str) -> None:
    answer = fixed.post_sql(QUERY, "arrow", way)
    assert answer.type == "application/vnd.apache.arrow.stream"
    table = pyarrow.ipc.open_stream(answer.body).read_all()
    assert table.to_pylist() == ROWS
    assert [str(field.type) for field in table.schema] == ["string", "int64", "double"]
    times = "SELECT ts, max(ts) AS newest, x'00ff' AS b FROM disk_read_bytes"
    table = pyarrow.ipc.open_stream(fixed.post_sql(times, "arrow", way).body).read_all()
    assert table.schema.types == [pyarrow.timestamp("ns", tz="UTC"), pyarrow.int64(), pyarrow.binary()]
    assert table["ts"].cast(pyarrow.int64()).equals(table["newest"]) and table["b"].to_pylist() == [b"\0\xff"]
    empty = pyarrow.ipc.open_stream(fixed.post_sql("SELECT 1 AS x WHERE 0", "arrow").body).read_all()
    assert empty.num_rows == 0 and empty.column_names == ["x"]


def test_integers_beyond_what_javascript_holds(fixed: Agent) -> None:
    sql = "SELECT 9007199254740993 AS big, 7 AS small"
    answer = fixed.request("POST", "/api/v1/sql?big_integers=text", sql)
    assert answer.json == [{"big": "9007199254740993", "small": 7}]
    assert fixed.post_sql(sql, "rows").json == [{"big": 2**53 + 1, "small": 7}]
    told = fixed.out("sql", sql, "--json", "--big-integers", "text")
    assert json.loads(told) == [{"big": "9007199254740993", "small": 7}]


ERRORS = [
    ("GET", "/api/v1/nothing", None, 404, "unknown"),
    ("DELETE", "/api/v1/status", None, 405, "usage"),
    ("GET", "/api/v1/latest?match=a%7B", None, 400, "usage"),
    ("GET", "/api/v1/latest?nonsense=1", None, 400, "usage"),
    ("GET", "/api/v1/history?start=noon", None, 400, "usage"),
    ("GET", "/api/v1/history?start=2&stop=1", None, 400, "usage"),
    ("GET", "/api/v1/watch?every_ms=0", None, 400, "usage"),
    ("POST", "/api/v1/sql?format=nonsense", "SELECT 1", 400, "usage"),
    ("POST", "/api/v1/sql?big_integers=yes", "SELECT 1", 400, "usage"),
    ("POST", "/api/v1/sql", "SELEC 1", 400, "statement"),
    ("POST", "/api/v1/sql", "", 400, None),
    ("POST", "/api/v1/sql", b"\xff\xfe", 400, None),
    ("POST", "/api/v1/insights/test", "{", 401, "refused"),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"), ERRORS, ids=lambda value: str(value)[:40]
)
def test_errors_say_what_is_wrong(
    fixed: Agent, method: str, path: str, body: Any, status: int, kind: str | None
) -> None:
    answer = fixed.request(method, path, body)
    assert answer.status == status, answer.text
    assert set(answer.json["error"]) >= {"kind", "message"} and answer.message
    assert kind is None or answer.kind == kind


def test_what_is_no_http_does_not_harm(fixed: Agent) -> None:
    for junk in (b"\x00\xff\x16\x03\x01\n\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 100_000):
        with socket.create_connection(("127.0.0.1", fixed.port), timeout=30) as raw:
            try:
                raw.sendall(junk)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(65536):
                    pass
            except (ConnectionError, OSError):
                pass
    assert fixed.get("/healthz").status == 200


def events(agent: Agent, path: str) -> Iterator[tuple[str, Any]]:
    """The server-sent events of a stream."""
    connection = agent.connection()
    connection.request("GET", path)
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    kind = ""
    try:
        for line in response:
            text = line.decode().rstrip("\n")
            if text.startswith("event:"):
                kind = text[6:].strip()
            elif text.startswith("data:"):
                yield kind, json.loads(text[5:])
    finally:
        connection.close()


def test_watch_sends_the_list_and_then_ticks(live: Agent) -> None:
    stream = events(live, "/api/v1/watch?match=agent.*&match=memory.total.bytes&every_ms=100")
    kind, listed = next(stream)
    assert kind == "streams"
    names = {entry["index"]: entry["name"] for entry in listed}
    assert "memory.total.bytes" in names.values() and "agent.cpu.seconds" in names.values()
    seen: set[str] = set()
    while "agent.cpu.seconds" not in seen or len(seen) < 2:
        kind, tick = next(stream)
        assert kind == "tick" and tick["ts"] > 0
        for index, ts, _value, quality, error in tick["samples"]:
            assert ts <= tick["ts"] and quality in ("measured", "derived") and error >= 0
            seen.add(names[index])
        for index, looked in tick["looked"]:
            assert index in names and looked <= tick["ts"]
    stream.close()


def test_watch_sends_the_list_again_when_it_changes(start: Any) -> None:
    agent = start()
    stream = events(agent, "/api/v1/watch?match=my.*&every_ms=100")
    assert next(stream) == ("streams", [])
    statement = {"sql": "CREATE INSIGHT my.sum.bytes AS SELECT sum(value) FROM memory_total_bytes"}
    assert agent.request("POST", "/api/v1/insights", statement, "control.sock").status == 200
    listed = next(data for kind, data in stream if kind == "streams")
    assert [entry["name"] for entry in listed] == ["my.sum.bytes"]
    stream.close()


def test_watch_of_everything(live: Agent) -> None:
    stream = events(live, "/api/v1/watch")
    kind, listed = next(stream)
    assert kind == "streams" and len(listed) > 50
    assert next(stream)[0] == "tick"
    stream.close()


# The Prometheus text format, version 0.0.4.
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
NUMBER = r"[+-]?(?:Inf|[0-9.]+(?:e[+-]?[0-9]+)?)|NaN"
SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{((?:{LABEL},?)*)\}})? ({NUMBER})(?: (-?[0-9]+))?")


def exposition(text: str) -> dict[str, dict[str, float]]:
    """Samples by family and labels; fails on anything that the format does not allow."""
    assert text.endswith("\n")
    types: dict[str, str] = {}
    families: dict[str, dict[str, float]] = {}
    last = ""
    for line in text.splitlines():
        if line.startswith("# HELP ") or line.startswith("# TYPE "):
            _, word, name, rest = line.split(" ", 3)
            if word == "TYPE":
                assert name not in types, f"two types of {name}"
                assert name not in families, f"the type of {name} comes after its samples"
                assert rest in ("counter", "gauge", "untyped", "histogram", "summary")
                types[name] = rest
            continue
        if line.startswith("#") or not line:
            continue
        found = SAMPLE.fullmatch(line)
        assert found, f"no sample: {line}"
        name, labels, value = found[1], found[2] or "", float(found[3])
        assert name == last or name not in families, f"the samples of {name} are not together"
        family = families.setdefault(name, {})
        assert labels not in family, f"twice: {line}"
        family[labels] = value
        last = name
    assert set(families) <= set(types), "a family without a type"
    return families


def test_metrics(fixed: Agent) -> None:
    answer = fixed.get("/metrics")
    assert answer.status == 200 and answer.type.startswith("text/plain")
    assert "version=0.0.4" in answer.type
    families = exposition(answer.text)
    reads = [
        family for name, family in families.items() if "disk_read_bytes" in name and "per_second" not in name
    ]
    assert len(reads) == 1 and sorted(reads[0].values()) == [1228800, 4096000]
    assert all('device="' in labels for labels in reads[0])
    assert any("node_memory_MemTotal_bytes" in name and list(family.values()) == [270116081664.0]
               for name, family in families.items())  # fmt: skip


def test_metrics_of_this_machine(live: Agent) -> None:
    assert len(exposition(live.get("/metrics").text)) > 50


def test_the_page_is_served(live: Agent) -> None:
    answer = live.get("/")
    assert answer.status == 200 and answer.type.startswith("text/html")
    for path in re.findall(r'(?:src|href)="(/?[^":#]+)"', answer.text):
        part = live.get("/" + path.lstrip("/"))
        assert part.status == 200 and part.body, path


def test_paths_do_not_lead_out(live: Agent) -> None:
    for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"):
        answer = live.get(path)
        assert answer.status in (400, 404) or "root:" not in answer.text


def test_many_at_once(live: Agent) -> None:
    connections = [live.connection() for _ in range(40)]
    for connection in connections:
        connection.request("GET", "/api/v1/latest?match=memory.*")
    for connection in connections:
        response = connection.getresponse()
        assert response.status == 200 and json.loads(response.read())
        connection.close()
