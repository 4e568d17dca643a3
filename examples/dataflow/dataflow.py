"""A small dataflow runner: tasks are futures of files, workers are processes on the nodes of a cluster, and files
are blocks of staging. It shows what it gives to run tasks where their files are; it is no workflow system.

    with Dataflow(cluster, DataAware(), workers=2) as flow:
        copies = [flow.task("copy", copy, [file]) for file in files]
        report = flow.run()
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from cluster import Cluster

import barograph

# What a task does: from the contents of its inputs to that of its output.
Function = Callable[[list[memoryview]], "bytes | memoryview"]
Key = tuple[str, int]
# How much the newest transfer counts in the bandwidth of a node's link.
NEWEST = 0.2


@dataclass(eq=False)
class File:
    """A file: a future while the task that writes it is not done."""

    key: Key
    node: int | None = None
    nbytes: int = 0
    readers: list[Task] = field(default_factory=list)


@dataclass(eq=False)
class Task:
    """A task, which may run as soon as its inputs are there."""

    name: str
    kind: str
    function: Function
    inputs: list[File]
    output: File
    missing: int = 0

    def holders(self) -> dict[int, int]:
        """The bytes of the inputs on each node."""
        held: Counter[int] = Counter()
        for file in self.inputs:
            assert file.node is not None
            held[file.node] += file.nbytes
        return dict(held)


@dataclass
class Report:
    """What came of a run."""

    makespan_s: float
    tasks: int = 0
    local: int = 0
    """Tasks of which all inputs were on their node."""
    bytes_read: int = 0
    bytes_read_local: int = 0
    bytes_moved: int = 0
    """Bytes of files that were read from other nodes or written to them."""
    bytes_on_links: int = 0
    """All that has passed the links, as they count it."""
    overridden: Counter[str] = field(default_factory=Counter)
    """Tasks that did not run where most of their data is, by the first words of the reason."""


class Policy:
    """Which node runs a task, and which node gets its output. This one: the nodes in turn, for both."""

    def start(self, cluster: Cluster, workers: int) -> None:
        """Begins a run."""
        self.overridden: Counter[str] = Counter()
        self._turn = itertools.cycle(range(cluster.nodes))

    def place(self, task: Task) -> int | None:
        """The node of a task that may run now; None for any worker that is idle."""
        return next(self._turn)

    def output(self, number: int, node: int, nodes: int) -> int:
        """The node for the output of a task: by a hash of its number, as with Memcached."""
        return hashed(number, nodes)

    def done(self, task: Task, node: int, moved: int, moving_s: float) -> None:
        """Hears that a task is done on a node, to which bytes were moved for it."""

    def steal(self, node: int) -> str | None:
        """The name of a waiting task that a node with nothing to do takes over."""
        return None


def hashed(number: int, nodes: int) -> int:
    """One of the nodes, which has nothing to do with the order of the numbers."""
    return zlib.crc32(number.to_bytes(8)) % nodes


class RoundRobin(Policy):
    """The nodes in turn."""


class AnyIdle(Policy):
    """A soft location of Swift/T: any worker that is idle takes the next task."""

    def __init__(self, own: bool = False) -> None:
        self._own = own

    def place(self, task: Task) -> int | None:
        return None

    def output(self, number: int, node: int, nodes: int) -> int:
        return node if self._own else hashed(number, nodes)


class Hard(Policy):
    """A hard location of Swift/T, by somebody who knows where each file is."""

    def place(self, task: Task) -> int | None:
        held = task.holders()
        return max(held, key=lambda node: held[node])

    def output(self, number: int, node: int, nodes: int) -> int:
        return node


class DataAware(Hard):
    """A soft location with a price: `barograph.TaskPlacer`."""

    def start(self, cluster: Cluster, workers: int) -> None:
        super().start(cluster, workers)
        self._link = [cluster.link_bytes_s] * cluster.nodes
        slots = dict.fromkeys(range(cluster.nodes), workers)
        self._placer = barograph.TaskPlacer(slots, link_bytes_s=cluster.link_bytes_s, latency_s=1e-3)

    def place(self, task: Task) -> int | None:
        held = task.holders()
        placed = self._placer.place(task.name, held, kind=task.kind, nbytes=sum(held.values()))
        self._tell(placed)
        return placed.node

    def done(self, task: Task, node: int, moved: int, moving_s: float) -> None:
        self._placer.done(task.name)
        if moved and moving_s > 0:
            self._link[node] += NEWEST * (moved / moving_s - self._link[node])
            self._placer.set_link(node, self._link[node], 1e-3)

    def steal(self, node: int) -> str | None:
        taken = self._placer.take_over(node)
        if taken is None:
            return None
        self._tell(taken[1])
        return taken[0]

    def _tell(self, placed: barograph.TaskPlacement) -> None:
        if placed.is_overridden:
            self.overridden[" ".join(placed.reason.split()[2:4])] += 1


@dataclass
class Order:
    """A task, as a worker gets it: the keys and nodes of its inputs, and the node of its output."""

    name: str
    function: Function
    inputs: list[tuple[Key, int]]
    output: Key
    target: int


@dataclass
class Done:
    """What a worker says of a task."""

    name: str
    nbytes: int = 0
    moved: int = 0
    """Bytes that were read from other nodes, in `moving_s` seconds."""
    moving_s: float = 0.0
    failure: str = ""


def work(cluster: Cluster, node: int, parent: Connection) -> None:
    """A worker: does what it is told until there is no more."""
    stores = [cluster.client(node, of) for of in range(cluster.nodes)]
    while order := parent.recv():
        try:
            parent.send(do(order, node, stores))
        except Exception as error:
            # What a task raises is told.
            parent.send(Done(order.name, failure=repr(error)))


def do(order: Order, node: int, stores: Sequence[barograph.StagingClient]) -> Done:
    """Runs a task: its inputs are read in shared memory if they are on this node."""
    done = Done(order.name)
    blocks, views = [], []
    for key, of in order.inputs:
        began = time.monotonic()
        block = stores[of].map(key)
        if of != node:
            done.moved += len(block)
            done.moving_s += time.monotonic() - began
        blocks.append(block)
        views.append(block.view)
    content = order.function(views)
    stores[order.target].put(order.output, content, wait=60.0)
    if not all(block.is_valid for block in blocks):
        raise RuntimeError("an input has gone while it was read")
    done.nbytes = len(content)
    return done


class Worker:
    """A worker as the runner sees it."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self.node = node
        self.pipe, child = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self.process: BaseProcess = context.Process(target=work, args=(cluster, node, child), daemon=True)
        self.process.start()
        child.close()


class Dataflow:
    """A runner of tasks. To be used in a `with`."""

    def __init__(self, cluster: Cluster, policy: Policy, workers: int = 2, dataset: str = "out") -> None:
        self._cluster, self._policy, self._dataset, self._per_node = cluster, policy, dataset, workers
        self._workers = [Worker(cluster, node) for node in range(cluster.nodes) for _ in range(workers)]
        self._tasks: dict[str, Task] = {}
        self._ready: deque[Task] = deque()
        # What waits at each node, and (None) what waits for any.
        self._queues: dict[int | None, deque[Task]] = {node: deque() for node in (None, *range(cluster.nodes))}

    def __enter__(self) -> Dataflow:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.pipe.send(None)
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()

    def task(self, kind: str, function: Function, inputs: Sequence[File]) -> File:
        """Adds a task, and gives the file that it will write."""
        number = len(self._tasks)
        output = File((self._dataset, number))
        task = Task(f"{kind}-{number}", kind, function, list(inputs), output)
        for file in inputs:
            if file.node is None:
                file.readers.append(task)
                task.missing += 1
        self._tasks[task.name] = task
        if not task.missing:
            self._ready.append(task)
        return output

    def run(self) -> Report:
        """Runs all tasks. Raises RuntimeError if one fails."""
        self._policy.start(self._cluster, self._per_node)
        passed, report = self._cluster.links.passed(), Report(0.0)
        idle, left, began = deque(self._workers), len(self._tasks), time.monotonic()
        running: dict[Connection, tuple[Worker, Task, int]] = {}
        while left:
            self._place()
            without: set[int] = set()
            for _ in range(len(idle)):
                worker = idle.popleft()
                task = None if worker.node in without else self._next(worker.node)
                if task is None:
                    without.add(worker.node)
                    idle.append(worker)
                else:
                    running[worker.pipe] = (worker, task, self._start(worker, task))
            for pipe in connection.wait(list(running)):
                assert isinstance(pipe, Connection)
                worker, task, target = running.pop(pipe)
                self._finish(task, worker.node, target, pipe.recv(), report)
                idle.append(worker)
                left -= 1
        report.makespan_s = time.monotonic() - began
        report.bytes_on_links = self._cluster.links.passed() - passed
        report.overridden = self._policy.overridden
        return report

    def _place(self) -> None:
        while self._ready:
            task = self._ready.popleft()
            self._queues[self._policy.place(task)].append(task)

    def _next(self, node: int) -> Task | None:
        """The next task for an idle worker of a node."""
        for queue in (self._queues[node], self._queues[None]):
            if queue:
                return queue.popleft()
        name = self._policy.steal(node)
        if name is None:
            return None
        task = self._tasks[name]
        next(queue for queue in self._queues.values() if task in queue).remove(task)
        return task

    def _start(self, worker: Worker, task: Task) -> int:
        target = self._policy.output(task.output.key[1], worker.node, self._cluster.nodes)
        inputs = [(file.key, file.node) for file in task.inputs if file.node is not None]
        worker.pipe.send(Order(task.name, task.function, inputs, task.output.key, target))
        return target

    def _finish(self, task: Task, node: int, target: int, done: Done, report: Report) -> None:
        if done.failure:
            raise RuntimeError(f"{task.name} on node {node}: {done.failure}")
        held = task.holders()
        report.tasks += 1
        report.local += held.keys() <= {node}
        report.bytes_read += sum(held.values())
        report.bytes_read_local += held.get(node, 0)
        report.bytes_moved += done.moved + (done.nbytes if target != node else 0)
        self._policy.done(task, node, done.moved, done.moving_s)
        task.output.node, task.output.nbytes = target, done.nbytes
        for reader in task.output.readers:
            reader.missing -= 1
            if not reader.missing:
                self._ready.append(reader)
