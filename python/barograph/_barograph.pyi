"""Types of the compiled module. See the package's functions for what they mean."""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Literal, final

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
    def quality(self) -> Literal["measured", "derived", "predicted", "reconciled"] | None: ...
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
    def latest(self) -> Sample:
        """The newest sample with its age. UnknownStreamError when the stream has ended."""
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
    def latest(self, name: str, /, **labels: str) -> Sample: ...
    def latest_all(self, pattern: str = "*", /, **labels: str) -> list[Sample]: ...
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
