"""The archives of several nodes in one bucket, read by DuckDB over S3 and by Spark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.fs
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from harness import QUICK, ROOT, Agent, environment, eventually
from test_examples import needs
from test_target import CREDENTIALS, s3

__all__ = ["s3"]

BUCKET, PREFIX = "history", "lake"
NODES = ["a", "b", "c"]
METRIC = "memory.available.bytes"


class Lake(ArrowFSWrapper):
    """The bucket, for DuckDB without its extension for S3."""

    protocol = "lake"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix("lake://").rstrip("/")


def opened(endpoint: str) -> duckdb.DuckDBPyConnection:
    """DuckDB, which reads `lake://bucket/…` from a server that speaks S3."""
    there = pyarrow.fs.S3FileSystem(
        access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=endpoint.removeprefix("http://"),
        scheme="http",
        region=CREDENTIALS["AWS_REGION"],
    )
    database = duckdb.connect()
    database.register_filesystem(Lake(there))
    return database


@pytest.fixture
def lake(s3: Any, start: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> list[Agent]:
    """Nodes whose sealed files are all in the bucket; they have stopped."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    target = f"[archive]\ntarget = 's3://{BUCKET}/{PREFIX}'\n[archive.target_options]\nendpoint = '{s3.meta.endpoint_url}'\n"
    agents = [start("--node", node, config=target + QUICK) for node in NODES]
    for agent in agents:
        eventually(lambda a=agent: len(a.sql("SELECT 1 FROM disk_busy_ratio LIMIT 3")) > 2, "some history")
        agent.out("archive", "seal")
    waiting = "SELECT count(*) AS n FROM system.archive WHERE tier <> 'log' AND NOT copied"
    for agent in agents:
        eventually(lambda a=agent: a.sql(waiting)[0]["n"] == 0, "the copies")
        agent.stop()
    return agents


def test_duckdb_reads_the_lake_and_opens_only_what_it_needs(s3: Any, lake: list[Agent]) -> None:
    database = opened(s3.meta.endpoint_url)
    raw = f"read_parquet('lake://{BUCKET}/{PREFIX}/raw/**/*.parquet', hive_partitioning = true, union_by_name = true)"
    counts = f"SELECT node, count(*) FROM {raw} WHERE name = '{METRIC}' GROUP BY node ORDER BY node"
    local = {agent.node: f"'{agent.archive_dir}/raw/**/*.parquet'" for agent in lake}
    expect = [
        (node, duckdb.sql(f"SELECT count(*) FROM read_parquet({files}) WHERE name = '{METRIC}'").fetchall()[0][0])
        for node, files in local.items()
    ]
    assert database.sql(counts).fetchall() == expect and all(count > 0 for _, count in expect)
    files = s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{PREFIX}/raw/node=b/")["Contents"]
    of_b = [item for item in files if item["Key"].endswith(".parquet")]
    plan = database.sql(f"EXPLAIN ANALYZE SELECT count(*) FROM {raw} WHERE node = 'b'").fetchall()[0][1]
    assert f"Total Files Read: {len(of_b)}" in " ".join(plan.split()), plan


OWN_CONNECTOR = """
import duckdb, duckdb_extension_httpfs, json, pathlib, sys
endpoint, key, secret, region, query = sys.argv[1:]
folder = pathlib.Path(duckdb_extension_httpfs.__file__).parent / "extensions" / f"v{duckdb.__version__}"
database = duckdb.connect()
database.sql(f"LOAD '{folder}/httpfs.duckdb_extension'")
database.sql(
    f"CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION '{region}', "
    f"ENDPOINT '{endpoint}', USE_SSL false, URL_STYLE 'path')"
)
print(json.dumps(database.sql(query).fetchall()))
"""


def test_duckdb_reads_the_lake_with_its_own_extension(s3: Any, lake: list[Agent]) -> None:
    packages = os.environ.get("BARO_S3_DUCKDB", "")
    needs(os.path.isdir(packages), "DuckDB with its extension for S3")

    def ask(query: str) -> list[list[Any]]:
        options = [s3.meta.endpoint_url.removeprefix("http://"), *CREDENTIALS.values(), query]
        done = subprocess.run(
            [sys.executable, "-c", OWN_CONNECTOR, *options],
            capture_output=True, text=True, timeout=120, env=environment(PYTHONPATH=packages),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        rows: list[list[Any]] = json.loads(done.stdout)
        return rows

    # The query of docs/guide/site.md, over the bucket and over the nodes' own files.
    minutes = "read_parquet({files}, hive_partitioning = true)"
    busiest = (
        f"SELECT node, max(time_mean) AS busiest FROM {minutes} WHERE name = 'disk.busy.ratio' "
        "GROUP BY node ORDER BY node"
    )
    there = ask(busiest.format(files=f"'s3://{BUCKET}/{PREFIX}/1min/**/*.parquet'"))
    own = [f"'{agent.archive_dir}/1min/**/*.parquet'" for agent in lake]
    here = duckdb.sql(busiest.format(files=f"[{', '.join(own)}]")).fetchall()
    assert there == [list(row) for row in here] and [node for node, _ in there] == NODES


def test_a_spark_job_reads_the_lake(s3: Any, lake: list[Agent], tmp_path: Path) -> None:
    needs(bool(shutil.which("java")), "Java, for Spark")
    # Without the connector for S3, Spark reads a directory with the same files.
    found = s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{PREFIX}/")["Contents"]
    for item in found:
        place = tmp_path / item["Key"]
        place.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(BUCKET, item["Key"], str(place))
    minutes = f"read_parquet('{tmp_path}/{PREFIX}/1min/**/*.parquet', hive_partitioning = true)"
    dates = [date for (date,) in duckdb.sql(f"SELECT DISTINCT date::VARCHAR FROM {minutes} ORDER BY 1").fetchall()]
    means = f"""SELECT node, labels, hour, sum(time_mean * held_ns) / sum(held_ns) AS busy FROM {minutes}
        WHERE name = 'disk.busy.ratio' AND date = '{dates[-1]}' GROUP BY ALL"""
    expect = duckdb.sql(f"SELECT node, max(busy) FROM ({means}) GROUP BY node ORDER BY node").fetchall()
    job = [sys.executable, ROOT / "examples" / "lake" / "busiest.py", tmp_path / PREFIX, dates[-1]]
    quiet = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(tmp_path)}
    options = "--master local[1] --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 pyspark-shell"
    done = subprocess.run(
        [*map(str, job)], capture_output=True, text=True, timeout=300,
        env=environment(PATH=os.environ["PATH"], PYSPARK_SUBMIT_ARGS=options, **quiet),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["node"] for row in rows] == [node for node, _ in expect] == NODES
    for row, (_, busy) in zip(rows, expect, strict=True):
        assert row["busy"] == pytest.approx(busy)
