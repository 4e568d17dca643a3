"""The two programs that Hercules was measured with under Swift/T, on files that are blocks of staging: a copy of
many files, and a word count. `run.py` runs them."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Sequence

from cluster import Cluster
from dataflow import Dataflow, File, Key

import barograph

# So many counts are merged at a time.
FAN_IN = 16


def spread(files: int, shares: Sequence[float], seed: int = 1) -> list[int]:
    """The node of each file, in an order that says nothing: each node has its share of them."""
    nodes: list[int] = []
    for node, share in enumerate(shares):
        nodes += [node] * round(files * share)
    nodes = (nodes + list(range(len(shares))) * files)[:files]
    random.Random(seed).shuffle(nodes)
    return nodes


def text(nbytes: int, seed: int) -> bytes:
    """A text with words as frequent as in a language (Zipf)."""
    drawn = random.Random(seed)
    words = [f"word{number:08}" for number in range(2_000)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    chosen = drawn.choices(words, cum_weights=weights, k=nbytes // 12)
    return " ".join(chosen).encode()[:nbytes]


def load(cluster: Cluster, dataset: str, nodes: Sequence[int], nbytes: int) -> list[File]:
    """Puts files of text onto the nodes, and asks the servers where they are."""
    stores = [cluster.store(node) for node in range(cluster.nodes)]
    texts = [text(nbytes, seed) for seed in range(8)]
    for number, node in enumerate(nodes):
        stores[node].put((dataset, number), texts[number % len(texts)])
    return find(cluster, [(dataset, number) for number in range(len(nodes))])


def find(cluster: Cluster, keys: Sequence[Key]) -> list[File]:
    """Asks the servers where files are. Raises LookupError for one that is nowhere."""
    files = []
    for key, held in zip(keys, barograph.block_holders(cluster.all(), keys), strict=True):
        if not held:
            raise LookupError(f"there is no file {key}")
        node, nbytes = next(iter(held.items()))
        files.append(File(key, node, nbytes))
    return files


def clear(cluster: Cluster, dataset: str) -> None:
    """Removes the files of a dataset."""
    for node in range(cluster.nodes):
        store = cluster.store(node)
        for block in list(store.list(dataset)):
            store.remove(block.key)


def copy(inputs: list[memoryview]) -> memoryview:
    """The content of one file."""
    return inputs[0]


def read(cluster: Cluster, file: File) -> bytes:
    """The content of a file that is there."""
    assert file.node is not None
    return cluster.store(file.node).get(file.key)


class Count:
    """Counts the words of a file. `compute_s` is slept beside: it stands for a node's own processors, of which
    the emulated ones share a few.
    """

    def __init__(self, compute_s: float) -> None:
        self._compute_s = compute_s

    def __call__(self, inputs: list[memoryview]) -> bytes:
        counted = Counter(bytes(inputs[0]).split())
        time.sleep(self._compute_s)
        return json.dumps({word.decode(): count for word, count in counted.items()}).encode()


def merge(inputs: list[memoryview]) -> bytes:
    """Adds counts."""
    counted: Counter[str] = Counter()
    for counts in inputs:
        counted.update(json.loads(bytes(counts)))
    return json.dumps(counted).encode()


def file_copy(flow: Dataflow, files: Sequence[File]) -> list[File]:
    """A task for each file, which copies it."""
    return [flow.task("copy", copy, [file]) for file in files]


def word_count(flow: Dataflow, files: Sequence[File], compute_s: float) -> File:
    """A task for each file, which counts its words, and a tree of tasks that add the counts."""
    counts = [flow.task("count", Count(compute_s), [file]) for file in files]
    while len(counts) > 1:
        counts = [flow.task("merge", merge, counts[at : at + FAN_IN]) for at in range(0, len(counts), FAN_IN)]
    return counts[0]
