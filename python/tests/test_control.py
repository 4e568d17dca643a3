"""Control over a unix socket, against a server that answers as documented."""

from __future__ import annotations

import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from conftest import Demo

import barograph

ANSWERS = {
    "CREATE INSIGHT a.b AS SELECT 1": (200, {"name": "a.b", "state": "waiting"}),
    "DROP INSIGHT a.b": (200, {"name": "a.b"}),
    "CREATE POLICY a FOR 'x' ERROR '1 %'": (200, {"name": "a", "streams": ["x"]}),
    "DROP POLICY a": (200, {"name": "a"}),
    "wrong": (400, {"error": {"kind": "statement", "message": "not an insight"}}),
}


class Handler(BaseHTTPRequestHandler):
    """Answers the statements above."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = ANSWERS.get(body["sql"], (500, None))
        if self.path.endswith("/test"):
            answer = {"rows": [{"value": 1}]}
        text = b"oops" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the tests' output clean."""


def test_control(demo: Demo) -> None:
    control = barograph.control(demo.run_dir)
    with pytest.raises(barograph.NoAgentError, match="control.sock"):
        control.create_insight("x")
    path = str(demo.run_dir / "control.sock")
    with socketserver.UnixStreamServer(path, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            create = "CREATE INSIGHT a.b AS SELECT 1"
            assert control.create_insight(create)["state"] == "waiting"
            assert control.test_insight(create) == {"rows": [{"value": 1}]}
            assert control.drop_insight("a.b") == {"name": "a.b"}
            assert control.create_policy("CREATE POLICY a FOR 'x' ERROR '1 %'")["streams"] == ["x"]
            assert control.drop_policy("a") == {"name": "a"}
            with pytest.raises(barograph.ControlError, match="not an insight") as e:
                control.create_insight("wrong")
            assert e.value.kind == "statement"
            with pytest.raises(barograph.ControlError, match="500") as e:
                control.create_insight("other")
            assert e.value.kind == "internal"
        finally:
            server.shutdown()
            thread.join()


def test_control_of_no_agent(tmp_path: Path) -> None:
    with pytest.raises(barograph.NoAgentError):
        barograph.control(tmp_path)
