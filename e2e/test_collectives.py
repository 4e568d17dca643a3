"""Collective writes and reads of MPI programs through staging: real ranks, servers with replicas that are killed,
and the same bytes as through MPI-IO."""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from harness import PATIENCE_SECONDS, ROOT, environment, eventually
from test_examples import EXAMPLES, compile_with, library, needs, told
from test_stage import Server, asked, serve

__all__ = ["library", "serve"]

LAYER = ROOT / "crates" / "libbaro" / "mpi"
PROGRAMS = ROOT / "crates" / "libbaro" / "tests" / "programs"
RANKS = 4
# Ranks that wait take all processors of a busy machine.
RUN_SECONDS_MAX = 600
SEED = 7
UNREACHABLE, ARGUMENT, NOTHING = -11, -1, 1
SCENARIOS = ["field", "strided", "dealt", "far", "random0", "random1", "random2"]

Serve = Callable[..., Server]


def with_mpi(library: Path, source: Path, target: Path) -> Path:
    """Compiles a program with the collective layer, without a warning."""
    needs(bool(shutil.which("mpicc") and shutil.which("mpirun")), "MPI (mpich)")
    layer = map(str, sorted(LAYER.glob("*.c")))
    return compile_with("mpicc", library, source, target, *layer, f"-I{LAYER}", "-Wextra", "-Werror", "-lbaro")


def run_ranks(*command: object, ranks: int = RANKS, **more: Any) -> list[dict[str, Any]]:
    """Runs ranks of a program; returns the lines of JSON that they print."""
    run = ["mpirun", "-n", str(ranks), *map(str, command)]
    options: dict[str, Any] = {"env": environment(), "timeout": RUN_SECONDS_MAX} | more
    done = subprocess.run(run, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, (done.stdout[-2_000:], done.stderr[-2_000:])
    return told(done.stdout)


def sockets(servers: list[Server]) -> list[str]:
    return [str(server.socket) for server in servers]


def test_datatypes_have_the_pieces_that_mpi_packs(library: Path, tmp_path: Path) -> None:
    flatten = with_mpi(library, PROGRAMS / "flatten.c", tmp_path / "flatten")
    counts, *refused = run_ranks(flatten, 3_000, SEED, ranks=1)
    assert (counts["faults"], counts["kinds"]) == (0, 12), counts
    assert counts["compared"] > 1_000
    why = {line["refused"]: line["why"] for line in refused}
    assert "displacement" in why["displacement"] and "negative offset" in why["negative"]
    assert "ascending order" in why["order"] and "overlap" in why["overlap"]
    assert "next repetition" in why["repetition"] and "MPI_DATATYPE_NULL" in why["none"]


def test_ranks_write_and_read_what_mpi_io_does(serve: Serve, library: Path, tmp_path: Path) -> None:
    both = [serve(), serve()]
    collective = with_mpi(library, PROGRAMS / "collective.c", tmp_path / "collective")
    told_by: dict[str, list[dict[str, Any]]] = {}
    for exchange in ("views", "lists"):
        plain = tmp_path / exchange
        plain.mkdir()
        told_by[exchange] = run_ranks(collective, plain, exchange, exchange, SEED, *sockets(both))
    for views, lists in zip(told_by["views"], told_by["lists"], strict=True):
        assert views["differ"] == lists["differ"] == 0, (views, lists)
        # The same data go the same way, and only what is told of them differs.
        same = ("scenario", "data", "put", "merged", "rounds", "aggregators")
        assert [views[name] for name in same] == [lists[name] for name in same]
        print(views["scenario"], "told:", views["metadata"], "B as views,", lists["metadata"], "B as lists")
    assert [line["scenario"] for line in told_by["views"]] == SCENARIOS
    told_of = {way: {line["scenario"]: line["metadata"] for line in lines} for way, lines in told_by.items()}
    # Many small pieces, told once and in each of three calls.
    assert told_of["views"]["strided"] * 10 < told_of["lists"]["strided"]
    assert all(line["merged"] > 0 for line in told_by["views"] if line["scenario"] in ("strided", "random0"))
    # A file has a block that says how it is cut, and both servers have each block.
    blocks = asked("ls", "views/field", servers=both)["blocks"]
    assert blocks[0].get("number") == 0 and blocks[-1].get("name") == "layout"
    for server in both:
        assert len(asked("ls", "views/field", servers=[server])["blocks"]) == len(blocks)


class Steps:
    """Ranks that do one command after the other."""

    def __init__(self, program: Path, dataset: str, servers: list[Server], **more: Any) -> None:
        options = {"acks": 0, "exchange": "views", "wrong_rank": -1} | more
        run = ["mpirun", "-n", str(RANKS), str(program), dataset, *map(str, options.values()), *sockets(servers)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(run, stdin=pipe, stdout=pipe, text=True, env=environment())

    def begin(self, command: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """How the command has ended, on each rank in the same way."""
        assert self.process.stdout
        line: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert len(line["codes"]) == RANKS and len(set(line["codes"])) == 1 and line["same_text"], line
        return line | {"code": line["codes"][0]}

    def do(self, command: str) -> dict[str, Any]:
        self.begin(command)
        return self.end()

    def must(self, *commands: str) -> None:
        for command in commands:
            done = self.do(command)
            assert (done["code"], done["wrong"]) == (0, 0), done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise


@pytest.fixture(scope="module")
def steps(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that does one command after the other."""
    return with_mpi(library, PROGRAMS / "collective_steps.c", tmp_path_factory.mktemp("steps") / "steps")


@pytest.mark.parametrize("exchange", ["views", "lists"])
def test_a_server_that_is_killed_between_calls_costs_no_data(serve: Serve, steps: Path, exchange: str) -> None:
    both = [serve(), serve()]
    with Steps(steps, "run", both, acks=1, exchange=exchange) as ranks:
        ranks.must("open 1 8192", "view -1", "write 1", "read 1")
        both[1].kill()
        ranks.must("read 1", "write 2", "read 2")
        both[1].start()
        # What it has missed is taken from the other one.
        ranks.must("read 2", "write 3", "read 3", "close")


def test_a_server_is_killed_while_ranks_write(serve: Serve, steps: Path) -> None:
    both = [serve(), serve()]
    with Steps(steps, "run", both, acks=1) as ranks:
        ranks.must("open 1 512", "view -1", "write 1")
        puts = both[1].status()["store"]["puts"]
        ranks.begin("write 2")
        eventually(lambda: both[1].status()["store"]["puts"] > puts, "a put of the second step")
        both[1].kill()
        assert ranks.end()["code"] == 0
        ranks.must("read 2", "close")


def test_an_error_of_one_rank_is_the_error_of_all(serve: Serve, steps: Path) -> None:
    both = [serve(), serve()]
    with Steps(steps, "run", both) as ranks:
        missing = ranks.do("open 0 0")
        assert missing["code"] == NOTHING and "no collective file run" in missing["text"]
        ranks.must("open 1 8192", "view -1", "write 1")
        # A view that is refused leaves those that were there.
        refused = ranks.do("view 2")
        assert refused["code"] == ARGUMENT and refused["text"].startswith("rank 2: ")
        refused = ranks.do("argument 3")
        assert refused["code"] == ARGUMENT and refused["text"].startswith("rank 3: ")
        ranks.must("read 1")
        # All replicas have to acknowledge a put, unless something else was said.
        both[0].kill()
        failed = ranks.do("write 2")
        assert failed["code"] == UNREACHABLE and re.match(r"rank [0-3]: block [0-9]+ of run: ", failed["text"]), failed
        both[1].kill()
        failed = ranks.do("read 1")
        assert failed["code"] == UNREACHABLE and "all replicas are gone" in failed["text"]
        ranks.must("close")


@pytest.mark.parametrize("exchange", ["views", "lists"])
def test_one_aggregator_without_servers_stops_all_ranks(serve: Serve, steps: Path, exchange: str) -> None:
    both = [serve(), serve()]
    with Steps(steps, "run", both, wrong_rank=1, exchange=exchange) as ranks:
        ranks.must("open 1 8192", "view -1")
        for command in ("write 1", "read 1"):
            failed = ranks.do(command)
            assert failed["code"] == UNREACHABLE and failed["text"].startswith("rank 1: block 1 of run: "), failed
        ranks.must("close")
    with Steps(steps, "run", both) as ranks:
        wrong = ranks.do("open 1 4096")
        assert wrong["code"] == ARGUMENT and "8192 bytes, not 4096" in wrong["text"]
        ranks.must("open 0 0")
        wrong = ranks.do("write 1")
        assert wrong["code"] == ARGUMENT and "opened for reads" in wrong["text"]
        ranks.must("close")


@pytest.mark.parametrize("exchange", ["views", "lists"])
def test_ranks_in_python_share_files_with_those_in_c(serve: Serve, steps: Path, tmp_path: Path, exchange: str) -> None:
    needs(importlib.util.find_spec("mpi4py") is not None, "mpi4py")
    both = [serve(), serve()]
    with Steps(steps, "py/rows", both) as ranks:
        ranks.must("open 1 8192", "view -1", "write 4", "close")
    lines = run_ranks(
        sys.executable, Path(__file__).with_name("collective_ranks.py"), "py", exchange, *sockets(both),
        env=environment(LD_LIBRARY_PATH=str(mpi_for_python(tmp_path))),
    )  # fmt: skip
    datatypes, field, rows, refused = lines
    assert datatypes["compared"] > 100
    assert field["same"] and rows["same"], (field, rows)
    begins = ["not_found: rank 0", "argument: rank 2", "argument: rank 0", "argument: rank 1", "unreachable: rank 1"]
    assert all(error.startswith(begin) for error, begin in zip(refused["errors"], begins, strict=False)), refused
    assert len(refused["errors"]) == 6 and refused["errors"][5].startswith("unreachable: rank 1: ")
    with Steps(steps, "py/rows", both) as ranks:
        ranks.must("open 0 0", "view -1", "read 5", "close")


def mpi_for_python(folder: Path) -> Path:
    """A folder with MPICH's library under the name that wheels of mpi4py look for; Debian's has another one."""
    found = ctypes.util.find_library("mpich")
    needs(found is not None, "the library of MPICH")
    (folder / "mpi").mkdir()
    (folder / "mpi" / "libmpi.so.12").symlink_to(next(Path("/usr/lib").glob(f"*/{found}")))
    return folder / "mpi"


def test_the_example_runs(serve: Serve, library: Path, tmp_path: Path) -> None:
    both = [serve(), serve()]
    program = with_mpi(library, EXAMPLES / "collectives" / "field.c", tmp_path / "field")
    [line] = run_ranks(program, *sockets(both))
    assert line["wrong"] == 0 and line["steps"] == 3, line
