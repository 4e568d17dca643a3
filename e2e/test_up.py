"""`baro up`: its output, the files in its directories, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from collections.abc import Callable
from contextlib import suppress

import pytest
from harness import QUICK, SOURCES, Agent, eventually, replace_file

Start = Callable[..., Agent]


def test_the_start_ends_with_a_table_and_the_ready_line(live: Agent) -> None:
    lines = live.output().splitlines()
    assert lines[0].split() == ["SOURCE", "STATE", "STREAMS", "EVERY", "COST", "SEES"]
    table = [line.split()[0] for line in lines[1 : 1 + len(SOURCES)]]
    assert sorted(table) == sorted(SOURCES)
    assert lines[-1] == f"barograph ready: http://127.0.0.1:{live.port} (node {live.node})"
    assert live.node == socket.gethostname().split(".")[0]


def test_port_0_is_a_free_port_that_answers(live: Agent) -> None:
    assert live.port > 0
    assert live.get("/healthz").json["status"] == "ok"


def test_json_lists_the_sources_before_the_ready_line(start: Start) -> None:
    first, *_ = start("--json").output().splitlines()
    assert {source["source"] for source in json.loads(first) if source["state"] != "off"} == set(SOURCES)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_in_order(start: Start, number: signal.Signals) -> None:
    agent = start()
    assert agent.stop(number) == 0
    assert agent.output().splitlines()[-1].startswith("barograph stopped")
    left = {path.name for path in agent.run_dir.iterdir()}
    assert not left & {"read.sock", "control.sock", "control.token"}, left
    with pytest.raises(ConnectionRefusedError):
        agent.get("/healthz")


def test_a_signal_stops_it_while_clients_hold_on(start: Start) -> None:
    agent = start()
    watching = agent.connection()
    watching.request("GET", "/api/v1/watch?match=*&every_ms=100")
    response = watching.getresponse()
    assert response.readline()
    idle = socket.create_connection(("127.0.0.1", agent.port))
    assert agent.stop() == 0
    idle.close()
    watching.close()


def test_after_a_stop_its_streams_have_ended(start: Start) -> None:
    agent = start()
    eventually(lambda: agent.latest("memory.total.bytes"), "a sample")
    assert agent.stop() == 0
    found = agent.latest("memory.total.bytes")
    assert all(sample["stale"] for sample in found), "an ended stream is not fresh"
    done = agent.run("status")
    assert done.returncode == 1, done.stdout
    assert "baro up" in done.stderr


def test_the_run_directory_has_the_modes_of_the_design(live: Agent) -> None:
    expect = {
        "lock": 0o600,
        "segment": 0o644,
        "sources.json": 0o644,
        "insights.json": 0o644,
        "agent.json": 0o644,
        "archive.json": 0o644,
        "forecasts.json": 0o644,
        "interference.json": 0o644,
        "policies.json": 0o644,
        "rules.json": 0o644,
        "statements.json": 0o644,
        "peers.json": 0o644,
        "subscribers.json": 0o644,
        "query_nodes.json": 0o644,
        "controllers.json": 0o644,
        "decisions.json": 0o600,
        "io_phases.json": 0o600,
        "map_servers.json": 0o600,
        "server_maps.json": 0o600,
        "cluster.json": 0o644,
        "cluster_insights.json": 0o644,
        "read.sock": 0o666,
        "control.sock": 0o600,
        "control.token": 0o600,
    }
    # The users who may publish: all if the agent is the node's own.
    to_all = os.geteuid() < 1_000
    expect |= {"ingest": 0o1733 if to_all else 0o700}
    expect |= dict.fromkeys(("ingest.sock", "phases.sock"), 0o666 if to_all else 0o600)

    def modes() -> dict[str, int]:
        found = {}
        for path in live.run_dir.iterdir():
            # A document that is being replaced has a second name for a moment.
            with suppress(FileNotFoundError):
                found[path.name] = stat.S_IMODE(path.stat().st_mode)
        return found

    eventually(lambda: modes() == expect, f"just these files and modes: {expect}")
    assert stat.S_IMODE(live.run_dir.stat().st_mode) == 0o755


def test_off_serves_unix_sockets_only(start: Start) -> None:
    agent = start("--http", "off")
    assert agent.place == str(agent.run_dir / "read.sock")
    assert agent.get("/healthz", way="read.sock").status == 200
    assert agent.ask("status")["http"] is None


def test_options_win_over_the_file(start: Start) -> None:
    config = 'node = "from_file"\nhttp = "off"\n' + QUICK
    agent = start("--node", "from_option", "--http", "127.0.0.1:0", config=config)
    assert agent.node == "from_option"
    assert agent.get("/api/v1/status").json["node"] == "from_option"


def test_the_file_is_obeyed(start: Start) -> None:
    insight = "CREATE INSIGHT from.the.file.bytes AS SELECT sum(value) FROM memory_total_bytes"
    config = f'node = "from_file"\ninsights = ["{insight}"]\n[streams]\nmax = 500\ndepth = 16\n{QUICK}'
    agent = start(config=config)
    assert agent.node == "from_file"
    assert agent.ask("status")["streams_max"] == 500
    assert agent.ask("streams", "memory.total.bytes")[0]["depth"] == 16
    assert agent.value("from.the.file.bytes") == agent.value("memory.total.bytes")


def test_the_file_is_read_again(start: Start) -> None:
    def config(factor: int, name: str, more: str = "") -> str:
        made = f"CREATE INSIGHT times.bytes AS SELECT {factor} * value FROM memory_total_bytes"
        policy = f'[[policy]]\nname = "{name}"\nstreams = ["memory.*"]\nerror = "1 %"\n'
        return f'insights = ["{made}"]\n{more}{QUICK}{policy}'

    agent = start(config=config(2, "first"))
    path = agent.config
    total = agent.value("memory.total.bytes")
    assert agent.value("times.bytes") == 2 * total
    kept = "CREATE INSIGHT kept.bytes AS SELECT 7 * value FROM memory_total_bytes"
    agent.ask("insight", "create", kept)
    assert agent.ask("reload") == {"left_out": [], "needs_restart": []}

    replace_file(path, config(3, "second", more="[streams]\ndepth = 999\n"))
    assert agent.ask("reload") == {"left_out": [], "needs_restart": ["streams"]}
    assert agent.value("times.bytes") == 3 * total
    assert agent.value("kept.bytes") == 7 * total
    assert {row["name"] for row in agent.sql("SELECT name FROM policies")} == {"second"}

    # A file that cannot be used changes nothing, and an insight that cannot be made is named.
    replace_file(path, config(4, "third") + "nonsense = 1\n")
    assert "nonsense" in agent.error("reload")
    assert agent.value("times.bytes") == 3 * total
    replace_file(path, config(4, "third").replace("memory_total_bytes", "memory_totl_bytes"))
    assert "did you mean memory_total_bytes" in agent.error("reload")
    assert agent.value("times.bytes") == 3 * total

    # SIGHUP does the same.
    replace_file(path, config(5, "fourth"))
    assert agent.process
    agent.process.send_signal(signal.SIGHUP)
    eventually(lambda: agent.value("times.bytes") == 5 * total, "the file is read again")
    agent.restart()
    assert agent.value("times.bytes") == 5 * agent.value("memory.total.bytes")
    assert agent.value("kept.bytes") == 7 * agent.value("memory.total.bytes")


def test_more_streams_than_there_is_room_for_are_refused_and_counted(start: Start) -> None:
    agent = start(config="[streams]\nmax = 40\n" + QUICK)
    status = agent.ask("status")
    assert status["streams"] == status["streams_max"] == 40
    assert status["refused"] > 0
