"""Statements that run on nodes of the cluster, and how nodes are named.

This module stands alone because these statements are requests to the agent, which asks the other
nodes, while all others run in this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from barograph._barograph import NoAgentError
from barograph._control import post

if TYPE_CHECKING:
    import pandas

# Longest wait for other nodes: the longest that an agent may be configured to wait, and some more.
SECONDS_MAX = 610.0

Nodes = Literal["all"] | Iterable[str]


@dataclass(frozen=True, slots=True)
class NodeState:
    """What has come of one node."""

    node: str
    state: str
    """``answered``, ``failed``, ``late`` or ``gone``."""
    reason: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class NodeRows:
    """The rows of nodes. Iterates over rows as dicts; ``len()`` is the number of rows."""

    columns: list[str]
    nodes: tuple[NodeState, ...]
    """What has come of each node: rows of those that have not answered are missing."""
    _cells: list[list[Any]]

    def rows(self) -> list[dict[str, Any]]:
        """Returns a dict per row."""
        return list(self)

    def pandas(self) -> pandas.DataFrame:
        """Returns a pandas data frame. Raises ImportError if pandas is not installed."""
        import pandas

        return pandas.DataFrame(self._cells, columns=self.columns)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self._cells)

    def __len__(self) -> int:
        return len(self._cells)


def names(nodes: Nodes) -> str | list[str]:
    """The nodes as the agent reads them: ``"all"``, or a list of names that is not empty."""
    if isinstance(nodes, str):
        if nodes != "all":
            raise ValueError(f"nodes is 'all' or a list of names, not {nodes!r}")
        return nodes
    listed = list(nodes)
    if not listed or not all(isinstance(name, str) for name in listed):
        raise ValueError(f"nodes is 'all' or a list of names, not {listed!r}")
    return listed


def ask(run_dir: str | os.PathLike[str], statement: str, nodes: Nodes, combine: bool) -> NodeRows:
    """See :func:`barograph.sql_on_nodes`."""
    named = names(nodes)
    query = {"combine": str(combine).lower()}
    if isinstance(named, list):
        query["nodes"] = ",".join(named)
    socket_path = os.path.join(run_dir, "read.sock")
    path = f"/api/v1/nodes/sql?{urlencode(query)}"
    try:
        answer = post(socket_path, path, {"sql": statement}, SECONDS_MAX)
    except OSError as error:
        raise NoAgentError(f"no agent answers on {socket_path}: {error}") from error
    states = (NodeState(n["node"], n["state"], n["reason"], n["rows"]) for n in answer["nodes"])
    return NodeRows(answer["columns"], tuple(states), answer["rows"])
