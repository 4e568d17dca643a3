"""The tools with which the tests of a lake read and write S3: a real server of objects, and DuckDB with
its own extension for S3.

They are kept beside the compiled dependencies (cache.py), for all checkouts. Each comes from the registry
of its language; without Go there is no server.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import cache
import environment
from steps import ROOT, Runner, Suite

# A gateway that keeps objects as files. Go builds it from source, which takes two minutes once.
SERVER, SERVER_VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
# The newest DuckDB whose extension is in the registry of Python; it is not the one of requirements.txt.
DUCKDB = ("duckdb==1.5.5", "duckdb-extension-httpfs==1.5.5")
GO_SECONDS_MAX = 900


def server() -> Path:
    """The place of the server's program, whether or not it exists."""
    return cache.home() / "tools" / f"versitygw-{SERVER_VERSION}" / "versitygw"


def duckdb() -> Path:
    """The place of the Python packages, whether or not they exist."""
    return cache.home() / "tools" / DUCKDB[0].replace("==", "-")


def variables() -> dict[str, str]:
    """The environment variables by which the tests find the tools."""
    return {"BARO_S3_SERVER": str(server()), "BARO_S3_DUCKDB": str(duckdb())}


def prepare(runner: Runner, suite: Suite) -> None:
    """Makes what is missing. The environment of Python must exist."""
    if not server().is_file():
        build_server(suite)
    if not duckdb().is_dir():
        keep(duckdb(), lambda place: install_duckdb(runner, suite, place))


def build_server(suite: Suite) -> None:
    """Builds the server; says why there is none."""
    go = shutil.which("go")
    if not go:
        suite.notes.append("NOT TRIED: no Go, so no real server of S3 (its tests skip)")
        return

    def build(place: Path) -> bool:
        print(f"{suite.name}  building the server of S3 ...", flush=True)
        try:
            done = subprocess.run(
                [go, "install", f"{SERVER}@{SERVER_VERSION}"],
                env=os.environ | {"GOBIN": str(place)},
                cwd=ROOT.parent,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=GO_SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            suite.notes.append(f"NOT TRIED: no real server of S3: {error}")
            return False
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
            suite.notes.append(f"NOT TRIED: no real server of S3: {last[0]}")
        return done.returncode == 0

    keep(server().parent, build)


def install_duckdb(runner: Runner, suite: Suite, place: Path) -> bool:
    """Installs DuckDB with its extension into a directory of its own."""
    into = ["pip", "install", "--quiet", "--target", place, *DUCKDB]
    command = [environment.PYTHON, "-m", *(["uv"] if environment.has_installer() else []), *into]
    return runner.step(suite, "install DuckDB for S3", command, env=environment.variables())


def keep(place: Path, make: Callable[[Path], bool]) -> None:
    """Has a directory made under another name, so that it is whole once it has its name."""
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        if make(unfinished) and not place.exists():
            unfinished.rename(place)
    except OSError as error:
        print(f"cannot keep {place}: {error}", flush=True)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
