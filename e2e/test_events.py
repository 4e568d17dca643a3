"""File events through the real agent: what is made is told once, by command line, SQL and Python,
also over restarts and SIGKILL, to those who may read it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import QUICK, Agent, baro, eventually

Start = Callable[..., Agent]

FILES = 2_000


def events(agent: Agent, where: str = "1") -> list[dict[str, Any]]:
    return agent.rows(f"SELECT *, path_bytes FROM events WHERE {where} ORDER BY idx")


def names(agent: Agent, kind: str) -> list[str]:
    return sorted(Path(event["path"]).name for event in events(agent, f"kind = '{kind}'"))


def watched(agent: Agent, folder: Path, *options: object) -> Path:
    """Has a new tree watched, and waits until it is."""
    tree = folder / "tree"
    tree.mkdir(exist_ok=True)
    agent.out("event", "add", tree, "--name", "tree", *options)
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")
    return tree


def test_what_happens_is_told_once_and_in_order(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    assert agent.rows("SELECT * FROM events") == [], "the table is there before any event"
    tree = watched(agent, tmp_path)
    (tree / "a").mkdir()
    for number in range(FILES):
        (tree / "a" / f"f{number}").write_text("x")
    (tree / "a").rename(tree / "b")
    os.rename(tree / "b" / "f0", tree / "b" / "new\nline")
    (tree / "b" / "f1").unlink()
    made = eventually(lambda: [one for one in events(agent) if one["kind"] == "unlink"], "the last event")
    assert made[0]["path"] == str(tree / "b" / "f1")
    assert names(agent, "create") == sorted(f"f{number}" for number in range(FILES))
    renames = [(one["old_path"], one["path"]) for one in events(agent, "kind = 'rename'")]
    assert renames == [
        (str(tree / "a"), str(tree / "b")),
        (str(tree / "b" / "f0"), str(tree / "b" / "new\nline")),
    ]
    numbers = [one["idx"] for one in events(agent)]
    assert numbers == list(range(1, len(numbers) + 1))
    shown = agent.ask("event", "history", tree, "--kind", "unlink,rename")
    assert [one["kind"] for one in shown] == ["rename", "rename", "unlink"]
    assert "new\\nline" in json.dumps(shown)


def test_followers_leave_nothing_out(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    told: list[dict[str, Any]] = []
    with agent.command_running("event", "watch", tree, "--kind", "create", "--json") as command:

        def read() -> None:
            for line in command.stdout or []:
                told.append(json.loads(line))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        # The command follows from the moment in which it is ready, which is seen when it tells.
        numbers = itertools.count()
        eventually(lambda: (tree / f"early{next(numbers)}").touch() or told, "a follower")
        for number in range(FILES):
            (tree / f"f{number}").touch()
        last = str(tree / f"f{FILES - 1}")
        eventually(lambda: told[-1]["path"] == last, "the last file", 120)
        command.kill()
        reader.join()
    names_told = [name for line in told if (name := Path(line["path"]).name).startswith("f")]
    assert names_told == [f"f{number}" for number in range(FILES)]
    numbers_told = [line["idx"] for line in told]
    assert numbers_told == sorted(set(numbers_told))


def test_a_killed_agent_tells_what_it_has_missed(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    for name in ["stays", "goes", "moves"]:
        (tree / name).write_text(name)
    eventually(lambda: len(names(agent, "close_write")) == 3, "events")
    agent.run("archive", "seal")
    agent.stop(signal.SIGKILL)
    (tree / "goes").unlink()
    (tree / "moves").rename(tree / "moved")
    (tree / "comes").write_text("comes")
    agent.start()
    eventually(lambda: events(agent, "kind = 'reconciled' AND idx > 10"), "the end of the gap")
    later = [one for one in events(agent) if one["quality"] == "reconciled"]
    told = {(one["kind"], Path(one["path"]).name) for one in later}
    assert {("unlink", "goes"), ("rename", "moved"), ("create", "comes")} <= told
    assert not [one for one in later if Path(one["path"]).name == "stays"], "nothing has happened to it"
    assert events(agent, "kind = 'gap'")
    numbers = [one["idx"] for one in events(agent)]
    assert numbers == sorted(set(numbers))


def test_watches_are_kept_dropped_and_refused(start: Start, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    config = f'{QUICK}\n[[event.watch]]\npath = "{tmp_path / "other"}"\nname = "other"\n'
    agent = start(config=config)
    tree = watched(agent, tmp_path)
    agent.restart()
    rows = eventually(
        lambda: [row for row in agent.sql("SELECT * FROM watches ORDER BY name") if row["state"] == "live"][1:],
        "both watches",
    )
    assert [row["name"] for row in rows] == ["tree"]
    assert "configuration has the watch other" in agent.error("event", "drop", "other")
    assert "there is a watch tree already" in agent.error("event", "add", tree, "--name", "tree")
    assert "it must be owner or all" in agent.error("event", "add", tree, "--name", "t2", "--readers", "me")
    agent.out("event", "drop", "tree")
    eventually(lambda: len(agent.sql("SELECT * FROM watches")) == 1, "the end of the watch")
    assert "there is no watch tree" in agent.error("event", "drop", "tree")
    assert "the kinds are create, mkdir" in baro("event", "history", "--kind", "made").stderr


def test_a_root_that_is_missing_is_said_and_found_later(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = tmp_path / "later"
    tree.mkdir()
    agent.out("event", "add", tree, "--name", "tree")
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")
    tree.rmdir()
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE trouble <> ''"), "a trouble")
    assert f"events of tree: {tree} is not there" in agent.out("doctor")
    tree.mkdir()
    (tree / "again").touch()
    eventually(lambda: "again" in names(agent, "create"), "the file in the new root")


def test_owners_alone_read_what_is_theirs(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    (tree / "secret").touch()
    eventually(lambda: names(agent, "create"), "an event")
    # HTTP answers everyone on the node.
    assert agent.post_sql("SELECT * FROM events").json == []
    agent.out("event", "drop", "tree")
    agent.out("event", "add", tree, "--name", "open", "--readers", "all")
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE state = 'live' AND name = 'open'"), "a live watch")
    (tree / "public").touch()
    eventually(lambda: "public" in str(agent.post_sql("SELECT path FROM events").json), "an event for all")
    assert "secret" not in str(agent.post_sql("SELECT path FROM events").json)
