"""Types of the compiled module. See the package's functions for what they mean."""

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, SupportsFloat, SupportsIndex, final

__version__: str

class Error(Exception):
    """Any failure of barograph."""

class NoAgentError(Error):
    """No agent has served the run directory: start one with `baro up`."""

class UnknownStreamError(Error):
    """No stream matches, or the stream has ended. `near` lists those that may have been meant."""

    near: list[str]

class AmbiguousStreamError(Error):
    """One stream was asked for and several match. `matches` lists the first of them."""

    matches: list[str]

class QueryError(Error):
    """A query was not answered."""

    kind: Literal["statement", "refused", "limit", "cancelled", "busy", "internal"]

@final
class Sample:
    """What was known of one stream at one instant."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def unit(self) -> str: ...
    @property
    def ts(self) -> int | None:
        """When it was so, ns since the epoch; None when the stream has no sample yet."""
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
        """The last look at the resource, ns since the epoch."""
    @property
    def stale(self) -> bool:
        """Whether it is too old for the present: the next look is overdue, or the agent dead."""
    @property
    def lost(self) -> int:
        """Samples of the stream before this one that a watch was too slow for."""
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
        """How many times the stream has begun anew (agent restarted, device came back)."""
    def latest(self, *, allow_predicted: bool = False) -> Sample:
        """The newest sample with its age, or where it is forecast what is expected of now.

        UnknownStreamError when the stream has ended.
        """
    def value(self) -> float | None:
        """The newest value of a numeric stream, the fast way: its age is `latest`'s to say.

        None for text and before the first sample. UnknownStreamError when the stream has ended.
        """
    def wait(self, timeout: float | None = None) -> bool:
        """Waits for a sample that neither `latest` nor an earlier wait of this handle has shown.

        False when `timeout` seconds were over first. Goes on over agent restarts.
        """

@final
class StreamInfo:
    """What a stream is and how far it has come."""

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
        """The stream's identity, the same on every node and after every restart."""
    @property
    def depth(self) -> int:
        """Samples that its ring holds."""
    @property
    def samples(self) -> int:
        """Samples so far."""
    @property
    def interval_ns(self) -> int:
        """How often its resource is looked at, in ns; 0 when nobody has said."""

@final
class Status:
    """How a node's observation stands."""

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
    """Iterates over the samples of the streams that match, as they come."""

    def __iter__(self) -> Watch: ...
    def __next__(self) -> Sample: ...

@final
class ValueHandle:
    """A value of a publication. May be put from any thread, and after a fork."""

    def put(self, value: SupportsFloat | SupportsIndex | str | bytes | object, /) -> None:
        """Puts a value with the time of the call; of a value of texts, bytes too.

        TypeError when it is of another type, ValueError when it does not fit into 64 bits. Texts longer
        than 64 KiB or a quarter of the ring are given up and counted.
        """
    def put_many(self, values: Iterable[SupportsFloat | SupportsIndex | str | bytes], /) -> None:
        """Puts each element, each with a time of its own.

        Arrays of one dimension (numpy, array.array, memoryview) are read without an object for each
        element: float64, float32 and int64 for floats, int64 and int32 for ints. All else is iterated
        over, and what came before an element of another type is put.
        """
    @property
    def name(self) -> str:
        """Its name in the publication."""
    @property
    def unit(self) -> str: ...
    @property
    def type(self) -> Literal["int64", "float64", "bool", "string"]: ...
    @property
    def kind(self) -> Literal["gauge", "counter", "state"]: ...

@final
class Call:
    """A call of a handler, as the handler is given it."""

    @property
    def name(self) -> str: ...
    @property
    def id(self) -> int:
        """Its number among the calls of this user."""
    @property
    def ts(self) -> int:
        """When it was fired, ns since the epoch."""
    @property
    def payload(self) -> Any:
        """What it brings: None, int, float, bool, str, bytes, what JSON says, or a list of floats."""

@final
class Knob:
    """A value of a publication that others may set. It keeps its last value when that is closed."""

    @property
    def value(self) -> float | int | bool:
        """What it was set to last, as polls and frames apply it; of the type it was declared with."""
    @property
    def version(self) -> int:
        """The number of the setting; 0 before the first."""
    @property
    def name(self) -> str:
        """Its name in the publication."""
    @property
    def unit(self) -> str: ...

class Publication:
    """A named set of values, and the frames that they are put in."""

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

        ValueError when there is no such value, TypeError when one is of another type.
        """
    def frame(self, n: int | None = None) -> int:
        """Ends a frame: all that this thread has put since its last one appears at once.

        Gives its number: `n`, or one more than the last of this object, from 0 on.
        """
    def step(self, n: int | None = None) -> Step:
        """A block that is the frame `n`: `with p.step(n): ...`."""
    def on(self, name: str, callback: Callable[[Call], object], *, help: str = "") -> None:
        """Declares a handler of a name, like `checkpoint`: calls of it run a callable while this is open.

        Where: in `poll()`, or in the thread of `listen()`; one at a time in a process, in the order in which
        they were fired. An exception goes to `sys.unraisablehook`, and who fired is told of it. A later
        callable of the name takes the place of this one, in this publication. A call means it by the labels of
        the process and of the publication, and who may read the publication may read of its calls.
        """
    def poll(self) -> int:
        """Runs what was fired, and applies what knobs were set to. Gives how many of both.

        An agent that comes, or comes anew, is found within about a second of polls.
        """
    def listen(self) -> None:
        """Starts a thread, one in a process, that sleeps until a handler is called and runs its callable.

        Knobs are set by polls and frames alone. Not in forked children until they listen themselves.
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

        Its type is that of `initial`. It is the stream `app.<publication>.<name>`, too. ValueError when it
        is refused or taken.
        """
    @property
    def handler_failure(self) -> str | None:
        """What the callable that failed last has said."""
    def commit(self) -> None:
        """Publishes what this thread has put, without a frame."""
    def close(self) -> None:
        """Publishes what this thread has put, and ends this; puts that come later do nothing.

        With the last publication the process says goodbye to the agent: threads that put should have
        ended a frame or committed.
        """
    @property
    def name(self) -> str: ...
    @property
    def values(self) -> dict[str, ValueHandle]:
        """Its values by name, as a new dict."""
    @property
    def enabled(self) -> bool:
        """Whether puts go anywhere: to an agent, or to a file in which one will look."""
    @property
    def error(self) -> str | None:
        """Why nothing, or not all, is published; None when all is well."""
    @property
    def lost(self) -> int:
        """Values of this process that were given up: a ring was full, a thread had none, a text was too
        long. What was written over before the agent read it is in the table `loss`.
        """
    @property
    def refused(self) -> int:
        """Declarations of this process that the agent refuses now, for there is no room for more of them, or they cannot
        be what they are declared as: none of their puts is kept. 0 before an agent has looked, and when this is closed.
        """
    @property
    def run_dir(self) -> Path | None:
        """The agent's directory in which this is published."""
    def __getitem__(self, name: str, /) -> ValueHandle: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> Literal[False]: ...

@final
class Step:
    """A frame with a number that was chosen: ends with its block."""

    def __enter__(self) -> Publication: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> Literal[False]: ...

@final
class Rows:
    """An answer, until it is asked for as Python objects or as Arrow."""

    @property
    def columns(self) -> list[str]: ...
    def tuples(
        self, limit: int | None = None
    ) -> list[tuple[int | float | bool | str | bytes | None, ...]]: ...
    def arrow_ipc(self) -> bytes: ...
    def __len__(self) -> int: ...

@final
class Table:
    """Columns of the past, until they are asked for as Python objects or as Arrow."""

    @property
    def columns(self) -> list[str]: ...
    def tuples(self, limit: int | None = None) -> list[tuple[int | float | str | None, ...]]: ...
    def arrow_ipc(self) -> bytes: ...
    def __len__(self) -> int: ...

class Archive:
    """Reads what rings, log and Parquet hold as one."""

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

    def __new__(cls, run_dir: str | PathLike[str] | None = None) -> Observer: ...
    @property
    def run_dir(self) -> Path: ...
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
