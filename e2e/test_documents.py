"""The documents, run: code that README.md and the guide tell a reader to paste works.

Each block of code is run, or is listed in `NOT_RUN` with the reason. A change of a document needs
no change here, unless it adds something that cannot be run, or that the node of these tests does
not have.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from documents import DOCUMENTS, Piece, pieces
from harness import PATIENCE_SECONDS, ROOT, Agent
from reader import REPLACED, Reader, reading
from test_applications import INCLUDE, LIBRARY
from test_examples import compile_with

# Lists of pieces: by document, then by the beginning of a piece, which is unique in its document.
Listed = dict[str, dict[str, str]]

BUILDS = "it builds this repository"
INSTALLS = "it installs software for the system, or in an environment of the reader's"
OUTPUT = "it is output, shown for reading"
EXTENSION = "it is a function of the extension, whose own tests call it"
BUCKET = "it needs a bucket; test_target.py does it in a directory"
FIFTEEN = "test_fifteen.py runs it"
OF_CLUSTER = "it needs a cluster; test_cluster_insights.py has one"
CLIENTS = "it needs a cluster; test_cluster_clients.py has one"
PUBLICATIONS = "test_cluster_publications.py reads them on another node"
DEMANDS = "it needs a cluster; test_cluster_demand.py has one"
IN_CLUSTER = "it needs a cluster; test_cluster.py has one"
KEPT = "it needs the archives of an aggregator; test_aggregator.py has them"
LAKE = "it needs a lake; test_site.py has one"
NODE_CALLS = "it needs programs on several nodes; test_node_calls.py has them"
MEMBERS = "it needs nodes that join; test_membership.py has them"
TRACEFS = "it needs root and tracefs"

# Pieces that are not run, with the reason.
NOT_RUN: Listed = {
    "README.md": {
        "make run": BUILDS,
        "make test": BUILDS,
        "baro cluster run": IN_CLUSTER,
        'baro sql "SELECT node, device': IN_CLUSTER,
        "baro sql --nodes all": IN_CLUSTER,
    },
    "applications.md": {'{"id":"u1000:7",': OUTPUT},
    "bridges.md": {"[[outputs.influxdb_v2]]": "it is Telegraf's configuration"},
    "cluster.md": {
        "baro cluster run": IN_CLUSTER,
        "baro up --cluster rack1 --listen 127": IN_CLUSTER,
        "baro cluster init": MEMBERS,
        "baro up --cluster rack1 --listen 0": MEMBERS,
        "baro cluster invite node-b": MEMBERS,
        "baro cluster join -  ": MEMBERS,
        "baro cluster join - --state-dir": MEMBERS,
        "baro up --cluster rack1 --node": MEMBERS,
        "baro cluster members  ": MEMBERS,
        "baro cluster revoke": MEMBERS,
        "baro cluster invite router1": MEMBERS,
        "{\n  mode": "it is zenohd's configuration; a test of crates/membership opens a router with it",
        'baro sql --nodes all "SELECT max': IN_CLUSTER,
        'baro sql --nodes all --combine "SELECT tier': IN_CLUSTER,
        'baro sql --nodes all --combine "SELECT node': IN_CLUSTER,
        "baro archive ls --archive-dir": KEPT,
        "baro archive export --archive-dir": KEPT,
        "baro archive merge a": KEPT,
        "baro sql --nodes a,b": IN_CLUSTER,
        'baro latest "disk.*" --node b': CLIENTS,
        "baro watch memory.available.bytes --node b": CLIENTS,
        "baro streams --node b": CLIENTS,
        "baro sql --nodes b": CLIENTS,
        "b = barograph.of_node": CLIENTS,
        "baro_node_t *node": CLIENTS,
        "curl 'http": CLIENTS,
        "curl -N 'http://127.0.0.1:7070/api/v1/watch?match=disk": CLIENTS,
        "curl -N 'http://127.0.0.1:7070/api/v1/watch?match=agent": DEMANDS,
        "curl -N --unix-socket": DEMANDS,
        "baro watch agent.cpu.seconds --node b": DEMANDS,
        'baro sql "SELECT node, value FROM cluster_app': PUBLICATIONS,
        "baro watch 'app.lulesh.*' --node b": PUBLICATIONS,
        'baro rule create "CREATE RULE disk.busy': DEMANDS,
        'baro rule create "CREATE RULE storage.gone': DEMANDS,
        "curl -d": IN_CLUSTER,
        'baro insight create "CREATE INSIGHT all': IN_CLUSTER,
        'baro insight create "CREATE INSIGHT busy': IN_CLUSTER,
        'baro insight create "CREATE INSIGHT storage': OF_CLUSTER,
        'baro sql "SELECT node, value, age_ns': OF_CLUSTER,
        "baro insight drop storage": OF_CLUSTER,
        "SELECT node, value FROM cluster_disk_busy_ratio": IN_CLUSTER,
        "CREATE INSIGHT site": IN_CLUSTER,
        "baro call fire checkpoint --nodes": NODE_CALLS,
        "baro knob set lulesh.dt 0.5 --nodes": NODE_CALLS,
        "curl --unix-socket": NODE_CALLS,
    },
    "export.md": {
        "SET VARIABLE files": BUCKET,
        "SELECT count(*) FROM read_parquet(getvariable": BUCKET,
    },
    "first-steps.md": {
        "make run": BUILDS,
        "barograph ready: ": OUTPUT,
        "baro top": "it needs a terminal; test_top.py has one",
        "network.health.seconds unavailable": OUTPUT,
    },
    "forecasts.md": {"baro forecast train --from": "it takes an archive of hours; test_forecast.py trains"},
    "history.md": {"SELECT baro_open(": EXTENSION},
    "insights.md": {"-- row 3:": FIFTEEN, "-- row 4:": FIFTEEN, "-- row 15:": FIFTEEN},
    "instrumented.md": {"SELECT kernel_name": "it needs a program with Kokkos; test_examples.py has one"},
    "policies.md": {"CREATE [OR REPLACE] POLICY": "it is a grammar"},
    "python.md": {"pip install maturin": INSTALLS, "maturin develop": BUILDS},
    "security.md": {
        "cargo build": BUILDS,
        "install -m 0644 etc/barograph.sysusers": INSTALLS,
        "install -d -m 0755 /usr/libexec": INSTALLS,
        "install -m 0755 target/release/barograph-helper": INSTALLS,
        "install -m 0644 etc/barograph-helper.socket": INSTALLS,
        "systemctl daemon-reload": INSTALLS,
        "systemctl enable": INSTALLS,
        "printf 'smart sda": "it needs the helper, installed, and a disk",
    },
    "site.md": {"SELECT node, max(time_mean)": LAKE, "spark-submit": LAKE},
    "sql.md": {"cargo build": BUILDS, "SELECT baro_open(": EXTENSION, "SELECT baro_refresh(": EXTENSION},
    "tracing.md": {
        "SELECT device, rank, value, error FROM block_trace_hot_ops": TRACEFS,
        "SELECT device, value FROM block_trace_read_latency": TRACEFS,
    },
}

# Commands that run until they are stopped.
FOLLOWS: Listed = {"first-steps.md": {"baro watch": "it shows values as they change"}}

# What fragments of C need from the program around them.
SURROUNDINGS: Listed = {
    "README.md": {"baro_t *app": "static const double r = 0.5; static const uint64_t n = 7;"},
    "applications.md": {"#include <baro.h>": "static double solve(void) { return 0.5; }"},
}

# Programs that not every machine has; pieces that need a missing one are skipped.
FOREIGN = ("pkg-config", "promtool", "psql", "sqlite3")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libbaro, the preloaded library and baro.pc, as installed by `make install`."""
    folder = tmp_path_factory.mktemp("lib")
    shutil.copy(LIBRARY / "libbaro.so", folder / "libbaro.so.1")
    (folder / "libbaro.so").symlink_to("libbaro.so.1")
    sources = sorted((ROOT / "crates" / "libbaro" / "shim").glob("*.c"))
    flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-ldl", "-lpthread", "-Wl,-z,nodelete"]
    subprocess.run(["cc", *sources, *flags, "-o", folder / "libbaro_io.so"], check=True)
    package = f"Name: baro\nDescription: libbaro\nVersion: 1\nLibs: -L{folder} -lbaro\nCflags: -I{INCLUDE}\n"
    (folder / "baro.pc").write_text(package)
    return folder


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Reader]:
    """A reader of all documents, beside one agent."""
    with reading(tmp_path_factory.mktemp("documents"), library) as reader:
        yield reader


def listed(piece: Piece, there: Listed) -> str:
    """The entry of a list for a piece; empty if there is none."""
    said = there.get(piece.name, {})
    return next((what for beginning, what in said.items() if piece.text.startswith(beginning)), "")


def run_shell(reader: Reader, piece: Piece) -> str:
    """Runs a command in a shell."""
    run = reader.follows if listed(piece, FOLLOWS) else reader.runs
    return run("bash", "-c", reader.here(piece.text))


def run_name(reader: Reader, piece: Piece) -> str:
    """Checks that a command that is only named exists."""
    return reader.runs(*piece.text.split(), "--help")


def run_sql(reader: Reader, piece: Piece) -> str:
    """Runs a statement: CREATE with the command for it, one of DuckDB in DuckDB, others with `baro
    sql`."""
    text = reader.here(piece.text)
    if made := re.match(r"CREATE (INSIGHT|POLICY|RULE)\s", text):
        return reader.runs("baro", made[1].lower(), "create", text)
    if "read_parquet(" in text:
        duckdb.sql(text).fetchall()
        return ""
    return reader.runs("baro", "sql", "-", given=text)


def run_c(reader: Reader, piece: Piece) -> str:
    """Runs a fragment within a program."""
    source, program = reader.folder / "fragment.c", reader.folder / "fragment"
    lines = ["#include <baro.h>", "#include <stdio.h>", listed(piece, SURROUNDINGS), "int main(void) {"]
    lines += [f'#line {piece.line} "{piece.document}"', *piece.text.split("\n"), "return 0; }"]
    source.write_text("\n".join(lines) + "\n")
    compile_with("cc", reader.library, source, program, "-Werror", "-lbaro")
    return reader.runs(program)


def run_yaml(reader: Reader, piece: Piece) -> str:
    """Checks a configuration of Prometheus with promtool."""
    path = reader.folder / "prometheus.yml"
    path.write_text(reader.here(piece.text))
    return reader.runs("promtool", "check", "config", path)


def run_toml(reader: Reader, piece: Piece) -> str:
    """Starts an agent with a configuration."""
    folder = reader.folder / "configured"
    folder.mkdir()
    agent = Agent(folder, "--sys-root", reader.folder, "--http", "off", config=reader.here(piece.text))
    try:
        agent.start()
        return "" if agent.stop() == 0 else agent.output()
    finally:
        agent.destroy()
        shutil.rmtree(folder)


RUNS: dict[str, Callable[[Reader, Piece], str]] = {
    "shell": run_shell,
    "name": run_name,
    "sql": run_sql,
    "c": run_c,
    "toml": run_toml,
    "yaml": run_yaml,
}

# Beginnings of pieces that change nothing, so that they can be repeated.
QUESTIONS = ("SELECT", "baro forecast", "baro knob list", "baro latest", "baro sql")


def fault(reader: Reader, piece: Piece) -> str:
    """The fault of a piece; empty if it does what its reader expects."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            wrong = RUNS[piece.kind](reader, piece)
        except (AssertionError, duckdb.Error, subprocess.SubprocessError) as error:
            wrong = str(error)
        # Values that were just published may take a moment to appear.
        again = piece.text.startswith(QUESTIONS) and not reader.agent.ended() and time.monotonic() < deadline
        if not wrong or not again:
            return wrong
        time.sleep(0.1)


def run_session(reader: Reader, session: list[Piece]) -> str:
    """Runs all Python of a document as one program: a later block continues an earlier one."""
    lines: list[str] = []
    for piece in session:
        # Each line has the same number as in the document.
        lines += [""] * (piece.line - 1 - len(lines)) + reader.here(piece.text).split("\n")
    program = reader.folder / f"{session[0].name}.py"
    program.write_text("\n".join(lines) + "\n")
    return reader.runs(sys.executable, program)


def undo(agent: Agent) -> None:
    """Drops what a document has created, so that each document begins with the same node."""
    made = {
        "insight": "SELECT name FROM insights WHERE NOT builtin",
        "policy": "SELECT DISTINCT name FROM policies WHERE origin = 'made'",
        "rule": "SELECT name FROM rules",
    }
    for kind, sql in made.items():
        for row in agent.sql(sql):
            agent.out(kind, "drop", row["name"])


@pytest.mark.parametrize("path", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_what_a_document_says_can_be_done(reader: Reader, path: Path) -> None:
    # Pieces of unknown language are faults of the test below.
    run = [piece for piece in pieces(path) if piece.kind != "unknown" and not listed(piece, NOT_RUN)]
    session = [piece for piece in run if piece.kind == "python"]
    faults = []
    for piece in run:
        needed = ["promtool"] if piece.kind == "yaml" else [name for name in FOREIGN if f"{name} " in piece.text]
        missing = [name for name in needed if not shutil.which(name)]
        if missing:
            warnings.warn(f"{piece}: left out, since {missing[0]} is missing", stacklevel=1)
        elif piece.kind == "python":
            if piece is session[0] and (wrong := run_session(reader, session)):
                faults.append(f"{path.name}, its Python: {wrong}")
        elif wrong := fault(reader, piece):
            faults.append(f"{piece}\n    {wrong}")
    undo(reader.agent)
    assert not faults, "\n".join(faults)


@pytest.fixture(scope="module")
def found() -> list[Piece]:
    """All pieces of all documents."""
    return [piece for path in DOCUMENTS for piece in pieces(path)]


def test_each_block_is_run_or_listed(found: list[Piece]) -> None:
    known = RUNS.keys() | {"python"}
    strange = [str(piece) for piece in found if piece.kind not in known and not listed(piece, NOT_RUN)]
    assert not strange, f"of no known language, and not in NOT_RUN: {strange}"


@pytest.mark.parametrize("there", [NOT_RUN, FOLLOWS, SURROUNDINGS], ids=["not run", "follows", "surroundings"])
def test_an_entry_of_a_list_means_one_piece(found: list[Piece], there: Listed) -> None:
    for name, said in there.items():
        for beginning in said:
            meant = {piece.text for piece in found if piece.name == name and piece.text.startswith(beginning)}
            assert len(meant) == 1, f"{name}: {beginning!r} means {len(meant)} pieces: {meant}"


def test_what_is_replaced_is_in_a_document(found: list[Piece]) -> None:
    unused = [text for text in REPLACED if not any(text in piece.text for piece in found)]
    assert not unused, f"no document has this any more: {unused}"
