"""Blocks of staging, at real servers: what programs rely on whatever happens around them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from conftest import StageServer

import barograph

MIB = 1 << 20
# Longer than any test: what is said at once is said before.
HOUR = 3600.0
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "staging-programs.md"


@pytest.fixture
def stage(stage_server: StageServer) -> barograph.StagingClient:
    return barograph.StagingClient([stage_server.socket], timeout=HOUR)


def test_blocks_of_all_lengths_come_back(stage: barograph.StagingClient) -> None:
    for number, length in enumerate((0, 1, 4_097, MIB)):
        data = os.urandom(length)
        key = ("data", number)
        version = stage.put(key, data)
        assert stage.get(key) == data
        known = stage.stat(key)
        assert (known.key, known.nbytes, known.version) == (key, length, version)
        assert (known.checksum, known.is_confirmed, known.epoch) == (zlib.crc32(data), True, 0)
        with stage.map(key) as block:
            assert bytes(block.view) == data and len(block) == length
            assert block.is_valid and block.is_shared and block.info.version == version
        memory = bytearray(length)
        assert stage.get_into(key, memory) == length and memory == data
        assert stage.remove(key)
        assert not stage.remove(key)
        with pytest.raises(barograph.BlockNotFoundError) as gone:
            stage.get(key)
        assert (gone.value.code, gone.value.number) == ("not_found", 0)


def test_arrays_go_in_and_out_without_a_copy(stage: barograph.StagingClient) -> None:
    field = np.arange(1 << 17, dtype="f8").reshape(256, 512)
    stage.put(("run", "pressure"), field)
    with stage.map(("run", b"pressure")) as block:
        seen = np.frombuffer(block, dtype="f8")
        assert (seen == field.ravel()).all() and not seen.flags.writeable
        assert block.view.readonly and block.is_valid
        with pytest.raises(TypeError):
            block.view[0] = 1
    # What is kept of it stays readable after its end.
    assert seen[-1] == field[-1, -1]
    with pytest.raises(ValueError, match="released"):
        _ = block.view
    with pytest.raises(BufferError, match="released"):
        memoryview(block)
    read = np.zeros_like(field)
    assert stage.get_into(("run", "pressure"), read) == field.nbytes
    assert (read == field).all()
    with pytest.raises(barograph.StagingError) as short:
        stage.get_into(("run", "pressure"), bytearray(10))
    assert (short.value.code, short.value.number) == ("too_long", field.nbytes)
    with pytest.raises(TypeError, match="only be read"):
        stage.get_into(("run", "pressure"), b"1234")
    for odd in (field[:, ::2], field.T):
        with pytest.raises(ValueError, match="contiguous"):
            stage.put(("run", "odd"), odd)
    assert stage.counts()["gets_mapped"] == 1


def test_a_block_that_was_evicted_or_replaced_is_not_valid(stage: barograph.StagingClient) -> None:
    first, second = os.urandom(MIB), os.urandom(MIB)
    stage.put(("data", 2), first)
    replaced = stage.map(("data", 2))
    assert replaced.is_valid and replaced.is_shared
    stage.put(("data", 2), second)
    assert not replaced.is_valid
    stage.put(("data", 1), first, refetch=1e-6)
    evicted = stage.map(("data", 1))
    seen = np.frombuffer(evicted, dtype="u1")
    for number in range(1_000):
        if not evicted.is_valid:
            break
        stage.put(("others", number), second, wait=60)
    assert not evicted.is_valid and evicted.is_shared
    del stage
    # No crash, and nothing that counts.
    assert seen.sum() >= 0 and len(bytes(replaced.view)) == MIB


def test_lists_are_sorted_and_begin_with_what_is_asked_for(stage: barograph.StagingClient) -> None:
    for key in (("b", 7), ("a/1", "x"), ("a/1", 2**64 - 1), ("a/2", b"\xff")):
        stage.put(key, b"1")
    keys = [block.key for block in stage.list()]
    assert keys == [("a/1", 2**64 - 1), ("a/1", b"x"), ("a/2", b"\xff"), ("b", 7)]
    assert [block.key for block in stage.list("a/")] == keys[:3]
    assert [block.key for block in stage.list("a", "x")] == [("a/1", b"x")]
    assert list(stage.list("c")) == []
    # More than one page.
    for number in range(1_500):
        stage.put(("many", number), b"")
    assert [block.key[1] for block in stage.list("many")] == list(range(1_500))


def test_versions_only_grow(stage: barograph.StagingClient) -> None:
    assert stage.put(("data", 1), b"5", version=5) == 5
    with pytest.raises(barograph.StagingError) as old:
        stage.put(("data", 1), b"4", version=4)
    assert (old.value.code, old.value.number) == ("old_version", 5)
    with pytest.raises(barograph.StagingError) as old:
        stage.remove(("data", 1), version_max=4)
    assert old.value.code == "old_version"
    for content in (b"a", b"b", b"c"):
        stage.put(("data", 1), content)
        assert stage.get(("data", 1)) == content


def test_what_makes_no_sense_is_an_error(stage: barograph.StagingClient, tmp_path: Path) -> None:
    for servers in ([], ["relative/socket"], ["host:7400"], {}, ["1=/a", "1=/b"]):
        with pytest.raises(ValueError):
            barograph.StagingClient(servers)
    for servers in ("/a/socket", [7], None):
        with pytest.raises(TypeError):
            barograph.StagingClient(servers)  # type: ignore[arg-type]
    for setting in ({"replicas": 0}, {"timeout": -1.0}, {"timeout": float("nan")}):
        with pytest.raises(ValueError):
            barograph.StagingClient([tmp_path / "socket"], **setting)  # type: ignore[arg-type]
    for key in (("", 1), ("a\n", 1), ("data", "n" * 4_097), ("data", -1), ("data", 2**64)):
        with pytest.raises(ValueError):
            stage.put(key, b"1")
    for key in ("data", ("data",), ("data", 1.5), (1, 1), None):
        with pytest.raises(TypeError):
            stage.get(key)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        stage.put(("data", 1), 7)  # type: ignore[arg-type]


def test_a_server_that_was_restarted_is_found_again(
    stage: barograph.StagingClient, stage_server: StageServer
) -> None:
    data = os.urandom(MIB)
    stage.put(("data", 1), data)
    assert stage.get(("data", 1)) == data
    stage_server.stop()
    for act in (stage.get, stage.stat, stage.map, stage.remove, lambda key: stage.put(key, b"1")):
        with pytest.raises(barograph.StagingError) as gone:
            act(("data", 1))
        assert gone.value.code in ("unreachable", "too_few")
    with pytest.raises(barograph.StagingError):
        list(stage.list())
    stage_server.start()
    assert stage.get(("data", 1)) == data


def test_a_block_has_its_replicas_and_goes_on_without_one(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    servers = [StageServer(folder) for folder in folders]
    try:
        numbered = {10 + at: server.socket for at, server in enumerate(servers)}
        stage = barograph.StagingClient(numbered, replicas=2, timeout=HOUR)
        for number in range(20):
            stage.put(("data", number), bytes([number]))
        servers[1].stop()
        for number in range(20):
            assert stage.get(("data", number)) == bytes([number])
        assert len(list(stage.list())) == 20
    finally:
        for server in servers:
            server.stop()


def test_where_blocks_are_is_told_for_many_at_once(stage_server: StageServer, tmp_path: Path) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    second = StageServer(folder)
    stage = barograph.StagingClient([stage_server.socket, second.socket], replicas=2, timeout=HOUR)
    try:
        for number in range(10):
            stage.put(("data", number), bytes(number), version=5)
        stage.get(("data", 9))
        found = stage.locate([("data", number) for number in range(11)])
    finally:
        second.stop()
    assert (found.epoch, found.unreachable) == (0, [])
    assert [block.key for block in found.blocks] == [("data", number) for number in range(11)]
    for number, block in enumerate(found.blocks[:10]):
        assert sorted(replica.server for replica in block.replicas) == [0, 1]
        first = block.replicas[0]
        assert (first.version, first.nbytes, first.tier) == (5, number, "memory")
        assert first.is_confirmed and first.is_on_node
    read = [replica.read_s for replica in found.blocks[9].replicas]
    assert read[0] is not None and read[0] > 0, "the one that was read comes first"
    assert found.blocks[10].replicas == []
    with pytest.raises(TypeError, match="tuple"):
        stage.locate(["data"])  # type: ignore[list-item]
    found = stage.locate([("data", 1)])
    assert found.unreachable == [1]
    assert [replica.server for replica in found.blocks[0].replicas] == [0]


def test_an_epoch_that_is_over_is_refused(stage_server: StageServer) -> None:
    stage = barograph.StagingClient([stage_server.socket], timeout=0.05)
    stage.put(("data", 1), b"1")
    stage_server.tell("epoch 4 stayed", "told 4")
    with pytest.raises(barograph.StagingError) as fenced:
        stage.get(("data", 1))
    assert (fenced.value.code, fenced.value.number) == ("fenced", 4)
    stage.set_servers([stage_server.socket], epoch=4)
    assert stage.get(("data", 1)) == b"1"


def test_a_stranger_in_the_place_of_a_server_is_none(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()

        def answer() -> None:
            while True:
                try:
                    with listener.accept()[0] as connection:
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                except OSError:
                    return

        thread = threading.Thread(target=answer)
        thread.start()
        stage = barograph.StagingClient([tmp_path / "socket"], timeout=HOUR)
        with pytest.raises(barograph.StagingError) as nonsense:
            stage.get(("data", 1))
        assert nonsense.value.code == "unreachable"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


FORKS = """
import os, sys, barograph
stage = barograph.StagingClient([sys.argv[1]], timeout=3600)
data = bytes(range(256)) * 4096
stage.put(("data", 1), data)
block = stage.map(("data", 1))
children = []
for n in range(4):
    child = os.fork()
    if child == 0:
        ok = all(stage.get(("data", 1)) == data for _ in range(50)) and bytes(block.view) == data
        stage.put(("child", n), b"1")
        os._exit(0 if ok and block.is_valid else 1)
    children.append(child)
    assert all(stage.get(("data", 1)) == data for _ in range(50))
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
assert len(list(stage.list("child"))) == 4
"""


def test_parent_and_children_go_on_after_a_fork(stage_server: StageServer) -> None:
    # In a process of its own, since this one has threads of other tests.
    subprocess.run([sys.executable, "-c", FORKS, stage_server.socket], check=True, timeout=300)


CLOSES = """
import os, sys, barograph
stage = barograph.StagingClient([sys.argv[1]], timeout=3600)
data = bytes(range(256)) * 4096
stage.put(("data", 1), data)
os.closerange(3, 256)
assert stage.get(("data", 1)) == data
os.closerange(3, 256)
files = [os.open(sys.argv[2], os.O_RDWR | os.O_CREAT) for _ in range(16)]
assert stage.get(("data", 1)) == data
stage.put(("data", 1), data)
assert [(os.fstat(file).st_size, os.lseek(file, 0, os.SEEK_CUR)) for file in files] == [(0, 0)] * 16
"""


def test_descriptors_of_others_are_left_alone(stage_server: StageServer, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLOSES, stage_server.socket, tmp_path / "file"]
    subprocess.run(command, check=True, timeout=300)


def test_other_threads_run_while_a_call_waits(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        stage = barograph.StagingClient([tmp_path / "socket"], timeout=HOUR)
        failed = []

        def get() -> None:
            with pytest.raises(barograph.StagingError) as gone:
                stage.get(("data", 1))
            failed.append(gone.value.code)

        thread = threading.Thread(target=get)
        thread.start()
        # The call waits for an answer, and this thread runs; each try gets an end of its own.
        while thread.is_alive():
            listener.settimeout(0.1)
            try:
                listener.accept()[0].close()
            except TimeoutError:
                continue
        thread.join()
        assert failed == ["unreachable"]


def test_the_programs_of_the_guide_run(stage_server: StageServer) -> None:
    programs = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), flags=re.M | re.S)
    assert programs
    text = "\n".join(programs).replace("/run/user/1000/stage.sock", str(stage_server.socket))
    subprocess.run([sys.executable, "-c", text], check=True, timeout=300)
