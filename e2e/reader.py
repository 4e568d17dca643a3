"""The node that the documents describe, and a reader who pastes their commands there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import (
    BARO,
    COMMAND_SECONDS_MAX,
    FIXTURES,
    PATIENCE_SECONDS,
    QUICK,
    ROOT,
    STOP_SECONDS_MAX,
    Agent,
    baro,
    environment,
    eventually,
    machine,
)

SQLITE_SO = Path(os.environ.get("BARO_SQLITE_SO", ROOT / "target" / "extension" / "debug" / "libbaro_sqlite.so"))
# Time for which a command is watched that runs until it is stopped, in seconds.
FOLLOW_SECONDS = 2.0

# Replacements for names in documents that differ on this node; `{…}` are the places of
# `Reader.places`.
REPLACED = {
    "127.0.0.1:7070": "127.0.0.1:{port}",
    "localhost:7070": "127.0.0.1:{port}",
    "/dev/shm/barograph-$UID": "{run_dir}",
    "/var/lib/barograph/archive": "{archive}",
    "/var/lib/barograph/weights.txt": "{weights}",
    "/etc/barograph/collector.headers": "{headers}",
    "target/extension/release/libbaro_sqlite.so": "{extension}",
    # Grafana's own variables.
    "${__from}": "0",
    "${__to}": "4102444800000",
    # Examples that follow streams end after a second.
    'barograph.watch("pressure.*")': 'barograph.watch("pressure.*", timeout=1)',
    "timeout=60": "timeout=1",
    # A horizon can be forecast once a 64th of it has been observed.
    "--horizon 1h": "--horizon 5s",
}

# Places that only the node of all other documents has.
ELSEWHERE = ("archive", "weights", "headers", "extension")

# The exports go to an address where nothing listens: their losses are a stream.
CONFIGURATION = QUICK + """
[export.remote_write]
url = "http://127.0.0.1:1"
seconds = 1
[forecast]
streams = ["filesystem.available.bytes", "disk.busy.ratio", "memory.available.bytes"]
"""

# The program that the documents describe: it publishes, has a knob and handlers.
LULESH = """
import time
import barograph
p = barograph.publication("lulesh", {
    "residual": "1",
    "step_time": barograph.gauge("seconds"),
    "iteration": barograph.counter("steps"),
    "phase": str,
    "setup": dict,
    "mesh": list,
}, labels={"rank": "0", "job": "42"}, application="lulesh")
dt = p.knob("dt", 0.1, min=0, max=1, unit="seconds")
for name in ("checkpoint", "redistribute"):
    p.on(name, lambda call: None)
n = 0
while True:
    n += 1
    with p:
        p.put(residual=1 / n, step_time=0.01, iteration=n, phase="solve", setup={"solver": "cg"}, mesh=[1.0, 2.0])
    p.poll()
    time.sleep(0.05)
"""

# What a node needs beside the defaults so that its publications and tiers are read on others.
OF_CLUSTER = QUICK + """
[cluster]
mirror = ["node.*", "tier.*", "disk.*", "filesystem.*", "pressure.*", "memory.*", "network.*", "nodes.*", "app.*"]
"""

# Streams that the documents use and that take some time to appear.
AWAITED = (
    "app.lulesh.residual",
    "disk.write.bytes_per_second",
    "export.lost.samples",
    "forecast.coverage.ratio{mount=/}",
)


def whole_tree(folder: Path) -> Path:
    """The machine that the documents describe: an nvme0n1, a vda, and their mounts."""
    tree = machine("nvme-v2", folder)
    for path in sorted(tree.rglob("*"), reverse=True):
        if path.is_file() and b"nvme1n1" in (content := path.read_bytes()):
            path.write_bytes(content.replace(b"nvme1n1", b"vda"))
        if path.name == "nvme1n1":
            path.rename(path.with_name("vda"))
    # The kernel's report on its clock, and the directories of the mounts.
    shutil.copy(FIXTURES / "nvme-four" / "first" / "commands" / "adjtimex", tree / "commands")
    for mount in ("scratch", "jobs", "home"):
        (tree / mount).mkdir()
    return tree


@dataclass
class Reader:
    """A reader who pastes code of the documents, beside an agent."""

    agent: Agent
    folder: Path
    library: Path
    places: dict[str, object]

    def environment(self) -> dict[str, str]:
        """The environment of the reader's shell."""
        programs = [str(self.folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        return environment(
            HOME=str(self.folder),
            PATH=":".join(programs),
            RUN_DIR=str(self.agent.run_dir),
            BAROGRAPH_RUN_DIR=str(self.agent.run_dir),
            BAROGRAPH_IO_LIBRARY=str(self.library / "libbaro_io.so"),
            PKG_CONFIG_PATH=str(self.library),
            LD_LIBRARY_PATH=str(self.library),
        )

    def here(self, text: str) -> str:
        """A piece with the places of this node."""
        for there, place in REPLACED.items():
            text = text.replace(there, place.format(**self.places))
        return text

    def runs(self, *command: object, given: str = "") -> str:
        """Runs a command with `given` as its input; returns its fault, empty if there is none."""
        done = subprocess.run(
            [*map(str, command)], cwd=self.folder, env=self.environment(), input=given,
            capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False,
        )  # fmt: skip
        # A statement on several nodes names them on standard error.
        told = "" if "--nodes" in str(command[-1]) else done.stderr
        return f"status {done.returncode}: {done.stderr}" if done.returncode or told else ""

    def follows(self, *command: object) -> str:
        """The same for a command that runs until it is stopped."""
        with subprocess.Popen(
            [*map(str, command)], cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                process.wait(FOLLOW_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(STOP_SECONDS_MAX)
            assert process.stderr
            return process.stderr.read()


@contextmanager
def reading(folder: Path, library: Path) -> Iterator[Reader]:
    """A reader beside an agent of the described node, with the program lulesh and a server of blocks
    running on it."""
    agent = Agent(folder, "--sys-root", whole_tree(folder), "--node", "node_1", config=CONFIGURATION)
    home = folder / "home"
    furnish(home)
    try:
        agent.start()
        places = {
            "port": agent.port,
            "run_dir": agent.run_dir,
            "archive": agent.archive_dir,
            "extension": SQLITE_SO,
            "weights": home / "weights.txt",
            "headers": home / "collector.headers",
        }
        reader = Reader(agent, home, library, places)
        env = reader.environment()
        blocks = [BARO, "stage", "serve", "--memory", "8MiB"]
        with (
            subprocess.Popen([sys.executable, "-c", LULESH], env=env) as lulesh,
            subprocess.Popen(blocks, env=env, stdout=subprocess.DEVNULL) as stage,
        ):
            try:
                eventually((agent.run_dir / "stage.sock").exists, "a server of blocks")
                eventually(lambda: all(map(agent.has, AWAITED)), f"all of {AWAITED}", 2 * PATIENCE_SECONDS)
                # Seals the archive, so that there are files for readers of files.
                agent.out("archive", "seal")
                yield reader
            finally:
                lulesh.kill()
                stage.kill()
    finally:
        agent.destroy()


@contextmanager
def reading_in_cluster(folder: Path, library: Path, address: str) -> Iterator[Reader]:
    """A reader on the node a of a cluster. On its other node, b, lulesh publishes for everyone."""
    agents = []
    for name in ("a", "b"):
        of_node = folder / name
        of_node.mkdir()
        where = ["--listen", address] if name == "a" else ["--listen", "127.0.0.1:0", "--peer", address]
        node = ["--sys-root", whole_tree(of_node), "--node", name, "--cluster", "rack1", *where]
        agents.append(Agent(of_node, *node, config=OF_CLUSTER))
    a, b = agents
    home = folder / "home"
    furnish(home)
    try:
        a.start()
        b.start()
        reader = Reader(a, home, library, {"port": a.port, "run_dir": a.run_dir} | dict.fromkeys(ELSEWHERE, ""))
        beside_b = reader.environment() | {"BAROGRAPH_RUN_DIR": str(b.run_dir)}
        public = LULESH.replace('application="lulesh"', 'application="lulesh", readers="all"')
        with subprocess.Popen([sys.executable, "-c", public], env=beside_b) as lulesh:
            try:
                for name in ("app.lulesh.residual", "disk.busy.ratio{device=vda}", "tier.available.bytes"):
                    mirrored = ("latest", name, "--node", "b")
                    eventually(lambda of=mirrored: a.run(*of).returncode == 0, f"{name} of b", 2 * PATIENCE_SECONDS)
                yield reader
            finally:
                lulesh.kill()
    finally:
        for agent in agents:
            agent.destroy()


def furnish(home: Path) -> None:
    """Makes the files that the documents use: `baro`, a program of the reader's, and others."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "baro").symlink_to(BARO)
    # An answer that is an error shall be visible in the exit status.
    (home / ".curlrc").write_text("silent\nshow-error\nfail\n")
    for name in ("program", "program_without_a_change"):
        (home / name).write_text("#!/bin/sh\nexec dd if=/dev/zero of=written bs=4096 count=16 status=none\n")
        (home / name).chmod(0o755)
    shutil.copy(ROOT / "examples" / "kokkos" / "kp_barograph.c", home)
    (home / "collector.headers").write_text("Authorization: Bearer secret\n")
    (home / "collector.headers").chmod(0o600)
    (home / "ramp.csv").write_text(baro("lab", "make", "ramp", "--seconds", 600).stdout)
    train = ("forecast", "train", "--traces", home / "ramp.csv", "--examples", 1000, "--out", home / "weights.txt")
    assert baro(*train).returncode == 0
