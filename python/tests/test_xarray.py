"""The backend of xarray."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from barograph import progressive

xr = pytest.importorskip("xarray", reason="xarray is not installed: pip install 'barograph[xarray]'")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    x, y = np.meshgrid(np.linspace(0, 6, 700), np.linspace(0, 4, 620), indexing="ij")
    path = tmp_path / "pressure.baro"
    progressive.pack(np.sin(x * y), path)
    return path


def test_a_file_is_a_dataset_within_the_bound(path: Path) -> None:
    exact = progressive.open(path).read()
    with xr.open_dataset(path, engine="barograph", error=1e-4) as data:
        pressure = data["pressure"]
        assert pressure.dims == ("dim_0", "dim_1") and pressure.shape == (700, 620)
        assert pressure.dtype == np.float64 and pressure.encoding["source"] == str(path)
        assert pressure.attrs["error_bound"] == "nrmse=1e-4"
        seen = np.sqrt(np.mean((pressure.values - exact) ** 2)) / (exact.max() - exact.min())
        assert seen <= pressure.attrs["nrmse"] * (1 + 1e-6) <= 1e-4
        assert np.abs(pressure.values - exact).max() <= pressure.attrs["linf"]
        assert not np.array_equal(pressure.values, exact)
    with xr.open_dataset(path) as guessed:
        assert np.array_equal(guessed["pressure"].values, exact)
        assert guessed["pressure"].attrs["nrmse"] == 0


def test_only_the_part_that_is_used_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact, regions = progressive.open(path).read(), []
    read = progressive.ProgressiveArray.read

    def seen(self: progressive.ProgressiveArray, *words: object, **named: object) -> object:
        regions.append(named["region"])
        return read(self, *words, **named)

    monkeypatch.setattr(progressive.ProgressiveArray, "read", seen)
    with xr.open_dataset(path, engine="barograph") as data:
        pressure = data["pressure"]
        part = pressure.isel(dim_0=slice(100, 200, 3), dim_1=5)
        assert regions == []
        assert np.array_equal(part.values, exact[100:200:3, 5])
        assert regions == [[(100, 200), (5, 6)]]
        picked = pressure.isel(dim_0=[7, 3, 600], dim_1=[1, 1])
        assert np.array_equal(picked.values, exact[[7, 3, 600]][:, [1, 1]])
        points = xr.DataArray([3, 9, 600], dims="point")
        along = pressure.isel(dim_0=points, dim_1=points)
        assert np.array_equal(along.values, exact[[3, 9, 600], [3, 9, 600]])
        assert regions[0] is not None and float(pressure.mean()) == pytest.approx(exact.mean())


def test_names_and_what_is_refused(path: Path) -> None:
    named = {"variable": "p", "dims": ("y", "x"), "engine": "barograph"}
    with xr.open_dataset(path, **named) as data:
        assert data["p"].dims == ("y", "x") and data.sizes == {"y": 700, "x": 620}
        again = pickle.loads(pickle.dumps(data))
        assert np.array_equal(again["p"].values, data["p"].values)
    with xr.open_dataset(path, engine="barograph", drop_variables="pressure") as data:
        assert list(data) == []
    with pytest.raises(ValueError, match="2 axes"):
        xr.open_dataset(path, engine="barograph", dims=["x"])
    with pytest.raises(ValueError, match="write nrmse"):
        xr.open_dataset(path, engine="barograph", error="mse=1")
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(progressive.DamagedArrayError):
        xr.open_dataset(path, engine="barograph")
