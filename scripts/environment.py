"""The Python environment of the tests: .venv/ in the checkout, with the packages of
requirements.txt."""

import hashlib
import subprocess
import sys
from pathlib import Path

from steps import ROOT, Runner, Suite

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "scripts" / "requirements.txt"
# The installer is many times faster than pip, and keeps its downloads between checkouts.
INSTALLER = "uv==0.13.8"


def variables() -> dict[str, str]:
    """The environment variables with which a command uses .venv/."""
    return {"VIRTUAL_ENV": str(VENV), "PYO3_PYTHON": str(PYTHON)}


def prepare(runner: Runner, suite: Suite) -> None:
    """Makes .venv/ and installs missing packages; does nothing if it is as required."""
    stamp = VENV / "requirements.sha256"
    want = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    if PYTHON.exists() and stamp.is_file() and stamp.read_text() == want:
        return
    make(runner, suite)
    arguments = ["pip", "install", "--quiet", "--requirement", REQUIREMENTS]
    fast = has_installer()
    command = [PYTHON, "-m", "uv", *arguments] if fast else [PYTHON, "-m", *arguments]
    runner.step(suite, "install requirements", command, env=variables(), needed=True)
    stamp.write_text(want)


def make(runner: Runner, suite: Suite) -> None:
    """Makes an empty .venv/, even if Python comes without ensurepip."""
    whole = [sys.executable, "-m", "venv", "--clear", VENV]
    if subprocess.run([sys.executable, "-c", "import ensurepip"], capture_output=True).returncode:
        whole.insert(3, "--without-pip")
    runner.step(suite, "make environment", whole, needed=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "--quiet", "pip", INSTALLER],
        stdin=subprocess.DEVNULL,
        check=False,
    )


def has_installer() -> bool:
    """Whether uv is in .venv/; without it, pip does the same more slowly."""
    command = [str(PYTHON), "-m", "uv", "--version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
