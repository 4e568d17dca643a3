"""Packed files over several tiers of storage: placed, and put together again.

This module stands alone because no array is read for it: it moves the bytes of files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from barograph import _barograph

if TYPE_CHECKING:
    from collections.abc import Sequence

# The room of a tier without a limit.
_UNLIMITED = (1 << 64) - 1


class Part(NamedTuple):
    """The bytes of a packed file that lie on one tier."""

    file: str
    """Its path."""
    bytes: int
    """Number of bytes of the packed file in it."""


def place(
    file: str | os.PathLike[str],
    tiers: Sequence[str | os.PathLike[str] | tuple[str | os.PathLike[str], int]],
) -> list[Part]:
    """Divides a packed file among directories on several tiers, from the fastest to the slowest,
    and returns its parts. A tier is a directory, or a directory with the most bytes that it gets.

    Buckets that coarse readings need lie on the faster tiers. The file becomes a small index and is
    read as before, by its name; a coarse reading does not touch the slow tiers. A file that has
    parts already is moved. It is as it was if this fails or is killed.

    Raises ValueError if the tiers have no room for it or somebody else is writing to it, OSError if
    a file cannot be read or written, DamagedArrayError if it is no packed file.
    """
    rooms = []
    for tier in tiers:
        directory, room = tier if isinstance(tier, tuple) else (tier, _UNLIMITED)
        rooms.append((os.path.abspath(os.fspath(directory)), room))
    path = os.path.abspath(os.fspath(file))
    return [Part(*part) for part in _barograph.place_packed(path, rooms)]


def join(file: str | os.PathLike[str]) -> int:
    """Puts the parts of a packed file together, so that it is one file again, and returns its
    bytes.

    Raises ValueError if it has no parts or somebody else is writing to it, OSError if a file cannot
    be read or written; then it is as it was.
    """
    return _barograph.join_packed(os.path.abspath(os.fspath(file)))
