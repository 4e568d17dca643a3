"""Bridges: unchanged clients of other systems write to a real agent, and their values are in
SQL."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, Agent, eventually
from influxdb_client import InfluxDBClient, Point
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

Start = Callable[..., Agent]
OPEN = QUICK + "[applications]\nhttp_ingest = true\n"


def url(agent: Agent) -> str:
    return f"http://127.0.0.1:{agent.port}"


def one(agent: Agent, sql: str) -> Any:
    """The one value of the one row; None while there is no row."""
    rows = agent.sql(sql)
    return list(rows[0].values())[0] if rows else None


@contextmanager
def meter(agent: Agent, **exporter: Any) -> Iterator[tuple[Meter, MeterProvider]]:
    """A meter of OpenTelemetry's SDK that exports to the agent on request."""
    to = OTLPMetricExporter(endpoint=f"{url(agent)}/v1/metrics", **exporter)
    reader = PeriodicExportingMetricReader(to, export_interval_millis=3_600_000)
    resource = Resource.create({"service.name": "Web Shop", "service.instance.id": "i-1"})
    provider = MeterProvider(metric_readers=[reader], resource=resource)
    try:
        yield provider.get_meter("e2e"), provider
    finally:
        provider.shutdown()


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_opentelemetry(start: Start, compression: Compression) -> None:
    agent = start(config=OPEN)
    before = time.time_ns()
    with meter(agent, compression=compression) as (metrics, provider):
        requests = metrics.create_counter("http.requests", unit="{request}", description="Requests.")
        level = metrics.create_gauge("queue.level")
        open_now = metrics.create_up_down_counter("connections")
        duration = metrics.create_histogram("duration", unit="s", explicit_bucket_boundaries_advisory=[0.1, 1.0, 10.0])
        for round_ in range(3):
            requests.add(5, {"http.route": "/a"})
            requests.add(1, {"http.route": "/b"})
            level.set(1.5 + round_)
            open_now.add(-1)
            for _ in range(100):
                duration.record(0.5 if round_ else 20.0)
            assert provider.force_flush()
    table = "app_web_shop_http_requests"
    where = "http_route = '/a' AND application = 'Web Shop' AND service_instance_id = 'i-1'"
    assert one(agent, f"SELECT max(value) FROM {table} WHERE {where}") == 15
    assert one(agent, f"SELECT value FROM {table} WHERE newest AND http_route = '/b'") == 3
    assert one(agent, "SELECT kind FROM streams WHERE name = 'app.web_shop.http.requests' LIMIT 1") == "counter"
    # A provider exports once more when it shuts down.
    assert one(agent, "SELECT value FROM app_web_shop_queue_level WHERE newest") == 3.5
    assert one(agent, "SELECT value FROM app_web_shop_connections WHERE newest") == -3
    assert one(agent, "SELECT value FROM app_web_shop_duration_count WHERE newest") == 300
    # Only the values of the second and third round, all of which are between 0.1 and 1 s.
    medians = agent.sql("SELECT value, error, quality FROM app_web_shop_duration_p50 ORDER BY ts")
    assert medians and all(abs(row["value"] - 0.5) <= row["error"] + 1e-6 for row in medians), medians
    assert {row["quality"] for row in medians} == {"derived"}
    assert before < one(agent, f"SELECT min(ts) FROM {table}") < time.time_ns()
    listed = eventually(lambda: agent.sql("SELECT * FROM publications WHERE name = 'web_shop'"), "it is listed")
    assert listed[0]["pid"] is None and listed[0]["frame"] is None and listed[0]["taken"] > 0
    assert listed[0]["lost"] == 0, listed


def test_delta_temporality_adds_up(start: Start) -> None:
    agent = start(config=OPEN)
    delta = {Counter: AggregationTemporality.DELTA, Histogram: AggregationTemporality.DELTA}
    with meter(agent, preferred_temporality=delta) as (metrics, provider):
        done, size = metrics.create_counter("done"), metrics.create_histogram("size")
        for _ in range(4):
            done.add(7)
            size.record(30)
            assert provider.force_flush()
    assert one(agent, "SELECT max(value) FROM app_web_shop_done") == 28
    assert one(agent, "SELECT max(value) FROM app_web_shop_size_count") == 4
    assert one(agent, "SELECT max(value) FROM app_web_shop_size_sum") == 120


def test_influxdb_client(start: Start) -> None:
    agent = start(config=OPEN)
    t = time.time_ns() - 10**9
    for packed in (False, True):
        with InfluxDBClient(url=url(agent), token="any", org="any", enable_gzip=packed) as client:
            write = client.write_api(write_options=SYNCHRONOUS)
            points = [
                Point("cpu usage").tag("host", "a b").field("user", 1.5 + i).field("cores", 4).field("ok", True)
                .field("note", 'say "hi"').time(t + i + 1_000 * packed)
                for i in range(10)
            ]  # fmt: skip
            write.write("any", record=points)
    assert one(agent, "SELECT count(*) FROM app_cpu_usage_user WHERE host = 'a b'") == 20
    assert one(agent, f"SELECT value FROM app_cpu_usage_user WHERE ts = {t + 3}") == 4.5
    assert one(agent, "SELECT value FROM app_cpu_usage_cores WHERE newest") == 4
    assert one(agent, "SELECT value FROM app_cpu_usage_note WHERE newest") == 'say "hi"'
    # The values belong to the user: HTTP shows only those for all users.
    assert "app_cpu_usage_user" not in agent.post_sql("SELECT name FROM tables").text


def test_a_part_that_is_refused_is_told_and_counted(start: Start) -> None:
    agent = start(config=OPEN)
    with InfluxDBClient(url=url(agent), token="any", org="any") as client:
        write = client.write_api(write_options=SYNCHRONOUS)
        with pytest.raises(ApiException) as refused:
            write.write("any", record="m v=1i\nno line\nm v=2.5")
    assert refused.value.status == 400
    told = json.loads(refused.value.body)
    assert told["line"] == 2 and "lines dropped=2" in told["message"]
    assert one(agent, "SELECT count(*) FROM app_m_v") == 1
    rows = "SELECT sum(\"count\") FROM loss WHERE what LIKE '%make no sense%'"
    eventually(lambda: one(agent, rows) == 2, "both are counted")
    assert "float64" in eventually(lambda: one(agent, "SELECT refusal FROM publications WHERE name = 'm'"), "why")


@pytest.mark.parametrize("way", ["tcp", "read.sock", "control.sock"])
def test_ways_in(start: Start, way: str) -> None:
    agent = start(config=QUICK)
    answer = agent.request("POST", "/write?readers=all", "n v=1i", way=way)
    if way == "tcp":
        assert answer.status == 403 and "http_ingest" in answer.json["message"]
        return
    assert answer.status == 204, answer.text
    # Values for all are visible over HTTP too.
    eventually(lambda: agent.post_sql("SELECT value FROM app_n_v").json == [{"value": 1}], "it is for all")


def test_acknowledged_survives_a_kill(start: Start) -> None:
    agent = start(config=OPEN)
    sent = 0
    for round_ in range(3):
        for _ in range(50):
            t = time.time_ns()
            body = gzip.compress("\n".join(f"m v={sent + i}i {t + i}" for i in range(10)).encode())
            answer = agent.request("POST", "/write", body, headers={"content-encoding": "gzip"})
            assert answer.status == 204, (round_, answer.text)
            sent += 10
            time.sleep(0.001)
        agent.restart(signal.SIGKILL)
        assert one(agent, "SELECT count(DISTINCT value) FROM app_m_v") == sent
    assert one(agent, "SELECT count(*) FROM app_m_v") == sent, "nothing twice"


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_users_values_are_his() -> None:
    # Not below pytest's own directory, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="baro-bridge-") as folder:
        Path(folder).chmod(0o755)
        agent = Agent(Path(folder), config=OPEN + 'users = "all"\n')
        try:
            agent.start()
            nobody = 65_534
            for way, line in (("read.sock", "m v=1i"), ("tcp", "m v=2i")):
                assert posted_as(nobody, agent, way, line) == 204
            # The kernel decides to which user a connection belongs.
            scopes = eventually(lambda: agent.sql("SELECT scope, user, taken FROM publications"), "it is listed")
            assert scopes == [{"scope": f"u{nobody}", "user": "nobody", "taken": 2}]
            assert one(agent, "SELECT count(*) FROM app_m_v WHERE user = 'nobody'") == 2
        finally:
            agent.destroy()


def posted_as(uid: int, agent: Agent, way: str, line: str) -> int:
    """The status of a write by another user, in another process."""
    # Loads now what a connection by name imports, since the other user may not read the libraries.
    socket.getaddrinfo("127.0.0.1", agent.port)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(uid, uid, uid)
            answer = agent.request("POST", "/write", line, way=way)
            os.write(writing, str(answer.status).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as told:
        return int(told.read() or 0)
