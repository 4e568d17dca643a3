"""Two users of one node: hostile requests of one cost the other, and the sampling, little."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import QUICK, Agent, Answer, eventually

STRANGER = 65534
MIB = 1 << 20
# Most memory of an agent with the default configuration, beyond that of an idle one.
MEMORY_MAX = 192 * MIB

# A statement whose answer has so many rows of some 220 bytes.
ROWS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT {}) "
    "SELECT i, printf('%0200d', i) AS t FROM n"
)
# Nearly twice as much as all answers of one user may hold at once.
LARGE = ROWS.format(300_000)
LETTERS = "printf('%.*c', 1000000, 'a')"
HOSTILE = [
    f"SELECT instr({LETTERS}, substr({LETTERS}, 500000) || 'b')",
    f"SELECT replace({LETTERS}, substr({LETTERS}, 500000) || 'b', '')",
    f"SELECT {LETTERS} LIKE '%a%a%a%a%a%b'",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n",
]


def memory(agent: Agent, field: str) -> int:
    """The value of a line of the agent's /proc/<pid>/status, in bytes."""
    assert agent.process
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def deaf(agent: Agent, statement: str) -> socket.socket:
    """Sends a query over TCP and reads nothing."""
    raw = socket.create_connection(("127.0.0.1", agent.port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = statement.encode()
    head = f"POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    raw.sendall(head.encode() + body)
    return raw


def test_slow_readers_of_large_answers_hold_a_bounded_memory(start: Callable[..., Agent]) -> None:
    # A busy machine may need long for few rows, since threads of queries have the lowest priority.
    agent = start(config=f"{QUICK}[query]\nseconds_max = 60.0\n")
    agent.post_sql("SELECT 1 AS x")
    quiet = memory(agent, "VmRSS")
    readers = [deaf(agent, LARGE) for _ in range(6)]
    polls = "SELECT sum(value) AS n FROM source_polls_count WHERE newest"
    before = agent.sql(polls)[0]["n"]
    eventually(lambda: agent.sql(polls)[0]["n"] > before + 100, "sampling goes on beside slow readers")
    assert memory(agent, "VmHWM") < quiet + MEMORY_MAX
    # Control requests have memory, places and turns of their own.
    control = agent.request("POST", "/api/v1/sql", "SELECT 1 AS x", "control.sock")
    assert control.status == 200 and control.json == [{"x": 1}]
    for reader in readers:
        reader.close()
    eventually(lambda: memory(agent, "VmRSS") < quiet + 48 * MIB, "the memory is given back", 60)

    # The places and the memory of readers that left are free once the agent has noticed. The answer
    # that needs them has two pieces: a large one would take longer than a statement and a request
    # may on a busy machine, whatever is free.
    def answer() -> Answer | None:
        try:
            given = agent.post_sql(ROWS.format(2_000))
        except http.client.IncompleteRead:
            return None
        return given if given.status == 200 else None

    assert len(eventually(answer, "room for an answer", 120).json) == 2_000


@pytest.fixture
def reachable() -> Iterator[Agent]:
    """An agent in a directory that other users can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="barograph-test-") as place:
        folder = Path(place)
        folder.chmod(0o755)
        agent = Agent(folder, config=QUICK)
        try:
            yield agent.start()
        finally:
            agent.destroy()


ASK = """
import http.client, json, os, socket, sys
path, uid, statement = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.setresuid(uid, uid, uid)
connection = http.client.HTTPConnection("localhost", timeout=60)
connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.sock.connect(path)
connection.request("POST", "/api/v1/sql", statement, {"Connection": "close"})
answer = connection.getresponse()
print(json.dumps([answer.status, answer.read()[:1000].decode()]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_hostile_statements_of_one_user_leave_another_a_thread(reachable: Agent) -> None:
    agent = reachable

    def ask_as(uid: int, statement: str) -> tuple[int, str]:
        command = [sys.executable, "-c", ASK, str(agent.run_dir / "read.sock"), str(uid), statement]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        status, text = json.loads(done.stdout)
        return status, text

    over = threading.Event()
    answers: list[tuple[int, str]] = []

    def hostile(statement: str) -> None:
        while not over.is_set():
            answers.append(ask_as(STRANGER, statement))

    threads = [threading.Thread(target=hostile, args=[statement]) for statement in HOSTILE]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            assert ask_as(12345, "SELECT 1 AS x") == (200, '[{"x":1}]')
    finally:
        over.set()
        for thread in threads:
            thread.join()
    # Each call was answered in the end: by the bound of its work, by the limit of time of the
    # statement or of the request, or since the user asks too much.
    assert answers and all(status in (200, 408, 422, 503) for status, _ in answers), answers
