"""For each node of a lake the hour of a day in which one of its devices was busiest: a job for Spark.

    spark-submit busiest.py s3a://bucket/lake 2026-11-20

It prints a line of JSON for each node. Spark opens the files of that day alone, and reads of them the
row groups of the metric alone.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.window import Window


def main(lake: str, date: str) -> None:
    spark = SparkSession.builder.appName("busiest").getOrCreate()
    # Files of different versions differ in their columns.
    minutes = spark.read.option("mergeSchema", "true").parquet(f"{lake}/1min")
    busy = minutes.where((f.col("name") == "disk.busy.ratio") & (f.col("date") == date))
    # A mean over time: each minute counts for the time for which its values held.
    held = f.sum("held_ns")
    hours = busy.groupBy("node", "labels", "hour").agg((f.sum(f.col("time_mean") * f.col("held_ns")) / held).alias("busy"))
    best = Window.partitionBy("node").orderBy(f.desc("busy"), "labels", "hour")
    first = hours.where(f.col("busy").isNotNull()).withColumn("place", f.row_number().over(best)).where("place = 1")
    for row in first.select("node", "labels", "hour", "busy").orderBy("node").toJSON().collect():
        print(row)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: busiest.py LAKE DATE")
    main(*sys.argv[1:])
