"""Arrays between HDF5 files and packed files.

This module stands alone because h5py is needed for nothing else.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from barograph.progressive import ErrorBound, ProgressiveArray, Region

# Attributes by which netCDF and other conventions name the value of what is missing.
_FILL_ATTRIBUTES = ("_FillValue", "missing_value")


def from_hdf5(
    file: str | os.PathLike[str],
    dataset: str,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> bytes | None:
    """Packs a dataset of an HDF5 file into the file ``out``, or returns the bytes without one.

    ``dataset`` is its path in the file, like ``"run/pressure"``. ``options`` are those of
    :func:`~barograph.progressive.pack`; unless there is one, ``fill`` is the attribute
    ``_FillValue`` or ``missing_value`` of the dataset, as netCDF has it. Other attributes are not
    kept. The dataset is read into memory as a whole. Needs h5py.

    Raises KeyError if there is no such dataset, otherwise as :func:`~barograph.progressive.pack`.
    """
    from barograph.progressive import pack

    h5py = _h5py()
    with h5py.File(file, "r") as opened:
        found = opened.get(dataset)
        if not isinstance(found, h5py.Dataset):
            raise KeyError(f"{os.fspath(file)} has no dataset {dataset!r}")
        if "fill" not in options:
            options["fill"] = _fill(found)
        values = found[()]
    return pack(values, out, **options)


def to_hdf5(
    packed: ProgressiveArray | str | os.PathLike[str] | bytes,
    file: str | os.PathLike[str],
    dataset: str,
    error: ErrorBound | None = None,
    region: Region | None = None,
    level: int = 0,
    **options: Any,
) -> None:
    """Reads a packed array within an error into a new dataset of an HDF5 file, which is made if it
    is not there.

    ``error``, ``region`` and ``level`` are those of
    :meth:`~barograph.progressive.ProgressiveArray.read`, ``options`` those of h5py's
    ``create_dataset`` (``compression="gzip"``). The attributes ``barograph_nrmse``,
    ``barograph_linf`` and ``barograph_buckets`` have the error of the array at full resolution.
    Needs h5py.

    Raises ValueError if the file has something of that name, otherwise as ``read``.
    """
    from barograph.progressive import ProgressiveArray

    h5py = _h5py()
    array = packed if isinstance(packed, ProgressiveArray) else ProgressiveArray(packed)
    values = array.read(error, region, level)
    reached = array.reached
    assert reached is not None
    with h5py.File(file, "a") as opened:
        if dataset in opened:
            raise ValueError(
                f"{os.fspath(file)} has {dataset!r} already: choose another name, or delete it"
            )
        made = opened.create_dataset(dataset, data=values, **options)
        made.attrs["barograph_nrmse"] = reached.nrmse
        made.attrs["barograph_linf"] = reached.linf
        made.attrs["barograph_buckets"] = reached.buckets


def _fill(dataset: Any) -> float | None:
    for name in _FILL_ATTRIBUTES:
        value = dataset.attrs.get(name)
        if value is not None and getattr(value, "size", 1) == 1:
            return float(value.item() if hasattr(value, "item") else value)
    return None


def _h5py() -> ModuleType:
    try:
        import h5py
    except ImportError as missing:
        raise ImportError("this needs h5py: pip install 'barograph[hdf5]'") from missing
    return h5py
