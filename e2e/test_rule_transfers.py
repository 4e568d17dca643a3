"""Rules that copy, move and delete files: on this machine, in S3 (a real server), and over WebDAV (a stand-in
of a few methods)."""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from harness import BARO, QUICK, Agent, baro, eventually
from test_rule_actions import states, watched
from test_target import CREDENTIALS, s3

__all__ = ["s3"]

Start = Callable[..., Agent]


class DavStandIn:
    """A server that knows as much of WebDAV as a client needs to keep files: no locks, no properties but
    length and kind."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders = {"/", "/dav/"}
        self.broken = 0
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def path_of(self, text: str) -> str:
                return unquote(urlparse(text).path)

            def answer(self, code: int, body: bytes = b"", kind: str = "text/plain") -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def allowed(self) -> bool:
                want = "Basic " + base64.b64encode(b"me:hunter2").decode()
                if self.headers["Authorization"] == want:
                    return True
                self.answer(401)
                return False

            def do_PUT(self) -> None:
                path = self.path_of(self.path)
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                if not self.allowed():
                    return
                if stand_in.broken > 0:
                    stand_in.broken -= 1
                    self.answer(503)
                    return
                stand_in.files[path] = body
                self.answer(201)

            def do_GET(self) -> None:
                if not self.allowed():
                    return
                body = stand_in.files.get(self.path_of(self.path))
                self.answer(404 if body is None else 200, body or b"")

            do_HEAD = do_GET

            def do_DELETE(self) -> None:
                if self.allowed():
                    known = stand_in.files.pop(self.path_of(self.path), None)
                    self.answer(404 if known is None else 204)

            def do_MKCOL(self) -> None:
                if self.allowed():
                    stand_in.folders.add(self.path_of(self.path).rstrip("/") + "/")
                    self.answer(201)

            def do_MOVE(self) -> None:
                if not self.allowed():
                    return
                body = stand_in.files.pop(self.path_of(self.path), None)
                if body is None:
                    self.answer(404)
                    return
                stand_in.files[self.path_of(self.headers["Destination"])] = body
                self.answer(201)

            def do_PROPFIND(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0) or 0))
                if not self.allowed():
                    return
                path = self.path_of(self.path)
                body = stand_in.files.get(path)
                is_folder = path.rstrip("/") + "/" in stand_in.folders
                if body is None and not is_folder:
                    self.answer(404)
                    return
                kind = "<D:collection/>" if body is None else ""
                answer = (
                    '<?xml version="1.0"?><D:multistatus xmlns:D="DAV:"><D:response>'
                    f"<D:href>{urlparse(self.path).path}</D:href><D:propstat><D:prop>"
                    f"<D:getcontentlength>{len(body or b'')}</D:getcontentlength>"
                    "<D:getlastmodified>Fri, 27 Nov 2026 10:00:00 GMT</D:getlastmodified>"
                    f"<D:resourcetype>{kind}</D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status>"
                    "</D:propstat></D:response></D:multistatus>"
                )
                self.answer(207, answer.encode(), "application/xml")

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/dav"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def dav() -> Iterator[DavStandIn]:
    made = DavStandIn()
    yield made
    made.server.shutdown()


def secret(folder: Path, **lines: str) -> Path:
    path = folder / "secret"
    path.write_text("".join(f"{name}: {value}\n" for name, value in lines.items()))
    path.chmod(0o600)
    return path


def test_files_are_copied_moved_and_deleted(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK + f"[action.stores.shelf]\nurl = 'file://{tmp_path}/shelf'\n")
    tree, out = watched(agent, tmp_path), tmp_path / "out"
    for sql, said in [
        ("COPY '{name}' TO '/x'", "no place of a file"),
        ("COPY '{path}' TO 'lab:{name}'", "there is no store lab: name it as [action.stores.lab]"),
        ("MOVE '{path}' TO 'shelf:{nam}'", "did you mean"),
    ]:
        assert said in agent.error("rule", "create", f"CREATE RULE r ON EVENT create THEN {sql}")
    made = agent.ask("rule", "create", f"CREATE RULE copied ON EVENT close_write WHERE ext = 'tif' THEN COPY '{{path}}' TO '{out}/{{stem}}/{{name}}'")
    assert made["call"] == f"copy {{path}} to {out}/{{stem}}/{{name}}"
    agent.out("rule", "create", "CREATE RULE moved ON EVENT close_write WHERE ext = 'log' THEN MOVE '{path}' TO 'shelf:{name}'")
    agent.out("rule", "create", "CREATE RULE gone ON EVENT close_write WHERE ext = 'tmp' THEN DELETE '{path}'")
    image = tree / "b: ä {x}.tif"
    image.write_bytes(os.urandom(3 << 20))
    os.chmod(image, 0o640)
    odd = os.fsencode(tree) + b"/\xff\xfe.tif"
    Path(os.fsdecode(odd)).write_text("odd")
    (tree / "a.log").write_text("log")
    (tree / "a.tmp").write_text("tmp")
    for rule, count in [("copied", 2), ("moved", 1), ("gone", 1)]:
        eventually(lambda r=rule, c=count: states(agent, r) == ["done"] * c, rule)
    copy = out / "b: ä {x}" / "b: ä {x}.tif"
    assert copy.read_bytes() == image.read_bytes()
    assert (copy.stat().st_mode & 0o777, copy.stat().st_mtime_ns) == (0o640, image.stat().st_mtime_ns)
    assert Path(os.fsdecode(os.fsencode(out) + b"/\xff\xfe/\xff\xfe.tif")).read_text() == "odd"
    assert (tmp_path / "shelf" / "a.log").read_text() == "log"
    assert sorted(path.suffix for path in tree.iterdir()) == [".tif", ".tif"]
    assert not list(tmp_path.rglob(".baro-*")), "no part is left"
    (number,) = [row["id"] for row in agent.rows("SELECT id FROM actions WHERE rule = 'moved'")]
    shown = agent.ask("action", "show", number)
    assert shown["argv"] == ["MOVE", str(tree / "a.log"), "shelf:a.log"]
    assert "(3 bytes)" in shown["output"]


def test_strangers_links_are_not_followed(start: Start, tmp_path: Path) -> None:
    """Who may write into a watched tree has a file copied that is not his."""
    agent, out, secret_place = start(config=QUICK), tmp_path / "out", tmp_path / "private"
    tree = watched(agent, tmp_path)
    secret_place.mkdir()
    (secret_place / "a").write_text("secret")
    agent.out("rule", "create", f"CREATE RULE copied ON EVENT create THEN COPY '{{path}}' TO '{out}/{{name}}'")
    # The link belongs to another user where that can be.
    (tree / "link").symlink_to(secret_place / "a")
    (tree / "pipe").touch()
    eventually(lambda: states(agent, "copied") == ["done"], "the file alone")
    assert sorted(path.name for path in out.iterdir()) == ["pipe"]
    done = baro("transfer", "copy", tree / "link", out / "x")
    assert done.returncode == 1 and "it is a symbolic link" in done.stderr
    if os.geteuid() == 0:
        (tree / "dir").symlink_to(secret_place)
        os.chown(tree / "dir", 65_534, 65_534, follow_symlinks=False)
        done = baro("transfer", "copy", tree / "dir" / "a", out / "y")
        assert done.returncode == 1 and "neither root's nor this user's" in done.stderr
        os.chown(tree / "dir", 0, 0, follow_symlinks=False)
        assert baro("transfer", "copy", tree / "dir" / "a", out / "y").returncode == 0


def test_files_go_to_s3_and_back(start: Start, tmp_path: Path, s3: Any) -> None:
    s3.create_bucket(Bucket="images")
    keys = secret(
        tmp_path,
        access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
    config = QUICK + f"[action.stores.lab]\nurl = 's3://images/in'\nendpoint = '{s3.meta.endpoint_url}'\nsecret_file = '{keys}'\n"
    agent = start(config=config)
    tree = watched(agent, tmp_path)
    agent.out("rule", "create", "CREATE RULE up ON EVENT close_write WHERE ext = 'tif' THEN COPY '{path}' TO 'lab:{name}'")
    agent.out("rule", "create", f"CREATE RULE down ON EVENT close_write WHERE ext = 'want' THEN MOVE 'lab:{{stem}}' TO '{tmp_path}/back/{{stem}}'")
    contents = os.urandom(40 << 20)
    (tree / "big ä.tif").write_bytes(contents)
    (tree / "empty.tif").touch()
    eventually(lambda: states(agent, "up") == ["done"] * 2, "both are there")
    assert s3.get_object(Bucket="images", Key="in/big ä.tif")["Body"].read() == contents
    assert s3.head_object(Bucket="images", Key="in/empty.tif")["ContentLength"] == 0
    (tree / "big ä.tif.want").touch()
    (tree / "none.tif.want").touch()
    eventually(lambda: sorted(states(agent, "down")) == ["dead", "done"], "one comes back, the other is not there")
    assert (tmp_path / "back" / "big ä.tif").read_bytes() == contents
    listed = s3.list_objects_v2(Bucket="images")["Contents"]
    assert [entry["Key"] for entry in listed] == ["in/empty.tif"]
    (reason,) = [row["reason"] for row in agent.rows("SELECT reason FROM actions WHERE state = 'dead'")]
    assert "none.tif" in reason and "there is no such file" in reason
    checked = baro("transfer", "check", "--config", agent.config)
    assert checked.returncode == 0 and "lab: s3://images/in" in checked.stdout, checked.stderr
    rule = "CREATE RULE r ON EVENT create THEN COPY '{{path}}' TO '{}:x'"
    assert baro("rule", "check", rule.format("lab"), "--config", agent.config).returncode == 0
    refused = baro("rule", "check", rule.format("lob"), "--config", agent.config)
    assert refused.returncode == 2 and "there is no store lob" in refused.stderr
    keys.chmod(0o644)
    done = baro("transfer", "copy", tree / "empty.tif", "lab:x", "--config", agent.config)
    assert done.returncode == 1 and "others may read it" in done.stderr


def test_a_service_that_fails_is_tried_again(start: Start, tmp_path: Path, dav: DavStandIn) -> None:
    keys = secret(tmp_path, username="me", password="hunter2")
    agent = start(config=QUICK + f"[action.stores.web]\nurl = '{dav.url}'\nsecret_file = '{keys}'\n")
    tree = watched(agent, tmp_path)
    dav.broken = 1
    agent.out("rule", "create", "CREATE RULE up ON EVENT close_write THEN COPY '{path}' TO 'web:deep/er/{name}'")
    (tree / "a b").write_text("hello")
    eventually(lambda: states(agent, "up") == ["done"], "it is there at last")
    assert dav.files == {"/dav/deep/er/a b": b"hello"}
    (attempts,) = [row["attempts"] for row in agent.rows("SELECT attempts FROM actions")]
    assert attempts == 2
    moved = baro("transfer", "move", "web:deep/er/a b", tmp_path / "back", "--config", agent.config)
    assert moved.returncode == 0, moved.stderr
    assert (tmp_path / "back").read_text() == "hello" and dav.files == {}
    keys.write_text("username: me\npassword: wrong\n")
    done = baro("transfer", "copy", tmp_path / "back", "web:x", "--config", agent.config)
    assert done.returncode != 0 and "hunter2" not in done.stderr
    dav.server.shutdown()
    dav.server.server_close()
    done = baro("transfer", "copy", tmp_path / "back", "web:x", "--config", agent.config)
    assert done.returncode == 75, "it may be there again later"


def test_a_killed_transfer_leaves_nothing_half_done(tmp_path: Path) -> None:
    """A move between file systems that is killed at any moment: one of the two places has the whole file."""
    with tempfile.TemporaryDirectory(prefix="baro-", dir="/dev/shm") as name:
        away, contents, random = Path(name), os.urandom(24 << 20), Random(5)
        source, target = tmp_path / "source", away / "deep" / "target"
        assert source.parent.stat().st_dev != away.stat().st_dev, "they are two file systems"
        ended = 0
        for _ in range(40):
            if not source.exists():
                target.unlink(missing_ok=True)
                source.write_bytes(contents)
            process = subprocess.Popen([BARO, "transfer", "move", source, target], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            time.sleep(random.random() * 0.06)
            process.kill()
            ended += process.wait() == 0
            there = [path for path in (source, target) if path.exists()]
            assert there and all(path.read_bytes() == contents for path in there)
        is_moved = not source.exists()
        done = baro("transfer", "move", source, target)
        assert done.returncode == int(is_moved) and is_moved == ("no such file" in done.stderr), done.stderr
        assert target.read_bytes() == contents and not source.exists()
        assert not list(away.rglob(".baro-*")), "the last attempt has removed what those before it had left"
