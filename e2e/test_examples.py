"""The programs of examples/, compiled and run as by their readers: MPI ranks steered from Python,
and Kokkos' tool interface."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Agent, environment, eventually
from test_applications import INCLUDE, LIBRARY

EXAMPLES = ROOT / "examples"
KOKKOS_INCLUDE = Path("/usr/include/trilinos")
RANKS = 2


def needs(is_there: bool, what: str) -> None:
    """Skips the test if something is missing; with CI=true that is a failure."""
    if not is_there:
        assert not os.environ.get("CI"), f"{what} is missing: its test would be no test"
        pytest.skip(f"{what} is missing")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libbaro, with the name that `make install` gives it."""
    folder = tmp_path_factory.mktemp("lib")
    shutil.copy(LIBRARY / "libbaro.so", folder / "libbaro.so.1")
    (folder / "libbaro.so").symlink_to("libbaro.so.1")
    return folder


def compile_with(compiler: str, library: Path, source: Path, target: Path, *options: str) -> Path:
    """Compiles a program or library of one source with libbaro."""
    command = [compiler, "-O2", "-Wall", f"-I{INCLUDE}", source, "-o", target, f"-L{library}", *options]
    subprocess.run([*map(str, command), f"-Wl,-rpath,{library}"], check=True)
    return target


def told(output: str) -> list[dict[str, object]]:
    """The lines of JSON in a program's output."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_a_heat_equation_is_watched_and_steered(start: Callable[..., Agent], library: Path, tmp_path: Path) -> None:
    needs(bool(shutil.which("mpicc") and shutil.which("mpirun")), "MPI (mpich)")
    agent = start()
    heat = compile_with("mpicc", library, EXAMPLES / "heat" / "heat.c", tmp_path / "heat", "-lbaro", "-lm")
    beside = environment(BAROGRAPH_RUN_DIR=str(agent.run_dir))
    run = ["mpirun", "-n", str(RANKS), str(heat), "--cells", "96", "--seconds", "12"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True, env=beside) as ranks:
        steer = [sys.executable, str(EXAMPLES / "heat" / "steer.py"), "--seconds", "8"]
        steered = subprocess.run(steer, stdout=subprocess.PIPE, text=True, env=beside, check=True, timeout=60)
        output, _ = ranks.communicate(timeout=60)
    [summary] = told(output)
    decisions = told(steered.stdout)
    assert summary["lost"] == 0

    # The knob was turned by acknowledged calls, and the program used its values.
    done = [decision for decision in decisions if decision.get("state") == "acknowledged"]
    assert len(done) >= 3, [decision.get("state") for decision in decisions]
    known = "SELECT count(*) AS n FROM calls WHERE kind = 'knob' AND state = 'acknowledged'"
    eventually(lambda: agent.sql(known)[0]["n"] >= len(done), "the audit of the calls")
    # Every step of every rank is a row with its residual.
    frames = "SELECT rank, count(*) AS n, max(frame) AS last, count(residual) AS r FROM frames('heat') GROUP BY rank ORDER BY rank"
    steps = summary["steps"]

    def incomplete() -> list[dict[str, Any]]:
        """The frames and the losses, if a frame is missing that is not counted as lost: the program puts
        values faster than a disk that stands still for seconds can take them."""
        rows, losses = agent.rows(frames), agent.sql("SELECT * FROM loss WHERE count > 0")
        missing = sum(steps - row["r"] for row in rows)
        is_counted = 0 <= missing <= sum(loss["count"] for loss in losses)
        are_all = [row["rank"] for row in rows] == ["0", "1"] and all(row["n"] <= steps for row in rows)
        return [] if is_counted and are_all else [*rows, {"steps": steps}, *losses]

    # Of frames that the rings no longer have, the last ones are on their way to the archive for a moment.
    for _ in range(300):
        if not incomplete():
            break
        time.sleep(0.1)
    assert incomplete() == []

    steps = agent.sql("SELECT DISTINCT value FROM app_heat_dt WHERE rank = '0'")
    # JSON may change the last digit.
    taken = {f"{row['value']:.12g}" for row in steps}
    assert {f"{decision['dt']:.12g}" for decision in done} <= taken

    plot = [sys.executable, str(EXAMPLES / "heat" / "plot.py"), str(tmp_path / "heat.png")]
    subprocess.run(plot, env=beside, check=True, timeout=120)
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")


def test_a_kokkos_program_is_seen_unchanged(start: Callable[..., Agent], library: Path, tmp_path: Path) -> None:
    needs((KOKKOS_INCLUDE / "Kokkos_Core.hpp").is_file(), "Kokkos (libtrilinos-kokkos-dev)")
    agent = start()
    source = EXAMPLES / "kokkos"
    tool = compile_with("cc", library, source / "kp_barograph.c", tmp_path / "kp.so", "-lbaro", "-shared", "-fPIC")
    triad = tmp_path / "triad"
    build = ["g++", "-std=c++17", f"-I{KOKKOS_INCLUDE}", source / "triad.cpp", "-o", triad, "-ltrilinos_kokkoscore"]
    subprocess.run([*map(str, build)], check=True)
    tools = {"KOKKOS_TOOLS_LIBS": str(tool), "KOKKOS_PROFILE_LIBRARY": str(tool)}
    subprocess.run([str(triad)], env=environment(BAROGRAPH_RUN_DIR=str(agent.run_dir), **tools), check=True)

    sql = "SELECT kernel_kind, kernel_name, count(*) AS n, min(kernel_seconds) AS least FROM frames('kokkos') GROUP BY 1, 2"

    def kernels() -> dict[tuple[str, str], int]:
        rows = agent.rows(sql)
        assert all(row["least"] > 0 for row in rows)
        return {(row["kernel_kind"], row["kernel_name"]): row["n"] for row in rows}

    eventually(lambda: kernels().get(("reduce", "sum")) == 20, "all kernels")
    assert kernels()["for", "triad"] == 20
    assert {row["value"] for row in agent.sql("SELECT value FROM app_kokkos_region_name")} == {"steps", ""}
