"""Prints the median microseconds of pmFetch over one connection: pcp_fetch.py HOST METRIC ROUNDS."""

import statistics
import sys
import time

import cpmapi
from pcp import pmapi

host, metric, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
context = pmapi.pmContext(cpmapi.PM_CONTEXT_HOST, host)
ids = context.pmLookupName([metric])
times = []
for _ in range(rounds):
    begin = time.perf_counter_ns()
    result = context.pmFetch(ids)
    times.append(time.perf_counter_ns() - begin)
    context.pmFreeResult(result)
print(statistics.median(times) / 1000)
