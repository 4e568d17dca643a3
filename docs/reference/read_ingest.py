#!/usr/bin/env python3
"""Reads a barograph ingest file with nothing but the standard library.

    read_ingest.py FILE                what is declared and committed, one JSON object a line
    read_ingest.py FILE POSITION...    the same, each ring from this position instead of its tail

Written from ingest-format.md alone; it shares no code with barograph. It changes nothing in the file.
"""

import json
import os
import stat
import struct
import sys
import threading

HEADER_BYTES, HEAD_BYTES, RECORD_BYTES, PIECE_BYTES = 4096, 256, 24, 16
DECLARATIONS_BYTES, DECLARATION_BYTES_MAX, BLOB_BYTES_MAX = 1 << 20, 16 << 10, 64 << 10
CELLS_AT, CELLS_MAX = 512, 192
CELL_USES = ["sum", "maximum", "state", "clock"]
RINGS_MAX, RING_RECORDS_MIN, RING_RECORDS_MAX = 1024, 256, 1 << 26
READERS = ["owner", "group", "all"]
TYPES = {
    1: "int64",
    2: "float64",
    3: "bool",
    4: "string",
    6: "bytes",
    7: "json",
    8: "floats",
}
KINDS = {1: "gauge", 2: "counter", 3: "state"}
INT, FLOAT, BOOL, TEXT, FRAME, BYTES, JSON, FLOATS, ACK, PIECE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 15
LONG = {TEXT: "text", BYTES: "bytes", JSON: "json", FLOATS: "floats"}


class Corrupt(Exception):
    """The file is not an ingest file that this program can read."""


_lock = threading.Lock()


def _fence():
    """Python has no fences. x86-64 does not reorder loads; elsewhere a lock released and taken keeps
    the loads before it before those after it."""
    for _ in range(2):
        with _lock:
            pass


def _page(length):
    return (length + 4095) // 4096 * 4096


class IngestFile:
    """An ingest file, read with pread and never mapped."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        status = os.fstat(self.fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size < HEADER_BYTES:
            raise Corrupt("no room for a header")
        header = self._read(0, 256)
        if header[:8] != b"BAROING\0":
            raise Corrupt("it does not start with BAROING")
        version = struct.unpack_from("<II", header, 8)
        if version[0] != 1:
            raise Corrupt("ingest format %d.%d, this program reads 1.x" % version)
        order, header_bytes, file_bytes = struct.unpack_from("<IIQ", header, 16)
        self.created, self.pid, self.start_ticks = struct.unpack_from("<qQQ", header, 48)
        self.time_source = struct.unpack_from("<Q", header, 80)[0]
        places = struct.unpack_from("<QQQQ", header, 96)
        self.rings_at, self.ring_records = struct.unpack_from("<QQ", header, 136)
        self.incarnation = header[32:48].hex()
        (self.cells_max,) = struct.unpack_from("<Q", header, 176)
        if self.cells_max > CELLS_MAX:
            raise Corrupt("it has more cells than there can be")
        self.declarations_at, _, _, self.rings_max = places
        if (order, header_bytes) != (0x01020304, HEADER_BYTES):
            raise Corrupt("its byte order or header is another")
        if not 1 <= self.rings_max <= RINGS_MAX or self.ring_records & (self.ring_records - 1):
            raise Corrupt("its rings are of an impossible number or size")
        if not RING_RECORDS_MIN <= self.ring_records <= RING_RECORDS_MAX:
            raise Corrupt("its rings are of an impossible number or size")
        declarations_at = _page(HEADER_BYTES + self.rings_max * HEAD_BYTES)
        rings_at = declarations_at + DECLARATIONS_BYTES
        self.ring_bytes = _page(self.ring_records * RECORD_BYTES)
        if places[:3] != (declarations_at, DECLARATIONS_BYTES, HEADER_BYTES):
            raise Corrupt("its parts are not where they belong")
        length = rings_at + self.rings_max * self.ring_bytes
        if self.rings_at != rings_at or file_bytes != length or status.st_size < length:
            raise Corrupt("its parts are not where they belong")
        if self.time_source not in (1, 2):
            raise Corrupt("its clock is none that is known")

    def _read(self, at, length):
        """All of it, and before whatever is read next."""
        found = bytearray()
        while len(found) < length:
            part = os.pread(self.fd, length - len(found), at + len(found))
            if not part:
                raise Corrupt("it is cut short")
            found += part
        _fence()
        return bytes(found)

    def _word(self, at):
        return struct.unpack("<Q", self._read(at, 8))[0]

    def look(self):
        """Bytes of declarations, and for each used ring position and end of what is committed."""
        used = min(self._word(128), self.rings_max)
        heads = [self._read(HEADER_BYTES + ring * HEAD_BYTES, HEAD_BYTES) for ring in range(used)]
        rings = []
        for head in heads:
            committed, tail = struct.unpack_from("<Q120xQ", head)
            rings.append((min(tail, committed), committed))
        # After the heads: whatever they say is committed was declared before.
        return min(self._word(88), DECLARATIONS_BYTES), rings

    def cells(self):
        """Every cell as it is now."""
        return struct.unpack("<%dQ" % self.cells_max, self._read(CELLS_AT, self.cells_max * 8))

    def declarations(self, declared):
        """What is declared: publications and values are numbered, each from 0."""
        rest = self._read(self.declarations_at, declared)
        publications = values = 0
        while rest:
            if len(rest) < 8:
                raise Corrupt("half a declaration")
            length, kind = struct.unpack_from("<II", rest)
            if not 8 <= length <= min(DECLARATION_BYTES_MAX, len(rest)) or length % 8:
                raise Corrupt("the length of a declaration is impossible")
            body, rest = _Fields(rest[8:length]), rest[length:]
            number = {2: publications, 3: values}.get(kind)
            publications, values = publications + (kind == 2), values + (kind == 3)
            try:
                found = _declaration(kind, number, body)
            except ValueError:  # It has its number all the same.
                continue
            if found:
                yield found

    def records(self, ring, position, committed):
        """The committed records of a ring, and how many places of it were lost."""
        start = max(position, committed - self.ring_records)
        first = start % self.ring_records
        ring_at = self.rings_at + ring * self.ring_bytes
        straight = min(self.ring_records - first, committed - start)
        copy = self._read(ring_at + first * RECORD_BYTES, straight * RECORD_BYTES)
        copy += self._read(ring_at, (committed - start - straight) * RECORD_BYTES)
        reserved = self._word(HEADER_BYTES + ring * HEAD_BYTES + 8)
        at = min(max(start, reserved - self.ring_records), committed)
        lost, is_in_gap = at - position, at > position
        found, damaged = [], 0
        while at < committed:
            word, time, payload = struct.unpack_from("<QQQ", copy, (at - start) * RECORD_BYTES)
            kind, series = word >> 24 & 0xFF, word & 0xFFFFFF
            at += 1
            if word >> 32 != (at - 1) & 0xFFFFFFFF:
                damaged += 1
                continue
            if kind == PIECE and is_in_gap:
                lost += 1
                continue
            is_in_gap = False
            if kind in LONG and payload <= BLOB_BYTES_MAX:
                pieces = (payload + PIECE_BYTES - 1) // PIECE_BYTES
                value = self._gather(copy, start, at, pieces, committed)
                at = min(at + pieces, committed)
                payload = None if value is None else value[:payload]
            elif kind not in (INT, FLOAT, BOOL, FRAME, ACK):
                payload = None
            if payload is None:
                damaged += 1
            else:
                found.append((ring, kind, series, time, payload))
        return found, lost, damaged

    @staticmethod
    def _gather(copy, start, at, pieces, committed):
        if at + pieces > committed:
            return None
        value = bytearray()
        for number in range(pieces):
            place = (at + number - start) * RECORD_BYTES
            (word,) = struct.unpack_from("<Q", copy, place)
            if word != (at + number & 0xFFFFFFFF) << 32 | PIECE << 24 | number:
                return None
            value += copy[place + 8 : place + 24]
        return bytes(value)


class _Fields:
    def __init__(self, encoded):
        self.rest = encoded

    def number(self, length):
        return int.from_bytes(self._take(length), "little")

    def float(self):  # Exactly, and also what JSON has no number for.
        return "%016x" % self.number(8)

    def text(self):
        return self._take(self.number(2)).decode()

    def labels(self):
        return {self.text(): self.text() for _ in range(self.number(2))}

    def _take(self, length):
        if length > len(self.rest):
            raise ValueError("half a field")
        taken, self.rest = self.rest[:length], self.rest[length:]
        return taken


def _declaration(kind, number, body):
    if kind == 1:
        return {"process": body.text(), "labels": body.labels()}
    if kind == 2:
        readers = body.number(1)
        if readers >= len(READERS):
            raise ValueError("unknown readers")
        name, labels = body.text(), body.labels()
        return {"publication": number, "name": name, "readers": READERS[readers], "labels": labels}
    if kind == 3:
        publication, value_type, meaning = body.number(4), body.number(1), body.number(1)
        if value_type not in TYPES or meaning not in KINDS:
            raise ValueError("unknown type or kind")
        return {
            "value": number,
            "publication": publication,
            "name": body.text(),
            "type": TYPES[value_type],
            "kind": KINDS[meaning],
            "unit": body.text(),
            "help": body.text(),
            "bytes_max": body.number(4) if len(body.rest) >= 4 else 0,
        }
    if kind == 4:
        publication = body.number(4)
        owner = None if publication == 0xFFFFFFFF else publication
        return {"trigger": body.text(), "publication": owner, "help": body.text()}
    if kind == 5:
        return {"knob": body.number(4), "min": body.float(), "max": body.float()}
    if kind == 6:
        value, cell, scale, use = body.number(4), body.number(4), body.float(), body.number(1)
        if use >= len(CELL_USES):
            raise ValueError("unknown use")
        value = None if value == 0xFFFFFFFF else value
        return {"cell": cell, "value": value, "scale": scale, "use": CELL_USES[use]}
    return None


def _line(record):
    ring, kind, series, time, payload = record
    found = {"ring": ring, "series": series, "time": time}
    if kind == INT:
        (found["int"],) = struct.unpack("<q", struct.pack("<Q", payload))
    elif kind == FLOAT:  # Exactly, and also what JSON has no number for.
        found["float"] = "%016x" % payload
    elif kind == BOOL:
        found["bool"] = payload != 0
    elif kind == FRAME:
        found["frame"] = payload
    elif kind == ACK:
        found["ack"] = payload
    else:
        found[LONG[kind]] = payload.hex()
    return found


def main(arguments):
    if len(arguments) < 2:
        sys.exit("usage: read_ingest.py FILE [POSITION...]")
    try:
        file = IngestFile(arguments[1])
        declared, rings = file.look()
        lines = list(file.declarations(declared))
        if file.cells_max:
            lines.append({"cells": file.cells()})
        starts = dict(enumerate(int(position) for position in arguments[2:]))
        for ring, (position, committed) in enumerate(rings):
            position = min(starts.get(ring, position), committed)
            found, lost, damaged = file.records(ring, position, committed)
            lines += map(_line, found)
            lines.append({"ring": ring, "end": committed, "lost": lost, "damaged": damaged})
    except (Corrupt, OSError) as reason:
        sys.exit(f"{arguments[1]}: {reason}")
    for line in lines:
        print(json.dumps(line, separators=(",", ":")))


if __name__ == "__main__":
    main(sys.argv)
