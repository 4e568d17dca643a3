"""Rules on file events through the real agent: each event has its action once, over restarts and
SIGKILL; what fails can be seen and retried; and rules are tried before they act."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, ROOT, Agent, baro, eventually

Start = Callable[..., Agent]

# Appends a line to a log: the key of the action, and the path. A line is written by one call.
NOTE = """#!/bin/sh
printf '%s %s\\n' "$BAROGRAPH_KEY" "$1" >> "$2"
"""


def program(folder: Path, text: str, name: str = "note") -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def watched(agent: Agent, folder: Path) -> Path:
    """Has a new tree watched, and waits until it is."""
    tree = folder / "tree"
    tree.mkdir(exist_ok=True)
    agent.out("event", "add", tree, "--name", "tree")
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")
    return tree


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def actions(agent: Agent, where: str = "1") -> list[dict[str, Any]]:
    return agent.rows(f"SELECT * FROM actions WHERE {where} ORDER BY id")


def test_each_event_has_its_action_once(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree, log = watched(agent, tmp_path), tmp_path / "log"
    (tree / "before.tif").write_text("x")
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE durable_idx >= 3"), "it is recorded")
    note = program(tmp_path, NOTE)
    made = agent.ask(
        "rule",
        "create",
        f"""CREATE RULE images HELP 'notes images' ON EVENT close_write WHERE path GLOB '*.tif' AND size > 0
            THEN RUN '{note}' '{{path}}' '{log}' CONCURRENCY 1 RETRY 3""",
    )
    assert (made["name"], made["state"]) == ("images", "armed")
    for number in range(50):
        (tree / f"f{number}.tif").write_text("x")
        (tree / f"f{number}.txt").write_text("x")
    (tree / "odd $(touch x) {path}.tif").write_text("x")
    (tree / "empty.tif").touch()
    eventually(lambda: len(lines(log)) >= 51, "all actions")
    paths = [line.split(" ", 1)[1] for line in lines(log)]
    expected = [str(tree / f"f{number}.tif") for number in range(50)]
    assert paths == [*expected, str(tree / "odd $(touch x) {path}.tif")], "in order, and no shell"
    done = eventually(lambda: (rows := actions(agent, "state = 'done'"))[50:] and rows, "the table has them")
    assert len(done) == 51 and {row["rule"] for row in done} == {"images"}
    assert [line.split(" ", 1)[0] for line in lines(log)] == [row["key"] for row in done]
    rule = eventually(lambda: (r := agent.rows("SELECT * FROM rules WHERE name = 'images'")) and r[0]["fired"] and r[0], "counts")
    assert (rule["fired"], rule["missed"], rule["state"]) == (51, 0, "armed")
    shown = agent.ask("action", "show", done[-1]["id"])
    assert shown["path"].endswith("{path}.tif") and shown["argv"][1] == shown["path"]
    assert [row["id"] for row in agent.ask("action", "list", "--limit", 2)] == [done[-1]["id"], done[-2]["id"]]
    agent.out("rule", "drop", "images")
    (tree / "late.tif").write_text("x")
    eventually(lambda: agent.rows("SELECT 1 FROM events WHERE path GLOB '*late.tif' AND kind = 'close_write'"), "the event")
    agent.restart()
    assert len(lines(log)) == 51


def test_nothing_is_lost_when_the_agent_is_killed(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree, log = watched(agent, tmp_path), tmp_path / "log"
    note = program(tmp_path, NOTE)
    agent.out(
        "rule",
        "create",
        f"CREATE RULE every ON EVENT create THEN RUN '{note}' '{{path}}' '{log}' CONCURRENCY 4",
    )
    count = 0
    for _ in range(4):
        for _ in range(150):
            (tree / f"f{count}").touch()
            count += 1
        time.sleep(random.uniform(0.0, 1.5))
        agent.stop(signal.SIGKILL)
        (tree / f"f{count}").touch()
        count += 1
        agent.start()
        eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")
    expected = {str(tree / f"f{number}") for number in range(count)}
    # What a killed agent was running is done again when its lease has ended.
    eventually(lambda: {line.split(" ", 1)[1] for line in lines(log)} >= expected, "all actions", 120)
    keys = [line.split(" ", 1)[0] for line in lines(log)]
    twice = len(keys) - len(set(keys))
    assert twice <= 4 * 4, "only what was running is done again"
    # An event has one key however often it is done.
    told = {tuple(line.split(" ", 1)) for line in lines(log)}
    assert len({key for key, _ in told}) == len(told)


def test_what_fails_is_shown_and_retried(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree, switch = watched(agent, tmp_path), tmp_path / "switch"
    check = program(tmp_path, f"#!/bin/sh\necho looking at $1\ntest -e {switch}\n")
    agent.out("rule", "create", f"CREATE RULE check ON EVENT create THEN RUN '{check}' '{{path}}'")
    (tree / "a").touch()
    dead = eventually(lambda: actions(agent, "state = 'dead'"), "a dead letter")[0]
    assert dead["reason"] == "the program ended with code 1"
    assert "looking at" in agent.out("action", "show", dead["id"])
    assert "dead" in agent.out("action", "list", "--state", "dead")
    rule = eventually(lambda: (r := agent.rows("SELECT * FROM rules WHERE failed > 0")) and r[0], "it is counted")
    assert rule["name"] == "check"
    doctor = agent.out("doctor")
    assert "actions of rule check: 1 have failed for good\n  why     the program ended with code 1" in doctor
    switch.touch()
    agent.out("action", "retry", dead["id"])
    eventually(lambda: actions(agent, "state = 'done'"), "it succeeds")
    assert "only one that waits or is dead" in agent.error("action", "retry", dead["id"])
    assert "there is no action 999" in agent.error("action", "show", 999)
    switch.unlink()
    (tree / "b").touch()
    other = eventually(lambda: actions(agent, "state = 'dead'"), "another one")[0]
    agent.out("action", "drop", other["id"])
    eventually(lambda: actions(agent, "state = 'dropped'"), "it is dropped")


def test_a_rule_is_no_cause_of_itself(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    copy = program(tmp_path, '#!/bin/sh\necho "$1" >> "$2"\n', "copy")
    # Each writes what the other one sees.
    for rule, seen, written in [("ping", "a", "b"), ("pong", "b", "a")]:
        agent.out(
            "rule",
            "create",
            f"CREATE RULE {rule} ON EVENT close_write WHERE name = '{seen}' THEN RUN '{copy}' '{rule}' '{{dir}}/{written}'",
        )
    (tree / "a").write_text("begin\n")
    eventually(lambda: (tree / "a").read_text() == "begin\npong\n", "a chain of two")
    eventually(lambda: agent.rows("SELECT 1 FROM rules WHERE name = 'ping' AND suppressed > 0"), "the loop is seen")
    assert (tree / "b").read_text() == "ping\n"
    assert len(actions(agent)) == 2


def test_rules_are_tried_before_they_act(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    (tree / "a.tif").write_text("x")
    (tree / "b.txt").write_text("x")
    eventually(lambda: len(agent.rows("SELECT 1 FROM events WHERE kind = 'close_write'")) == 2, "events")
    rule = "CREATE RULE t ON EVENT close_write WHERE path GLOB '*.tif' THEN RUN '/bin/false' '{name}'"
    tried = agent.ask("rule", "dry-run", rule)
    assert tried["fires"] == 1 and tried["shown"][0]["argv"] == ["/bin/false", "a.tif"]
    assert "it would have run 1 times" in agent.out("rule", "dry-run", rule, "--since", "-10m")
    agent.out("rule", "create", rule)
    other = agent.rows("SELECT source, idx FROM events WHERE path GLOB '*.txt' AND kind = 'close_write'")[0]
    why = agent.out("rule", "explain", "t", "--event", f"{other['source']}:{other['idx']}")
    assert "does not hold: path GLOB '*.tif'" in why and "t does not fire" in why
    assert actions(agent) == []
    document = tmp_path / "rules.md"
    table = "| kind | path | fires |\n| --- | --- | --- |\n| close_write | /d/a.tif | yes |\n| close_write | /d/a | {} |\n"
    document.write_text(f"```sql\n{rule}\n```\n\n{table.format('no')}")
    assert "ok     t (2 events)" in baro("rule", "test", document).stdout
    document.write_text(f"```sql\n{rule}\n```\n\n{table.format('yes')}")
    tested = baro("rule", "test", document, "--json")
    assert tested.returncode == 1 and "1 rows of" in tested.stderr
    assert json.loads(tested.stdout) == [{"rule": "t", "rows": 2, "differences": [{"line": 8, "fired": False}]}]


def test_the_example_holds() -> None:
    tested = baro("rule", "test", ROOT / "examples" / "rules" / "images.md")
    assert tested.returncode == 0, tested.stderr
    assert tested.stdout == "ok     images (7 events)\nok     purge (5 events)\n"


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("ON EVENT creat THEN RUN '/bin/x'", "there is no kind of events creat at Line: 1, Column: 24: did you mean create"),
        ("ON EVENT create WHERE siz > 0 THEN RUN '/bin/x'", "an event has no column siz at Line: 1, Column: 37: did you mean size"),
        ("ON EVENT create THEN RUN '/bin/x' '{pth}'", "unknown field {pth} at byte 0: did you mean path?"),
        ("ON EVENT create THEN RUN '/bin/x' TIMEOUT 'soon'", "soon"),
    ],
)
def test_wrong_rules_are_refused(start: Start, statement: str, error: str) -> None:
    agent = start(config=QUICK)
    assert error in agent.error("rule", "create", f"CREATE RULE r {statement}")
    assert agent.rows("SELECT 1 FROM rules") == []
