"""Tasks at their data: on which node a task runs, by the way to its data and the queues of the nodes.

The decision is made in Rust. This module has its words for Python, and the queues of nodes for programs
that start tasks themselves.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barograph import _barograph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barograph._barograph import LocatedBlock, StagingClient

_FOREVER = math.inf
_STALENESS_S = 30.0
# How much the newest task counts in what tasks of its kind usually take.
_NEWEST = 0.25
# Most waiting tasks of a node that an idle one looks at: the last ones, which wait longest.
_LOOKS_MAX = 16


@dataclass(frozen=True, slots=True)
class TaskNode:
    """What is known of a node that runs tasks. None is "not known", and counts as what is usual."""

    node: int
    """Its number."""
    queue_s: float | None = None
    """Seconds until a task that comes now begins."""
    link_bytes_s: float | None = None
    """Bytes in a second at which data comes to it."""
    latency_s: float | None = None
    """Seconds until the first byte comes."""
    age_s: float = 0.0
    """Seconds since this was so: what is old counts less."""
    is_open: bool = True
    """Whether it takes tasks."""


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """Where a task runs, and why."""

    node: int | None
    """The number of the node; None if the task cannot run now."""
    wait_s: float
    """The expected wait there, in seconds."""
    move_s: float
    """The expected time to bring there the data that is not there."""
    is_overridden: bool
    """Whether it is another place than the one that was wished."""
    reason: str
    """The reason, as a sentence."""

    @property
    def expected_s(self) -> float:
        """The expected seconds until the task begins and has its data."""
        return self.wait_s + self.move_s


def place_task(
    key: str | bytes,
    nodes: Sequence[TaskNode],
    holders: Mapping[int, int] | None = None,
    *,
    nbytes: int | None = None,
    node: int | None = None,
    rank: int | None = None,
    rank_nodes: Sequence[int] = (),
    hard: bool = False,
    cost_s: float = 0.0,
    wait_s_max: float = _FOREVER,
    choices: int = 2,
    patience: float = 1.0,
    staleness_s: float = _STALENESS_S,
) -> TaskPlacement:
    """Decides on which node a task runs. It asks nobody, and starts nothing.

    ::

        nodes = [barograph.TaskNode(n, queue_s=q, link_bytes_s=1e9) for n, q in enumerate(queues)]
        placed = barograph.place_task("count-7", nodes, {2: 64 << 20})
        print(placed.node, placed.expected_s, placed.reason)

    ``holders`` says how many bytes of the task's data are on which node, and ``nbytes`` how many it
    reads (the most that a holder has, unless given). The task is to run where most of its data is,
    or at ``node``, or at the node of ``rank`` (``rank_nodes`` has the node of each rank).

    With ``hard`` it runs there or nowhere. Otherwise another one of ``choices`` nodes, which are drawn
    by the key, is taken if it has the task done earlier, with the move of its data and ``cost_s``
    (what another place costs beside), or if the wait is longer than ``wait_s_max`` seconds. Of that
    gain so much is asked as chance differences of queues make up: ``patience`` times the geometric
    mean of the usual queue and the time of the move. ``staleness_s`` is the time after which what is
    known of a node counts a third.

    Raises ValueError for numbers that cannot be.
    """
    holding = dict(holders or {})
    placed = _barograph.place_task(
        key.encode() if isinstance(key, str) else key,
        list(nodes),
        list(holding.items()),
        max(holding.values(), default=0) if nbytes is None else nbytes,
        node,
        rank,
        list(rank_nodes),
        hard,
        cost_s,
        wait_s_max,
        choices,
        patience,
        staleness_s,
    )
    return TaskPlacement(*placed)


def block_holders(stage: StagingClient, keys: Sequence[tuple[str, int | str | bytes]]) -> list[dict[int, int]]:
    """Asks the servers of staging where blocks are, and gives for each key how many bytes are at which
    server, as ``holders`` of :func:`place_task`: the numbers of servers are those of their nodes. Only the
    newest version of a block counts, and what may be old (unconfirmed) counts as not there.

    Raises StagingError if no server can be asked; blocks that are only at some that cannot are nowhere.
    """
    return [_newest(block) for block in stage.locate(keys).blocks]


def _newest(block: LocatedBlock) -> dict[int, int]:
    certain = [it for it in block.replicas if it.is_confirmed]
    version = max((it.version for it in certain), default=0)
    return {it.server: it.nbytes for it in certain if it.version == version}


@dataclass(slots=True)
class _Task:
    """A task that was placed and is not done."""

    key: str
    kind: str
    holders: dict[int, int]
    nbytes: int
    is_hard: bool
    cost_s: float
    placement: TaskPlacement
    started_s: float = 0.0


@dataclass(slots=True)
class _Node:
    """The queue of a node."""

    slots: int
    link_bytes_s: float | None
    latency_s: float | None
    is_open: bool = True
    waiting: deque[_Task] = field(default_factory=deque)
    running: list[_Task] = field(default_factory=list)
    # Of the waiting tasks: how many there are of each kind, and the seconds of all their moves.
    kinds: Counter[str] = field(default_factory=Counter)
    moves_s: float = 0.0

    def count(self, task: _Task, by: int) -> None:
        """Counts a task that begins (1) or ends (-1) to wait."""
        self.kinds[task.kind] += by
        self.moves_s += by * _finite(task.placement.move_s)


class TaskPlacer:
    """Places the tasks of one program, and keeps the queues of the nodes from what it has placed.

    ::

        placer = barograph.TaskPlacer({0: 4, 1: 4}, link_bytes_s=1e9)
        placed = placer.place("count-7", {1: 64 << 20}, kind="count")
        ...  # run it at placed.node
        placer.done("count-7")

    ``slots`` says how many tasks each node runs at a time. The tasks of a node begin in the order in
    which they were placed. How long a task of a ``kind`` takes is learned from those that are done;
    ``task_s`` is what is expected before. It is for one thread at a time.
    """

    def __init__(
        self,
        slots: Mapping[int, int],
        *,
        link_bytes_s: float | None = None,
        latency_s: float | None = None,
        task_s: float = 0.0,
        choices: int = 2,
        patience: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if any(count < 1 for count in slots.values()):
            raise ValueError("a node has no slot: give 1 or more")
        self._nodes = {node: _Node(count, link_bytes_s, latency_s) for node, count in slots.items()}
        self._task_s = task_s
        self._choices = choices
        self._patience = patience
        self._clock = clock
        self._usual_s: dict[str, float] = {}
        self._at: dict[str, int] = {}

    def place(
        self,
        key: str,
        holders: Mapping[int, int] | None = None,
        *,
        kind: str = "",
        nbytes: int | None = None,
        node: int | None = None,
        hard: bool = False,
        cost_s: float = 0.0,
        wait_s_max: float = _FOREVER,
    ) -> TaskPlacement:
        """Places a task, and puts it into the queue of its node. ``key`` names it until it is done; for
        the rest see :func:`place_task`. Raises ValueError if a task with this key is not done yet.
        """
        if key in self._at:
            raise ValueError(f"{key!r} is placed already, and not done")
        holding = dict(holders or {})
        whole = max(holding.values(), default=0) if nbytes is None else nbytes
        placed = place_task(
            key,
            self.nodes(),
            holding,
            nbytes=whole,
            node=node,
            hard=hard,
            cost_s=cost_s,
            wait_s_max=wait_s_max,
            choices=self._choices,
            patience=self._patience,
        )
        if placed.node is not None:
            self._enqueue(_Task(key, kind, holding, whole, hard, cost_s, placed), placed.node)
        return placed

    def done(self, key: str) -> None:
        """Tells that a task is done, or was given up. Raises KeyError for one that was not placed."""
        now = self._clock()
        state = self._nodes[self._at.pop(key)]
        for task in state.running:
            if task.key == key:
                state.running.remove(task)
                self._learn(task, now)
                break
        else:
            # It has overtaken others: how long it took is not known.
            self._withdraw(state, next(task for task in state.waiting if task.key == key))
        self._begin(state, now)

    def take_over(self, node: int) -> tuple[str, TaskPlacement] | None:
        """The waiting task that an idle node takes over from another one, as key and new placement; None
        if no task gains as much as it has to gain for a move. The caller must be able to withdraw it from
        there.
        """
        thief = self._nodes[node]
        if not thief.is_open or thief.waiting or len(thief.running) >= thief.slots:
            return None
        known: list[tuple[_Task, int, float]] = []
        for number, state in self._nodes.items():
            if number != node:
                known += [(task, number, wait_s) for task, wait_s in self._waits(state)]
        costs = []
        for at, (task, number, wait_s) in enumerate(known):
            move_s, total_s = self._move_s(task, node), wait_s + self._move_s(task, number)
            evens_out_s = self._patience * math.sqrt(total_s * move_s) if move_s < total_s else 0.0
            costs.append((at, total_s, move_s + task.cost_s + evens_out_s))
        taken = _barograph.take_over(costs)
        if taken is None:
            return None
        task, number, wait_s = known[taken]
        self._withdraw(self._nodes[number], task)
        move_s = self._move_s(task, node)
        reason = f"node {node} is idle, and the task would wait at node {number} for {wait_s:.3f} s more"
        task.placement = TaskPlacement(node, 0.0, move_s, True, reason)
        self._enqueue(task, node)
        return task.key, task.placement

    def set_link(self, node: int, bytes_s: float | None, latency_s: float | None = None) -> None:
        """Sets how fast data comes to a node, for example as measured."""
        state = self._nodes[node]
        state.link_bytes_s, state.latency_s = bytes_s, latency_s

    def close(self, node: int) -> list[str]:
        """Has a node take no tasks any more, and gives the keys of those that wait or run there."""
        state = self._nodes[node]
        state.is_open = False
        return [task.key for task in itertools.chain(state.running, state.waiting)]

    def open(self, node: int) -> None:
        """Has a node take tasks again."""
        self._nodes[node].is_open = True

    def nodes(self) -> list[TaskNode]:
        """The nodes as they are now, for :func:`place_task`."""
        now = self._clock()
        return [
            TaskNode(number, self._queue_s(state, now), state.link_bytes_s, state.latency_s, 0.0, state.is_open)
            for number, state in self._nodes.items()
        ]

    def _enqueue(self, task: _Task, node: int) -> None:
        state = self._nodes[node]
        self._at[task.key] = node
        state.waiting.append(task)
        state.count(task, 1)
        self._begin(state, self._clock())

    def _begin(self, state: _Node, now: float) -> None:
        """Lets tasks begin for which there are slots."""
        while state.waiting and len(state.running) < state.slots:
            task = state.waiting.popleft()
            state.count(task, -1)
            task.started_s = now
            state.running.append(task)

    def _withdraw(self, state: _Node, task: _Task) -> None:
        state.waiting.remove(task)
        state.count(task, -1)

    def _learn(self, task: _Task, now: float) -> None:
        """Learns from a task that is done how long its kind takes, without the move of data."""
        took_s = max(now - task.started_s - _finite(task.placement.move_s), 0.0)
        usual_s = self._usual_s.get(task.kind)
        self._usual_s[task.kind] = took_s if usual_s is None else usual_s + _NEWEST * (took_s - usual_s)

    def _expected_s(self, task: _Task) -> float:
        return self._usual_s.get(task.kind, self._task_s) + _finite(task.placement.move_s)

    def _waiting_s(self, state: _Node) -> float:
        """Seconds of work of the tasks that wait at a node."""
        own_s = sum(count * self._usual_s.get(kind, self._task_s) for kind, count in state.kinds.items())
        return own_s + max(state.moves_s, 0.0)

    def _left_s(self, state: _Node, now: float) -> float:
        """Seconds of work of the tasks that run at a node."""
        return sum(max(self._expected_s(it) - (now - it.started_s), 0.0) for it in state.running)

    def _queue_s(self, state: _Node, now: float) -> float:
        if len(state.running) < state.slots:
            return 0.0
        return (self._left_s(state, now) + self._waiting_s(state)) / state.slots

    def _waits(self, state: _Node) -> list[tuple[_Task, float]]:
        """The last waiting tasks of a node that may leave it, each with its wait."""
        work_s, waits = self._left_s(state, self._clock()) + self._waiting_s(state), []
        for task in itertools.islice(reversed(state.waiting), _LOOKS_MAX):
            work_s -= self._expected_s(task)
            if not task.is_hard:
                waits.append((task, work_s / state.slots))
        return waits

    def _move_s(self, task: _Task, node: int) -> float:
        """The expected time to bring a task's data to a node."""
        state, missing = self._nodes[node], task.nbytes - task.holders.get(node, 0)
        if missing <= 0:
            return 0.0
        link = state.link_bytes_s
        return _FOREVER if not link else (state.latency_s or 0.0) + missing / link


def _finite(seconds: float) -> float:
    return seconds if math.isfinite(seconds) else 0.0
