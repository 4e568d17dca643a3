"""Streams of other nodes that are mirrored because a rule reads them or somebody watches them."""

from __future__ import annotations

import json
import signal
from typing import Any

from harness import QUICK, Agent, eventually, patient_lines
from test_cluster import Start, cluster, nodes_of, peer
from test_http import events

NARROW = QUICK + '[cluster]\nmirror = ["node.*"]\n'
TOTAL = "memory.total.bytes"
TABLE = "cluster_memory_total_bytes"


def narrow_cluster(start: Start, names: list[str]) -> list[Agent]:
    """Connected nodes, of which each has mirrored something of the others, but no stream of their memory."""
    _, agents = cluster(start, names, NARROW)
    for node in names[1:]:
        eventually(lambda node=node: peer(agents[0], node).get("streams"), "a mirror")
    assert nodes_of(agents[0], TABLE) == {names[0]}
    return agents


def rule(agent: Agent, name: str) -> dict[str, Any]:
    """The row of a rule."""
    [row] = agent.sql(f"SELECT * FROM rules WHERE name = '{name}'")
    return row


def test_a_rule_reads_streams_of_nodes_that_are_not_mirrored(start: Start) -> None:
    a, b, c = narrow_cluster(start, ["a", "b", "c"])
    when = "CREATE RULE {} WHEN {} CALL 'nobody'"
    a.out("rule", "create", when.format("b.high", f"latest('cluster.{TOTAL}{{node=b}}') > 0"))
    eventually(lambda: rule(a, "b.high")["fired"] == 1, "a rule that fires on a stream of b", 20)
    assert rule(a, "b.high")["subjects"] == 1
    # The rule names one node, so nothing of another one is mirrored for it.
    assert nodes_of(a, TABLE) == {"a", "b"}
    a.out("rule", "create", when.format("all.high", f"max_over('cluster.{TOTAL}', '10 s') > 0"))
    eventually(lambda: rule(a, "all.high")["fired"] == 3, "a rule that fires for each node", 20)
    assert nodes_of(a, TABLE) == {"a", "b", "c"}
    # A stream of all nodes is none of this one.
    a.out("rule", "create", when.format("own.high", f"latest('*{TOTAL}') > 0"))
    eventually(lambda: rule(a, "own.high")["fired"], "a rule about this node")
    assert rule(a, "own.high")["subjects"] == 1
    a.out("rule", "create", when.format("b.gone", f"absent('cluster.{TOTAL}{{node=b}}', '4 s')"))
    eventually(lambda: rule(a, "b.gone")["state"] == "armed", "a rule about a node that is there", 20)
    b.stop(signal.SIGKILL)
    eventually(lambda: rule(a, "b.gone")["fired"] == 1, "a rule that says that b is gone", 20)
    b.start()
    a.restart()
    eventually(lambda: rule(a, "all.high")["subjects"] == 3, "the same rules after a restart", 30)
    for name in ("b.high", "all.high", "b.gone"):
        a.out("rule", "drop", name)
    eventually(lambda: nodes_of(a, TABLE) == {"a"}, "a mirror without what nobody reads", 15)
    # The others demand nothing.
    assert nodes_of(c, TABLE) == {"c"}


def test_a_rule_over_all_nodes_needs_a_cluster(start: Start) -> None:
    alone = start(config=QUICK)
    refused = alone.error("rule", "create", f"CREATE RULE r WHEN latest('cluster.{TOTAL}') > 0 CALL 'x'")
    assert "this node is in none" in refused and f"read {TOTAL} of this node" in refused, refused
    assert alone.ask("rule", "list") == []


def test_a_watch_has_what_it_follows_mirrored_while_it_is_open(start: Start) -> None:
    a, b, c = narrow_cluster(start, ["a", "b", "c"])
    [own] = b.sql("SELECT value FROM memory_total_bytes WHERE newest")
    stream = events(a, f"/api/v1/watch?match={TOTAL}&node=b&every_ms=100")
    value = next(
        sample[2]
        for name, data in stream
        if name == "tick"
        for sample in data["samples"]
    )
    assert value == own["value"]
    assert nodes_of(a, TABLE) == {"a", "b"}, "of b alone"
    stream.close()
    eventually(lambda: nodes_of(a, TABLE) == {"a"}, "a mirror without it", 15)

    with a.command_running("watch", TOTAL, "--node", "b", "--json") as watch:
        update = json.loads(next(patient_lines(watch)))
        assert (update["name"], update["value"], update["lost"]) == (TOTAL, own["value"], 0)
        assert nodes_of(a, TABLE) == {"a", "b"}
    eventually(lambda: nodes_of(a, TABLE) == {"a"}, "a mirror without it", 15)

    [latest] = a.ask("latest", TOTAL, "--node", "b")
    assert latest["value"] == own["value"]
    assert "no node x is mirrored here" in a.error("watch", TOTAL, "--node", "x")
    assert nodes_of(c, TABLE) == {"c"}


def test_watches_of_one_user_are_bounded_and_told(start: Start) -> None:
    a, _ = narrow_cluster(start, ["a", "b"])
    many = "&".join(f"match=no.such.{at}" for at in range(8))
    held = events(a, f"/api/v1/watch?{many}&node=b&every_ms=100")
    assert next(held)[0] == "streams"
    path = f"/api/v1/watch?match={TOTAL}&match=node.*&node=b&every_ms=100"
    refused = events(a, path)
    name, data = next(refused)
    assert (name, data["held"]) == ("demand", False) and "at most 8" in data["reason"]
    # It shows what is mirrored anyway.
    name, streams = next(refused)
    assert name == "streams" and {one["name"].split(".")[0] for one in streams} == {"node"}
    eventually(lambda: a.ask("cluster", "status")["watches_refused"] == 1, "a count")
    # This user has room of his own on the socket.
    assert a.ask("latest", TOTAL, "--node", "b")
    refused.close()
    held.close()

    def is_followed() -> bool:
        stream = events(a, path)
        name, _ = next(stream)
        stream.close()
        return name == "streams"

    eventually(is_followed, "room for another watch")
