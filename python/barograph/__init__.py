"""The state of this node's storage, read from shared memory in this process.

A *stream* is one quantity of one thing over time, named by dotted words and labels:
``disk.read.bytes`` with ``device="vda"``. The node's agent (``baro up``) writes streams into memory
that every process can read; nothing here sends a request to the agent, and everything goes on while
the agent is busy and after it restarts.

::

    import barograph

    barograph.latest("disk.read.bytes", device="vda").value
    barograph.sql("SELECT device, value FROM disk_busy_ratio WHERE newest").pandas()
    for sample in barograph.watch("disk.*{device=vda}"):
        print(sample.name, sample.value)

A program can publish values of its own, and be called: :func:`publication`. Other programs call its
handlers and set its knobs: :func:`fire`, :func:`set_knob`. It can say when it does much I/O, and wait
for its turn: :func:`io_volume`. Operations at servers that come and go: :func:`server_map` and
:func:`map_server`. Blocks of bytes in the memory of this node and of others: :class:`StagingClient`;
where blocks should go: :class:`Adviser`; on which node a task runs: :func:`place_task` and
:class:`TaskPlacer`. It can tell others what they should know, and be told:
:func:`control_event`, :func:`control_events`. Arrays that are read as precisely as is needed are in
:mod:`barograph.progressive`.

Names and labels may be given as a pattern with ``*`` and ``?``: ``disk.*{device=vd*}``; labels may
also be keyword arguments. Times are integers, nanoseconds since the epoch. The functions of the
module read the run directory in ``BAROGRAPH_RUN_DIR``, or else that of this user's agent, or else
that of the node's agent; :func:`connect` reads another. Everything may be used from any thread, and
after ``os.fork()``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from barograph import _barograph, progressive
from barograph._barograph import (
    Advice,
    AdvisedBlock,
    Adviser,
    AmbiguousStreamError,
    BlockList,
    BlockNotFoundError,
    BlockReplica,
    Call,
    ControlEvent,
    ControlEvents,
    Error,
    EventGap,
    Events,
    FileEvent,
    IoPhase,
    IoVolume,
    Knob,
    LocatedBlock,
    LocatedBlocks,
    MappedBlock,
    NoAgentError,
    QueryError,
    Sample,
    StagedBlock,
    StagingClient,
    StagingError,
    Status,
    Stream,
    StreamInfo,
    UnknownNodeError,
    UnknownStreamError,
    ValueHandle,
    Watch,
    __version__,
)
from barograph._archive import Archive
from barograph._calls import Fired, NodeFired
from barograph._calls import fire as _fire
from barograph._control import Control, ControlError
from barograph._control_events import control_event
from barograph._io import io_volume
from barograph._maps import map_server, server_map
from barograph._nodes import NodeRows, NodeState
from barograph._nodes import ask as _ask_nodes
from barograph._publication import Publication, ValueSpec, counter, gauge, publication, state
from barograph._result import Result
from barograph._tasks import TaskNode, TaskPlacement, TaskPlacer, block_holders, place_task

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from barograph._nodes import Nodes

__all__ = [
    "Advice",
    "AdvisedBlock",
    "Adviser",
    "AmbiguousStreamError",
    "Archive",
    "BlockList",
    "BlockNotFoundError",
    "BlockReplica",
    "Call",
    "Control",
    "ControlError",
    "ControlEvent",
    "ControlEvents",
    "Error",
    "EventGap",
    "Events",
    "FileEvent",
    "Fired",
    "IoPhase",
    "IoVolume",
    "Knob",
    "LocatedBlock",
    "LocatedBlocks",
    "MappedBlock",
    "NoAgentError",
    "NodeFired",
    "NodeRows",
    "NodeState",
    "Observer",
    "Publication",
    "QueryError",
    "Result",
    "Sample",
    "StagedBlock",
    "StagingClient",
    "StagingError",
    "Status",
    "Stream",
    "StreamInfo",
    "TaskNode",
    "TaskPlacement",
    "TaskPlacer",
    "UnknownNodeError",
    "UnknownStreamError",
    "ValueHandle",
    "ValueSpec",
    "Watch",
    "__version__",
    "archive",
    "block_holders",
    "connect",
    "control",
    "control_event",
    "control_events",
    "counter",
    "events",
    "fire",
    "gauge",
    "io_volume",
    "history",
    "latest",
    "expected",
    "latest_all",
    "map_server",
    "nodes",
    "of_node",
    "place_task",
    "progressive",
    "publication",
    "server_map",
    "set_knob",
    "sql",
    "sql_on_nodes",
    "state",
    "status",
    "stream",
    "streams",
    "time_to",
    "watch",
]


class Observer(_barograph.Observer):
    """Reads the streams of one node; its methods are the functions of the module.

    Raises NoAgentError if no agent has ever served ``run_dir``. The streams of a dead agent can be
    read: their samples are ``stale``. ``node`` is the name of the node, and ``run_dir`` the
    directory that is read: for another node of the cluster, that of its mirror.
    """

    def of_node(self, name: str, /) -> Observer:
        """See :func:`barograph.of_node`."""
        return Observer(super().of_node(name))

    def sql(
        self, sql: str, /, *, rows_max: int | None = None, seconds_max: float | None = None
    ) -> Result:
        """See :func:`barograph.sql`."""
        return Result(self.query(sql, rows_max=rows_max, seconds_max=seconds_max))

    def events(
        self,
        *kinds: str,
        path: str | bytes | PathLike[str] | PathLike[bytes] | None = None,
        glob: str | None = None,
        source: str | None = None,
        since: int | str | None = None,
        after: str | None = None,
        timeout: float | None = None,
    ) -> Events:
        """See :func:`barograph.events`."""
        folder = None if path is None else os.fsdecode(path)
        return self.follow_events(list(kinds), folder, glob, source, since, after, timeout)

    def control_events(
        self,
        kind: str | None = None,
        subject: str | None = None,
        *,
        sources: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        confidence_min: float = 0.0,
        age_max: float | None = None,
        past: float = 0.0,
        exclude_own: bool = False,
        timeout: float | None = None,
    ) -> ControlEvents:
        """See :func:`barograph.control_events`."""
        return self.follow_control_events(
            kind,
            subject,
            dict(sources or {}),
            dict(properties or {}),
            confidence_min,
            age_max,
            past,
            exclude_own,
            timeout,
        )

    def history(
        self,
        pattern: str,
        /,
        start: int | str | None = None,
        stop: int | str | None = None,
        step: int | str | None = None,
        *,
        samples_max: int | None = None,
        **labels: str,
    ) -> Result:
        """See :func:`barograph.history`."""
        return Result(self.past(pattern, start, stop, step, samples_max, labels))

    def time_to(self, pattern: str, /, level: float | str | None = None, **labels: str) -> Result:
        """See :func:`barograph.time_to`."""
        sql = f"SELECT * FROM time_to({_quoted(pattern)}, {_quoted(level)})"
        # Patterns of labels are those of GLOB, except for its brackets.
        globs = [
            f"labels->>{_quoted(label)} GLOB {_quoted(value.replace('[', '[[]'))}"
            for label, value in labels.items()
        ]
        return self.sql(f"{sql} WHERE {' AND '.join(globs)}" if globs else sql)

    def archive(self) -> Archive:
        """See :func:`barograph.archive`."""
        return Archive(self.run_dir)


def _quoted(value: float | str | None) -> str:
    """Converts a value to an SQL text; its meaning is decided by the function that gets it."""
    return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"


def connect(run_dir: str | PathLike[str] | None = None) -> Observer:
    """Returns an observer of the agent that serves ``run_dir``, or of the default one."""
    return Observer(run_dir)


def archive(
    run_dir: str | PathLike[str] | None = None, path: str | PathLike[str] | None = None
) -> Archive:
    """Returns the past as Parquet files and tables: of the agent that serves ``run_dir`` (without
    it, of the default one), or of an archive in the directory ``path`` alone.
    """
    return Archive(run_dir, path)


def control(run_dir: str | PathLike[str] | None = None) -> Control:
    """Returns the control interface of the agent (for its own user and root)."""
    return Control(connect(run_dir).run_dir)


def fire(
    name: str,
    payload: object = None,
    *,
    target: Mapping[str, str] | None = None,
    wait: float = 0.0,
    expires: float | None = None,
    nodes: Nodes | None = None,
    run_dir: str | PathLike[str] | None = None,
) -> Fired:
    """Calls the handlers of a name in the programs that have them and all labels of ``target``
    (``application``, ``pid`` and ``user`` are labels too).

    ``payload`` is None, a bool, an int, a float, a str, bytes, or anything that JSON has. ``wait``
    is the longest wait for their answers in seconds, at most 30; the call expires after ``expires``
    seconds (60). ``nodes`` names the nodes of the cluster whose programs are called, ``"all"`` or a
    list; this node alone unless given. Raises ControlError if the agent refuses (``kind`` is the
    reason: no program matches, no right, busy), NoAgentError if no agent answers.
    """
    agent = connect(run_dir).run_dir
    return _fire(agent, name, payload, False, target or {}, wait, expires, nodes=nodes)


def set_knob(
    name: str,
    value: float | int | bool,
    *,
    target: Mapping[str, str] | None = None,
    wait: float = 0.0,
    at_frame: int | None = None,
    nodes: Nodes | None = None,
    run_dir: str | PathLike[str] | None = None,
) -> Fired:
    """Sets a knob, named ``publication.knob``, in the programs that have it. Otherwise like
    :func:`fire`.

    With ``at_frame`` every process sets it at the end of the frame with that number of its
    publication, so that all begin their next step with the same value; a process that has already
    ended that frame leaves its knob unchanged, and is counted in ``late``.
    """
    agent = connect(run_dir).run_dir
    return _fire(agent, name, value, True, target or {}, wait, None, at_frame, nodes)


def sql_on_nodes(
    statement: str,
    nodes: Nodes = "all",
    *,
    combine: bool = False,
    run_dir: str | PathLike[str] | None = None,
) -> NodeRows:
    """Runs a read-only statement on nodes of the cluster, ``"all"`` or a list of names, each on its
    own tables and at the same time. The first column of the rows is the node; with ``combine`` the
    rows are those of one SELECT over all nodes.

    Waits as long as the agent is configured to (5 s). Nodes that have not answered are in ``nodes``
    of the result, with the reason. Raises ControlError if the agent refuses the statement,
    NoAgentError if no agent answers.
    """
    return _ask_nodes(connect(run_dir).run_dir, statement, nodes, combine)


# The observer behind the functions below, with the run directory for which it was opened.
_default: tuple[str | None, Observer] | None = None


def _forget() -> None:
    global _default
    _default = None


# A child opens its own observer: another thread of the parent may have been in the middle of a
# change.
os.register_at_fork(after_in_child=_forget)


def _observer() -> Observer:
    global _default
    held = _default
    named = os.environ.get("BAROGRAPH_RUN_DIR")
    if held is None or held[0] != named:
        held = _default = (named, connect())
    return held[1]


def latest(name: str, /, *, allow_predicted: bool = False, **labels: str) -> Sample:
    """Returns the newest sample of the one stream that matches, with its age.

    With ``allow_predicted``, and if the stream has a forecast, returns the value predicted for now,
    between two looks: its ``quality`` is ``predicted``, its ``error`` the half width of the
    interval at the agent's confidence (infinite while that is not known).

    Raises UnknownStreamError (``near`` lists streams that may have been meant) and
    AmbiguousStreamError. In a loop, hold a :func:`stream`.
    """
    return _observer().latest(name, allow_predicted=allow_predicted, **labels)


def latest_all(
    pattern: str = "*", /, *, allow_predicted: bool = False, **labels: str
) -> list[Sample]:
    """Returns the newest sample of every matching stream, sorted by name and labels. For
    ``allow_predicted`` see :func:`latest`.
    """
    return _observer().latest_all(pattern, allow_predicted=allow_predicted, **labels)


def expected(pattern: str = "*", horizon: float = 0.0, /, **labels: str) -> list[Sample]:
    """Returns the values predicted for ``horizon`` seconds from now (0: now, between two looks).

    The result has a sample of that time for each matching stream with a forecast; its ``quality``
    is ``predicted`` and its ``error`` is the half width of the interval at the agent's confidence
    (infinite while that is not known). Streams without a forecast, or with a shorter one, are left
    out.
    """
    return _observer().expected(pattern, horizon, **labels)


def nodes() -> list[str]:
    """Lists the other nodes of the cluster whose streams are mirrored in memory of this node, by
    name. A node that has gone is among them for 10 minutes; its samples are ``stale``.
    """
    return _observer().nodes()


def of_node(name: str, /) -> Observer:
    """Returns the observer of another node of the cluster, whose streams the agent mirrors into
    memory of this one: they are read as quickly as those of this node. The name of this node gives
    its own observer.

    It has the streams that ``cluster.mirror`` chooses. Its samples are ``stale`` if nothing was
    heard of the node for 5 s, and ages are measured by the clock of this node. It outlives the
    mirror: it goes on when the node is back. Keep it to read repeatedly. SQL of it has the mirrored
    streams as tables; the tables that describe an agent (``sources``, ``loss``, …) are refused.
    Raises UnknownNodeError (``mirrored`` lists the nodes that can be read) if there is no mirror of
    that name.
    """
    return _observer().of_node(name)


def time_to(pattern: str, /, level: float | str | None = None, **labels: str) -> Result:
    """Predicts when the matching streams will reach a level: a row for each stream with a forecast.

    ``level`` is a number in the stream's unit or a text like ``"10 GiB"`` or ``"90 %"`` (of a
    capacity: how full); without it, 0 of what is available or free. ``reach_ns`` is the time from
    now, ``reach_early_ns`` and ``reach_late_ns`` its range by the error of the forecast. ``basis``
    is ``"calibrated"``, or ``"not calibrated"`` if no forecast that far ahead has been compared
    with the actual values yet; ``horizon_ns`` is how far the calibrated part reaches. Within it,
    None means that the level is not reached; where ``horizon_ns`` is None as well, nothing is known
    yet. Further columns: ``ts``, ``stream``, ``labels``, ``level``, ``value`` (now), ``unit``,
    ``node``.
    """
    return _observer().time_to(pattern, level, **labels)


def stream(name: str, /, **labels: str) -> Stream:
    """Returns a handle on the one stream that matches: resolved once, read in well under a
    microsecond.

    It finds its stream again when the agent restarts (``restarted`` counts that).
    """
    return _observer().stream(name, **labels)


def streams(pattern: str = "*", /, **labels: str) -> list[StreamInfo]:
    """Lists the streams that match, sorted by name and labels."""
    return _observer().streams(pattern, **labels)


def watch(pattern: str = "*", /, timeout: float | None = None, **labels: str) -> Watch:
    """Iterates over new samples of the matching streams, as they come.

    First the newest sample of each stream; then each later sample once, including those of streams
    that are registered later. ``Sample.lost`` counts samples that the reader was too slow for. Ends
    when there is nothing new for ``timeout`` seconds; without it, never.
    """
    return _observer().watch(pattern, timeout=timeout, **labels)


def events(
    *kinds: str,
    path: str | bytes | PathLike[str] | PathLike[bytes] | None = None,
    glob: str | None = None,
    source: str | None = None,
    since: int | str | None = None,
    after: str | None = None,
    timeout: float | None = None,
) -> Events:
    """Iterates over file events of these kinds (``"create"``, ``"rename"``, …; all without any).

    ``path`` is a file or directory, for events of it and of what is below it; ``glob`` a pattern of
    the path with ``*`` (slashes included) and ``?``; ``source`` the name of one watch. Begins with
    new events, or with past ones from ``since`` on (ns since the epoch, RFC 3339, or ``"-1h"``), or
    after the place that ``Events.position`` of an earlier iterator was.

    Each event is given once, in the order of its source, over restarts of the agent too. Where
    events cannot be given any more, there is an EventGap between them. Ends when there is nothing
    new for ``timeout`` seconds; without it, never.
    """
    return _observer().events(
        *kinds, path=path, glob=glob, source=source, since=since, after=after, timeout=timeout
    )


def control_events(
    kind: str | None = None,
    subject: str | None = None,
    *,
    sources: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    confidence_min: float = 0.0,
    age_max: float | None = None,
    past: float = 0.0,
    exclude_own: bool = False,
    timeout: float | None = None,
) -> ControlEvents:
    """Subscribes to control events of programs and agents: those of this node, and of all nodes whose
    events are mirrored here.

    ``kind`` and ``subject`` are patterns with ``*`` and ``?``, and so are the values of ``sources``
    (labels, such as ``application``, ``job``, ``rank`` and ``user``, and ``node``) and of
    ``properties``. Begins with new events, or with those of the last ``past`` seconds. ``age_max`` is
    in seconds; ``exclude_own`` leaves out what this process publishes.

    The result is consumed in one of three ways: ``check()`` never waits, ``wait(timeout)`` sleeps
    until there is an event, and ``on(function)`` with ``dispatch(timeout)`` calls a function for each.
    It is an iterator too, which ends when there is nothing new for ``timeout`` seconds.

    ::

        events = barograph.control_events("server.*", sources={"job": "7"})
        event = events.wait(1.0)
    """
    return _observer().control_events(
        kind,
        subject,
        sources=sources,
        properties=properties,
        confidence_min=confidence_min,
        age_max=age_max,
        past=past,
        exclude_own=exclude_own,
        timeout=timeout,
    )


def history(
    pattern: str,
    /,
    start: int | str | None = None,
    stop: int | str | None = None,
    step: int | str | None = None,
    *,
    samples_max: int | None = None,
    **labels: str,
) -> Result:
    """Returns the past of the matching streams from memory and archive, each sample once.

    The range is ``start <= ts < stop``. Times are ns since the epoch, RFC 3339 texts, or relative
    ones (``"-1h"``). A row is a sample (``ts``, ``name``, ``labels``, ``value``, ``exact``,
    ``text``, ``unit``, ``quality``, ``error``, ``node``), or with ``step`` (ns, or ``"10s"``) a
    bucket (``ts``, ``name``, ``labels``, ``unit``, ``count``, ``min``, ``max``, ``sample_mean``,
    ``last``, ``min_exact``, ``max_exact``, ``last_exact``, ``last_text``, ``held_ns``,
    ``time_mean``, ``node``). Raises QueryError (``kind`` is ``limit``) if there are more than
    ``samples_max`` (10,000,000).
    """
    return _observer().history(pattern, start, stop, step, samples_max=samples_max, **labels)


def sql(sql: str, /, *, rows_max: int | None = None, seconds_max: float | None = None) -> Result:
    """Runs one read-only SQL statement in this process, without a server.

    Each metric is a table, dots become underscores: ``SELECT device, value FROM disk_busy_ratio
    WHERE newest``. Raises QueryError, whose ``kind`` is the reason: the statement is wrong
    (``statement``), not allowed (``refused``), or reaches a limit (``limit``): ``rows_max``
    (1,000,000) or ``seconds_max`` (10).
    """
    return _observer().sql(sql, rows_max=rows_max, seconds_max=seconds_max)


def status() -> Status:
    """Returns the state of this node's agent: whether it lives, and how many streams there are."""
    return _observer().status()
