"""Parsl tasks at their blocks: of several executors of Parsl, one for each node, a task gets the one whose node has
its blocks, unless the queue there is so long that it is cheaper to move them.

This module needs the package `parsl` (``pip install 'barograph[parsl]'``); nothing else of barograph does.

::

    executors = barograph.parsl.NodeExecutors({"node-a": 0, "node-b": 1}, slots=16, link_bytes_s=1e9)
    where = barograph.block_holders(stage, [("run7", n) for n in range(100)])
    for number, holders in enumerate(where):
        future = executors.at(holders).submit(analyse, number)
        print(future.task_record["executor"], executors.placement(future).reason)
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

try:
    from parsl.app.python import PythonApp
    from parsl.dataflow.dflow import DataFlowKernel, DataFlowKernelLoader
except ImportError as missing:
    raise ImportError("barograph.parsl needs parsl: pip install 'barograph[parsl]'") from missing

from barograph._tasks import TaskNode, TaskPlacement, TaskPlacer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parsl.dataflow.futures import AppFuture


class NodeExecutors:
    """The executors of nodes, by their labels.

    ``executors`` gives the number of the node of each label; ``slots`` says how many tasks an executor
    runs at a time (one number, or one for each label). The queues are those of the tasks that were
    submitted here, and how long a task of a function takes is learned; ``task_s`` is what counts
    before. ``link_bytes_s`` and ``latency_s`` say how fast blocks come to a node. It may be shared by
    threads.
    """

    def __init__(
        self,
        executors: Mapping[str, int],
        slots: int | Mapping[str, int],
        *,
        link_bytes_s: float | None = None,
        latency_s: float | None = None,
        task_s: float = 0.0,
        choices: int = 2,
        patience: float = 1.0,
        data_flow_kernel: DataFlowKernel | None = None,
    ) -> None:
        self._labels = {node: label for label, node in executors.items()}
        if len(self._labels) < len(executors):
            raise ValueError("two executors have the same node")
        by_node = {node: slots if isinstance(slots, int) else slots[label] for label, node in executors.items()}
        self._placer = TaskPlacer(
            by_node,
            link_bytes_s=link_bytes_s,
            latency_s=latency_s,
            task_s=task_s,
            choices=choices,
            patience=patience,
        )
        self._kernel = data_flow_kernel
        # Futures are done in threads of Parsl.
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._placements: weakref.WeakKeyDictionary[AppFuture, TaskPlacement] = weakref.WeakKeyDictionary()

    def at(
        self,
        holders: Mapping[int, int],
        *,
        nbytes: int | None = None,
        node: int | None = None,
        hard: bool = False,
        cost_s: float = 0.0,
        wait_s_max: float = math.inf,
    ) -> PlacedSubmission:
        """The wish for the place of one task: its ``submit`` runs a function there. The arguments are
        those of :func:`barograph.place_task`.
        """
        wish = {"nbytes": nbytes, "node": node, "hard": hard, "cost_s": cost_s, "wait_s_max": wait_s_max}
        return PlacedSubmission(self, dict(holders), wish)

    def placement(self, future: AppFuture) -> TaskPlacement:
        """Where a task was placed, and why."""
        return self._placements[future]

    def nodes(self) -> list[TaskNode]:
        """The nodes as they are now, with their queues."""
        with self._lock:
            return self._placer.nodes()

    def close(self, node: int) -> None:
        """Has a node get no tasks any more. Those that it has stay there."""
        with self._lock:
            self._placer.close(node)

    def open(self, node: int) -> None:
        """Has a node get tasks again."""
        with self._lock:
            self._placer.open(node)

    def _submit(
        self,
        holders: dict[int, int],
        wish: dict[str, Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> AppFuture:
        name = getattr(function, "__qualname__", repr(function))
        kernel = DataFlowKernelLoader.dfk() if self._kernel is None else self._kernel
        with self._lock:
            key = f"{name}-{next(self._numbers)}"
            placed = self._placer.place(key, holders, kind=name, **wish)
        if placed.node is None:
            raise RuntimeError(placed.reason)
        try:
            label = self._labels[placed.node]
            app = PythonApp(function, data_flow_kernel=kernel, executors=[label])  # type: ignore[no-untyped-call]
            future: AppFuture = app(*args, **kwargs)
        except BaseException:
            self._done(key)
            raise
        self._placements[future] = placed
        future.add_done_callback(lambda _: self._done(key))
        return future

    def _done(self, key: str) -> None:
        with self._lock:
            self._placer.done(key)


@dataclass(frozen=True)
class PlacedSubmission:
    """A wish for the place of a task, from :meth:`NodeExecutors.at`."""

    _executors: NodeExecutors
    _holders: dict[int, int]
    _wish: dict[str, Any]

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> AppFuture:
        """Has Parsl run a function, as an app, on the executor of the node where the task is placed.
        Raises RuntimeError if it must run at a node that is closed.
        """
        return self._executors._submit(self._holders, self._wish, function, args, kwargs)
