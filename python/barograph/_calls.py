"""Calls handlers and sets knobs of other programs through the agent, which knows programs and
rights.

This module stands alone because handlers are compiled code, while a call is a request to the agent.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barograph._barograph import NoAgentError
from barograph._control import post
from barograph._nodes import SECONDS_MAX, Nodes, names

_WAIT_SECONDS_MAX = 30.0
# Time that the agent may take to answer, in addition to the requested wait.
_ANSWER_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class NodeFired:
    """What has come of a call on one node."""

    node: str
    state: str
    """The state of the call there, ``nobody`` if no process matches, ``unanswered`` if the node does
    not take it or has not answered."""
    reason: str | None


@dataclass(frozen=True, slots=True)
class Fired:
    """The outcome of a call, up to the end of the wait; the table ``calls`` has the rest."""

    id: str
    matched: int
    """Processes that were meant."""
    acknowledged: int
    """Those that have done it."""
    failed: int
    """Those that could not."""
    late: int
    """Those for which the frame that a knob was to be set at was over."""
    state: str
    """The agent's word; on several nodes, ``incomplete`` if one of them has not answered."""
    nodes: tuple[NodeFired, ...] = ()
    """What has come of each node, if the call was for several."""


def fire(
    run_dir: str | os.PathLike[str],
    name: str,
    payload: object,
    knob: bool,
    target: Mapping[str, str],
    wait: float,
    expires: float | None,
    at_frame: int | None = None,
    nodes: Nodes | None = None,
) -> Fired:
    """See :func:`barograph.fire` and :func:`barograph.set_knob`."""
    if knob and type(payload) not in (bool, int, float):
        raise TypeError(f"a knob is set to a float, an int or a bool, not {payload!r}")
    for label, value in target.items():
        if not isinstance(label, str) or not isinstance(value, str):
            raise TypeError(f"label {label!r} of the target is {value!r}: give a str")
    wait = min(max(wait, 0.0), _WAIT_SECONDS_MAX)
    body: dict[str, Any] = {"name": name, "target": dict(target), "knob": knob, "wait_s": wait}
    if expires is not None:
        body["expires_s"] = expires
    if at_frame is not None:
        body["at_frame"] = at_frame
    answer_seconds = _ANSWER_SECONDS_MAX
    if nodes is not None:
        body["nodes"] = names(nodes)
        answer_seconds = SECONDS_MAX
    if payload is not None:
        body["payload_type"], body["payload"] = _payload(payload)
    answer = _ask(run_dir, body, wait + answer_seconds)
    return Fired(
        id=str(answer.get("id", "")),
        matched=int(answer.get("matched", 0)),
        acknowledged=int(answer.get("acknowledged", 0)),
        failed=int(answer.get("failed", 0)),
        late=int(answer.get("late", 0)),
        state=str(answer.get("state", "")),
        nodes=tuple(
            NodeFired(node["node"], node["state"], node["reason"])
            for node in answer.get("nodes", ())
        ),
    )


def _ask(
    run_dir: str | os.PathLike[str], body: dict[str, Any], seconds_max: float
) -> dict[str, Any]:
    # A user who may control the agent may fire for everyone; others may for their own programs.
    control, read = (os.path.join(run_dir, name) for name in ("control.sock", "read.sock"))
    try:
        try:
            return post(control, "/api/v1/fire", body, seconds_max)
        except (FileNotFoundError, PermissionError, ConnectionRefusedError):
            return post(read, "/api/v1/fire", body, seconds_max)
    except OSError as error:
        raise NoAgentError(f"no agent answers on {read}: {error}") from error


def _payload(payload: object) -> tuple[str, Any]:
    if isinstance(payload, bool):
        return "bool", payload
    if isinstance(payload, int):
        return "int", payload
    if isinstance(payload, float):
        return "float", payload
    if isinstance(payload, str):
        return "text", payload
    if isinstance(payload, bytes):
        return "bytes", base64.b64encode(payload).decode()
    return "json", payload
