"""Dask tasks at their blocks: a real scheduler and real workers, of which each is a node with a server of staging."""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import StageServer, eventually

import barograph

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'barograph[dask]'")

import dask
from distributed import Client, LocalCluster, get_worker

import barograph.dask

# Dask leaves sockets and event loops to the collector of garbage.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NODES = 3
KIB = 1 << 10
# A worker that was killed comes again as a new process, on a machine that may be busy.
PATIENCE_S = 300


@dataclass
class Site:
    """Three nodes: the worker and the server of each have its number."""

    client: Client
    sockets: list[str]
    is_placing: bool = False

    def stage(self, node: int) -> barograph.StagingClient:
        return barograph.StagingClient({node: self.sockets[node]})

    def place(self, **settings: Any) -> None:
        """Has the scheduler place tasks from now on. All nodes are looked at."""
        if self.is_placing:
            self.client.unregister_scheduler_plugin("barograph")
        self.is_placing = True
        nodes = {number: number for number in range(NODES)}
        self.client.register_plugin(barograph.dask.BlockPlacement(nodes, choices=16, **settings))

    def told(self, key: str) -> list[dict[str, Any]]:
        """What was told of the placements of a task."""
        events = self.client.get_events("barograph")
        return [event for _, event in events if event["task"] == key]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    servers = [StageServer(tmp_path_factory.mktemp(f"node{node}")) for node in range(NODES)]
    settings: dict[str, Any] = {"n_workers": NODES, "threads_per_worker": 1, "dashboard_address": None}
    # A worker that was killed and takes long to come again is not given up.
    patience = dask.config.set({"distributed.deploy.lost-worker-timeout": f"{PATIENCE_S} s"})
    try:
        with patience, LocalCluster(**settings) as cluster, Client(cluster) as client:
            yield Site(client, [str(server.socket) for server in servers])
    finally:
        for server in servers:
            server.stop()


def checksum(sockets: list[str], node: int, key: tuple[str, int]) -> tuple[int, int]:
    """The checksum of a block, and the node of the worker that has computed it."""
    block = barograph.StagingClient({node: sockets[node]}).get(key)
    return zlib.crc32(block), int(get_worker().name)


def sleeper(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return int(get_worker().name)


def hold_until(path: str) -> int:
    """Ends when there is a file, unless its worker is killed before."""
    Path(f"{path}.{get_worker().name}").touch()
    while not Path(path).exists():
        time.sleep(0.01)
    return int(get_worker().name)


def test_tasks_run_where_their_blocks_are(site: Site) -> None:
    site.place(link_bytes_s=1.0)
    blocks, futures = {}, []
    for number in range(12):
        node, content = (number * 5) % NODES, os.urandom(64 * KIB)
        blocks["run", number] = node, content
        version = site.stage(node).put(("run", number), content)
        assert version
        with barograph.dask.at({node: len(content)}):
            futures.append(site.client.submit(checksum, site.sockets, node, ("run", number)))
    for future, (node, content) in zip(futures, blocks.values(), strict=True):
        assert future.result() == (zlib.crc32(content), node)
        [told] = site.told(future.key)
        assert (told["node"], told["is_overridden"]) == (node, False)
        assert told["reason"].startswith("the task runs where it was to run")
    # Tasks without a wish are Dask's own.
    assert site.client.submit(sleeper, -1, 0.0).result() in range(NODES)


def test_a_long_queue_is_left_and_the_reason_is_told(site: Site) -> None:
    site.place(link_bytes_s=1e9)
    with barograph.dask.at({1: 64 * KIB}):
        futures = site.client.map(sleeper, range(12), seconds=0.1)
    ran = site.client.gather(futures)
    told = [site.told(future.key)[0] for future in futures]
    assert [event["node"] for event in told] == ran
    moved = [event for event in told if event["is_overridden"]]
    assert moved and set(ran) == set(range(NODES))
    for event in moved:
        assert event["node"] != 1 and event["wait_s"] + event["move_s"] < 6.0
        assert event["reason"].startswith("node 1 would cost")
    # A hard location is kept however long its queue is.
    with barograph.dask.at({1: 64 * KIB}, hard=True):
        pinned = site.client.map(sleeper, range(100, 108), seconds=0.05)
    assert set(site.client.gather(pinned)) == {1}
    assert all("must run at its place" in site.told(future.key)[0]["reason"] for future in pinned)


def test_delayed_and_dependent_tasks_are_placed(site: Site) -> None:
    site.place(link_bytes_s=1.0)
    with barograph.dask.at({2: KIB}):
        first = dask.delayed(sleeper)(200, 0.0)
    with barograph.dask.at({0: KIB}):
        second = dask.delayed(lambda before: (before, int(get_worker().name)))(first)
    assert second.compute(scheduler=site.client, optimize_graph=False) == (2, 0)


def test_tasks_of_a_lost_node_go_elsewhere_and_hard_ones_wait_for_it(site: Site, tmp_path: Path) -> None:
    site.place(link_bytes_s=1e9)
    go_on = tmp_path / "go-on"
    with barograph.dask.at({1: KIB}, hard=True):
        running = site.client.submit(hold_until, str(go_on))
        pinned = site.client.submit(sleeper, 300, 0.0)
    with barograph.dask.at({1: KIB}, wait_s_max=1e9, cost_s=1e6):
        waiting = site.client.submit(sleeper, 301, 0.0)
    eventually(Path(f"{go_on}.1").exists, "the first task runs on node 1")
    assert site.told(waiting.key)[0]["node"] == 1
    [worker] = [address for address, known in site.client.scheduler_info()["workers"].items() if known["name"] == 1]
    process = site.client.run(os.getpid, workers=[worker])[worker]
    go_on.touch()
    os.kill(process, signal.SIGKILL)
    # Its nanny starts it anew.
    assert pinned.result(timeout=PATIENCE_S) == 1, site.told(pinned.key)
    assert running.result(timeout=PATIENCE_S) == 1, site.told(running.key)
    assert waiting.result(timeout=PATIENCE_S) in range(NODES), site.told(waiting.key)
    for future in (pinned, waiting):
        for event in site.told(future.key)[1:]:
            assert "takes no tasks" in event["reason"] or event["node"] == 1


def test_what_nobody_can_run_waits_for_its_node(site: Site) -> None:
    site.place(link_bytes_s=1e9)
    with barograph.dask.at({7: KIB}, hard=True):
        future = site.client.submit(sleeper, 400, 0.0)
    eventually(lambda: site.told(future.key), "it was told")
    [told] = site.told(future.key)
    assert (told["node"], list(told["workers"])) == (None, [])
    assert "takes no tasks" in told["reason"]
    with barograph.dask.at({7: KIB}):
        assert site.client.submit(sleeper, 401, 0.0).result() in range(NODES)
    assert not future.done()
    future.cancel()


def test_what_makes_no_sense_is_told_to_the_client() -> None:
    with pytest.raises(ValueError, match="cost_s"):
        barograph.dask.at({1: KIB}, cost_s=-1.0)
    with pytest.raises(OverflowError):
        barograph.dask.at({1: -1})
