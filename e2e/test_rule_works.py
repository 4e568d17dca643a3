"""What rules have done beyond programs and posts: mail, calls into programs, containers (a stand-in for the
command), and actions on other nodes, also over the death of either."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import QUICK, Agent, eventually
from test_calls import called, ranks
from test_cluster import free_address
from test_rule_actions import states, watched

__all__ = ["called"]

Start = Callable[..., Agent]


class MailStandIn:
    """A server that takes mail by SMTP, without encryption, and refuses the first one for now."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        self.busy = 1
        stand_in = self

        class Handler(socketserver.StreamRequestHandler):
            def say(self, text: str) -> None:
                self.wfile.write(text.encode() + b"\r\n")

            def handle(self) -> None:
                self.say("220 mail.example ready")
                for line in self.rfile:
                    verb = line.decode(errors="replace").split()[0].upper() if line.strip() else ""
                    if verb == "DATA":
                        self.take()
                    elif verb == "QUIT":
                        self.say("221 bye")
                        return
                    elif verb == "RCPT" and stand_in.busy > 0:
                        stand_in.busy -= 1
                        self.say("451 try again later")
                    else:
                        self.say("250 ok")

            def take(self) -> None:
                self.say("354 go on")
                lines: list[str] = []
                for line in self.rfile:
                    if line == b".\r\n":
                        break
                    lines.append(line.decode(errors="replace").rstrip("\r\n"))
                stand_in.mails.append("\n".join(lines))
                self.say("250 taken as 42")

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"smtp://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def mail() -> Iterator[MailStandIn]:
    made = MailStandIn()
    yield made
    made.server.shutdown()


def test_mail_is_sent_for_events_and_conditions(start: Start, tmp_path: Path, mail: MailStandIn) -> None:
    config = f"[action.mail]\nserver = '{mail.address}'\nfrom = 'baro@site.example'\nto = ['ops@site.example']\n"
    agent = start(config=QUICK + config)
    tree = watched(agent, tmp_path)
    refused = agent.error("rule", "create", "CREATE RULE r ON EVENT create THEN MAIL 'x@site.example' SUBJECT 'x'")
    assert "x@site.example is not among the allowed receivers" in refused and "[action.mail]" in refused
    agent.out("rule", "create", "CREATE RULE told ON EVENT close_write THEN MAIL 'ops@site.example' SUBJECT 'new: {name}' RETRY 3")
    (tree / "a\nBcc: x@y").write_text("12")
    eventually(lambda: states(agent, "told") == ["done"], "it is sent when the server takes it")
    (text,) = mail.mails
    head, _, body = text.partition("\n\n")
    assert "Subject: new: a Bcc: x@y" in head and "\nBcc:" not in head
    assert "To: ops@site.example" in head and "From: baro@site.example" in head and "Message-ID: <told." in head
    assert "size: 2" in body
    (shown,) = agent.rows("SELECT id, attempts FROM actions")
    assert shown["attempts"] == 2
    assert "42" in agent.ask("action", "show", shown["id"])["output"]
    sql = "CREATE RULE full WHEN latest('memory.total.bytes') > 1 THEN MAIL 'ops@site.example' SUBJECT 'memory'"
    agent.out("rule", "create", sql)
    eventually(lambda: len(mail.mails) == 2, "a condition sends mail")
    assert "rule: full" in mail.mails[1] and "explanation: " in mail.mails[1]


def test_events_call_programs(start: Start, tmp_path: Path, called: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    with ranks(called, agent, 2) as programs:
        agent.out("rule", "create", "CREATE RULE told ON EVENT create WHERE ext = 'go' THEN CALL 'checkpoint' PAYLOAD '\"{name}\"' TO 'rank=1'")
        agent.out("rule", "create", "CREATE RULE nobody ON EVENT create WHERE ext = 'no' THEN CALL 'absent' RETRY 0")
        (tree / "x.go").touch()
        (tree / "x.no").touch()
        eventually(lambda: states(agent, "told") == ["done"], "the call is made")
        eventually(lambda: any(line.endswith(" x.go") for line in programs[1].said()), "the program is told")
        assert not any(line.endswith(" x.go") for line in programs[0].said())
        eventually(lambda: states(agent, "nobody") == ["dead"], "nobody has it")
        (row,) = agent.rows("SELECT reason FROM actions WHERE rule = 'nobody'")
        assert "absent" in row["reason"]
        (knob,) = agent.sql("SELECT publication, name FROM knobs LIMIT 1")
        name = f"{knob['publication']}.{knob['name']}"
        agent.out("rule", "create", f"CREATE RULE turned ON EVENT create WHERE ext = 'set' THEN SET '{name}' TO '0.5' IN 'rank=0'")
        (tree / "x.set").touch()
        eventually(lambda: states(agent, "turned") == ["done"], "the knob is set")
        eventually(lambda: agent.sql("SELECT 1 FROM knobs WHERE value = 0.5"), "the program has it")


def test_programs_run_in_containers(start: Start, tmp_path: Path) -> None:
    """The command is a stand-in that keeps its words and runs the program: this machine has no runtime."""
    log, runtime = tmp_path / "log", tmp_path / "podman"
    runtime.write_text(
        "#!/bin/sh\n"
        f"echo \"$*\" >> {log}\n"
        '[ "$1" = run ] || exit 0\n'
        'while [ "$1" != image:1 ]; do shift; done; shift\n'
        'exec "$@"\n'
    )
    runtime.chmod(0o755)
    plain = start(config=QUICK)
    assert "container_runtime" in plain.error("rule", "create", "CREATE RULE r ON EVENT create THEN RUN IN 'image:1' '/bin/true'")
    plain.stop()
    agent = start(config=QUICK + f"[action]\ncontainer_runtime = '{runtime}'\n")
    tree = watched(agent, tmp_path)
    out = tmp_path / "out"
    agent.out("rule", "create", f"CREATE RULE boxed ON EVENT create WHERE ext = 'in' THEN RUN IN 'image:1' MOUNT '{tree}' '/bin/cp' '{{path}}' '{out}'")
    agent.out("rule", "create", "CREATE RULE long ON EVENT create WHERE ext = 'long' THEN RUN IN 'image:1' '/bin/sleep' '600' TIMEOUT '1 s' RETRY 0")
    (tree / "a.in").touch()
    eventually(lambda: states(agent, "boxed") == ["done"], "it ran")
    assert out.exists()
    (words,) = [line for line in log.read_text().splitlines() if line.startswith("run ")]
    assert f"--volume={tree}:{tree}:ro" in words and "--network=none" in words and "--env=BAROGRAPH_PATH" in words
    assert f"--user={os.geteuid()}:{os.getegid()}" in words
    (tree / "a.long").touch()
    eventually(lambda: states(agent, "long") == ["dead"], "it took too long")
    runs = [line for line in log.read_text().splitlines() if "sleep" in line]
    name = next(word for word in runs[0].split() if word.startswith("--name=")).removeprefix("--name=")
    assert log.read_text().splitlines()[-1] == f"rm --force {name}", "its container is ended too"


def note(path: Path) -> str:
    """A program that writes its words and its key down."""
    path.write_text('#!/bin/sh\nprintf \'%s %s\\n\' "$2" "$BAROGRAPH_KEY" >> "$1"\n')
    path.chmod(0o755)
    return str(path)


def test_actions_are_done_on_another_node(start: Start, tmp_path: Path) -> None:
    address = free_address()
    a = start("--node", "a", "--cluster", "rack", "--listen", address, config=QUICK)
    taking = QUICK + '[action]\naccept_from = ["a"]\n'
    b = start("--node", "b", "--cluster", "rack", "--listen", "127.0.0.1:0", "--peer", address, config=taking)
    tree, log = watched(a, tmp_path), tmp_path / "log"
    program = note(tmp_path / "note")
    a.out("rule", "create", f"CREATE RULE far ON EVENT create WHERE ext = 'b' THEN RUN '{program}' '{log}' '{{name}}' ON NODE 'b'")
    a.out("rule", "create", f"CREATE RULE near ON EVENT create WHERE ext = 'a' THEN RUN '{program}' '{log}.a' '{{name}}' ON NODE 'a'")
    (tree / "1.b").touch()
    (tree / "1.a").touch()
    eventually(lambda: log.exists() and states(a, "far") == ["done"], "it is done there")
    eventually(lambda: states(a, "near") == ["done"], "this node is one too")
    (row,) = eventually(lambda: b.rows("SELECT rule, source, state FROM actions WHERE state = 'done'"), "b has it")
    assert (row["rule"], row["source"]) == ("a/far", "a/tree")
    (identity,) = [line.split()[1] for line in log.read_text().splitlines()]
    assert identity.startswith("a%2Ffar."), "the key says where it comes from"
    # b is away, and a dies meanwhile.
    b.stop(signal.SIGKILL)
    made = [f"{number}.b" for number in range(2, 30)]
    for name in made:
        (tree / name).touch()
    eventually(lambda: len(states(a, "far")) == 1 + len(made), "all are taken in")
    a.stop(signal.SIGKILL)
    a.start()
    b.start()
    eventually(lambda: {"1.b", *made} <= {line.split()[0] for line in log.read_text().splitlines()}, "all are done", 120)
    eventually(lambda: set(states(a, "far")) == {"done"}, "a knows")
    keys = [line.split()[1] for line in log.read_text().splitlines()]
    assert len(set(keys)) == 1 + len(made), "each has one identity"
    # The other direction is not allowed.
    other = tmp_path / "other"
    other.mkdir()
    b.out("event", "add", other, "--name", "other")
    eventually(lambda: b.sql("SELECT 1 FROM watches WHERE name = 'other' AND state = 'live'"), "a live watch")
    b.out("rule", "create", "CREATE RULE back ON EVENT create THEN RUN '/bin/true' ON NODE 'a' RETRY 0")
    (other / "x").touch()
    eventually(lambda: states(b, "back") == ["dead"], "it is refused")
    (row,) = b.rows("SELECT reason FROM actions WHERE rule = 'back'")
    assert "accept_from" in row["reason"], json.dumps(row)


def test_marks_are_events_on_which_other_rules_act(start: Start, tmp_path: Path) -> None:
    agent, log = start(config=QUICK), tmp_path / "log"
    tree, program = watched(agent, tmp_path), note(tmp_path / "note")
    assert "no file to mark" in agent.error("rule", "create", "CREATE RULE r ON SCHEDULE EVERY '1 h' THEN MARK 'x'")
    agent.out("rule", "create", "CREATE RULE first ON EVENT close_write WHERE ext = 'tif' THEN MARK 'checked'")
    agent.out("rule", "create", f"CREATE RULE second ON EVENT mark WHERE mark = 'checked' THEN RUN '{program}' '{log}' '{{name}}'")
    agent.out("rule", "create", "CREATE RULE round ON EVENT mark WHERE mark IN ('checked', 'again') THEN MARK 'again'")
    for number in range(20):
        (tree / f"{number}.tif").write_text("x")
    eventually(lambda: states(agent, "second") == ["done"] * 20, "each mark has its action")
    assert {line.split()[0] for line in log.read_text().splitlines()} == {f"{number}.tif" for number in range(20)}
    (seen,) = agent.rows(f"SELECT kind, uid, size, detail FROM events WHERE source = 'marks' AND path = '{tree}/7.tif' AND detail LIKE 'mark=checked%'")
    assert (seen["kind"], seen["uid"], seen["size"]) == ("mark", os.geteuid(), 1)
    assert "rule=first key=first." in seen["detail"]
    asked = "SELECT fired, suppressed FROM rules WHERE name = 'round'"
    eventually(lambda: agent.rows(asked) == [{"fired": 20, "suppressed": 20}], "a rule does not go on from its own marks")
    # Marks go on over a kill, and so do their numbers.
    (before,) = agent.rows("SELECT max(idx) AS idx FROM events WHERE source = 'marks'")
    agent.stop(signal.SIGKILL)
    agent.start()
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE name = 'tree' AND state = 'live'"), "a live watch")
    (tree / "after.tif").write_text("x")
    eventually(lambda: len(states(agent, "second")) == 21, "and goes on")
    (after,) = agent.rows(f"SELECT min(idx) AS idx FROM events WHERE source = 'marks' AND path = '{tree}/after.tif'")
    assert after["idx"] > before["idx"]
