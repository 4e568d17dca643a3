"""Dask tasks at their blocks: a plugin of the scheduler of Dask distributed, which runs each task on the node that
has its blocks, unless the queue there is so long that it is cheaper to move them.

This module needs the package `distributed` (``pip install 'barograph[dask]'``); nothing else of barograph does.

::

    client.register_plugin(barograph.dask.BlockPlacement({"node-a": 0, "node-b": 1}, link_bytes_s=1e9))
    where = barograph.block_holders(stage, [("run7", n) for n in range(100)])
    for number, holders in enumerate(where):
        with barograph.dask.at(holders):
            futures.append(client.submit(analyse, number))
    client.get_events("barograph")  # where each task was placed, and why
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

try:
    from dask.base import annotate
    from distributed import SchedulerPlugin
    from distributed.core import Status
except ImportError as missing:
    raise ImportError("barograph.dask needs distributed: pip install 'barograph[dask]'") from missing

from barograph._tasks import TaskNode, TaskPlacement, place_task

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from distributed.scheduler import Scheduler, TaskState, WorkerState

_NAME = "barograph"
# The name of a worker that there is not: a task that must wait for its node is restricted to it.
_NOBODY = "tcp://0.0.0.0:0"


def at(
    holders: Mapping[int, int],
    *,
    nbytes: int | None = None,
    node: int | None = None,
    hard: bool = False,
    cost_s: float = 0.0,
    wait_s_max: float = math.inf,
) -> AbstractContextManager[None]:
    """Has the tasks that are made in this ``with`` run at their data, by the plugin
    :class:`BlockPlacement`. The arguments are those of :func:`barograph.place_task`.

    It is an annotation of Dask. Collections lose annotations where graphs are fused:
    ``dask.config.set({"optimization.fuse.active": False})`` keeps them. Raises ValueError or
    OverflowError for numbers that cannot be.
    """
    wish: dict[str, Any] = {"nbytes": nbytes, "node": node, "hard": hard, "cost_s": cost_s, "wait_s_max": wait_s_max}
    # What cannot be is told here, and not in the log of the scheduler.
    place_task("", (), holders, **wish)
    return annotate(barograph={"holders": list(holders.items()), "wish": wish})


class BlockPlacement(SchedulerPlugin):
    """A plugin of the scheduler, which places the tasks that were annotated by :func:`at`.

    ``nodes`` gives the number of a node for the names of its workers, or for their hosts; workers that
    it does not name run no annotated task. The queue of a node is the work that Dask expects its
    workers to have, and what was placed there since. ``link_bytes_s`` and ``latency_s`` say how fast
    blocks come to a node; unless they are given, it is the bandwidth that Dask has measured between
    its workers.

    A task is placed when it is submitted, and restricted to the workers of its node, so that Dask does
    not steal it. It is placed anew if its node is lost. Each placement is an event of the topic
    ``barograph``: ``client.get_events("barograph")``.
    """

    name = _NAME

    def __init__(
        self,
        nodes: Mapping[str | int, int],
        *,
        link_bytes_s: float | None = None,
        latency_s: float | None = None,
        choices: int = 2,
        patience: float = 1.0,
    ) -> None:
        self._nodes = {str(name): node for name, node in nodes.items()}
        self._link_bytes_s = link_bytes_s
        self._latency_s = latency_s
        self._options: dict[str, Any] = {"choices": choices, "patience": patience}
        # Tasks that are not done, with their annotations.
        self._wishes: dict[Any, dict[str, Any]] = {}
        # Tasks that no worker has yet, with their nodes and expected seconds.
        self._pending: dict[Any, tuple[int, float]] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Begins to serve a scheduler."""
        self._scheduler = scheduler

    def update_graph(self, scheduler: Scheduler, *, annotations: dict[str, dict[Any, Any]], **_: Any) -> None:
        """Places new tasks."""
        wishes = annotations.get(_NAME, {})
        new = [scheduler.tasks[key] for key in wishes if key not in self._wishes]
        for ts in sorted(new, key=lambda ts: ts.priority or ()):
            self._wishes[ts.key] = wishes[ts.key]
            self._place(scheduler, ts)

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """Forgets what was placed when a worker has it, and the wish when it is done."""
        if finish not in ("waiting", "no-worker", "queued"):
            self._pending.pop(key, None)
        if finish in ("memory", "erred", "forgotten"):
            self._wishes.pop(key, None)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Places tasks that had to wait for this worker's node."""
        self._place_lost(scheduler)

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **_: Any) -> None:
        """Places anew the tasks whose node is lost."""
        placed = self._place_lost(scheduler)
        ready: dict[Any, Any] = {
            ts.key: "processing" for ts in placed if ts.state == "no-worker" and scheduler.valid_workers(ts)
        }
        scheduler.transitions(ready, stimulus_id)

    def _place_lost(self, scheduler: Scheduler) -> list[TaskState]:
        """Places the tasks that may run on no worker that there is."""
        known = (scheduler.tasks.get(key) for key in self._wishes)
        lost = [
            ts
            for ts in known
            if ts is not None and ts.worker_restrictions and ts.worker_restrictions.isdisjoint(scheduler.workers)
        ]
        for ts in sorted(lost, key=lambda ts: ts.priority or ()):
            self._place(scheduler, ts)
        return lost

    def _place(self, scheduler: Scheduler, ts: TaskState) -> None:
        """Places a task, restricts it to the workers of its node, and says so."""
        asked, by_node = self._wishes[ts.key], self._workers(scheduler)
        self._pending.pop(ts.key, None)
        nodes = [self._node(scheduler, node, by_node[node]) for node in sorted(by_node)]
        if asked["wish"]["hard"]:
            # A worker that is paused has it wait, as Dask's own restrictions do.
            nodes = [replace(node, is_open=True) for node in nodes]
        placed = place_task(str(ts.key), nodes, dict(asked["holders"]), **asked["wish"], **self._options)
        workers = sorted(ws.address for ws in by_node.get(-1 if placed.node is None else placed.node, ()))
        ts.worker_restrictions = set(workers) or {_NOBODY}
        if placed.node is not None:
            self._pending[ts.key] = placed.node, _duration_s(scheduler, ts) + _finite(placed.move_s)
        scheduler.log_event(_NAME, _event(ts.key, placed, workers))

    def _workers(self, scheduler: Scheduler) -> dict[int, list[WorkerState]]:
        """The workers of each node."""
        by_node: dict[int, list[WorkerState]] = {}
        for ws in scheduler.workers.values():
            node = self._nodes.get(str(ws.name), self._nodes.get(ws.host))
            if node is not None:
                by_node.setdefault(node, []).append(ws)
        return by_node

    def _node(self, scheduler: Scheduler, node: int, workers: list[WorkerState]) -> TaskNode:
        """What is known of a node."""
        pending = [seconds for at_node, seconds in self._pending.values() if at_node == node]
        threads = sum(ws.nthreads for ws in workers)
        tasks = sum(len(ws.processing) for ws in workers) + len(pending)
        work_s = sum(ws.occupancy for ws in workers) + sum(pending)
        link = scheduler.bandwidth if self._link_bytes_s is None else self._link_bytes_s
        # A worker that has just come is not running yet.
        is_open = any(ws.status in (Status.init, Status.running) for ws in workers)
        return TaskNode(node, 0.0 if tasks < threads else work_s / threads, link, self._latency_s, 0.0, is_open)


def _duration_s(scheduler: Scheduler, ts: TaskState) -> float:
    """How long Dask expects a task to take."""
    average = ts.prefix.duration_average
    return float(average if average >= 0 else scheduler.UNKNOWN_TASK_DURATION)


def _finite(seconds: float) -> float:
    return seconds if math.isfinite(seconds) else 0.0


def _event(key: Any, placed: TaskPlacement, workers: list[str]) -> dict[str, Any]:
    return {
        "task": str(key),
        "node": placed.node,
        "workers": workers,
        "wait_s": placed.wait_s,
        "move_s": _finite(placed.move_s),
        "is_overridden": placed.is_overridden,
        "reason": placed.reason,
    }
