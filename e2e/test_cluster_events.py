"""File events of other nodes: a monitor of a site has the events of each node, in the order of their
source, also over the death of either side."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import QUICK, Agent, baro, eventually
from test_cluster import cluster, peer

Start = Callable[..., Agent]

CONFIG = QUICK + '[cluster.aggregator]\nstreams = ["events"]\nnodes = ["b"]\n'


def creates(agent: Agent, table: str) -> list[dict[str, Any]]:
    """The created files that a table tells, in the order of their numbers."""
    return agent.rows(f"SELECT idx, path FROM {table} WHERE kind = 'create' AND node = 'b' ORDER BY idx")


def kept(agent: Agent) -> bool:
    """Whether the events of b are in a file of the aggregator."""
    directory = agent.state_dir / "aggregated" / "b" / "applications" / "all"
    exported = baro("archive", "export", "--archive-dir", directory, "--match", "events", "--format", "csv", "--out", "-")
    return exported.stdout.count("events") > 1


def test_a_monitor_has_the_events_of_another_node(start: Start, tmp_path: Path) -> None:
    _, (monitor, b) = cluster(start, ["a", "b"], CONFIG)
    tree = tmp_path / "tree"
    tree.mkdir()
    b.out("event", "add", tree, "--name", "tree", "--readers", "all")
    eventually(lambda: b.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")
    made: list[str] = []

    def make(count: int) -> None:
        for _ in range(count):
            path = tree / f"f{len(made)}"
            path.touch()
            made.append(str(path))

    # A monitor has the events from when it first saw the source on.
    eventually(lambda: make(1) or creates(monitor, "cluster_events"), "the first events")
    first = eventually(lambda: kept(monitor) and creates(monitor, "cluster_events"), "they are kept")[0]["idx"]

    def has_all() -> bool:
        of_b = creates(b, "events")
        there = [row for row in of_b if row["idx"] >= first]
        return len(of_b) == len(made) and creates(monitor, "cluster_events") == there

    make(3_000)
    eventually(has_all, "the events of b", 60)
    assert monitor.rows("SELECT 1 FROM events") == [], "the table of this node has its own events alone"
    # The monitor dies, and events go on.
    monitor.stop(signal.SIGKILL)
    make(3_000)
    eventually(lambda: len(creates(b, "events")) == len(made), "b has them")
    monitor.start()
    eventually(lambda: peer(monitor, "b")["state"] == "connected", "the monitor is back")
    eventually(has_all, "what came meanwhile", 60)
    # The node dies, and goes on with the next number.
    b.stop(signal.SIGKILL)
    make(10)
    b.start()
    eventually(lambda: b.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")
    eventually(lambda: len(creates(b, "events")) == len(made), "what came while it was away")
    eventually(has_all, "and on the monitor", 60)
    numbers = [row["idx"] for row in monitor.rows("SELECT idx FROM cluster_events WHERE node = 'b' ORDER BY idx")]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), "none is missing, and none is there twice"
