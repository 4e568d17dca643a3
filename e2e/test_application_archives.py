"""History of applications: sealed, listed, exported and copied like the node's, for users that may
read it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from harness import QUICK, Agent, baro, environment, eventually
from test_applications import ALL, counting, number, published, run, shared  # noqa: F401
from test_target import CREDENTIALS, s3  # noqa: F401

Start = Callable[..., Agent]
OURS = f"u{os.geteuid()}"
EXPORT = ("archive", "export", "--match", "app.counting.number")
FRAMES = 10
VALUES = 10 * FRAMES


def publish(counting: Path, agent: Agent, readers: int = 0, **more: Any) -> None:
    """Runs a program that puts its values and ends."""
    with run(counting, agent, FRAMES, 0, readers, **more) as program:
        assert program.wait(30) == 0


def kept(agent: Agent, count: int) -> None:
    """Waits until `count` values exist."""
    eventually(lambda: published(agent) and number(agent, ALL) == count, f"{count} values")


def raw(archive: Path) -> int:
    """The number of values in the raw files of an archive, counted by another program."""
    table = f"read_parquet('{archive}/raw/**/*.parquet')"
    rows = duckdb.sql(f"SELECT count(DISTINCT value) FROM {table} WHERE name = 'app.counting.number'").fetchall()
    return int(rows[0][0])


def test_sealed_listed_and_in_status(start: Start, counting: Path) -> None:  # noqa: F811
    agent = start(config=QUICK)
    publish(counting, agent)
    kept(agent, VALUES)
    sealed = agent.ask("archive", "seal")
    assert sealed["sealed"] and sealed["applications"] == {OURS: {"sealed": True}}
    scope = agent.state_dir / "applications" / OURS / "archive"
    assert raw(scope) == VALUES
    assert "of 1 of applications" in agent.out("archive", "seal")

    def listed() -> None:
        found = agent.ask("archive", "ls")
        assert [archive["scope"] for archive in found["archives"]] == ["node", OURS]
        assert found["archives"][1]["samples"] >= VALUES and found["unreadable"] == []
        assert {file["path"] for file in found["files"] if file["scope"] == OURS and file["kind"] == "raw"} == {
            str(path) for path in (scope / "raw").rglob("*.parquet")
        }
        assert OURS in agent.out("archive", "ls")
        assert agent.ask("archive", "verify")["samples"] == found["samples"]

    told = eventually(lambda: agent.ask("status")["applications"]["archives"].get(OURS), "the agent says it")
    assert told["dir"] == str(scope) and told["trouble"] == ""
    assert f"applications of {OURS}" in agent.out("status") and str(scope) in agent.out("doctor")
    agent.stop()
    listed()
    # Without an agent, the command's own process does it.
    assert agent.ask("archive", "compact")["applications"].keys() == {OURS}
    listed()


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_exported(start: Start, counting: Path, tmp_path: Path, form: str) -> None:  # noqa: F811
    agent = start(config=QUICK)
    publish(counting, agent)
    kept(agent, VALUES)
    out = tmp_path / f"out.{form}"
    done = agent.ask(*EXPORT, "--format", form, "--out", out)
    assert done == {"samples": VALUES, "unreadable": []}
    if form == "parquet":
        assert raw(out / "applications" / OURS) == VALUES
        (of,) = [a for a in agent.ask("archive", "ls", "--archive-dir", out)["archives"] if a["samples"]]
        assert (of["scope"], of["samples"]) == (OURS, VALUES)
    else:
        read = {"csv": "read_csv", "jsonl": "read_json"}[form]
        assert duckdb.sql(f"SELECT count(*) FROM {read}('{out}')").fetchall() == [(VALUES,)]


def test_an_export_of_nothing_is_an_error(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    out = tmp_path / "out.csv"
    command = ["archive", "export", "--format", "csv", "--out", out]
    said = agent.error(*command, "--match", "app.nobody.put")
    assert "app.nobody.put" in said and "baro streams" in said
    eventually(lambda: agent.ask("archive", "ls")["samples"], "something is kept")
    long_ago = ["--start", "2001-01-01T00:00:00Z", "--stop", "2001-01-02T00:00:00Z"]
    said = agent.error(*command, "--match", "agent.*", *long_ago)
    assert "baro archive ls" in said
    assert not out.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users")
def test_only_what_a_user_may_read(shared: Path, counting: Path) -> None:  # noqa: F811
    agent = Agent(shared, config='[applications]\nusers = "all"\n' + QUICK).start()
    eve, bob = 4_711, 4_712
    try:
        for readers, uid in ((0, eve), (2, bob)):
            publish(counting, agent, readers, user=uid, group=uid, extra_groups=[])
        kept(agent, 2 * VALUES)

        def asked(uid: int, *arguments: object) -> Any:
            command = [*arguments, "--run-dir", agent.run_dir]
            done = baro(*command, user=uid, group=uid, extra_groups=[], env=environment(HOME="/nonexistent"))
            assert done.returncode == 0, done.stderr
            return done

        def scopes(uid: int) -> tuple[list[str], list[str]]:
            found = json.loads(asked(uid, "archive", "ls", "--json").stdout)
            return [archive["scope"] for archive in found["archives"]], found["unreadable"]

        assert scopes(eve) == (["node", "all", f"u{eve}"], [f"u{bob}"])
        assert scopes(bob) == (["node", "all", f"u{bob}"], [f"u{eve}"])
        export = (*EXPORT, "--format", "jsonl", "--out", "-")
        assert asked(eve, *export).stdout.count("\n") == 2 * VALUES
        done = asked(bob, *export)
        assert done.stdout.count("\n") == VALUES and f"left out: applications of u{eve}" in done.stderr
        found = json.loads(asked(bob, "status", "--json").stdout)
        assert found["applications"]["unreadable"] == [f"u{eve}"]
        assert f"applications of u{eve}" in asked(bob, "status").stdout
        # A user who may control seals all scopes.
        assert set(agent.ask("archive", "seal")["applications"]) == {"all", f"u{eve}", f"u{bob}"}
    finally:
        agent.stop()


def test_copied_with_the_readers_of_the_scope(start: Start, counting: Path, tmp_path: Path) -> None:  # noqa: F811
    there = tmp_path / "copies"
    agent = start(config=f"[archive]\ntarget = 'file://{there}'\n" + QUICK)
    publish(counting, agent)
    kept(agent, VALUES)
    agent.ask("archive", "seal")
    place = there / "applications" / OURS
    eventually(lambda: list(place.rglob("raw/**/*.parquet")), "a copy")
    assert raw(place) == VALUES
    assert place.stat().st_mode & 0o777 == 0o700
    eventually(lambda: list(there.glob("raw/node=*/**/*.parquet")), "the node's own beside it")


def test_copied_to_s3(
    s3: Any,  # noqa: F811
    start: Start,
    counting: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)

    def keys(prefix: str) -> set[str]:
        found = s3.list_objects_v2(Bucket="history", Prefix=prefix).get("Contents", [])
        return {item["Key"] for item in found if item["Key"].endswith(".parquet")}

    for place, more in (("both", ""), ("alone", "target_applications = false\n")):
        config = f"[archive]\ntarget = 's3://history/{place}'\n{more}"
        options = f"[archive.target_options]\nendpoint = '{s3.meta.endpoint_url}'\n"
        agent = start(config=config + options)
        publish(counting, agent)
        kept(agent, VALUES)
        agent.ask("archive", "seal")
        scope = agent.state_dir / "applications" / OURS / "archive"

        def ours() -> set[str]:
            paths = scope.glob("*/node=*/**/*.parquet")
            return {f"{place}/applications/{OURS}/{path.relative_to(scope)}" for path in paths}

        eventually(lambda: keys(f"{place}/raw/"), "copies of the node's files")
        if more:
            agent.stop()
            assert not keys(f"{place}/applications/")
        else:
            eventually(lambda: ours() and ours() == keys(f"{place}/applications/"), "a copy of every file")


def test_values_of_long_ago_are_in_the_partitions_of_their_hours(start: Start) -> None:
    """Another program takes a partition's name as a fact about its contents."""
    agent = start(config=QUICK)
    hours = 100
    begin = int(time.time()) // 3600 * 3600 - 20 * 86_400
    lines = "\n".join(f"old v={hour}i {(begin + hour * 3600) * 10**9}" for hour in range(hours))
    answer = agent.request("POST", "/write", lines, way="read.sock")
    assert answer.status == 204, answer.text
    # The archive of the scope begins with its first value.
    eventually(lambda: OURS in agent.ask("archive", "seal")["applications"], "the archive of the scope")
    scope = agent.state_dir / "applications" / OURS / "archive"
    table = f"read_parquet('{scope}/raw/**/*.parquet', hive_partitioning = true)"
    of_path = "strftime(date::DATE, '%Y-%m-%d') || ' ' || lpad(hour::VARCHAR, 2, '0')"
    same = f"strftime(make_timestamp_ns(ts), '%Y-%m-%d %H') = {of_path}"
    counts = f"SELECT count(*), count(*) FILTER ({same}) FROM {table} WHERE name = 'app.old.v'"
    assert duckdb.sql(counts).fetchall() == [(hours, hours)]
