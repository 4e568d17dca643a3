"""Changes of a map of servers, at each step of which a real process is killed: agents, members and servers. What
programs have recorded of their operations tells afterwards whether any of them was lost or came too late."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE_SECONDS, Agent, environment, eventually
from test_agreement import CONTROLLERS, agreed
from test_node_calls import certified

# Does operations at the servers of a map, each of which is a request to every server, and records what came of it: an
# operation that was refused, or whose server was lost, is done again. After "hold" it stops within an operation.
MEMBER = """
import os, socket, sys, threading, time, barograph
name, folder, number = sys.argv[1:4]
servers = barograph.server_map(name, servers=range(3))
record = os.open(f"{folder}/member-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
goes_on = threading.Event()
goes_on.set()

def listen():
    for line in sys.stdin:
        goes_on.clear() if line == "hold\\n" else goes_on.set()

def ask(server, epoch, request):
    try:
        with socket.socket(socket.AF_UNIX) as way:
            way.connect(f"{folder}/{server}.sock")
            way.sendall(f"{epoch} {request}\\n".encode())
            return int(way.recv(64))
    except (OSError, ValueError):
        return None

threading.Thread(target=listen, daemon=True).start()
operation = 0
while True:
    operation, attempt, outcome = operation + 1, 0, ""
    while outcome != "completed":
        attempt += 1
        with servers.operation() as op:
            if not goes_on.is_set():
                print("held", flush=True)
                goes_on.wait()
            answers = [ask(server, op.epoch, f"{number}.{operation}.{attempt}") for server in op.servers]
            fence = max((answer for answer in answers if answer), default=0)
            outcome = "refused" if fence else "lost" if None in answers else "completed"
            if fence:
                op.refused(fence)
            list = ",".join(map(str, op.servers))
            line = f"{operation} {attempt} {outcome} {op.epoch} {fence} {list} {op.start}\\n"
            os.write(record, line.encode())
        time.sleep(0.05 if outcome == "lost" else 0.01)
"""
# Serves requests over a socket, and records each that it serves while it does. It answers with the fence, or 0 if the
# request is served. One that is to be held is answered at once, and served until whoever has sent it closes its end.
SERVER = """
import contextlib, os, socket, sys, threading, barograph
name, folder, number = sys.argv[1:4]
server = barograph.map_server(name, int(number))
record = os.open(f"{folder}/server-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

def serve(way):
    # Who has asked may be killed.
    with contextlib.suppress(OSError), way, way.makefile("r") as lines:
        epoch, request, *held = lines.readline().split() or (0, "")
        if not request:
            return
        with server.serve(int(epoch)) as begun:
            if begun.fence is None:
                os.write(record, f"{epoch} {request}\\n".encode())
                begun.done(1000)
                if held:
                    way.sendall(b"0\\n")
                    lines.readline()
                    return
        way.sendall(f"{begun.fence or 0}\\n".encode())

with socket.socket(socket.AF_UNIX) as door:
    path = f"{folder}/{number}.sock"
    if os.path.exists(path):
        os.unlink(path)
    door.bind(path)
    door.listen(64)
    print("ready", flush=True)
    while True:
        threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()
"""

MAPS = "/api/v1/control/maps"


class Program:
    """A member or a server beside an agent."""

    def __init__(self, agent: Agent, source: str, *arguments: object) -> None:
        command = [sys.executable, "-c", source, *map(str, arguments)]
        env = environment(BAROGRAPH_RUN_DIR=str(agent.run_dir))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, bufsize=0)

    def tell(self, word: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{word}\n".encode())

    def says(self, word: str) -> None:
        """Waits until it says this."""
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], 60)[0], f"it does not say {word}"
        assert self.process.stdout.readline() == f"{word}\n".encode()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@dataclass
class Attempt:
    """What a member has recorded of an attempt at an operation."""

    operation: int
    attempt: int
    outcome: str
    epoch: int
    fence: int
    servers: list[int]
    start: str


@dataclass
class System:
    """A map, whose servers and members are beside the agents of a few nodes."""

    name: str
    folder: Path
    nodes: list[Agent]
    members: dict[int, Program] = field(default_factory=dict)
    servers: dict[int, Program] = field(default_factory=dict)
    # The first epoch of the map.
    first: int = 0

    def begin(self, stack: ExitStack, members: dict[int, Agent], servers: dict[int, Agent]) -> None:
        """Starts programs, and waits until the leader has all of them."""
        stack.callback(self.end)
        for number, agent in servers.items():
            self.start_server(number, agent)
        for number, agent in members.items():
            self.members[number] = Program(agent, MEMBER, self.name, self.folder, number)
        for server in self.servers.values():
            server.says("ready")
        self.first = int(eventually(lambda: self.row().get("epoch"), "the leader has the map"))
        self.settles(self.first, sorted(servers))

    def start_server(self, number: int, agent: Agent) -> None:
        self.servers[number] = Program(agent, SERVER, self.name, self.folder, number)

    def end(self) -> None:
        for program in (*self.members.values(), *self.servers.values()):
            program.kill()

    def attempts(self, member: int) -> list[Attempt]:
        """What a member has recorded: whole lines, whenever it is looked at."""
        path = self.folder / f"member-{member}"
        lines = path.read_text().splitlines() if path.exists() else []
        words = [line.split() for line in lines]
        return [
            Attempt(int(number), int(attempt), outcome, int(epoch), int(fence), [*map(int, list_.split(","))], start)
            for number, attempt, outcome, epoch, fence, list_, start in words
        ]

    def served(self, server: int) -> list[tuple[int, str]]:
        """The requests that a server has served: epoch and request, in their order."""
        path = self.folder / f"server-{server}"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(epoch), request) for epoch, request in map(str.split, lines)]

    def row(self) -> dict[str, Any]:
        """The map as `baro control maps` shows it on a node that answers; nothing while no leader is known."""
        for node in self.nodes:
            answer = node.request("POST", MAPS, {}, "control.sock")
            rows = [row for row in answer.json["maps"] if row["name"] == self.name] if answer.status == 200 else []
            if rows:
                return dict(rows[0])
        return {}

    def settles(self, epoch: int, servers: list[int]) -> None:
        """Waits until a map is in force, all programs are known, and each member does operations by it."""
        shown = ("stage", "epoch", "servers", "members", "running_servers")
        in_force = ("in force", epoch, servers, len(self.members), sorted(self.servers))
        expected = (in_force, [("completed", epoch, servers)] * len(self.members))

        def state() -> object:
            row = self.row()
            newest = [self.attempts(member)[-1:] for member in self.members]
            done = [(one.outcome, one.epoch, one.servers) for last in newest for one in last]
            return tuple(row.get(key) for key in shown), done

        deadline = time.monotonic() + PATIENCE_SECONDS
        while (seen := state()) != expected:
            if time.monotonic() > deadline:
                nodes = [node.run("cluster", "status", "--json").stdout for node in self.nodes]
                pytest.fail(f"expected {expected}, but there is {seen}; the nodes say {nodes}")
            time.sleep(0.05)
        [listed] = self.nodes[0].ask("control", "maps", self.name)
        assert tuple(listed[key] for key in shown) == in_force, listed

    def change(self, agent: Agent, **change: list[int]) -> int:
        """Begins a change, and returns its epoch; a leader that is new has to hear of all servers first."""
        body = {"name": self.name, **change}

        def ask() -> int | None:
            answer = agent.request("POST", MAPS, body, "control.sock")
            return answer.json["epoch"] if answer.status == 200 else None

        return int(eventually(ask, "the change begins"))

    def saved(self, agent: Agent) -> dict[str, Any]:
        """The record of the map on the disk of an agent."""
        return saved(agent, self.name)

    def ask(self, server: int, epoch: int, more: str = "") -> tuple[int, socket.socket]:
        """Sends a request that belongs to no member; returns the fence, 0 if it is served, and the connection."""
        way = socket.socket(socket.AF_UNIX)
        way.settimeout(PATIENCE_SECONDS)
        way.connect(f"{self.folder}/{server}.sock")
        way.sendall(f"{epoch} stray {more}\n".encode())
        return int(way.recv(64)), way

    def check(self) -> None:
        """What holds of the records, whoever was killed."""
        served = {server: self.served(server) for server in range(3)}
        for server, requests in served.items():
            epochs = [epoch for epoch, _ in requests]
            assert epochs == sorted(epochs), f"server {server} has served an epoch after a later one"
            counts = Counter(request for _, request in requests if not request.startswith("stray"))
            assert set(counts.values()) <= {1}, f"server {server} has served a request twice"
        known: dict[int, list[int]] = {}
        for member in range(3):
            attempts = self.attempts(member)
            for before, after in zip(attempts, attempts[1:], strict=False):
                is_done = before.outcome == "completed"
                expected = (before.operation + 1, 1) if is_done else (before.operation, before.attempt + 1)
                assert (after.operation, after.attempt) == expected, (before, after)
                if before.outcome == "refused":
                    assert before.epoch < before.fence <= after.epoch, (before, after)
            for one in attempts:
                assert one.start != "late", one
                # All members do the operations of an epoch at the same servers.
                assert known.setdefault(one.epoch, one.servers) == one.servers, one
                if one.outcome == "completed":
                    request = (one.epoch, f"{member}.{one.operation}.{one.attempt}")
                    assert all(request in served[server] for server in one.servers), f"{request} is lost"


def saved(agent: Agent, name: str) -> dict[str, Any]:
    """The record of a map on the disk of an agent; an empty one if there is none."""
    path = agent.state_dir / "leadership.json"
    records = json.loads(path.read_text())["records"] if path.exists() else {}
    for key, record in records.items():
        text = json.loads(record["text"])
        # The map of a register, or of a key that has its name.
        found = text.get("map", text) or {}
        if name in (found.get("name"), key.rpartition("/")[2]):
            return dict(found)
    return {}


def soon(look: Callable[[], bool], what: str) -> None:
    """Waits for what holds for a short time only."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.000_5)


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Agent]]:
    """Three nodes of which each may lead, for all cases: each of these has a map of its own."""
    with certified({name: CONTROLLERS for name in "abc"}) as nodes:
        yield nodes


def leading(nodes: list[Agent]) -> Agent:
    """The node that all follow."""
    led = eventually(lambda: agreed(nodes), "all follow one", 60)
    return next(node for node in nodes if node.node == led)


def held(system: System, step: str, leader: Agent, way: list[socket.socket]) -> int:
    """Begins a change that takes out server 2, and returns its epoch when it is at a step. It stays there while member
    1 holds an operation, or server 1 a request that a member has left behind."""
    if step == "draining":
        system.members[1].tell("hold")
        system.members[1].says("held")
    if step == "fencing":
        fence, connection = system.ask(1, system.first, "held")
        assert fence == 0
        way.append(connection)
    epoch = system.change(leader, remove=[2])
    at = {
        "draining": lambda saved: (saved.get("change") or {}).get("is_committed") is False,
        "fencing": lambda saved: (saved.get("change") or {}).get("is_committed") is True,
        "switched": lambda saved: saved.get("epoch") == epoch,
    }[step]
    # What a majority has on disk holds, whoever leads then.
    soon(lambda: sum(at(system.saved(node)) for node in system.nodes) > len(system.nodes) / 2, f"the change is {step}")
    return epoch


def kill(system: System, killed: str, leader: Agent, other: Agent) -> None:
    """Kills something; an agent begins again in the same directories. But for the leader, it is where the
    change is held up."""
    if killed in ("leader", "agent"):
        {"leader": leader, "agent": other}[killed].restart(signal.SIGKILL)
    elif killed == "member":
        system.members.pop(1).kill()
    else:
        system.servers[1].kill()


def is_done(system: System, step: str, killed: str, epoch: int) -> bool:
    """Waits for the end of a change; returns whether it was done, if both can be."""

    def over() -> dict[str, Any] | None:
        row = system.row()
        return row if row.get("stage") == "in force" else None

    row = eventually(over, "the change is over", 60)
    assert row["epoch"] in (system.first, epoch), row
    done = bool(row["epoch"] == epoch)
    if step != "draining":
        assert done, f"what is committed is completed: {row}"
    elif killed == "leader":
        assert not done, f"its controller was lost: {row}"
    elif not done:
        # On a busy machine a leader is late, and takes itself for lost, or the deadline passes.
        assert any(why in row["changes"][-1]["reason"] for why in ("was lost", "still at work")), row
    return done


@pytest.mark.parametrize("killed", ["leader", "agent", "member", "server"])
@pytest.mark.parametrize("step", ["draining", "fencing", "switched"])
def test_a_change_survives_what_is_killed_while_it_is(
    step: str, killed: str, cluster: list[Agent], tmp_path: Path
) -> None:
    leader = leading(cluster)
    other, last = (node for node in cluster if node is not leader)
    system = System(f"{step}-{killed}", tmp_path, cluster)
    with ExitStack() as stack:
        places = dict(enumerate([leader, other, last]))
        system.begin(stack, places, places)
        way: list[socket.socket] = []
        epoch = held(system, step, leader, way)
        kill(system, killed, leader, other)
        is_aborted = (step, killed) == ("draining", "leader")
        if is_aborted:
            # The operation for which it has waited still runs.
            is_done(system, step, killed, epoch)
        elif step == "fencing" and killed != "server":
            assert system.saved(last)["epoch"] == system.first, "it has not waited for the request that is served"
        for connection in way:
            connection.close()
        if step == "draining" and killed != "member":
            system.members[1].tell("go")
        if killed == "server":
            system.start_server(1, other)
            system.servers[1].says("ready")
        done = is_done(system, step, killed, epoch)
        in_force, servers = (epoch, [0, 1]) if done else (system.first, [0, 1, 2])
        system.settles(in_force, servers)
        for server in system.servers:
            fence, stray = system.ask(server, in_force - 1)
            assert fence == in_force, f"server {server} refuses what is over"
            stray.close()
        # The next change has a number that was never used.
        again, servers = ({"add": [2]}, [0, 1, 2]) if done else ({"remove": [2]}, [0, 1])
        next_epoch = system.change(leading(cluster), **again)
        assert next_epoch > epoch
        system.settles(next_epoch, servers)
    system.check()


# Most changes of which the leader is killed at some time. About one in five meets any of the steps.
TURNS_MAX = 200
# Multiples of it, less their whole parts, fill an interval evenly, however many there are.
GOLDEN = (5**0.5 - 1) / 2


def step_of(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The step of a change that the disk had when its leader was killed."""
    change = after["change"]
    if after["epoch"] != before["epoch"]:
        assert (after["epoch"], change) == (before["last_epoch"] + 1, None), (before, after)
        return "switched"
    if change is None:
        assert after == before, (before, after)
        return "nothing"
    assert change["epoch"] == after["last_epoch"] == before["last_epoch"] + 1, (before, after)
    return "committed" if change["is_committed"] else "prepared"


def test_a_leader_is_killed_at_each_of_its_saves(tmp_path: Path) -> None:
    with ExitStack() as stack:
        (place := tmp_path / "agent").mkdir()
        agent = Agent(place)
        stack.callback(agent.destroy)
        agent.start()
        system = System("saves", tmp_path, [agent])
        system.begin(stack, dict.fromkeys(range(2), agent), dict.fromkeys(range(3), agent))
        # A change that nobody disturbs tells how long they take.
        begun = time.monotonic()
        epoch = system.change(agent, remove=[2])
        soon(lambda: system.saved(agent)["epoch"] == epoch, "a change")
        length = time.monotonic() - begun
        system.settles(epoch, [0, 1])
        servers = [0, 1]
        met: Counter[str] = Counter()
        steps = ("nothing", "prepared", "committed", "switched")
        for turn in range(TURNS_MAX):
            before = system.saved(agent)
            other = [0, 1, 2] if servers == [0, 1] else [0, 1]
            body = {"name": system.name, "add" if 2 in other else "remove": [2]}
            connection = agent.connection("control.sock")
            connection.request("POST", MAPS, json.dumps(body))
            time.sleep(turn * GOLDEN % 1 * 1.5 * length)
            agent.stop(signal.SIGKILL)
            connection.close()
            step = step_of(before, system.saved(agent))
            met[step] += 1
            agent.start()
            done = step in ("committed", "switched")
            in_force = before["last_epoch"] + 1 if done else before["epoch"]
            servers = other if done else servers
            system.settles(in_force, servers)
            if set(met) == set(steps):
                break
        assert set(met) == set(steps), met
        print(f"{met.total()} changes of {length * 1e3:.0f} ms: {dict(met)}")
    system.check()
