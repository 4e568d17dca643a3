"""Programs and commands that read streams of another node of the cluster from memory of this one."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import barograph
import pytest
from harness import BARO, Agent, environment, eventually
from test_applications import LIBRARY
from test_cluster import FREE, Start, cluster, peer
from test_examples import compile_with
from test_http import events

# For each line of its input, prints whether the node b is alive, a value of it, and its age.
READING = r"""
#include <baro.h>
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    char line[8];
    baro_node_t *node = baro_node_open(argv[argc - 1]);
    baro_node_t *other = baro_node_open_mirrored(node, "b");
    baro_stream_t *total = baro_stream_open(other, "memory.total.bytes");
    baro_node_close(node);
    while (fgets(line, sizeof line, stdin)) {
        double value = 0, again = 0;
        int64_t age = 0;
        int code = baro_latest(other, "memory.total.bytes", NULL, &value, &age);
        code += baro_stream_latest_f64(total, NULL, &again);
        if (code == BARO_NOTHING || code == 2 * BARO_NOTHING)
            printf("{\"alive\": 0, \"value\": null}\n"); /* the stream has just begun */
        else if (code != BARO_OK || value != again)
            printf("{\"error\": \"%s\"}\n", baro_error());
        else
            printf("{\"alive\": %d, \"value\": %.0f, \"age_ns\": %" PRId64 "}\n", baro_node_is_alive(other), value, age);
        fflush(stdout);
    }
    baro_stream_close(total);
    baro_node_close(other);
    return 0;
}
"""


class Program:
    """A C program that reads the node b as the agent of this run directory mirrors it."""

    def __init__(self, folder: Path, run_dir: Path) -> None:
        # The library with the name that `make install` gives it.
        shutil.copy(LIBRARY / "libbaro.so", folder / "libbaro.so.1")
        (folder / "libbaro.so").symlink_to("libbaro.so.1")
        source = folder / "reading.c"
        source.write_text(READING)
        reading = compile_with("cc", folder, source, folder / "reading", "-lbaro")
        self.process = subprocess.Popen(
            [reading, run_dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self) -> dict[str, int]:
        """What it reads now."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        read = json.loads(self.process.stdout.readline())
        assert "error" not in read, read
        return read


@pytest.fixture
def agents(start: Start) -> list[Agent]:
    """The agents a and b; a mirrors b."""
    _, agents = cluster(start, ["a", "b"])
    eventually(lambda: peer(agents[0], "b").get("samples", 0) > 0, "the mirror")
    return agents


@pytest.fixture
def program(agents: list[Agent], tmp_path: Path) -> Iterator[Program]:
    """The C program, at the node a."""
    program = Program(tmp_path, agents[0].run_dir)
    yield program
    assert program.process.stdin
    program.process.stdin.close()
    assert program.process.wait(timeout=30) == 0


def read_by_command(agent: Agent) -> dict[str, object]:
    """What `baro latest` of the node b shows."""
    [shown] = agent.ask("latest", "memory.total.bytes", "--node", "b")
    return shown


def test_programs_and_commands_read_another_node(agents: list[Agent], program: Program) -> None:
    a, b = agents
    observer = barograph.connect(a.run_dir)
    assert observer.nodes() == ["b"]
    other = observer.of_node("b")
    total = b.latest("memory.total.bytes")[0]["value"]
    stream = other.stream("memory.total.bytes")
    assert stream.latest().value == total and not stream.latest().stale
    assert other.stream(FREE).wait(30), "its samples come"
    assert next(other.watch(FREE, timeout=30)).name == FREE
    read = program.ask()
    assert read["alive"] == 1 and read["value"] == total and read["age_ns"] < 5e9
    shown = read_by_command(a)
    assert shown["value"] == total and shown["stale"] is False
    assert shown.keys() == a.latest("memory.total.bytes")[0].keys()
    assert b.names("memory.*") == {s["name"] for s in a.ask("streams", "memory.*", "--node", "b")}
    watched = a.out("watch", FREE, "--node", "b", "--count", "2").splitlines()
    assert len(watched) == 2 and all(FREE in line for line in watched)
    listed = a.get("/api/v1/streams?match=memory.*&node=b").json
    assert b.names("memory.*") == {s["name"] for s in listed}
    over_http = a.get("/api/v1/latest?match=memory.total.bytes&node=b").json
    assert [(value["value"], value["stale"]) for value in over_http] == [(total, False)]
    assert [s["node"] for s in a.get(f"/api/v1/history?match={FREE}&node=b").json] == ["b"]
    stream_of_b = events(a, "/api/v1/watch?match=memory.total.bytes&node=b&every_ms=100")
    assert [entry["name"] for entry in next(stream_of_b)[1]] == ["memory.total.bytes"]
    kind, tick = next(stream_of_b)
    assert kind == "tick" and [sample[2] for sample in tick["samples"]] == [total]
    stream_of_b.close()
    unknown = a.get("/api/v1/latest?node=bb")
    assert unknown.status == 404 and "no node bb is mirrored here (mirrored: b)" in unknown.message
    past = [(row["ts"], row["value"]) for row in other.history(FREE)]
    own = [(row["ts"], row["value"]) for row in barograph.connect(b.run_dir).history(FREE)]
    assert past and set(past) <= set(own)

    # The name of this node is its own streams; what is not mirrored is refused with the remedy.
    assert a.ask("latest", "memory.total.bytes", "--node", "a")[0]["value"] == total
    refused = a.error("latest", FREE, "--node", "bb")
    assert "no node bb is mirrored here (mirrored: b)" in refused and "baro node list" in refused
    assert "cluster.mirror" in a.error("latest", "no.such.stream", "--node", "b")
    with pytest.raises(barograph.UnknownNodeError, match="cluster.mirror"):
        observer.of_node("x")
    with pytest.raises(barograph.QueryError, match="baro sql --nodes b"):
        other.sql("SELECT * FROM sources")


@contextmanager
def watching(agent: Agent) -> Iterator[subprocess.Popen[str]]:
    """`baro watch` of a stream of the node b, and what it tells on standard error."""
    command = [BARO, "watch", FREE, "--node", "b", "--run-dir", str(agent.run_dir)]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, env=environment()) as watch:
        try:
            yield watch
        finally:
            watch.kill()


def test_a_node_that_is_not_heard_is_stale_for_all_of_them(agents: list[Agent], program: Program) -> None:
    a, b = agents
    other = barograph.connect(a.run_dir).of_node("b")
    stream = other.stream("memory.total.bytes")
    total = stream.latest().value
    assert not stream.latest().stale and program.ask()["alive"] == 1
    over_http = events(a, "/api/v1/watch?match=memory.*&node=b&every_ms=100")
    with watching(a) as watch:
        assert b.process and watch.stderr
        b.freeze()
        eventually(lambda: not other.status().alive, "nothing is heard of it")
        last = stream.latest()
        assert last.stale and last.value == total and last.age_ns and last.age_ns > 4e9
        assert other.latest(FREE).stale and next(other.watch(FREE)).stale
        read = program.ask()
        assert read["alive"] == 0 and read["value"] == total and read["age_ns"] > 4e9
        assert read_by_command(a)["stale"] is True
        assert a.get("/api/v1/latest?match=memory.total.bytes&node=b").json[0]["stale"] is True
        assert " old" in a.out("latest", "memory.total.bytes", "--node", "b")
        assert watch.stderr.readline() == "baro: nothing is heard of b, waiting for it\n"
        assert not barograph.connect(a.run_dir).latest(FREE).stale, "this node lives"
        told = next(data for kind, data in over_http if kind == "stale")
        assert told["since"] > 0
        b.process.send_signal(signal.SIGCONT)
        assert next(kind for kind, _ in over_http) in ("tick", "streams")
        over_http.close()
        eventually(lambda: not stream.latest().stale and program.ask()["alive"] == 1, "it is heard again")
        assert watch.stderr.readline() == "baro: b is heard again\n"
    assert read_by_command(a)["stale"] is False


def test_readers_of_a_mirror_outlive_both_agents(agents: list[Agent], program: Program) -> None:
    a, b = agents
    other = barograph.connect(a.run_dir).of_node("b")
    stream = other.stream("memory.total.bytes")
    total = stream.latest().value

    def is_fresh() -> bool:
        try:
            latest = stream.latest()
            return latest.value is not None and not latest.stale and program.ask()["alive"] == 1
        except barograph.UnknownStreamError:
            # The stream of the earlier life has ended, and that of the next one has not come.
            return False

    assert is_fresh()
    # The owner's next life.
    b.stop(signal.SIGKILL)
    eventually(lambda: other.latest("memory.total.bytes").stale, "the owner is dead")
    b.start()
    eventually(is_fresh, "the owner is back")
    # The agent of this node ends and removes its mirrors; then it is killed.
    for number in (signal.SIGINT, signal.SIGKILL):
        a.stop(number)
        eventually(lambda: program.ask()["alive"] == 0, "the mirror is not written")
        assert stream.latest().stale and stream.latest().value == total
        a.start()
        eventually(is_fresh, "the mirror is back")
        assert stream.latest().value == total
