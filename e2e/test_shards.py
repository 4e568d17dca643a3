"""The archives of applications on several nodes can be concatenated without collisions."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
from harness import QUICK, Agent, baro, environment, eventually
from test_applications import compiled

FRAMES = 200
RUNS = 3


def publish(program: Path, agent: Agent) -> None:
    """Runs the counting program to its end."""
    command = [str(program), str(FRAMES), "0"]
    subprocess.run(command, env=environment(BAROGRAPH_RUN_DIR=str(agent.run_dir)), stdout=subprocess.DEVNULL, check=True)


def count(agent: Agent) -> int:
    """The number of values; 0 before the table exists."""
    rows = agent.rows("SELECT count(*) AS n FROM app_counting_number")
    return rows[0]["n"] if rows else 0


def test_shards_of_two_nodes_concatenate(start: Callable[..., Agent], tmp_path: Path) -> None:
    program = compiled(tmp_path)
    nodes = [start("--node", f"node_{number}", config=QUICK) for number in (1, 2)]
    for run in range(RUNS):
        for agent in nodes:
            publish(program, agent)
            eventually(lambda agent=agent, run=run: count(agent) == 10 * FRAMES * (run + 1), "all values")
            # The same program again on the same node, and once after a restart of the agent.
            if run == 1:
                agent.restart()
    files: list[Path] = []
    for agent in nodes:
        agent.stop()
        [scope] = (agent.state_dir / "applications").iterdir()
        done = baro("archive", "seal", "--archive-dir", scope / "archive", "--run-dir", tmp_path / "none")
        assert done.returncode == 0, done.stderr
        files += (scope / "archive" / "raw").rglob("*.parquet")
    assert files
    table = f"read_parquet({[str(file) for file in files]}, hive_partitioning = true, union_by_name = true)"
    values = f"FROM {table} WHERE name = 'app.counting.number'"
    nodes_of = duckdb.sql(f"SELECT node, count(*), count(DISTINCT value) {values} GROUP BY node ORDER BY node").fetchall()
    assert nodes_of == [(f"node_{number}", 10 * FRAMES * RUNS, 10 * FRAMES) for number in (1, 2)]
    # Node, series, life and number identify a sample.
    [(all_, distinct)] = duckdb.sql(
        f"SELECT count(*), count(DISTINCT (node, name, labels, life, number)) FROM {table}"
    ).fetchall()
    assert all_ == distinct > 2 * 10 * FRAMES * RUNS
