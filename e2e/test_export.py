"""Exports to real receivers: Prometheus by remote write, and decoders of the published OTLP
messages."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, STOP_SECONDS_MAX, Agent, baro, eventually

# The compared metric, which changes at every look.
# A stream that changes at each look, also where all processors are busy.
SWITCHES, STREAM = "node_context_switches_total", "cpu.switches.count"


class Prometheus:
    """The system's Prometheus on a port of its own; it accepts remote writes and scrapes
    nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "prometheus.yml").write_text("global: {}\n")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Prometheus:
        program = shutil.which("prometheus")
        assert program
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    program,
                    f"--config.file={self.folder}/prometheus.yml",
                    f"--storage.tsdb.path={self.folder}/data",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--web.enable-remote-write-receiver",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self.is_ready, "Prometheus")
        return self

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def kill(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS_MAX)

    def samples(self, query: str) -> list[dict[str, Any]]:
        """The result of an instant query."""
        text = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{text}", timeout=30) as answer:
            return json.load(answer)["data"]["result"]

    def points(self, metric: str) -> dict[int, float]:
        """Every sample of a metric with one series: time in ms and value."""
        found = self.samples(f"{metric}[30m]")
        assert len(found) <= 1, found
        return {round(time * 1e3): float(value) for series in found for time, value in series["values"]}


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus that runs until the end of the test."""
    if not shutil.which("prometheus"):
        assert not os.environ.get("CI"), "no prometheus: scripts/prometheus.py installs it"
        pytest.skip("no prometheus installed")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    server = Prometheus(folder)
    yield server
    if server.process:
        server.kill()


def writing(url: str, more: str = "") -> str:
    return f'{QUICK}[export.remote_write]\nurl = "{url}"\nseconds = 0.5\ntimeout_seconds = 5\n{more}'


def held(agent: Agent, name: str) -> dict[int, float]:
    """The agent's samples of a stream: time in ms and value."""
    (series,) = agent.get(f"/api/v1/history?match={name}").json
    return {ts // 1_000_000: value for ts, value in zip(series["ts"], series["value"], strict=True)}


def one_too_many(agent: Agent) -> int:
    """The samples that have the millisecond of the one before, as of a look that was late and the next one:
    Prometheus, whose times are milliseconds, can have one of them."""
    series = agent.get("/api/v1/history?match=*").json
    return sum(len(one["ts"]) - len({ts // 1_000_000 for ts in one["ts"]}) for one in series)


def test_prometheus_has_every_sample(start: Callable[..., Agent], prometheus: Prometheus) -> None:
    prometheus.start()
    agent = start("--node", "n-1", config=writing(prometheus.url))
    eventually(lambda: len(prometheus.points(SWITCHES)) >= 5, "samples in Prometheus")
    ours = held(agent, STREAM)
    eventually(lambda: prometheus.points(SWITCHES).keys() >= ours.keys(), "all samples that there were")
    there = prometheus.points(SWITCHES)
    assert ours == {ts: there[ts] for ts in ours}
    # Labels and kinds of metrics are those of the exposition.
    (newest,) = prometheus.samples(SWITCHES)
    assert newest["metric"] == {"__name__": SWITCHES, "node": "n-1"}
    assert agent.value("export.sent.samples", "to=remote_write") > 0
    assert agent.value("export.lost.samples", "to=remote_write") <= one_too_many(agent)


def test_prometheus_was_away(start: Callable[..., Agent], prometheus: Prometheus) -> None:
    prometheus.start()
    agent = start(config=writing(prometheus.url))
    eventually(lambda: prometheus.points(SWITCHES), "samples in Prometheus")
    prometheus.kill()
    failed = eventually(lambda: agent.value("export.failed.requests", "to=remote_write"), "a failed request")
    assert failed > 0
    away = len(held(agent, STREAM))
    eventually(lambda: len(held(agent, STREAM)) > away + 5, "samples while it is away")
    ours = held(agent, STREAM)
    prometheus.start()
    eventually(lambda: prometheus.points(SWITCHES).keys() >= ours.keys(), "all samples that there were", 120)
    there = prometheus.points(SWITCHES)
    assert ours == {ts: there[ts] for ts in ours}
    # At the default log level, both the failure and its end are logged.
    for said in ("an export failed and is tried again", "exports arrive again"):
        eventually(lambda said=said: said in agent.output(), said)
    # Prometheus may have stored a part of a request whose answer was lost. It then refuses the
    # repeated request as out of order, which is no loss.
    assert agent.value("export.lost.samples", "to=remote_write") <= one_too_many(agent)


def test_prometheus_was_away_too_long(start: Callable[..., Agent], prometheus: Prometheus) -> None:
    prometheus.start()
    more = 'match = ["memory.*", "vm.*", "cpu.*"]\n[streams]\ndepth = 8\n'
    agent = start(config=writing(prometheus.url, more))
    eventually(lambda: prometheus.points(SWITCHES), "samples in Prometheus")
    prometheus.kill()
    eventually(lambda: agent.value("export.failed.requests", "to=remote_write"), "a failed request")
    for _ in range(2):
        # The ring turns over: samples that Prometheus lacks are no longer in it.
        last = max(held(agent, STREAM))
        eventually(lambda since=last: sum(ts > since for ts in held(agent, STREAM)) >= 7, "news")
    prometheus.start()
    eventually(lambda: max(prometheus.points(SWITCHES), default=0) > last, "samples after it", 120)
    eventually(lambda: agent.value("export.lost.samples", "to=remote_write"), "the loss is counted")


def test_a_receiver_that_refuses(start: Callable[..., Agent], prometheus: Prometheus) -> None:
    prometheus.start()
    # A path that Prometheus does not have.
    agent = start(config=writing(f"{prometheus.url}/api/v1/wrong"))
    lost = eventually(lambda: agent.value("export.lost.samples", "to=remote_write"), "refused samples")
    assert lost > 0
    assert agent.value("export.sent.samples", "to=remote_write") == 0
    said = eventually(lambda: "an export is refused" in agent.output(), "a word about it")
    assert said and agent.output().count("an export is refused") == 1


class Collector(http.server.ThreadingHTTPServer):
    """Receives OTLP over HTTP and decodes it with the published messages."""

    def __init__(self, messages: Any) -> None:
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        self.messages = messages
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.path = ""
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class CollectorHandler(http.server.BaseHTTPRequestHandler):
    """Handles one request."""

    server: Collector

    def do_POST(self) -> None:
        messages = self.server.messages
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.path = self.path
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.requests.append(messages.ExportMetricsServiceRequest.FromString(body))
        answer = messages.ExportMetricsServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector that runs until the end of the test."""
    server = Collector(pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2"))
    yield server
    server.shutdown()
    server.server_close()


def test_otlp(start: Callable[..., Agent], collector: Collector, tmp_path: Path) -> None:
    secret = tmp_path / "headers"
    secret.write_text("Authorization: Bearer hunter2\n")
    secret.chmod(0o600)
    config = (
        f'{QUICK}[export.otlp]\nurl = "{collector.url}"\nseconds = 0.5\nheaders_file = "{secret}"\n'
        'match = ["cpu.*", "memory.*", "filesystem.*"]\n'
    )
    agent = start("--node", "n-1", config=config)
    eventually(lambda: len(collector.requests) >= 3, "exports")
    assert collector.path == "/v1/metrics"
    headers = collector.headers[-1]
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["authorization"] == "Bearer hunter2"
    request = collector.requests[-1]
    (resource,) = request.resource_metrics
    attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert attributes == {"host.name": "n-1", "service.name": "barograph", "service.instance.id": "n-1"}
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "barograph"
    metrics = {metric.name: metric for metric in scope.metrics}
    numeric = {
        stream["name"]
        for family in ("cpu.*", "memory.*", "filesystem.*")
        for stream in agent.latest(family)
        if not stream["stale"] and stream["value"] is not None and not isinstance(stream["value"], str)
    }
    assert numeric and set(metrics) >= numeric
    assert metrics["memory.free.bytes"].unit == "By"
    busy = metrics["cpu.busy.ratio"]
    assert busy.unit == "1" and busy.WhichOneof("data") == "gauge"
    (point,) = busy.gauge.data_points
    assert point.as_double in held(agent, "cpu.busy.ratio").values()
    sums = [metric for metric in scope.metrics if metric.WhichOneof("data") == "sum"]
    assert sums
    for metric in sums:
        assert metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2
        for point in metric.sum.data_points:
            assert 0 < point.start_time_unix_nano <= point.time_unix_nano
    points = [
        point for metric in scope.metrics for point in (metric.sum.data_points or metric.gauge.data_points)
    ]
    assert all(point.WhichOneof("value") for point in points)
    # Prometheus dates the metric that it makes of the resource by the points, and accepts no time
    # that goes back.
    rounds = [times(request) for request in collector.requests]
    assert all(len(round_times) == 1 for round_times in rounds), rounds
    assert rounds == sorted(rounds, key=max)
    # A sum keeps its start time.
    before = {
        metric.name: metric for metric in collector.requests[-2].resource_metrics[0].scope_metrics[0].metrics
    }
    for metric in sums:
        starts = {p.start_time_unix_nano for p in metric.sum.data_points}
        if metric.name in before:
            assert starts & {p.start_time_unix_nano for p in before[metric.name].sum.data_points}
    assert agent.value("export.sent.samples", "to=otlp") > 0
    assert "hunter2" not in agent.output()


def times(request: Any) -> set[int]:
    """The times of all points of a request."""
    scopes = [scope for resource in request.resource_metrics for scope in resource.scope_metrics]
    metrics = [metric for scope in scopes for metric in scope.metrics]
    return {p.time_unix_nano for m in metrics for p in (m.sum.data_points or m.gauge.data_points)}


def threads(agent: Agent) -> set[str]:
    assert agent.process
    tasks = Path(f"/proc/{agent.process.pid}/task").iterdir()
    return {(task / "comm").read_text().strip() for task in tasks}


def test_nothing_is_sent_unless_asked_for(start: Callable[..., Agent], collector: Collector) -> None:
    quiet = start()
    assert "baro-export" not in threads(quiet)
    assert not quiet.has("export.*")
    loud = start(config=f'[export.otlp]\nurl = "{collector.url}"\n')
    # A thread names itself when it begins.
    eventually(lambda: "baro-export" in threads(loud), "the thread of exports")
    assert quiet.stop() == 0 and loud.stop() == 0


def test_a_receiver_that_hangs_holds_up_nobody(start: Callable[..., Agent]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        agent = start(config=writing(url, "timeout_seconds = 300\n").replace("timeout_seconds = 5\n", ""))
        polls = agent.value("agent.cpu.seconds")
        eventually(lambda: agent.value("agent.cpu.seconds") != polls, "the agent goes on")
        assert agent.stop() == 0


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ('url = "http://metrics.example/api/v1/write"', "insecure = true"),
        ('url = "https://me:hunter2@metrics.example/"', "headers_file"),
        ('url = "metrics.example"', "https://host:port/path"),
        ('url = "https://metrics.example/"\nheaders_file = "/none"', "headers_file /none"),
        ('url = "https://metrics.example/"\nca_file = "/none"', "ca_file /none"),
        ('url = "https://metrics.example/"\nseconds = 0', "seconds = 0"),
        ('url = "https://metrics.example/"\nmatch = ["{a}"]', "match"),
    ],
)
def test_bad_receivers_are_refused(tmp_path: Path, keys: str, reason: str) -> None:
    config = tmp_path / "barograph.toml"
    config.write_text(f"[export.remote_write]\n{keys}\n")
    places = ["--run-dir", tmp_path / "run", "--state-dir", tmp_path / "state"]
    done = baro("up", "--config", config, *places, "--http", "off")
    assert done.returncode == 1, done.stderr
    assert reason in done.stderr and "hunter2" not in done.stderr
