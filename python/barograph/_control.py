"""Changes to the agent, through its control socket.

This module stands alone because it is the only part of the package that sends changes to the agent.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from typing import Any

from barograph._barograph import Error, NoAgentError

_SECONDS_MAX = 10.0


class ControlError(Error):
    """The agent refused a request. ``kind`` is its reason: ``statement``, ``refused``, ``unknown``…
    """

    kind: str

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, seconds_max: float) -> None:
        super().__init__("localhost", timeout=seconds_max)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Control:
    """The control side of the agent that serves ``run_dir``."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._socket = os.path.join(run_dir, "control.sock")

    def create_insight(self, sql: str) -> dict[str, Any]:
        """Makes an insight: ``CREATE INSIGHT name AS SELECT …``. Returns the agent's answer.

        Raises ControlError if the agent refuses, NoAgentError if no agent answers.
        """
        return self._post("/api/v1/insights", sql)

    def drop_insight(self, name: str) -> dict[str, Any]:
        """Drops an insight. Errors as for :meth:`create_insight`."""
        return self._post("/api/v1/insights", f"DROP INSIGHT {name}")

    def test_insight(self, sql: str) -> dict[str, Any]:
        """Returns the present result of ``CREATE INSIGHT …``: ``{"rows": [{…, "value"}]}``."""
        return self._post("/api/v1/insights/test", sql)

    def create_policy(self, sql: str) -> dict[str, Any]:
        """Makes a policy: ``CREATE POLICY name FOR 'pattern' ERROR '1 %'``. Returns the parsed
        policy.

        Errors as for :meth:`create_insight`.
        """
        return self._post("/api/v1/policies", sql)

    def drop_policy(self, name: str) -> dict[str, Any]:
        """Drops a policy that was made by a statement. Errors as for :meth:`create_insight`."""
        return self._post("/api/v1/policies", f"DROP POLICY {name}")

    def _post(self, path: str, sql: str) -> dict[str, Any]:
        try:
            return post(self._socket, path, {"sql": sql})
        except PermissionError as error:
            raise ControlError(
                "refused", f"{self._socket}: only the agent's user and root may control it"
            ) from error
        except OSError as error:
            raise NoAgentError(f"no agent answers on {self._socket}: {error}") from error


def post(
    socket_path: str, path: str, body: dict[str, Any], seconds_max: float = _SECONDS_MAX
) -> dict[str, Any]:
    """Returns the agent's answer. Raises ControlError if it refuses, OSError if it does not answer.
    """
    connection = _UnixConnection(socket_path, seconds_max)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body, allow_nan=False), headers)
        answer = connection.getresponse()
        return _answer(answer.status, answer.read())
    finally:
        connection.close()


def _answer(status: int, text: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(text) if text else {}
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ControlError("internal", f"the agent answered {status} without JSON")
    if status != http.client.OK:
        error = answer.get("error", {})
        if not isinstance(error, dict):
            error = {"message": str(error)}
        raise ControlError(error.get("kind", "internal"), error.get("message", f"HTTP {status}"))
    return answer
