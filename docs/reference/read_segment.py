#!/usr/bin/env python3
"""Reads a barograph segment with nothing but the standard library.

    read_segment.py SEGMENT          the newest sample of every stream, one JSON object a line
    read_segment.py SEGMENT NAME     what the rings of the streams of that name hold

Written from segment-format.md alone; it shares no code with barograph.
"""

import json
import mmap
import os
import stat
import struct
import sys
import threading
from dataclasses import dataclass

HEADER_BYTES, LINE_BYTES, DESCRIPTOR_BYTES = 4096, 64, 1024
CELL_BYTES, TEXT_SLOT_BYTES, TEXT_BYTES_MAX = 24, 128, 126
STREAMS_MAX = DEPTH_MAX = 1 << 20
COUNT_MASK = (1 << 48) - 1
# A string's slots have 128 bytes (4), or the size that its descriptor says (5).
STRING, LONG_STRING = 4, 5
TYPES = {
    1: "int64",
    2: "float64",
    3: "bool",
    STRING: "string",
    LONG_STRING: "string",
    6: "bytes",
    7: "json",
    8: "floats",
}
SLOT_BYTES_MIN, VALUE_BYTES_MAX, SLOTS_BYTES_MAX = 64, 1 << 16, 1 << 24
KINDS = {1: "gauge", 2: "counter", 3: "state"}
QUALITIES = ["measured", "derived", "predicted", "reconciled", "ended"]
ATTEMPTS_MAX = 10_000


class Corrupt(Exception):
    """The file is not a segment that this program can read."""


class Gone(Exception):
    """The stream has ended: read the directory again."""


@dataclass(frozen=True)
class Stream:
    slot: int
    generation: int
    name: str
    labels: dict
    type: str
    unit: str
    kind: str
    help: str
    series: str
    depth: int
    ring_at: int
    text_at: int
    slot_bytes: int  # 0 of numbers
    is_long: bool  # the length of a value is in its cell's value word


@dataclass(frozen=True)
class Sample:
    ts: int
    value: object
    quality: str
    error: float
    count: int  # its number
    looked: int  # until when it is known to have held


_lock = threading.Lock()


def _fence():
    """Python has no fences. x86-64 does not reorder loads; elsewhere a lock released and taken keeps
    the loads before it before those after it."""
    for _ in range(2):
        with _lock:
            pass


class Segment:
    """A segment, mapped read-only."""

    def __init__(self, path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(fd)
            size = status.st_size
            if not stat.S_ISREG(status.st_mode) or size < HEADER_BYTES or size % 8:
                raise Corrupt("no room for a header")
            self.memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        finally:
            os.close(fd)
        # Aligned words, each loaded at once; `struct` on a buffer promises no such thing.
        self.words = memoryview(self.memory).cast("Q")
        self._check(size)

    def _check(self, size):
        if self._bytes(0, 8) != b"BAROSEG\0":
            raise Corrupt("it does not start with BAROSEG")
        if self._halves(8)[0] != 1:
            raise Corrupt("segment format %d.%d, this program reads 1.x" % self._halves(8))
        self.slots_max, descriptor_bytes = self._halves(128)
        sizes = (*self._halves(16), descriptor_bytes, *self._halves(160), self._word(24))
        if sizes != (0x01020304, HEADER_BYTES, DESCRIPTOR_BYTES, CELL_BYTES, TEXT_SLOT_BYTES, size):
            raise Corrupt("its sizes are not those of this version")
        self.descriptors_at, self.lines_at = self._word(136), self._word(144)
        self.rings_at = self._word(152)
        if not 1 <= self.slots_max <= STREAMS_MAX or not HEADER_BYTES <= self.rings_at <= size:
            raise Corrupt("its directory lies outside of it")
        for at, each in (self.descriptors_at, DESCRIPTOR_BYTES), (self.lines_at, LINE_BYTES):
            if at < HEADER_BYTES or at % 8 or at + self.slots_max * each > size:
                raise Corrupt("its directory lies outside of it")

    def _word(self, at):
        return self.words[at // 8]

    def _halves(self, at):
        word = self._word(at)
        return word & 0xFFFFFFFF, word >> 32

    def _bytes(self, at, length):
        words = self.words[at // 8 : (at + length + 7) // 8]
        return struct.pack("<%dQ" % len(words), *words)[:length]

    def streams(self):
        """The streams as they are now."""
        used = min(self._word(88), self.slots_max)
        found = (self._stream(slot) for slot in range(used))
        return [stream for stream in found if stream]

    def _stream(self, slot):
        at = self.descriptors_at + slot * DESCRIPTOR_BYTES
        before = self._word(at)
        copy = self._bytes(at, DESCRIPTOR_BYTES)
        _fence()
        state, generation = before & 0xFFFFFFFF, before >> 32
        if self._word(at) != before or state != 1 or not 1 <= generation <= 0xFFFF:
            return None
        ring_at, text_at, depth = struct.unpack_from("<QQI", copy, 32)
        type_code, kind, name_bytes, unit_bytes = copy[52:56]
        labels_bytes, _, help_bytes, slot_bytes = struct.unpack_from("<HBBI", copy, 56)
        is_long = type_code > STRING
        if not is_long:
            slot_bytes = TEXT_SLOT_BYTES if type_code == STRING else 0
        if type_code not in TYPES or kind not in KINDS or not 2 <= depth <= DEPTH_MAX:
            return None
        if name_bytes > 120 or unit_bytes > 30 or labels_bytes > 510 or help_bytes > 222:
            return None
        if is_long and not (
            SLOT_BYTES_MIN <= slot_bytes <= VALUE_BYTES_MAX
            and slot_bytes % 8 == 0
            and slot_bytes * depth <= SLOTS_BYTES_MAX
        ):
            return None
        areas = [(ring_at, CELL_BYTES)] + [(text_at, slot_bytes)] * (slot_bytes > 0)
        for area_at, each in areas:
            end = area_at + depth * each
            if area_at < self.rings_at or area_at % 8 or end > len(self.memory):
                return None
        try:
            return Stream(
                slot=slot,
                generation=generation,
                name=copy[96 : 96 + name_bytes].decode(),
                labels=_labels(copy[512 : 512 + labels_bytes]),
                type=TYPES[type_code],
                unit=copy[216 : 216 + unit_bytes].decode(),
                kind=KINDS[kind],
                help=copy[248 : 248 + help_bytes].decode(),
                series=copy[16:32].hex(),
                depth=depth,
                ring_at=ring_at,
                text_at=text_at,
                slot_bytes=slot_bytes,
                is_long=is_long,
            )
        except ValueError:  # Not UTF-8, or labels that do not add up.
            return None

    def _count(self, stream):
        sequence = self._word(self.lines_at + stream.slot * LINE_BYTES)
        if sequence >> 48 != stream.generation:
            raise Gone(stream.name)
        return sequence & COUNT_MASK

    def _cell(self, stream, at, number):
        """Copies the cell at `at`, which is sample `number`, with what is in its slot."""
        cell = self.words[at // 8 : at // 8 + 3].tolist()
        text = None
        if stream.slot_bytes:
            length = min(cell[2] >> 40 & 0xFF, TEXT_BYTES_MAX)
            if stream.is_long:
                length = min(cell[1], stream.slot_bytes)
            slot = (number - 1) % stream.depth
            text = self._bytes(stream.text_at + slot * stream.slot_bytes, length)
        return number, cell, text

    def latest(self, stream):
        """The newest sample, or None when there is none yet."""
        line_at = self.lines_at + stream.slot * LINE_BYTES
        for _ in range(ATTEMPTS_MAX):
            count = self._count(stream)
            if count == 0:
                return None
            copy = self._cell(stream, line_at + 16 + count % 2 * CELL_BYTES, count)
            looked = self._word(line_at + 8)
            _fence()
            # The count is the same, so cell, look and text are whole (a ring holds two or more).
            if self._count(stream) == count:
                return _sample(stream, copy, looked)
        # A writer at full speed: take what its ring surely holds.
        samples, _, _ = self.ring(stream, max(0, self._count(stream) - stream.depth // 2))
        return samples[-1] if samples else None

    def ring(self, stream, cursor=0):
        """The samples after number `cursor` that the ring still holds, the cursor for the next
        call, and how many samples in between were lost."""
        count = self._count(stream)
        if cursor >= count:
            return [], count, 0
        copies = []
        # A mirror may begin in the middle of a stream's life.
        begun = self._word(self.descriptors_at + stream.slot * DESCRIPTOR_BYTES + 72)
        oldest = max(min(begun, count), count + 2 - stream.depth)
        for number in range(max(cursor + 1, oldest), count + 1):
            at = stream.ring_at + (number - 1) % stream.depth * CELL_BYTES
            copies.append(self._cell(stream, at, number))
        _fence()
        whole = self._count(stream) + 2 - stream.depth
        copies = [copy for copy in copies if copy[0] >= whole]
        first = copies[0][0] if copies else count + 1
        return [_sample(stream, copy, 0) for copy in copies], count, first - cursor - 1


def _labels(encoded):
    labels, at = {}, 0
    while at < len(encoded):
        if at + 2 > len(encoded):
            raise ValueError("half a label")
        middle = at + 2 + encoded[at]
        end = middle + encoded[at + 1]
        if end > len(encoded):
            raise ValueError("half a label")
        labels[encoded[at + 2 : middle].decode()] = encoded[middle:end].decode()
        at = end
    return labels


def _sample(stream, copy, looked):
    number, (ts, bits, meta), text = copy
    raw = struct.pack("<QQQ", ts, bits, meta)
    ts, as_int, error, quality = struct.unpack("<qqfB3x", raw)
    if stream.type == "int64":
        value = as_int
    elif stream.type == "float64":
        (value,) = struct.unpack_from("<d", raw, 8)
    elif stream.type == "bool":
        value = bits != 0
    elif stream.type == "bytes":
        value = text
    elif stream.type == "floats":
        value = struct.unpack("<%dd" % (len(text) // 8), text[: len(text) // 8 * 8])
    else:
        value = _text(text)
    (looked,) = struct.unpack("<q", struct.pack("<Q", looked))
    return Sample(ts, value, QUALITIES[quality if quality < len(QUALITIES) else 3], error, number, max(ts, looked))


def _text(encoded):
    try:
        return encoded.decode()
    except ValueError:
        return None


def _number(value, digits):
    """All digits of a float, as C's printf writes them; null for what JSON cannot say."""
    return "null" if value - value != 0 else format(value, ".%dg" % digits)


def line(stream, sample):
    """One JSON object."""
    def text(value):
        return json.dumps(value, ensure_ascii=False)

    labels = ",".join(text(name) + ":" + text(value) for name, value in stream.labels.items())
    if stream.type == "float64":
        value = _number(sample.value, 17)
    elif stream.type == "floats":
        value = "[" + ",".join(_number(each, 17) for each in sample.value) + "]"
    elif stream.type == "bytes":
        value = text(sample.value.hex())
    else:
        value = text(sample.value)
    return (
        f'{{"name":{text(stream.name)},"labels":{{{labels}}},"type":"{stream.type}",'
        f'"unit":{text(stream.unit)},"kind":"{stream.kind}","series":"{stream.series}",'
        f'"ts":{sample.ts},"value":{value},"quality":"{sample.quality}",'
        f'"error":{_number(sample.error, 9)},"count":{sample.count},"looked_ts":{sample.looked}}}'
    )


def main(arguments):
    if len(arguments) not in (2, 3):
        sys.exit("usage: read_segment.py SEGMENT [NAME]")
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        segment = Segment(arguments[1])
    except (Corrupt, OSError) as reason:
        sys.exit(f"{arguments[1]}: {reason}")
    for stream in segment.streams():
        try:
            if len(arguments) == 2:
                newest = segment.latest(stream)
                samples = [newest] if newest else []
            elif stream.name == arguments[2]:
                samples, _, _ = segment.ring(stream)
            else:
                samples = []
        except Gone:
            continue
        for sample in samples:
            print(line(stream, sample))


if __name__ == "__main__":
    main(sys.argv)
