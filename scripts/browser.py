"""The Chromium for the browser tests: the system's, installed if that is possible."""

import os
import shutil

import packages

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PACKAGE = "chromium-headless-shell"


def find() -> str | None:
    """The path of a Chromium: the one named by BAROGRAPH_CHROME, otherwise the first one in
    PATH."""
    named = os.environ.get("BAROGRAPH_CHROME")
    if named:
        return shutil.which(named)
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def find_or_install() -> str | None:
    """The same as `find`; if there is none, installs one first, as root on a system with apt."""
    found = find()
    if found or os.environ.get("BAROGRAPH_CHROME"):
        return found
    packages.install("browser", PACKAGE)
    return find()
