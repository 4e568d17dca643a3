"""The Python package on the real agent; its own test suite uses a writer with known streams."""

from __future__ import annotations

import signal
from collections.abc import Callable

import barograph
import pytest
from harness import Agent, eventually

Start = Callable[..., Agent]


@pytest.fixture
def here(fixed: Agent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """The fixed agent, as the one that the module's functions find."""
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(fixed.run_dir))
    return fixed


def test_latest(here: Agent) -> None:
    sample = barograph.latest("disk.read.bytes", device="nvme0n1")
    assert sample.value == 4096000
    assert sample.unit == "bytes" and sample.quality == "measured" and sample.error == 0.0
    assert sample.labels == {"device": "nvme0n1"}
    eventually(
        lambda: not barograph.latest("disk.read.bytes", device="nvme0n1").stale, "it is fresh"
    )
    assert {sample.labels["device"] for sample in barograph.latest_all("disk.read.bytes")} == {
        "nvme0n1",
        "nvme1n1",
    }


def test_what_it_says_is_what_the_command_says(here: Agent) -> None:
    mine = {(s.name, tuple(sorted(s.labels.items()))) for s in barograph.latest_all()}
    theirs = {(s["name"], tuple(sorted(s["labels"].items()))) for s in here.latest("*")}
    assert mine == theirs


def test_unknown_and_ambiguous(here: Agent) -> None:
    with pytest.raises(barograph.UnknownStreamError) as unknown:
        barograph.latest("memory.totl.bytes")
    assert "memory.total.bytes" in unknown.value.near
    with pytest.raises(barograph.AmbiguousStreamError):
        barograph.latest("disk.read.bytes")


def test_sql_to_arrow_and_pandas(here: Agent) -> None:
    query = "SELECT device, value FROM disk_read_bytes WHERE newest ORDER BY device"
    rows = [{"device": "nvme0n1", "value": 4096000}, {"device": "nvme1n1", "value": 1228800}]
    assert barograph.sql(query).rows() == rows
    assert barograph.sql(query).arrow().to_pylist() == rows
    frame = barograph.sql(query).pandas()
    assert list(frame.columns) == ["device", "value"]
    assert frame["value"].sum() == 4096000 + 1228800
    with pytest.raises(barograph.QueryError) as error:
        barograph.sql("DROP TABLE streams")
    assert error.value.kind == "refused"


def test_watch(live: Agent) -> None:
    samples = barograph.connect(live.run_dir).watch("agent.cpu.seconds", timeout=30)
    times = [next(samples).ts for _ in range(3)]
    assert None not in times and len(set(times)) == 3


def test_status(here: Agent) -> None:
    status = barograph.status()
    assert status.alive and status.node == "node_1"


def test_control(start: Start) -> None:
    agent = start()
    control = barograph.control(agent.run_dir)
    control.create_insight("CREATE INSIGHT my.sum.bytes AS SELECT sum(value) FROM memory_total_bytes")
    observer = barograph.connect(agent.run_dir)
    assert observer.latest("my.sum.bytes").value == observer.latest("memory.total.bytes").value
    with pytest.raises(barograph.ControlError):
        control.create_insight("nonsense")
    control.drop_insight("my.sum.bytes")
    with pytest.raises(barograph.UnknownStreamError):
        observer.latest("my.sum.bytes")


def test_no_agent(tmp_path: object) -> None:
    with pytest.raises(barograph.NoAgentError):
        barograph.connect(f"{tmp_path}/none").status()


def test_a_handle_goes_on_over_a_restart(start: Start) -> None:
    agent = start()
    observer = barograph.connect(agent.run_dir)
    stream = observer.stream("agent.cpu.seconds")
    assert stream.wait(30)
    before = stream.latest()
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait()
    assert stream.latest().value is not None
    eventually(lambda: stream.latest().stale, "it says that it is old")
    agent.start()
    eventually(lambda: not stream.latest().stale, "it is fresh again")
    assert stream.latest().ts > before.ts
    assert stream.restarted >= 1
