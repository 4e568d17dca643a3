"""Waits and watches, their ends, threads, Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import Demo

import barograph


def test_wait_tells_news_from_none(demo: Demo) -> None:
    steady = barograph.stream("disk.busy.ratio")
    steady.latest()
    assert not steady.wait(0.2), "a value that stays the same is no news"
    assert not steady.wait(0)
    ticks = barograph.stream("demo.ticks.count")
    ticks.latest()
    assert ticks.wait(20) and ticks.wait()
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            ticks.wait(wrong)


def test_watch_gives_every_sample_once(demo: Demo) -> None:
    watch = barograph.watch("demo.ticks.count", timeout=20)
    found = [next(watch) for _ in range(6)]
    values = [sample.value for sample in found]
    assert isinstance(values[0], int)
    assert values == list(range(values[0], values[0] + 6))
    assert [sample.lost for sample in found] == [0] * 6
    times = [sample.ts or 0 for sample in found]
    assert times == sorted(times)


def test_watch_of_many_begins_with_the_newest_of_each(demo: Demo) -> None:
    watch = barograph.watch("disk.*", device="vda", timeout=20)
    first = sorted(next(watch).name for _ in range(4))
    assert first == [
        "disk.busy.ratio",
        "disk.read.bytes",
        "disk.rotational.flag",
        "disk.scheduler.name",
    ]
    assert next(watch).name == "disk.read.bytes", "the only one that moves"


def test_watch_ends_after_its_timeout(demo: Demo) -> None:
    assert [s.value for s in barograph.watch("disk.busy.ratio", timeout=0.3)] == [0.25]
    assert list(barograph.watch("none.*", timeout=0.1)) == []
    with pytest.raises(ValueError, match="timeout"):
        barograph.watch(timeout=-1)


def test_watch_follows_streams_that_come(demo: Demo) -> None:
    demo.tell("unplug")
    watch = barograph.watch("disk.read.bytes", device="vdb", timeout=20)
    timer = threading.Timer(0.2, demo.tell, ["plug"])
    timer.start()
    assert next(watch).labels == {"device": "vdb"}
    timer.join()


@pytest.mark.parametrize(
    "wait",
    [
        lambda: barograph.stream("demo.empty.bytes").wait(),
        lambda: next(barograph.watch("demo.empty.bytes")),
        lambda: next(barograph.watch("none.*")),
    ],
)
def test_ctrl_c_ends_a_wait(demo: Demo, wait: Callable[[], object]) -> None:
    sent = threading.Event()

    def interrupt() -> None:
        sent.set()
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.2, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert sent.is_set()
    timer.join()


def test_waiting_leaves_other_threads_running(demo: Demo) -> None:
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.wait(0.001):
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    barograph.stream("demo.empty.bytes").wait(0.3)
    done.set()
    thread.join()
    assert counted > 5


def test_one_handle_in_many_threads(demo: Demo) -> None:
    ticks = barograph.stream("demo.ticks.count")

    def follow(_: int) -> list[float]:
        values = []
        for _ in range(5):
            assert ticks.wait(20)
            values.append(ticks.value() or 0.0)
        return values

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(follow, i) for i in range(4)]
        reading = [pool.submit(lambda: [ticks.latest().value for _ in range(2000)]) for _ in "ab"]
        asking = [
            pool.submit(lambda: [barograph.latest("demo.ticks.count").value for _ in range(500)])
            for _ in "ab"
        ]
        for job in waiting + reading + asking:
            values = job.result(timeout=60)
            assert values == sorted(values)  # type: ignore[type-var]
