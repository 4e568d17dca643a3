"""Insights of the cluster: made on one node, computed where most of their inputs are, and taken over by
another node when that one dies."""

from __future__ import annotations

import signal
from typing import Any

from harness import QUICK, Agent, eventually
from test_cluster import Start, cluster, free_address, peer

NAME = "storage.free.bytes"
TABLE = "cluster_storage_free_bytes"
# Capacity over compute and storage nodes: Apollo, Figure 2.
CREATE = (
    f"CREATE INSIGHT {NAME} ON CLUSTER UNIT 'bytes' HELP 'free on all nodes' AS "
    "SELECT sum(value) AS value FROM cluster_filesystem_available_bytes WHERE newest"
)
TAKES_ALL = QUICK + '[cluster]\ninsights_from = ["*"]\n'


def known(agent: Agent) -> dict[str, Any]:
    """What an agent knows of the insight; nothing if it does not know it."""
    rows = agent.ask("insight", "list", "--on-cluster")
    return rows[0] if rows else {"runs_on": [], "inputs": {}}


def runs_on(agents: list[Agent]) -> set[str]:
    """The nodes that compute the insight, if all agents agree on them."""
    said = {tuple(known(agent)["runs_on"]) for agent in agents}
    return set(said.pop()) if len(said) == 1 else set()


def fresh(agent: Agent) -> list[str]:
    """The nodes whose values of the insight an agent has in memory, and that are no older than three seconds."""
    return [row["node"] for row in agent.rows(f"SELECT node FROM {TABLE} WHERE newest AND age_ns < 3e9")]


def test_it_runs_where_most_of_its_inputs_are_and_moves_when_that_node_dies(start: Start) -> None:
    address = free_address()
    in_cluster = ["--cluster", "rack", "--peer", address]
    alone = TAKES_ALL + 'mirror_nodes = ["nobody"]\n'
    compute = start("--node", "compute", "--cluster", "rack", "--listen", address, config=alone)
    heads = [
        start("--node", node, *in_cluster, "--listen", "127.0.0.1:0", config=TAKES_ALL)
        for node in ("head1", "head2")
    ]
    agents = [compute, *heads]
    assert compute.out("insight", "create", CREATE) == f"created {NAME}\n"

    def heads_have_the_most() -> bool:
        inputs = known(compute)["inputs"]
        counts = [inputs.get(node, 0) for node in ("head1", "head2", "compute")]
        return counts[0] == counts[1] > counts[2] > 0

    # It begins on the node where it was made, and goes to one that has the streams of all. The first head
    # that has them may run it before the other has told what it has, so both are waited for.
    eventually(heads_have_the_most, "both heads with the streams of all", 30)
    eventually(lambda: runs_on(agents) in ({"head1"}, {"head2"}), "an insight on a head", 30)
    [runner] = [head for head in heads if head.node in runs_on(agents)]
    [other] = [head for head in heads if head is not runner]
    eventually(lambda: fresh(other) == [runner.node], "its value in memory of another node")
    total = "SELECT sum(value) AS value FROM cluster_filesystem_available_bytes WHERE newest"
    of_insight = f"SELECT value FROM {TABLE} WHERE newest"

    def is_the_sum() -> bool:
        [computed], [summed] = runner.sql(of_insight), runner.sql(total)
        return abs(computed["value"] - summed["value"]) < 0.05 * summed["value"]

    eventually(is_the_sum, "the sum over all nodes")
    assert [row["name"] for row in runner.ask("insight", "list") if not row["builtin"]] == [NAME]
    assert "of the cluster" in runner.out("insight", "list")
    assert [row["name"] for row in other.ask("insight", "list") if not row["builtin"]] == []
    runner.stop(signal.SIGKILL)
    eventually(lambda: fresh(other) == [other.node], "an insight that was taken over", 15)
    # The node that comes back has it from its disk, and does not take it away again.
    runner.start()
    eventually(lambda: known(runner).get("runs_on") == [other.node], "a node that knows who computes")
    assert f"DROP INSIGHT {NAME} ON CLUSTER" in compute.error("insight", "drop", NAME)
    compute.out("insight", "drop", NAME, "--on-cluster")
    eventually(lambda: all(known(agent)["runs_on"] == [] for agent in agents), "an insight that is gone")
    eventually(lambda: fresh(other) == [], "streams that have ended")
    runner.restart()
    assert runner.ask("insight", "list", "--on-cluster") == []


def test_what_an_insight_reads_is_mirrored_by_demand(start: Start) -> None:
    address, (a, b) = cluster(start, ["a", "b"], QUICK + '[cluster]\nmirror = ["node.*"]\n')
    eventually(lambda: a.rows("SELECT 1 FROM b_node_uptime_seconds WHERE newest") or peer(a, "b").get("streams"), "a mirror")
    both = "SELECT node FROM cluster_memory_total_bytes WHERE newest ORDER BY node"
    assert a.rows(both) == [{"node": "a"}]
    create = "CREATE INSIGHT all.memory.bytes AS SELECT sum(value) AS value FROM cluster_memory_total_bytes WHERE newest"
    a.out("insight", "create", create)
    eventually(lambda: a.rows(both) == [{"node": "a"}, {"node": "b"}], "the streams that it reads", 15)
    [own] = b.sql("SELECT value FROM memory_total_bytes WHERE newest")
    eventually(lambda: a.value("all.memory.bytes") == 2 * own["value"], "the sum of both")
    # b demands nothing.
    assert b.rows(both) == [{"node": "b"}]
    a.out("insight", "drop", "all.memory.bytes")
    eventually(lambda: a.rows(both) == [{"node": "a"}], "a mirror without them", 15)


def test_who_takes_none_gets_none(start: Start) -> None:
    _, (a, b) = cluster(start, ["a", "b"])
    eventually(lambda: a.rows("SELECT 1 FROM peers WHERE state = 'connected'"), "a connected node")
    a.out("insight", "create", CREATE)
    eventually(lambda: known(a)["runs_on"] == ["a"], "an insight on the node where it was made")
    # Both have no certificate, so each takes none of the other.
    b.out("insight", "create", CREATE.replace(NAME, "mine.free.bytes"))
    eventually(lambda: known(b)["runs_on"] == ["b"], "an insight of the other node")
    assert [row["name"] for row in b.ask("insight", "list", "--on-cluster")] == ["mine.free.bytes"]
    assert a.sql("SELECT name, runs_on, changed_by FROM cluster_insights") == [
        {"name": NAME, "runs_on": '["a"]', "changed_by": "a"}
    ]


def test_refusals_say_what_to_do(start: Start) -> None:
    alone = start("--node", "alone")
    assert "this node is in no cluster" in alone.error("insight", "create", CREATE)
    assert alone.ask("insight", "list", "--on-cluster") == []
    _, [a] = cluster(start, ["a"], TAKES_ALL)

    def refused(statement: str) -> str:
        return a.error("insight", "create", statement)

    own = CREATE.replace("cluster_filesystem", "filesystem")
    assert "such as cluster_filesystem_available_bytes" in refused(own)
    assert "expected CLUSTER, found NODE" in refused(CREATE.replace("ON CLUSTER", "ON NODE"))
    assert "expected" in refused(CREATE.replace("INSIGHT", "POLICY"))
    assert "the cluster has no insight" in a.error("insight", "drop", "x.y", "--on-cluster")
    # Its name is that of an insight of the node.
    mine = "CREATE INSIGHT storage.free.bytes AS SELECT max(value) AS value FROM memory_available_bytes WHERE newest"
    a.out("insight", "create", mine)
    assert "is an insight of this node" in refused(CREATE)
    a.out("insight", "drop", NAME)
    a.out("insight", "create", CREATE)
    assert "CREATE OR REPLACE" in refused(CREATE)
    replaced = CREATE.replace("CREATE", "CREATE OR REPLACE").replace("sum(", "max(")
    a.out("insight", "create", replaced)
    eventually(lambda: a.value(NAME) is not None, "a value")
    assert "max(value)" in known(a)["sql"]
    # It is kept, and computed again after a restart.
    a.restart()
    eventually(lambda: known(a)["runs_on"] == ["a"], "the insight after a restart", 20)
    assert a.state_dir.joinpath("cluster_insights.json").is_file()
