"""Advice where blocks go: what programs rely on, with an agent and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Agent

import barograph


def test_without_an_agent_hashing_answers(tmp_path: Path) -> None:
    adviser = barograph.Adviser(tmp_path / "none")
    keys = [str(n) for n in range(200)]
    advice = adviser.advise(["/a", ("/b", 3.0), (Path("/c"), 0.0)], 1 << 20, keys)
    assert advice.decision is None and "no agent answers" in advice.reason
    paths = [block.path for block in advice.blocks]
    assert 100 < paths.count("/b") < 190 and paths.count("/c") == 0
    assert [block.key for block in advice.blocks] == keys
    assert advice.blocks[0].pieces == [(paths[0], 1 << 20)] and advice.blocks[0].expected_s is None
    again = barograph.Adviser(tmp_path / "other").advise(["/a", ("/b", 3.0)], 7, keys)
    assert [block.path for block in again.blocks] == paths
    assert not adviser.report(7, 1, 0.5)


def test_an_agent_answers_and_hears_what_came_of_it(agent: Agent, tmp_path: Path) -> None:
    adviser = barograph.Adviser(agent.run_dir)
    advice = adviser.advise([tmp_path, "/dev/shm"], 4096, ["a", "b"], label="a test")
    assert advice.decision is not None, advice.reason
    assert {block.path for block in advice.blocks} <= {str(tmp_path), "/dev/shm"}
    assert adviser.report(advice.decision, 8192, 0.25)
    assert not adviser.report(advice.decision, 8192, 0.25)
    assert "Advice(" in repr(advice) and "AdvisedBlock(" in repr(advice.blocks[0])


def test_what_makes_no_sense_is_an_error(tmp_path: Path) -> None:
    adviser = barograph.Adviser(tmp_path / "none")
    with pytest.raises(ValueError, match="listed twice"):
        adviser.advise(["/a", "/a"], 1)
    with pytest.raises(ValueError, match="weight"):
        adviser.advise([("/a", float("nan"))], 1)
    with pytest.raises(ValueError, match="no time"):
        adviser.report(1, 1, -1.0)
    with pytest.raises(OverflowError):
        adviser.advise(["/a"], -1)
