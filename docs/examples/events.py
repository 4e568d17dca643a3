"""Prints the files below a directory as soon as they are whole, until there is none for a minute; the
next run goes on where this one has ended: python events.py /data place.txt"""

import sys
from pathlib import Path

import barograph


def main(directory: str, place: Path) -> None:
    after = place.read_text() if place.exists() else None
    events = barograph.events("close_write", path=directory, after=after, timeout=60)
    place.write_text(events.position)
    for event in events:
        if isinstance(event, barograph.EventGap):
            print(f"events of {event.source} are missing: {event.reason}", file=sys.stderr)
        else:
            print(event.path, flush=True)
        place.write_text(events.position)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: events.py DIRECTORY PLACE")
    main(sys.argv[1], Path(sys.argv[2]))
