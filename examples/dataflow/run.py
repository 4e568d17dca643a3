"""Runs a program of `programs.py` on emulated nodes, and prints what came of it.

    run.py copy --policy data-aware
    run.py count --policy any-idle --nodes 4 --files 256

It needs the package barograph and `baro` (or BARO_BIN), and nothing else: its servers end with it."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import programs
from cluster import Cluster
from dataflow import AnyIdle, DataAware, Dataflow, File, Hard, Policy, Report, RoundRobin

POLICIES: dict[str, Callable[[], Policy]] = {
    "round-robin": RoundRobin,
    "any-idle": AnyIdle,
    "any-idle-own": lambda: AnyIdle(own=True),
    "hard": Hard,
    "data-aware": DataAware,
}
FILES = {"copy": 1_024, "count": 256}


def even(nodes: int) -> list[float]:
    """Each node has as many files."""
    return [1 / nodes] * nodes


def skewed(nodes: int) -> list[float]:
    """The first node has half of the files."""
    return [0.5] + [0.5 / (nodes - 1)] * (nodes - 1)


def run(
    cluster: Cluster, program: str, policy: Policy, files: Sequence[File], workers: int = 2, compute_s: float = 0.0
) -> Report:
    """Runs a program once, checks what it has written, and removes it."""
    inputs = [File(file.key, file.node, file.nbytes) for file in files]
    with Dataflow(cluster, policy, workers, f"{program}-out") as flow:
        if program == "copy":
            written = programs.file_copy(flow, inputs)
        else:
            written = [programs.word_count(flow, inputs, compute_s)]
        report = flow.run()
    check(cluster, program, inputs, written)
    programs.clear(cluster, f"{program}-out")
    return report


def check(cluster: Cluster, program: str, inputs: Sequence[File], written: Sequence[File]) -> None:
    """Whether some copies are what was copied, and whether no word is missing."""
    if program == "copy":
        for was, now in list(zip(inputs, written, strict=True))[:: max(len(inputs) // 16, 1)]:
            if programs.read(cluster, was) != programs.read(cluster, now):
                raise RuntimeError(f"the copy of {was.key} has other bytes")
        return
    expected = Counter[str]()
    for content, times in Counter(programs.read(cluster, file) for file in inputs).items():
        for word, count in Counter(content.decode().split()).items():
            expected[word] += count * times
    if expected != json.loads(programs.read(cluster, written[0])):
        raise RuntimeError("the words were counted wrong")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=FILES)
    parser.add_argument("--policy", choices=POLICIES, default="data-aware")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2, help="of each node")
    parser.add_argument("--files", type=int, help="1,024 to copy, 256 to count")
    parser.add_argument("--bytes", type=int, default=256 << 10, help="of each file")
    parser.add_argument("--link", type=float, default=16e6, help="bytes/s that a node may send, and receive")
    parser.add_argument("--compute", type=float, default=0.0, help="seconds that the count of a file sleeps")
    parser.add_argument("--skewed", action="store_true", help="half of the files are on one node")
    said = parser.parse_args()
    shares = (skewed if said.skewed else even)(said.nodes)
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder), said.nodes, said.link) as cluster:
        spread = programs.spread(said.files or FILES[said.program], shares)
        files = programs.load(cluster, "in", spread, said.bytes)
        report = run(cluster, said.program, POLICIES[said.policy](), files, said.workers, said.compute)
    print(json.dumps(asdict(report) | {"overridden": dict(report.overridden)}, indent=2))


if __name__ == "__main__":
    main()
