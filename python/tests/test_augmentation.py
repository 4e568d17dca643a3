"""Readings that ask the agent, against a stand-in: a server on a unix socket that answers as the
agent's interface is documented, and has no device, no weights and no policy behind it. The agent
itself is asked in e2e/test_augmentation.py.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph import progressive


class StandIn(socketserver.ThreadingUnixStreamServer):
    """Answers each plan with `answer` or what `fault` has, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self, run_dir: Path, socket: str = "control.sock") -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: dict[str, Any] = {
            "decision": 17,
            "buckets": 6,
            "bytes": 1234,
            "degree": 0.4,
            "bandwidth": {"value": 5.1e7, "error": 1e7, "basis": "measured"},
            "weight": 640,
            "weight_reason": None,
            "lease_s": 30,
            "reason": "the device is quiet",
        }
        self.fault: tuple[int, object] | None = None
        super().__init__(str(run_dir / socket), Handler)

    def of(self, verb: str) -> list[dict[str, Any]]:
        """The bodies of the requests of one kind."""
        return [body for path, body in self.asked if path == f"/api/v1/control/{verb}"]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: StandIn

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        status, answer = 200, self.server.answer
        if self.server.fault:
            status, answer = self.server.fault  # type: ignore[assignment]
        elif self.path.endswith("/report"):
            answer = {"decision": body["decision"]}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the tests' output clean."""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(tmp_path))
    with serving(StandIn(tmp_path)) as server:
        yield server


@contextmanager
def serving(server: StandIn) -> Iterator[StandIn]:
    """Serves until the end of the block."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def packed_bytes() -> bytes:
    """An array of four blocks."""
    values = np.sin(np.outer(np.linspace(0, 3, 600), np.linspace(0, 9, 700)))
    return progressive.pack(values) or b""


@pytest.fixture
def path(tmp_path: Path, packed_bytes: bytes) -> Path:
    path = tmp_path / "field.baro"
    path.write_bytes(packed_bytes)
    return path


def test_a_reading_follows_the_decision_and_reports(stand_in: StandIn, path: Path) -> None:
    packed = progressive.open(path, error=1e-1, priority=8, label="run 7")
    packed.read()
    [asked] = stand_in.of("plan")
    header = packed.bytes_read - packed.reached.bytes
    assert asked["path"] == str(path) and asked["label"] == "run 7" and asked["priority"] == 8
    number = os.stat(path).st_dev
    assert asked["device"] == f"{os.major(number)}:{os.minor(number)}"
    assert asked["base_bytes"] == header + packed.buckets[0].bytes
    assert asked["buckets"] == [
        {"bytes": bucket.bytes, "nrmse": bucket.nrmse, "error": bucket.nrmse}
        for bucket in packed.buckets[1:]
    ]
    assert asked["base_nrmse"] == asked["base_error"] == packed.buckets[0].nrmse
    assert asked["error"] == {"nrmse": 0.1} and asked["interval_s"] is None
    assert asked["dry_run"] is False
    # The base and six more, though the bound needs fewer.
    assert packed.buckets_for(1e-1) < 7 and packed.reached.buckets == 7
    last = packed.last
    assert (last.id, last.buckets, last.proposed, last.degree) == (17, 7, 7, 0.4)
    assert (last.bandwidth, last.bandwidth_error, last.bandwidth_basis) == (5.1e7, 1e7, "measured")
    assert (last.weight, last.lease_s, last.reason) == (640, 30, "the device is quiet")
    assert last.reported and last.nrmse == packed.buckets[6].nrmse
    assert last.bytes == packed.reached.bytes and last.seconds == packed.reached.seconds
    [report] = stand_in.of("report")
    # The time is that of the bytes alone, without that of decoding them.
    assert 0 < report.pop("seconds") < packed.reached.seconds
    assert report == {
        "decision": 17,
        "bytes": packed.reached.bytes,
        "nrmse": packed.reached.nrmse,
    }


def test_the_bound_holds_whatever_the_agent_says(stand_in: StandIn, path: Path) -> None:
    stand_in.answer |= {"buckets": 0, "weight": None, "weight_reason": "no scheduler"}
    packed = progressive.open(path, {"linf": 1e-4})
    packed.read()
    assert packed.reached.linf <= 1e-4 and packed.last.proposed == 1
    assert packed.last.buckets == packed.buckets_for({"linf": 1e-4})
    assert "the bound needs" in packed.last.reason and packed.last.weight is None
    assert packed.last.weight_reason == "no scheduler"
    asked = stand_in.of("plan")[0]
    assert asked["error"] == {"linf": 1e-4} and asked["base_error"] == packed.buckets[0].linf
    assert [it["error"] for it in asked["buckets"]] == [it.linf for it in packed.buckets[1:]]
    # An exact bucket has no finite ratio, and JSON has no infinity.
    packed = progressive.open(path, {"psnr_max": 40})
    packed.read()
    assert stand_in.of("plan")[1]["buckets"][-1]["error"] == sys.float_info.max


def test_a_probe_is_read_and_counted_and_no_part_of_the_reading(
    stand_in: StandIn, path: Path
) -> None:
    packed = progressive.open(path, agent=True)
    sizes = [bucket.bytes for bucket in packed.buckets]
    after = sum(sizes[7:])
    # What the agent asks for after its 6 buckets, and what is read.
    table: list[tuple[object, int]] = [
        ({"bucket": 6, "bytes": sizes[7] + 5}, sizes[7] + 5),
        ({"bucket": 6, "bytes": 1 << 62}, after),
        ({"bucket": 7, "bytes": 100}, 0),
        ({"bucket": 6, "bytes": -1}, 0),
        ("some", 0),
        (None, 0),
    ]
    for probe, read in table:
        stand_in.answer["probe"] = probe
        packed.read()
        assert packed.reached.bytes == sum(sizes[:7])
        assert stand_in.of("report")[-1]["bytes"] == sum(sizes[:7]) + read, probe
        assert (packed.last.probe_bytes > 0) == (read > 0)
    # A bound that needs more than the proposal, and a dry run, have none.
    stand_in.answer["probe"] = {"bucket": 6, "bytes": 100}
    for more in ({"error": {"linf": 1e-6}}, {"dry_run": True, "error": 1e-1}):
        other = progressive.open(path, **more)
        other.read()
        assert stand_in.of("report")[-1]["bytes"] == other.reached.bytes, more


def test_who_asks_and_who_does_not(stand_in: StandIn, path: Path) -> None:
    for without in (
        progressive.open(path),
        progressive.open(path, 1e-2, agent=False),
        progressive.open(path.read_bytes(), 1e-2, agent=True),
    ):
        without.read()
        assert without.last.id is None and without.last.buckets == without.reached.buckets
    assert stand_in.asked == []
    # Without a bound, the agent alone decides.
    packed = progressive.open(path, agent=True)
    packed.read()
    assert packed.reached.buckets == 7 and stand_in.of("plan")[0]["error"] is None
    # A part has a part of the bytes.
    packed.read(region=[(0, 10), (0, 10)])
    whole, part = (sum(it["bytes"] for it in asked["buckets"]) for asked in stand_in.of("plan"))
    assert part == pytest.approx(whole / 4, rel=0.01)
    # Its bytes lie here and there, so its report is no measurement of the device.
    assert [report["bytes"] > 0 for report in stand_in.of("report")] == [True, False]


def test_a_dry_run_reads_what_the_bound_needs(stand_in: StandIn, path: Path) -> None:
    packed = progressive.open(path, 1e-1, dry_run=True)
    packed.read()
    assert packed.reached.buckets == packed.buckets_for(1e-1) < 7 == packed.last.proposed
    assert packed.last.dry_run and packed.last.reason.startswith("dry run: ")
    assert stand_in.of("plan")[0]["dry_run"] is True


def test_steps_tell_how_often_they_come(stand_in: StandIn, path: Path) -> None:
    packed = progressive.open(path, 1e-2)
    for _ in range(3):
        packed.step()
    first, second, third = (asked["interval_s"] for asked in stand_in.of("plan"))
    assert first is None and second > 0 and third > 0
    packed = progressive.open(path, 1e-2, interval=60)
    packed.step()
    packed.read()
    assert [asked["interval_s"] for asked in stand_in.of("plan")[3:]] == [60, 60]
    assert len(stand_in.of("report")) == 5


def test_no_agent_is_no_failure(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(tmp_path / "none"))
    for agent in (None, True):
        packed = progressive.open(path, 1e-2, agent=agent)
        packed.read()
        assert packed.reached.buckets == packed.buckets_for(1e-2) == packed.last.buckets
        assert packed.last.reason.startswith("no agent answers") and not packed.last.reported
        assert "as the bound needs" in packed.last.reason
    packed = progressive.open(path, agent=True)
    assert packed.read().shape == (600, 700) and packed.reached.linf == 0
    assert packed.last.reason.endswith("all of them")


@pytest.mark.parametrize(
    ("fault", "expect"),
    [
        ((404, {"error": "no device: name one"}), "has not decided (no device: name one)"),
        ((403, {"error": {"kind": "refused", "message": "no right"}}), "decided (no right)"),
        ((429, {}), "HTTP 429"),
        ((200, {}), "is not understood"),
        ((200, {"decision": 1, "buckets": 999, "reason": "x"}), "is not understood"),
        ((200, {"decision": 1, "buckets": -2, "reason": "x"}), "is not understood"),
        ((200, {"decision": "a", "buckets": 1, "reason": "x"}), "is not understood"),
        ((200, {"decision": 1, "buckets": 1, "bandwidth": 3, "reason": "x"}), "not understood"),
        ((200, [1]), "has not decided"),
    ],
    ids=str,
)
def test_answers_that_are_no_decision(
    stand_in: StandIn, path: Path, fault: tuple[int, object], expect: str
) -> None:
    stand_in.fault = fault
    packed = progressive.open(path, 1e-2)
    packed.read()
    assert packed.reached.buckets == packed.buckets_for(1e-2)
    assert expect in packed.last.reason and packed.last.id is None


def test_who_may_not_control_asks_as_a_reader(
    stand_in: StandIn, path: Path, tmp_path: Path
) -> None:
    stand_in.fault = (403, {"error": {"kind": "refused", "message": "use read.sock to read"}})
    packed = progressive.open(path, 1e-2)
    packed.read()
    assert "has not decided (use read.sock to read)" in packed.last.reason
    with serving(StandIn(tmp_path, "read.sock")) as readers:
        packed.read()
        packed.read()
        assert packed.last.id == 17 and packed.last.reported
        assert len(readers.of("plan")) == len(readers.of("report")) == 2
    assert len(stand_in.asked) == 2


def test_a_file_that_has_lost_its_name_is_read_and_measured(stand_in: StandIn, path: Path) -> None:
    packed = progressive.open(path, 1e-2)
    os.replace(path, path.with_suffix(".old"))
    path.write_bytes(b"another one")
    packed.read()
    path.unlink()
    packed.read()
    assert packed.last.reported and packed.reached.nrmse <= 1e-2
    assert [report["bytes"] for report in stand_in.of("report")] == [packed.reached.bytes] * 2


def test_a_file_over_tiers_asks_about_its_slow_device(
    stand_in: StandIn, path: Path, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as fast:
        if os.stat(fast).st_dev == os.stat(tmp_path).st_dev:
            pytest.skip("both directories lie on one device")
        room = os.path.getsize(path) // 20
        progressive.place(path, [(fast, room), tmp_path])
        packed = progressive.open(path, 1e-9)
        stand_in.answer["buckets"] = 0
        packed.read()
        [asked] = stand_in.of("plan")
        first = len(packed.buckets) - len(asked["buckets"])
        assert 1 < first < len(packed.buckets)
        device = os.stat(tmp_path).st_dev
        assert asked["device"] == f"{os.major(device)}:{os.minor(device)}"
        assert (asked["base_bytes"], asked["base_nrmse"]) == (0, packed.buckets[first - 1].nrmse)
        slow = [bucket.bytes for bucket in packed.buckets[first:]]
        assert [bucket["bytes"] for bucket in asked["buckets"]] == slow
        assert packed.last.proposed == first and packed.last.buckets == len(packed.buckets)
        assert stand_in.of("report")[0]["bytes"] == sum(slow)
        # A coarse reading takes nothing from the slow device.
        coarse = progressive.open(path, packed.buckets[first - 1].nrmse)
        coarse.read()
        assert coarse.last.buckets == first
        assert stand_in.of("report")[1]["bytes"] == 0
        # Without the slow tier the agent is asked about what is there.
        os.unlink(packed._array.parts[1])
        without = progressive.open(path, packed.buckets[first - 1].nrmse)
        assert without.read().shape == packed.shape
        device = os.stat(fast).st_dev
        assert stand_in.of("plan")[2]["device"] == f"{os.major(device)}:{os.minor(device)}"


def test_a_reading_that_fails_gives_its_weight_back(stand_in: StandIn, path: Path) -> None:
    packed = progressive.open(path, 1e-2)
    os.truncate(path, packed.bytes_read + 10)
    with pytest.raises(OSError, match="cannot be read"):
        packed.read()
    [report] = stand_in.of("report")
    assert report == {"decision": 17, "bytes": 0, "seconds": 0.0, "nrmse": None}
    assert packed.last.reported and packed.last.nrmse is None and packed.reached is None
