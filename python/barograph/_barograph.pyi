"""Types of the compiled module. See the package's functions for their meaning."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, SupportsFloat, SupportsIndex, final

from typing_extensions import Buffer

from barograph._tasks import TaskNode

__version__: str

class Error(Exception):
    """Any error of barograph."""

class NoAgentError(Error):
    """No agent has served the run directory: start one with `baro up`."""

class UnknownStreamError(Error):
    """No stream matches, or the stream has ended. `near` lists streams that may have been meant."""

    near: list[str]

class AmbiguousStreamError(Error):
    """Several streams match where one is required. `matches` lists the first of them."""

    matches: list[str]

class UnknownNodeError(Error):
    """No node of this name is mirrored here. `mirrored` lists the nodes that are, `near` those that
    may have been meant.
    """

    near: list[str]
    mirrored: list[str]

class QueryError(Error):
    """A query was not answered; `kind` is the reason."""

    kind: Literal["statement", "refused", "limit", "cancelled", "busy", "internal"]

class DamagedArrayError(Error):
    """Bytes are no packed array, or damaged, cut short, or of a later version of the format."""

class OutOfReachError(Error):
    """No reading of the packed array is within the error bound. `best` is the same measure of the
    best one.
    """

    best: float

def pack_array(
    array: object,
    shape: list[int],
    file: str | None,
    basis: str,
    finest: float,
    fill: float | None,
    lossy: bool,
    threads: int,
    name: str,
    time_step: int | None,
    append: bool,
    points: tuple[object, int] | None,
) -> bytes | None:
    """Packs a contiguous buffer of float32 or float64. `points` is a buffer of float64, and the
    number of coordinates of a point.
    """

def place_packed(file: str, tiers: list[tuple[str, int]]) -> list[tuple[str, int]]: ...
def join_packed(file: str) -> int: ...
def place_task(
    key: bytes,
    nodes: list[TaskNode],
    holders: list[tuple[int, int]],
    nbytes: int,
    node: int | None,
    rank: int | None,
    rank_nodes: list[int],
    hard: bool,
    cost_s: float,
    wait_s_max: float,
    choices: int,
    patience: float,
    staleness_s: float,
) -> tuple[int | None, float, float, bool, str]:
    """Node, wait and move in seconds, whether the wish was overridden, and the reason."""

def take_over(waiting: list[tuple[int, float, float]]) -> int | None:
    """The task that an idle node takes over, of tasks with their waits and moves in seconds."""

def check_bound(bound: str) -> str:
    """Returns the bound as it is read. Raises ValueError for one that no error can have."""

@final
class PackedArray:
    """A packed array; `barograph.progressive` is built on it."""

    @staticmethod
    def of_file(path: str, name: str | None, step: int | None) -> PackedArray: ...
    @staticmethod
    def of_bytes(bytes: bytes, name: str | None, step: int | None) -> PackedArray: ...
    @property
    def name(self) -> str: ...
    @property
    def time_step(self) -> int | None: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def dtype(self) -> Literal["float32", "float64"]: ...
    @property
    def basis(self) -> Literal["linear", "cubic", "wavelet"]: ...
    @property
    def is_exact(self) -> bool: ...
    @property
    def range(self) -> tuple[float, float, int]:
        """Smallest and largest value, and the number of values that are not missing."""
    @property
    def buckets(self) -> list[tuple[int, float, float, float, float, float]]:
        """Bytes, RMSE, largest difference, NRMSE, PSNR and PSNR by the maximum of each."""
    @property
    def on_mesh(self) -> bool: ...
    def points(self, threads: int) -> tuple[bytes, int] | None:
        """The coordinates as bytes of float64, and their number for a point."""
    @property
    def start(self) -> int: ...
    @property
    def header_bytes(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def parts(self) -> list[str]:
        """Paths of the parts over tiers; none of a file in one piece."""
    def buckets_for(self, bound: str) -> int: ...
    def plan(self, region: list[tuple[int, int]] | None, level: int) -> tuple[list[int], float]:
        """The lengths of the axes of a reading, and the share of the blocks that it needs."""
    def read_into(
        self,
        out: object,
        buckets: int,
        region: list[tuple[int, int]] | None,
        level: int,
        threads: int,
    ) -> int:
        """Reads into a contiguous buffer, and returns the number of bytes that were read."""

@final
class AdvisedBlock:
    """Where a block goes."""

    @property
    def key(self) -> str:
        """Its key, as it was asked."""
    @property
    def path(self) -> str | None:
        """The directory to which it goes, or its first piece; None if no target has room."""
    @property
    def pieces(self) -> list[tuple[str, int]]:
        """Directory and bytes of each piece, in the order of the block's bytes."""
    @property
    def expected_s(self) -> float | None:
        """Expected seconds until it is there; None if too little is known."""

@final
class Advice:
    """The answer of :meth:`Adviser.advise`."""

    @property
    def decision(self) -> int | None:
        """The number of the agent's decision, for :meth:`Adviser.report`; None without an agent."""
    @property
    def reason(self) -> str:
        """One sentence about it."""
    @property
    def blocks(self) -> list[AdvisedBlock]:
        """The blocks, in the order of the keys."""

@final
class Adviser:
    """Asks the agent of this node where blocks should go, by the state of its storage now.

    There is always an answer, after two seconds at most: without an agent it is hashing by the
    weights of the targets. It may be shared by threads."""

    def __new__(cls, run_dir: str | PathLike[str] | None = None) -> Adviser: ...
    def advise(
        self,
        targets: Sequence[str | PathLike[str] | tuple[str | PathLike[str], float]],
        nbytes: int,
        keys: Sequence[str] = (),
        *,
        read: bool = False,
        pieces_min: int | None = None,
        label: str = "",
        dry_run: bool = False,
    ) -> Advice:
        """Advises where blocks of ``nbytes`` bytes go. ``targets`` are absolute paths of directories
        (32 at most), each with a weight if wanted; ``keys`` (256 at most) name the blocks, and
        without keys it is one block, which ``label`` names. ``read``: the way back is to be fast.
        ``pieces_min``: a block that fits nowhere whole may be divided, into pieces of so many bytes
        at least. ``dry_run``: hashing answers, and the agent records what it would have answered.

        Raises ValueError if the targets make no sense even without an agent."""
    def report(self, decision: int, nbytes: int, seconds: float) -> bool:
        """Tells the agent how long the blocks of a decision took, for its record; returns whether it
        has heard it."""

@final
class Questions:
    """The questions of one reader to the agent; `barograph.progressive` is built on it."""

    def __new__(
        cls,
        array: PackedArray,
        path: str,
        label: str,
        priority: int,
        dry_run: bool,
        run_dir: str | None,
    ) -> Questions: ...
    def ask(
        self, bound: str | None, alone: int, least: int, interval: float | None, share: float
    ) -> tuple[
        int,
        int,
        str,
        tuple[
            int,
            int,
            float | None,
            float | None,
            float | None,
            str | None,
            float | None,
            str | None,
            float | None,
        ]
        | None,
    ]:
        """Buckets, bytes of the probe, the reason, and the answer in the order of the fields of
        `Decision`."""
    def fetch(self, buckets: int, probe_bytes: int) -> tuple[int, float] | None:
        """Number of bytes that were read from the device in question, and the seconds."""
    def report(self, id: int, fetched: tuple[int, float] | None, nrmse: float | None) -> bool: ...

@final
class Sample:
    """A sample of one stream."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def unit(self) -> str: ...
    @property
    def ts(self) -> int | None:
        """Time of the value, ns since the epoch; None if the stream has no sample yet."""
    @property
    def value(self) -> int | float | bool | str | None: ...
    @property
    def quality(self) -> Literal["measured", "derived", "predicted", "reconciled", "ended"] | None: ...
    @property
    def error(self) -> float | None:
        """Half width of the interval that holds the true value; 0.0 for a measurement."""
    @property
    def age_ns(self) -> int | None:
        """Time since the last look at the resource when this was read, in ns."""
    @property
    def looked_ts(self) -> int | None:
        """Time of the last look at the resource, ns since the epoch."""
    @property
    def stale(self) -> bool:
        """Whether the value is out of date: the next look is overdue, the agent is dead, or nothing
        is heard of the mirrored node.
        """
    @property
    def lost(self) -> int:
        """Number of earlier samples of this stream that a watch was too slow for."""
    def to_dict(self) -> dict[str, object]: ...

@final
class Stream:
    """A handle on one stream. May be used from any thread."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def unit(self) -> str: ...
    @property
    def type(self) -> Literal["int64", "float64", "bool", "string"]: ...
    @property
    def restarted(self) -> int:
        """Number of times the stream has begun anew (agent restarted, device came back)."""
    def latest(self, *, allow_predicted: bool = False) -> Sample:
        """Returns the newest sample with its age, or the value predicted for now if it has a
        forecast.

        Raises UnknownStreamError if the stream has ended.
        """
    def value(self) -> float | None:
        """Returns the newest value of a numeric stream, the fast way; see `latest` for its age.

        None for text and before the first sample. Raises UnknownStreamError if the stream has
        ended.
        """
    def wait(self, timeout: float | None = None) -> bool:
        """Waits for a sample that neither `latest` nor an earlier wait of this handle has returned.

        False if `timeout` seconds have passed first. Goes on over agent restarts.
        """

@final
class StreamInfo:
    """Descriptor and state of a stream."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def type(self) -> Literal["int64", "float64", "bool", "string"]: ...
    @property
    def unit(self) -> str: ...
    @property
    def kind(self) -> Literal["gauge", "counter", "state"]: ...
    @property
    def help(self) -> str: ...
    @property
    def id(self) -> str:
        """Id of the series, the same on every node and after every restart."""
    @property
    def depth(self) -> int:
        """Number of samples that its ring holds."""
    @property
    def samples(self) -> int:
        """Number of samples so far."""
    @property
    def interval_ns(self) -> int:
        """The interval between two looks at its resource, in ns; 0 if it is not known."""

@final
class Status:
    """State of a node's agent and segment."""

    @property
    def node(self) -> str: ...
    @property
    def incarnation(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def started_ts(self) -> int: ...
    @property
    def heartbeat_age_ns(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def streams(self) -> int: ...
    @property
    def streams_max(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def samples(self) -> int: ...

@final
class Watch(Iterator[Sample]):
    """Iterates over new samples of the matching streams, as they come."""

    def __iter__(self) -> Watch: ...
    def __next__(self) -> Sample: ...

@final
class FileEvent:
    """Something that happened to a file."""

    @property
    def ts(self) -> int:
        """Time of the event, ns since the epoch."""
    @property
    def kind(self) -> str:
        """Kind of the event, such as ``create``, ``close_write`` or ``rename``."""
    @property
    def path(self) -> str:
        """Path at the time of the event, as ``os.fsdecode`` has it: bytes that are no UTF-8 are
        surrogate escapes.
        """
    @property
    def path_bytes(self) -> bytes: ...
    @property
    def old_path(self) -> str | None:
        """Path before a rename."""
    @property
    def old_path_bytes(self) -> bytes | None: ...
    @property
    def size(self) -> int | None:
        """Size of the file after the event, if the source knows it."""
    @property
    def uid(self) -> int | None: ...
    @property
    def gid(self) -> int | None: ...
    @property
    def job(self) -> str | None: ...
    @property
    def directory(self) -> bool: ...
    @property
    def complete(self) -> bool:
        """Whether the path is whole, and does not lack its beginning."""
    @property
    def idx(self) -> int:
        """Number of the event in its source."""
    @property
    def quality(self) -> Literal["measured", "reconciled"]: ...
    @property
    def source(self) -> str:
        """Name of the watch."""
    def to_dict(self) -> dict[str, Any]: ...

@final
class EventGap:
    """Events that cannot be given: they are in no memory and in no history any more."""

    @property
    def source(self) -> str: ...
    @property
    def after(self) -> int:
        """Number of the last event before the missing ones; 0 if there is none."""
    @property
    def before(self) -> int | None:
        """Number of the first event after them, if there is one."""
    @property
    def missing(self) -> int | None:
        """How many events are missing, if it is known."""
    @property
    def reason(self) -> str: ...

@final
class Events(Iterator[FileEvent | EventGap]):
    """Iterates over file events, as they come, and gaps between them."""

    def __iter__(self) -> Events: ...
    def __next__(self) -> FileEvent | EventGap: ...
    @property
    def position(self) -> str:
        """The place after what was given last, for ``after``: it may be kept and used by any process."""

@final
class ControlPublisher:
    """The control events that this program publishes; see :func:`barograph.control_event`."""

    def __init__(self, application: str, run_dir: str | None, readers: str) -> None: ...
    def publish(
        self,
        kind: str,
        subject: str,
        value: float | None,
        confidence: float,
        properties: dict[str, str],
    ) -> bool: ...
    @property
    def error(self) -> str | None:
        """The reason why nothing is published."""

@final
class ControlEvent:
    """A control event of a program or an agent."""

    @property
    def kind(self) -> str:
        """What has happened, such as ``io.starved``."""
    @property
    def subject(self) -> str:
        """What it happened to; may be empty."""
    @property
    def value(self) -> float | None: ...
    @property
    def confidence(self) -> float:
        """How sure its source is, 0 to 1."""
    @property
    def ts(self) -> int:
        """Time, ns since the epoch, by the clock of its node."""
    @property
    def age_ns(self) -> int:
        """Time since then; of another node, with the known difference of both clocks."""
    @property
    def sequence(self) -> int:
        """Number among the events of its thread, from 1 on."""
    @property
    def missed(self) -> int:
        """Events of its thread, of any kind, that were lost before it."""
    @property
    def pid(self) -> int: ...
    @property
    def thread(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def is_own(self) -> bool:
        """Whether this process has published it."""
    @property
    def labels(self) -> dict[str, str]:
        """Labels of its source, such as ``application``, ``job``, ``rank`` and ``user``."""
    @property
    def properties(self) -> dict[str, str]: ...

@final
class ControlEvents(Iterator[ControlEvent]):
    """Control events as they come: an iterator, and three ways to consume them."""

    def __iter__(self) -> ControlEvents: ...
    def __next__(self) -> ControlEvent: ...
    def check(self) -> ControlEvent | None:
        """Returns the next event that is here already; never waits."""
    def wait(self, timeout: float | None = None) -> ControlEvent | None:
        """Returns the next event; None if none came within ``timeout`` seconds."""
    def on(self, handler: Callable[[ControlEvent], object], /) -> None:
        """Sets the function that :meth:`dispatch` calls for each event."""
    def dispatch(self, timeout: float | None = None) -> int:
        """Waits for an event, and calls the function for it and for those that are here by then, in
        this thread. Returns for how many: 1,024 at most, 0 if none came within ``timeout`` seconds.
        """
    @property
    def missed(self) -> int:
        """Number of events that were lost so far."""

@final
class ValueHandle:
    """A value of a publication. May be put from any thread, and after a fork."""

    def put(self, value: SupportsFloat | SupportsIndex | str | bytes | object, /) -> None:
        """Puts a value with the time of the call; a text value accepts bytes too.

        Raises TypeError if it has another type, ValueError if it does not fit into 64 bits. Texts
        longer than 64 KiB or a quarter of the ring are dropped and counted.
        """
    def put_many(self, values: Iterable[SupportsFloat | SupportsIndex | str | bytes], /) -> None:
        """Puts each element, each with a time of its own.

        Arrays of one dimension (numpy, array.array, memoryview) are read without an object for each
        element: float64, float32 and int64 for floats, int64 and int32 for ints. Anything else is
        iterated over; the elements before one of another type are put.
        """
    @property
    def name(self) -> str:
        """Name of the value in the publication."""
    @property
    def unit(self) -> str: ...
    @property
    def type(self) -> Literal["int64", "float64", "bool", "string"]: ...
    @property
    def kind(self) -> Literal["gauge", "counter", "state"]: ...

@final
class Call:
    """A call of a handler, as the handler gets it."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> int:
        """Number of the call among the calls of this user."""
    @property
    def ts(self) -> int:
        """Time when it was fired, ns since the epoch."""
    @property
    def payload(self) -> Any:
        """The payload: None, int, float, bool, str, bytes, decoded JSON, or a list of floats."""

@final
class Knob:
    """A value of a publication that others may set. It keeps its last value when that is closed."""

    @property
    def value(self) -> float | int | bool:
        """The last setting that a poll or frame has applied; of the type it was declared with."""
    @property
    def version(self) -> int:
        """Number of the last setting; 0 before the first."""
    @property
    def name(self) -> str:
        """Name of the knob in the publication."""
    @property
    def unit(self) -> str: ...

@final
class IoVolume:
    """A volume on which the program does I/O: see :func:`barograph.io_volume`."""

    def __new__(
        cls, volume: str, application: str, run_dir: str | PathLike[str] | None
    ) -> Self: ...
    @property
    def error(self) -> str | None:
        """The reason why nothing is published."""
    def phase(
        self, bytes: int | None = None, *, priority: int = 5, wait: float | None = None
    ) -> IoPhase:
        """A phase of I/O, as a block, which begins when the phase may do I/O.

        `bytes` is what it will read and write, if it knows; `priority` is 1 to 10, 10 for the most
        important; `wait` is the longest wait in seconds, 60 unless given.
        """

@final
class IoPhase:
    """A phase of I/O, which begins and ends with its block."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...
    def step(self, bytes_done: int) -> Literal["off", "granted", "late", "no_agent"]:
        """Says how much was done so far, and waits if the grant was taken away for others.

        Phases that do this are served in turns where the policy has turns; others keep their grant
        to the end.
        """
    def done(self, bytes_done: int) -> None:
        """Notes how much was done, for the end of the phase.

        A block that ends without an error and has not said it has done the bytes that it declared.
        """
    @property
    def grant(self) -> Literal["off", "granted", "late", "no_agent"] | None:
        """Why the phase may go on; None before it begins.

        ``off``: the I/O of the volume is not scheduled. ``late``: it has waited for as long as it
        wanted to. ``no_agent``: it has heard nothing of an agent.
        """
    @property
    def share(self) -> float | None:
        """The share of the volume that it has, 0 to 1; None without a grant."""

@final
class ServerMap:
    """A map of servers at which the program does operations: see :func:`barograph.server_map`."""

    def __new__(
        cls,
        name: str,
        servers: list[int],
        application: str,
        run_dir: str | PathLike[str] | None,
    ) -> Self: ...
    @property
    def error(self) -> str | None:
        """The reason why nothing is published."""
    def operation(self, *, wait: float | None = None) -> MapOperation:
        """An operation at the servers, as a block, which begins when the operation may be done.

        `wait` is the longest wait in seconds, 60 unless given.
        """

@final
class MapOperation:
    """An operation at the servers of a map, which begins and ends with its block."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...
    def refused(self, fence: int) -> None:
        """Notes that a server has refused the operation with a fence, for the end of the block.

        Begin another one then: its epoch is not before the fence.
        """
    @property
    def is_refused(self) -> bool:
        """Whether a server has refused it."""
    @property
    def epoch(self) -> int | None:
        """The epoch, which goes to the servers with each request; None outside of the block."""
    @property
    def servers(self) -> list[int] | None:
        """The numbers of the servers, in order; None outside of the block."""
    @property
    def start(self) -> Literal["off", "current", "late"] | None:
        """Why it has begun; None outside of the block.

        ``off``: nobody keeps the map. ``late``: it has waited for as long as it wanted to, and
        servers may refuse it.
        """

@final
class MapServer:
    """A server of a map: see :func:`barograph.map_server`."""

    def __new__(
        cls, name: str, number: int, application: str, run_dir: str | PathLike[str] | None
    ) -> Self: ...
    @property
    def error(self) -> str | None:
        """The reason why nothing is published."""
    def serve(self, epoch: int) -> MapRequest:
        """A request of an operation of an epoch, as a block. Look at its `fence` first."""

@final
class MapRequest:
    """A request that a server serves, or refuses, as a block."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...
    def done(self, bytes: int) -> None:
        """Notes how many bytes it has read or written, for the end of the block."""
    @property
    def fence(self) -> int | None:
        """The first epoch that is served, if the request is not. None if it is served."""

class Publication:
    """A named set of values, and the frames in which they are put."""

    def __new__(
        cls,
        name: str,
        values: list[tuple[str, str, str, str, str, int]],
        labels: list[tuple[str, str]],
        readers: str,
        application: str,
        is_named: bool,
        overflow: str,
        run_dir: str | PathLike[str] | None,
    ) -> Self: ...
    def put(self, **values: SupportsFloat | SupportsIndex | str | bytes) -> None:
        """Puts values by name; all are checked before the first is put.

        Readers see them when this thread ends a frame or commits.
        Raises ValueError if there is no such value, TypeError if one has another type.
        """
    def frame(self, n: int | None = None) -> int:
        """Ends a frame: all puts of this thread since its last frame appear at once.

        Returns its number: `n`, or one more than the last of this object, starting at 0.
        """
    def step(self, n: int | None = None) -> Step:
        """A block that is the frame `n`: `with p.step(n): ...`."""
    def on(self, name: str, callback: Callable[[Call], object], *, help: str = "") -> None:
        """Declares a handler of a name, like `checkpoint`: calls of it run a callable while this
        is open.

        It runs in `poll()`, or in the thread of `listen()`; one at a time in a process, in the
        order of the calls. An exception goes to `sys.unraisablehook`, and is reported to the
        caller. A later callable of the same name replaces this one, in this publication. A call
        matches it by the labels of the process and of the publication, and readers of the
        publication may read about its calls.
        """
    def poll(self) -> int:
        """Runs the handlers of new calls, and applies new settings of knobs. Returns the number of
        both.

        Polls find an agent that starts or restarts within about a second.
        """
    def listen(self) -> None:
        """Starts a thread, one per process, that sleeps until a handler is called and runs its
        callable.

        Knobs are set by polls and frames only. Forked children have no such thread until they call
        this.
        """
    def knob(
        self,
        name: str,
        initial: float | int | bool,
        *,
        min: float | None = None,
        max: float | None = None,
        unit: str = "",
        help: str = "",
    ) -> Knob:
        """Declares a value that others may set within bounds, or finds it again.

        Its type is that of `initial`. It is also the stream `app.<publication>.<name>`. Raises
        ValueError if it is refused or the name is taken.
        """
    @property
    def handler_failure(self) -> str | None:
        """Message of the callable that failed last."""
    def commit(self) -> None:
        """Publishes the puts of this thread without ending a frame."""
    def close(self) -> None:
        """Publishes the puts of this thread, and closes this; later puts do nothing.

        With the last publication the process closes its file: threads that put should have ended a
        frame or committed.
        """
    @property
    def name(self) -> str: ...
    @property
    def values(self) -> dict[str, ValueHandle]:
        """Values of the publication by name, as a new dict."""
    @property
    def enabled(self) -> bool:
        """Whether puts are published: to an agent, or to a file in which one will look."""
    @property
    def error(self) -> str | None:
        """The reason why nothing, or not all, is published; None if everything is."""
    @property
    def lost(self) -> int:
        """Number of values of this process that were dropped: a ring was full, a thread had none, a
        text was too long. Values that were overwritten before the agent read them are in the table
        `loss`.
        """
    @property
    def refused(self) -> int:
        """Number of declarations of this process that the agent refuses at present, because there
        is no room for more of them or because they cannot be what they are declared as: none of
        their puts is kept. 0 before an agent has looked, and when this is closed.
        """
    @property
    def run_dir(self) -> Path | None:
        """The agent's run directory in which this is published."""
    def __getitem__(self, name: str, /) -> ValueHandle: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> Literal[False]: ...

@final
class Step:
    """A frame with a given number, which ends with its block."""

    def __enter__(self) -> Publication: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> Literal[False]: ...

@final
class Rows:
    """The answer of a query, not yet converted to Python objects or Arrow."""

    @property
    def columns(self) -> list[str]: ...
    def tuples(
        self, limit: int | None = None
    ) -> list[tuple[int | float | bool | str | bytes | None, ...]]: ...
    def arrow_ipc(self) -> bytes: ...
    def __len__(self) -> int: ...

@final
class Table:
    """Columns of the past, not yet converted to Python objects or Arrow."""

    @property
    def columns(self) -> list[str]: ...
    def tuples(self, limit: int | None = None) -> list[tuple[int | float | str | None, ...]]: ...
    def arrow_ipc(self) -> bytes: ...
    def __len__(self) -> int: ...

class Archive:
    """Reads rings, log and Parquet files as one."""

    def __new__(
        cls,
        run_dir: str | PathLike[str] | None = None,
        path: str | PathLike[str] | None = None,
    ) -> Archive: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def nodes(self) -> list[str]: ...
    def files(
        self,
        tier: str,
        pattern: str,
        start: int | str | None = None,
        stop: int | str | None = None,
    ) -> list[Path]: ...
    def moment(
        self,
        tier: str,
        pattern: str,
        start: int | str | None = None,
        stop: int | str | None = None,
        samples_max: int | None = None,
    ) -> tuple[list[Path], Table]: ...
    def table(
        self,
        pattern: str,
        start: int | str | None = None,
        stop: int | str | None = None,
        step: int | str | None = None,
        samples_max: int | None = None,
    ) -> Table: ...

class Observer:
    """Reads the streams of one node."""

    def __new__(cls, run_dir: str | PathLike[str] | Observer | None = None) -> Self: ...
    @property
    def run_dir(self) -> Path: ...
    @property
    def node(self) -> str: ...
    def nodes(self) -> list[str]: ...
    def of_node(self, name: str, /) -> Observer: ...
    def latest(self, name: str, /, *, allow_predicted: bool = False, **labels: str) -> Sample: ...
    def latest_all(
        self, pattern: str = "*", /, *, allow_predicted: bool = False, **labels: str
    ) -> list[Sample]: ...
    def expected(
        self, pattern: str = "*", horizon: float = 0.0, /, **labels: str
    ) -> list[Sample]: ...
    def stream(self, name: str, /, **labels: str) -> Stream: ...
    def streams(self, pattern: str = "*", /, **labels: str) -> list[StreamInfo]: ...
    def watch(
        self, pattern: str = "*", /, timeout: float | None = None, **labels: str
    ) -> Watch: ...
    def follow_events(
        self,
        kinds: list[str],
        path: str | None,
        glob: str | None,
        source: str | None,
        since: int | str | None,
        after: str | None,
        timeout: float | None,
    ) -> Events: ...
    def follow_control_events(
        self,
        kind: str | None,
        subject: str | None,
        sources: dict[str, str],
        properties: dict[str, str],
        confidence_min: float,
        age_max: float | None,
        past: float,
        exclude_own: bool,
        timeout: float | None,
    ) -> ControlEvents: ...
    def near(self, name: str) -> list[str]: ...
    def status(self) -> Status: ...
    def query(
        self, sql: str, /, *, rows_max: int | None = None, seconds_max: float | None = None
    ) -> Rows: ...
    def past(
        self,
        pattern: str,
        start: int | str | None = None,
        stop: int | str | None = None,
        step: int | str | None = None,
        samples_max: int | None = None,
        labels: dict[str, str] | None = None,
    ) -> Table: ...

class StagingError(Error):
    """An operation of staging has failed.

    `code` is its kind: ``not_found``, ``not_known`` (it may have been lost), ``old_version``,
    ``corrupt``, ``unconfirmed`` (what there is may be old), ``fenced`` (the epoch of the servers is
    over), ``full``, ``busy``, ``denied``, ``bad_request``, ``disk``, ``stopping``, ``unreachable``,
    ``too_few`` (servers have acknowledged it) or ``too_long``. `number` belongs to the kind: the
    stored version of ``old_version`` and ``unconfirmed``, the first epoch that is served of
    ``fenced``, the bytes of the block of ``too_long``; 0 for others.
    """

    code: str
    number: int

class BlockNotFoundError(StagingError):
    """There is no such block."""

# The dataset, and in it a number (0 to 2**64 - 1) or a name (4,096 bytes at most).
_BlockKey = tuple[str, int | str | bytes]

@final
class StagingClient:
    """A client of servers that keep blocks of bytes in memory and in fast tiers.

    ::

        stage = barograph.StagingClient(["/run/user/1000/stage.sock"])
        stage.put(("run7/pressure", 12), field)
        field = numpy.frombuffer(stage.get(("run7/pressure", 12)))

    A block has a key, a version, a checksum and 0 bytes to 1 GiB. Only the user who has put it sees
    it. A key is a tuple of a dataset (1 to 255 bytes, no control characters) and a number or name.

    `servers` are absolute paths of unix sockets and addresses with ports (``"10.0.0.3:7400"``); a
    server has the number of its place, or `servers` is a dict by number. Blocks are placed by these
    numbers, so all clients have to give the same. `replicas` is how many servers have each block;
    `epoch` that of the servers, if somebody keeps a map of them. `token` (bytes) and `user` (the
    number of a user) are for TCP. `timeout` is the longest time of an operation in seconds, besides
    1 s for each MiB; servers that are gone are noticed at once, and Ctrl-C at the end of a call. With
    `check`, checksums are also checked of blocks that are read from the memory of this node. With
    `accept_unconfirmed`, blocks are read that may be older than ones that were acknowledged, where
    no replica knows better.

    Nothing is connected before the first operation. It may be used from any thread, and after
    ``os.fork()``; the interpreter's lock is released meanwhile, so nobody may write to a buffer
    that is being put. Raises ValueError for servers or keys that cannot be, else StagingError.
    """

    def __new__(
        cls,
        servers: Iterable[str | PathLike[str]] | dict[int, str | PathLike[str]],
        *,
        replicas: int = 1,
        epoch: int = 0,
        token: bytes | None = None,
        user: int | None = None,
        timeout: float = 10.0,
        check: bool = False,
        accept_unconfirmed: bool = False,
    ) -> Self: ...
    def set_servers(
        self, servers: Iterable[str | PathLike[str]] | dict[int, str | PathLike[str]], epoch: int
    ) -> None:
        """Sets the servers of a later epoch; those of an earlier one change nothing.

        An operation that is refused for its epoch waits for this, in another thread.
        """
    def put(
        self,
        key: _BlockKey,
        data: Buffer,
        *,
        version: int | None = None,
        acks: int | None = None,
        durable: bool = False,
        wait: float = 1.0,
        refetch: float = 0.0,
    ) -> int:
        """Puts a block on its replicas, and returns its version when they have answered.

        `data` is any contiguous buffer (bytes, a numpy array), which is not copied. `version` may
        not be older than the stored one; it is the time in nanoseconds unless given. `acks` is how
        many servers have to acknowledge it, all replicas unless given; with `durable` it is on a
        durable tier before that. `wait` is the longest wait for room, in seconds. `refetch` is the
        time in seconds to have the block again if it may be dropped; 0 if it must stay.
        """
    def get(self, key: _BlockKey) -> bytes:
        """Reads a block. Raises BlockNotFoundError if there is none."""
    def get_into(self, key: _BlockKey, buffer: Buffer) -> int:
        """Reads a block into a writable, contiguous buffer, and returns its bytes.

        This saves the copy of `get`. Raises StagingError with the code ``too_long``, and the bytes
        of the block as `number`, if there is no room. After an error the buffer may have been
        written to.
        """
    def map(self, key: _BlockKey) -> MappedBlock:
        """A block in the memory of a server on this node, to be read there without a copy.

        Where no server shares it with this node, it is a copy. Raises as `get`.
        """
    def stat(self, key: _BlockKey) -> StagedBlock:
        """What is known of a block. Raises as `get`."""
    def locate(self, keys: Sequence[_BlockKey]) -> LocatedBlocks:
        """Where blocks are: servers, tiers, and how long a read from here is expected to take.

        One question to each server is for many blocks. Their replicas are asked, and where none has
        the block for certain, all other servers. Raises StagingError if no server can be asked.
        """
    def remove(self, key: _BlockKey, *, version_max: int | None = None) -> bool:
        """Removes a block, and returns whether there was one.

        With `version_max` only if its version is not above it, and StagingError otherwise.
        """
    def list(self, dataset: str = "", name: str | bytes | None = None) -> BlockList:
        """The blocks of this user in datasets whose names begin with `dataset`, sorted by key.

        With `name`, only blocks with names that begin with it. Blocks that come or go while the
        list is read may be missing.
        """
    def counts(self) -> dict[str, int]:
        """What has happened in this process, by name: ``connections``, ``retries``, ``fenced``,
        ``gets_mapped`` (from shared memory), ``gets_socket``, ``mapped_stale``, ``corrupt``,
        ``repaired``, ``repairs_failed`` and ``found_elsewhere``.
        """

@final
class BlockList:
    """Blocks, which are fetched while they are read."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> StagedBlock: ...

@final
class StagedBlock:
    """What is known of a block."""

    @property
    def key(self) -> tuple[str, int | bytes]:
        """The dataset, and the number or name."""
    @property
    def nbytes(self) -> int:
        """Its length in bytes."""
    @property
    def version(self) -> int:
        """Its version. Versions of a key only grow."""
    @property
    def epoch(self) -> int:
        """The epoch of the servers when it was put."""
    @property
    def checksum(self) -> int:
        """The CRC-32 (IEEE) of its bytes, as ``zlib.crc32``."""
    @property
    def is_confirmed(self) -> bool:
        """False if it may be older than one that was acknowledged."""
    @property
    def is_dirty(self) -> bool:
        """Whether it is on no durable tier yet."""
    @property
    def tier(self) -> int:
        """The fastest tier of the server that has it: 0 for memory, n for its nth directory."""

@final
class LocatedBlocks:
    """Where many blocks are."""

    @property
    def epoch(self) -> int:
        """The epoch of the servers that were asked."""
    @property
    def unreachable(self) -> list[int]:
        """The servers that could not be asked: what is there alone is missing."""
    @property
    def blocks(self) -> list[LocatedBlock]:
        """The blocks, in the order of the question."""

@final
class LocatedBlock:
    """Where a block is."""

    @property
    def key(self) -> tuple[str, int | bytes]:
        """The dataset, and the number or name."""
    @property
    def replicas(self) -> list[BlockReplica]:
        """Its copies: confirmed ones first, of these the newest, of these the one that is read
        soonest. Empty for a block that is nowhere.
        """

@final
class BlockReplica:
    """A copy of a block on a server."""

    @property
    def server(self) -> int:
        """The number of the server."""
    @property
    def is_on_node(self) -> bool:
        """Whether the server is on the node of this client."""
    @property
    def tier(self) -> str:
        """``memory``, or a directory: its path for the server's own user, else its number."""
    @property
    def nbytes(self) -> int:
        """The length of the block in bytes."""
    @property
    def version(self) -> int:
        """The version of the copy."""
    @property
    def is_confirmed(self) -> bool:
        """False if it may be older than one that was acknowledged."""
    @property
    def is_dirty(self) -> bool:
        """Whether it is on no durable tier yet."""
    @property
    def read_s(self) -> float | None:
        """Expected seconds to read it whole from here, by what such reads have cost this client, or
        else by what the server has seen; None before the first read.
        """

@final
class MappedBlock:
    """A block in the memory of a server on this node, as a read-only buffer.

    ::

        with stage.map(("run7/pressure", 12)) as block:
            highest = numpy.frombuffer(block).max()
            if not block.is_valid:
                ...  # read it again

    The server may give the memory to another block at any time: what was read counts only if
    `is_valid` says so afterwards. Arrays and views of the block may be kept after its end.
    """

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def release(self) -> None:
        """Gives no more views; those that there are stay readable."""
    @property
    def view(self) -> memoryview:
        """The bytes, read-only and without a copy. Raises ValueError after the end of the block."""
    @property
    def is_valid(self) -> bool:
        """Whether all that was read until now is the block.

        False for good when it was evicted, removed or replaced, or its epoch is over. The memory of
        a server that has ended stays as it was.
        """
    @property
    def is_shared(self) -> bool:
        """Whether the memory is the server's; else it is a copy, which is always valid."""
    @property
    def info(self) -> StagedBlock:
        """What is known of the block."""
