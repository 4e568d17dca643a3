"""Streams without room: programs learn of it, nothing is remembered for ever, and counters begin
anew."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import PATIENCE_SECONDS, QUICK, Agent, environment, eventually

Start = Callable[..., Agent]

# Declares `count` values, puts each in every frame, and prints the number of refused values
# whenever it changes.
MANY = """
import sys, time, barograph
name, count = sys.argv[1], int(sys.argv[2])
publication = barograph.publication(name, {f"v{i}": float for i in range(count)})
told = None
while True:
    for value in publication.values.values():
        value.put(1.0)
    publication.frame()
    if publication.refused != told:
        told = publication.refused
        print(told, flush=True)
    time.sleep(0.05)
"""

# Counts to a hundred and ends.
SHORT = """
import barograph
publication = barograph.publication("short", {"done": barograph.counter("count")}, readers="all")
for done in range(1, 101):
    publication.put(done=done)
    publication.frame()
publication.close()
"""


def python(agent: Agent, program: str, *arguments: object) -> subprocess.Popen[str]:
    """Runs a Python program beside an agent."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(BAROGRAPH_RUN_DIR=str(agent.run_dir)),
    )


def said(program: subprocess.Popen[str], wanted: int) -> None:
    """Waits until the program prints this number of refusals; earlier output is ignored."""
    assert program.stdout
    # A program that never prints the number is killed, which ends its output.
    end = threading.Timer(PATIENCE_SECONDS, program.kill)
    end.start()
    try:
        assert any(int(line) == wanted for line in program.stdout), f"it ended without {wanted} refusals"
    finally:
        end.cancel()


def publication(agent: Agent, name: str) -> dict[str, Any]:
    """The row of a publication; empty before it is listed."""
    return next(iter(agent.sql(f"SELECT * FROM publications WHERE name = '{name}'")), {})


def values_of(agent: Agent, name: str) -> int:
    return len(agent.rows(f"SELECT DISTINCT name FROM latest WHERE name GLOB 'app.{name}.v*'"))


def test_a_program_is_told_what_is_refused_and_has_it_when_there_is_room(start: Start) -> None:
    agent = start(config=QUICK + "[applications]\nstreams_max = 32\n")
    # Each publication has its values and a stream of its frames.
    with python(agent, MANY, "first", 20) as first:
        try:
            said(first, 0)
            eventually(lambda: values_of(agent, "first") == 20, "all of the first are there")
            with python(agent, MANY, "second", 20) as second:
                try:
                    eventually(lambda: values_of(agent, "second") > 0, "some of the second are there")
                    refused = eventually(lambda: publication(agent, "second").get("refused"), "some are refused")
                    said(second, refused)
                    assert refused == 20 - values_of(agent, "second")
                    assert "streams_max" in publication(agent, "second")["refusal"]
                    first.kill()
                    first.wait()
                    said(second, 0)
                    eventually(lambda: values_of(agent, "second") == 20, "all of the second are there")
                    known = eventually(lambda: (p := publication(agent, "second")).get("refusal") == "" and p, "none is refused")
                    assert (known["values"], known["refused"]) == (20, 0)
                finally:
                    second.kill()
        finally:
            first.kill()


def test_counters_of_short_programs_add_up(start: Start) -> None:
    agent = start(config=QUICK)
    runs = 4
    for run in range(1, runs + 1):
        with python(agent, SHORT) as program:
            assert program.wait(60) == 0
        count = "SELECT count(*) AS n FROM app_short_done WHERE value = 100"
        eventually(lambda: (r := agent.rows(count)) and r[0]["n"] == run, "the run is there")
    falls = """SELECT sum(value = 0) AS zeros, max(value) AS most FROM app_short_done"""
    row = agent.sql(falls)[0]
    assert row["zeros"] >= runs - 1 and row["most"] == 100, row
    # Each run counts: with the same labels, the next one is a fall to 0 and not a standstill.
    grown = """SELECT sum(max(value - before, 0)) AS n FROM
        (SELECT value, lag(value, 1, 0) OVER (ORDER BY ts) AS before FROM app_short_done)"""
    assert agent.sql(grown)[0]["n"] == runs * 100
    rates = "SELECT sum(value > 0) AS rising FROM rate('app.short.done')"
    assert agent.sql(rates)[0]["rising"] >= runs * 50
    # Prometheus' increase is extrapolated to the ends of its window, which adds hardly anything
    # here.
    query = "/api/v1/query?query=increase(barograph_app_short_done_total[1h])"

    def found() -> list[dict[str, Any]]:
        return agent.request("GET", query, way="read.sock").json["data"]["result"]

    # The server looks for new scopes once a second.
    (series,) = eventually(found, "PromQL knows the scope")
    assert abs(float(series["value"][1]) - runs * 100) < 2, series


def lowest_free(agent: Agent) -> int:
    """The lowest number of a file descriptor that was free at some time in a second: with this
    limit no other file can be opened. One look is not enough, since files that the agent has open
    for a moment would count as in use."""
    assert agent.process
    lowest = sys.maxsize
    end = time.monotonic() + 1
    while time.monotonic() < end:
        used = {int(name) for name in os.listdir(f"/proc/{agent.process.pid}/fd")}
        lowest = min(lowest, next(number for number in range(len(used) + 1) if number not in used))
    return lowest


def test_no_descriptors_is_not_for_ever(start: Start) -> None:
    agent = start(config=QUICK)
    assert agent.process
    programs: list[subprocess.Popen[str]] = []
    count = 12
    _, hard = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)

    def limit(most: int) -> None:
        assert agent.process
        resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (most, hard))

    def seen() -> set[str]:
        rows: list[dict[str, Any]] = agent.rows("SELECT DISTINCT name FROM publications")
        return {row["name"] for row in rows}

    try:
        # The scope exists with its archive; then no more files can be opened.
        programs.append(python(agent, MANY, "p0", 2))
        eventually(lambda: "p0" in seen(), "the first is seen")
        limit(lowest_free(agent))
        programs.extend(python(agent, MANY, f"p{at}", 2) for at in range(1, count))
        folder = Path(agent.run_dir, "ingest")
        eventually(lambda: len(list(folder.iterdir())) >= count, "all have their files")
        waiting = "SELECT value FROM agent_ingest_waiting_count WHERE newest"
        # Readers need none of the agent's descriptors. Descriptors that come free later, as those of
        # a connection that has ended, may serve to open a few more files.
        eventually(lambda: agent.rows(waiting)[0]["value"] >= count / 2, "those who wait are counted")
        assert "p0" in seen() and len(seen()) <= count / 2, "the limit is none"
        limit(hard)
        eventually(lambda: len(seen()) == count, "all are seen")
        lost = agent.sql("SELECT name, lost FROM publications")
        assert all(row["lost"] == 0 for row in lost), lost
    finally:
        for program in programs:
            program.send_signal(signal.SIGKILL)
            program.wait()
