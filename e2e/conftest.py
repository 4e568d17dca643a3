"""Agents for the tests: some that many tests only read, and new ones for tests that change
theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import QUICK, Agent, machine


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Agent]]:
    """Starts agents, each in directories of its own; none of them outlives the test."""
    agents: list[Agent] = []

    def begin(*options: object, config: str = QUICK) -> Agent:
        agent = Agent(tmp_path_factory.mktemp("agent"), *options, config=config)
        agents.append(agent)
        return agent.start()

    yield begin
    for agent in agents:
        agent.destroy()


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent of this machine, as `baro up` starts it. Tests only read it."""
    agent = Agent(tmp_path_factory.mktemp("live"))
    yield agent.start()
    agent.destroy()


@pytest.fixture(scope="session")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent of a static fixture tree, on a node named node_1. Tests only read it."""
    folder = tmp_path_factory.mktemp("fixed")
    tree = machine("nvme-v2", folder)
    # Directories of some mounts; the other mounts of the table do not exist.
    for mount in ("scratch", "jobs", "lustre/work space", "home"):
        (tree / mount).mkdir(parents=True)
    agent = Agent(folder, "--sys-root", tree, "--node", "node_1", config=QUICK)
    yield agent.start()
    agent.destroy()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the fixture machine `nvme-v2` that a test may change."""
    return machine("nvme-v2", tmp_path)
