"""Prints the median nanoseconds of reading a stream's newest value: latest.py RUN_DIR."""

import statistics
import sys
import time

import barograph


def median_ns(operation, batches=400, batch=500):
    times = []
    for _ in range(batches):
        begin = time.perf_counter_ns()
        for _ in range(batch):
            operation()
        times.append((time.perf_counter_ns() - begin) / batch)
    return statistics.median(times)


observer = barograph.connect(sys.argv[1])
stream = observer.stream("bench.value.count", i="0")
assert stream.value() is not None
print(median_ns(stream.value), median_ns(stream.latest))
