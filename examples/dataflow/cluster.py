"""An emulated cluster on one machine: a real server of staging for each node, which the processes of the node
reach by shared memory, and those of other nodes by TCP over emulated links."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from pathlib import Path

from links import Links

import barograph


class Cluster:
    """Nodes 0, 1 and so on, each with `baro stage serve`. To be used in a `with`."""

    def __init__(self, folder: Path, nodes: int, link_bytes_s: float, memory: str = "1GiB", baro: str = "") -> None:
        self.nodes = nodes
        self.link_bytes_s = link_bytes_s
        self._processes: list[subprocess.Popen[str]] = []
        self._sockets = [folder / f"node{node}.sock" for node in range(nodes)]
        # Letters: an end that is white space is not taken as a part of a token.
        self._token = secrets.token_hex(32).encode()
        tokens = folder / "tokens"
        tokens.mkdir(mode=0o700)
        token = tokens / str(os.getuid())
        token.touch(mode=0o600)
        token.write_bytes(self._token)
        for socket in self._sockets:
            command = [baro or os.environ.get("BARO_BIN", "baro"), "stage", "serve", "--json", "--memory", memory]
            command += ["--socket", str(socket), "--tcp", "127.0.0.1:0", "--tokens", str(tokens)]
            beside = {**os.environ, "BAROGRAPH_RUN_DIR": str(folder / "run")}
            self._processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=beside))
        servers = []
        for process in self._processes:
            assert process.stdout
            host, _, port = json.loads(process.stdout.readline())["tcp"].rpartition(":")
            servers.append((host, int(port)))
        self.links = Links(servers, link_bytes_s)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.links.stop()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(timeout=60)
            assert process.stdout
            process.stdout.close()

    def servers(self, node: int) -> dict[int, str | os.PathLike[str]]:
        """The server of each node, as processes of a node reach it."""
        servers: dict[int, str | os.PathLike[str]] = {node: self._sockets[node]}
        return servers | {of: self.links.address(of, node) for of in range(self.nodes) if of != node}

    def client(self, node: int, of: int) -> barograph.StagingClient:
        """A client in a process of a node for the blocks of one server."""
        return barograph.StagingClient({of: self.servers(node)[of]}, token=self._token, timeout=60.0)

    def all(self) -> barograph.StagingClient:
        """A client that asks all servers, beside the links: for where files are."""
        return barograph.StagingClient(self._sockets, timeout=60.0)

    def store(self, of: int) -> barograph.StagingClient:
        """A client beside a server, for files that are there before and after a run."""
        return barograph.StagingClient({of: self.servers(of)[of]}, timeout=60.0)
