"""The dataflow runner of examples/dataflow: real servers and workers on emulated nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "dataflow"
sys.path.insert(0, str(EXAMPLES))

import programs
from cluster import Cluster
from dataflow import DataAware, Dataflow, File
from links import Bucket
from run import POLICIES, even, run, skewed

NODES, FILES, BYTES = 3, 24, 8 << 10
# So slow that no wait is longer than a move.
CRAWL = 100.0

# Python warns of forks in processes with threads; those of an earlier test may not have ended.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, NODES, 1e9, "64MiB") as cluster:
        yield cluster


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_copies_and_counts(cluster: Cluster, policy: str) -> None:
    files = programs.load(cluster, "in", programs.spread(FILES, skewed(NODES)), BYTES)
    for program, tasks in (("copy", FILES), ("count", FILES + 3)):
        # The run itself checks what was written.
        report = run(cluster, program, POLICIES[policy](), files, workers=1)
        assert report.tasks == tasks and report.bytes_read >= FILES * BYTES
        # The links have seen what was moved, and frames around it.
        assert report.bytes_moved <= report.bytes_on_links <= report.bytes_moved + 4096 * tasks
        if policy == "hard" and program == "copy":
            assert (report.local, report.bytes_moved, report.bytes_on_links) == (FILES, 0, 0)
        if policy == "round-robin":
            assert report.bytes_moved > 0
    assert not list(cluster.store(0).list("copy-out")) and not list(cluster.store(0).list("count-out"))


def test_data_is_not_moved_over_a_link_that_crawls(tmp_path: Path) -> None:
    with Cluster(tmp_path, NODES, CRAWL, "64MiB") as cluster:
        files = programs.load(cluster, "in", programs.spread(FILES, even(NODES)), BYTES)
        report = run(cluster, "copy", DataAware(), files, workers=1)
    assert (report.bytes_moved, report.bytes_on_links, report.local) == (0, 0, FILES)
    assert not report.overridden


def test_files_that_are_nowhere_are_told(cluster: Cluster) -> None:
    with pytest.raises(LookupError, match="there is no file"):
        programs.find(cluster, [("none", 1)])


def fail(inputs: list[memoryview]) -> bytes:
    raise LookupError(f"with {len(inputs)} inputs")


def test_a_task_that_fails_is_told(cluster: Cluster) -> None:
    files = programs.load(cluster, "in", [0, 1], BYTES)
    with (
        Dataflow(cluster, DataAware()) as flow,
        pytest.raises(RuntimeError, match=r"fail-1 on node \d: LookupError\('with 2 inputs'\)"),
    ):
        copied = flow.task("copy", programs.copy, [files[0]])
        flow.task("fail", fail, [copied, files[1]])
        flow.run()
    with Dataflow(cluster, DataAware()) as flow, pytest.raises(RuntimeError, match="not_found|no such block"):
        flow.task("copy", programs.copy, [File(("none", 1), 0, 7)])
        flow.run()


def test_a_bucket_lets_bytes_pass_at_its_rate() -> None:
    bucket = Bucket(1000.0)
    first = bucket.book(500)
    assert bucket.book(1000) == pytest.approx(first + 1.0)
    assert bucket.passed == 1500


def test_it_runs_as_a_program() -> None:
    command = [sys.executable, EXAMPLES / "run.py", "count", "--files", "12", "--bytes", "4096", "--nodes", "2"]
    done = subprocess.run([*map(str, command), "--link", "1e9"], stdout=subprocess.PIPE, check=True, timeout=120)
    report = json.loads(done.stdout)
    assert report["tasks"] == 13 and report["bytes_read"] > 12 * 4096
