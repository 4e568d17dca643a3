"""Figures of clusters on this machine: what an agent costs beside how many others, how soon a node that
stops is seen, and how long a query of all nodes takes.

    python3 scripts/cluster_figures.py target/release/baro --agents 1,8,16
    python3 scripts/cluster_figures.py target/release/baro --agents 64 --star

For each number it starts `baro cluster run`, waits until every agent mirrors all others, measures for
a while, stops one agent (SIGSTOP) until the others see it, and lets it go on. It prints a table in
Markdown. Nothing else should run on the machine. With `--star` every agent mirrors the first one alone, as
the leaves of a tree do, and the first serves all others.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TICKS_S = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 300.0
LOOK_S = 0.02
HEAD = [
    "agents", "mirrored streams", "CPU of an agent, % of a core", "memory of an agent, MB (PSS)",
    "mirrors of an agent, MB of shared memory", "query of 1 table on one node, ms", "on all nodes",
    "query of 8 tables on one node, ms", "on all nodes", "a stopped node is seen gone, s", "and back, s", "load",
]
# Queries of each kind whose median is taken.
QUERIES = 40


class Cluster:
    """`baro cluster run`, which is stopped at the end."""

    def __init__(self, baro: Path, agents: int, folder: Path, is_star: bool) -> None:
        self.baro = baro
        self.agents = agents
        self.is_star = is_star
        self.first = folder / "run"
        ports = free_ports(agents)
        command = [baro, "cluster", "run", str(agents), "--run-dir", self.first, "--port", str(ports), "--http-port", str(ports + agents)]
        if is_star:
            config = folder / "star.toml"
            config.write_text('[cluster]\nmirror_nodes = ["node1"]\n')
            command += ["--config", config]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(folder)})

    def run_dir(self, number: int) -> Path:
        """The run directory of an agent, counted from 1."""
        return self.first if number == 1 else self.first.with_name(f"{self.first.name}-{number}")

    def ask(self, *arguments: str, number: int = 1) -> Any:
        """The answer of a command to one agent; nothing if it fails."""
        command = [self.baro, *arguments, "--run-dir", self.run_dir(number), "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def query_ms(self, sql: str, nodes: str) -> float:
        """The median time of a statement on nodes, over the socket of the first agent."""
        body = sql.encode()
        head = f"POST /api/v1/nodes/sql?nodes={nodes} HTTP/1.1\r\nHost: baro\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        times = []
        for _ in range(QUERIES):
            began = time.monotonic()
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(str(self.first / "read.sock"))
                one.sendall(head.encode() + body)
                answer = b"".join(iter(lambda: one.recv(1 << 16), b""))
            times.append(1000 * (time.monotonic() - began))
            states = {node["state"] for node in json.loads(answer.split(b"\r\n\r\n", 1)[1])["nodes"]}
            if states != {"answered"}:
                raise SystemExit(f"not every node has answered: {answer!r}")
        return statistics.median(times)

    def pids(self) -> list[int]:
        """The processes of all agents."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def stop(self) -> None:
        """Stops all agents in order."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE_S)


def free_ports(agents: int) -> int:
    """The first of so many ports for other nodes, and so many of HTTP, that are free now."""
    for first in range(21_000, 60_000, 2 * agents):
        try:
            for port in range(first, first + 2 * agents):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise SystemExit("there are not so many free ports")


def eventually(look: Callable[[], bool], what: str) -> float:
    """Waits until `look` holds; returns the seconds that it took."""
    began = time.monotonic()
    while not look():
        if time.monotonic() - began > PATIENCE_S:
            raise SystemExit(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(LOOK_S)
    return time.monotonic() - began


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def pss_mb(pid: int) -> float:
    """Memory of a process, with its share of what others share, in MB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(kib) * 1024 / 1e6


def mirrors_mb(run_dir: Path) -> float:
    """Shared memory that the mirrors in a run directory take, in MB."""
    files = [path for path in run_dir.glob("nodes/**/*") if path.is_file()]
    return sum(path.stat().st_blocks * 512 for path in files) / 1e6


def measure(cluster: Cluster, seconds: float) -> list[str]:
    """A row of the table."""
    others = cluster.agents - 1

    def peers(number: int) -> list[dict[str, Any]]:
        return cluster.ask("node", "list", number=number) or []

    def is_mirrored(peer: dict[str, Any]) -> bool:
        return peer["samples"] > 0 or (cluster.is_star and peer["node"] != "node1")

    def is_whole(number: int) -> bool:
        return sum(peer["state"] == "connected" and is_mirrored(peer) for peer in peers(number)) == others

    for number in range(1, cluster.agents + 1):
        eventually(lambda number=number: is_whole(number), f"agent {number} mirrors all others")
    time.sleep(seconds / 3)
    pids = cluster.pids()
    before = [cpu_s(pid) for pid in pids]
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    shares = [100 * (cpu_s(pid) - was) / took for pid, was in zip(pids, before, strict=True)]
    memory = [pss_mb(pid) for pid in pids]
    load = os.getloadavg()[0]
    streams = sum(peer["streams"] for peer in peers(1))
    tables = [row["name"] for row in cluster.ask("sql", "SELECT name FROM tables WHERE name LIKE 'memory_%' OR name LIKE 'cpu_%' LIMIT 8")]
    one, eight = (" UNION ALL ".join(f"SELECT max(ts), '{name}' FROM {name}" for name in tables[:count]) for count in (1, 8))
    queries = [cluster.query_ms(sql, nodes) for sql in (one, eight) for nodes in ("node1", "")]
    row = [str(cluster.agents), str(streams), f"{statistics.median(shares):.2f}", f"{statistics.median(memory):.1f}", f"{mirrors_mb(cluster.first):.1f}"]
    row += [f"{took:.2f}" for took in queries]
    if others == 0:
        return [*row, "", "", f"{load:.1f}"]
    last = f"node{cluster.agents}"

    def state() -> str:
        return next((peer["state"] for peer in peers(1) if peer["node"] == last), "")

    agent = cluster.ask("status", number=cluster.agents)["pid"]
    os.kill(agent, signal.SIGSTOP)
    gone = eventually(lambda: state() == "gone", "it is gone")
    os.kill(agent, signal.SIGCONT)
    back = eventually(lambda: state() == "connected", "it is back")
    return [*row, f"{gone:.1f}", f"{back:.1f}", f"{load:.1f}"]


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baro", type=Path, help="the program")
    parser.add_argument("--agents", default="1,8,64", help="numbers of agents, with commas")
    parser.add_argument("--seconds", type=float, default=30.0, help="time for which each is measured")
    parser.add_argument("--star", action="store_true", help="every agent mirrors the first alone")
    given = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |")
    print("|" + " --- |" * len(HEAD), flush=True)
    for agents in [int(number) for number in given.agents.split(",")]:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            cluster = Cluster(given.baro.resolve(), agents, Path(folder), given.star)
            try:
                row = measure(cluster, given.seconds)
            finally:
                cluster.stop()
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
