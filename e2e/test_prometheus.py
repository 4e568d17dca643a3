"""The agent among Prometheus' programs: node_exporter beside it, promtool and Prometheus as its
clients."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE_SECONDS, QUICK, Agent, eventually, machine

CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")
# Samples of one metric: labels without `node`, and the value.
Family = dict[frozenset[tuple[str, str]], float]

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
# Metrics that are constant on a machine in use, at least for a moment.
STILL = (
    "node_memory_MemTotal_bytes", "node_memory_SwapTotal_bytes", "node_filesystem_size_bytes",
    "node_filesystem_files", "node_filesystem_readonly", "node_network_mtu_bytes", "node_md_disks_required",
)  # fmt: skip


def program(name: str) -> str:
    """The path of a program; if it is missing the test is skipped, or fails in CI."""
    found = shutil.which(name)
    if not found:
        (pytest.fail if CI else pytest.skip)(f"{name} is not installed")
    assert found
    return found


def free_port() -> int:
    """A port on which nothing listens at this moment."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return asked.getsockname()[1]


def fetch(url: str, headers: dict[str, str] | None = None) -> str:
    """The contents of an address; a refused connection gives an empty text."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers or {}), timeout=PATIENCE_SECONDS
        ) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""


@contextmanager
def running(folder: Path, *command: object) -> Iterator[None]:
    """Runs a program until the end of the block."""
    with (folder / "program.log").open("wb") as log:
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


@contextmanager
def node_exporter(folder: Path, *options: object) -> Iterator[Callable[[], dict[str, Family]]]:
    """Runs a node_exporter; yields a function that reads its metrics."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [program("prometheus-node-exporter"), f"--web.listen-address={url[7:]}", *options]
    with running(folder, *command):
        eventually(lambda: fetch(url), "node_exporter answers")
        yield lambda: families(fetch(f"{url}/metrics"))


def families(text: str) -> dict[str, Family]:
    """Samples by metric and labels; the label `node`, which only ours have, is left out."""
    found: dict[str, Family] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            labels = frozenset((n, v) for n, v in LABEL.findall(sample[2] or "") if n != "node")
            found.setdefault(sample[1], {})[labels] = float(sample[3])
    return found


def shared(agent: Agent) -> dict[str, Family]:
    """The agent's metrics under node_exporter's names."""
    return {n: f for n, f in families(agent.get("/metrics").text).items() if n.startswith("node_")}


def types(text: str) -> dict[str, str]:
    """The type of every metric."""
    return {words[2]: words[3] for line in text.splitlines() if (words := line.split())[:2] == ["#", "TYPE"]}


def same_kind(ours: dict[str, Family], theirs: dict[str, Family]) -> None:
    """Checks that every metric of ours exists with the same labels, and with at least one device in
    common."""
    for name, family in ours.items():
        assert name in theirs, f"node_exporter has no {name}"
        names = {tuple(sorted(n for n, _ in labels)) for labels in family}
        assert names == {tuple(sorted(n for n, _ in labels)) for labels in theirs[name]}, name
        assert set(family) & set(theirs[name]), f"{name}: {set(family)} and {set(theirs[name])}"


def test_names_and_values_of_this_machine(start: Callable[..., Agent], tmp_path: Path) -> None:
    agent = start(config=QUICK)
    eventually(lambda: len(shared(agent)) > 40, "the first samples")
    with node_exporter(tmp_path) as exporter:
        before = shared(agent)
        theirs = exporter()
        same_kind(before, theirs)
        kinds = types(agent.get("/metrics").text)
        counters = {
            (name, labels): theirs[name][labels]
            for name, family in before.items()
            for labels in set(family) & set(theirs[name])
            if kinds[name] == "counter" or name.startswith("node_vmstat_")
        }
        assert len(counters) > 20
        for (name, labels), value in counters.items():
            assert before[name][labels] <= value * (1 + 1e-9), f"{name}{set(labels)} is ahead"

        def behind() -> list[object]:
            """The values that are still smaller than node_exporter's."""
            now = shared(agent)
            return [
                (name, now[name][labels], value)
                for (name, labels), value in counters.items()
                if now[name][labels] < value * (1 - 1e-9) - 1e-9
            ]

        eventually(lambda: behind() == [] or None, f"ours reach theirs: {behind()}")
        for name in STILL:
            for labels in set(before.get(name, {})) & set(theirs.get(name, {})):
                assert before[name][labels] == theirs[name][labels], (name, labels)


@pytest.mark.parametrize("name", ["nvme-v2", "hdd-raid"])
def test_names_and_values_of_a_machine_that_stands_still(
    start: Callable[..., Agent], tmp_path: Path, name: str
) -> None:
    tree = machine(name, tmp_path)
    # A kernel has ten kinds of softirq, and node_exporter insists on them.
    stat = tree / "proc" / "stat"
    stat.write_text(re.sub(r"^softirq .*$", "softirq 10" + " 1" * 10, stat.read_text(), flags=re.MULTILINE))
    agent = start("--sys-root", tree, config=QUICK)
    eventually(lambda: len(shared(agent)) > 3, "the first samples")
    places = [f"--path.procfs={tree}/proc", f"--path.sysfs={tree}/sys", "--no-collector.filesystem"]
    with node_exporter(tmp_path, *places, "--no-collector.netdev.netlink") as exporter:
        # The free space is that of the real system, not of the tree.
        ours = {n: f for n, f in shared(agent).items() if not n.startswith("node_filesystem_")}
        theirs = exporter()
        same_kind(ours, theirs)
        for metric, family in ours.items():
            for labels in set(family) & set(theirs[metric]):
                assert family[labels] == pytest.approx(theirs[metric][labels], rel=1e-9), (metric, labels)


def test_promtool_has_nothing_to_say_but_of_names(live: Agent, fixed: Agent) -> None:
    """Only about names: streams of counts end in `_count`, which the linter reserves for
    histograms, and node_exporter's names are fixed."""
    tool = program("promtool")
    for agent in (live, fixed):
        text = agent.get("/metrics").text
        done = subprocess.run(
            [tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        said = (done.stdout + done.stderr).splitlines()
        expected = re.compile(r".*_count\" suffix$|node_\w+ .*(camelCase'|\"_total\" suffix)$")
        others = [line for line in said if not expected.match(line)]
        assert others == [] and done.returncode in (0, 3), others


def test_promtool_as_a_client(live: Agent) -> None:
    tool, url = program("promtool"), live.place
    eventually(lambda: "node_load1" in live.get("/metrics").text, "the first samples")

    def query(*arguments: str) -> str:
        done = subprocess.run(
            [tool, "query", *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert re.match(r"node_load1\{node=\"[^\"]+\"\} => [\d.]+ @\[", query("instant", url, "node_load1"))
    assert "node_memory_MemTotal_bytes" in query("series", "--match=node_memory_MemTotal_bytes", url)
    assert "node_load1" in query("labels", url, "__name__")
    rate = "sum(rate(node_context_switches_total[30s]))"
    eventually(lambda: "@[" in query("range", "--step=1s", url, rate), "a rate")


def answer(url: str, query: str, time: float) -> list[dict[str, Any]]:
    """The result of an instant query."""
    asked = urllib.parse.urlencode({"query": query, "time": f"{time:.3f}"})
    body = json.loads(fetch(f"{url}/api/v1/query?{asked}"))
    assert body["status"] == "success", body
    return body["data"]["result"]


# Queries for both, and the allowed difference of their values. Constant values must be equal;
# values that change were polled at other times than they were scraped.
QUESTIONS = [
    ("sum without (instance, job) (node_memory_MemTotal_bytes)", 0.0),
    ("sum by (device) (node_network_mtu_bytes)", 0.0),
    ("count(node_disk_read_bytes_total)", 0.0),
    ("topk(1, sum by (mountpoint) (node_filesystem_size_bytes))", 0.0),
    ("max by (fstype) (node_filesystem_size_bytes) / 1024", 0.0),
    ("sum by (value) (barograph_disk_tier_name_info)", 0.0),
    ("sum by (mountpoint) (node_filesystem_size_bytes - node_filesystem_free_bytes >= bool 0)", 0.0),
    ("sum by (device) (node_network_mtu_bytes) and sum by (device) (node_network_mtu_bytes > 1)", 0.0),
    ("count_over_time(sum_of_nothing[10s])", 0.0),
    # The seconds per second of all processors: their number.
    (" + ".join(f"sum(rate(barograph_cpu_{mode}_seconds_total[10s]))"
                for mode in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")), 0.2),
    ("avg_over_time(node_memory_MemTotal_bytes[10s]) / on() group_left() sum(node_memory_MemTotal_bytes)", 1e-9),
    ("changes(node_memory_MemTotal_bytes[10s])", 0.0),
    # The value has not changed: its rate exists and is 0.
    ("sum(rate(node_vmstat_oom_kill[10s]))", 0.0),
]  # fmt: skip


def test_prometheus_scrapes_what_we_answer(start: Callable[..., Agent], tmp_path: Path) -> None:
    agent = start(config=QUICK)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: b, static_configs: [{{targets: ['127.0.0.1:{agent.port}']}}]}}]\n"
    )
    command = [
        program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with running(tmp_path, *command):
        eventually(lambda: fetch(f"{url}/-/ready").startswith("Prometheus"), "Prometheus is ready")

        def scraped() -> float:
            """The time of the newest scrape, once there are enough."""
            body = json.loads(fetch(f"{url}/api/v1/query?query=up[1m]"))
            series = body["data"]["result"]
            values = series[0]["values"] if series else []
            assert all(value == "1" for _, value in values), "a scrape failed"
            return values[-1][0] if len(values) > 15 else 0.0

        now = eventually(scraped, "fifteen scrapes", seconds=2 * PATIENCE_SECONDS)
        assert float(answer(url, "scrape_samples_scraped", now)[0]["value"][1]) > 50
        for query, tolerance in QUESTIONS:
            theirs, ours = (by_labels(answer(where, query, now)) for where in (url, agent.place))
            assert ours.keys() == theirs.keys(), query
            for labels, value in theirs.items():
                assert ours[labels] == pytest.approx(value, rel=tolerance, abs=0), (query, labels)
        # Types and help go through the exposition and return by Prometheus' API.
        asked = "/api/v1/metadata?metric=node_memory_MemTotal_bytes"
        theirs, ours = (json.loads(fetch(where + asked))["data"] for where in (url, agent.place))
        assert ours == theirs


def by_labels(result: list[dict[str, Any]]) -> dict[frozenset[tuple[str, str]], float]:
    """Values by labels, without labels that only one of the two has."""
    own = {"instance", "job", "node"}
    return {
        frozenset((n, v) for n, v in series["metric"].items() if n not in own): float(series["value"][1])
        for series in result
    }
