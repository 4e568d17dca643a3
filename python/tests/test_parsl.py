"""Parsl tasks at their blocks: real executors, each of which is a node with a server of staging: two that have processes,
and one that has threads."""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import StageServer, eventually

import barograph

pytest.importorskip("parsl", reason="parsl is not installed: pip install 'barograph[parsl]'")

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor, ThreadPoolExecutor
from parsl.providers import LocalProvider

import barograph.parsl

# Parsl leaves files of its processes open.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NODES = 3
KIB = 1 << 10
EXECUTORS = {f"node{node}": node for node in range(NODES)}


@dataclass
class Site:
    """Three nodes: executor and server of each have its number."""

    kernel: parsl.DataFlowKernel
    sockets: list[str]

    def executors(self, **settings: Any) -> barograph.parsl.NodeExecutors:
        return barograph.parsl.NodeExecutors(EXECUTORS, 1, choices=16, data_flow_kernel=self.kernel, **settings)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    servers = [StageServer(tmp_path_factory.mktemp(f"node{node}")) for node in range(NODES)]
    with pytest.MonkeyPatch.context() as patch:
        # The programs of Parsl, and the functions of this file, for its workers.
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        processes = [
            HighThroughputExecutor(
                label=f"node{node}",
                address="127.0.0.1",
                max_workers_per_node=1,
                encrypted=False,
                provider=LocalProvider(init_blocks=1, max_blocks=1),
            )
            for node in range(2)
        ]
        threads = ThreadPoolExecutor(label="node2", max_threads=1)
        run_dir = str(tmp_path_factory.mktemp("parsl"))
        kernel = parsl.DataFlowKernel(
            Config(executors=[*processes, threads], run_dir=run_dir, strategy="none", initialize_logging=False)
        )
        try:
            yield Site(kernel, [str(server.socket) for server in servers])
        finally:
            kernel.cleanup()
            for server in servers:
                server.stop()


def checksum(socket: str, node: int, key: tuple[str, int]) -> tuple[int, int]:
    """The checksum of a block, and the process that has computed it."""
    block = barograph.StagingClient({node: socket}).get(key)
    return zlib.crc32(block), os.getpid()


def sleeper(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def failing() -> None:
    raise LookupError("as it is to be")


def test_tasks_run_where_their_blocks_are(site: Site) -> None:
    executors = site.executors(link_bytes_s=1.0)
    expected, futures = [], []
    for number in range(9):
        node, content = (number * 5) % NODES, os.urandom(64 * KIB)
        barograph.StagingClient({node: site.sockets[node]}).put(("run", number), content)
        expected.append((node, zlib.crc32(content)))
        at = executors.at({node: len(content)})
        futures.append(at.submit(checksum, site.sockets[node], node, key=("run", number)))
    processes: dict[int, set[int]] = {}
    for future, (node, crc) in zip(futures, expected, strict=True):
        computed, process = future.result()
        assert computed == crc
        processes.setdefault(node, set()).add(process)
        placed = executors.placement(future)
        assert (placed.node, placed.is_overridden) == (node, False)
        assert placed.reason.startswith("the task runs where it was to run")
    # One process for each node, and this one for the threads.
    assert all(len(of_node) == 1 for of_node in processes.values())
    assert len(set.union(*processes.values())) == NODES and processes[2] == {os.getpid()}


def test_a_long_queue_is_left_and_the_reason_is_told(site: Site) -> None:
    executors = site.executors(link_bytes_s=1e9, task_s=0.1)
    futures = [executors.at({1: 64 * KIB}).submit(sleeper, number, 0.1) for number in range(12)]
    assert [future.result() for future in futures] == list(range(12))
    placed = [executors.placement(future) for future in futures]
    assert [future.task_record["executor"] for future in futures] == [f"node{it.node}" for it in placed]
    moved = [it for it in placed if it.is_overridden]
    assert moved and {it.node for it in placed} == set(range(NODES))
    assert all(it.reason.startswith("node 1 would cost") for it in moved)
    pinned = [executors.at({1: 64 * KIB}, hard=True).submit(sleeper, number, 0.0) for number in range(6)]
    assert {executors.placement(future).node for future in pinned} == {1}
    assert [future.result() for future in pinned] == list(range(6))


def test_queues_are_empty_when_tasks_are_done_or_have_failed(site: Site) -> None:
    executors = site.executors(link_bytes_s=1e9, task_s=1e6)
    for _ in range(3):
        with pytest.raises(LookupError, match="as it is to be"):
            executors.at({0: KIB}).submit(failing).result()
    assert executors.at({0: KIB}).submit(sleeper, 7, seconds=0.0).result() == 7
    eventually(lambda: [node.queue_s for node in executors.nodes()] == [0.0] * NODES, "all queues are empty")
    assert [node.is_open for node in executors.nodes()] == [True] * NODES


def test_nodes_that_are_closed_get_nothing(site: Site) -> None:
    executors = site.executors(link_bytes_s=1e9)
    executors.close(0)
    future = executors.at({0: KIB}).submit(sleeper, 1, 0.0)
    assert executors.placement(future).node in (1, 2) and executors.placement(future).is_overridden
    with pytest.raises(RuntimeError, match="takes no tasks"):
        executors.at({0: KIB}, hard=True).submit(sleeper, 2, 0.0)
    executors.open(0)
    assert executors.placement(executors.at({0: KIB}).submit(sleeper, 3, 0.0)).node == 0
    with pytest.raises(ValueError, match="same node"):
        barograph.parsl.NodeExecutors({"a": 1, "b": 1}, 1)
