"""Newest values, lists of streams, and errors with their remedies."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from conftest import Demo

import barograph

VDA = {"device": "vda"}


@pytest.mark.parametrize(
    ("name", "labels", "value", "kind", "quality", "error", "unit"),
    [
        ("disk.busy.ratio", VDA, 0.25, float, "derived", 0.5, "ratio"),
        ("disk.scheduler.name", VDA, "none", str, "measured", 0.0, "name"),
        ("disk.rotational.flag", VDA, False, bool, "measured", 0.0, "flag"),
        ("demo.empty.bytes", {}, None, type(None), None, None, "bytes"),
    ],
)
def test_steady_values(
    demo: Demo,
    name: str,
    labels: dict[str, str],
    value: object,
    kind: type,
    quality: str | None,
    error: float | None,
    unit: str,
) -> None:
    sample = barograph.latest(name, **labels)
    assert (sample.name, sample.labels, sample.unit) == (name, labels, unit)
    assert (sample.value, type(sample.value)) == (value, kind)
    assert (sample.quality, sample.error, sample.lost) == (quality, error, 0)
    assert barograph.stream(name, **labels).latest().value == value


def test_times_and_ages(demo: Demo) -> None:
    sample = barograph.latest("disk.busy.ratio", device="vda")
    assert sample.ts and sample.looked_ts and sample.age_ns is not None
    assert sample.ts <= sample.looked_ts <= time.time_ns()
    assert sample.age_ns < 60_000_000_000
    time.sleep(0.2)
    later = barograph.latest("disk.busy.ratio", device="vda")
    assert later.ts == sample.ts, "the value has not changed"
    assert later.looked_ts and later.looked_ts > sample.looked_ts, "but it was looked at"


def test_moving_values(demo: Demo) -> None:
    ticks = barograph.stream("demo.ticks.count")
    first = ticks.value()
    assert first is not None and first >= 1.0
    assert ticks.wait(20)
    assert ticks.wait(20)
    assert (ticks.value() or 0) > first
    read = barograph.latest("disk.read.bytes", device="vda")
    assert isinstance(read.value, int) and read.value % 4096 == 0


def test_values_that_are_not_numbers(demo: Demo) -> None:
    assert math.isnan(barograph.stream("demo.nan.ratio").value() or 0)
    assert barograph.stream("disk.scheduler.name").value() is None
    assert barograph.stream("disk.rotational.flag").value() == 0.0
    assert barograph.stream("demo.empty.bytes").value() is None


def test_patterns(demo: Demo) -> None:
    def names(found: list[barograph.Sample]) -> list[str]:
        return [f"{s.name}/{s.labels.get('device', '')}" for s in found]

    reads = ["disk.read.bytes/vda", "disk.read.bytes/vdb"]
    assert names(barograph.latest_all("disk.read.*")) == reads
    assert names(barograph.latest_all("disk.*", device="vdb")) == reads[1:]
    assert names(barograph.latest_all("*{device=*b}")) == reads[1:]
    assert names(barograph.latest_all("none.*")) == []
    assert len(barograph.latest_all()) == len(barograph.streams()) == 8


def test_streams_and_status(demo: Demo) -> None:
    (read,) = barograph.streams("disk.read.bytes", device="vda")
    found = (read.name, read.labels, read.type, read.unit, read.kind, read.depth)
    assert found == ("disk.read.bytes", VDA, "int64", "bytes", "counter", 1024)
    assert read.interval_ns == 50_000_000 and read.samples >= 1 and len(read.id) == 32
    assert read.help == "a stream of the demonstration"
    status = barograph.status()
    assert (status.node, status.alive, status.streams, status.refused) == ("demo", True, 8, 0)
    assert status.samples >= 7 and status.heartbeat_age_ns >= 0 and len(status.incarnation) == 32


def test_to_dict_has_the_fields_of_the_contract(demo: Demo) -> None:
    row = barograph.latest("disk.busy.ratio").to_dict()
    assert list(row) == [
        "name", "labels", "ts", "value", "quality", "error", "age_ns", "looked_ts", "unit",
        "stale", "lost",
    ]  # fmt: skip
    assert (row["name"], row["labels"], row["value"]) == ("disk.busy.ratio", VDA, 0.25)


def test_representations(demo: Demo) -> None:
    assert repr(barograph.latest("disk.busy.ratio")).startswith(
        "<Sample disk.busy.ratio{device=vda} = 0.25 ratio, derived, "
    )
    assert repr(barograph.latest("demo.empty.bytes")) == "<Sample demo.empty.bytes: none yet>"
    assert repr(barograph.stream("demo.ticks.count")) == "<Stream demo.ticks.count>"
    assert repr(barograph.streams("demo.nan.ratio")[0]) == (
        "<StreamInfo demo.nan.ratio, float64 gauge>"
    )
    assert repr(barograph.status()) == "<Status of demo: agent alive, 8 streams>"
    assert repr(barograph.connect()) == f"<Observer of {demo.run_dir}>"


def test_unknown_streams_name_near_ones(observer: barograph.Observer) -> None:
    for ask in (observer.latest, observer.stream):
        with pytest.raises(barograph.UnknownStreamError, match="did you mean disk.read.bytes") as e:
            ask("disk.raed.bytes")
        assert e.value.near[0] == "disk.read.bytes"
        with pytest.raises(barograph.UnknownStreamError) as e:
            ask("disk.read.bytes", device="sda")
        assert e.value.near == ["disk.read.bytes{device=vda}", "disk.read.bytes{device=vdb}"]
    assert observer.near("demo.tick.count") == ["demo.ticks.count"]


def test_ambiguous_and_malformed_names(observer: barograph.Observer) -> None:
    with pytest.raises(barograph.AmbiguousStreamError, match="matches 2 streams") as e:
        observer.latest("disk.read.bytes")
    assert e.value.matches == ["disk.read.bytes{device=vda}", "disk.read.bytes{device=vdb}"]
    with pytest.raises(barograph.Error, match="not closed"):
        observer.latest("disk.read.bytes{device=vda")
    with pytest.raises(TypeError):
        observer.latest("disk.read.bytes", device=7)  # type: ignore[arg-type]


def test_no_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(barograph.NoAgentError, match="baro up"):
        barograph.connect(tmp_path)
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(tmp_path / "none"))
    with pytest.raises(barograph.NoAgentError, match="none"):
        barograph.latest("disk.read.bytes")
    (tmp_path / "segment").write_bytes(b"\7" * 8192)
    with pytest.raises(barograph.Error, match="not a usable segment"):
        barograph.connect(tmp_path)


def test_what_is_not_forecast_is_as_it_was_measured(demo: Demo) -> None:
    measured = barograph.latest("disk.busy.ratio", device="vda")
    sample = barograph.latest("disk.busy.ratio", device="vda", allow_predicted=True)
    assert (sample.ts, sample.value, sample.quality) == (measured.ts, 0.25, "derived")
    held = barograph.stream("disk.scheduler.name")
    assert held.latest(allow_predicted=True).value == "none"
    found = barograph.latest_all("disk.*", allow_predicted=True)
    assert [s.name for s in found] == [s.name for s in barograph.latest_all("disk.*")]
    assert barograph.time_to("disk.*", "90 %", device="v[d]a").rows() == []
