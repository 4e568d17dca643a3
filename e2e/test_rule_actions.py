"""What rules do beside running a program for each event: posting, acting at set times, on conditions over
streams, and at a bounded rate; and the examples that remove and move files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, ROOT, Agent, eventually

Start = Callable[..., Agent]

EXAMPLE = ROOT / "examples" / "rules"
DAY = 86_400


class Receiver:
    """A server that keeps what is posted, and answers with these codes, the last one for ever."""

    def __init__(self, codes: list[int]) -> None:
        self.posts: list[tuple[str, str, dict[str, Any]]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                code = codes[min(len(receiver.posts), len(codes) - 1)]
                receiver.posts.append((self.path, self.headers["Idempotency-Key"], body))
                self.send_response(code)
                self.send_header("Content-Length", "0")
                if code == 503:
                    self.send_header("Retry-After", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver([503, 200])
    yield made
    made.server.shutdown()


def watched(agent: Agent, folder: Path) -> Path:
    tree = folder / "tree"
    tree.mkdir(exist_ok=True)
    agent.out("event", "add", tree, "--name", "tree")
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")
    return tree


def states(agent: Agent, rule: str) -> list[str]:
    return [str(row["state"]) for row in agent.rows(f"SELECT state FROM actions WHERE rule = '{rule}' ORDER BY id")]


def test_a_post_is_repeated_until_it_is_taken(start: Start, tmp_path: Path, receiver: Receiver) -> None:
    agent = start(config=QUICK + f"[action]\nwebhook_hosts = ['{receiver.host}']\n")
    tree = watched(agent, tmp_path)
    refused = agent.error("rule", "create", "CREATE RULE r ON EVENT create THEN POST 'http://other.example/x'")
    assert "webhook_hosts" in refused and "other.example" in refused
    body = '{{"text": "{name} has {size} bytes"}}'
    assert "JSON" in agent.error("rule", "create", f"CREATE RULE r ON EVENT create THEN POST 'http://{receiver.host}/' BODY '{{{{x: 1}}}}'")
    made = agent.ask("rule", "create", f"CREATE RULE told ON EVENT close_write THEN POST 'http://{receiver.host}/hook?of={{name}}' BODY '{body}'")
    assert made["call"] == f"post http://{receiver.host}/hook?of={{name}}"
    (tree / 'a "b" & c').write_text("123")
    eventually(lambda: states(agent, "told") == ["done"], "it is taken")
    assert [path for path, _, _ in receiver.posts] == ["/hook?of=a%20%22b%22%20%26%20c"] * 2
    assert len({key for _, key, _ in receiver.posts}) == 1, "a repetition has the same key"
    assert receiver.posts[1][2] == {"text": 'a "b" & c has 3 bytes'}
    agent.out("rule", "drop", "told")
    agent.out("rule", "create", f"CREATE RULE all ON EVENT close_write THEN POST 'http://{receiver.host}/all'")
    (tree / "d").write_text("1234")
    eventually(lambda: states(agent, "all") == ["done"], "it is taken")
    posted = receiver.posts[-1][2]
    assert (posted["path"], posted["size"], posted["rule"], posted["job"]) == (str(tree / "d"), 4, "all", None)
    assert posted["key"] == receiver.posts[-1][1]
    rehearsed = agent.ask("rule", "dry-run", "all")
    assert rehearsed["shown"][-1]["argv"][:2] == ["POST", f"http://{receiver.host}/all"]


def test_times_are_kept_over_a_restart(start: Start, tmp_path: Path) -> None:
    agent, log = start(config=QUICK), tmp_path / "log"
    note = tmp_path / "note"
    note.write_text("#!/bin/sh\nprintf '%s %s\\n' \"$BAROGRAPH_INDEX\" \"$BAROGRAPH_KIND\" >> \"$1\"\n")
    note.chmod(0o755)
    agent.out("rule", "create", f"CREATE RULE tick ON SCHEDULE EVERY '2 s' THEN RUN '{note}' '{log}'")
    agent.out("rule", "create", f"CREATE RULE night ON SCHEDULE AT '02:30' THEN RUN '{note}' '{log}.night'")
    lines = lambda: log.read_text().splitlines() if log.exists() else []  # noqa: E731
    eventually(lambda: len(lines()) >= 2, "two times")
    agent.stop(signal.SIGKILL)
    time.sleep(5)
    before, back = {int(line.split()[0]) for line in lines()}, int(time.time())
    agent.start()
    eventually(lambda: max(int(line.split()[0]) for line in lines()) > back + 3, "further times")
    seen = [int(line.split()[0]) for line in lines()]
    assert {line.split()[1] for line in lines()} == {"schedule"}
    assert all(second % 2 == 0 for second in seen) and len(set(seen)) >= len(seen) - 1, seen
    assert len({second for second in seen if second <= back} - before) <= 1, "of the times when it was away, the latest alone"
    assert not Path(f"{log}.night").exists()
    rehearsed = agent.ask("rule", "dry-run", "tick")["times"]
    assert [(a["ts"] - b["ts"]) / 1e9 for a, b in zip(rehearsed, rehearsed[1:], strict=False)] == [2.0] * 4
    assert len(agent.ask("rule", "dry-run", "night", "--limit", 3)["times"]) == 3


def test_a_rate_bounds_what_is_started(start: Start, tmp_path: Path) -> None:
    rule = "CREATE RULE slow ON EVENT create THEN RUN '/bin/true' RATE 2 PER '1 h'"
    agent = start(config=f'rules = ["{rule}"]\n' + QUICK)
    tree = watched(agent, tmp_path)
    assert [row["name"] for row in agent.ask("rule", "list")] == ["slow"], "it is in the configuration"
    for number in range(5):
        (tree / f"f{number}").touch()
    eventually(lambda: states(agent, "slow") == ["done"] * 2 + ["waiting"] * 3, "two are started, and three wait")
    time.sleep(2)
    assert states(agent, "slow") == ["done"] * 2 + ["waiting"] * 3


def test_a_rule_that_fires_too_often_is_stopped(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    sql = "CREATE OR REPLACE RULE loop ON EVENT create THEN RUN '/bin/true' BREAK 3 PER '1 h'"
    agent.out("rule", "create", sql)
    for number in range(7):
        (tree / f"f{number}").touch()
    asked = "SELECT state, fired, missed, reason FROM rules WHERE name = 'loop'"
    (rule,) = eventually(lambda: (rows := agent.rows(asked)) and rows[0]["missed"] == 4 and rows, "it is stopped")
    assert (rule["state"], rule["fired"]) == ("failed", 3) and "too often" in rule["reason"]
    assert "too often" in agent.out("doctor")
    eventually(lambda: states(agent, "loop") == ["done"] * 3, "what it had begun is done")
    agent.out("rule", "create", sql)
    (tree / "again").touch()
    eventually(lambda: states(agent, "loop") == ["done"] * 4, "it acts again")


def test_a_condition_over_streams_runs_a_program(start: Start, tmp_path: Path, receiver: Receiver) -> None:
    agent, mark = start(config=QUICK + f"[action]\nwebhook_hosts = ['{receiver.host}']\n"), tmp_path / "mark"
    agent.out(
        "rule", "create", f"CREATE RULE full WHEN latest('filesystem.total.bytes{{mount=/}}') > 0 THEN RUN '/bin/mkdir' '-p' '{mark}{{mount}}root'"
    )
    eventually(lambda: (Path(f"{mark}/root")).is_dir(), "the program was run")
    (row,) = eventually(lambda: agent.rows("SELECT * FROM actions WHERE state = 'done'"), "the action")
    assert row["rule"] == "full" and row["source"].startswith("condition:{") and "mount=/" in row["source"]
    assert agent.rows("SELECT call, fired FROM rules WHERE name = 'full'") == [{"call": f"run /bin/mkdir -p {mark}{{mount}}root", "fired": 1}]
    refused = agent.error("rule", "create", "CREATE RULE r WHEN latest('memory.total.bytes') > 0 THEN POST 'http://other.example/'")
    assert "webhook_hosts" in refused
    agent.out("rule", "create", f"CREATE RULE told WHEN latest('memory.total.bytes') > 0 THEN POST 'http://{receiver.host}/m'")
    eventually(lambda: states(agent, "told") == ["done"], "it is taken")
    posted = receiver.posts[-1][2]
    assert posted["rule"] == "told" and "memory.total.bytes" in posted["explanation"]


def aged(path: Path, days: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name)
    when = time.time() - days * DAY - 60
    os.utime(path, (when, when))
    return path


def test_old_files_are_purged_and_listed_before(start: Start, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    old = [aged(scratch / name, 31) for name in ("a b", "deep/x\ny", "-rf")]
    new = [aged(scratch / name, 29) for name in ("c", "deep/d")]
    (scratch / "link").symlink_to(old[0])
    listed = subprocess.run([EXAMPLE / "purge.sh", "--dry-run", scratch, "30"], capture_output=True, text=True, check=True)
    assert sorted(f"\n{listed.stdout}".rstrip("\n").split("\n./")[1:]) == ["-rf", "a b", "deep/x\ny"]
    assert all(path.exists() for path in old)
    agent = start(config=QUICK)
    agent.out("rule", "create", f"CREATE RULE purge ON SCHEDULE EVERY '1 s' THEN RUN '{EXAMPLE}/purge.sh' '{scratch}' '30' CONCURRENCY 1")
    eventually(lambda: not any(path.exists() for path in old), "the old files are gone")
    assert all(path.exists() for path in new) and (scratch / "link").is_symlink()
    done = eventually(lambda: agent.rows("SELECT id FROM actions WHERE state = 'done' ORDER BY id LIMIT 1"), "the action")
    assert "a b" in agent.ask("action", "show", done[0]["id"])["output"]


@pytest.fixture
def tier() -> Iterator[Path]:
    """A file system of 16 MiB of its own."""
    mount = Path(tempfile.mkdtemp(prefix="tier-"))
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", mount], capture_output=True)
    if made.returncode != 0:
        mount.rmdir()
        pytest.skip(f"mounting a tmpfs is not permitted here: {made.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)
    mount.rmdir()


def test_a_condition_reads_forecasts(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    of = "filesystem.available.bytes{mount=/}"
    agent.out("rule", "create", f"CREATE RULE soon WHEN forecast('{of}', '1 s') > 0 THEN RUN '/bin/mkdir' '{tmp_path}/soon'")
    agent.out("rule", "create", f"CREATE RULE odd WHEN forecast('memory.total.bytes', '1 s') > 0 THEN RUN '/bin/mkdir' '{tmp_path}/odd'")
    eventually(lambda: (tmp_path / "soon").is_dir(), "what is expected is more than 0")
    (row,) = agent.rows("SELECT state, reason FROM rules WHERE name = 'odd'")
    assert row["state"] == "waiting" and "[forecast] streams" in row["reason"], row
    assert not (tmp_path / "odd").exists()


def test_a_tier_that_fills_is_drained_before_it_is_full(start: Start, tmp_path: Path, tier: Path) -> None:
    agent, archive = start(config=QUICK), tmp_path / "archive"
    of = f"filesystem.%s.bytes{{mount={tier}}}"
    free, total = of % "available", of % "total"
    agent.out(
        "rule",
        "create",
        f"""CREATE RULE drain WHEN latest('{free}') < 0.6 * latest('{total}')
                AND latest('{free}') + 3600 * rate('{free}', '10 s') < 0.1 * latest('{total}')
            THEN RUN '{EXAMPLE}/drain.sh' '{{mount}}' '{archive}' '70' CONCURRENCY 1""",
    )
    for number in range(9):
        (tier / f"f{number}").write_bytes(bytes([number]) * (1 << 20))
        time.sleep(0.3)
    eventually(lambda: (archive / "f0").exists() and os.statvfs(tier).f_bavail * 100 >= os.statvfs(tier).f_blocks * 55, "it is drained")
    eventually(lambda: set(states(agent, "drain")) == {"done"}, "what was begun has ended")
    moved, left = ({path.name for path in place.iterdir()} for place in (archive, tier))
    assert moved | left == {f"f{number}" for number in range(9)} and not moved & left
    assert "f8" in left, "the newest stays"
    assert all((archive / name).read_bytes() == bytes([int(name[1])]) * (1 << 20) for name in moved)
