"""Agents that restart and die, devices that go, processes that fork."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import pytest
from conftest import Demo

import barograph


def test_handles_cross_a_restart(demo: Demo) -> None:
    ticks = barograph.stream("demo.ticks.count")
    before = barograph.status().incarnation
    assert ticks.wait(20) and ticks.restarted == 0
    demo.tell("restart")
    assert ticks.latest().value is not None and ticks.restarted == 1
    assert ticks.wait(20) and not ticks.latest().stale
    assert barograph.latest("demo.ticks.count").value
    assert barograph.status().incarnation != before


def test_a_watch_crosses_a_restart(demo: Demo) -> None:
    watch = barograph.watch("demo.ticks.count", timeout=20)
    next(watch)
    demo.tell("restart")
    values = [next(watch).value for _ in range(40)]
    assert 1 in values, "the new life is seen from its first sample"


def test_a_killed_writer_stays_readable_and_says_so(demo: Demo) -> None:
    ticks = barograph.stream("demo.ticks.count")
    assert not ticks.latest().stale
    demo.kill()
    last = ticks.latest().value
    assert ticks.value() == last
    assert not ticks.wait(6)  # An agent is considered dead when its heartbeat is 5 s old.
    assert ticks.latest().stale and barograph.latest("demo.ticks.count").stale
    assert not barograph.status().alive
    demo.start()
    assert ticks.wait(20) and not ticks.latest().stale and ticks.restarted == 1


def test_a_writer_that_said_goodbye(demo: Demo) -> None:
    ticks = barograph.stream("demo.ticks.count")
    demo.tell("close")
    assert ticks.latest().stale and not barograph.status().alive
    assert repr(ticks.latest()).endswith(", stale>")


def test_a_device_that_goes_and_comes_back(demo: Demo) -> None:
    vdb = barograph.stream("disk.read.bytes", device="vdb")
    assert barograph.latest("disk.read.bytes", device="vdb").value
    demo.tell("unplug")
    for ask in (vdb.latest, vdb.value, lambda: barograph.latest("disk.read.bytes", device="vdb")):
        with pytest.raises(barograph.UnknownStreamError, match="vda") as e:
            ask()
        assert e.value.near == ["disk.read.bytes{device=vda}"]
    assert not vdb.wait(0.1)
    assert barograph.latest("disk.read.bytes").labels == {"device": "vda"}
    demo.tell("plug")
    assert vdb.wait(20) and vdb.restarted == 1
    with pytest.raises(barograph.AmbiguousStreamError):
        barograph.latest("disk.read.bytes")


def in_child(check: Callable[[], None]) -> int:
    """The exit code of a forked child that has run `check`."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_reads_on(demo: Demo) -> None:
    ticks = barograph.stream("demo.ticks.count")
    watch = barograph.watch("demo.ticks.count", timeout=20)
    value = next(watch).value
    barograph.latest("demo.ticks.count")
    barograph.sql("SELECT value FROM demo_ticks_count WHERE newest").rows()

    def check() -> None:
        assert ticks.wait(20) and ticks.wait(20)
        assert (ticks.value() or 0) > 0
        assert barograph.latest("demo.ticks.count").value
        assert next(watch).value != value
        (row,) = barograph.sql("SELECT value FROM demo_ticks_count WHERE newest")
        assert row["value"] >= 1

    assert in_child(check) == 0
    assert ticks.wait(20), "the parent goes on as well"
