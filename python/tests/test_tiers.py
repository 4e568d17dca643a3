"""Packed files over several tiers of storage."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from barograph import progressive


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A packed file of two time steps, with two directories beside it."""
    file = tmp_path / "field.baro"
    for step in (1, 2):
        progressive.pack(field(step), file, name="t", time_step=step, append=step > 1)
    (tmp_path / "fast").mkdir()
    (tmp_path / "slow").mkdir()
    return file


def field(step: int) -> np.ndarray:
    x = np.linspace(0, 3, 96)
    return np.sin(step * x[:, None]) * np.cos(x[None, :]) + 1e-4 * np.sin(97 * x)


def placed(path: Path) -> list[progressive.Part]:
    room = path.stat().st_size // 8
    return progressive.place(path, [(path.parent / "fast", room), path.parent / "slow"])


def test_a_placed_file_reads_as_before_and_is_joined(path: Path) -> None:
    before = path.read_bytes()
    parts = placed(path)
    assert [Path(part.file).parent.name for part in parts] == ["fast", "slow"]
    assert sum(part.bytes for part in parts) == len(before)
    assert parts[0].bytes <= len(before) // 8
    assert json.loads(path.read_text())["format"] == "barograph array in parts"
    for step in (1, 2):
        packed = progressive.open(path, time_step=step)
        np.testing.assert_array_equal(packed.read(), field(step))
        np.testing.assert_array_equal(packed[10:20, 5], field(step)[10:20, 5])
        assert packed._array.parts == [part.file for part in parts]
    assert progressive.join(path) == len(before)
    assert path.read_bytes() == before
    assert not any(os.path.exists(part.file) for part in parts)


def test_a_coarse_reading_does_without_the_slow_tier(path: Path) -> None:
    parts = placed(path)
    os.unlink(parts[1].file)
    packed = progressive.open(path, 0.1, time_step=1)
    assert np.ptp(packed.read() - field(1)) < 1
    with pytest.raises(OSError, match=r"part .*slow/field\.baro\..*No such file"):
        progressive.open(path, time_step=1).read()


def test_what_cannot_be_placed_says_why(path: Path) -> None:
    before = path.read_bytes()
    fast, slow = path.parent / "fast", path.parent / "slow"
    with pytest.raises(ValueError, match="no room for"):
        progressive.place(path, [(fast, 1000), (slow, 1000)])
    with pytest.raises(ValueError, match="1 to 64 tiers"):
        progressive.place(path, [])
    with pytest.raises(FileNotFoundError):
        progressive.place(path, [path.parent / "none"])
    with pytest.raises(FileNotFoundError):
        progressive.place(path.parent / "none.baro", [fast])
    with pytest.raises(ValueError, match="one file already"):
        progressive.join(path)
    (path.parent / "text").write_text("no array")
    with pytest.raises(progressive.DamagedArrayError):
        progressive.place(path.parent / "text", [fast])
    assert path.read_bytes() == before
    placed(path)
    with pytest.raises(ValueError, match="join it first"):
        progressive.pack(field(3), path, name="t", time_step=3, append=True)
    with pytest.raises(TypeError):
        progressive.place(path, [(fast, "much")])  # type: ignore[list-item]
