"""Copies of sealed files in S3, on a real server, and the reports of failures."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import duckdb
import pytest
from botocore.exceptions import EndpointConnectionError
from harness import COMMAND_SECONDS_MAX, QUICK, ROOT, Agent, environment, eventually
from test_cluster import free_address
from test_examples import needs


SERVER = os.environ.get("BARO_S3_SERVER", "versitygw")
COPY = Path(os.environ.get("BARO_COPY", ROOT / "target" / "debug" / "examples" / "copy_to_target"))
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "hunter2",
    "AWS_REGION": "us-east-1",
}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a server that speaks S3; its address is `s3.meta.endpoint_url`."""
    needs(bool(shutil.which(SERVER)), "a server of S3")
    address = free_address()
    folder = tmp_path_factory.mktemp("s3")
    roots = {"ROOT_ACCESS_KEY": CREDENTIALS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
    for part in ("buckets", "metadata"):
        (folder / part).mkdir()
    # Metadata would need extended attributes, which not every file system has.
    places = ["--sidecar", str(folder / "metadata"), str(folder / "buckets")]
    command = [SERVER, "--quiet", "--port", address, "posix", *places]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(**roots))
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{address}",
        region_name="us-east-1",
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
    try:
        eventually(lambda: answers(client), "the server of S3")
        client.create_bucket(Bucket="history")
        yield client
    finally:
        server.kill()
        server.wait()


def answers(client: Any) -> bool:
    """Whether the server is there."""
    try:
        client.list_buckets()
    except EndpointConnectionError:
        return False
    return True


def copy(url: str, endpoint: str, *files: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Copies files to their places; `files` alternates file and place."""
    return subprocess.run(
        [COPY, url, f"endpoint={endpoint}", "--", *map(str, files)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=3 * COMMAND_SECONDS_MAX, env=environment(**(CREDENTIALS | more)),
    )  # fmt: skip


def file(folder: Path, size: int) -> Path:
    """A file of bytes that do not repeat."""
    path = folder / f"{size}.parquet"
    path.write_bytes(random.Random(size).randbytes(size))
    return path


PART = 8 << 20


@pytest.mark.parametrize("size", [0, 1000, PART, PART + 1, 3 * PART + 12345])
def test_what_arrives_is_what_was_sent(s3: Any, tmp_path: Path, size: int) -> None:
    local = file(tmp_path, size)
    place = f"raw/node=n%20a/date=2026-01-01/hour=07/{size}.parquet"
    done = copy("s3://history/site/a", s3.meta.endpoint_url, local, place)
    assert (done.returncode, done.stderr) == (0, "")
    there = s3.get_object(Bucket="history", Key=f"site/a/{place}")
    assert there["Body"].read() == local.read_bytes()
    # Again: the same file in the same place is no error.
    assert copy("s3://history/site/a", s3.meta.endpoint_url, local, place).returncode == 0
    assert not s3.list_multipart_uploads(Bucket="history").get("Uploads")


def test_many_files_by_one_target(s3: Any, tmp_path: Path) -> None:
    local = file(tmp_path, 100)
    places = [f"raw/{i}" for i in range(20)]
    done = copy("s3://history", s3.meta.endpoint_url, *(x for place in places for x in (local, place)))
    assert (done.returncode, done.stderr) == (0, "")
    found = s3.list_objects_v2(Bucket="history", Prefix="raw/")["Contents"]
    assert {item["Key"] for item in found} == set(places)


def failure(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a failed copy's error, without secrets."""
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "hunter2" not in done.stderr and "panicked" not in done.stderr
    return done.stderr


def test_no_such_bucket(s3: Any, tmp_path: Path) -> None:
    said = failure(copy("s3://nowhere/a", s3.meta.endpoint_url, file(tmp_path, 10), "raw/a"))
    assert "cannot copy raw/a to s3://nowhere/a" in said and "bucket" in said


def test_nobody_there(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{probe.getsockname()[1]}"
    began = time.monotonic()
    said = failure(copy("s3://history/a", endpoint, file(tmp_path, 10), "raw/a"))
    assert "cannot copy raw/a to s3://history/a" in said and "refused" in said.lower()
    assert time.monotonic() - began < COMMAND_SECONDS_MAX


def answering(answer: bytes) -> Iterator[str]:
    """The address of a server that gives every request the same answer."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    connection.recv(1 << 20)
                    connection.sendall(answer)
                except OSError:
                    continue

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    server.close()


DENIED = b"<Error><Code>AccessDenied</Code><AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId></Error>"
FORBIDDEN = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(DENIED) + DENIED
)


def test_permission_denied(tmp_path: Path) -> None:
    for endpoint in answering(FORBIDDEN):
        said = failure(copy("s3://history/a", endpoint, file(tmp_path, 10), "raw/a"))
    assert "permission denied" in said and "AccessDenied" in said and "AKIDEXAMPLE" not in said


def test_options_that_are_refused(tmp_path: Path) -> None:
    local = file(tmp_path, 10)
    assert "allow_http" in failure(copy("s3://history", "http://s3.example", local, "raw/a"))
    assert "s3://bucket/prefix" in failure(copy("gs://history", "http://127.0.0.1:1", local, "raw/a"))


def test_not_copied_is_not_called_not_written(start: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for endpoint in answering(FORBIDDEN):
        options = f"[archive.target_options]\nendpoint = '{endpoint}'\nallow_http = 'true'\n"
        agent = start(config=f"[archive]\ntarget = 's3://history/whole'\n{options}")
        agent.out("archive", "seal")
        said = eventually(lambda: agent.value("archive.trouble.text"), "the trouble is told")
        assert said.startswith("history is written, but not copied to its target: "), said
        status = agent.out("status")
        assert "files are written and wait to be copied" in status and said in status, status
        assert "not written" not in status, status


def test_an_agent_copies_what_it_seals(
    s3: Any, start: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a configured target, every Parquet file that counts is in the bucket, and `archive ls`
    shows this."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    place = "[archive]\ntarget = 's3://history/whole'\n"
    options = f"[archive.target_options]\nendpoint = '{s3.meta.endpoint_url}'\n"
    agent = start(config=place + options)
    agent.out("archive", "seal")

    def copied() -> bool:
        found = s3.list_objects_v2(Bucket="history", Prefix="whole/").get("Contents", [])
        local = agent.archive_dir.glob("*/node=*/**/*.parquet")
        names = {f"whole/{path.relative_to(agent.archive_dir)}" for path in local}
        there = {item["Key"] for item in found if item["Key"].endswith(".parquet")}
        return bool(names) and names == there

    eventually(copied, "a copy of every file")
    rows = "SELECT count(*) AS n FROM system.archive WHERE tier <> 'log' AND NOT copied"
    eventually(lambda: agent.sql(rows)[0]["n"] == 0, "the manifest knows")


def test_a_list_names_the_copies_that_count(start: Callable[..., Agent], tmp_path: Path) -> None:
    """The copies in a directory, read as in docs/guide/export.md: each sample once, whatever was
    merged."""
    there = tmp_path / "copies"
    agent = start(config=f"[archive]\ntarget = 'file://{there}'\n" + QUICK)
    raw = Path(agent.state_dir, "archive", "raw")

    def samples(files: str) -> tuple[int, int]:
        count = f"SELECT count(*), count(DISTINCT (name, labels, life, number)) FROM read_parquet({files})"
        (found,) = duckdb.sql(count).fetchall()
        return found

    def listed() -> tuple[int, int]:
        lists = f"read_json('{there}/raw/**/_files.json')"
        duckdb.sql(f"SET VARIABLE files = (SELECT list('{there}/' || path) FROM {lists})")
        return samples("getvariable('files')")

    def names(root: Path) -> set[str]:
        return {path.name for path in root.rglob("*.parquet")}

    for _ in range(3):
        agent.ask("archive", "seal")
        eventually(lambda: names(there / "raw") >= names(raw), "copies")
    agent.ask("archive", "compact")
    # Sources are deleted after the merged file has arrived: the list is right with and without
    # them.
    eventually(lambda: listed()[0] == samples(f"'{raw}/**/*.parquet'")[0], "the merged file in the list")
    assert listed()[0] == listed()[1] > 0
    eventually(lambda: names(there / "raw") == names(raw), "the sources removed")
    assert listed()[0] == listed()[1] == samples(f"'{there}/raw/**/*.parquet'")[0]
