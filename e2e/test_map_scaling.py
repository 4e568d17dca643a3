"""Slow servers are taken out of maps by decisions, which are judged by what members get without them: real
servers, which sleep, and members that wait for them or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, Agent, eventually
from test_agreement import Process, started

# Serves requests on a socket, slowly while a file is there. It is told: map, number, socket, file.
SERVER = """
import os, socket, sys, threading, time, barograph
name, number, path, slow = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
server = barograph.map_server(name, number)

def serve(connection):
    with connection, connection.makefile("rw") as lines:
        for line in lines:
            with server.serve(int(line)) as request:
                if request.fence is None:
                    time.sleep(0.08 if os.path.exists(slow) else 0.004)
                    request.done(1000)
            lines.write(f"{request.fence or 0}\\n")
            lines.flush()

door = socket.socket(socket.AF_UNIX)
door.bind(path)
door.listen()
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()
"""
# Writes to all servers of the map and waits for them; a paced one takes as long whatever they do.
MEMBER = """
import socket, sys, time, barograph
name, paced, paths = sys.argv[1], sys.argv[2] == "paced", sys.argv[3:]
map = barograph.server_map(name, servers=range(len(paths)))
lines = []
for path in paths:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    lines.append(connection.makefile("rw"))
told = None
while True:
    operation = map.operation()
    with operation:
        state = (operation.epoch, *operation.servers)
        if state != told:
            print(*state, flush=True)
            told = state
        until = time.monotonic() + 0.1
        for server in operation.servers:
            lines[server].write(f"{operation.epoch}\\n")
            lines[server].flush()
        fences = [int(lines[server].readline()) for server in operation.servers]
        if any(fences):
            operation.refused(max(fences))
        elif paced:
            time.sleep(max(until - time.monotonic(), 0))
"""
SERVERS = 4
SLOW = 2


class Map:
    """A map with real servers and a member."""

    def __init__(self, stack: ExitStack, agent: Agent, folder: Path, name: str, pace: str) -> None:
        self.slow = folder / f"{name}-slow"
        paths = [folder / f"{name}-{number}" for number in range(SERVERS)]
        servers = [
            started(stack, agent, SERVER, name, number, path, self.slow if number == SLOW else folder / "never")
            for number, path in enumerate(paths)
        ]
        assert [server.line() for server in servers] == ["ready"] * SERVERS
        self.member: Process = started(stack, agent, MEMBER, name, pace, *paths)


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def decisions(agent: Agent, name: str) -> list[dict[str, Any]]:
    return agent.rows(
        "SELECT id, subject, value, reason, outcome, outcome_reason, effect, inputs FROM decisions "
        f"WHERE controller = 'server-maps' AND subject = '{name}' ORDER BY id"
    )


def test_a_slow_server_is_taken_out_if_that_helps_and_added_again_otherwise(tmp_path: Path, processes: ExitStack) -> None:
    with ExitStack() as running:
        agent = Agent(tmp_path, config=f"{QUICK}[control]\nscale_down = true\n")
        running.callback(agent.destroy)
        agent.start()
        striped = Map(processes, agent, tmp_path, "striped", "at once")
        paced = Map(processes, agent, tmp_path, "paced", "paced")
        for one in (striped, paced):
            assert one.member.line() == "1 0 1 2 3"
        operations = "SELECT count(*) AS n FROM server_maps WHERE operations_s > 0 AND stage = 'in force'"
        eventually(lambda: agent.rows(operations) == [{"n": 2}], "both do operations", 60)
        striped.slow.touch()
        paced.slow.touch()
        for one in (striped, paced):
            assert one.member.line() == "2 0 1 3"
        out = "SELECT state, count(*) AS n FROM map_servers WHERE map = 'striped' GROUP BY state ORDER BY state"
        eventually(lambda: agent.rows(out) == [{"state": "in the map", "n": 3}, {"state": "taken out", "n": 1}], "a table")

        # What waits for the server does more without it.
        def judged() -> dict[str, Any] | None:
            first = decisions(agent, "striped")[0]
            return first if first["effect"] else None

        found = eventually(judged, "its effect is judged", 90)
        assert (found["outcome"], found["value"]) == ("done", 3), found
        assert "times slower than its peers" in found["reason"]
        told = agent.out("control", "explain", found["id"])
        assert "operations/s without the server" in told and "servers_after" in told, told
        assert "map striped has 3 servers; taken out, since slow: 2" in agent.out("control", "explain", "server-maps")
        # A person wants it back, before it is tried again by itself.
        agent.out("control", "revert", found["id"], "--reason", "maintenance is over")
        assert striped.member.line() == "3 0 1 2 3"
        eventually(lambda: decisions(agent, "striped")[0]["outcome"] == "reverted", "it is taken back")
        assert "not out by it any more" in agent.error("control", "revert", found["id"])
        # What takes as long whatever servers do has nothing of it.
        assert paced.member.line() == "3 0 1 2 3"
        # Members are told of the servers before the leader has ended the change.
        def taken_back() -> list[dict[str, Any]] | None:
            both = decisions(agent, "paced")
            return both if [one["outcome"] for one in both] == ["reverted", "done"] else None

        first, back = eventually(taken_back, "both decisions are settled")
        assert "no effect" in first["outcome_reason"], first
        assert "wanted back" in back["reason"], back
        (controller,) = [row for row in agent.ask("control", "list")["controllers"] if row["name"] == "server-maps"]
        assert (controller["level"], controller["mode"]) == ("global", "live")
        assert "taking servers out of a map" in str(controller["held_off"])
