#!/usr/bin/env python3
"""Makes a small picture of an image: thumbnail.py IMAGE.ppm SMALL.pgm

Reads a binary PPM (P6) and writes a PGM of at most 32 by 32 pixels, each the mean of the pixels that
it stands for. The picture gets its name when it is whole, so that whoever watches for it sees no
half of one.
"""

import os
import re
import sys
from pathlib import Path

SIDE_MAX = 32


def read_ppm(path: Path) -> tuple[int, int, bytes]:
    """Width, height and pixels of three bytes each."""
    image = path.read_bytes()
    head = re.match(rb"P6\s+(\d+)\s+(\d+)\s+255\s", image)
    if head is None:
        raise SystemExit(f"{path}: it is no PPM of 8 bits")
    width, height, pixels = int(head[1]), int(head[2]), image[head.end() :]
    if width == 0 or height == 0 or len(pixels) != width * height * 3:
        raise SystemExit(f"{path}: it is not whole")
    return width, height, pixels


def small(width: int, height: int, pixels: bytes) -> tuple[int, int, bytes]:
    """Width, height and pixels of one byte each."""
    step = max(1, -(-max(width, height) // SIDE_MAX))
    rows = []
    for top in range(0, height, step):
        for left in range(0, width, step):
            values = b"".join(
                pixels[(y * width + left) * 3 : (y * width + min(left + step, width)) * 3]
                for y in range(top, min(top + step, height))
            )
            rows.append(sum(values) // len(values))
    return -(-width // step), -(-height // step), bytes(rows)


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    width, height, pixels = small(*read_ppm(source))
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.environ.get('BAROGRAPH_KEY', 'new')[-64:]}")
    unfinished.write_bytes(b"P5\n%d %d\n255\n" % (width, height) + pixels)
    unfinished.rename(target)


main()
