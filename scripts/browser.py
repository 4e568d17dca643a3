"""The Chromium that the browser tests drive: the system's, installed when that is possible."""

import os
import shutil

import packages

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PACKAGE = "chromium-headless-shell"


def find() -> str | None:
    """The path of a Chromium: what BAROGRAPH_CHROME names, else the first one in PATH."""
    named = os.environ.get("BAROGRAPH_CHROME")
    if named:
        return shutil.which(named)
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def find_or_install() -> str | None:
    """As `find`; as root on a system with apt, installs one first where there is none."""
    found = find()
    if found or os.environ.get("BAROGRAPH_CHROME"):
        return found
    packages.install("browser", PACKAGE)
    return find()
