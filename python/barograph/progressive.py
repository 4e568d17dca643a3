"""Packed arrays: files that are read as precisely as is needed.

::

    import numpy as np
    from barograph import progressive

    progressive.pack(field, "field.baro")
    packed = progressive.open("field.baro", error=1e-4)
    coarse = packed.read()                  # an NRMSE of 1e-4 at most
    packed.reached.nrmse, packed.bytes_read
    part = packed[100:200, 50]              # only the blocks of this part are read

Arrays have 1 to 4 axes of float32 or float64, in C order. An error is a number (the NRMSE: root
mean square of the differences, as a share of the range of the values), a text like ``"psnr=80"``,
or a mapping like ``{"linf": 0.1}``; the measures are ``nrmse``, ``psnr`` (dB by the range),
``psnr_max`` (dB by the largest magnitude) and ``linf`` (largest absolute difference, in the unit of
the values). Bounds hold for the array at full resolution; that of ``linf`` holds for each part too,
the others are means over the whole array.

Everything may be used from any thread, and the interpreter runs on while arrays are packed and
read. An array must not be changed while it is packed. numpy is needed for all of it: ``pip install
'barograph[numpy]'``.
"""

from __future__ import annotations

import functools
import math
import operator
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from barograph import _barograph
from barograph._augmentation import AGENT_SECONDS_MAX, Augmentation, Decision
from barograph._barograph import DamagedArrayError, OutOfReachError
from barograph._hdf5 import from_hdf5, to_hdf5
from barograph._mesh import mesh_points, points_of
from barograph._tiers import Part, join, place

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np

__all__ = [
    "AGENT_SECONDS_MAX",
    "Bucket",
    "DamagedArrayError",
    "Decision",
    "OutOfReachError",
    "Part",
    "ProgressiveArray",
    "Reached",
    "from_hdf5",
    "join",
    "open",
    "pack",
    "place",
    "to_hdf5",
]

NAME_BYTES_MAX = 255
"""Most bytes of the name of an array."""

ErrorBound: TypeAlias = float | str | Mapping[str, float]
Region: TypeAlias = Sequence[slice | tuple[int, int]]
Basis: TypeAlias = Literal["linear", "cubic", "wavelet"]


class Bucket(NamedTuple):
    """A part of a packed array that makes a reading more precise. Its errors are those of a reading
    of this bucket and all before it, measured when the array was packed.
    """

    bytes: int
    rmse: float
    """Root mean square of the differences, in the unit of the values."""
    linf: float
    """Largest absolute difference, in the unit of the values."""
    nrmse: float
    """``rmse`` as a share of the range of the values."""
    psnr: float
    """20 log10 of the range over ``rmse``, in dB; infinite where nothing differs."""
    psnr_max: float
    """The same with the largest magnitude in place of the range."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What a reading has come to."""

    buckets: int
    """Number of buckets that were read."""
    bytes: int
    """Bytes that were read for it."""
    error: Bucket
    """The last of these buckets, which has the errors of the array at full resolution."""
    seconds: float
    """Time that the reading took, of which most may be the decoding."""

    @property
    def nrmse(self) -> float:
        """NRMSE of the array at full resolution."""
        return self.error.nrmse

    @property
    def psnr(self) -> float:
        """PSNR by the range, in dB."""
        return self.error.psnr

    @property
    def linf(self) -> float:
        """Largest absolute difference, in the unit of the values."""
        return self.error.linf


def pack(
    array: Any,
    file: str | os.PathLike[str] | None = None,
    *,
    basis: Basis = "wavelet",
    finest: float = 1e-8,
    fill: float | None = None,
    lossy: bool = False,
    threads: int | None = None,
    name: str = "",
    time_step: int | None = None,
    append: bool = False,
    points: Any = None,
) -> bytes | None:
    """Packs an array into a file, or returns it as bytes if there is no ``file``.

    ``array`` is anything that numpy makes an array of 1 to 4 axes of float32 or float64 of; it is
    not copied if it is contiguous in C order. ``basis`` is how neighbours are predicted, ``finest``
    the NRMSE at which the approximations end. The last bucket gives back every bit, unless
    ``lossy`` leaves it out. ``fill`` is a value that stands for a missing one, as NaN and
    infinities always do; masked values of a masked array are filled with it, or with NaN.
    ``threads`` is the number of threads (as many as there are processors); the bytes are the same
    with any number.

    The file is written under another name beside, synced and renamed, so the file before stays
    whole until then. With ``append`` the array is written after those that the file has, and is seen
    when it is whole; ``name`` (at most 255 bytes) and ``time_step`` tell the arrays of a file apart.

    ``points`` are those of an unstructured mesh, an array of the shape (n, 2) or (n, 3) for n
    values: these are packed along a curve through the points, and come back in their own order. The
    points are kept in the file, once for all arrays on them; a file has one mesh.

    Raises TypeError for other types of values, ValueError for other shapes or if the file has an
    array of this name and step, OSError if the file cannot be written.
    """
    numpy = _numpy()
    if append and file is None:
        raise ValueError("append needs a file")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"the name has more than {NAME_BYTES_MAX} bytes")
    values = array
    if isinstance(array, numpy.ma.MaskedArray):
        values = array.filled(math.nan if fill is None else fill)
    values = numpy.asarray(values)
    if values.dtype.kind != "f" or values.dtype.itemsize not in (4, 8):
        raise TypeError(
            f"values of {values.dtype} cannot be packed: convert them to float32 or float64 with "
            "array.astype('f8')"
        )
    native = values.dtype.newbyteorder("=")
    values = numpy.require(values, dtype=native, requirements=["C", "A"])
    mesh = None if points is None else mesh_points(points, values.shape, name)
    path = None if file is None else os.path.abspath(os.fspath(file))
    shape = list(values.shape)
    count = _threads(threads)
    return _barograph.pack_array(
        values, shape, path, basis, finest, fill, lossy, count, name, time_step, append, mesh
    )


def open(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    error: ErrorBound | None = None,
    priority: int = 5,
    *,
    agent: bool | None = None,
    interval: float | None = None,
    label: str | None = None,
    dry_run: bool = False,
    run_dir: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    name: str | None = None,
    time_step: int | None = None,
) -> ProgressiveArray:
    """Opens a packed array: a file, or bytes in memory. Only the header is read.

    Of a file with several arrays, ``name`` and ``time_step`` say which one is meant.

    ``error`` is the bound of readings that name none; without it they read all of the array.

    With ``agent=True``, each :meth:`ProgressiveArray.read` of a file asks the node's agent how many
    buckets to read: never fewer than the bound needs, and more where the device has bandwidth left,
    with a weight of the I/O scheduler for this process by ``priority`` (1 to 10; 10 is the most
    important). ``None`` asks it if there is a bound and an agent, ``False`` never. ``interval`` is
    the time between two readings in seconds, if it is known; :meth:`ProgressiveArray.step` measures
    it.
    ``label`` names the array in the agent's decisions, ``run_dir`` the agent. With ``dry_run`` the
    agent decides and sets no weight, and the bound alone is read. A reading never fails because of
    the agent: :attr:`ProgressiveArray.last` has what was decided, or why nothing was.

    Raises DamagedArrayError if it is no packed array, OSError if the file cannot be read,
    ValueError for a bound that no error can have, or if it is not one array that is meant.
    """
    return ProgressiveArray(
        source,
        error,
        priority,
        agent=agent,
        interval=interval,
        label=label,
        dry_run=dry_run,
        run_dir=run_dir,
        threads=threads,
        name=name,
        time_step=time_step,
    )


class ProgressiveArray:
    """A packed array, of which values are read when they are asked for. See :func:`open`."""

    def __init__(
        self,
        source: str | os.PathLike[str] | bytes | bytearray | memoryview,
        error: ErrorBound | None = None,
        priority: int = 5,
        *,
        agent: bool | None = None,
        interval: float | None = None,
        label: str | None = None,
        dry_run: bool = False,
        run_dir: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        name: str | None = None,
        time_step: int | None = None,
    ) -> None:
        self._error = _bound(error)
        if not 1 <= priority <= 10:
            raise ValueError(f"priority {priority}: it is 1 to 10, 10 for the most important reader")
        if interval is not None and not 0 < interval < math.inf:
            raise ValueError(f"interval {interval}: it is a positive number of seconds")
        self._threads = threads
        self._path: str | None = None
        if isinstance(source, bytes | bytearray | memoryview):
            source = bytes(source)
            self._array = _barograph.PackedArray.of_bytes(source, name, time_step)
        else:
            source = self._path = os.path.abspath(os.fspath(source))
            self._array = _barograph.PackedArray.of_file(source, name, time_step)
        self._buckets = tuple(Bucket(*bucket) for bucket in self._array.buckets)
        self._reached: Reached | None = None
        self._last: Decision | None = None
        self._stepped: float | None = None
        self._interval = interval
        self._agent = agent
        self._augmentation = Augmentation(
            path=self._path,
            array=self._array,
            label=label,
            priority=priority,
            dry_run=dry_run,
            run_dir=run_dir,
        )
        self._opened = functools.partial(
            open,
            source,
            error,
            priority,
            agent=agent,
            interval=interval,
            label=label,
            dry_run=dry_run,
            run_dir=run_dir,
            threads=threads,
            name=name,
            time_step=time_step,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process opens the file anew; bytes go with it."""
        return (self._opened, ())

    @property
    def path(self) -> str | None:
        """The file as an absolute path; None of bytes in memory."""
        return self._path

    @property
    def name(self) -> str:
        """Name of the array among those of its file; may be empty."""
        return self._array.name

    @property
    def time_step(self) -> int | None:
        """Number of the time step that the array is of; None if it is of none."""
        return self._array.time_step

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return tuple(self._array.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values: float32 or float64."""
        return _numpy().dtype(self._array.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return self.size * self.dtype.itemsize

    @property
    def basis(self) -> Basis:
        """How neighbours are predicted from each other."""
        return self._array.basis

    @property
    def points(self) -> np.ndarray[Any, Any] | None:
        """The points of the mesh that the values are at, as float64 of the shape (n, 2) or (n, 3);
        None if they are on no mesh. They are read anew each time.
        """
        return points_of(self._array, _threads(self._threads))

    @property
    def is_exact(self) -> bool:
        """Whether all buckets together give back every bit."""
        return self._array.is_exact

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of those that are not missing; zeros if all are."""
        low, high, _ = self._array.range
        return low, high

    @property
    def missing(self) -> int:
        """Number of values that are missing: no numbers, infinite, or the fill value."""
        return self.size - self._array.range[2]

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets in the order in which they are read, with the error after each."""
        return self._buckets

    @property
    def error(self) -> str | None:
        """The bound of readings that name none, as ``nrmse=1e-4``; None reads everything."""
        return self._error

    @property
    def bytes_read(self) -> int:
        """Bytes that were read of the array by now, its header and its mesh among them."""
        return self._array.bytes_read

    @property
    def reached(self) -> Reached | None:
        """What the last reading has come to; None before the first one."""
        return self._reached

    @property
    def last(self) -> Decision | None:
        """What the agent has decided for the last reading, or why it was not asked; None before the
        first reading.
        """
        return self._last

    def buckets_for(self, error: ErrorBound) -> int:
        """Returns the number of buckets that a bound needs.

        Raises OutOfReachError if no reading is within it: ``best`` is the measure of the best one.
        """
        bound = _bound(error)
        assert bound is not None
        return self._array.buckets_for(bound)

    def read(
        self,
        error: ErrorBound | None = None,
        region: Region | None = None,
        level: int = 0,
    ) -> np.ndarray[Any, Any]:
        """Returns the values within an error, as an array of float32 or float64.

        ``error`` is the bound, by default that of :func:`open` (0 reads every bit, if the array has
        them). ``region`` has a range for each axis, as a slice of step 1 or as ``(start, stop)``:
        only its blocks are read, and what is read is not checked against the checksums. ``level``
        gives a picture with half as many values along an axis for each level, without a bound.
        :attr:`reached` has the error that was reached.

        Raises OutOfReachError if no reading is within the bound, ValueError for a region that is
        not within the array, DamagedArrayError for damaged bytes, OSError if the file cannot be
        read.
        """
        return self._read(error, region, level, self._interval)

    def step(self, error: ErrorBound | None = None) -> np.ndarray[Any, Any]:
        """Returns all values within an error, as :meth:`read` does, for a loop that reads again and
        again: the time since the step before it is the interval that the agent is told.
        """
        now = time.monotonic()
        interval = self._interval
        if interval is None and self._stepped is not None:
            interval = now - self._stepped
        self._stepped = now
        return self._read(error, None, 0, interval)

    def _read(
        self, error: ErrorBound | None, region: Region | None, level: int, interval: float | None
    ) -> np.ndarray[Any, Any]:
        numpy = _numpy()
        bound = self._error if error is None else _bound(error)
        if level < 0 or (level and region is not None):
            raise ValueError("level is 0 or more, and a region is read at level 0")
        if self._array.on_mesh and (level or region is not None):
            raise ValueError("values on a mesh are read as a whole, without a region or a level")
        ranges = None if region is None else _ranges(region, self.shape)
        needed = None if bound is None else self._array.buckets_for(bound)
        dims, share = self._array.plan(ranges, level)
        decision = self._decision(bound, needed, interval, share)
        count = decision.buckets
        out = numpy.empty(dims, self.dtype)
        began = time.monotonic()
        done: Reached | None = None
        is_whole = region is None and level == 0
        fetched = self._augmentation.fetch(decision) if is_whole else None
        try:
            read = self._array.read_into(out, count, ranges, level, _threads(self._threads))
            seconds = time.monotonic() - began
            done = Reached(count, read, self._buckets[count - 1], seconds)
        finally:
            # A reading that has failed gives its weight back too.
            self._last = self._augmentation.report(decision, done, fetched)
        self._reached = done
        return out

    def _decision(
        self, bound: str | None, needed: int | None, interval: float | None, share: float
    ) -> Decision:
        alone = len(self._buckets) if needed is None else needed
        if self._agent is False or (self._agent is None and bound is None):
            return Decision.without(bound, alone, "the agent was not asked")
        return self._augmentation.ask(bound, alone, needed or 1, interval, share)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The values within the bound of :func:`open`, for numpy. They are read anew each time."""
        if copy is False:
            raise ValueError("a packed array is read into a new one: it cannot be had without a copy")
        values = self.read()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        """Returns a part by integers, slices and an ellipsis, as numpy does: the values are within
        the bound of :func:`open`, and of a slice with steps all between them is read too. Of values
        on a mesh, all are read.
        """
        ranges, after = _basic(key, self.shape)
        if any(start >= stop for start, stop in ranges):
            numpy = _numpy()
            return numpy.empty([max(0, stop - start) for start, stop in ranges], self.dtype)[after]
        if self._array.on_mesh:
            return self.read()[key]
        is_whole = all(part == (0, n) for part, n in zip(ranges, self.shape, strict=True))
        return self.read(region=None if is_whole else ranges)[after]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        place = self._path or "memory"
        error = f", {self._error}" if self._error else ""
        return f"<ProgressiveArray {self.shape} {self._array.dtype} in {place}{error}>"


def _numpy() -> ModuleType:
    try:
        import numpy
    except ImportError as missing:
        raise ImportError(
            "packed arrays need numpy: pip install 'barograph[numpy]'"
        ) from missing
    return numpy


def _threads(threads: int | None) -> int:
    if threads is None:
        return len(os.sched_getaffinity(0))
    if threads < 1:
        raise ValueError(f"threads={threads}: it is 1 or more")
    return threads


def _bound(error: ErrorBound | None) -> str | None:
    """The bound as a text that is known to be one."""
    match error:
        case None:
            return None
        case str():
            text = error
        case Mapping():
            if len(error) != 1:
                raise ValueError(f"{error!r}: a bound has one measure, as in {{'psnr': 80}}")
            [(measure, value)] = error.items()
            text = f"{measure}={float(value)!r}"
        case _:
            text = f"nrmse={float(error)!r}"
    return _barograph.check_bound(text)


def _ranges(region: Region, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """The region as ranges, with ends that are left out or counted from the end made plain."""
    if isinstance(region, slice) or len(region) != len(shape):
        raise ValueError(f"the region has not one range for each of {len(shape)} axes")
    ranges = []
    for part, length in zip(region, shape, strict=True):
        if isinstance(part, slice):
            start, stop, step = part.indices(length)
            if step != 1:
                raise ValueError(f"{part}: a region has steps of 1")
        else:
            start, stop = part
        if not 0 <= start < stop <= length:
            raise ValueError(f"the range {start}:{stop} is empty or not within 0:{length}")
        ranges.append((start, stop))
    return ranges


def _basic(
    key: Any, shape: tuple[int, ...]
) -> tuple[list[tuple[int, int]], tuple[int | slice, ...]]:
    """The box that has what numpy's basic indexing asks for, and what is then taken of it."""
    keys: list[Any] = list(key) if isinstance(key, tuple) else [key]
    # By identity: arrays of numpy compare their elements.
    open_ends = [at for at, part in enumerate(keys) if part is Ellipsis]
    if len(open_ends) > 1:
        raise IndexError("an index has one ellipsis at most")
    named = len(keys) - len(open_ends)
    if named > len(shape):
        raise IndexError(f"{named} indices for {len(shape)} axes")
    at = open_ends[0] if open_ends else len(keys)
    keys[at : at + 1] = [slice(None)] * (len(shape) - named)
    ranges: list[tuple[int, int]] = []
    after: list[int | slice] = []
    for part, length in zip(keys, shape, strict=True):
        if isinstance(part, slice):
            chosen = range(*part.indices(length))
            if not chosen:
                ranges.append((0, 0))
                after.append(slice(None))
                continue
            low, high = min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1])
            ranges.append((low, high + 1))
            after.append(slice(None, None, chosen.step))
            continue
        place = _place(part, length)
        ranges.append((place, place + 1))
        after.append(0)
    return ranges, tuple(after)


def _place(index: Any, length: int) -> int:
    """The place that an integer means on an axis."""
    try:
        number = operator.index(index)
    except TypeError:
        number = None
    if number is None or isinstance(index, bool):
        raise IndexError(
            f"{index!r}: packed arrays are indexed by integers, slices and an ellipsis; read() the "
            "values first for other indices"
        )
    place = number + length if number < 0 else number
    if not 0 <= place < length:
        raise IndexError(f"index {number} is out of bounds for an axis of {length}")
    return place
