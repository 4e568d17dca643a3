"""Control events: what programs and agents tell each other about storage and its control."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from barograph._barograph import ControlPublisher
from barograph._publication import _application

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

_PUBLISHERS_MAX = 16


@lru_cache(maxsize=_PUBLISHERS_MAX)
def _publisher(application: str, run_dir: str | None, readers: str) -> ControlPublisher:
    return ControlPublisher(application, run_dir, readers)


def control_event(
    kind: str,
    subject: str = "",
    value: float | None = None,
    *,
    confidence: float = 1.0,
    properties: Mapping[str, str] | None = None,
    readers: Literal["owner", "group", "all"] = "owner",
    application: str | None = None,
    run_dir: str | PathLike[str] | None = None,
) -> bool:
    """Publishes a control event: something that other programs, ranks or controllers should know.

    ::

        barograph.control_event("server.slow", "/scratch", 2.5, confidence=0.9, properties={"server": "3"})

    ``kind`` is 1 to 64 letters, digits, ``.``, ``_`` and ``-``; ``confidence`` is 0 to 1; there are 16
    properties at most, and all texts together have about 1,000 bytes. ``readers`` are those who may
    consume it, the same for all events of a program; ``application`` is the name of this program,
    that of its script unless given; ``run_dir`` the run directory of the agent.

    Returns whether it was published: False without room for it, or where nothing is published.
    Raises ValueError if there can be no such event. Consume events with :func:`control_events`.
    """
    name = _application() if application is None else application
    place = None if run_dir is None else os.fspath(run_dir)
    publisher = _publisher(name, place, readers)
    return publisher.publish(kind, subject, value, confidence, dict(properties or {}))
