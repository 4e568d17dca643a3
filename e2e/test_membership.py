"""Who may be a node of a cluster: the authority, invitations, and nodes on several machines.

The machines are network namespaces with a link between them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BARO, QUICK, Agent, environment, eventually
from test_cluster import Start, free_address, peer

FREE = "memory.available.bytes"
ADDRESSES = {"a": "10.87.0.1", "b": "10.87.0.2"}


def run(*arguments: object, stdin: str = "", prefix: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `baro cluster`."""
    command = [*(prefix or []), BARO, "cluster", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, env=environment())


def done(*arguments: object, **more: Any) -> str:
    """The output of `baro cluster`, which must succeed."""
    finished = run(*arguments, **more)
    assert finished.returncode == 0, finished
    return finished.stdout


@contextlib.contextmanager
def invitation(state: Path, *arguments: object, prefix: list[str] | None = None) -> Iterator[list[dict[str, Any]]]:
    """Tokens of `baro cluster invite`, which waits until they are used; it is stopped at the end."""
    command = [*(prefix or []), BARO, "cluster", "invite", *arguments, "--state-dir", state, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as waiting:
        assert waiting.stdout
        nodes = [node for node in arguments if not str(node).startswith("-") and ":" not in str(node)]
        try:
            yield [json.loads(waiting.stdout.readline()) for _ in nodes]
            assert waiting.wait(30) == 0
        finally:
            waiting.kill()


def test_a_cluster_is_made_and_nodes_are_invited(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    assert "baro cluster invite" in done("init", "rack", "--node", "a", "--state-dir", first)
    again = run("init", "rack", "--node", "a", "--state-dir", first)
    assert again.returncode == 1 and "of cluster rack" in again.stderr
    assert run("init", "my rack", "--state-dir", second).returncode == 1

    address = free_address()
    with invitation(first, "b", "--address", address) as (token,):
        assert token["node"] == "b"
        wrong = run("join", "-", "--state-dir", second, stdin=token["token"][:40])
        assert wrong.returncode == 1 and "copy it whole" in wrong.stderr
        text = done("join", "-", "--state-dir", second, stdin=token["token"])
        assert "this node is b of cluster rack" in text
    used = run("join", token["token"], "--state-dir", tmp_path / "c")
    assert used.returncode == 1 and "must be running" in used.stderr

    members = json.loads(done("members", "--state-dir", first, "--json"))
    assert [member["node"] for member in members] == ["a", "b"]
    assert "LEFT" in done("members", "--state-dir", first)
    assert "baro cluster init" in run("members", "--state-dir", second).stderr
    assert "has a certificate that holds" in run("revoke", "x", "--state-dir", first).stderr
    assert "no certificate any more" in done("revoke", "b", "--state-dir", first)
    assert "revoked" in done("members", "--state-dir", first)
    keys = [*first.glob("cluster/*.key"), *tmp_path.glob("*/cluster/node.pem")]
    assert len(keys) == 3 and {path.stat().st_mode & 0o777 for path in keys} == {0o600}


def test_an_invitation_ends(tmp_path: Path) -> None:
    state = tmp_path / "a"
    done("init", "rack", "--node", "a", "--state-dir", state)
    ended = run("invite", "b", "--address", free_address(), "--expires", "300ms", "--state-dir", state)
    assert ended.returncode == 1 and "1 invited nodes have not joined" in ended.stderr
    token = ended.stdout.splitlines()[0].split()[-1]
    late = run("join", token, "--state-dir", tmp_path / "b")
    assert late.returncode == 1 and "baro cluster invite b" in late.stderr
    assert run("invite", "b", "--address", free_address(), "--expires", "8d", "--state-dir", state).returncode == 2
    assert run("invite", "b", "--address", "192.0.2.1:7448", "--state-dir", state).returncode == 1


def test_certificates_of_somebody_else_are_refused_at_the_start(tmp_path: Path) -> None:
    agent = Agent(tmp_path, "--node", "b", "--cluster", "rack", "--listen", "127.0.0.1:0", config=QUICK)
    done("init", "rack", "--node", "a", "--state-dir", agent.state_dir)
    failed = subprocess.run(agent.command(), capture_output=True, text=True, timeout=60, env=environment())
    assert failed.returncode == 1 and "is of rack/a" in failed.stderr, failed


def test_who_has_a_certificate_of_another_authority_is_told_how_to_find_out(start: Start) -> None:
    address = free_address()
    a = start("--node", "a", "--cluster", "rack", "--listen", address)
    b = start("--node", "b", "--cluster", "rack", "--listen", "127.0.0.1:0", "--peer", address)
    # As the guide says: the links that are not taken are logged.
    a.prefix = ["env", "BAROGRAPH_LOG=warn"]
    for agent in (a, b):
        agent.stop()
        done("init", "rack", "--node", agent.node, "--state-dir", agent.state_dir)
        agent.start()
    eventually(lambda: "zenoh_link_tls::unicast" in a.output(), "the link that is not taken")
    advice = b.out("doctor")
    assert "no other node is known" in advice and f"somebody answers at {address}" in advice
    assert "another authority" in advice and "\na node is refused\n" not in advice
    for agent in (a, b):
        status = agent.ask("cluster", "status")
        assert (status["refusals"], status["refused_hellos"]) == ([], 0)


@pytest.fixture
def machines() -> Iterator[None]:
    """Two network namespaces, `baro-a` and `baro-b`, with a link between them."""
    if os.getuid() != 0:
        pytest.skip("network namespaces need root")

    def sh(*words: str) -> bool:
        return subprocess.run(words, capture_output=True).returncode == 0

    if not sh("ip", "netns", "add", "baro-a"):
        pytest.skip("this machine has no network namespaces")
    try:
        assert sh("ip", "netns", "add", "baro-b")
        assert sh(*"ip link add baro-a netns baro-a type veth peer name baro-b netns baro-b".split())
        for name, address in ADDRESSES.items():
            inside = ["ip", "-n", f"baro-{name}"]
            assert sh(*inside, "addr", "add", f"{address}/24", "dev", f"baro-{name}")
            assert sh(*inside, "link", "set", f"baro-{name}", "up")
            assert sh(*inside, "link", "set", "lo", "up")
        yield
    finally:
        sh("ip", "netns", "del", "baro-a")
        sh("ip", "netns", "del", "baro-b")


def within(name: str) -> list[str]:
    """The beginning of a command that runs on one of the machines."""
    return ["ip", "netns", "exec", f"baro-{name}"]


def machine(folder: Path, name: str, *options: str) -> Agent:
    """An agent on one of the machines, which was not started yet."""
    folder.mkdir()
    listen = f"{ADDRESSES[name]}:7447"
    agent = Agent(folder, "--node", name, "--cluster", "rack", "--listen", listen, *options, config=QUICK)
    agent.prefix = within(name)
    return agent


@pytest.mark.usefixtures("machines")
def test_nodes_on_two_machines_form_a_cluster(tmp_path: Path) -> None:
    a = machine(tmp_path / "a", "a")
    b = machine(tmp_path / "b", "b", "--peer", f"{ADDRESSES['a']}:7447")
    # Without a certificate nothing leaves the machine.
    refused = subprocess.run(a.command(), capture_output=True, text=True, timeout=60, env=environment())
    assert refused.returncode == 1 and "baro cluster init" in refused.stderr
    done("init", "rack", "--node", "a", "--state-dir", a.state_dir)
    with invitation(a.state_dir, "b", "--address", f"{ADDRESSES['a']}:7448", prefix=within("a")) as (token,):
        done("join", "-", "--state-dir", b.state_dir, stdin=token["token"], prefix=within("b"))
    with contextlib.ExitStack() as both:
        for agent in (a, b):
            both.callback(agent.destroy)
            agent.start()
        eventually(lambda: peer(a, "b").get("samples", 0) > 0, "the mirror of b")
        eventually(lambda: peer(b, "a").get("samples", 0) > 0, "the mirror of a")
        assert "encrypted    yes" in a.out("cluster", "status")

        # The link is cut for longer than a death, and heals: nothing is lost.
        cut = ["ip", "-n", "baro-b", "link", "set", "baro-b"]
        subprocess.run([*cut, "down"], check=True)
        eventually(lambda: peer(a, "b")["state"] == "gone", "b is gone")
        subprocess.run([*cut, "up"], check=True)
        eventually(lambda: peer(a, "b")["state"] == "connected", "b is back")
        own = f"SELECT ts, value FROM {FREE.replace('.', '_')} ORDER BY ts LIMIT 20"
        eventually(lambda: a.sql(own.replace("FROM ", "FROM b_")) == b.sql(own), "the mirror has what its owner has")
        assert peer(a, "b")["missed"] == 0

        # The certificate of b is revoked while it is connected; b is shut out, and asks why.
        done("revoke", "b", "--state-dir", a.state_dir)
        eventually(lambda: peer(a, "b")["state"] == "gone", "b is dismissed")
        eventually(lambda: "was revoked" in b.out("cluster", "status"), "b knows why")
        eventually(lambda: (b.state_dir / "cluster" / "revoked.crl").exists(), "b keeps the list")
        # A restart changes nothing: the list is on disk.
        a.restart()
        b.restart()
        eventually(lambda: "was revoked" in b.out("cluster", "status"), "b still knows why")
        assert a.ask("node", "list") == []
