"""Calls into programs on other nodes of the cluster: made where they are taken, by the same rights, and
with an answer for each node."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import barograph
import pytest
from harness import QUICK, Agent, environment, eventually
from test_calls import called, ranks
from test_cluster import free_address, peer
from test_membership import done, invitation

__all__ = ["called"]

STRANGER = 65_534


@contextlib.contextmanager
def certified(configs: dict[str, str]) -> Iterator[list[Agent]]:
    """Nodes of these names with certificates, each with its configuration; they are connected."""
    names = list(configs)
    address = free_address()
    agents = []
    # Other users reach its sockets.
    place = Path(tempfile.mkdtemp(prefix="nodes-"))
    place.chmod(0o755)
    for name, config in configs.items():
        folder = place / name
        folder.mkdir(mode=0o755)
        where = ["--listen", address] if not agents else ["--listen", "127.0.0.1:0", "--peer", address]
        agents.append(Agent(folder, "--node", name, "--cluster", "rack", *where, config=config))
    first = agents[0]
    done("init", "rack", "--node", names[0], "--state-dir", first.state_dir)
    with invitation(first.state_dir, *names[1:], "--address", free_address()) as tokens:
        for agent, token in zip(agents[1:], tokens, strict=True):
            done("join", "-", "--state-dir", agent.state_dir, stdin=token["token"])
    with contextlib.ExitStack() as running:
        running.callback(shutil.rmtree, place, ignore_errors=True)
        for agent in agents:
            running.callback(agent.destroy)
            agent.start()
        for agent in agents:
            others = [other.node for other in agents if other is not agent]
            for other in others:
                eventually(lambda a=agent, o=other: peer(a, o).get("state") == "connected", "all nodes")
        yield agents


@pytest.fixture
def nodes() -> Iterator[list[Agent]]:
    """Three nodes with certificates: b takes calls of a, the others take none."""
    taking = QUICK + '[cluster]\ncalls_from = ["a"]\n'
    with certified({"a": QUICK, "b": taking, "c": QUICK}) as agents:
        yield agents


def states(answer: dict[str, object]) -> dict[str, str]:
    """The state of a call on each node."""
    told = answer["nodes"]
    assert isinstance(told, list)
    return {node["node"]: node["state"] for node in told}


def test_a_call_reaches_programs_on_the_nodes_that_take_it(nodes: list[Agent], called: Path) -> None:
    a, b, _ = nodes
    fire = ["call", "fire", "checkpoint", "--wait", "20s"]
    with ranks(called, a, 1) as (here,), ranks(called, b, 2) as there:
        answer = a.ask(*fire, "--nodes", "a,b")
        assert (answer["state"], answer["matched"], answer["acknowledged"]) == ("acknowledged", 3, 3)
        assert states(answer) == {"a": "acknowledged", "b": "acknowledged"}
        assert sorted(node.split("/")[0] for node in answer["ids"]) == ["a", "b"]
        for program in (here, *there):
            eventually(lambda p=program: any(line.startswith("call ") for line in p.said()), "it was called")
        # By label, wherever the rank runs.
        one = a.ask(*fire, "--nodes", "a,b", "--target", "rank=1")
        assert (one["matched"], states(one)) == (1, {"a": "nobody", "b": "acknowledged"})
        # Without --nodes it is this node alone, as before.
        assert a.ask(*fire)["matched"] == 1
        # A knob, and from Python.
        knob = ["knob", "set", "called.dt", "0.75", "--nodes", "b", "--wait", "20s"]
        assert "b: acknowledged" in a.out(*knob)
        eventually(lambda: "dt 0.75" in there[0].said(), "the knob is set")
        fired = barograph.fire("checkpoint", 7, nodes=["b"], wait=20, run_dir=a.run_dir)
        assert (fired.acknowledged, [node.node for node in fired.nodes]) == (2, ["b"])
        with pytest.raises(ValueError, match="nodes is"):
            barograph.fire("checkpoint", nodes="b", run_dir=a.run_dir)
        # The audit of the node that was called names the node that called.
        newest = "SELECT via, by_user FROM calls ORDER BY ts DESC LIMIT 1"
        eventually(lambda: b.sql(newest) == [{"via": "node a", "by_user": os.getuid()}], "the audit of b")


def test_a_node_that_takes_no_calls_is_named(nodes: list[Agent], called: Path) -> None:
    a, b, c = nodes
    with ranks(called, a, 1), ranks(called, b, 1), ranks(called, c, 1):
        everywhere = ["call", "fire", "checkpoint", "--nodes", "all", "--wait", "20s", "--json"]
        refused = a.run(*everywhere)
        answer = json.loads(refused.stdout)
        assert refused.returncode == 1 and "incomplete" in refused.stderr, refused
        assert states(answer) == {"a": "acknowledged", "b": "acknowledged", "c": "unanswered"}
        assert (answer["matched"], answer["acknowledged"]) == (2, 2)
        reasons = {node["node"]: node["reason"] for node in answer["nodes"]}
        assert "cluster.calls_from" in reasons["c"]
        # c is no node whose calls b takes.
        of_c = json.loads(c.run(*everywhere).stdout)
        assert states(of_c) == {"a": "unanswered", "b": "unanswered", "c": "acknowledged"}
        gone = json.loads(a.run("call", "fire", "checkpoint", "--nodes", "b,x", "--json").stdout)
        assert states(gone)["x"] == "unanswered" and gone["state"] == "incomplete"
        nothing = a.run("call", "fire", "nothing", "--nodes", "a,b", "--json")
        assert nothing.returncode == 1 and "no process has the handler" in nothing.stderr, nothing
        assert "--nodes is all" in a.error("call", "fire", "checkpoint", "--nodes", "a;b", status=2)


def test_the_rights_of_the_caller_are_those_on_every_node(nodes: list[Agent], called: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("it takes root to be two users")
    a, b, _ = nodes
    body = json.dumps({"name": "checkpoint", "nodes": ["b"], "wait_s": 20})
    command = ["curl", "-s", "--unix-socket", str(a.run_dir / "read.sock"), "http://localhost/api/v1/fire", "-d", body]
    with ranks(called, b, 1):
        # Whoever may only read calls their own programs, here and there.
        stranger = subprocess.run(
            command, user=STRANGER, group=STRANGER, extra_groups=[], capture_output=True, text=True, env=environment()
        )
        assert "can be called from here" in json.loads(stranger.stdout)["error"]["message"], stranger
        own = subprocess.run(command, capture_output=True, text=True, env=environment())
        assert json.loads(own.stdout)["acknowledged"] == 1, own


def test_calls_of_other_nodes_need_certificates(tmp_path: Path) -> None:
    config = QUICK + '[cluster]\ncalls_from = ["a"]\n'
    agent = Agent(tmp_path, "--node", "b", "--cluster", "rack", "--listen", "127.0.0.1:0", config=config)
    failed = subprocess.run(agent.command(), capture_output=True, text=True, timeout=60, env=environment())
    assert failed.returncode == 1 and "cluster.calls_from" in failed.stderr, failed
    assert "baro cluster init" in failed.stderr


def test_a_rule_calls_programs_on_other_nodes(nodes: list[Agent], called: Path) -> None:
    a, b, _ = nodes
    when = "CREATE RULE {} WHEN latest('memory.total.bytes') > 0 CALL 'checkpoint' PAYLOAD 7 TO 'rank=1' ON {}"
    with ranks(called, a, 2) as here, ranks(called, b, 2) as there:
        a.out("rule", "create", when.format("of.b", "NODES 'b'"))
        eventually(lambda: any(line.startswith("call ") for line in there[1].said()), "a call on the other node")
        assert not any(line.startswith("call ") for program in (*here, there[0]) for line in program.said())
        newest = "SELECT via FROM calls ORDER BY ts DESC LIMIT 1"
        eventually(lambda: b.rows(newest) == [{"via": "node a"}], "the audit of b")
        # c takes no calls: the rule says so, and the others are called all the same.
        a.out("rule", "create", when.format("of.all", "CLUSTER"))
        eventually(lambda: any(line.startswith("call ") for line in here[1].said()), "a call on this node")
        failed = "SELECT fired, failed, reason FROM rules WHERE name = 'of.all'"
        eventually(lambda: a.sql(failed)[0]["failed"] == 1, "a call that is known to have failed", 20)
        [row] = a.sql(failed)
        assert row["fired"] == 1 and "c: this node takes no calls" in row["reason"], row
        assert a.sql("SELECT failed FROM rules WHERE name = 'of.b'") == [{"failed": 0}]
    assert "expected CLUSTER or NODES" in a.error("rule", "create", when.format("x.y", "NODE 'b'"))
    assert "1 to 64 names" in a.error("rule", "create", when.format("x.y", "NODES 'b,'"))
