"""Runs a real agent with default settings, for tests that use an agent from outside."""

import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READY = re.compile(r"^barograph ready: (http://\S+)", re.MULTILINE)
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 20


@contextmanager
def running(baro: Path, log: Path, config: str = "") -> Iterator[dict[str, str]]:
    """Runs `baro up` on a free port, in a run directory of its own, with a configuration; yields the
    variables that name them.

    Raises RuntimeError if the agent does not start, or does not end in order when it is stopped.
    """
    with tempfile.TemporaryDirectory(prefix="barograph-test-") as folder, log.open("wb") as out:
        run_dir = f"{folder}/run"
        places = ["--run-dir", run_dir, "--state-dir", f"{folder}/state"]
        settings = Path(folder, "barograph.toml")
        settings.write_text(config)
        command = [baro, "up", "--config", settings, "--http", "127.0.0.1:0", *places]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            yield {"BARO_URL": ready(process, log), "BAROGRAPH_RUN_DIR": run_dir}
        finally:
            status = stop(process)
        if status != 0:
            raise RuntimeError(f"the agent ended with status {status}, see {log}")


def ready(process: subprocess.Popen, log: Path) -> str:
    """Waits until the agent is ready; returns the address that it prints."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        found = READY.search(log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"the agent did not come up: {log.read_text(errors='replace')[-2000:]}")


def stop(process: subprocess.Popen) -> int:
    """Sends the interrupt of Ctrl-C; returns the exit status."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
