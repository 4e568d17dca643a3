"""Publications of applications that other nodes of the cluster read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import barograph
import duckdb
import pytest
from harness import PATIENCE_SECONDS, QUICK, Agent, baro, environment, eventually
from test_applications import counting, run
from test_calls import Called, called, handlers
from test_cluster import Start, cluster, nodes_of, peer
from test_cluster_demand import rule
from test_cluster_insights import known
from test_node_calls import certified

__all__ = ["called", "counting"]

CONFIG = QUICK + '[cluster]\nmirror = ["node.*", "app.solver.*"]\n'


# Publishes a value for these readers, and each further one that it reads.
SOLVER = """
import sys, barograph
publication = barograph.publication("solver", {"residual": "1"}, readers=sys.argv[1])
for value in iter(sys.stdin.readline, ""):
    publication.put(residual=float(value))
    publication.frame()
"""


class Solver:
    """A program beside an agent that publishes what it is told, and has ended after the block."""

    def __init__(self, agent: Agent, readers: str) -> None:
        self.program = subprocess.Popen(
            [sys.executable, "-c", SOLVER, readers],
            stdin=subprocess.PIPE,
            text=True,
            env=environment(BAROGRAPH_RUN_DIR=str(agent.run_dir)),
        )

    def put(self, value: float) -> None:
        print(value, file=self.program.stdin, flush=True)

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *_: object) -> None:
        self.program.communicate(timeout=PATIENCE_SECONDS)


def scopes(agent: Agent) -> set[str]:
    """The readers of the publications that others mirror from this node."""
    return {row["scope"] for row in agent.sql("SELECT scope FROM subscribers")}


def test_what_everyone_may_read_is_read_on_other_nodes(start: Start) -> None:
    _, (a, b, c) = cluster(start, ["a", "b", "c"], CONFIG)
    # What only its user may read stays on its node.
    with Solver(b, "all") as on_b, Solver(c, "all") as on_c, Solver(b, "owner") as private:
        private.put(7.0)
        on_b.put(0.5)
        on_c.put(0.25)
        values = "SELECT node, value FROM cluster_app_solver_residual WHERE newest ORDER BY node"
        expected = [{"node": "b", "value": 0.5}, {"node": "c", "value": 0.25}]
        table = "cluster_app_solver_residual"
        eventually(lambda: nodes_of(a, table) == {"b", "c"} and a.sql(values) == expected, "both values")
        assert nodes_of(a, "app_solver_residual") == set(), "this node has none of its own"
        assert a.sql("SELECT node, value FROM b_app_solver_residual WHERE newest") == [{"node": "b", "value": 0.5}]
        assert [row["state"] for row in a.sql("SELECT state FROM nodes ORDER BY node")] == ["live"] * 3
        # As a program, a command and a client of HTTP read them.
        other = barograph.connect(str(a.run_dir)).of_node("b")
        assert other.latest("app.solver.residual").value == 0.5
        assert [row["value"] for row in a.ask("latest", "app.solver.residual", "--node", "c")] == [0.25]
        answer = a.get("/api/v1/latest?match=app.solver.residual&node=b").json
        assert [row["value"] for row in answer] == [0.5]
        on_b.put(0.125)
        eventually(lambda: other.latest("app.solver.residual").value == 0.125, "the next value")
        history = "SELECT value FROM b_app_solver_residual ORDER BY ts"
        assert [row["value"] for row in a.sql(history)] == [0.5, 0.125]
        frames = a.sql("SELECT node, residual FROM frames('solver') ORDER BY node, frame")
        assert [(row["node"], row["residual"]) for row in frames] == [("b", 0.5), ("b", 0.125), ("c", 0.25)]
        eventually(lambda: scopes(b) == {"", "all"}, "what is sent is told")
        assert scopes(a) == {""}, "nobody publishes there"
        mirror = a.run_dir / "nodes" / "b" / "applications"
        assert [path.name for path in mirror.iterdir()] == ["all"]
    streams = "SELECT node FROM streams WHERE name = 'app.solver.residual'"
    eventually(lambda: a.sql(streams) == [], "the streams end with their programs")


def test_an_aggregator_keeps_what_everyone_may_read(start: Start) -> None:
    config = QUICK + '[cluster.aggregator]\nstreams = ["app.*"]\nnodes = ["b"]\n'
    _, (a, b) = cluster(start, ["a", "b"], config)
    values = "SELECT ts, value FROM {table} ORDER BY ts"
    own, kept = values.format(table="app_solver_residual"), values.format(table="b_app_solver_residual")
    with Solver(b, "all") as solver:
        solver.put(1.0)
        directory = a.state_dir / "aggregated" / "b" / "applications" / "all"
        exported = ("archive", "export", "--archive-dir", directory, "--match", "app.solver.*", "--format", "csv", "--out", "-")
        # What is in memory alone is lost with the aggregator, which then knows nothing of the streams.
        eventually(lambda: baro(*exported).stdout.count("app.solver.") == 2, "the first frame is kept")
        assert [row["value"] for row in a.rows(kept)] == [1.0]
        a.stop(signal.SIGKILL)
        # Meanwhile the program goes on, and ends.
        for at in range(20):
            solver.put(at / 2)
    eventually(lambda: len(b.sql(own)) == 21, "all values are in the archive of b")
    expected = b.sql(own)
    a.start()
    eventually(lambda: peer(a, "b").get("state") == "connected", "the aggregator is back")
    eventually(lambda: a.rows(kept) == expected, "the history, with the values of the time between")
    assert a.sql("SELECT fault FROM peers WHERE fault IS NOT NULL") == []
    eventually(lambda: [row for row in b.ask("cluster", "status")["sent_to"] if row["scope"] == "all"], "its feed")
    assert [row["lost"] for row in b.ask("cluster", "status")["sent_to"]] == [0, 0]
    frames = a.sql("SELECT node, residual FROM frames('solver') ORDER BY ts")
    assert [(row["node"], row["residual"]) for row in frames] == [("b", row["value"]) for row in expected]
    # An archive like any other, without an agent.
    a.stop()
    listed = baro("archive", "verify", "--archive-dir", directory)
    assert listed.returncode == 0, listed


def test_an_aggregator_copies_what_it_keeps(start: Start, tmp_path: Path) -> None:
    """To one place for all nodes, under their own names."""
    lake = tmp_path / "lake"
    lake.mkdir()
    kept = f'[cluster.aggregator]\nstreams = ["memory.*", "app.*"]\nnodes = ["b"]\ntarget = "file://{lake}"\n'
    _, (a, b) = cluster(start, ["a", "b"], QUICK + "[archive]\nsegment_seconds_max = 1\n" + kept)
    with Solver(b, "all") as solver:
        solver.put(0.5)
        copied = {"raw": "memory.available.bytes", "applications/all/raw": "app.solver.residual"}
        for tier, metric in copied.items():
            place = lake / tier / "node=b"

            def names(place: Path = place) -> set[str]:
                files = f"read_parquet('{place}/**/*.parquet')"
                rows = duckdb.sql(f"SELECT DISTINCT name FROM {files}").fetchall() if list(place.rglob("*.parquet")) else []
                return {row[0] for row in rows}

            eventually(lambda metric=metric, names=names: metric in names(), f"copies of {metric}")
    assert list(lake.rglob("node=a")) == [], "its own history is copied to archive.target alone"
    assert a.sql("SELECT fault FROM peers WHERE fault IS NOT NULL") == []
    a.stop()
    a.config.write_text(a.config.read_text().replace("file://", "ftp://"))
    refused = subprocess.run(a.command(), capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environment())
    assert refused.returncode == 1 and "cluster.aggregator.target" in refused.stderr, refused


def test_what_is_not_allowed_does_not_cross(start: Start) -> None:
    """What the configuration leaves out."""
    _, (a, b) = cluster(start, ["a", "b"], CONFIG + "publications = []\n")
    with Solver(b, "all") as solver:
        solver.put(1.0)
        eventually(lambda: nodes_of(b, "app_solver_residual") == {"b"}, "it is there")
        eventually(lambda: scopes(b) == {""}, "the streams of the node")
        assert nodes_of(a, "cluster_app_solver_residual") == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users")
def test_a_user_reads_her_publications_on_other_nodes_and_nobody_else_does(counting: Path) -> None:  # noqa: F811
    config = '[applications]\nusers = "all"\n' + QUICK + '[cluster]\npublications = ["all", "u*"]\n'
    config += '[cluster.aggregator]\nstreams = ["app.*"]\n'
    eve, bob = 4_711, 4_712
    with certified({"a": config, "b": config}) as (a, b):
        values = "SELECT max(value) AS n FROM b_app_counting_number"

        def seen(uid: int) -> int | None:
            """The newest value of node b that a user of node a sees; None if it is not there."""
            asked = ("sql", "--json", "--run-dir", a.run_dir, values)
            found = baro(*asked, user=uid, group=uid, extra_groups=[], env=environment(HOME="/nonexistent"))
            return int(json.loads(found.stdout)[0]["n"]) if found.returncode == 0 else None

        # It goes on until the test has seen what it wants.
        program = run(counting, b, 5, 0, 0, "wait", user=eve, group=eve, extra_groups=[])
        try:
            eventually(lambda: seen(eve) == 50, "her values of the other node")
            assert seen(bob) is None
            mirror = a.run_dir / "nodes" / "b" / "applications" / f"u{eve}"
            assert mirror.stat().st_mode & 0o007 == 0
            # Over TCP everyone is one reader.
            assert a.post_sql(values).status != 200
        finally:
            program.kill()
            program.communicate()
        # What is kept of it has the same readers.
        present = "SELECT 1 FROM b_app_counting_number WHERE newest"
        asked = ("sql", "--json", "--run-dir", a.run_dir, present)
        eventually(lambda: baro(*asked).stdout.strip() in ("", "[]"), "its streams have ended")
        eventually(lambda: seen(eve) == 50, "her history of the other node")
        assert seen(bob) is None
        kept = a.state_dir / "aggregated" / "b" / "applications" / f"u{eve}"
        assert kept.stat().st_mode & 0o007 == 0


def test_rules_and_insights_over_all_nodes_read_what_everyone_may_read(start: Start) -> None:
    """Naming it is enough to have it mirrored."""
    config = QUICK + '[cluster]\nmirror = ["node.*"]\ninsights_from = ["*"]\n'
    _, (a, b, c) = cluster(start, ["a", "b", "c"], config)
    table = "cluster_app_solver_residual"
    when = "CREATE RULE b.high WHEN latest('cluster.app.solver.residual{node=b}') > 1 CALL 'nobody'"
    total = f"CREATE INSIGHT solver.total ON CLUSTER AS SELECT sum(value) AS value FROM {table} WHERE newest"
    totals = "SELECT value FROM cluster_solver_total WHERE newest"
    with Solver(b, "all") as on_b, Solver(c, "all") as on_c, Solver(b, "owner") as private:
        private.put(100.0)
        on_b.put(0.5)
        on_c.put(0.25)
        eventually(lambda: "all" in scopes(b) and "all" in scopes(c), "publications that others may mirror")
        eventually(lambda: len(b.rows("SELECT 1 FROM app_solver_residual WHERE newest")) == 2, "both programs of b")
        assert a.rows(f"SELECT 1 FROM {table} WHERE newest") == [], "nobody reads them"
        a.out("rule", "create", when)
        eventually(lambda: rule(a, "b.high")["subjects"] == 1, "what everyone may read of b")
        assert nodes_of(a, table) == {"b"}
        assert rule(a, "b.high")["fired"] == 0
        on_b.put(2.0)
        eventually(lambda: rule(a, "b.high")["fired"] == 1, "a rule that fires on a value of b")

        b.out("insight", "create", total)
        expected = {"a": 2, "b": 2, "c": 2}
        eventually(lambda: known(a)["inputs"] == expected, "an insight that has the values of both nodes")
        for agent in (a, b, c):
            eventually(lambda agent=agent: agent.rows(totals)[-1:] == [{"value": 2.25}], "the sum of both nodes")
        on_c.put(1.0)
        for agent in (a, b, c):
            eventually(lambda agent=agent: agent.rows(totals) == [{"value": 3.0}], "the next sum")
        a.out("rule", "drop", "b.high")
        a.out("insight", "drop", "solver.total", "--on-cluster")
        eventually(lambda: a.rows(f"SELECT 1 FROM {table}") == [], "a mirror without what nobody reads", 15)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users")
def test_what_one_user_may_read_is_told_to_her_programs_alone(counting: Path, called: Path) -> None:  # noqa: F811
    config = '[applications]\nusers = "all"\n' + QUICK + '[cluster]\nmirror = ["node.*"]\npublications = ["all", "u*"]\n'
    eve, bob = ({"user": uid, "group": uid, "extra_groups": []} for uid in (4_711, 4_712))
    for_all = 2
    called.parent.chmod(0o755)
    with certified({"a": config, "b": config}) as (a, b):
        programs = [run(counting, b, 5, 0, 0, "wait", **eve), run(counting, b, 3, 0, for_all, "wait", **bob)]
        hers, his = (Called(called, a, rank, **user) for rank, user in enumerate((eve, bob)))
        try:
            eventually(lambda: len(handlers(a)) == 2, "two programs can be called")
            when = "CREATE RULE {} WHEN latest('cluster.app.counting.number{{node=b}}') = {} CALL 'checkpoint' PAYLOAD {}"
            a.out("rule", "create", when.format("hers", 50, "'of eve'"))
            eventually(lambda: any(line.endswith(" of eve") for line in hers.said()), "a call of her program")
            # Beside what everyone may read as well.
            beside = "CREATE RULE beside WHEN latest('memory.total.bytes') > 0 CALL 'checkpoint' PAYLOAD {}"
            newest = "CASE WHEN latest('cluster.app.counting.number{node=b,user=4711}') > 0 THEN 'beside' END"
            a.out("rule", "create", beside.format(newest))
            eventually(lambda: any(line.endswith(" beside") for line in hers.said()), "her value in a payload")
            a.out("rule", "create", when.format("his", 30, "'for all'"))
            for program in (hers, his):
                eventually(lambda p=program: any(line.endswith(" for all") for line in p.said()), "a call of both")
            assert not any(line.endswith((" of eve", " beside")) for line in his.said())
            # Everyone reads insights, so they read what everyone may read.
            most = "SELECT max(value) AS value FROM cluster_app_counting_number WHERE newest"
            a.out("insight", "create", f"CREATE INSIGHT counted.most AS {most}")
            eventually(lambda: a.value("counted.most") == 30, "the values for everyone")
            assert a.sql(most) == [{"value": 50}], "the agent's user reads both"
        finally:
            for process in (*programs, hers.process, his.process):
                process.kill()
                process.wait()
