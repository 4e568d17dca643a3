"""Layouts: MPI datatypes as lists of their pieces, as arrays of numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The first offset that no file has.
OFFSET_END = 1 << 62
_Pieces = tuple["NDArray[np.int64]", "NDArray[np.int64]"]


class Layout:
    """Pieces that are repeated for ever, one `extent` after the other; `base` is added to each offset.

    The data are the bytes of the pieces in their order.
    """

    def __init__(self, offsets: NDArray[np.int64], lengths: NDArray[np.int64], extent: int, base: int) -> None:
        self.offsets, self.lengths = offsets, lengths
        self.extent, self.base = int(extent), int(base)
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        self.size = int(self.starts[-1])

    @classmethod
    def dense(cls, base: int = 0) -> Layout:
        """All bytes from `base` on."""
        return cls(np.zeros(1, np.int64), np.full(1, OFFSET_END, np.int64), OFFSET_END, base)

    def data_before(self, offset: int) -> int:
        """Of a view: the data bytes whose offsets are below `offset`."""
        if self.size == 0:
            return 0
        first = int(self.offsets[0])
        offset -= self.base + first
        if offset <= 0:
            return 0
        repetition, inside = divmod(offset, self.extent)
        at = int(np.searchsorted(self.offsets, inside + first, "right")) - 1
        inside = min(inside + first - int(self.offsets[at]), int(self.lengths[at]))
        return repetition * self.size + int(self.starts[at]) + inside

    def offset_of(self, at: int) -> int:
        """The offset of a data byte."""
        repetition, inside = divmod(at, self.size)
        piece = int(np.searchsorted(self.starts, inside, "right")) - 1
        return self.base + repetition * self.extent + int(self.offsets[piece]) + inside - int(self.starts[piece])

    def pieces(self, start: int, end: int) -> NDArray[np.int64]:
        """Offsets and lengths of the data bytes from `start` to `end`, which is behind it."""
        first, last = start // self.size, (end - 1) // self.size
        repetitions = self.base + np.arange(first, last + 1) * self.extent
        at, until = start - first * self.size, end - last * self.size
        low = int(np.searchsorted(self.starts, at, "right")) - 1
        high = int(np.searchsorted(self.starts, until, "left"))
        whole = slice(low, (last - first) * self.offsets.size + high)
        offsets = (repetitions[:, None] + self.offsets[None, :]).ravel()[whole]
        lengths = np.tile(self.lengths, last - first + 1)[whole]
        # The last piece before the first: they may be the same.
        lengths[-1] = until - self.starts[high - 1]
        offsets[0] += at - self.starts[low]
        lengths[0] -= at - self.starts[low]
        return np.stack([offsets, lengths])

    def indices(self, start: int, end: int) -> NDArray[np.int64]:
        """The offsets of the data bytes from `start` to `end`."""
        pieces = self.pieces(start, end)
        return Layout(pieces[0], pieces[1], 0, 0).indices_of_all()

    def indices_of_all(self) -> NDArray[np.int64]:
        """The offsets of all data bytes of one repetition."""
        return np.repeat(self.offsets - self.starts[:-1], self.lengths) + np.arange(self.size)


def view_layout(displacement: int, filetype: MPI.Datatype) -> Layout:
    """The layout of a view. Raises ValueError for one that has no order in the file."""
    offsets, lengths = flatten(filetype)
    if not 0 <= displacement < OFFSET_END:
        raise ValueError("the displacement of the view is negative, or behind the end of any file")
    if offsets.size == 0:
        return Layout(offsets, lengths, 0, displacement)
    ends = offsets + lengths
    if offsets.min() < 0:
        raise ValueError("the filetype has a piece with a negative offset")
    if (offsets[1:] < ends[:-1]).any():
        raise ValueError("the pieces of the filetype overlap, or are not in ascending order")
    if ends[-1] - offsets[0] > filetype.extent:
        raise ValueError("the pieces of the filetype overlap with those of its next repetition")
    if offsets.size == 1 and lengths[0] == filetype.extent:
        return Layout.dense(displacement + int(offsets[0]))
    return Layout(offsets, lengths, filetype.extent, displacement)


def memory_layout(
    data: Any, count: int | None, datatype: MPI.Datatype | None, *, is_written: bool
) -> tuple[NDArray[np.uint8], Layout, int]:
    """The bytes of a buffer, the layout of the data in it, and the bytes of these."""
    if data is None:
        return np.empty(0, np.uint8), Layout.dense(), 0
    memory = np.frombuffer(data, np.uint8) if memoryview(data).nbytes else np.empty(0, np.uint8)
    if is_written and not memory.flags.writeable:
        raise ValueError("the buffer cannot be written to")
    if datatype is None:
        if count is not None:
            raise ValueError("a count needs a datatype")
        return memory, Layout.dense(), memory.size
    count = 1 if count is None else count
    if count < 0:
        raise ValueError("the count is negative")
    offsets, lengths = flatten(datatype)
    layout = Layout(offsets, lengths, datatype.extent, 0)
    size = count * layout.size
    if size:
        last = (count - 1) * layout.extent
        low = int(offsets.min()) + min(0, last)
        high = int((offsets + lengths).max()) + max(0, last)
        if low < 0 or high > memory.size:
            raise ValueError("the datatype reaches out of the buffer")
    return memory, layout, size


def flatten(datatype: MPI.Datatype) -> _Pieces:
    """Offsets and lengths of the pieces of a datatype, in the order of its data."""
    return _merged(*_flatten(datatype))


def _merged(offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> _Pieces:
    """Leaves out empty pieces, and joins those that touch."""
    kept = lengths > 0
    offsets, lengths = offsets[kept], lengths[kept]
    if offsets.size < 2:
        return offsets, lengths
    begins = np.concatenate([[True], offsets[1:] != offsets[:-1] + lengths[:-1]])
    at = np.flatnonzero(begins)
    return offsets[at], np.add.reduceat(lengths, at)


def _repeat(pieces: _Pieces, places: Any) -> _Pieces:
    """Copies of pieces at some places, in bytes."""
    offsets, lengths = pieces
    at = np.asarray(places, np.int64)
    return _merged((at[:, None] + offsets[None, :]).ravel(), np.tile(lengths, at.size))


def _blocks(inner: _Pieces, extent: int, lengths: Any, places: Any) -> _Pieces:
    """Blocks of so many elements at places in bytes."""
    lengths, places = np.asarray(lengths, np.int64), np.asarray(places, np.int64)
    starts = np.cumsum(lengths) - lengths
    at = np.repeat(places - starts * extent, lengths) + np.arange(int(lengths.sum())) * extent
    return _repeat(inner, at)


def _array(element: _Pieces, extent: int, sizes: list[int], indices: list[Any], order: int) -> _Pieces:
    """The elements of an array at some indices of each dimension."""
    dimensions = range(len(sizes)) if order == MPI.ORDER_FORTRAN else reversed(range(len(sizes)))
    stride = extent
    for d in dimensions:
        element = _repeat(element, np.asarray(indices[d], np.int64) * stride)
        stride *= sizes[d]
    return element


def _distributed(inner: _Pieces, extent: int, params: dict[str, Any]) -> _Pieces:
    rank = params["rank"]
    indices: list[NDArray[np.int64]] = []
    dimensions = list(zip(params["gsizes"], params["distribs"], params["dargs"], params["psizes"], strict=True))
    # The grid of processes is in C's order, whatever that of the array is.
    for size, way, argument, processes in reversed(dimensions):
        rank, at = divmod(rank, processes)
        every = np.arange(size)
        if way == MPI.DISTRIBUTE_BLOCK:
            length = -(-size // processes) if argument == MPI.DISTRIBUTE_DFLT_DARG else argument
            every = every[at * length : (at + 1) * length]
        elif way == MPI.DISTRIBUTE_CYCLIC:
            length = 1 if argument == MPI.DISTRIBUTE_DFLT_DARG else argument
            every = every[every // length % processes == at]
        indices.insert(0, every)
    return _array(inner, extent, list(params["gsizes"]), indices, params["order"])


def _structure(params: dict[str, Any]) -> _Pieces:
    parts = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    members = zip(params["datatypes"], params["blocklengths"], params["displacements"], strict=True)
    for member, length, place in members:
        parts.append(_blocks(_flatten(member), member.extent, [length], [place]))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _flatten(datatype: MPI.Datatype) -> _Pieces:
    if datatype == MPI.DATATYPE_NULL:
        raise ValueError("the datatype is MPI.DATATYPE_NULL")
    if datatype.is_predefined:
        if datatype == MPI.SHORT_INT:
            # The only pair with a gap between its members.
            return np.array([0, 4]), np.array([2, 4])
        return np.array([0]), np.array([datatype.size])
    decoded: Any = datatype.decode()
    base, combiner, params = decoded
    if combiner == "STRUCT":
        return _structure(params)
    inner, extent = _flatten(base), base.extent
    count = params.get("count", 1)
    match combiner:
        case "DUP" | "RESIZED":
            return inner
        case "CONTIGUOUS":
            return _blocks(inner, extent, [count], [0])
        case "VECTOR" | "HVECTOR":
            unit = extent if combiner == "VECTOR" else 1
            return _blocks(inner, extent, [params["blocklength"]] * count, np.arange(count) * params["stride"] * unit)
        case "INDEXED" | "HINDEXED":
            unit = extent if combiner == "INDEXED" else 1
            return _blocks(inner, extent, params["blocklengths"], np.array(params["displacements"], np.int64) * unit)
        case "INDEXED_BLOCK" | "HINDEXED_BLOCK":
            unit = extent if combiner == "INDEXED_BLOCK" else 1
            places = np.array(params["displacements"], np.int64) * unit
            return _blocks(inner, extent, [params["blocklength"]] * places.size, places)
        case "SUBARRAY":
            starts = zip(params["starts"], params["subsizes"], strict=True)
            indices = [np.arange(start, start + size) for start, size in starts]
            return _array(inner, extent, list(params["sizes"]), indices, params["order"])
        case "DARRAY":
            return _distributed(inner, extent, params)
    raise ValueError(f"a datatype was made in a way that is not known here: {combiner}")
