"""Watches a tree with watchdog until the input ends, then prints what it was told: watchdog.py DIR.

It counts the events of its handler, and how often the making of each file `fN` was told.
"""

import json
import logging
import sys
import time
from importlib.metadata import version

try:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers import Observer
except ImportError:
    sys.exit(77)

# Time without an event after which all have been told.
QUIET_NS = 1_000_000_000


class Counter(FileSystemEventHandler):
    """Counts events."""

    def __init__(self) -> None:
        self.events = 0
        self.last_ns = time.monotonic_ns()
        self.made: dict[str, int] = {}

    def on_any_event(self, event: FileSystemEvent) -> None:
        self.events += 1
        self.last_ns = time.monotonic_ns()
        if event.event_type == "created" and not event.is_directory:
            name = event.src_path.rpartition("/")[2]
            if name.startswith("f"):
                self.made[name] = self.made.get(name, 0) + 1


class Overflows(logging.Handler):
    """Counts what watchdog logs of a queue that ran over."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "events were lost" in record.getMessage()


def main() -> None:
    """Watches."""
    overflows = Overflows()
    logging.getLogger().addHandler(overflows)
    counter, observer = Counter(), Observer()
    observer.schedule(counter, sys.argv[1], recursive=True)
    observer.start()
    time.sleep(0.5)
    before_ns = time.process_time_ns()
    print("ready", flush=True)
    sys.stdin.read()
    # It may have been stopped until now.
    ended_ns = time.monotonic_ns()
    while time.monotonic_ns() - max(counter.last_ns, ended_ns) < QUIET_NS or not observer.event_queue.empty():
        time.sleep(0.05)
    told = {
        "events": counter.events,
        "last_ns": counter.last_ns,
        "cpu_ns": time.process_time_ns() - before_ns,
        "seen": len(counter.made),
        "twice": sum(times > 1 for times in counter.made.values()),
        "overflows": overflows.count,
        "version": version("watchdog"),
    }
    print(json.dumps(told), flush=True)
    observer.stop()


main()
