"""Prints milliseconds and rows of queries in DuckDB: history.py FILES ROUNDS SQL..."""

import statistics
import sys
import time

try:
    import duckdb
except ImportError:
    sys.exit(77)

files, rounds, *questions = sys.argv[1:]
connection = duckdb.connect(config={"threads": 2})
# A long query would print a progress bar into the output.
connection.execute("SET enable_progress_bar = false")
connection.execute(f"CREATE VIEW samples AS FROM read_parquet('{files}', hive_partitioning = true)")
for question in questions:
    times = []
    for _ in range(int(rounds)):
        begin = time.perf_counter()
        answer = connection.execute(question)
        # The function has another name in DuckDB 2.
        columns = answer.to_arrow_table() if hasattr(answer, "to_arrow_table") else answer.fetch_arrow_table()
        rows = columns.num_rows
        times.append(time.perf_counter() - begin)
    print(statistics.median(times) * 1e3, rows)
