"""Agents that form a cluster on this machine: what one of them knows of the others."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import barograph
import pytest
from harness import BARO, QUICK, Agent, environment, eventually

Start = Callable[..., Agent]
FREE = "memory.available.bytes"


def successive_ports(count: int) -> range:
    """Free ports, one after the other, below those that the kernel gives to whoever asks for any."""
    given_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        first = random.randrange(1_024, given_from - count)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
        return range(first, first + count)


def free_address() -> str:
    """An address of this machine at which nobody listens."""
    return f"127.0.0.1:{successive_ports(1)[0]}"


def cluster(start: Start, names: list[str], config: str = "") -> tuple[str, list[Agent]]:
    """Agents of these names, which know the address of the first."""
    address = free_address()
    agents = []
    for at, name in enumerate(names):
        where = ["--listen", address] if at == 0 else ["--listen", "127.0.0.1:0", "--peer", address]
        agents.append(start("--node", name, "--cluster", "rack", *where, config=config or QUICK))
    return address, agents


def peer(agent: Agent, node: str) -> dict[str, Any]:
    """What an agent knows of another node; nothing if it does not know it."""
    rows = agent.sql(f"SELECT * FROM peers WHERE node = '{node}'")
    return rows[0] if rows else {"state": "unknown"}


def nodes_of(agent: Agent, table: str) -> set[str]:
    """The nodes whose newest values a table has; none if there is no such table yet."""
    if not agent.sql(f"SELECT 1 FROM tables WHERE name = '{table}'"):
        return set()
    return {row["node"] for row in agent.sql(f"SELECT node FROM {table} WHERE newest")}


def test_every_node_sees_all_of_them(start: Start) -> None:
    _, agents = cluster(start, ["a", "b", "c"])
    for agent in agents:
        eventually(lambda agent=agent: nodes_of(agent, "cluster_memory_available_bytes") == {"a", "b", "c"}, "all nodes")
        # The table of the metric has this node alone.
        assert nodes_of(agent, "memory_available_bytes") == {agent.node}
    first = agents[0]
    assert first.sql("SELECT node FROM b_memory_available_bytes WHERE newest") == [{"node": "b"}]
    rows = first.sql("SELECT node, state FROM nodes ORDER BY node")
    assert rows == [{"node": node, "state": "live"} for node in "abc"]
    # A mirrored value is the owner's, and so is its time.
    of_owner = "SELECT ts, value FROM memory_total_bytes ORDER BY ts LIMIT 1"
    there = agents[1].sql(of_owner)
    mirrored = of_owner.replace("memory_total_bytes", "b_memory_total_bytes")
    eventually(lambda: first.sql(mirrored) == there, "the owner's sample")
    # Readers of the node alone see nothing of the others.
    assert len(first.get(f"/api/v1/latest?match={FREE}").json) == 1
    history = first.get(f"/api/v1/history?match={FREE}").json
    assert [series["node"] for series in history] == ["a"]
    assert first.get("/metrics").text.count("barograph_memory_total_bytes{") <= 1

    def listed() -> dict[str, str]:
        return {row["node"]: row["state"] for row in first.ask("node", "list")}

    eventually(lambda: listed() == {"b": "connected", "c": "connected"}, "the list")
    eventually(lambda: peer(first, "b")["round_trip_ns"], "a round trip")
    assert "ROUND TRIP" in first.out("node", "list")
    # The same as streams, from which the network's health is computed.
    health = "SELECT labels FROM latest WHERE name = 'network.health.seconds' AND node = 'a' AND value > 0 ORDER BY labels"
    healthy = [{"labels": '{"peer":"b"}'}, {"labels": '{"peer":"c"}'}]
    eventually(lambda: first.sql(health) == healthy, "the health of the network")
    flags = first.sql("SELECT peer, value FROM fabric_connected_flag WHERE newest AND node = 'a' ORDER BY peer")
    assert flags == [{"peer": "b", "value": 1}, {"peer": "c", "value": 1}]
    assert first.sql("SELECT value > 0 AS sent FROM fabric_sent_samples WHERE newest AND node = 'a'") == [{"sent": 1}]
    shown = first.ask("top", "--nodes")
    assert {(row["node"], row["state"]) for row in shown} == {("a", "here"), ("b", "connected"), ("c", "connected")}
    assert "3 nodes, 0 not heard" in first.out("top", "--nodes", "--once")
    status = first.ask("cluster", "status")
    assert (status["cluster"], status["node"], status["refusals"]) == ("rack", "a", [])


def test_a_statement_runs_on_the_nodes_that_own_the_data(start: Start) -> None:
    # Busy machines take their time.
    _, (a, b, c) = cluster(start, ["a", "b", "c"], QUICK + "[cluster]\nquery_seconds = 25.0\n")
    for node in "bc":
        eventually(lambda node=node: peer(a, node)["state"] == "connected", "the others")
    count = "SELECT count(*) > 0 AS some, min(node) AS own FROM memory_total_bytes"
    answer = a.ask("sql", "--nodes", "all", count)
    assert answer["columns"] == ["node", "some", "own"]
    assert answer["rows"] == [[node, 1, node] for node in "abc"]
    # A stream that is not mirrored, and only one of the nodes.
    cpu = a.ask("sql", "--nodes", "b", "SELECT value > 0 AS busy FROM agent_cpu_seconds WHERE newest")
    assert cpu["rows"] == [["b", 1]]
    # What is wrong is said at once; what is wrong there is said of that node.
    assert "no table" in a.error("sql", "--nodes", "all", "SELECT * FROM nonsense")
    assert a.run("sql", "--nodes", "all", "DELETE FROM streams").returncode == 1
    there = a.ask("sql", "--nodes", "b,c,x", "SELECT * FROM nonsense")
    states = {node["node"]: node["state"] for node in there["nodes"]}
    assert states == {"b": "failed", "c": "failed", "x": "gone"}
    large = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i, 'text' FROM n"
    assert "aggregate" in a.ask("sql", "--nodes", "b", large)["nodes"][0]["reason"]

    # What has come of each node is a table too, which has no statement and no reason: all users see it.
    of_it = f"SELECT * FROM query_nodes WHERE statement = {there['statement']} ORDER BY node"
    rows = a.sql(of_it)
    assert [(row["node"], row["state"], row["rows"]) for row in rows] == [("b", "failed", 0), ("c", "failed", 0), ("x", "gone", 0)]
    assert all(0 <= row["elapsed_ns"] < 10**10 for row in rows) and "nonsense" not in str(rows)
    assert b.sql("SELECT * FROM query_nodes") == []
    told = a.run("sql", "--nodes", "a,b", "SELECT 1 AS one").stderr
    assert told.startswith("rows of a (1 row, ") and ", b (1 row, " in told, told

    # One answer over all nodes, of which each computes its part.
    def combined(sql: str) -> list[list[Any]]:
        return a.ask("sql", "--nodes", "all", "--combine", sql)["rows"]

    total = "SELECT count(*) AS nodes, sum(value) = 3 * max(value) AS same FROM memory_total_bytes WHERE newest"
    assert combined(total) == [[3, 1]]
    assert combined("SELECT node, value FROM memory_total_bytes WHERE newest ORDER BY node DESC LIMIT 2 OFFSET 1") == [
        row for row in reversed(a.ask("sql", "--nodes", "all", "SELECT node, value FROM memory_total_bytes WHERE newest")["rows"])
    ][1:]
    per_node = combined("SELECT node, avg(value) > 0 AS some FROM memory_total_bytes GROUP BY node ORDER BY node")
    assert per_node == [[node, 1] for node in "abc"]
    shown = a.run("sql", "--nodes", "all", "--combine", total)
    assert shown.returncode == 0 and "NODES" in shown.stdout.upper() and ", c (1 row, " in shown.stderr, shown
    assert "one value of each node" in a.error("sql", "--nodes", "all", "--combine", "SELECT median(value) FROM memory_total_bytes")
    assert "--nodes" in a.error("sql", "--combine", "SELECT 1", status=2)
    nobody = a.ask("sql", "--nodes", "x", "--combine", "SELECT device FROM disk_busy_ratio ORDER BY value")
    assert (nobody["rows"], nobody["nodes"][0]["state"]) == ([], "gone")

    # The same from Python.
    total_rows = barograph.sql_on_nodes(total, combine=True, run_dir=a.run_dir)
    assert (total_rows.columns, total_rows.rows()) == (["nodes", "same"], [{"nodes": 3, "same": 1}])
    each = barograph.sql_on_nodes("SELECT 1 AS one", ["b", "x"], run_dir=a.run_dir)
    assert each.rows() == [{"node": "b", "one": 1}] and len(each.pandas()) == 1
    assert [(node.node, node.state, node.rows) for node in each.nodes] == [("b", "answered", 1), ("x", "gone", 0)]
    with pytest.raises(barograph.ControlError, match="no table"):
        barograph.sql_on_nodes("SELECT * FROM nonsense", run_dir=a.run_dir)

    # A node that does not answer is late, then gone; the others' rows come.
    assert b.process
    b.freeze()
    done = a.run("sql", "--nodes", "all", "SELECT 1 AS one")
    assert done.returncode == 0 and "no rows of b: " in done.stderr and done.stdout.count("1") == 2, done
    eventually(lambda: peer(a, "b")["state"] == "gone", "it is gone")
    answer = a.ask("sql", "--nodes", "all", "SELECT 1 AS one")
    assert [node["state"] for node in answer["nodes"]] == ["answered", "gone", "answered"]
    assert [row[0] for row in answer["rows"]] == ["a", "c"]
    b.process.send_signal(signal.SIGCONT)

    alone = start(config=QUICK)
    assert "in no cluster" in alone.error("sql", "--nodes", "all", "SELECT 1")
    assert alone.ask("sql", "--nodes", alone.node, "SELECT 1 AS one")["rows"] == [[alone.node, 1]]


def test_an_insight_reads_all_nodes_and_outlives_a_restart(start: Start) -> None:
    _, (a, b, c) = cluster(start, ["a", "b", "c"])
    # Apollo's Figure 2: the capacity over all nodes, here of memory.
    sql = "CREATE INSIGHT all.memory.bytes AS SELECT sum(value) AS value FROM cluster_memory_total_bytes WHERE newest"
    a.out("insight", "create", sql)
    each = "CREATE INSIGHT each.memory.bytes AS SELECT node AS of_node, value FROM cluster_memory_total_bytes WHERE newest"
    a.out("insight", "create", each)
    own = a.sql("SELECT value FROM memory_total_bytes WHERE newest")[0]["value"]

    def seen() -> tuple[float, set[str]]:
        total = a.rows("SELECT value FROM all_memory_bytes WHERE newest")
        nodes = a.rows("SELECT of_node FROM each_memory_bytes WHERE newest")
        return (total[0]["value"] if total else 0, {row["of_node"] for row in nodes})

    eventually(lambda: seen() == (3 * own, {"a", "b", "c"}), "the insights over three nodes")
    a.restart()
    eventually(lambda: seen() == (3 * own, {"a", "b", "c"}), "the same after a restart")
    assert "statements:" not in a.out("doctor")
    # A node that has left the cluster is no input any more.
    c.stop()
    eventually(lambda: peer(a, "c")["state"] == "gone", "c has left")
    assert b.process
    alone = start(config=QUICK)
    assert "cluster_memory_total_bytes" in alone.error("insight", "create", sql)


@pytest.fixture
def devices() -> Iterator[dict[tuple[str, str], Path]]:
    """The devices of Apollo's Figure 2, by node and tier: file systems in memory, each of another size."""
    folder = Path(tempfile.mkdtemp(prefix="fig2-"))
    mounts: dict[tuple[str, str], Path] = {}
    try:
        for size, (node, tier) in enumerate([("a", "fast"), ("a", "flash"), ("b", "fast"), ("b", "flash"), ("c", "slow")], 1):
            mount = folder / f"{node}-{tier}"
            mount.mkdir()
            made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", mount], capture_output=True)
            if made.returncode != 0:
                pytest.skip(f"mounting a tmpfs is not permitted here: {made.stderr.decode().strip()}")
            mounts[node, tier] = mount
        yield mounts
    finally:
        for mount in mounts.values():
            subprocess.run(["umount", "-l", mount], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def test_capacity_load_and_health_of_the_cluster_come_with_it(start: Start, devices: dict[tuple[str, str], Path]) -> None:
    def rules(node: str) -> str:
        own = [(mount, tier) for (of, tier), mount in devices.items() if of == node]
        return "".join(f'[[sources.tiers.rules]]\nmount = "{mount}"\ntier = "{tier}"\n' for mount, tier in own)

    address = free_address()
    agents = []
    for node in "abc":
        where = ["--listen", address] if node == "a" else ["--listen", "127.0.0.1:0", "--peer", address]
        agents.append(start("--node", node, "--cluster", "rack", *where, config=QUICK + rules(node)))

    def free(tier: str) -> int:
        states = [os.statvfs(mount) for (_, of), mount in devices.items() if of == tier]
        return sum(state.f_bavail * state.f_frsize for state in states)

    tiers = "SELECT tier, value FROM nodes_tier_available_bytes WHERE newest AND tier IN ('fast', 'flash', 'slow')"
    for agent in agents:
        # Every node has the same view, and it changes with the devices.
        expect = {tier: free(tier) for tier in ("fast", "flash", "slow")}
        eventually(lambda a=agent, e=expect: {row["tier"]: row["value"] for row in a.rows(tiers)} == e, "the capacity")
    (devices["b", "flash"] / "file").write_bytes(bytes(1 << 20))
    expect = {tier: free(tier) for tier in ("fast", "flash", "slow")}
    a = agents[0]
    eventually(lambda: {row["tier"]: row["value"] for row in a.rows(tiers)} == expect, "less is free on b")
    total = a.rows("SELECT value FROM nodes_storage_available_bytes WHERE newest")[0]["value"]
    assert total >= sum(expect.values())
    eventually(lambda: a.rows("SELECT value FROM nodes_available_count WHERE newest") == [{"value": 3}], "the nodes")
    eventually(lambda: a.rows("SELECT 1 FROM nodes_network_health_seconds WHERE newest AND value > 0"), "round trips")
    shares = "SELECT of_node, value FROM nodes_load_ratio WHERE newest"
    eventually(lambda: {row["of_node"] for row in a.rows(shares)} == set("abc"), "the load")
    # The page asks for all of them by name, beside some twenty more.
    names = [insight["name"] for insight in a.ask("insight", "list")] + [f"more.{i}" for i in range(24)]
    assert a.get("/api/v1/latest?" + "&".join(f"match={name}" for name in names)).status == 200, len(names)
    alone = start(config=QUICK)
    assert not alone.has("nodes.*"), "a node without a cluster has none of them"


def test_what_is_not_sent_for_lack_of_room_is_named_with_its_remedy(start: Start) -> None:
    address = free_address()
    a = start("--node", "a", "--cluster", "rack", "--listen", address, config=QUICK)
    small = QUICK + "[cluster]\nstreams_max = 4\n"
    b = start("--node", "b", "--cluster", "rack", "--listen", "127.0.0.1:0", "--peer", address, config=small)
    unsent = "SELECT node FROM subscribers WHERE unsent_streams > 0 AND unsent_streams_max >= unsent_streams"
    eventually(lambda: a.sql(unsent) == [{"node": "b"}], "streams without room")
    eventually(lambda: b.sql("SELECT node, state FROM subscribers") == [{"node": "a", "state": "subscribed"}], "the other way")
    assert b.sql(unsent) == []
    (sent,) = a.ask("cluster", "status")["sent_to"]
    assert (sent["node"], sent["ended_unsent"]) == ("b", 0) and sent["unsent_streams"] > 0
    for told in (a.out("cluster", "status"), a.out("doctor")):
        assert "streams for which it has no room" in told and "raise cluster.streams_max on that node" in told, told
    loss = "SELECT count > 0 AS some FROM loss WHERE \"where\" = 'feed to b' AND what LIKE 'streams at a time%'"
    assert a.sql(loss) == [{"some": 1}]
    # The count outlives the feed.
    b.stop(signal.SIGKILL)
    eventually(lambda: a.sql("SELECT state FROM subscribers") == [{"state": "gone"}], "its feed is forgotten")
    assert a.sql("SELECT unsent_streams AS now, unsent_streams_max > 0 AS most FROM subscribers") == [{"now": 0, "most": 1}]


def test_racks_form_a_tree_whose_insights_add_up(start: Start) -> None:
    """Two racks of a head and a leaf, and one node above: each mirrors the level below alone."""
    address = free_address()
    below = {"top": "*-head", "r1-head": "r1-*", "r2-head": "r2-*", "r1-leaf": "none", "r2-leaf": "none"}
    agents = {}
    for node, mirrored in below.items():
        where = ["--listen", address] if node == "top" else ["--listen", "127.0.0.1:0", "--peer", address]
        tree = f'[cluster]\nmirror_nodes = ["{mirrored}"]\nmirror = ["memory.*", "tier.*", "racks.*"]\n'
        agents[node] = start("--node", node, "--cluster", "site", *where, config=QUICK + tree)
    rack = "CREATE INSIGHT racks.memory.bytes AS SELECT sum(value) AS value FROM cluster_memory_total_bytes WHERE newest"
    top = "CREATE INSIGHT site.memory.bytes AS SELECT sum(value) AS value FROM cluster_racks_memory_bytes WHERE newest"
    agents["r1-head"].out("insight", "create", rack)
    agents["r2-head"].out("insight", "create", rack)
    agents["top"].out("insight", "create", top)
    own = agents["top"].sql("SELECT value FROM memory_total_bytes WHERE newest")[0]["value"]
    total = "SELECT value FROM site_memory_bytes WHERE newest"
    eventually(lambda: agents["top"].rows(total) == [{"value": 4 * own}], "two racks of two nodes")

    def mirrored(node: str) -> set[str]:
        return {row["node"] for row in agents[node].sql("SELECT node FROM nodes")} - {node}

    assert mirrored("top") == {"r1-head", "r2-head"}
    assert mirrored("r1-head") == {"r1-leaf"}
    assert mirrored("r1-leaf") == set()
    # All of them are known, and asked.
    asked = agents["r1-leaf"].ask("sql", "--nodes", "all", "--combine", "SELECT count(*) AS nodes FROM memory_total_bytes WHERE newest")
    assert asked["rows"] == [[5]]
    # A rack whose head dies shows in the age of the sum, and comes back with it.
    agents["r2-head"].stop(signal.SIGKILL)
    eventually(lambda: peer(agents["top"], "r2-head")["state"] == "gone", "the head is gone")
    agents["r2-head"].start()
    eventually(lambda: agents["top"].rows(total) == [{"value": 4 * own}], "both racks again")


def test_a_node_that_dies_is_seen_and_what_it_missed_is_fetched(start: Start) -> None:
    _, (a, b) = cluster(start, ["a", "b"])
    eventually(lambda: peer(a, "b").get("samples", 0) > 0, "the mirror")
    assert b.process
    # It is stopped: it goes on sampling afterwards, and its mirror has all.
    b.freeze()
    eventually(lambda: peer(a, "b")["state"] == "gone", "it is gone")
    eventually(lambda: a.sql("SELECT state FROM nodes WHERE node = 'b'")[0]["state"] != "live", "its mirror is stale")
    b.process.send_signal(signal.SIGCONT)
    eventually(lambda: peer(a, "b")["state"] == "connected", "it is back")

    samples = f"SELECT ts, value FROM b_{FREE.replace('.', '_')} WHERE ts < {time.time_ns()} ORDER BY ts"
    own = samples.replace("FROM b_", "FROM ")
    eventually(lambda: a.sql(samples) == b.sql(own), "the mirror has what its owner has")
    assert peer(a, "b")["missed"] == 0

    b.stop(signal.SIGKILL)
    eventually(lambda: peer(a, "b")["state"] == "gone", "it is gone again")
    advice = a.out("doctor")
    assert "cluster rack: 0 of 1 other nodes are connected" in advice and "nodes are not heard" in advice
    b.start()
    eventually(lambda: peer(a, "b")["state"] == "connected", "its next life")
    newest = f"SELECT value, ts FROM b_{FREE.replace('.', '_')} WHERE newest"
    began = time.time_ns()
    eventually(lambda: a.sql(newest) and a.sql(newest)[0]["ts"] > began, "values of its next life")


def test_two_nodes_that_met_through_a_third_one_meet_again_without_it(start: Start) -> None:
    _, (a, b, c) = cluster(start, ["a", "b", "c"])

    def connected() -> bool:
        return peer(b, "c")["state"] == "connected" == peer(c, "b")["state"]

    eventually(connected, "they have heard of each other")
    a.stop(signal.SIGKILL)
    eventually(lambda: peer(b, "a")["state"] == "gone" == peer(c, "a")["state"], "the one that both knew is gone")
    assert connected()
    # Nobody answers in time, so that their link is lost; it is in the configuration of neither.
    assert c.process
    c.freeze()
    eventually(lambda: peer(b, "c")["state"] == "gone", "it is lost")
    c.process.send_signal(signal.SIGCONT)
    eventually(connected, "they are connected again", 90)


def test_who_does_not_belong_is_refused_with_the_reason(start: Start) -> None:
    address, (a,) = cluster(start, ["a"])
    stranger = start("--node", "s", "--cluster", "other", "--listen", "127.0.0.1:0", "--peer", address, config=QUICK)
    namesake = start("--node", "a", "--cluster", "rack", "--listen", "127.0.0.1:0", "--peer", address, config=QUICK)

    def refusals(agent: Agent) -> str:
        return " ".join(agent.ask("cluster", "status")["refusals"])

    eventually(lambda: "of cluster other" in refusals(a) and "rename one of the two" in refusals(a), "the reasons")
    eventually(lambda: "of cluster rack" in refusals(stranger), "the reason at the other side")
    advice = a.out("doctor")
    assert "a node is refused" in advice and "of cluster other" in advice
    assert "no other node is known" in stranger.out("doctor")
    eventually(lambda: "rename one of the two" in refusals(namesake), "the reason at the namesake")
    assert a.ask("node", "list") == []
    assert "refused" in a.out("cluster", "status")
    # A stranger that comes and goes is told once.
    for _ in range(2):
        stranger.stop()
        stranger.start()
    eventually(lambda: refusals(a).count("of cluster other") == 1, "the reason, once")
    # What was repaired is told no longer, and what was not is.
    stranger.stop()
    at = stranger.options.index("other")
    stranger.options[at] = "rack"
    stranger.start()
    eventually(lambda: peer(a, "s")["state"] == "connected", "the stranger belongs to the cluster now")
    eventually(lambda: "of cluster" not in refusals(a), "it is refused no longer")
    assert "rename one of the two" in refusals(a)
    advice = a.out("doctor")
    assert "a node is refused" in advice and "of cluster other" not in advice
    namesake.stop()
    eventually(lambda: refusals(a) == "", "nobody is refused")
    assert "a node is refused" not in a.out("doctor") and "refused  " not in a.out("cluster", "status")
    assert a.ask("cluster", "status")["refused_hellos"] >= 4


def test_an_address_at_which_nobody_answers_is_named(start: Start) -> None:
    address, (a,) = cluster(start, ["a"])
    dead = free_address()
    b = start("--node", "b", "--cluster", "rack", "--listen", "127.0.0.1:0", "--peer", address, "--peer", dead, config=QUICK)
    eventually(lambda: peer(b, "a")["state"] == "connected", "the other node")
    advice = b.out("doctor")
    assert "1 of 1 other nodes are connected" in advice
    assert "nobody answers at addresses of cluster.peers" in advice and f"{dead} (" in advice and f"{address} (" not in advice
    assert "no other node is known" not in advice
    eventually(lambda: peer(a, "b")["state"] == "connected", "the other one knows it too")
    assert "nobody answers" not in a.out("doctor")
    # An agent comes to that address, and nothing is wrong any more.
    start("--node", "c", "--cluster", "rack", "--listen", dead, config=QUICK)
    eventually(lambda: peer(b, "c")["state"] == "connected", "the node at the other address")
    assert "nobody answers" not in b.out("doctor")


def test_what_is_wrong_in_the_configuration_is_said(start: Start, tmp_path: Path) -> None:
    def refused(*options: str, config: str = QUICK) -> str:
        folder = Path(start(config=config).folder)
        command = [BARO, "up", "--run-dir", folder / "r", "--state-dir", folder / "s", "--http", "127.0.0.1:0", *options]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
        assert run.returncode in (1, 2), run
        return run.stderr

    assert "baro cluster init" in refused("--cluster", "rack", "--listen", "0.0.0.0:0")
    assert "ADDRESS:PORT" in refused("--cluster", "rack", "--peer", "login1")
    assert "letters" in refused("--cluster", "my rack")
    assert "letters" in refused("--cluster", "rack", "--node", "a/b")
    assert "--cluster" in refused("--listen", "127.0.0.1:0")
    # Without certificates, any user of the machine could read as a node what only some users may read.
    config = tmp_path / "barograph.toml"
    config.write_text('[cluster]\npublications = ["all", "u*"]\n')
    said = refused("--cluster", "rack", "--listen", "127.0.0.1:0", "--config", str(config))
    assert "cluster.publications" in said


def test_an_agent_alone_says_so(start: Start) -> None:
    agent = start(config=QUICK)
    assert agent.ask("node", "list") == [] and agent.ask("cluster", "status") is None
    assert "no cluster" in agent.out("cluster", "status")
    assert agent.sql("SELECT * FROM peers") == []
    names = [row["name"] for row in agent.sql("SELECT name FROM tables")]
    assert [name for name in names if name.startswith("cluster_")] == ["cluster_insights"]
    assert agent.sql("SELECT * FROM cluster_insights") == []


def test_a_cluster_on_this_machine_runs_until_it_is_stopped(tmp_path: Path) -> None:
    ports = successive_ports(3)
    first = tmp_path / "run"
    command = [BARO, "cluster", "run", "2", "--run-dir", first, "--port", str(ports[0]), "--http-port", str(ports[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(TMPDIR=str(tmp_path))) as run:

        def states() -> list[str]:
            listed = subprocess.run([BARO, "node", "list", "--run-dir", first], capture_output=True, text=True)
            return [line.split()[1] for line in listed.stdout.splitlines() if line.startswith("node2")]

        try:
            eventually(lambda: states() == ["connected"], "the second node")
        finally:
            run.send_signal(signal.SIGINT)
        assert run.wait(60) == 0 and run.stdout
        assert "node2: http://127.0.0.1:" in run.stdout.read()
    assert not list(tmp_path.glob("barograph-cluster-*")) and not (first / "nodes").exists()
    for run_dir in (first, tmp_path / "run-2"):
        alive = subprocess.run([BARO, "status", "--run-dir", run_dir], capture_output=True, text=True)
        assert "alive" not in alive.stdout.split("\n")[1]
