"""Installs the peers of `make events-evaluation`: inotify-tools with the system's package manager, as root,
and watchdog into an environment of its own, target/watchdog. One that cannot be had is left out there."""

import shutil
import subprocess
import sys

import packages
from steps import ROOT

WATCHDOG = "watchdog==7.1.0"
VENV = ROOT / "target" / "watchdog"


def main() -> None:
    """Installs what is missing."""
    if not shutil.which("inotifywait"):
        packages.install("peers", "inotify-tools")
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=False)
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", WATCHDOG]
    try:
        subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"peers  {error}", flush=True)


if __name__ == "__main__":
    main()
