"""The evaluation of staging with real processes: what it counts, and what its page says of it."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
from collections.abc import Iterator

import pytest
import staging_evaluation as evaluation
import staging_loss as loss
import staging_page as page
import staging_ranks as ranks
import staging_rates as rates
import staging_servers as servers
import staging_tiers as tiers
from staging_ranks import Written

KEY = (2, 7)


@pytest.mark.parametrize(
    ("found", "expect"),
    [
        (loss.content(*KEY, 5), "good"),
        (loss.content(*KEY, 6), "good"),
        (loss.content(*KEY, 7), "wrong"),
        (loss.content(*KEY, 4), "stale"),
        (loss.content(2, 8, 5), "wrong"),
        (loss.content(*KEY, 5)[:-1] + b"\x00", "wrong"),
        (loss.content(*KEY, 5)[:100], "wrong"),
        (b"", "wrong"),
        ("not_found", "lost"),
        ("not_known", "lost"),
        ("unconfirmed", "unreadable"),
    ],
)
def test_what_became_of_a_block(found: bytes | str, expect: str) -> None:
    assert loss.fate_of(found, KEY, acknowledged=5, tried=6) == expect


def test_versions_of_a_block_have_other_bytes() -> None:
    assert len({loss.content(1, 1, version)[32:] for version in range(100)}) == 100
    assert all(len(loss.content(n, 70_000, 9)) == loss.BLOCK_BYTES for n in range(3))


class Kept:
    """A way to blocks that are in memory."""

    def __init__(self, blocks: dict[loss.Key, bytes]) -> None:
        self.blocks = blocks

    def put(self, key: loss.Key, version: int, data: bytes) -> str | None:
        raise NotImplementedError

    def get(self, key: loss.Key) -> bytes | str:
        return self.blocks.get(key, "not_found")


def test_losses_and_times_are_counted() -> None:
    puts = loss.Puts({(0, 1): 3, (0, 2): 4, (0, 3): 5}, {(0, 1): 3, (0, 2): 9, (0, 3): 5})
    puts.good, puts.bad, puts.reasons = [1.0, 9.0, 12.5, 21.0], [10.5, 11.0, 20.25], {"too_few": 3}
    blocks = {(0, 1): loss.content(0, 1, 2), (0, 2): loss.content(0, 2, 9)}
    told = loss.compared([puts], Kept(blocks), [10.0, 20.0, 30.0])
    assert {name: told[name] for name in ("blocks", "lost", "stale", "wrong", "unreadable")} == {
        "blocks": 3,
        "lost": 1,
        "stale": 1,
        "wrong": 0,
        "unreadable": 0,
    }
    assert (told["acknowledged"], told["refused"], told["reasons"]) == (4, 3, {"too_few": 3})
    assert told["first_seconds"] == [2.5, 1.0, None]
    assert told["all_seconds"] == [1.0, 0.25, 0.0]


@pytest.fixture
def pair() -> Iterator[tuple[servers.Redis, socket.socket]]:
    """A client of Redis, and the socket of who answers it."""
    here, there = socket.socketpair()
    client = servers.Redis.__new__(servers.Redis)
    client.socket, client.rest = here, b""
    yield client, there
    here.close()
    there.close()


def test_redis_is_asked_and_understood(pair: tuple[servers.Redis, socket.socket]) -> None:
    client, server = pair
    client.send(b"SET", b"key", memoryview(b"a\r\nb"))
    assert server.recv(100) == b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$4\r\na\r\nb\r\n"
    server.sendall(b"+OK\r\n:1\r\n$4\r\na\r\nb\r\n$-1\r\n$2\r\nhi\r\n-ERR no\r\n$9\r\n")
    memory = memoryview(bytearray(8))
    assert client.line() == b"+OK" and client.line() == b":1"
    assert client.bulk_into(memory) == 4 and bytes(memory[:4]) == b"a\r\nb"
    assert client.bulk_into(memory) is None
    assert client.call(b"GET") == b"hi"
    with pytest.raises(servers.RedisError, match="ERR no"):
        client.line()
    with pytest.raises(servers.RedisError, match="9 bytes, and room for 8"):
        client.bulk_into(memory)
    server.close()
    with pytest.raises(ConnectionResetError):
        client.line()


def test_a_replica_counts_when_its_master_sends_to_it() -> None:
    told = "# Replication\r\nslave0:ip=127.0.0.1,port=1,state={},offset=90,lag=0\r\nmaster_repl_offset:100\r\n"
    assert servers.replication_of(told.format("online")) == (100, 90)
    assert servers.replication_of(told.format("send_bulk")) == (100, None)
    assert servers.replication_of("role:master\r\nmaster_repl_offset:0\r\n") == (0, None)


def test_large_blocks_of_redis_go_in_parts(pair: tuple[servers.Redis, socket.socket]) -> None:
    client, server = pair
    data = random.Random(1).randbytes(3 << 20)
    got = bytearray()

    def serve() -> None:
        whole = len(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3145728\r\n\r\n") + len(data)
        while len(got) < whole:
            got.extend(server.recv(1 << 20))
        server.sendall(b"$%d\r\n" % len(data) + data + b"\r\n+OK\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    client.send(b"SET", b"k", memoryview(data))
    memory = memoryview(bytearray(len(data)))
    assert client.bulk_into(memory) == len(data) and memory == data
    assert client.line() == b"+OK"
    thread.join()
    assert got.endswith(data + b"\r\n")


@pytest.mark.parametrize(
    ("free", "turn", "expect"),
    [([9, 9, 9], 4, 1), ([9, 0, 9], 4, 2), ([8, 7, 7], 4, 0), ([7, 7, 7], 4, 3)],
)
def test_round_robin_by_room(free: list[int], turn: int, expect: int) -> None:
    assert ranks.next_with_room(free, turn, 8) == expect


def test_others_take_their_share_in_each_period() -> None:
    times = ranks.others_requests(random.Random(3), 50e6, 60)
    assert (
        times == ranks.others_requests(random.Random(3), 50e6, 60) != ranks.others_requests(random.Random(4), 50e6, 60)
    )
    for period in range(10):
        begin = period * ranks.OTHERS_PERIOD_SECONDS
        inside = [at for at in times if begin <= at < begin + ranks.OTHERS_PERIOD_SECONDS]
        rate = len(inside) * ranks.PIECE_BYTES / ranks.OTHERS_ON_SECONDS
        assert 0.27 * 50e6 <= rate <= 0.8 * 50e6 and inside[-1] - inside[0] <= ranks.OTHERS_ON_SECONDS
    assert ranks.others_requests(random.Random(3), 50e6, 0) == []


def test_io_time_is_that_of_the_last_of_each_step() -> None:
    first = [Written(0, 10.0, 12.0, 0, 0.5, 0.0), Written(1, 20.0, 21.0, 1, 0.1, 0.0)]
    second = [Written(0, 10.5, 11.0, 2, 0.1, 0.2), Written(1, 20.5, 24.0, 2, 0.3, 0.0)]
    told = tiers.figures([first, second], 3)
    assert (told["io_seconds"], told["steps"]) == (6.0, [2.0, 4.0])
    assert (told["targets"], told["waits"], told["unasked_seconds"]) == ([1, 1, 2], 1, pytest.approx(1.5 + 3.2))
    assert told["asked_share_last"] == pytest.approx(0.8 / 6) and told["asked_share"] == pytest.approx(1.0 / 7)


def test_measurements_are_bounded_and_go_over_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "SLOT_SECONDS", 0.0)
    asked: list[int] = []
    seconds = rates.timed(lambda number, _: asked.append(number), memoryview(b""), 3, 4)
    assert len(seconds) == rates.OPERATIONS[0]
    assert asked == [(3 + at) % 4 for at in range(rates.WARM_UP + len(seconds))]
    row = rates.row(rates.Case("a", "A", lambda *_: None, lambda *_: None), 100, "get", 2, [1.0, 3.0, 2.0])
    assert (row["median_s"], row["p99_s"], row["bytes_per_second"]) == (2.0, 3.0, 50.0)


def test_copies_in_memory_and_files_give_back_what_was_put(tmp_path: os.PathLike[str]) -> None:
    memory = rates.Memory(1 << 20)
    data, back = memoryview(bytearray(os.urandom(1 << 20))), memoryview(bytearray(1 << 20))
    memory.put(5, data)
    memory.get(5, back)
    assert back == data
    other = memoryview(bytearray(1 << 20))
    rates.put_file(tmp_path, 1, data)  # type: ignore[arg-type]
    rates.get_file(tmp_path, 1, other)  # type: ignore[arg-type]
    assert other == data and os.listdir(tmp_path) == ["1"]


def loss_run(kind: str, **more: object) -> dict[str, object]:
    """What a run of kills has told."""
    counts = dict.fromkeys(("lost", "stale", "wrong", "unreadable"), 0)
    told = {"kind": kind, "title": kind, "acknowledged": 90, "blocks": 40, "refused": 3, "reasons": {"too_few": 3}}
    times = {"first_seconds": [0.01, None], "all_seconds": [0.4, 0.0], "repair_seconds": [1.0], "load": [1.0, 2.0]}
    return told | counts | times | more


def rate_rows(slow: float) -> list[dict[str, object]]:
    """Rows in which staging takes so many times as long as the others."""
    return [
        {"case": case, "size": size, "direction": direction, "repeat": repeat, "count": 9}
        | {"least_s": time / 2, "median_s": time, "p99_s": 2 * time, "bytes_per_second": size / time}
        for case in (
            "staging",
            "staging-tcp",
            "redis-tcp",
            "redis-unix",
            "tmpfs",
            "memcpy",
            "staging-hot",
            "memcpy-hot",
        )
        for size in rates.SIZES
        for direction in ("put", "get")
        for repeat in range(2)
        for time in [1e-3 * (slow if case.startswith("staging") else 1)]
    ]


def results(slow: float = 1.0, ours: float = 5.0) -> dict[str, object]:
    """Results of all parts."""
    titles = {row["case"]: row["case"] for row in rate_rows(1)}
    run = {"targets": [1, 2, 3, 4], "waits": 0, "load": [0.5, 1.5], "asked_seconds": [0.001, 0.002]}
    runs = [
        run
        | {
            "policy": policy,
            "repeat": repeat,
            "io_seconds": ours if policy.startswith("ours") else 10.0,
            "unasked_seconds": 3.0,
        }
        | {"asked_share": 0.01, "asked_share_last": 0.02}
        for policy in tiers.POLICIES
        for repeat in range(2)
    ]
    return {
        "machine": evaluation.machine() | {"processors": 4},
        "loss": {
            "build": "debug",
            "module_build": "release",
            "settings": evaluation.loss_settings(4),
            "runs": [loss_run("staging-again"), loss_run("redis", lost=7)],
        },
        "rates": {
            "build": "release",
            "module_build": "release",
            "cold_bytes": 1 << 27,
            "blocks_max": 2048,
            "titles": titles,
            "repeats": 2,
            "loads": [1.0],
            "rows": rate_rows(slow),
        },
        "tiers": tiers.settings() | {"build": "release", "module_build": "release", "repeats": 2, "runs": runs},
    }


@pytest.fixture(autouse=True)
def redis_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version, also where Redis is not installed."""
    monkeypatch.setattr(servers, "redis_version", lambda: "7.0.15")


def test_the_page_says_what_was_reached_and_what_was_not() -> None:
    text = page.page(results())
    assert "| redis | 90 | 40 | 7 | 0 | 0 | 0 | 3 | 10 / never | 200 / 400 | 1.0 / 1.0 |" in text
    assert "killed at any moment: reached (0 of 40" in text
    line = "| get of 1 MiB on the node, by memcpy | <= 1.5 | {0} ({0} to {0}) | {0} ({0} to {0}) | {1} |"
    assert line.format("1.00", "reached") in text
    assert "one question for all ranks | round robin, blind | 50.0 (50.0 to 50.0) | 2 of 2 | gain |" in text
    assert (
        "| 2.0 | 2.0 | 2.0 | 1.0 (1.0 to 1.0) | 2.0 (2.0 to 2.0) | 3.00 (3.00 to 3.00) | 0.30 (0.30 to 0.30) |" in text
    )
    assert "{" not in text and "busy with other work" not in text
    bad = results(slow=2.0, ours=11.0)
    bad["loss"]["runs"][0]["lost"] = 1  # type: ignore[index]
    text = page.page(bad)
    assert "killed at any moment: **missed** (1 of 40" in text
    assert line.format("2.00", "**missed**") in text
    bad["rates"]["loads"] = [100.0 * (os.cpu_count() or 1)]  # type: ignore[index]
    text = page.page(bad)
    assert line.format("2.00", "**missed**, by least times") in text and "**It was busy with other work**" in text
    assert "| ours, a question of each rank | round robin, blind | -10.0 (-10.0 to -10.0) | 0 of 2 | **loss** |" in text


def test_long_lines_are_wrapped_but_those_of_tables() -> None:
    long = " ".join(["word"] * 40)
    text = page.wrapped(f"* {long}\n  {long}\n{long}\n| {long} |\nshort")
    lines = text.split("\n")
    assert [line[:6] for line in lines] == ["* word", "  word"] + ["  word"] * 2 + ["word w"] * 2 + ["| word", "short"]
    assert max(len(line) for line in lines if not line.startswith("|")) <= page.COLUMNS


def test_parts_that_are_missing_are_named() -> None:
    only = results()
    del only["tiers"], only["rates"]
    text = page.page(only)
    assert "The part `tiers` was not measured." in text and "The part `loss`" not in text


@pytest.mark.parametrize(
    ("gains", "expect"),
    [([0.1, 0.02], "gain"), ([0.1, 0.001], "**nothing**"), ([-0.1, -0.02], "**loss**"), ([0.1, -0.1], "**nothing**")],
)
def test_gains_are_those_of_each_repeat(gains: list[float], expect: str) -> None:
    assert page.judged(gains) == expect


def test_data_come_back_as_they_were() -> None:
    found = results()
    assert json.loads(evaluation.as_text(found)) == json.loads(json.dumps(found))
