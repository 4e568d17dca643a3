"""Programs that are called while they run: handlers called, knobs set, answers counted; agents and
programs are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import barograph
import pytest
from harness import QUICK, ROOT, Agent, environment, eventually

Start = Callable[..., Agent]
LIBRARY = Path(os.environ.get("BARO_LIB_DIR", ROOT / "target" / "debug"))
INCLUDE = ROOT / "crates" / "libbaro" / "include"

# Prints the calls that it gets and the values of its knob; a call can make it fail.
CALLED = r"""
#include <baro.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int checkpoint(const baro_call_t *call, void *data)
{
    const char *said = call->type == BARO_NULL ? "nothing" : call->type == BARO_INT ? "a number" : call->as.text;
    (void)data;
    dprintf(1, "call %llu %s\n", (unsigned long long)call->id, said);
    return strcmp(said, "fail") == 0;
}
int main(int count, char **arguments)
{
    baro_t *b = baro_open("called", NULL);
    if (!baro_is_enabled(b)) { fprintf(stderr, "%s\n", baro_error()); return 1; }
    if (count > 1) baro_label(b, "rank", arguments[1]);
    baro_publication_t p = baro_publication(b, "called", BARO_READERS_OWNER);
    baro_label(b, "phase", "solve");
    baro_publication_t open = baro_publication(b, "open", BARO_READERS_ALL);
    if (baro_publication_on(b, open, "report", "says how it is", checkpoint, NULL, NULL) < 0) return 3;
    const baro_knob_t *dt = baro_knob_f64(p, "dt", 0.25, 0, 1, "s", "length of a step");
    if (dt == NULL || baro_on(b, "checkpoint", "writes a checkpoint", checkpoint, NULL) < 0) return 2;
    double before = -1;
    /* Each rank has its own pace where one is given, and says at which step it begins with another value. */
    useconds_t pause_us = count > 2 ? (useconds_t)atoi(arguments[2]) : 1000;
    for (unsigned long long frame = 1;; frame++) {
        baro_poll(b);
        if (baro_knob_get_f64(dt) != before) {
            dprintf(1, "dt %g\n", before = baro_knob_get_f64(dt));
            if (count > 2) dprintf(1, "%g from step %llu\n", before, frame);
        }
        baro_frame(p, frame);
        usleep(pause_us);
    }
}
"""


@pytest.fixture(scope="module")
def called() -> Iterator[Path]:
    """The program, compiled with the header and the library as by a user."""
    with tempfile.TemporaryDirectory(prefix="baro-c-") as name:
        folder = Path(name)
        source, program, library = folder / "called.c", folder / "called", folder / "lib"
        source.write_text(CALLED)
        library.mkdir()
        shutil.copy(LIBRARY / "libbaro.so", library / "libbaro.so.1")
        (library / "libbaro.so").symlink_to("libbaro.so.1")
        command = ["cc", "-O2", "-Wall", "-Werror", f"-I{INCLUDE}", source, "-o", program, f"-L{library}", "-lbaro"]
        subprocess.run([*map(str, command), f"-Wl,-rpath,{library}"], check=True)
        yield program


class Called:
    """A running program with its output."""

    def __init__(self, program: Path, agent: Agent, rank: int, *pace: int, **more: Any) -> None:
        self.out = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [str(program), str(rank), *map(str, pace)],
            stdout=self.out,
            env=environment(BAROGRAPH_RUN_DIR=str(agent.run_dir)),
            **more,
        )

    def said(self) -> list[str]:
        # The program shares the position in the file, so it is not moved.
        size = os.fstat(self.out.fileno()).st_size
        return os.pread(self.out.fileno(), size, 0).decode().splitlines()


@contextmanager
def ranks(program: Path, agent: Agent, count: int, *paces: int) -> Iterator[list[Called]]:
    """Runs `count` programs until the agent knows them; with paces, each rests so many µs at each
    step."""
    running = [Called(program, agent, rank, *paces[rank : rank + 1]) for rank in range(count)]
    try:
        eventually(lambda: len(handlers(agent)) == count, f"{count} programs can be called")
        yield running
    finally:
        for one in running:
            one.process.kill()
            one.process.wait()


def handlers(agent: Agent) -> list[dict[str, Any]]:
    rows = agent.ask("call", "list")["handlers"]
    return [row for row in rows if row["name"] == "checkpoint"]


def calls(agent: Agent) -> list[dict[str, Any]]:
    return agent.sql("SELECT * FROM calls ORDER BY id")


def test_a_call_runs_the_handler_and_is_answered(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    agent.error("call", "fire", "checkpoint")
    with ranks(called, agent, 2) as programs:
        answer = agent.ask("call", "fire", "checkpoint", "--payload", "now", "--wait", "10s")
        assert (answer["matched"], answer["acknowledged"], answer["state"]) == (2, 2, "acknowledged")
        number = answer["id"].split(":")[1]
        for program in programs:
            eventually(lambda p=program: f"call {number} now" in p.said(), "the handler has run")
        # One of the programs, by its label.
        answer = agent.ask("call", "fire", "checkpoint", "--target", "rank=1", "--wait", "10s")
        assert (answer["matched"], answer["acknowledged"]) == (1, 1)
        number = answer["id"].split(":")[1]
        assert f"call {number} nothing" in programs[1].said()
        assert not any(line.startswith(f"call {number} ") for line in programs[0].said())
        # A handler that fails.
        done = agent.run("call", "fire", "checkpoint", "--payload", "fail", "--wait", "10s", "--json")
        assert done.returncode == 1 and "failed" in done.stderr
        assert json.loads(done.stdout)["failed"] == 2
        rows = eventually(lambda: [r for r in calls(agent) if r["state"] == "failed"], "it is written down")
        assert (rows[0]["failed"], rows[0]["payload"], rows[0]["via"]) == (2, "fail", "control.sock")
        assert rows[0]["by_user"] == os.getuid()


def test_nobody_is_called_in_vain(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    with ranks(called, agent, 1):
        assert "there is checkpoint" in agent.error("call", "fire", "chekpoint")
        assert "meant" in agent.error("call", "fire", "checkpoint", "--target", "rank=7")
        agent.error("call", "fire", "checkpoint", "--target", "rank", status=2)
        agent.error("call", "fire", "checkpoint", "--wait", "soon", status=2)
        assert calls(agent) == []


def test_a_knob_is_set_within_its_bounds_and_is_history(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    with ranks(called, agent, 1) as programs:
        (knob,) = eventually(lambda: agent.sql("SELECT * FROM knobs WHERE value = 0.25"), "the knob")
        assert (knob["publication"], knob["name"], knob["min"], knob["max"], knob["unit"]) == ("called", "dt", 0, 1, "s")
        assert "between" in agent.error("knob", "set", "called.dt", "1.5")
        agent.error("knob", "set", "called.dt", "half", status=2)
        answer = agent.ask("knob", "set", "called.dt", "0.5", "--wait", "10s")
        assert answer["state"] == "acknowledged"
        eventually(lambda: "dt 0.5" in programs[0].said(), "the program has it")
        values = "SELECT value FROM app_called_dt ORDER BY ts"
        eventually(lambda: [row["value"] for row in agent.sql(values)][-1:] == [0.5], "the new value is a sample")
        assert [row["value"] for row in agent.sql(values)][:1] == [0.25]
        # A caller that knows that the knob was set finds it set, at once and each time.
        for step in range(1, 9):
            assert agent.ask("knob", "set", "called.dt", str(step / 8), "--wait", "10s")["state"] == "acknowledged"
            assert [(k["name"], k["value"]) for k in agent.ask("knob", "list")] == [("dt", step / 8)]
        # The times at which it was set are in a stream, like other events.
        fired = "SELECT count(*) AS n FROM app_call_fired_id WHERE name = 'called.dt'"
        eventually(lambda: agent.has("app.call.acked.id") and agent.sql(fired)[0]["n"] == 9, "its stream")


def test_a_knob_is_set_at_the_same_step_in_all_ranks(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    paces = 5_000, 6_000, 8_000, 12_000
    newest = "SELECT max(value) AS n FROM app_called_frame WHERE newest"
    with ranks(called, agent, len(paces), *paces) as programs:
        eventually(lambda: agent.has("app.called.frame") and agent.sql(newest)[0]["n"] >= 10, "they are under way")
        # The fastest rank reaches the frame more than a second after the request, the slowest some
        # seconds later.
        answer = agent.ask("knob", "set", "called.dt", "0.5", "--at-frame", "+250", "--wait", "30s", "--expires", "10m")
        told = eventually(lambda: [c for c in calls(agent) if c["state"] == "acknowledged"], "all have set it")
        assert (told[0]["matched"], told[0]["late"]) == (4, 0), answer
        first = f"0.5 from step {told[0]['at_frame'] + 1}"
        for program in programs:
            eventually(lambda: first in program.said(), f"{first} in {program.said()}")
            assert len([line for line in program.said() if line.startswith("0.5 from")]) == 1
        # For a frame that is over, no program sets the knob, and the caller learns this.
        done = agent.run("knob", "set", "called.dt", "0.75", "--at-frame", "1", "--wait", "10s")
        assert done.returncode == 1 and "late" in done.stdout + done.stderr, done
        eventually(lambda: sorted(call["late"] for call in calls(agent)) == [0, 4], "it is in the table")
        assert not any("dt 0.75" in program.said() for program in programs)
        agent.error("knob", "set", "called.dt", "0.75", "--at-frame", "x", status=2)


def test_http_by_rights(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    with ranks(called, agent, 1):
        body = {"name": "checkpoint", "payload": 3, "wait_s": 10}
        for way in ("read.sock", "control.sock"):
            answer = agent.request("POST", "/api/v1/fire", body, way)
            assert answer.status == 200 and answer.json["state"] == "acknowledged", answer.text
        assert agent.request("POST", "/api/v1/fire", body).status == 401
        bearer = {"authorization": f"Bearer {agent.token()}"}
        assert agent.request("POST", "/api/v1/fire", body, headers=bearer).status == 200
        for wrong, status in [({"name": "nothing"}, 404), ({"nam": "checkpoint"}, 400), ([], 400)]:
            assert agent.request("POST", "/api/v1/fire", wrong, "control.sock").status == status
        (audit,) = agent.state_dir.rglob("calls.jsonl")
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        ways = [line["by"]["via"] for line in lines if line["event"] == "fired"]
        assert ways == ["read.sock", "control.sock", "http"]


def test_everyone_may_read_of_calls_of_what_everyone_may_read(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    with ranks(called, agent, 2):
        # A call to the process is visible only to its user; one to a publication for all is visible
        # to everyone, but not its payload.
        agent.ask("call", "fire", "checkpoint", "--payload", "private", "--wait", "10s")
        target = ("--target", "phase=solve", "--target", "rank=1", "--wait", "10s")
        answer = agent.ask("call", "fire", "report", "--payload", "secret", *target)
        assert (answer["matched"], answer["acknowledged"]) == (1, 1)
        assert "meant" in agent.error("call", "fire", "report", "--target", "phase=io")
        sql = "SELECT scope, name, user, payload, payload_bytes, matched, state FROM calls ORDER BY id"
        own = eventually(lambda: [r for r in agent.sql(sql) if r["state"] == "acknowledged"][1:], "both are known")
        assert [(row["name"], row["payload"]) for row in own] == [("report", "secret")]

        def of_all() -> list[dict[str, Any]]:
            rows = agent.request("POST", "/api/v1/sql", {"sql": sql}).json
            return [row for row in rows if row["state"] == "acknowledged"]

        (row,) = eventually(of_all, "the page sees it")
        assert (row["scope"], row["name"], row["payload"], row["payload_bytes"]) == ("all", "report", None, 6)
        assert row["matched"] == 1
        for stream, count in (("fired", 1), ("acked", 1)):
            body = {"sql": f"SELECT count(*) AS n FROM app_call_{stream}_id WHERE name = 'report'"}
            eventually(
                lambda b=body, n=count: agent.request("POST", "/api/v1/sql", b).json == [{"n": n}],
                "its streams are for all",
            )
        listed = agent.ask("call", "list")
        assert [c["payload"] for c in listed["calls"] if c["name"] == "report"] == ["secret"]
        assert {t["publication"] for t in listed["handlers"] if t["name"] == "report"} == {"open"}


def test_a_rule_calls_and_is_explained(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    with ranks(called, agent, 1) as programs:
        sql = "CREATE RULE full WHEN latest('memory.total.bytes') > 0 CALL 'checkpoint' PAYLOAD 'full'"
        assert agent.ask("rule", "create", sql)["name"] == "full"
        eventually(lambda: any(line.endswith(" full") for line in programs[0].said()), "the rule has called")
        eventually(lambda: [c for c in calls(agent) if c["via"] == "rule full"], "it is written down")
        (rule,) = eventually(lambda: [r for r in agent.ask("rule", "list") if r["fired"] == 1], "it has fired")
        assert (rule["call"], rule["holding"]) == ("checkpoint", 1)
        assert agent.ask("rule", "explain", "full")["sql"] == sql
        assert sql in agent.out("rule", "explain", "full")
        assert "there are full" in agent.error("rule", "explain", "ful")
        agent.out("rule", "drop", "full")
        assert agent.sql("SELECT * FROM rules") == []


def test_the_older_words_do_the_same(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    with ranks(called, agent, 1) as programs:
        assert agent.ask("trigger", "fire", "checkpoint", "--wait", "10s")["acknowledged"] == 1
        assert agent.ask("trigger", "list")["triggers"] == agent.ask("call", "list")["handlers"]
        older = eventually(lambda: agent.sql("SELECT id, name FROM triggers"), "the call is known")
        assert older == agent.sql("SELECT id, name FROM calls")
        sql = "CREATE TRIGGER full WHEN latest('memory.total.bytes') > 0 FIRE 'checkpoint' PAYLOAD 'full'"
        assert agent.ask("trigger", "create", sql)["name"] == "full"
        eventually(lambda: any(line.endswith(" full") for line in programs[0].said()), "it has called")
        for listed in (
            agent.ask("trigger", "declared"),
            agent.request("GET", "/api/v1/triggers").json,
            agent.sql("SELECT * FROM declared_triggers"),
        ):
            assert [one["sql"] for one in listed] == [sql]
        agent.out("trigger", "drop", "full")
        assert agent.ask("rule", "list") == []


def test_a_program_that_is_killed_is_gone(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    with ranks(called, agent, 2) as programs:
        programs[0].process.send_signal(signal.SIGSTOP)
        answer = agent.ask("call", "fire", "checkpoint")
        assert answer["matched"] == 2
        eventually(lambda: [c for c in calls(agent) if c["acknowledged"] == 1], "the other has answered")
        assert calls(agent)[0]["state"] == "fired"
        programs[0].process.kill()
        programs[0].process.wait()
        (row,) = eventually(lambda: [c for c in calls(agent) if c["state"] == "gone"], "it is gone")
        assert (row["acknowledged"], row["gone"]) == (1, 1)


def test_a_call_outlives_an_agent_that_is_killed(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    with ranks(called, agent, 1) as programs:
        for round_ in range(3):
            programs[0].process.send_signal(signal.SIGSTOP)
            number = agent.ask("call", "fire", "checkpoint", "--payload", f"round {round_}")["id"].split(":")[1]
            assert int(number) == round_ + 1
            agent.stop(signal.SIGKILL)
            programs[0].process.send_signal(signal.SIGCONT)
            eventually(lambda n=number, r=round_: f"call {n} round {r}" in programs[0].said(), "it is handled")
            agent.start()
            eventually(
                lambda n=number: [c for c in calls(agent) if c["id"] == int(n) and c["state"] == "acknowledged"],
                "the next agent hears of it",
            )
            eventually(lambda: len(handlers(agent)) == 1, "the program can be called")


def test_programs_that_never_look_are_told_of(start: Start, called: Path) -> None:
    agent = start(config=QUICK)
    with ranks(called, agent, 1) as programs:
        programs[0].process.send_signal(signal.SIGSTOP)
        body = {"name": "checkpoint", "expires_s": 3}
        answers = [agent.request("POST", "/api/v1/fire", body, "control.sock") for _ in range(300)]
        assert [a.status for a in answers[:256]] == [200] * 256
        assert {a.status for a in answers[256:]} <= {200, 503}
        eventually(lambda: [c for c in calls(agent) if c["state"] == "expired"], "calls expire")
        time.sleep(3)
        assert agent.request("POST", "/api/v1/fire", body, "control.sock").status == 200
        programs[0].process.send_signal(signal.SIGCONT)
        eventually(lambda: any(line.startswith("call ") for line in programs[0].said()), "it goes on")


def test_python_calls_and_is_called(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = start(config=QUICK)
    monkeypatch.setenv("BAROGRAPH_RUN_DIR", str(agent.run_dir))
    seen: list[object] = []
    publication = barograph.publication("callable", {"residual": "1"}, labels={"phase": "solve"}, readers="all")
    publication.on("python.checkpoint", lambda call: seen.append(call.payload))
    publication.put(residual=1.0)
    publication.frame()
    named = "python.checkpoint"
    eventually(
        lambda: [row for row in agent.ask("call", "list")["handlers"] if row["name"] == named], "it can be called"
    )
    # A call matches a label that only the publication has, and none that it lacks.
    with pytest.raises(barograph.Error):
        barograph.fire(named, target={"pid": str(os.getpid()), "phase": "io"})
    barograph.fire(named, {"level": 2}, target={"pid": str(os.getpid()), "phase": "solve"})

    def handled() -> bool:
        publication.poll()
        return seen == [{"level": 2}]

    eventually(handled, "the callback has run")
    (call,) = eventually(lambda: [c for c in calls(agent) if c["state"] == "acknowledged"], "it is answered")
    assert (json.loads(call["payload"]), call["by_user"]) == ({"level": 2}, os.getuid())
