"""The Python environment of the tests: .venv/ in the checkout, with the packages of
requirements.txt."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import cache
from steps import ROOT, Runner, Suite

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "scripts" / "requirements.txt"
# The installer is many times faster than pip, and keeps its downloads between checkouts.
INSTALLER = "uv==0.13.8"
# Packages that the registry has as source only. Each takes half a minute to build, and the installer
# would keep another gigabyte of it for each checkout, so our own cache keeps what was built once.
SOURCE_ONLY = ("pyspark",)


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
    arguments += ["--find-links", keep_wheels(runner, suite)]
    fast = has_installer()
    command = [PYTHON, "-m", "uv", *arguments] if fast else [PYTHON, "-m", *arguments]
    runner.step(suite, "install requirements", command, env=variables(), needed=True)
    stamp.write_text(want)


def keep_wheels(runner: Runner, suite: Suite) -> Path:
    """Builds the packages without a wheel that are not kept yet; returns the folder of the wheels."""
    folder = cache.home() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    for name, version in re.findall(r"^([\w-]+)==(\S+)$", REQUIREMENTS.read_text(), re.MULTILINE):
        if name not in SOURCE_ONLY or any(folder.glob(f"{name}-{version}-*.whl")):
            continue
        for old in folder.glob(f"{name}-*.whl"):
            old.unlink()
        wheel = [PYTHON, "-m", "pip", "wheel", "--quiet", "--no-cache-dir", "--no-deps", "--wheel-dir"]
        runner.step(suite, f"build {name}", [*wheel, folder, f"{name}=={version}"], needed=True)
    return folder


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
