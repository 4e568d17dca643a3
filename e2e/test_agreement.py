"""Agreement of nodes: a leader gives programs of all nodes their turns and keeps maps of servers; leaders,
programs and servers are killed."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, Agent, environment, eventually
from test_node_calls import certified
from test_schedule import MIB, Program, states

# Does operations at the servers of a map, and says when these change.
MEMBER = """
import sys, time, barograph
map = barograph.server_map("solver-io", servers=range(3))
told = None
while True:
    with map.operation() as operation:
        state = (operation.epoch, *operation.servers)
        if state != told:
            print(*state, flush=True)
            told = state
        time.sleep(0.005)
    time.sleep(0.005)
"""
# Serves requests of the epoch that it was asked for last, and says which ones it refuses.
SERVER = """
import sys, barograph
server = barograph.map_server("solver-io", int(sys.argv[1]))
print("ready", flush=True)
for line in sys.stdin:
    with server.serve(int(line)) as request:
        print("served" if request.fence is None else request.fence, flush=True)
        if request.fence is None:
            request.done(1000)
"""


class Process:
    """A Python program beside an agent."""

    def __init__(self, agent: Agent, source: str, *arguments: object) -> None:
        command = [sys.executable, "-c", source, *map(str, arguments)]
        env = environment(BAROGRAPH_RUN_DIR=str(agent.run_dir))
        pipe = subprocess.PIPE
        # Without a buffer, whether there is a line can be seen.
        self.process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, bufsize=0)

    def line(self) -> str:
        """The next line that it says, within a minute."""
        assert self.process.stdout
        assert select.select([self.process.stdout], [], [], 60)[0], "it says nothing"
        return self.process.stdout.readline().decode().strip()

    def ask(self, epoch: int) -> str:
        """What a server does with a request of an epoch."""
        assert self.process.stdin
        self.process.stdin.write(f"{epoch}\n".encode())
        return self.line()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, agent: Agent, source: str, *arguments: object) -> Process:
    process = Process(agent, source, *arguments)
    stack.callback(process.kill)
    return process


def the_map(agent: Agent) -> dict[str, Any]:
    maps = agent.ask("control", "maps", "solver-io")
    assert len(maps) == 1, maps
    return dict(maps[0])


def test_servers_are_taken_out_and_added_while_operations_run(tmp_path: Path, processes: ExitStack) -> None:
    with ExitStack() as running:
        agent = Agent(tmp_path, config=QUICK)
        running.callback(agent.destroy)
        agent.start()
        assert "no maps of servers" in agent.out("control", "maps")
        servers = [started(processes, agent, SERVER, number) for number in range(3)]
        assert [server.line() for server in servers] == ["ready"] * 3
        member = started(processes, agent, MEMBER)
        assert member.line() == "1 0 1 2"
        eventually(lambda: [server.ask(1) for server in servers] == ["served"] * 3, "all serve")
        assert "has begun" in agent.out("control", "maps", "solver-io", "--remove", 1)
        assert member.line() == "2 0 2"
        # Whatever comes late is refused, by all servers.
        assert [server.ask(1) for server in servers] == ["2"] * 3
        assert servers[0].ask(2) == "served"
        found = eventually(lambda: the_map(agent)["stage"] == "in force" and the_map(agent), "it is over")
        assert (found["epoch"], found["servers"], found["running_servers"]) == (2, [0, 2], [0, 1, 2])
        assert [change["reason"] for change in found["changes"]] == [None]
        # A server that is killed is not waited for, and one that comes back serves what holds then.
        servers[1].kill()
        eventually(lambda: the_map(agent)["gone_servers"] == [1], "its end is seen")
        assert "is not there" in agent.error("control", "maps", "solver-io", "--add", 1)
        back = started(processes, agent, SERVER, 1)
        assert back.line() == "ready"
        eventually(lambda: 1 in the_map(agent)["running_servers"], "it is back")
        eventually(lambda: back.ask(1) == "2", "it is told the fence")
        agent.out("control", "maps", "solver-io", "--add", 1)
        assert member.line() == "3 0 1 2"
        assert "the map would have no server" in agent.error("control", "maps", "solver-io", "--remove", "0,1,2")
        # Another life of the agent has the map, and members go on meanwhile.
        agent.restart(signal.SIGKILL)
        eventually(lambda: agent.ask("control", "maps") and the_map(agent)["members"] == 1, "the map is kept")
        assert the_map(agent)["epoch"] == 3
        eventually(lambda: len(the_map(agent)["running_servers"]) == 3, "its servers are known")
        agent.out("control", "maps", "solver-io", "--remove", 0)
        assert member.line() == "4 1 2"


CONTROLLERS = '[cluster]\ncontrollers = ["a", "b", "c"]\n'


def shared(folder: Path) -> str:
    volume = f'path = "{folder}"\nbandwidth = {MIB}\npolicy = "fcfs"\nshared = true\n'
    return f"{QUICK}{CONTROLLERS}[schedule.volumes.scratch]\n{volume}"


def leader(agent: Agent) -> str | None:
    status = agent.ask("cluster", "status")
    return status.get("leader")


def agreed(nodes: list[Agent]) -> str | None:
    """The node that all of these follow, if it is one of them."""
    leaders = {leader(node) for node in nodes}
    found = leaders.pop()
    return found if not leaders and found in {node.node for node in nodes} else None


def test_programs_of_all_nodes_take_turns_and_a_lost_leader_is_replaced(tmp_path: Path) -> None:
    config = shared(tmp_path)
    with certified({name: config for name in "abc"}) as nodes, ExitStack() as running:
        # The first of the list, unless the machine is so busy that it is late.
        led = eventually(lambda: agreed(nodes), "all follow one", 60)
        a = next(node for node in nodes if node.node == led)
        b, c = (node for node in nodes if node.node != led)

        def program(agent: Agent, application: str) -> Program:
            made = Program(agent.run_dir, tmp_path / application, application)
            running.callback(made.process.communicate)
            running.callback(made.process.kill)
            made.is_known(agent)
            return made

        first, second = program(b, "first"), program(c, "second")
        first.begin("x", 100 * MIB, 60)
        assert first.answer() == "granted 1.0"
        second.begin("y", 100 * MIB, 60)
        eventually(lambda: states(a) == [("first", "granted"), ("second", "waiting")], "the leader has both")
        # Other nodes have their own phases.
        eventually(lambda: states(c) == [("second", "waiting")], "its own phase")
        first.do("end", "x", MIB)
        assert second.answer() == "granted 1.0"
        # The leader is killed: who does I/O goes on, and who begins is not held up. If there is a new leader
        # already, it waits for its turn, as long as it wants to.
        a.stop(signal.SIGKILL)
        third = program(b, "third")
        third.begin("z", 100 * MIB, 3)
        assert third.answer().split()[0] in ("off", "granted", "late", "no_agent")
        third.do("end", "z", MIB)
        led = eventually(lambda: agreed([b, c]), "another one leads", 60)
        next_one = b if b.node == led else c
        # It knows who is at work.
        fourth = program(b, "fourth")
        fourth.begin("w", 100 * MIB, 60)
        eventually(lambda: states(next_one) == [("second", "granted"), ("fourth", "waiting")], "the holder is known")
        second.do("end", "y", MIB)
        answer = fourth.answer()
        # On a busy machine a leader may be lost for a moment, and who waits then goes on without a turn.
        for _ in range(5):
            if answer == "granted 1.0":
                break
            assert answer.startswith("off"), answer
            fourth.do("end", "w", MIB)
            fourth.begin("w", 100 * MIB, 60)
            answer = fourth.answer()
        assert answer == "granted 1.0"


def test_a_server_moves_to_another_node_when_it_has_ended_where_it_was(tmp_path: Path, processes: ExitStack) -> None:
    config = f"{QUICK}{CONTROLLERS}"
    with certified({name: config for name in "abc"}) as nodes:
        led = eventually(lambda: agreed(nodes), "all follow one", 60)
        a = next(node for node in nodes if node.node == led)
        b, c = (node for node in nodes if node.node != led)
        servers = [started(processes, b, SERVER, number) for number in range(3)]
        member = started(processes, b, MEMBER)
        assert [server.line() for server in servers] == ["ready"] * 3
        assert member.line() == "1 0 1 2"
        eventually(lambda: [server.ask(1) for server in servers] == ["served"] * 3, "all serve")
        # Its next process is there while the one before runs on its node, and serves nothing.
        moved = started(processes, c, SERVER, 1)
        assert moved.line() == "ready"
        eventually(lambda: the_map(a)["moved_servers"] == [[1, c.node, b.node]], "the leader sees both")
        assert "baro control maps solver-io --gone 1" in a.out("control", "maps")
        state = "SELECT state FROM map_servers WHERE server = 1"
        eventually(lambda: a.rows(state) == [{"state": "moved"}], "a table")
        assert moved.ask(1) != "served"
        assert servers[1].ask(1) == "served"
        servers[1].kill()
        eventually(lambda: moved.ask(1) == "served", "it is told the fence", 30)
        assert the_map(a)["moved_servers"] == []
        # The next leader hears of the end on the old node as well, and waits for the new one.
        a.stop(signal.SIGKILL)
        led = eventually(lambda: agreed([b, c]), "another one leads", 60)
        next_one = b if b.node == led else c
        eventually(lambda: the_map(next_one)["running_servers"] == [0, 1, 2], "it knows where the servers are", 30)
        next_one.out("control", "maps", "solver-io", "--remove", 0)
        assert member.line() == "2 1 2"
        assert moved.ask(1) == "2"
