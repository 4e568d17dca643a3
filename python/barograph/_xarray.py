"""The backend ``barograph`` of xarray: ``xr.open_dataset("field.baro", engine="barograph")``.

xarray finds it by the entry point of the package, so this module is imported by xarray alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from barograph import progressive


class BarographBackend(BackendEntrypoint):
    """A packed array as a dataset of one variable, whose parts are read when they are used."""

    description = "Read packed arrays (.baro) as precisely as is needed"
    open_dataset_parameters = (
        "filename_or_obj",
        "drop_variables",
        "error",
        "variable",
        "dims",
        "threads",
        "name",
        "time_step",
    )

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        error: progressive.ErrorBound | None = None,
        variable: str | None = None,
        dims: Sequence[str] | None = None,
        threads: int | None = None,
        name: str | None = None,
        time_step: int | None = None,
    ) -> xr.Dataset:
        """Opens a packed file, or its bytes.

        ``error`` is the bound of all readings, as that of :func:`barograph.progressive.open`.
        ``name`` and ``time_step`` say which array of a file is meant. ``variable`` is the name of
        the variable, by default that of the array, or else of the file without its suffix; ``dims`` are the names of the axes (``dim_0`` and so on). The attributes of the
        variable have the bound and the error that a reading reaches: ``nrmse``, ``psnr`` in dB,
        ``linf`` in the unit of the values, and the number of ``buckets``.
        """
        packed = progressive.open(
            filename_or_obj, error, threads=threads, agent=False, name=name, time_step=time_step
        )
        count = len(packed.buckets) if error is None else packed.buckets_for(error)
        reached = packed.buckets[count - 1]
        names = tuple(f"dim_{axis}" for axis in range(packed.ndim)) if dims is None else tuple(dims)
        if len(names) != packed.ndim:
            raise ValueError(f"dims={list(names)}: the array has {packed.ndim} axes")
        chosen = variable or packed.name or _stem(packed.path)
        attributes = {
            "error_bound": packed.error or "none: all of the file is read",
            "nrmse": reached.nrmse,
            "psnr": reached.psnr,
            "linf": reached.linf,
            "buckets": count,
        }
        lazy = indexing.LazilyIndexedArray(_PackedBackendArray(packed))
        encoding = {"source": packed.path} if packed.path else {}
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        variables = {chosen: xr.Variable(names, lazy, attributes, encoding)}
        return xr.Dataset({key: it for key, it in variables.items() if key not in dropped})

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether it is a file that ends in ``.baro``."""
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        return os.fspath(filename_or_obj).endswith(".baro")


class _PackedBackendArray(BackendArray):
    """The values as xarray asks for them: by blocks of the part that is used."""

    def __init__(self, packed: progressive.ProgressiveArray) -> None:
        self._packed = packed
        self.shape = packed.shape
        self.dtype = packed.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        basic = indexing.IndexingSupport.BASIC
        return indexing.explicit_indexing_adapter(key, self.shape, basic, self._read)

    def _read(self, key: tuple[int | slice, ...]) -> np.ndarray[Any, Any]:
        return np.asarray(self._packed[key])


def _stem(path: str | None) -> str:
    return "array" if path is None else os.path.basename(path).removesuffix(".baro") or "array"
