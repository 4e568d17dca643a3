"""Ranks of mpi4py that write and read through staging. Run by test_collectives.py:
`collective_ranks.py DATASET EXCHANGE SERVER...`; rank 0 prints lines of JSON."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

import barograph
import numpy as np
from barograph._mpi_layout import Layout, flatten
from barograph.mpi import CollectiveError, CollectiveFile
from mpi4py import MPI

COMM = MPI.COMM_WORLD
RANK, RANKS = COMM.rank, COMM.size
BLOCK = 4096
SHAPE = (40, 24)
FILE_BYTES = 60_000
# As in collective_steps.c.
ROWS, ROW = 96, 1000


def tell(**line: Any) -> None:
    """A line of JSON from rank 0."""
    if RANK == 0:
        print(json.dumps(line), flush=True)


def random_type(chance: random.Random, depth: int) -> MPI.Datatype:
    if depth == 0:
        return chance.choice([MPI.CHAR, MPI.SHORT, MPI.DOUBLE, MPI.SHORT_INT, MPI.DOUBLE_INT]).Dup()
    inner = random_type(chance, depth - 1)
    n = chance.randrange(1, 4)
    lengths = [chance.randrange(3) for _ in range(n)]
    places = [chance.randrange(9) for _ in range(n)]
    sizes = [chance.randrange(1, 5) for _ in range(n)]
    starts = [chance.randrange(size) for size in sizes]
    parts = [size - start for size, start in zip(sizes, starts, strict=True)]
    order = chance.choice([MPI.ORDER_C, MPI.ORDER_FORTRAN])
    ways = [chance.choice([MPI.DISTRIBUTE_BLOCK, MPI.DISTRIBUTE_CYCLIC]) for _ in range(n)]
    processes = [chance.randrange(1, 3) for _ in range(n)]
    every = [MPI.DISTRIBUTE_DFLT_DARG] * n
    grid = int(np.prod(processes))
    makers: list[Callable[[], MPI.Datatype]] = [
        lambda: inner.Create_contiguous(n),
        lambda: inner.Create_vector(n, 2, 3),
        lambda: inner.Create_hvector(n, 1, 55),
        lambda: inner.Create_indexed(lengths, places),
        lambda: inner.Create_hindexed(lengths, places),
        lambda: inner.Create_indexed_block(2, places),
        lambda: inner.Create_hindexed_block(1, places),
        lambda: MPI.Datatype.Create_struct(lengths, places, [inner] * n),
        lambda: inner.Create_subarray(sizes, parts, starts, order),
        lambda: inner.Create_darray(grid, chance.randrange(grid), sizes, ways, every, processes, order),
        lambda: inner.Create_resized(0, max(0, inner.extent) + 8),
    ]
    return chance.choice(makers)()


def datatypes() -> None:
    """Random datatypes have the data that MPI sends."""
    chance = random.Random(RANK)
    compared = 0
    for seed in range(150):
        datatype = random_type(chance, chance.randrange(1, 4)).Commit()
        memory = np.random.default_rng(seed).integers(0, 256, 1 << 16, np.uint8)
        packed = np.zeros(datatype.size, np.uint8)
        low, extent = datatype.true_lb, datatype.true_extent
        if low < 0 or low + extent > memory.size:
            continue
        MPI.COMM_SELF.Sendrecv([memory, 1, datatype], 0, recvbuf=[packed, MPI.BYTE])
        offsets, lengths = flatten(datatype)
        ours = memory[Layout(offsets, lengths, 0, 0).indices_of_all()] if offsets.size else packed[:0]
        assert ours.tobytes() == packed.tobytes(), (RANK, seed, datatype.decode())
        compared += 1
        layout = Layout(offsets, lengths, datatype.extent, 5)
        if layout.size:
            # Any part of some repetitions, as if they were written out.
            whole = np.concatenate([layout.indices_of_all() + 5 + n * layout.extent for n in range(4)])
            start = chance.randrange(whole.size)
            end = chance.randrange(start, whole.size) + 1
            assert (layout.indices(start, end) == whole[start:end]).all(), (RANK, seed, start, end)
            assert layout.offset_of(start) == whole[start]
    tell(scenario="datatypes", compared=compared)


def place_of(rank: int) -> tuple[slice, slice]:
    """The part of a rank of the field."""
    wide = SHAPE[1] // (RANKS // 2)
    return slice(rank % 2 * 20, rank % 2 * 20 + 20), slice(rank // 2 * wide, (rank // 2 + 1) * wide)


def values_of(rank: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    rows, columns = place_of(rank)
    return np.random.default_rng(rank).random((rows.stop - rows.start, columns.stop - columns.start))


def expected_bytes() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The file after steps 0 and 2, of which rank 0 has written nothing in the second."""
    fields = np.zeros((3, *SHAPE))
    for step in (0, 2):
        for rank in range(RANKS):
            if rank or step == 0:
                fields[step][place_of(rank)] = values_of(rank)
    whole = np.zeros(FILE_BYTES, np.uint8)
    whole[100 : 100 + fields.nbytes] = fields.reshape(-1).view(np.uint8)
    return whole


def field(dataset: str, exchange: Any, stage: barograph.StagingClient) -> None:
    """A field in two dimensions, with steps and holes, read back by columns."""
    shape, expected, (top, left) = SHAPE, expected_bytes(), place_of(RANK)
    memory = values_of(RANK)
    mine = MPI.DOUBLE.Create_subarray(shape, memory.shape, (top.start, left.start)).Commit()
    settings: dict[str, Any] = {"block_bytes": BLOCK, "buffer_bytes": 2 * BLOCK, "aggregators": 2, "exchange": exchange}
    with CollectiveFile(COMM, stage, f"{dataset}/field", "w", **settings) as file:
        file.set_view(100, MPI.DOUBLE, mine)
        for step in (0, 2):
            file.write_all(memory if RANK or step == 0 else None, step * memory.size)
        file.set_view(0, MPI.BYTE, MPI.BYTE)
        read = np.full(FILE_BYTES, 7, np.uint8)
        file.read_all(read)
        whole = bool((read == expected).all())
        # By columns, into every second number in memory.
        columns = MPI.DOUBLE.Create_subarray(shape, (40, 24 // RANKS), (0, RANK * (24 // RANKS))).Commit()
        file.set_view(100, MPI.DOUBLE, columns)
        count = 40 * (24 // RANKS)
        gaps = MPI.DOUBLE.Create_vector(count, 1, 2).Commit()
        spread = np.zeros(2 * count)
        file.read_all(spread, datatype=gaps)
        numbers = expected[100 : 100 + 40 * 24 * 8].view(np.float64).reshape(shape)
        by_columns = numbers[:, RANK * (24 // RANKS) : (RANK + 1) * (24 // RANKS)].ravel()
        same = whole and bool((spread[::2] == by_columns).all() and not spread[1::2].any())
        counts = {name: COMM.allreduce(count) for name, count in file.counts.items()}
    tell(scenario="field", same=COMM.allreduce(same, MPI.MIN), **counts)


def rows(dataset: str, exchange: Any, stage: barograph.StagingClient) -> None:
    """Writes what collective_steps.c reads as step 5, after it has read what that wrote as step 4."""

    def of_step(step: int) -> Any:
        row, at = np.meshgrid(np.arange(ROWS), np.arange(ROW), indexing="ij")
        return (step * 37 + (row * RANKS + RANK) * 11 + at).astype(np.uint8)

    mine = MPI.BYTE.Create_vector(ROWS, ROW, RANKS * ROW).Commit()
    with CollectiveFile(COMM, stage, dataset, "w", exchange=exchange) as file:
        file.set_view(RANK * ROW, MPI.BYTE, mine)
        read = np.zeros((ROWS, ROW), np.uint8)
        file.read_all(read)
        same = bool((read == of_step(4)).all())
        file.write_all(of_step(5))
    tell(scenario="rows", same=COMM.allreduce(same, MPI.MIN))


def refused(dataset: str, exchange: Any, stage: barograph.StagingClient) -> None:
    """What fails on one rank is the same error on all, and the file goes on."""

    def error_of(act: Callable[[], object]) -> str:
        try:
            act()
        except CollectiveError as error:
            texts = COMM.allgather(f"{error.code}: {error}")
            return texts[0] if len(set(texts)) == 1 else f"not the same: {texts}"
        return "none"

    nowhere = barograph.StagingClient(["/nowhere/at/all.sock"])
    errors = [error_of(lambda: CollectiveFile(COMM, stage, f"{dataset}/none"))]
    with CollectiveFile(COMM, stage, f"{dataset}/refused", "w", exchange=exchange) as file:
        down = MPI.INT.Create_indexed([1, 1], [4, 0]).Commit()
        errors.append(error_of(lambda: file.set_view(0, MPI.INT, down if RANK == 2 else MPI.INT)))
        errors.append(error_of(lambda: file.write_all(None if RANK else b"abc", -1)))
        errors.append(error_of(lambda: file.read_all(b"abc" if RANK == 1 else None)))
        file.write_all(bytes([RANK]), RANK)
        read = np.zeros(RANKS, np.uint8)
        file.read_all(read)
        assert read.tolist() == list(range(RANKS))
        # Memory of any type, without a name in C's formats.
        file.write_all(np.array([RANK + 1j]), 100 + 16 * RANK)
        complexes = np.zeros(RANKS, np.complex128)
        file.read_all(complexes, 100)
        assert complexes.tolist() == [rank + 1j for rank in range(RANKS)]
    servers = stage if RANK != 1 else nowhere
    every: dict[str, Any] = {"exchange": exchange, "block_bytes": 64, "aggregators": RANKS}
    with CollectiveFile(COMM, servers, f"{dataset}/nowhere", "w", **every) as file:
        file.set_view(64 * RANK, MPI.BYTE, MPI.BYTE)
        errors.append(error_of(lambda: file.write_all(bytes(64))))
        errors.append(error_of(lambda: file.read_all(bytearray(64))))
    tell(scenario="refused", errors=errors)


def main() -> None:
    dataset, exchange, *servers = sys.argv[1:]
    stage = barograph.StagingClient(servers, replicas=2)
    datatypes()
    field(dataset, exchange, stage)
    rows(f"{dataset}/rows", exchange, stage)
    refused(dataset, exchange, stage)


main()
