"""The server of staging beside an agent: started, started again, and stopped with it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from harness import BARO, COMMAND_SECONDS_MAX, Agent, environment, eventually

MIB = 1 << 20


def configured(folder: Path) -> str:
    tier = folder / "tier"
    tier.mkdir(exist_ok=True)
    return f'[staging]\nenabled = true\nmemory = "8MiB"\ntiers = ["{tier}=1GiB"]\n'


def stage(agent: Agent, *words: object, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs a command that finds the server by the run directory."""
    env = environment(BAROGRAPH_RUN_DIR=str(agent.run_dir))
    command = [BARO, "stage", *map(str, words)]
    return subprocess.run(command, input=data, capture_output=True, timeout=COMMAND_SECONDS_MAX, env=env)


def server_of(agent: Agent) -> int | None:
    """The process of the server, a child of the agent."""
    assert agent.process
    for task in Path(f"/proc/{agent.process.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if b"serve" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return int(child)
    return None


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return b"serve" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_blocks_outlive_agents_and_servers(start: Callable[..., Agent], tmp_path: Path) -> None:
    agent = start(config=configured(tmp_path))
    data = os.urandom(MIB)
    put = stage(agent, "put", "d", "x", data=data)
    assert put.returncode == 0, put.stderr
    assert stage(agent, "get", "d", "x").stdout == data
    eventually(lambda: agent.value("app.stage.puts") == 1, "its streams are those of the agent")
    # A server that dies is started again, and what it had on its tier is there.
    first = server_of(agent)
    assert first
    done = stage(agent, "put", "d", "y", "--durable", data=b"durable")
    assert done.returncode == 0, done.stderr
    os.kill(first, signal.SIGKILL)
    eventually(lambda: server_of(agent) not in (None, first), "another one")
    back = eventually(lambda: (it := stage(agent, "get", "d", "y", "--accept-unconfirmed")).returncode == 0 and it, "y")
    assert back.stdout == b"durable"
    assert "the server of staging has ended, and is started again" in agent.output()
    # A stop in order copies what was in memory alone; nobody has confirmed y since the kill.
    done = stage(agent, "put", "d", "z", data=data)
    assert done.returncode == 0, done.stderr
    assert agent.stop(signal.SIGTERM) == 0
    agent.start()
    assert stage(agent, "get", "d", "z", "--accept-unconfirmed").stdout == data


def test_a_server_ends_with_an_agent_that_was_killed(start: Callable[..., Agent], tmp_path: Path) -> None:
    agent = start(config=configured(tmp_path))
    first = server_of(agent)
    assert first
    assert stage(agent, "put", "d", "x", data=b"x").returncode == 0
    agent.stop(signal.SIGKILL)
    eventually(lambda: gone(first), "it has ended as well")
    # It has ended in order, so the next one trusts what is there.
    agent.start()
    found = eventually(lambda: (it := stage(agent, "get", "d", "x")).returncode == 0 and it, "the block")
    assert found.stdout == b"x"


def test_wrong_keys_end_the_start_with_a_reason(tmp_path: Path) -> None:
    for key, reason in [
        ('tiers = ["/nowhere/at/all"]', "--tier /nowhere/at/all: No such file or directory"),
        ('memory = "much"', "--memory much: it is a size"),
        ('tcp = "127.0.0.1:0"', "staging.tokens"),
    ]:
        agent = Agent(tmp_path, config=f"[staging]\nenabled = true\n{key}\n")
        command = subprocess.run(agent.command(), capture_output=True, timeout=COMMAND_SECONDS_MAX, env=environment())
        assert command.returncode != 0 and reason in command.stderr.decode(), command
