"""Programs that the tests use: found in PATH, or installed with the system's package manager."""

import os
import shutil
import subprocess
import threading

# How long to wait for another package manager that is at work.
LOCK_SECONDS_MAX = 300
INSTALL_SECONDS_MAX = 900
# Only one package manager runs at a time: two lanes of suites may need one.
LOCK = threading.Lock()


def install(name: str, *packages: str) -> None:
    """Installs packages for the suite `name`, as root on a system with apt; otherwise does nothing.

    The caller finds out whether this helped by looking for the programs.
    """
    apt = shutil.which("apt-get")
    if os.geteuid() != 0 or not apt:
        return
    print(f"{name}  installing {', '.join(packages)} with the system's package manager ...", flush=True)
    with LOCK:
        run(name, [apt, "update"])
        run(name, [apt, "install", "-y", "--no-install-recommends", *packages])


def run(name: str, command: list[str]) -> None:
    """Runs apt-get without questions."""
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
        print(f"{name}  {error}", flush=True)
