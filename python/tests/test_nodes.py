"""Other nodes of the cluster: their mirrors are in the run directory of this node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from conftest import Demo

import barograph


@pytest.fixture
def mirror(demo: Demo) -> Iterator[Demo]:
    """The mirror of the node b."""
    mirror = Demo(demo.run_dir / "nodes" / "b", "b")
    yield mirror
    mirror.stop()


def test_a_mirror_is_read_as_this_node_is(demo: Demo, mirror: Demo) -> None:
    assert barograph.nodes() == ["b"]
    b = barograph.of_node("b")
    assert isinstance(b, barograph.Observer)
    assert (b.node, b.status().node, b.status().alive) == ("b", "b", True)
    assert b.run_dir == mirror.run_dir
    ticks = b.stream("demo.ticks.count")
    assert ticks.wait(20) and ticks.value() is not None
    sample = b.latest("disk.read.bytes", device="vda")
    assert sample.value and not sample.stale and sample.age_ns is not None
    assert len(b.latest_all("disk.*")) == len(barograph.latest_all("disk.*"))
    assert next(b.watch("demo.ticks.count", timeout=20)).stale is False
    assert b.sql("SELECT DISTINCT node FROM demo_ticks_count").rows() == [{"node": "b"}]
    assert {row["node"] for row in b.history("demo.ticks.count")} == {"b"}
    assert b.archive().path == mirror.run_dir / "archive"
    with pytest.raises(barograph.QueryError, match="baro sql --nodes b") as e:
        b.sql("SELECT * FROM loss")
    assert e.value.kind == "statement"


def test_from_one_node_to_another(demo: Demo, mirror: Demo) -> None:
    b = barograph.connect(demo.run_dir).of_node("b")
    own = b.of_node("demo")
    assert (own.node, own.run_dir) == ("demo", demo.run_dir)
    assert own.nodes() == b.nodes() == ["b"]
    assert b.of_node("b").node == "b"


def test_a_node_that_is_not_heard_is_stale_until_it_is_back(demo: Demo, mirror: Demo) -> None:
    b = barograph.of_node("b")
    ticks = b.stream("demo.ticks.count")
    assert ticks.wait(20) and not ticks.latest().stale
    mirror.tell("close")
    last = ticks.latest()
    assert last.stale and last.value and not b.status().alive
    assert repr(last).endswith(", stale>")
    assert next(b.watch("demo.ticks.count")).stale
    assert not barograph.latest("demo.ticks.count").stale, "this node lives"
    mirror.tell("restart")
    assert ticks.wait(20) and not ticks.latest().stale and ticks.restarted == 1
    assert b.latest("demo.ticks.count").value


def test_a_mirror_that_is_removed_and_comes_back(demo: Demo, mirror: Demo) -> None:
    b = barograph.of_node("b")
    ticks = b.stream("demo.ticks.count")
    assert ticks.latest().value
    shutil.rmtree(demo.run_dir / "nodes")
    mirror.stop()
    assert ticks.latest().stale and b.nodes() == []
    with pytest.raises(barograph.UnknownNodeError):
        barograph.of_node("b")
    mirror.start()
    assert ticks.wait(20) and not ticks.latest().stale
    assert barograph.of_node("b").latest("demo.ticks.count").value


def test_a_node_that_is_not_mirrored(demo: Demo, mirror: Demo) -> None:
    with pytest.raises(barograph.UnknownNodeError, match="baro node list") as e:
        barograph.of_node("dem")
    assert (e.value.mirrored, e.value.near) == (["b"], ["demo"])
    for name in ("", "..", "../nodes/b", "/"):
        with pytest.raises(barograph.UnknownNodeError):
            barograph.of_node(name)
    with pytest.raises(barograph.UnknownStreamError, match="what is mirrored of b"):
        barograph.of_node("b").latest("demo.tick.count")
