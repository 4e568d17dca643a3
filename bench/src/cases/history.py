"""Milliseconds and rows of questions to DuckDB: history.py FILES ROUNDS SQL..."""

import statistics
import sys
import time

import duckdb

files, rounds, *questions = sys.argv[1:]
connection = duckdb.connect(config={"threads": 2})
connection.execute(f"CREATE VIEW samples AS FROM read_parquet('{files}', hive_partitioning = true)")
for question in questions:
    times = []
    for _ in range(int(rounds)):
        begin = time.perf_counter()
        rows = connection.execute(question).fetch_arrow_table().num_rows
        times.append(time.perf_counter() - begin)
    print(statistics.median(times) * 1e3, rows)
