"""Collective writes and reads of MPI programs through staging, with mpi4py and numpy.

::

    from mpi4py import MPI
    import barograph
    from barograph.mpi import CollectiveFile

    stage = barograph.StagingClient(["/run/user/1000/stage.sock"])
    mine = MPI.DOUBLE.Create_subarray(shape, part, start).Commit()
    with CollectiveFile(MPI.COMM_WORLD, stage, "run7/pressure", "w") as file:
        file.set_view(0, MPI.DOUBLE, mine)
        file.write_all(field)

The functions are those of ``baro_mpi.h``, and the files as well: what a program in C writes, one in
Python reads. All ranks of the communicator call all methods, in the same order, and each rank has
the same error (:class:`CollectiveError`) if any of them fails. Nothing else of ``barograph`` needs
mpi4py.
"""

from __future__ import annotations

import os
import re
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from mpi4py import MPI

from barograph._barograph import BlockNotFoundError, Error, StagingError
from barograph._mpi_layout import OFFSET_END, Layout, memory_layout, view_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from barograph._barograph import StagingClient

__all__ = ["CollectiveError", "CollectiveFile"]

_BLOCK_BYTES = 4 << 20
_BUFFER_BYTES = 16 << 20
_BLOCK_BYTES_MAX = 1 << 30
# The block that tells how a file is cut.
_LAYOUT = "layout"
_TEXT = "barograph collective file\nversion 1\nblock_bytes {}\n"
_NOTHING = np.iinfo(np.int64).max


def _wait(*requests: MPI.Request) -> None:
    """Waits, and leaves the processor to others: MPI libraries wait in a loop, and the server of staging for
    which all ranks of a node wait may need the processor of one of them."""
    for request in requests:
        while not request.Test():
            os.sched_yield()


class CollectiveError(Error):
    """A collective call has failed on a rank, and so on all of them.

    `rank` is the first rank that has failed, and `code` what it was: that of a `StagingError`, or
    ``argument``.
    """

    def __init__(self, rank: int, code: str, text: str) -> None:
        super().__init__(f"rank {rank}: {text}")
        self.rank = rank
        self.code = code


class CollectiveFile:
    """A file of blocks in staging that the ranks of a communicator write and read together.

    `mode` is ``"r"`` (it must be there) or ``"w"`` (for writes and reads; it is made if it is not
    there). `stage` is this rank's client, each rank with the same servers. `block_bytes` is for a
    new file (a multiple of 8; 4 MiB unless given), `aggregators` how many ranks put and get blocks
    (one for each node unless given), `buffer_bytes` how much each of them has in memory at a time.
    With ``exchange="views"`` the aggregators are told the view of a rank once, with ``"lists"``
    all its pieces in each call. `acks`, `durable` and `wait` are as in `StagingClient.put`. The
    settings of rank 0 count.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        stage: StagingClient,
        dataset: str,
        mode: Literal["r", "w"] = "r",
        *,
        block_bytes: int | None = None,
        buffer_bytes: int = _BUFFER_BYTES,
        aggregators: int | None = None,
        exchange: Literal["views", "lists"] = "views",
        acks: int | None = None,
        durable: bool = False,
        wait: float = 1.0,
    ) -> None:
        self._comm = comm.Dup()
        self._stage = stage
        self._fault: tuple[str, str] | None = None
        self._version = 0
        self.counts = {"rounds": 0, "data_bytes": 0, "metadata_bytes": 0, "blocks_put": 0, "blocks_got": 0}
        put = {"acks": acks, "durable": durable, "wait": wait}
        said = (dataset, mode, block_bytes, buffer_bytes, aggregators, exchange, put)
        self._dataset, self._mode, block_bytes, buffer_bytes, aggregators, self._exchange, self._put = comm.bcast(said)
        self._block = 0
        if comm.rank == 0:
            try:
                self._block = self._find_layout(block_bytes)
            except (StagingError, ValueError) as error:
                self._fail(error)
        try:
            self._agree()
        except CollectiveError:
            self._comm.Free()
            raise
        self._block = comm.bcast(self._block)
        self._blocks = max(1, buffer_bytes // self._block)
        self._aggregators = self._choose(aggregators)
        self._view = view_layout(0, MPI.BYTE)
        self._etype_bytes = 1
        self._views = [self._view] * comm.size

    def _find_layout(self, wanted: int | None) -> int:
        """Finds how the file is cut, or says how a new one is."""
        if self._mode not in ("r", "w") or self._exchange not in ("views", "lists"):
            raise ValueError("the mode is 'r' or 'w', and the exchange 'views' or 'lists'")
        if wanted is not None and not (0 < wanted <= _BLOCK_BYTES_MAX and wanted % 8 == 0):
            raise ValueError("a block has a multiple of 8 bytes, 1 GiB at most")
        key = (self._dataset, _LAYOUT)
        try:
            text = self._stage.get(key).decode("utf-8", "replace")
        except BlockNotFoundError:
            if self._mode == "r":
                raise
            block = wanted or _BLOCK_BYTES
            self._stage.put(key, _TEXT.format(block).encode(), **self._put)
            return block
        found = re.fullmatch(re.escape(_TEXT).replace(r"\{\}", "([0-9]{1,10})"), text)
        block = int(found[1]) if found else 0
        if not 0 < block <= _BLOCK_BYTES_MAX or block % 8:
            raise ValueError(f"the block {_LAYOUT} of {self._dataset} is not that of a collective file")
        if wanted is not None and wanted != block:
            raise ValueError(f"the blocks of {self._dataset} have {block} bytes, not {wanted}")
        return block

    def _choose(self, wanted: int | None) -> list[int]:
        """The aggregators: the first rank of each node, then the second ones, and so on."""
        node = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        places = sorted((local, rank) for rank, local in enumerate(self._comm.allgather(node.rank)))
        node.Free()
        count = wanted or sum(local == 0 for local, _ in places)
        return [rank for _, rank in places[:count]]

    def _fail(self, error: Exception) -> None:
        """Notes the first error of this rank in a call."""
        if self._fault is None:
            self._fault = (getattr(error, "code", "argument"), str(error))

    def _agree(self, least: int = _NOTHING) -> int:
        """Raises the same error on all ranks if one has failed; else returns the least number."""
        mine = np.array([_NOTHING if self._fault is None else self._comm.rank, least])
        both = np.empty_like(mine)
        _wait(self._comm.Iallreduce(mine, both, MPI.MIN))
        if both[0] != _NOTHING:
            rank = int(both[0])
            code, text = self._comm.bcast(self._fault, rank)
            self._fault = None
            raise CollectiveError(rank, code, text)
        return int(both[1])

    def set_view(self, displacement: int, etype: MPI.Datatype, filetype: MPI.Datatype) -> None:
        """Sets what this rank sees of the file, as ``MPI.File.Set_view`` does.

        Raises CollectiveError on all ranks, and leaves all views as they were, if pieces of the
        filetype are negative, not in ascending order, or overlap, also with those of the next
        repetition.
        """
        view = self._view
        try:
            view = view_layout(displacement, filetype)
            if etype.size <= 0 or filetype.size % etype.size:
                raise ValueError("the filetype is not made of whole etypes")
        except ValueError as error:
            self._fail(error)
        self._agree()
        if self._exchange == "views":
            self._tell_views(view)
        self._view, self._etype_bytes = view, etype.size

    def _tell_views(self, view: Layout) -> None:
        """Tells the view of each rank to the aggregators, once."""
        said = self._comm.allgather((view.offsets.size, view.extent, view.base))
        sent = [self._comm.Isend(np.stack([view.offsets, view.lengths]), rank) for rank in self._aggregators]
        if self._comm.rank in self._aggregators:
            views = []
            for rank, (count, extent, base) in enumerate(said):
                pieces = np.empty((2, count), np.int64)
                _wait(self._comm.Irecv(pieces, rank))
                views.append(Layout(pieces[0], pieces[1], extent, base))
                self.counts["metadata_bytes"] += pieces.nbytes if rank != self._comm.rank else 0
            self._views = views
        _wait(*sent)

    def write_all(
        self, data: Any, offset: int = 0, *, count: int | None = None, datatype: MPI.Datatype | None = None
    ) -> None:
        """Writes an array to this rank's view, from `offset` on (in etypes of the view).

        `data` is a contiguous buffer; None writes nothing. With a `datatype`, `count` elements of
        it are taken from the buffer (one unless given). Where ranks write the same byte, that of
        the highest one is there afterwards. After an error, any part may have been written.
        """
        self._transfer(data, offset, count, datatype, is_write=True)

    def read_all(
        self, data: Any, offset: int = 0, *, count: int | None = None, datatype: MPI.Datatype | None = None
    ) -> None:
        """Reads into a writable array as `write_all` writes. Bytes that were never written are 0."""
        self._transfer(data, offset, count, datatype, is_write=False)

    def _transfer(self, data: Any, offset: int, count: int | None, datatype: Any, *, is_write: bool) -> None:
        start = end = 0
        memory, places = np.empty(0, np.uint8), Layout.dense()
        try:
            if is_write and self._mode != "w":
                raise ValueError("the file was opened for reads")
            memory, places, size = memory_layout(data, count, datatype, is_written=not is_write)
            if offset < 0 or size % self._etype_bytes:
                raise ValueError("the offset is negative, or the data are not whole etypes of the view")
            if size and self._view.size == 0:
                raise ValueError("the view has no bytes")
            start = offset * self._etype_bytes
            end = start + size
            if end >= OFFSET_END or (size and self._view.offset_of(end - 1) >= OFFSET_END):
                raise ValueError("the data are behind the end of any file")
        except (TypeError, ValueError, BufferError) as error:
            self._fail(error)
            start = end = 0
        call = _Call(self, memory, places, start, end)
        if self._exchange == "views":
            ends = np.empty((self._comm.size, 2), np.int64)
            _wait(self._comm.Iallgather(np.array([start, end]), ends))
            call.ends = [(int(first), int(last)) for first, last in ends]
            self.counts["metadata_bytes"] += 16 * (self._comm.size - 1)
        block = 0
        while True:
            first = self._agree(call.next_block(block))
            if first == _NOTHING:
                return
            self.counts["rounds"] += 1
            if is_write:
                call.write_round(first)
            else:
                call.read_round(first)
            block = first + self._blocks * len(self._aggregators)

    def _get_block(self, number: int) -> tuple[NDArray[np.uint8], int, int]:
        """A block with zeros behind what is there, the length of that, and its version."""
        block = np.zeros(self._block, np.uint8)
        self.counts["blocks_got"] += 1
        key = (self._dataset, number)
        try:
            length = self._stage.get_into(key, memoryview(block))
            return block, length, self._stage.stat(key).version if self._mode == "w" else 0
        except BlockNotFoundError:
            return block, 0, 0

    def _put_block(self, number: int, block: NDArray[np.uint8], covered: NDArray[np.bool_]) -> None:
        """Puts what was written of a block: all of it, or into what is there."""
        length, version = int(covered.size - covered[::-1].argmax()), 0
        if not covered.all():
            old, before, version = self._get_block(number)
            length = max(length, before)
            block = np.where(covered, block, old)
        for _ in range(2):
            # Clocks of nodes differ, and the versions of a block only grow.
            self._version = max(time.time_ns(), self._version + 1, version + 1)
            try:
                self._stage.put((self._dataset, number), memoryview(block[:length]), version=self._version, **self._put)
            except StagingError as error:
                if error.code != "old_version" or error.number < self._version:
                    raise
                version = error.number
            else:
                break
        else:
            raise ValueError(f"block {number} of {self._dataset} is put by others at the same time")
        self.counts["blocks_put"] += 1

    def close(self) -> None:
        """Closes the file when all ranks have come here."""
        if self._comm != MPI.COMM_NULL:
            self._comm.Barrier()
            self._comm.Free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # After an error of this rank alone, the others may never come.
        if kind is None or isinstance(error, CollectiveError):
            self.close()


class _Call:
    """One call of write_all or read_all."""

    def __init__(self, file: CollectiveFile, memory: NDArray[np.uint8], places: Layout, start: int, end: int) -> None:
        self.file = file
        self.memory = memory
        self.places = places
        self.start = start
        self.end = end
        self.ends: list[tuple[int, int]] = []

    def next_block(self, block: int) -> int:
        """The first block at or behind this one in which this rank has data."""
        at = max(self.start, self.file._view.data_before(block * self.file._block))
        return self.file._view.offset_of(at) // self.file._block if at < self.end else _NOTHING

    def _spans(self, view: Layout, start: int, end: int, number: int, first: int) -> Iterator[tuple[int, int]]:
        """The data of a view in the blocks of an aggregator in this round, block by block."""
        file, count = self.file, len(self.file._aggregators)
        if start >= end:
            return
        low = max(first, view.offset_of(start) // file._block)
        high = min(first + file._blocks * count, view.offset_of(end - 1) // file._block + 1)
        for block in range(low + (number - low) % count, high, count):
            at = max(start, view.data_before(block * file._block))
            until = min(end, view.data_before((block + 1) * file._block))
            if at < until:
                yield at, until

    def _pieces(self, view: Layout, start: int, end: int, number: int, first: int) -> NDArray[np.int64]:
        """Offsets and lengths of the pieces in the blocks of an aggregator in this round."""
        found = [view.pieces(at, until) for at, until in self._spans(view, start, end, number, first)]
        return np.concatenate([np.empty((2, 0), np.int64), *found], axis=1)

    def _data(self, number: int, first: int) -> NDArray[np.int64]:
        """The bytes of memory that this rank has for an aggregator, as their indices."""
        spans = self._spans(self.file._view, self.start, self.end, number, first)
        found = [self.places.indices(at - self.start, until - self.start) for at, until in spans]
        return np.concatenate([np.empty(0, np.int64), *found])

    def _told(self, first: int) -> list[NDArray[np.int64]]:
        """The pieces of each rank for this aggregator: from its view, or as it tells them."""
        file = self.file
        comm, ranks = file._comm, file._aggregators
        number = ranks.index(comm.rank) if comm.rank in ranks else -1
        if file._exchange == "views":
            if number < 0:
                return []
            return [self._pieces(view, *ends, number, first) for view, ends in zip(file._views, self.ends, strict=True)]
        lists: list[Any] = [None] * comm.size
        for a, rank in enumerate(ranks):
            lists[rank] = self._pieces(file._view, self.start, self.end, a, first)
        told = comm.alltoall(lists)
        file.counts["metadata_bytes"] += sum(
            pieces.nbytes for rank, pieces in enumerate(told) if pieces is not None and rank != comm.rank
        )
        return told if number >= 0 else []

    def write_round(self, first: int) -> None:
        """Gathers the data of a round at the aggregators, which put their blocks."""
        file, comm = self.file, self.file._comm
        told = self._told(first)
        sent = []
        for a, rank in enumerate(file._aggregators):
            packed = self.memory[self._data(a, first)]
            if packed.size:
                sent.append(comm.Isend(packed, rank, 1))
        blocks: dict[int, tuple[NDArray[np.uint8], NDArray[np.bool_]]] = {}
        for rank, pieces in enumerate(told):
            size = int(pieces[1].sum())
            if size == 0:
                continue
            packed = np.empty(size, np.uint8)
            _wait(comm.Irecv(packed, rank, 1))
            file.counts["data_bytes"] += size if rank != comm.rank else 0
            for number, at, part in self._by_block(pieces):
                if number not in blocks:
                    blocks[number] = (np.empty(file._block, np.uint8), np.zeros(file._block, np.bool_))
                block, covered = blocks[number]
                block[at], covered[at] = packed[part], True
        for number, (block, covered) in blocks.items():
            try:
                file._put_block(number, block, covered)
            except (StagingError, ValueError) as error:
                file._fail(error)
                break
        _wait(*sent)

    def _by_block(self, pieces: NDArray[np.int64]) -> list[tuple[int, Any, slice]]:
        """For each block of pieces: its number, the places in it, and their part of the data."""
        size = self.file._block
        numbers, starts = pieces[0] // size, np.concatenate([[0], np.cumsum(pieces[1])])
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1), numbers.size]
        found: list[tuple[int, Any, slice]] = []
        for low, high in pairwise(cuts):
            places = Layout(pieces[0][low:high] % size, pieces[1][low:high], 0, 0).indices_of_all()
            found.append((int(numbers[low]), places, slice(int(starts[low]), int(starts[high]))))
        return found

    def read_round(self, first: int) -> None:
        """Asks the aggregators for the data of a round."""
        file, comm = self.file, self.file._comm
        told = self._told(first)
        wanted = []
        for a, rank in enumerate(file._aggregators):
            places = self._data(a, first)
            if places.size:
                packed = np.empty(places.size, np.uint8)
                wanted.append((comm.Irecv(packed, rank, 1), places, packed))
                file.counts["data_bytes"] += packed.nbytes if rank != comm.rank else 0
        blocks: dict[int, NDArray[np.uint8]] = {}
        sent = []
        for rank, pieces in enumerate(told):
            size = int(pieces[1].sum())
            if size == 0:
                continue
            packed = np.empty(size, np.uint8)
            for number, at, part in self._by_block(pieces):
                if number not in blocks:
                    blocks[number] = self._read_block(number)
                packed[part] = blocks[number][at]
            sent.append(comm.Isend(packed, rank, 1))
        for request, places, packed in wanted:
            _wait(request)
            self.memory[places] = packed
        _wait(*sent)

    def _read_block(self, number: int) -> NDArray[np.uint8]:
        try:
            return self.file._get_block(number)[0]
        except StagingError as error:
            self.file._fail(error)
            return np.zeros(self.file._block, np.uint8)
