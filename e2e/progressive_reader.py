"""A reader of packed arrays, written after docs/reference/progressive-format.md alone: it shares no code with
barograph. It is slow, reads whole arrays, and is for tests, and for who wants to see the format work."""

from __future__ import annotations

import itertools
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

# By the number of axes that are longer than 1.
BLOCK_SIDES = [[], [1 << 18], [512, 512], [64, 64, 64], [32, 32, 16, 16]]
TILE_SIDES = [[], [64], [8, 8], [4, 4, 4], [2, 2, 4, 4]]
# Steps of lifting with their weights, and the factors of even and of odd values.
LINEAR = ([("odd", -0.5)], 2**0.5, 1.0)
CUBIC = ([("cubic", 0.0)], 2**0.5, 1.0)
WAVELET = (
    [
        ("odd", -1.586134342059924),
        ("even", -0.052980118572961),
        ("odd", 0.882911075530934),
        ("even", 0.443506852043971),
    ],
    1.149604398860241,
    0.869864451624781,
)
BASES = [LINEAR, CUBIC, WAVELET]


def bytes_of(path: Path) -> bytes:
    """The bytes of a packed file, which lies in one piece or over several tiers."""
    data = path.read_bytes()
    if not data.startswith(b"{"):
        return data
    index = json.loads(data)
    assert (index["format"], index["version"]) == ("barograph array in parts", 1)
    parts = []
    for part in index["parts"]:
        cursor = Cursor((path.parent / part["file"]).read_bytes())
        assert cursor.take(8) == b"BAROPART"
        assert (cursor.number("I"), cursor.number("I")) == (1, 0)
        assert (cursor.take(16).hex(), cursor.number("Q")) == (part["id"], part["bytes"])
        assert cursor.take(20) == bytes(20)
        assert cursor.number("I") == zlib.crc32(cursor.data[:60])
        assert len(cursor.data) == 64 + part["bytes"]
        parts.append(cursor)
    return b"".join(parts[part].take(count) for count, part in index["extents"])


class Cursor:
    """Bytes that are read from the beginning."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, count: int) -> bytes:
        self.at += count
        assert self.at <= len(self.data), "the data is cut short"
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def leb128(self) -> int:
        number = 0
        for shift in itertools.count(0, 7):
            byte = self.number("B")
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise AssertionError


def zstd(data: bytes, size: int) -> bytes:
    """A frame of zstd that has exactly this many bytes."""
    return pyarrow.decompress(data, decompressed_size=size, codec="zstd", asbytes=True)


class Array:
    """The header of an array that begins at a place of a file."""

    def __init__(self, data: bytes, start: int = 0) -> None:
        cursor = Cursor(data, start)
        assert cursor.take(8) == b"BAROPROG"
        version = cursor.number("H")
        assert version in (1, 2)
        count, length = cursor.number("H"), cursor.number("I")
        checked, checksum = data[start : start + length - 4], data[start + length - 4 : start + length]
        assert zlib.crc32(checked) == struct.unpack("<I", checksum)[0]
        size, basis, axes, flags = (cursor.number("B") for _ in range(4))
        self.dtype, self.basis = np.dtype(f"<f{size}"), BASES[basis]
        self.is_exact, self.on_mesh = bool(flags & 1), bool(flags & 16)
        assert version == (2 if self.on_mesh else 1)
        self.exponent, self.highest = cursor.number("h"), cursor.number("h")
        self.least, self.most = cursor.number("d"), cursor.number("d")
        self.dims = [cursor.leb128() for _ in range(axes)]
        self.missing = cursor.leb128()
        self.grid = cursor.number("h") if flags & 4 else None
        self.fill = cursor.number("Q") if flags & 2 else None
        self.step = cursor.leb128() if flags & 8 else None
        self.name = cursor.take(cursor.number("B")).decode()
        self.buckets = []
        for _ in range(count):
            bytes_, steps, crc = cursor.leb128(), cursor.leb128(), cursor.number("I")
            self.buckets.append((bytes_, steps, crc, self.error(cursor.number("H")), self.error(cursor.number("H"))))
        assert cursor.at == start + length - 4
        self.data, self.start = data, start + length
        self.end = self.start + sum(bucket[0] for bucket in self.buckets)

    def error(self, code: int) -> float:
        if code in (0, 65535):
            return 0.0 if code == 0 else float("inf")
        return float(2.0 ** (code // 512 - 64 + self.exponent) * (1 + code % 512 / 512))

    def read(self, count: int) -> np.ndarray:
        """The values as the first buckets have them."""
        long = [axis for axis, length in enumerate(self.dims) if length > 1]
        blocks = list(blocks_of(self.dims, long))
        states = [Block(self, [stop - start for start, stop in block], long) for block in blocks]
        cursor, step = Cursor(self.data, self.start), 0
        for at, (length, steps, crc, *_) in enumerate(self.buckets[:count]):
            bucket = Cursor(cursor.take(length))
            assert zlib.crc32(bucket.data) == crc, f"bucket {at}"
            is_last = self.is_exact and at + 1 == len(self.buckets)
            pieces = 1 if is_last else 5 if at == 0 else 4
            index = Cursor(bucket.take(bucket.number("I")))
            lengths = [[index.leb128() for _ in range(pieces)] for _ in states]
            for state, own in zip(states, lengths, strict=True):
                parts = [bucket.take(length) for length in own]
                if is_last:
                    state.exact(parts[0])
                    continue
                if at == 0:
                    state.head(parts.pop(0))
                for group, part in zip(state.groups, parts, strict=True):
                    group.read(range(step, step + steps), part)
            assert bucket.at == length
            step += steps
        values = np.zeros(self.dims, self.dtype)
        for block, state in zip(blocks, states, strict=True):
            values[tuple(slice(*pair) for pair in block)] = state.values()
        return values


def arrays(data: bytes) -> list[Array]:
    """All arrays of a file."""
    found, at = [], 0
    while at < len(data):
        found.append(Array(data, at))
        at = found[-1].end
    return found


def mesh_order(data: bytes) -> np.ndarray:
    """The order of values on the mesh of a file: the number of the point at each place of it."""
    found = {array.name: array for array in arrays(data) if array.step is None}
    axes = [found[name] for name in ("mesh/x", "mesh/y", "mesh/z") if name in found]
    return curve_order(np.stack([array.read(len(array.buckets)) for array in axes], axis=1).astype("f8"))


def curve_order(points: np.ndarray) -> np.ndarray:
    """The order of points along the curve."""
    axes = points.shape[1]
    bits = {2: 31, 3: 21}[axes]
    low = points.min(axis=0) / 2
    width = (points.max(axis=0) / 2 - low).max()
    share = (points / 2 - low) / width if width > 0 else np.zeros(points.shape)
    q = list((share * (2.0**bits - 1)).astype(np.int64).T)
    for bit in reversed(range(1, bits)):
        below = (1 << bit) - 1
        for axis in range(axes):
            is_set = q[axis] >> bit & 1 == 1
            other = np.where(is_set, 0, (q[0] ^ q[axis]) & below)
            q[axis] = q[axis] ^ other
            q[0] = np.where(is_set, q[0] ^ below, q[0] ^ other if axis else q[0])
    for axis in range(1, axes):
        q[axis] = q[axis] ^ q[axis - 1]
    turned = np.zeros(len(points), np.int64)
    for bit in reversed(range(1, bits)):
        turned ^= np.where(q[-1] >> bit & 1 == 1, (1 << bit) - 1, 0)
    key = np.zeros(len(points), np.int64)
    for bit in reversed(range(bits)):
        for number in q:
            key = key << 1 | ((number ^ turned) >> bit & 1)
    return np.argsort(key, kind="stable")


def blocks_of(dims: list[int], long: list[int]) -> Iterator[list[tuple[int, int]]]:
    """The blocks in C order, as pairs of start and end of each axis."""
    sides = dict(zip(long, BLOCK_SIDES[len(long)], strict=True))
    pairs = []
    for axis, n in enumerate(dims):
        k = -(-n // sides.get(axis, 1))
        pairs.append([(i * n // k, (i + 1) * n // k) for i in range(k)])
    return (list(block) for block in itertools.product(*pairs))


class Block:
    """A block that is being read."""

    def __init__(self, array: Array, dims: list[int], long: list[int]) -> None:
        self.array, self.dims = array, dims
        self.sizes = [dims]
        while any(n >= 8 for n in self.sizes[-1]):
            self.sizes.append([-(-n // 2) if n >= 8 else n for n in self.sizes[-1]])
        last = len(self.sizes) - 1
        groups = [range(min(group, last), min(group + 1, last)) for group in range(3)]
        groups.append(range(min(3, last), last + 1))
        self.groups = [Group(array, [band for level in group for band in self.bands(level)], long) for group in groups]
        self.middle, self.gone, self.exactly = 0.0, None, None

    def bands(self, level: int) -> Iterator[list[tuple[int, int]]]:
        """The boxes of a level's coefficients, as pairs of start and length of each axis."""
        size = self.sizes[level]
        if level + 1 == len(self.sizes):
            yield [(0, n) for n in size]
            return
        low, axes = self.sizes[level + 1], len(size)
        for choice in range(1, 16):
            # Bit a is the axis a of four, of which the last one is the array's last.
            is_odd = [choice >> (4 - axes + axis) & 1 for axis in range(axes)]
            band = [(low[a], size[a] - low[a]) if is_odd[a] else (0, low[a]) for a in range(axes)]
            if choice % (1 << (4 - axes)) == 0 and all(length > 0 for _, length in band):
                yield band

    def head(self, data: bytes) -> None:
        cursor = Cursor(data)
        self.middle = cursor.number("d")
        if cursor.at == len(data):
            return
        count = int(np.prod(self.dims))
        mask = np.frombuffer(zstd(cursor.take(cursor.leb128()), -(-count // 8)), np.uint8)
        places = np.flatnonzero(np.unpackbits(mask, bitorder="little")[:count])
        first, rest = cursor.take(self.array.dtype.itemsize), data[cursor.at :]
        raw = zstd(rest, len(places) * len(first)) if rest else first * len(places)
        self.gone = (places, np.frombuffer(raw, self.array.dtype))

    def composed(self) -> np.ndarray:
        """The values of the block without those that are missing."""
        numbers = np.zeros(self.dims)
        for group in self.groups:
            group.put(numbers)
        steps, even, odd = self.array.basis
        for level in range(len(self.sizes) - 2, -1, -1):
            size, low = self.sizes[level], self.sizes[level + 1]
            for axis in range(len(size)):
                if low[axis] < size[axis]:
                    part = np.moveaxis(numbers[tuple(slice(n) for n in size)], axis, 0)
                    part[...] = undivided(part.copy(), low[axis], steps, even, odd)
        scale = 2.0**self.array.exponent
        values = np.clip((numbers + self.middle) * scale, self.array.least, self.array.most)
        return values.astype(self.array.dtype)

    def values(self) -> np.ndarray:
        values = self.composed() if self.exactly is None else self.exactly
        if self.gone is not None:
            values.reshape(-1)[self.gone[0]] = self.gone[1]
        return values

    def exact(self, data: bytes) -> None:
        """Takes the differences that make a reading exact."""
        values, array = self.values(), self.array
        size, count = array.dtype.itemsize, values.size
        raw = np.frombuffer(zstd(data, size * count), np.uint8).reshape(size, count)
        folded = np.ascontiguousarray(raw.T).view(f"<u{size}").reshape(-1).astype(object)
        differences = [int(it >> 1) ^ -int(it & 1) for it in folded]
        exact = [self.corrected(value, by) for value, by in zip(values.reshape(-1), differences, strict=True)]
        self.exactly = np.array(exact, array.dtype).reshape(values.shape)

    def corrected(self, value: Any, by: int) -> Any:
        array = self.array
        if array.grid is not None:
            times = float(value) * 2.0**-array.grid
            rounded = int(np.sign(times) * np.floor(abs(times) + 0.5))
            return (rounded + by) * 2.0**array.grid
        width = 8 * array.dtype.itemsize
        bits = int(np.array(value, array.dtype).view(f"<u{array.dtype.itemsize}"))
        top, whole = 1 << (width - 1), (1 << width) - 1
        place = ((bits ^ whole if bits & top else bits | top) + by) & whole
        back = place ^ top if place & top else place ^ whole
        return np.array(back, f"<u{array.dtype.itemsize}").view(array.dtype)[()]


def undivided(lines: np.ndarray, low: int, steps: Any, even_factor: float, odd_factor: float) -> np.ndarray:
    """The values of the next finer level along the first axis, of which the first `low` are the even ones."""
    even, odd = lines[:low] * (1.0 / even_factor), lines[low:] * (1.0 / odd_factor)
    for kind, weight in reversed(steps):
        if kind == "cubic":
            odd = cubic(even, odd)
        elif kind == "odd":
            right = even[1 : len(odd) + 1]
            if len(right) < len(odd):
                right = np.concatenate([right, even[-1:]])
            odd = odd + -weight * (even[: len(odd)] + right)
        else:
            left = np.concatenate([odd[:1], odd])[:low]
            right = odd if len(odd) == low else np.concatenate([odd, odd[-1:]])
            even = even + -weight * (left + right)
    joined = np.empty_like(lines)
    joined[0::2], joined[1::2] = even, odd
    return joined


def cubic(even: np.ndarray, odd: np.ndarray) -> np.ndarray:
    """Adds what a cubic through four even places says; a line where one of the four is beyond an end."""
    added = []
    for i, value in enumerate(odd):
        if i == 0 or i + 2 >= len(even):
            added.append(value + 0.5 * (even[i] + even[min(i + 1, len(even) - 1)]))
        else:
            near = value + 9 / 16 * (even[i] + even[i + 1])
            added.append(near + -1 / 16 * (even[i - 1] + even[i + 2]))
    return np.array(added).reshape(odd.shape)


class Probability:
    """The probability of a decision, as it was of late."""

    def __init__(self, share: int) -> None:
        self.fast = self.slow = share

    def share(self) -> int:
        return min(max((self.fast + self.slow) >> 1, 32), 65504)

    def learn(self, decision: bool) -> None:
        if decision:
            self.fast -= self.fast >> 4
            self.slow -= self.slow >> 7
        else:
            self.fast += (65535 - self.fast) >> 4
            self.slow += (65535 - self.slow) >> 7

    def copy(self) -> Probability:
        other = Probability(0)
        other.fast, other.slow = self.fast, self.slow
        return other


class Decisions:
    """The decisions and the plain bits of a piece."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.range, self.code = data, 0, 0xFFFFFFFF, 0
        self.bits = (byte >> bit & 1 for byte in reversed(data) for bit in range(8))
        for _ in range(4):
            self.shift()

    def shift(self) -> None:
        byte = self.data[self.at] if self.at < len(self.data) else 0
        self.code, self.at = (self.code << 8 | byte) & 0xFFFFFFFF, self.at + 1

    def get(self, probability: Probability) -> bool:
        bound = (self.range >> 16) * probability.share()
        decision = self.code >= bound
        if decision:
            self.code, self.range = self.code - bound, self.range - bound
        else:
            self.range = bound
        probability.learn(decision)
        while self.range < 1 << 24:
            self.shift()
            self.range = self.range << 8 & 0xFFFFFFFF
        return decision

    def bit(self) -> int:
        return next(self.bits, 0)


class Nothing:
    """The decisions of an empty piece."""

    def get(self, _: Probability) -> bool:
        return False

    def bit(self) -> int:
        raise AssertionError("an empty piece has no plain bits")


class Group:
    """The coefficients of some levels of a block."""

    def __init__(self, array: Array, bands: list[list[tuple[int, int]]], long: list[int]) -> None:
        self.array, self.bands = array, bands
        sides = dict(zip(long, TILE_SIDES[len(long)], strict=True))
        if not long:
            sides = {len(array.dims) - 1: 64}
        self.sides = [sides.get(axis, 1) for axis in range(len(array.dims))]
        self.axes = [axis for axis, side in enumerate(self.sides) if side > 1]
        self.found = [np.zeros([length for _, length in band], bool) for band in bands]
        self.before, self.decided = [it.copy() for it in self.found], [it.copy() for it in self.found]
        self.numbers = [np.zeros(it.shape) for it in self.found]
        self.near = [[Probability(60000 - 4000 * count) for count in range(9)] for _ in range(2)]
        self.tile, self.first = Probability(60000), Probability(64000)

    def contexts(self) -> Any:
        return [[it.copy() for it in row] for row in self.near], self.tile.copy(), self.first.copy()

    def put(self, block: np.ndarray) -> None:
        for band, numbers in zip(self.bands, self.numbers, strict=True):
            block[tuple(slice(start, start + length) for start, length in band)] = numbers

    def read(self, steps: range, piece: bytes) -> None:
        kept, source = self.contexts(), Decisions(piece) if piece else Nothing()
        for step in steps:
            plane, which = self.array.highest - step // 2, step % 2
            for at in range(len(self.bands)):
                if which == 0:
                    self.before[at], self.decided[at] = self.found[at].copy(), np.zeros_like(self.found[at])
                for tile in self.tiles(self.found[at].shape):
                    (self.beside if which == 0 else self.others)(at, tile, 2.0**plane, source)
        if not piece:
            self.near, self.tile, self.first = kept

    def tiles(self, shape: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
        """The places of each tile's coefficients, in C order."""
        starts = [range(0, length, side) for length, side in zip(shape, self.sides, strict=True)]
        for corner in itertools.product(*starts):
            ranges = [range(c, min(c + side, n)) for c, side, n in zip(corner, self.sides, shape, strict=True)]
            yield list(itertools.product(*ranges))

    def neighbours(self, at: int, place: tuple[int, ...]) -> int:
        found, count = self.found[at], 0
        for axis in self.axes:
            for by in (-1, 1):
                beside = list(place)
                beside[axis] += by
                if 0 <= beside[axis] < found.shape[axis]:
                    count += int(found[tuple(beside)])
        return count

    def decide(self, at: int, places: Any, probability: Callable[[int], Probability], unit: float, source: Any) -> None:
        """Decides for each place, with its number of neighbours, whether it becomes significant."""
        new = []
        for place, count in places:
            if source.get(probability(count)):
                self.numbers[at][place] = (-1.5 if source.bit() else 1.5) * unit
                new.append(place)
        # What is found counts for the next tile.
        for place in new:
            self.found[at][place] = True

    def beside(self, at: int, tile: list[tuple[int, ...]], unit: float, source: Any) -> None:
        places = [(place, self.neighbours(at, place)) for place in tile if not self.found[at][place]]
        places = [(place, count) for place, count in places if count > 0]
        for place, _ in places:
            self.decided[at][place] = True
        self.decide(at, places, self.near[0].__getitem__, unit, source)

    def others(self, at: int, tile: list[tuple[int, ...]], unit: float, source: Any) -> None:
        for place in tile:
            if self.before[at][place]:
                is_up = bool(source.bit()) != (self.numbers[at][place] < 0)
                self.numbers[at][place] += 0.5 * unit if is_up else -0.5 * unit
        is_open = lambda place: not self.found[at][place] and not self.decided[at][place]  # noqa: E731
        places = [(place, self.neighbours(at, place)) for place in tile if is_open(place)]
        if not places:
            return
        if any(count > 0 for _, count in places):
            self.decide(at, places, self.near[1].__getitem__, unit, source)
        elif source.get(self.tile):
            self.decide(at, places, lambda _: self.first, unit, source)
