"""Reading and controlling are separate rights, over each of the ways in."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import BARO, Agent, environment

Start = Callable[..., Agent]
CREATE = {"sql": "CREATE INSIGHT my.sum.bytes AS SELECT sum(value) FROM memory_total_bytes"}
NOBODY = 65534


def test_tcp_without_the_token_does_not_control(fixed: Agent) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {fixed.token()}"}):
        answer = fixed.request("POST", "/api/v1/insights", CREATE, headers=headers)
        assert answer.status == 401
        assert answer.kind == "refused" and "control.token" in answer.message
    assert not fixed.has("my.sum.bytes")


def test_tcp_with_the_token_controls(start: Start) -> None:
    agent = start()
    headers = {"Authorization": f"Bearer {agent.token()}"}
    answer = agent.request("POST", "/api/v1/insights", CREATE, headers=headers)
    assert answer.status == 200 and answer.json["name"] == "my.sum.bytes"
    assert agent.value("my.sum.bytes") == agent.value("memory.total.bytes")
    answer = agent.request("POST", "/api/v1/insights", {"sql": "DROP INSIGHT my.sum.bytes"}, headers=headers)
    assert answer.status == 200
    assert not agent.has("my.sum.bytes")


def test_the_token_is_new_at_each_start(start: Start) -> None:
    agent = start()
    before = agent.token()
    agent.restart()
    assert agent.token() != before
    answer = agent.request("POST", "/api/v1/insights", CREATE, headers={"Authorization": f"Bearer {before}"})
    assert answer.status == 401


def test_the_read_socket_does_not_control(fixed: Agent) -> None:
    headers = {"Authorization": f"Bearer {fixed.token()}"}
    for more in ({}, headers):
        answer = fixed.request("POST", "/api/v1/insights", CREATE, "read.sock", more)
        assert answer.status in (401, 403) and answer.kind == "refused"
    assert fixed.get("/api/v1/status", "read.sock").status == 200
    assert not fixed.has("my.sum.bytes")


def test_the_control_socket_controls_and_reads(start: Start) -> None:
    agent = start()
    assert agent.request("POST", "/api/v1/insights", CREATE, "control.sock").status == 200
    assert agent.get("/api/v1/latest?match=my.sum.bytes", "control.sock").json[0]["name"] == "my.sum.bytes"


def test_a_test_of_an_insight_is_reading(fixed: Agent) -> None:
    without = fixed.request("POST", "/api/v1/insights/test", CREATE, "tcp")
    assert without.status == 401 and without.kind == "refused"
    token = {"Authorization": f"Bearer {fixed.token()}"}
    for way in ("tcp", "read.sock", "control.sock"):
        answer = fixed.request("POST", "/api/v1/insights/test", CREATE, way, token)
        assert answer.status == 200
        assert [row["value"] for row in answer.json["rows"]] == [fixed.value("memory.total.bytes")]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7070", "127.0.0.1.evil.example", "10.0.0.1"])
def test_tcp_wants_a_host_that_names_loopback(fixed: Agent, host: str) -> None:
    answer = fixed.request("GET", "/api/v1/status", headers={"Host": host})
    assert answer.status == 403 and answer.kind == "refused"


def test_pages_of_other_sites_are_refused(fixed: Agent) -> None:
    answer = fixed.request("GET", "/api/v1/status", headers={"Origin": "http://evil.example"})
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers
    answer = fixed.request("POST", "/api/v1/sql", "SELECT 1", headers={"Origin": "http://evil.example"})
    assert answer.status == 403


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_another_user_reads_but_does_not_control() -> None:
    # Not below pytest's own directory, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="barograph-test-") as place:
        folder = Path(place)
        folder.chmod(0o755)
        agent = Agent(folder)
        try:
            check_as_nobody(agent.start())
        finally:
            agent.destroy()


def check_as_nobody(agent: Agent) -> None:
    binary = agent.folder / "baro"
    shutil.copy(BARO, binary)

    def as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binary, *arguments, "--run-dir", agent.run_dir],
            user=NOBODY, group=NOBODY, extra_groups=[], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, env=environment(), timeout=60,
        )  # fmt: skip

    read = as_nobody("latest", "memory.total.bytes", "--json")
    assert read.returncode == 0, read.stderr
    asked = as_nobody("sql", "SELECT value FROM memory_total_bytes WHERE newest")
    assert asked.returncode == 0, asked.stderr
    tried = as_nobody("insight", "create", CREATE["sql"], "--dry-run")
    assert tried.returncode == 0, tried.stderr
    made = as_nobody("insight", "create", CREATE["sql"])
    assert made.returncode == 1 and "control" in made.stderr
    assert not agent.has("my.sum.bytes")
