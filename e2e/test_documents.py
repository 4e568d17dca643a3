"""The documents, run: code that README.md and the guide tell a reader to paste works.

Each block of code is run, on a node by itself or (`IN_CLUSTER`) beside another one, or is listed in
`NOT_RUN` with the reason. A reason may name a test that does the same. A change of a document needs
no change here, unless it adds something that cannot be run, or that the node of these tests does
not have.
"""

from __future__ import annotations

import os
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
from reader import REPLACED, Reader, reading, reading_in_cluster
from test_applications import INCLUDE, LIBRARY
from test_cluster import free_address
from test_examples import compile_with

# Lists of pieces: by document, then by the beginning of a piece, which is unique in its document.
Listed = dict[str, dict[str, str]]

BUILDS = "it builds this repository"
INSTALLS = "it installs software for the system, or in an environment of the reader's"
OUTPUT = "it is output, shown for reading"
EXTENSION = "it is a function of the extension, whose own tests call it"
BUCKET = "it needs a bucket; test_target.py does it in a directory"
FIFTEEN = "test_fifteen.py runs it: `tuple_of_row({})`"
STARTS = "it starts agents; test_cluster.py does"
KEPT = "it needs the archives of an aggregator; test_aggregator.py has them"
LAKE = "it needs a lake; test_site.py has one"
NODE_CALLS = "it needs programs on several nodes; test_node_calls.py has them"
WATCHED = "it needs a tree; test_events.py watches one"
FOLLOWED = "it goes on until it is stopped; test_event_feeds.py and test_event_programs.py follow events"
STORES = "it needs a store; test_rule_transfers.py has some"
ACTED = "it needs events and a rule that has acted; test_event_rules.py has them"
MEMBERS = "it needs nodes that join; test_membership.py has them"
GROUPS = "it needs a control group, or a decision; test_control.py has them"
TURNS = "it needs a volume that is scheduled; test_control_switches.py has one"
TRACEFS = "it needs root and tracefs"
SERVERS = "it needs servers of blocks that run; test_stage.py has some"
OBJECTS = "it needs stores of objects, as `test_a_killed_server_finds_its_blocks` of test_stage_remote.py has"
RANKS = "it needs ranks of MPI; test_collectives.py runs the example, `collectives`"
MOUNTED = "it needs servers of blocks and mounts until it is stopped; test_stage_mount.py does"
STAGED = "it needs a server of staging; the tests of the package run it, in python/tests"

# Pieces that are not run, with the reason.
NOT_RUN: Listed = {
    "README.md": {
        "make run": BUILDS,
        "make test": BUILDS,
        "baro cluster run": STARTS,
    },
    "applications.md": {'{"id":"u1000:7",': OUTPUT},
    "bridges.md": {"[[outputs.influxdb_v2]]": "it is Telegraf's configuration"},
    "control.md": {
        '{"decision": 1,': OUTPUT,
        "baro weights status jobs": GROUPS,
        "baro weights setup": GROUPS,
        "baro control explain 1": GROUPS,
        "baro control revert 17": GROUPS,
    },
    "scheduling.md": {
        '[cluster]\nname = "hpc"': "it needs several nodes with certificates",
        "baro io --schedule -- ./solver": "it runs the reader's program; test_turns.py runs some",
        "baro control pause io-schedule": TURNS,
        "baro control resume io-schedule": TURNS,
        "baro control dry-run io-schedule": TURNS,
    },
    "cluster.md": {
        "baro cluster run": STARTS,
        "baro up --cluster rack1 --listen 127": STARTS,
        "baro cluster init": MEMBERS,
        "baro up --cluster rack1 --listen 0": STARTS,
        "baro cluster invite node-b": MEMBERS,
        "baro cluster join -  ": MEMBERS,
        "baro cluster join - --state-dir": MEMBERS,
        "baro up --cluster rack1 --node": STARTS,
        "baro cluster members  ": MEMBERS,
        "baro cluster revoke": MEMBERS,
        "baro cluster invite router1": MEMBERS,
        "{\n  mode": "it is zenohd's configuration; a test of crates/membership opens a router with it",
        "baro archive ls --archive-dir": KEPT,
        "baro archive export --archive-dir": KEPT,
        "baro archive merge a": KEPT,
        "baro call fire checkpoint --nodes": NODE_CALLS,
        "baro knob set lulesh.dt 0.5 --nodes": NODE_CALLS,
        "curl --unix-socket": NODE_CALLS,
        "baro sql --nodes b": "its statement is left out",
    },
    "collectives.md": {
        "mpicc solver.c": RANKS,
        "baro_stage_t *stage": RANKS,
        "from mpi4py import MPI": "it needs ranks; test_collectives.py has some, in `collective_ranks.py`",
    },
    "epochs.md": {
        "baro control maps solver-io": "it needs servers that run; test_agreement.py has some",
    },
    "event-rules.md": {
        "baro action show 7": ACTED,
        "baro action retry 7": ACTED,
        "baro action drop 7": ACTED,
        "CREATE [OR REPLACE] RULE": "it is a grammar",
        "baro rule explain thumbnails": ACTED,
        "baro rule test examples": "test_event_rules.py tests that file",
        "baro rule check": "its statement is left out; test_rule_transfers.py checks rules",
        "baro transfer check": STORES,
        "baro transfer copy": STORES,
    },
    "events.md": {
        "baro event add /data": WATCHED,
        "baro event watch /data": WATCHED,
        "baro event drop data": WATCHED,
        "baro event add PATH": WATCHED,
        "curl -N 'http://127.0.0.1:7070/api/v1/events": FOLLOWED,
        "id: data=17@": OUTPUT,
        "for event in barograph.events(": "it goes on until it is stopped; test_event_programs.py runs `events.py`",
        "SELECT kind, count(*) FROM read_parquet": "it is for DuckDB; test_event_columns.py reads columns by `read_parquet`",
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
    "insights.md": {
        "baro probe": "it needs a disk that nobody uses; test_probe.py has one",
        "-- row 3:": FIFTEEN.format(3),
        "-- row 4:": FIFTEEN.format(4),
        "-- row 15:": FIFTEEN.format(15),
    },
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
        "install -d -m 0755 /etc/barograph": INSTALLS,
        "echo /scratch": "it gives a right on this machine; test_fanotify.py has a list at `/etc/barograph/fanotify`",
    },
    "site.md": {"SELECT node, max(time_mean)": LAKE, "spark-submit": LAKE},
    "staging-mount.md": {
        "baro stage serve --memory": SERVERS,
        "baro stage mount /tmp/stage": MOUNTED,
        "baro stage mount --server": MOUNTED,
        "baro stage mount --clean": MOUNTED,
    },
    "staging.md": {
        "baro stage serve --memory": SERVERS,
        "[staging]": "it needs the directories that it names",
        "baro stage serve --tier /nvme": OBJECTS,
        "baro stage serve --tier redis": OBJECTS,
        "baro stage serve --map": SERVERS,
        "baro stage serve --tcp": SERVERS,
        "baro stage put results field field.npy --map": SERVERS,
        "baro stage put results field field.npy --replicas": SERVERS,
        "baro control maps scratch": SERVERS,
    },
    "sql.md": {"cargo build": BUILDS, "SELECT baro_open(": EXTENSION, "SELECT baro_refresh(": EXTENSION},
    "staging-programs.md": {
        "#include <baro.h>": "it needs a server of staging; a test of crates/libbaro runs it",
        "import barograph\nimport numpy": STAGED,
        "for block in stage.list": STAGED,
        "found = stage.locate": STAGED,
        "stage.put": STAGED,
    },
    "tasks.md": {
        "stage = barograph.StagingClient": STAGED,
        "import barograph.dask": "it needs a scheduler of Dask; the tests of the package run it, in python/tests",
        "import barograph.parsl": "it needs executors of Parsl; the tests of the package run it, in python/tests",
    },
    "tracing.md": {
        "SELECT device, rank, value, error FROM block_trace_hot_ops": TRACEFS,
        "SELECT device, value FROM block_trace_read_latency": TRACEFS,
    },
}

OTHERS = "it reads other nodes"
OVER_ALL = "it is computed over all nodes"

# Pieces that are run on a node that has another one beside it, with the reason.
IN_CLUSTER: Listed = {
    "README.md": {
        'baro sql "SELECT node, device': OTHERS,
        "baro sql --nodes all": OTHERS,
    },
    "cluster.md": {
        'baro sql --nodes all "SELECT max': OTHERS,
        'baro sql --nodes all --combine "SELECT tier': OTHERS,
        'baro sql --nodes all --combine "SELECT node': OTHERS,
        "baro sql --nodes a,b": OTHERS,
        'baro latest "disk.*" --node b': OTHERS,
        "baro watch memory.available.bytes --node b": OTHERS,
        "baro streams --node b": OTHERS,
        "b = barograph.of_node": OTHERS,
        "baro_node_t *node": OTHERS,
        "curl 'http": OTHERS,
        "curl -N 'http://127.0.0.1:7070/api/v1/watch?match=disk": OTHERS,
        "curl -N 'http://127.0.0.1:7070/api/v1/watch?match=agent": OTHERS,
        "curl -N --unix-socket": OTHERS,
        "baro watch agent.cpu.seconds --node b": OTHERS,
        'baro sql "SELECT node, value FROM cluster_app': OTHERS,
        "baro watch 'app.lulesh.*' --node b": OTHERS,
        "curl -d": OTHERS,
        "SELECT node, value FROM cluster_disk_busy_ratio": OTHERS,
        'baro rule create "CREATE RULE disk.busy': OVER_ALL,
        'baro rule create "CREATE RULE storage.gone': OVER_ALL,
        'baro insight create "CREATE INSIGHT all': OVER_ALL,
        'baro insight create "CREATE INSIGHT busy': OVER_ALL,
        'baro insight create "CREATE INSIGHT lulesh': OVER_ALL,
        'baro rule create "CREATE RULE diverges': OVER_ALL,
        'baro insight create "CREATE INSIGHT storage': OVER_ALL,
        'baro sql "SELECT node, value, age_ns': OVER_ALL,
        "baro insight drop storage": OVER_ALL,
        "CREATE INSIGHT site": OVER_ALL,
    },
}

VALUES_CHANGE = "it shows values as they change"

# Commands that run until they are stopped.
FOLLOWS: Listed = {
    "control-events.md": {"baro control events --follow": VALUES_CHANGE},
    "first-steps.md": {"baro watch": VALUES_CHANGE},
    "cluster.md": {
        "baro watch memory": VALUES_CHANGE,
        "baro watch agent": VALUES_CHANGE,
        "baro watch 'app": VALUES_CHANGE,
        "curl -N 'http://127.0.0.1:7070/api/v1/watch?match=disk": VALUES_CHANGE,
        "curl -N 'http://127.0.0.1:7070/api/v1/watch?match=agent": VALUES_CHANGE,
        "curl -N --unix-socket": VALUES_CHANGE,
    },
}

# What fragments of C and Python need from the program around them.
SURROUNDINGS: Listed = {
    "README.md": {"baro_t *app": "static const double r = 0.5; static const uint64_t n = 7;"},
    "applications.md": {"#include <baro.h>": "static double solve(void) { return 0.5; }"},
    "cluster.md": {"b = barograph.of_node": "import barograph"},
    "control-events.md": {
        "baro_property_t server": '#define b baro_open("documents", NULL)',
        "baro_control_filter_t filter": "static void move_away_from(const char *server) { (void)server; }\n"
        "#define node baro_node_open(NULL)",
        "events = barograph.control_events": "import barograph",
    },
    "epochs.md": {
        "baro_server_map_t *map": "static const uint32_t servers[8] = {0, 1, 2, 3, 4, 5, 6, 7};\n"
        "static uint64_t write_blocks(uint64_t epoch, const uint16_t *list, uint32_t count)\n"
        "{ return epoch == UINT64_MAX || count == 0 || list[0] > 7; }\n"
        '#define b baro_open("documents", NULL)',
    },
    "scheduling.md": {
        "baro_io_volume_t *scratch": 'static const int64_t bytes = 7; static void write_checkpoint(void) {}\n'
        "#define b baro_open(\"documents\", NULL)",
    },
}

# Programs that not every machine has. Pieces that need a missing one are skipped, but with CI=true
# they fail.
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
    if ";" not in text and len(several := re.split(r"\n(?=SELECT )", text)) > 1:
        return "".join(reader.runs("baro", "sql", "-", given=one) for one in several)
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
    lines = [listed(session[0], SURROUNDINGS)]
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


def faults_of(reader: Reader, document: str, run: list[Piece]) -> list[str]:
    """The faults of these pieces of a document, which are run one after the other."""
    session = [piece for piece in run if piece.kind == "python"]
    faults = []
    for piece in run:
        needed = ["promtool"] if piece.kind == "yaml" else [name for name in FOREIGN if f"{name} " in piece.text]
        missing = [name for name in needed if not shutil.which(name)]
        if missing and os.environ.get("CI"):
            faults.append(f"{piece}\n    {missing[0]} is missing")
        elif missing:
            warnings.warn(f"{piece}: left out, since {missing[0]} is missing", stacklevel=1)
        elif piece.kind == "python":
            if piece is session[0] and (wrong := run_session(reader, session)):
                faults.append(f"{document}, its Python: {wrong}")
        elif wrong := fault(reader, piece):
            faults.append(f"{piece}\n    {wrong}")
    undo(reader.agent)
    return faults


@pytest.mark.parametrize("path", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_what_a_document_says_can_be_done(reader: Reader, path: Path) -> None:
    # Pieces of unknown language are faults of the test below.
    left_out = [piece for piece in pieces(path) if piece.kind == "unknown" or listed(piece, NOT_RUN)]
    run = [piece for piece in pieces(path) if piece not in left_out and not listed(piece, IN_CLUSTER)]
    faults = faults_of(reader, path.name, run)
    assert not faults, "\n".join(faults)


def test_what_is_said_of_other_nodes_can_be_done(tmp_path: Path, library: Path) -> None:
    faults = []
    with reading_in_cluster(tmp_path, library, free_address()) as reader:
        for path in DOCUMENTS:
            run = [piece for piece in pieces(path) if listed(piece, IN_CLUSTER)]
            faults += faults_of(reader, path.name, run)
    assert not faults, "\n".join(faults)


def test_a_missing_program_is_a_fault_in_ci(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    piece = Piece("docs/guide/sql.md", 1, "shell", "sqlite3 -version")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setenv("CI", "true")
    [wrong] = faults_of(reader, "sql.md", [piece])
    assert "sqlite3 is missing" in wrong
    monkeypatch.delenv("CI")
    with pytest.warns(UserWarning, match="sqlite3 is missing"):
        assert faults_of(reader, "sql.md", [piece]) == []


@pytest.fixture(scope="module")
def found() -> list[Piece]:
    """All pieces of all documents."""
    return [piece for path in DOCUMENTS for piece in pieces(path)]


def test_each_block_is_run_or_listed(found: list[Piece]) -> None:
    known = RUNS.keys() | {"python"}
    strange = [str(piece) for piece in found if piece.kind not in known and not listed(piece, NOT_RUN)]
    assert not strange, f"of no known language, and not in NOT_RUN: {strange}"


LISTS = {"not run": NOT_RUN, "in a cluster": IN_CLUSTER, "follows": FOLLOWS, "surroundings": SURROUNDINGS}


@pytest.mark.parametrize("there", LISTS.values(), ids=LISTS.keys())
def test_an_entry_of_a_list_means_one_piece(found: list[Piece], there: Listed) -> None:
    for name, said in there.items():
        for beginning in said:
            meant = {piece.text for piece in found if piece.name == name and piece.text.startswith(beginning)}
            assert len(meant) == 1, f"{name}: {beginning!r} means {len(meant)} pieces: {meant}"


def words_of(piece: Piece, reason: str) -> list[str]:
    """What a test must contain that is said to do the same as a piece: what the reason quotes, or
    else the verb and the options of a command, its paths, and the functions of a statement."""
    if quoted := re.findall(r"`([^`]+)`", reason):
        return quoted
    text = re.sub(r"\s#\s.*", "", piece.text)
    verb = re.match(r"baro (?:(?:cluster|archive|call|knob|forecast) )?([a-z]+)", text)
    words = [f'"{verb[1]}"'] if verb else []
    return words + re.findall(r"--[a-z-]+|/api/v1/\w+|[a-z]\w+(?=\()|\w+\.py\b", text)


def test_a_test_that_is_named_as_a_reason_does_it(found: list[Piece]) -> None:
    faults = []
    for piece in found:
        reason = listed(piece, NOT_RUN)
        if named := re.search(r"test_\w+\.py", reason):
            test = (Path(__file__).parent / named[0]).read_text()
            words = words_of(piece, reason)
            lacks = [word for word in words if word not in test]
            if lacks or not words:
                faults.append(f"{piece}\n    {named[0]} lacks {lacks}")
    assert not faults, "\n".join(faults)


def test_what_is_replaced_is_in_a_document(found: list[Piece]) -> None:
    unused = [text for text in REPLACED if not any(text in piece.text for piece in found)]
    assert not unused, f"no document has this any more: {unused}"
