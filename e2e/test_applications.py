"""Applications that publish: real C programs with a real agent; both sides are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, ROOT, Agent, baro, environment, eventually

Start = Callable[..., Agent]
LIBRARY = Path(os.environ.get("BARO_LIB_DIR", ROOT / "target" / "debug"))
INCLUDE = ROOT / "crates" / "libbaro" / "include"

# Puts ten values and a frame again and again, and prints after each commit how many there are.
COUNTING = r"""
#include <baro.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **arguments)
{
    long frames = atol(arguments[1]), pause_us = atol(arguments[2]);
    int readers = count > 3 ? atoi(arguments[3]) : BARO_READERS_OWNER;
    baro_t *b = baro_open("counting", NULL);
    if (!baro_is_enabled(b)) { fprintf(stderr, "%s\n", baro_error()); return 1; }
    baro_publication_t p = baro_publication(b, "counting", readers);
    baro_value_t v = baro_value(p, "number", BARO_INT, "count", BARO_GAUGE, "counts on");
    long n = 0;
    for (long frame = 1; frame <= frames; frame++) {
        for (int i = 0; i < 10; i++) baro_put_i64(v, ++n);
        baro_frame(p, (uint64_t)frame);
        dprintf(1, "%ld\n", n);
        if (pause_us) usleep((useconds_t)pause_us);
    }
    if (count > 4) pause();
    baro_close(b);
    return 0;
}
"""


@pytest.fixture(scope="module")
def counting() -> Iterator[Path]:
    """The program, compiled with the header and the library as by a user, in a place that other
    users reach."""
    with tempfile.TemporaryDirectory(prefix="baro-c-") as folder:
        Path(folder).chmod(0o755)
        yield compiled(Path(folder))


def compiled(folder: Path) -> Path:
    """Compiles the program in this folder."""
    source, program = folder / "counting.c", folder / "counting"
    source.write_text(COUNTING)
    # The library has the name that `make install` gives it.
    library = folder / "lib"
    library.mkdir()
    library.chmod(0o755)
    shutil.copy(LIBRARY / "libbaro.so", library / "libbaro.so.1")
    (library / "libbaro.so").symlink_to("libbaro.so.1")
    command = ["cc", "-O2", "-Wall", "-Werror", f"-I{INCLUDE}", source, "-o", program, f"-L{library}", "-lbaro"]
    subprocess.run([*map(str, command), f"-Wl,-rpath,{library}"], check=True)
    return program


def run(program: Path, agent: Agent, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    """Runs the program beside an agent."""
    return subprocess.Popen(
        [str(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(BAROGRAPH_RUN_DIR=str(agent.run_dir)),
        **more,
    )


def number(agent: Agent, sql: str) -> int:
    """The only number of a query; 0 if there is no table. A stream that has just ended is in no
    segment, and may not be in the log yet."""
    rows = agent.rows(sql)
    return list(rows[0].values())[0] if rows else 0


ALL = "SELECT count(*) AS n FROM app_counting_number"
DISTINCT = "SELECT count(DISTINCT value) AS n FROM app_counting_number"


def published(agent: Agent) -> bool:
    return bool(agent.sql("SELECT name FROM tables WHERE name = 'app_counting_number'"))


def test_every_value_is_in_sql_with_its_frame(start: Start, counting: Path) -> None:
    agent = start(config=QUICK)
    before = time.time_ns()
    with run(counting, agent, 500, 0) as program:
        assert program.wait(30) == 0
    eventually(lambda: published(agent) and number(agent, ALL) == 5_000, "5000 values")
    rows = agent.sql("SELECT min(value) AS a, max(value) AS b, min(ts) AS t, max(ts) AS u FROM app_counting_number")
    assert (rows[0]["a"], rows[0]["b"]) == (1, 5_000)
    assert before - 10**9 < rows[0]["t"] <= rows[0]["u"] < time.time_ns() + 10**9
    frames = agent.sql("SELECT frame, number FROM frames('counting') ORDER BY frame")
    assert len(frames) == 500
    assert all(row["number"] == 10 * row["frame"] for row in frames)
    # Also joined with the system's values: processes that were read at the same time.
    joined = agent.sql(
        "SELECT f.ts, m.value FROM frames('counting') f JOIN asof('memory.available.bytes', f.ts) m LIMIT 5"
    )
    assert len(joined) == 5 and all(row["value"] > 0 for row in joined)


def test_what_was_committed_before_a_kill_is_there(start: Start, counting: Path) -> None:
    agent = start(config=QUICK)
    for round_ in range(5):
        with run(counting, agent, 1_000_000, 50) as program:
            assert program.stdout
            # A program that is killed before it has committed anything has nothing to be taken in.
            said = [int(program.stdout.readline())]
            time.sleep(0.05 + 0.03 * round_)
            program.send_signal(signal.SIGKILL)
            said += [int(line) for line in program.stdout.read().split()]
        committed = said[-1]
        eventually(
            # A stream may be there before its first value.
            lambda least=committed: published(agent)
            and (number(agent, "SELECT max(value) FROM app_counting_number") or 0) >= least,
            f"{committed} values",
        )
        eventually(lambda: not list((agent.run_dir / "ingest").iterdir()), "the file of the dead is removed")


# Values that a stream has more than once, although the program puts each once.
TWICE = """SELECT user, application, value, count(*) AS times FROM app_counting_number
    GROUP BY user, application, value HAVING times > 1 ORDER BY value LIMIT 10"""
# The greatest count over all lives of the agent, each of which counts from 0.
LOST = "SELECT coalesce(max(value), 0) AS n FROM app_process_lost_count"


@pytest.mark.parametrize(
    "archive", ["", "[archive]\nsegment_seconds_max = 1\n"], ids=["one log", "logs that are sealed meanwhile"]
)
def test_an_agent_that_is_killed_takes_in_each_value_once(start: Start, counting: Path, archive: str) -> None:
    # The rings have room for all 44,000 records: whatever the agent misses, nothing is overwritten.
    agent, frames, kills = start(config=archive + QUICK), 4_000, 0
    with run(counting, agent, frames, 1_000) as program:
        while program.poll() is None and kills < 8:
            # A different moment each time: in a group commit, before the tails, between two rounds.
            time.sleep(0.2 + 0.0137 * kills)
            agent.stop(signal.SIGKILL)
            kills += 1
            agent.start()
        assert program.wait(60) == 0
        assert program.stdout
        put = int(program.stdout.read().split()[-1])
    assert put == 10 * frames and kills >= 3
    all_there = "all that is not lost"
    eventually(lambda: published(agent) and number(agent, DISTINCT) == put - number(agent, LOST), all_there)
    assert agent.sql(TWICE) == []
    assert number(agent, ALL) == put - number(agent, LOST)
    assert number(agent, LOST) == 0
    ended = "SELECT count(*) AS n FROM app_counting_frame"
    assert number(agent, ended) == number(agent, ended.replace("(*)", "(DISTINCT value)")) == frames
    eventually(lambda: not list((agent.run_dir / "ingest").iterdir()), "the file of the dead is removed")
    # Once more, with nothing left to read.
    agent.restart(signal.SIGKILL)
    eventually(lambda: published(agent) and number(agent, DISTINCT) == put, "it is there after another kill")
    assert number(agent, ALL) == put


def test_what_was_not_made_is_removed(start: Start) -> None:
    agent = start(config=QUICK)
    ingest = agent.run_dir / "ingest"
    old, young = ingest / f"{1:032x}.new", ingest / f"{2:032x}.new"
    for path in (old, young):
        path.write_bytes(bytes(4_096))
    os.utime(old, (time.time() - 120,) * 2)
    eventually(lambda: not old.exists(), "what nobody will finish is removed")
    eventually(lambda: agent.value("agent.ingest.abandoned.count") == 1, "and counted")
    assert young.exists()


# Processes of a few milliseconds, one after another, eight at a time; 10,000 in nightly runs.
LIVES = int(os.environ.get("BARO_SHORT_LIVES", "200"))
# What half of them may add to the agent's own memory: allocators keep a little.
GROWTH_BYTES_MAX = 16 << 20


def held(agent: Agent) -> tuple[int, int]:
    """File descriptors and private memory in bytes of the agent."""
    assert agent.process
    proc = Path("/proc") / str(agent.process.pid)
    (kilobytes,) = (line.split()[1] for line in (proc / "status").read_text().splitlines() if "RssAnon" in line)
    return len(list((proc / "fd").iterdir())), int(kilobytes) * 1_024


def live(agent: Agent, counting: Path, lives: int) -> None:
    """Runs `lives` processes to their end, eight at a time."""
    for _ in range(0, lives, 8):
        programs = [run(counting, agent, 2, 0) for _ in range(8)]
        for program in programs:
            with program:
                assert program.wait(30) == 0


def settled(agent: Agent, values: int) -> tuple[int, int]:
    """What the agent holds after all processes so far have been taken in and forgotten."""
    eventually(lambda: published(agent) and number(agent, ALL) == values, "all values")
    eventually(lambda: not list((agent.run_dir / "ingest").iterdir()), "no files")
    living = "SELECT count(*) AS n FROM streams WHERE name LIKE 'app.%'"
    eventually(lambda: number(agent, living) == 0, "no living streams")
    # The list of publications is written once a second, when their streams have already ended.
    eventually(lambda: agent.sql("SELECT name FROM publications") == [], "no publication is listed")
    assert number(agent, LOST) == 0
    return held(agent)


def test_short_lives_leave_nothing(start: Start, counting: Path) -> None:
    agent = start(config=QUICK)
    at_first = held(agent)
    half = LIVES // 16 * 8
    # Both measurements are in the same state: nothing is on its way, and the same queries were
    # answered.
    live(agent, counting, half)
    halfway = settled(agent, half * 20)
    live(agent, counting, half)
    at_last = settled(agent, half * 40)
    print(f"{2 * half} lives: descriptors and own bytes at first {at_first}, halfway {halfway}, at last {at_last}")
    # Some more for the scope's archive, and for files that are just being closed.
    eventually(lambda: held(agent)[0] <= halfway[0] + 8, "no more descriptors than halfway")
    assert at_last[1] - halfway[1] < GROWTH_BYTES_MAX


def test_publications_are_listed(start: Start, counting: Path) -> None:
    agent = start(config=QUICK)
    with run(counting, agent, 10, 0, 2, "stay") as program:
        try:
            rows = eventually(
                lambda: agent.sql("SELECT * FROM publications WHERE frame = 10"), "the publication is listed"
            )
            (row,) = rows
            assert (row["name"], row["application"], row["pid"]) == ("counting", "counting", program.pid)
            assert row["lost"] == 0 and row["scope"] == "all"
            labels = row["labels"] if isinstance(row["labels"], dict) else json.loads(row["labels"])
            assert labels["application"] == "counting"
        finally:
            program.kill()


def test_without_an_agent_nothing_happens_and_a_late_one_hears(tmp_path: Path, counting: Path) -> None:
    agent = Agent(tmp_path)
    # The directory exists, as after an agent that was stopped.
    (agent.run_dir / "ingest").mkdir(parents=True)
    with run(counting, agent, 100, 0) as program:
        assert program.wait(30) == 0
    agent.start()
    try:
        eventually(lambda: published(agent) and number(agent, ALL) == 1_000, "what came before the agent")
    finally:
        agent.stop()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that other users can reach."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users")
def test_others_see_only_what_they_may(shared: Path, counting: Path) -> None:
    agent = Agent(shared, config='[applications]\nusers = "all"\n' + QUICK).start()
    eve, bob = 4_711, 4_712
    try:
        for readers, uid in ((0, eve), (2, bob)):
            with run(counting, agent, 10, 0, readers, user=uid, group=uid, extra_groups=[]) as program:
                assert program.wait(30) == 0
        eventually(lambda: published(agent) and number(agent, ALL) == 200, "root sees both")

        def seen(uid: int) -> int:
            found = baro(
                "sql", "--json", "--run-dir", agent.run_dir, ALL, user=uid, group=uid, extra_groups=[]
            )
            assert found.returncode == 0, found.stderr
            return int(json.loads(found.stdout)[0]["n"])

        assert seen(eve) == 200, "her own, and what is for all"
        assert seen(bob) == 100, "what is for all, not hers"
        # Over TCP everyone on the node is one reader. The server looks for new scopes once a
        # second.
        answer = eventually(lambda: (got := agent.post_sql(ALL)).status == 200 and got, "the table is there")
        assert answer.json[0]["n"] == 100
    finally:
        agent.stop()


def test_strangers_files_harm_nobody(start: Start, counting: Path) -> None:
    agent = start(config=QUICK)
    ingest = agent.run_dir / "ingest"
    (ingest / "a.ingest").write_bytes(b"")
    (ingest / "b.ingest").write_bytes(os.urandom(100_000))
    (ingest / "c.ingest").symlink_to("/etc/passwd")
    os.mkfifo(ingest / "d.ingest")
    (ingest / "e.ingest").mkdir()
    with run(counting, agent, 100, 0) as program:
        assert program.wait(30) == 0
    eventually(lambda: published(agent) and number(agent, ALL) == 1_000, "all values")
    # A file that is cut short while it is read.
    with run(counting, agent, 1_000_000, 100) as program:
        time.sleep(0.2)
        for path in ingest.glob("*.ingest"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size > 1_000_000:
                os.truncate(path, 4_096)
        time.sleep(0.5)
        program.kill()
    assert agent.get("/healthz").status == 200
    with run(counting, agent, 100, 0) as program:
        assert program.wait(30) == 0
    eventually(lambda: number(agent, "SELECT count(*) AS n FROM app_counting_number WHERE value = 1000") >= 2, "it goes on")
