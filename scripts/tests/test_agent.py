"""An agent that misbehaves is a failure of the tests, not a hang."""

from pathlib import Path

import agent
import pytest


def fake(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "baro"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


GOOD = 'trap "exit 0" INT; echo "barograph ready: http://127.0.0.1:9 (node n)"; while :; do sleep 0.05; done'
RUDE = GOOD.replace("exit 0", "exit 3")


def test_a_good_one_is_named_and_ended(tmp_path):
    with agent.running(fake(tmp_path, GOOD), tmp_path / "log") as names:
        assert names["BARO_URL"] == "http://127.0.0.1:9"
        assert names["BAROGRAPH_RUN_DIR"].endswith("/run")


@pytest.mark.parametrize(
    ("script", "message"),
    [("echo 'port in use'; exit 1", "did not come up: port in use"), (RUDE, "ended with status 3")],
)
def test_others_are_errors(tmp_path, script, message):
    with pytest.raises(RuntimeError, match=message):
        with agent.running(fake(tmp_path, script), tmp_path / "log"):
            pass
