"""Arrays from HDF5 files and into them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from barograph import progressive

h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'barograph[hdf5]'")


def test_a_dataset_is_packed_and_comes_back(tmp_path: Path) -> None:
    values = np.sin(np.arange(6000.0)).reshape(60, 100).astype("f4")
    values[3, 4] = -999
    source, packed, out = (tmp_path / name for name in ("a.h5", "a.baro", "b.h5"))
    with h5py.File(source, "w") as file:
        made = file.create_dataset("run/pressure", data=values, chunks=(10, 10), compression="gzip")
        made.attrs["_FillValue"] = np.array([-999], "f4")
        file["count"] = np.arange(3)
    assert progressive.from_hdf5(source, "run/pressure", packed) is None
    opened = progressive.open(packed)
    assert opened.missing == 1 and opened.dtype == np.float32
    assert progressive.from_hdf5(source, "run/pressure") == packed.read_bytes()
    assert progressive.open(progressive.from_hdf5(source, "run/pressure", fill=None)).missing == 0
    progressive.to_hdf5(packed, out, "exact")
    progressive.to_hdf5(opened, out, "coarse/pressure", 1e-2, compression="gzip")
    progressive.to_hdf5(packed, out, "part", region=[(0, 5), (1, 3)])
    with h5py.File(out) as file:
        assert file["exact"][()].tobytes() == values.tobytes()
        assert file["exact"].attrs["barograph_nrmse"] == 0
        assert np.array_equal(file["part"][()], values[:5, 1:3])
        coarse = file["coarse/pressure"]
        assert 0 < coarse.attrs["barograph_nrmse"] <= 1e-2 and coarse.compression == "gzip"
        assert coarse[3, 4] == -999
        assert np.abs(coarse[()] - values).max() <= coarse.attrs["barograph_linf"]


def test_what_cannot_be_packed_or_written(tmp_path: Path) -> None:
    source, packed = tmp_path / "a.h5", tmp_path / "a.baro"
    with h5py.File(source, "w") as file:
        file["group/count"] = np.arange(3)
        file["scalar"] = 3.0
    for name in ("none", "group"):
        with pytest.raises(KeyError, match="no dataset"):
            progressive.from_hdf5(source, name, packed)
    with pytest.raises(TypeError, match="astype"):
        progressive.from_hdf5(source, "group/count", packed)
    with pytest.raises(ValueError, match="0 axes"):
        progressive.from_hdf5(source, "scalar", packed)
    assert not packed.exists()
    progressive.pack(np.zeros(5), packed)
    with pytest.raises(ValueError, match="already: choose another name"):
        progressive.to_hdf5(packed, source, "scalar")
    with pytest.raises(FileNotFoundError):
        progressive.from_hdf5(tmp_path / "none.h5", "a", packed)
