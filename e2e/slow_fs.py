"""A file system whose answers take long: a stand-in for one that is reached over a network.

It speaks the kernel's FUSE protocol (linux/fuse.h, 7.31) by itself, has directories and empty files in memory, and
answers many requests at a time, each after a while. The kernel keeps what it was told for a minute.

    slow_fs.py DIRECTORY MILLISECONDS DIRECTORIES FILES

mounts such a tree, and makes the file of each path that is written to its standard input, a line each. It needs the
rights of root."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
import time

ENTRY_SECONDS = 60
THREADS = 64
DIRECTORY, FILE = 0o040755, 0o100644
LOOKUP, FORGET, GETATTR, STATFS, RELEASE, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = (
    1, 2, 3, 17, 18, 26, 27, 28, 29, 36, 42,
)  # fmt: skip
ENOENT, ENOSYS = 2, 38


class Tree:
    """The nodes by number: the root is 1."""

    def __init__(self, directories: int, files: int) -> None:
        self.names: dict[int, dict[bytes, int]] = {1: {}}
        for at in range(directories):
            of = self.add(1, b"d%05d" % at, is_directory=True)
            for number in range(files):
                self.add(of, b"f%05d" % number)

    def add(self, parent: int, name: bytes, is_directory: bool = False) -> int:
        node = self.last = getattr(self, "last", 1) + 1
        if is_directory:
            self.names[node] = {}
        self.names[parent][name] = node
        return node

    def make(self, path: bytes) -> None:
        """Makes a file, and the directories above it."""
        *above, name = path.split(b"/")
        node = 1
        for part in above:
            node = self.names[node].get(part) or self.add(node, part, is_directory=True)
        self.add(node, name)

    def attributes(self, node: int) -> bytes:
        mode = DIRECTORY if node in self.names else FILE
        numbers = (node, 0, 0, 1_700_000_000, 1_700_000_000, 1_700_000_000)
        return struct.pack("<6Q10I", *numbers, 0, 0, 0, mode, 1, 0, 0, 0, 4_096, 0)

    def answer(self, code: int, node: int, body: bytes) -> bytes | int | None:
        """The answer to a request, the number of an error, or nothing."""
        if code == INIT:
            major, _, readahead, _ = struct.unpack_from("<4I", body)
            return struct.pack("<4I2HI", major, 31, readahead, 0, THREADS, THREADS, 65_536) + bytes(40)
        if code == LOOKUP:
            found = self.names.get(node, {}).get(body.rstrip(b"\0"))
            if found is None:
                return ENOENT
            return struct.pack("<4Q2I", found, 0, ENTRY_SECONDS, ENTRY_SECONDS, 0, 0) + self.attributes(found)
        if code == GETATTR:
            return struct.pack("<Q2I", ENTRY_SECONDS, 0, 0) + self.attributes(node)
        if code == OPENDIR:
            return struct.pack("<Q2I", 0, 0, 0)
        if code == READDIR:
            _, offset, size = struct.unpack_from("<2QI", body)
            return self.listing(node, offset, size)
        if code == STATFS:
            return struct.pack("<5Q4I", 0, 0, 0, 0, 0, 4_096, 255, 4_096, 0) + bytes(24)
        if code in (RELEASEDIR, RELEASE):
            return b""
        return None if code in (FORGET, BATCH_FORGET, INTERRUPT) else ENOSYS

    def listing(self, node: int, offset: int, size: int) -> bytes:
        entries = bytearray()
        for at, (name, of) in enumerate(list(self.names[node].items())[offset:], offset + 1):
            kind = 4 if of in self.names else 8
            entry = struct.pack("<2Q2I", of, at, len(name), kind) + name
            entry += bytes(-len(entry) % 8)
            if len(entries) + len(entry) > size:
                break
            entries += entry
        return bytes(entries)


def serve(device: int, tree: Tree, seconds: float) -> None:
    """Answers requests until the file system is unmounted."""
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError:
            return
        _, code, unique, node = struct.unpack_from("<IIQQ", request)
        answer = tree.answer(code, node, request[40:])
        if answer is None:
            continue
        if code != INIT:
            time.sleep(seconds)
        body, error = (b"", -answer) if isinstance(answer, int) else (answer, 0)
        try:
            os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
        except OSError:
            # The request was interrupted.
            pass


def main() -> None:
    path, milliseconds, directories, files = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    tree = Tree(directories, files)
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"slow", path.encode(), b"fuse", 2 | 4, options.encode()) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    for _ in range(THREADS):
        threading.Thread(target=serve, args=(device, tree, milliseconds / 1_000), daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin.buffer:
        tree.make(line.rstrip(b"\n"))
        print("made", flush=True)
    libc.umount2(path.encode(), 2)


if __name__ == "__main__":
    main()
