"""Tasks at their data: on which node a task runs, and what a program is told of the reason."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import StageServer

import barograph
from barograph import TaskNode, TaskPlacer, place_task

MIB = 1 << 20


def nodes(*queues: float | None, link: float | None = MIB) -> list[TaskNode]:
    """Nodes 1, 2 and so on, to which data comes at 1 MiB/s."""
    return [TaskNode(number, queue, link, 0.0) for number, queue in enumerate(queues, 1)]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_task_waits_at_its_data_until_moving_is_cheaper() -> None:
    # Two MiB are on node 1, so moving takes 2 s. Queues there and at node 2, and where the task goes.
    for at_data, elsewhere, cost_s, expect in (
        (1.9, 0.0, 0.0, 1),
        (2.1, 0.0, 0.0, 2),
        (2.1, 0.2, 0.0, 1),
        (2.1, 0.0, 0.2, 1),
    ):
        placed = place_task("t", nodes(at_data, elsewhere), {1: 2 * MIB}, cost_s=cost_s, choices=16, patience=0)
        assert placed.node == expect, placed
        assert placed.is_overridden == (expect == 2)
        assert placed.expected_s == pytest.approx(at_data if expect == 1 else elsewhere + 2.0)
    assert placed.reason == "the task runs where it was to run, after 2.100 s"
    moved = place_task("t", nodes(5.0, 0.0), {1: 2 * MIB}, choices=16, patience=0)
    assert moved.reason == "node 1 would cost 5.000 s of waiting and moving data, and another one 2.000 s"
    assert (moved.wait_s, moved.move_s) == (0.0, 2.0)
    # With patience, a task is not moved for what chance evens out.
    assert place_task("t", nodes(5.0, 4.0), {1: MIB}, choices=16).node == 1


def test_hard_and_soft_locations_by_node_and_rank() -> None:
    busy = nodes(100.0, 0.0, 0.0)
    for wish, expect in (
        ({"node": 1}, 1),
        ({"rank": 1, "rank_nodes": [3, 1]}, 1),
        ({"rank": 0, "rank_nodes": [3, 1]}, 3),
    ):
        hard = place_task("t", busy, {2: MIB}, hard=True, **wish)
        assert (hard.node, hard.is_overridden) == (expect, False)
        assert "must run at its place" in hard.reason
    soft = place_task("t", busy, {2: MIB}, node=1, choices=16)
    assert soft.node in (2, 3) and soft.is_overridden
    # The bound of the wait counts also where moving costs more than waiting.
    bounded = place_task("t", nodes(3.0, 0.0), {1: 9 * MIB}, wait_s_max=2.0, choices=16)
    assert bounded.node == 2 and bounded.is_overridden
    assert bounded.reason == "the wait at node 1 is 3.000 s, longer than the bound of 2.000 s"


def test_places_that_are_closed_or_unknown_are_told() -> None:
    closed = [TaskNode(1, 0.0, MIB, is_open=False), TaskNode(2, 0.0, MIB)]
    hard = place_task("t", closed, {1: MIB}, hard=True)
    assert hard.node is None and "takes no tasks" in hard.reason
    soft = place_task("t", closed, {1: MIB}, choices=16)
    assert (soft.node, soft.is_overridden) == (2, True)
    assert place_task("t", closed, {7: MIB}, choices=16).reason == soft.reason
    without = place_task("t", closed, choices=16)
    assert (without.node, without.is_overridden) == (2, False) and "no node holds data" in without.reason
    assert place_task("t", [], {1: MIB}).reason == "no node takes the task"


def test_what_is_not_known_keeps_a_task_at_its_data() -> None:
    assert place_task("t", nodes(1e3, 0.0, link=None), {1: MIB}, choices=16).node == 1
    assert place_task("t", nodes(None, None), {2: MIB}, choices=16).node == 2
    old = [TaskNode(1, 1e3, MIB, 0.0, age_s=1e6), TaskNode(2, 0.0, MIB, 0.0)]
    assert place_task("t", old, {1: 2 * MIB}, choices=16).node == 1
    assert place_task("t", nodes(1e3, 0.0), {1: 2 * MIB}, choices=16).node == 2


def test_what_makes_no_sense_is_an_error() -> None:
    for wrong in (
        {"cost_s": -1.0},
        {"cost_s": math.nan},
        {"wait_s_max": math.nan},
        {"patience": -0.5},
        {"staleness_s": 0.0},
        {"staleness_s": math.nan},
        {"node": 1, "rank": 0},
    ):
        with pytest.raises(ValueError):
            place_task("t", nodes(0.0), {1: 1}, **wrong)
    for number in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            place_task("t", nodes(0.0), {1: number})
        with pytest.raises(OverflowError):
            place_task("t", nodes(0.0), {number: 1})
    # Readings may be anything.
    for odd in (math.nan, math.inf, -1.0):
        states = [TaskNode(1, odd, odd, odd, age_s=odd), *nodes(0.0)]
        assert place_task("t", states, {1: 1}).node == 1
    with pytest.raises(ValueError, match="slot"):
        TaskPlacer({1: 0})


def test_a_placer_counts_what_it_has_placed() -> None:
    clock = Clock()
    placer = TaskPlacer({1: 1, 2: 1}, link_bytes_s=MIB, task_s=1.0, choices=16, patience=0, clock=clock)
    at = [placer.place(f"t{n}", {1: 2 * MIB}).node for n in range(5)]
    # One runs and two wait at the data; then moving for 2 s is cheaper than waiting for 3 s.
    assert at == [1, 1, 1, 2, 1]
    assert [node.queue_s for node in placer.nodes()] == [4.0, 3.0]
    clock.now = 1.0
    placer.done("t0")
    assert [node.queue_s for node in placer.nodes()] == [3.0, 2.0]
    # A task takes 4 s now, so the queue is longer than it was thought to be.
    clock.now = 5.0
    placer.done("t1")
    assert placer.nodes()[0].queue_s == pytest.approx(2 * (1.0 + 0.25 * 3.0))
    with pytest.raises(ValueError, match="placed already"):
        placer.place("t2")
    with pytest.raises(KeyError):
        placer.done("t0")
    placer.done("t4")
    placer.done("t2")
    placer.done("t3")
    assert [node.queue_s for node in placer.nodes()] == [0.0, 0.0]


def test_nodes_that_close_are_left() -> None:
    placer = TaskPlacer({1: 2, 2: 2}, link_bytes_s=MIB, choices=16)
    assert placer.place("a", {1: MIB}).node == 1
    assert placer.close(1) == ["a"]
    assert placer.place("b", {1: MIB}).node == 2
    assert placer.place("c", {1: MIB}, hard=True).node is None
    placer.open(1)
    assert placer.place("c", {1: MIB}, hard=True).node == 1


def test_an_idle_node_takes_over_what_gains_most() -> None:
    clock = Clock()
    placer = TaskPlacer({1: 1, 2: 1}, link_bytes_s=MIB, task_s=1.0, choices=0, patience=0, clock=clock)
    for key in ("first", "second", "third"):
        placer.place(key, {1: MIB})
    placer.place("pinned", {1: MIB}, hard=True)
    taken = placer.take_over(2)
    # The third one waits for 2 s and moves in 1 s; the last one waits longer and must stay.
    assert taken is not None and taken[0] == "third" and taken[1].node == 2 and taken[1].is_overridden
    assert taken[1].reason == "node 2 is idle, and the task would wait at node 1 for 2.000 s more"
    assert placer.take_over(2) is None
    placer.done("third")
    placer.set_link(2, MIB / 10)
    assert placer.take_over(2) is None


def test_a_patient_node_takes_over_what_gains_more_than_chance() -> None:
    for patience, length, expect in ((0.0, 3, True), (1.0, 3, False), (1.0, 4, True)):
        placer = TaskPlacer({1: 1, 2: 1}, link_bytes_s=MIB, task_s=1.0, choices=0, patience=patience)
        for number in range(length):
            placer.place(f"t{number}", {1: MIB})
        # The last one waits for one second less than there are tasks, and moves in one second.
        assert (placer.take_over(2) is not None) == expect, (patience, length)


def test_holders_are_the_servers_that_have_a_block_for_certain() -> None:
    def replica(server: int, length: int, version: int = 2, is_confirmed: bool = True) -> SimpleNamespace:
        return SimpleNamespace(server=server, nbytes=length, version=version, is_confirmed=is_confirmed)

    found = [[replica(2, 7), replica(0, 7)], [replica(1, 9, 3, False), replica(3, 8), replica(4, 6, 1)], []]
    blocks = [SimpleNamespace(replicas=replicas) for replicas in found]
    stage: Any = SimpleNamespace(locate=lambda keys: SimpleNamespace(blocks=blocks[: len(keys)]))
    assert barograph.block_holders(stage, [("run", n) for n in range(3)]) == [{2: 7, 0: 7}, {3: 8}, {}]


def test_holders_are_found_on_any_server(tmp_path: Path) -> None:
    servers = []
    try:
        for node in range(2):
            (tmp_path / f"{node}").mkdir()
            servers.append(StageServer(tmp_path / f"{node}"))
        # Wherever hashing would have put it.
        for number in range(8):
            beside: dict[int, str | os.PathLike[str]] = {number % 2: servers[number % 2].socket}
            barograph.StagingClient(beside).put(("run", number), bytes(number))
        stage = barograph.StagingClient([server.socket for server in servers])
        held = barograph.block_holders(stage, [("run", number) for number in (*range(8), 99)])
        assert held == [*({number % 2: number} for number in range(8)), {}]
    finally:
        for server in servers:
            server.stop()


def test_the_package_needs_neither_dask_nor_parsl() -> None:
    program = """
import sys
import barograph
assert not {"dask", "distributed", "parsl"} & set(sys.modules)
for needed, module in (("distributed", "dask"), ("parsl", "parsl")):
    sys.modules[needed] = None
    try:
        __import__(f"barograph.{module}")
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == (
        "barograph.dask needs distributed: pip install 'barograph[dask]'\n"
        "barograph.parsl needs parsl: pip install 'barograph[parsl]'\n"
    )
