"""Packed arrays at the points of unstructured meshes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph import progressive

Array = np.ndarray[Any, Any]


def mesh(count: int = 3_000, axes: int = 2, seed: int = 1) -> tuple[Array, Array]:
    """Points without an order, and a smooth function at them."""
    points = np.random.default_rng(seed).random((count, axes))
    return points, np.sin(5 * points[:, 0]) * np.cos(4 * points[:, -1])


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_values_come_back_in_the_order_of_the_points(axes: int, dtype: str) -> None:
    points, values = mesh(axes=axes)
    points, values = points.astype(dtype), values.astype(dtype)
    values[7] = np.nan
    whole = progressive.pack(values, points=points) or b""
    packed = progressive.open(whole)
    assert (packed.shape, packed.name, packed.missing) == ((3_000,), "", 1)
    assert packed.read().tobytes() == values.tobytes() and packed.bytes_read == len(whole)
    assert packed.points is not None and packed.points.dtype == np.float64
    assert np.array_equal(packed.points, points)
    near = packed.read("linf=0.01")
    assert np.nanmax(np.abs(near - values)) <= 0.01
    near_bytes = packed.reached.bytes if packed.reached else 0
    for key in (5, slice(10, 90, 3), slice(None), slice(9, 2, -1)):
        assert np.array_equal(packed[key], values[key], equal_nan=True)
    assert pickle.loads(pickle.dumps(packed)).read().tobytes() == values.tobytes()
    # Neighbours in space are neighbours in the file, so it takes fewer bytes than without points.
    plain = progressive.open(progressive.pack(values) or b"")
    assert plain.points is None
    plain.read("linf=0.01")
    assert plain.reached is not None and 0 < near_bytes < 0.8 * plain.reached.bytes


def test_points_are_kept_once_for_all_arrays_on_them(tmp_path: Path) -> None:
    path = tmp_path / "mesh.baro"
    points, values = mesh()
    sizes = [0]
    for step in range(3):
        progressive.pack(values + step, path, points=points, append=True, name="p", time_step=step)
        sizes.append(path.stat().st_size)
    first, second, third = np.diff(sizes)
    assert first > third + points.nbytes / 2 and abs(second - third) < third / 5
    for step in range(3):
        packed = progressive.open(path, time_step=step)
        assert packed.name == "p" and np.array_equal(packed.read(), values + step)
    coordinate = progressive.open(path, name="mesh/y")
    assert coordinate.points is None and np.array_equal(coordinate.read(), points[:, 1])
    # An array that is on no mesh, beside them.
    progressive.pack(np.arange(40.0).reshape(5, 8), path, append=True, name="grid")
    assert progressive.open(path, name="grid").points is None
    before = path.read_bytes()
    for wrong in (points + 1e-12, points[::-1], mesh(axes=3)[0]):
        with pytest.raises(ValueError, match="a file has one mesh"):
            progressive.pack(values, path, points=wrong, append=True, name="q")
    assert path.read_bytes() == before
    progressive.pack(values, path, points=mesh(seed=2)[0])
    assert np.array_equal(progressive.open(path).read(), values)


def test_points_that_are_none(tmp_path: Path) -> None:
    points, values = mesh(20)
    nan = points.copy()
    nan[3, 1] = np.nan
    wrong: list[tuple[Any, Any, str]] = [
        (values, points[:-1], r"\(19, 2\)"),
        (values, points[:, 0], r"\(20,\)"),
        (values, points[:, :1], "2 or 3"),
        (values, np.zeros((20, 4)), "2 or 3"),
        (values.reshape(4, 5), points, r"\(4, 5\)"),
        (values, nan, "point 3 is not finite"),
        (values, np.full((20, 2), np.inf), "point 0 is not finite"),
    ]
    for array, places, match in wrong:
        with pytest.raises(ValueError, match=match):
            progressive.pack(array, tmp_path / "a.baro", points=places)
    for strange in (points.astype("c16"), points.astype("g"), [["a", "b"]] * 20):
        with pytest.raises(TypeError, match=r"points.astype\('f8'\)"):
            progressive.pack(values, points=strange)
    with pytest.raises(ValueError, match="of coordinates of the mesh"):
        progressive.pack(values, points=points, name="mesh/x")
    assert list(tmp_path.iterdir()) == []
    # All at one place, far from each other, whole numbers, other byte orders, and strides.
    for places in (
        np.ones((20, 2)),
        points * 1e308,
        (points * 1_000).astype("i4"),
        points.astype(">f4"),
        np.repeat(points, 2, axis=0)[::2],
        points.tolist(),
    ):
        packed = progressive.open(progressive.pack(values, points=places) or b"")
        assert packed.points is not None and np.array_equal(packed.points, places)
        assert np.array_equal(packed.read(), values)


def test_parts_and_levels_of_values_on_a_mesh_are_refused() -> None:
    points, values = mesh()
    packed = progressive.open(progressive.pack(values, points=points) or b"")
    with pytest.raises(ValueError, match="read as a whole"):
        packed.read(region=[(0, 5)])
    with pytest.raises(ValueError, match="read as a whole"):
        packed.read(level=1)


def test_damaged_points_are_named() -> None:
    points, values = mesh(500)
    whole = progressive.pack(values, points=points) or b""
    header = progressive.open(whole, name="mesh/x").bytes_read
    for at in range(header, header + 2_000, 171):
        changed = bytearray(whole)
        changed[at] ^= 1
        packed = progressive.open(bytes(changed))
        with pytest.raises(progressive.DamagedArrayError):
            packed.read(1e-2)


def test_hdf5_has_the_order_of_the_points(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    points, values = mesh()
    packed = progressive.pack(values, points=points) or b""
    progressive.to_hdf5(packed, tmp_path / "a.h5", "pressure")
    with h5py.File(tmp_path / "a.h5", "r") as file:
        assert np.array_equal(file["pressure"][()], values)


def test_xarray_has_the_order_of_the_points(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    points, values = mesh()
    progressive.pack(values, tmp_path / "a.baro", points=points, name="pressure")
    data = xarray.open_dataset(tmp_path / "a.baro", engine="barograph")
    assert np.array_equal(data.pressure.values, values)
    assert np.array_equal(data.pressure[5:50].values, values[5:50])
