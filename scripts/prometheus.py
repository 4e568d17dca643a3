"""The Prometheus that tests write to and query: the system's, installed when that is possible."""

import os
import shutil

import browser

NAMES = ("prometheus", "promtool")
PACKAGE = "prometheus"


def find() -> bool:
    """Whether there are both programs."""
    return all(shutil.which(name) for name in NAMES)


def find_or_install() -> bool:
    """As `find`; as root on a system with apt, installs them first where they are missing."""
    apt = shutil.which("apt-get")
    if find() or os.geteuid() != 0 or not apt:
        return find()
    print(f"e2e      installing {PACKAGE} with the system's package manager ...", flush=True)
    browser.run([apt, "update"])
    browser.run([apt, "install", "-y", "--no-install-recommends", PACKAGE])
    return find()
