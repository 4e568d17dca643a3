"""Readers of packed arrays that ask the real agent how much to read. The package's own tests have a
stand-in for the agent, and more of what can go wrong."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from barograph import progressive
from harness import ROOT, Agent, environment
from test_applications import INCLUDE, LIBRARY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("augmentation")
    progressive.pack(np.sin(np.outer(np.linspace(0, 3, 600), np.linspace(0, 9, 700))), folder / "field.baro")
    return folder


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[Agent]:
    agent = Agent(folder)
    try:
        yield agent.start()
    finally:
        agent.destroy()


@pytest.mark.parametrize("error", [{"nrmse": 1e-3}, {"psnr": 70}, {"psnr_max": 70}, {"linf": 0.01}], ids=str)
def test_a_decision_is_made_kept_and_reported(agent: Agent, folder: Path, error: dict[str, float]) -> None:
    label = f"field {error}"
    packed = progressive.open(folder / "field.baro", error, priority=7, label=label, run_dir=agent.run_dir)
    for _ in range(2):
        packed.step()
        last, reached = packed.last, packed.reached
        assert last.id is not None, last.reason
        assert last.reported and reached.buckets == last.buckets
        # The agent knows the bound by its own measure, so it proposes what the bound needs at least.
        assert last.buckets == last.proposed >= packed.buckets_for(error)
        assert 0 <= last.degree <= 1 and last.lease_s > 0
        # This process is in no control group that the agent may set, or it had a weight.
        assert (last.weight is None) == bool(last.weight_reason)
    listed = agent.ask("control", "decisions")
    assert label in str(listed), listed


def test_without_a_bound_the_agent_alone_decides(agent: Agent, folder: Path) -> None:
    packed = progressive.open(folder / "field.baro", agent=True, run_dir=agent.run_dir)
    values = packed.read()
    assert packed.last.id is not None, packed.last.reason
    assert packed.reached.buckets == packed.last.proposed and values.shape == (600, 700)


def test_a_base_that_is_too_small_to_measure_the_disk_has_a_probe(agent: Agent, folder: Path) -> None:
    smooth = np.add.outer(np.linspace(0, 1, 700), np.linspace(0, 1, 800))
    progressive.pack(smooth + np.random.default_rng(1).normal(0, 1e-7, smooth.shape), folder / "rough.baro")
    packed = progressive.open(folder / "rough.baro", agent=True, label="rough", run_dir=agent.run_dir)
    packed.read()
    assert packed.last.proposed == 1 and packed.reached.bytes < 1 << 20, packed.last
    assert packed.last.probe_bytes >= 1 << 20, packed.last
    rows = agent.ask("control", "show", packed.last.id)
    inputs = next(row for row in rows if row["controller"] == "augmentation")["inputs"]
    assert inputs["reported_bytes"] == packed.reached.bytes + packed.last.probe_bytes, inputs


def test_a_dry_run_is_left_aside(agent: Agent, folder: Path) -> None:
    packed = progressive.open(folder / "field.baro", 1e-3, dry_run=True, run_dir=agent.run_dir)
    packed.read()
    assert packed.last.id is not None, packed.last.reason
    assert packed.reached.buckets == packed.buckets_for(1e-3) and packed.last.weight is None


def test_readings_go_on_when_the_agent_has_gone(agent: Agent, folder: Path) -> None:
    packed = progressive.open(folder / "field.baro", 1e-3, run_dir=agent.run_dir)
    packed.step()
    assert packed.last.reported, packed.last.reason
    agent.stop()
    packed.step()
    assert packed.last.id is None and packed.last.reason.startswith("no agent answers")
    assert packed.reached.buckets == packed.buckets_for(1e-3)
    agent.start()
    packed.step()
    assert packed.last.reported, packed.last.reason


def test_a_program_in_c_asks_and_reports(agent: Agent, folder: Path, tmp_path: Path) -> None:
    shutil.copy(LIBRARY / "libbaro.so", tmp_path / "libbaro.so.1")
    (tmp_path / "libbaro.so").symlink_to("libbaro.so.1")
    program = tmp_path / "steps"
    options = [f"-I{INCLUDE}", f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}"]
    source = ROOT / "docs" / "examples" / "steps.c"
    subprocess.run(["cc", "-Wall", "-Werror", *options, source, "-o", program, "-lbaro"], check=True)
    # A file over two tiers is asked about too.
    copy = tmp_path / "tiered.baro"
    shutil.copy(folder / "field.baro", copy)
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
    progressive.place(copy, [(tmp_path / "fast", copy.stat().st_size // 10), tmp_path / "slow"])
    for file in (folder / "field.baro", copy):
        command = [program, file, "nrmse=1e-3", "3"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(BAROGRAPH_RUN_DIR=str(agent.run_dir)))
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == 3 and all(not line.startswith("decision 0:") for line in lines), done.stdout
        for line in lines:
            number = int(line.split(":")[0].removeprefix("decision "))
            shown = agent.ask("control", "show", number)
            assert file.name in str(shown) and "reported_bytes" in str(shown), shown
