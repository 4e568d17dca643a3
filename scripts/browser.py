"""The Chromium that the browser tests drive: the system's, installed when that is possible."""

import os
import shutil
import subprocess

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PACKAGE = "chromium-headless-shell"
# How long to wait for another package manager that is at work.
LOCK_SECONDS_MAX = 300
INSTALL_SECONDS_MAX = 900


def find() -> str | None:
    """The path of a Chromium: what BAROGRAPH_CHROME names, else the first one in PATH."""
    named = os.environ.get("BAROGRAPH_CHROME")
    if named:
        return shutil.which(named)
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def find_or_install() -> str | None:
    """As `find`; as root on a system with apt, installs one first where there is none."""
    found = find()
    if found or os.environ.get("BAROGRAPH_CHROME") or os.geteuid() != 0:
        return found
    apt = shutil.which("apt-get")
    if not apt:
        return None
    print(f"browser  installing {PACKAGE} with the system's package manager ...", flush=True)
    run([apt, "update"])
    run([apt, "install", "-y", "--no-install-recommends", PACKAGE])
    return find()


def run(command: list[str]) -> None:
    """Runs apt-get; whether it helped is seen by looking for the browser."""
    options = ["-o", f"DPkg::Lock::Timeout={LOCK_SECONDS_MAX}", "-qq"]
    try:
        subprocess.run(
            [command[0], *options, *command[1:]],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            timeout=INSTALL_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"browser  {error}", flush=True)
