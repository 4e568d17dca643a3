"""Points of unstructured meshes, as numpy has them and as packed files do.

This module stands alone because most packed arrays are on no mesh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from barograph._barograph import PackedArray

COORDINATE_NAMES = ("mesh/x", "mesh/y", "mesh/z")
"""Names of the arrays of a file that have the coordinates of its mesh."""


def mesh_points(points: Any, shape: tuple[int, ...], name: str) -> tuple[np.ndarray[Any, Any], int]:
    """The points of values of a shape as contiguous float64, and the number of their coordinates.

    Raises ValueError if they are no points of these values.
    """
    import numpy

    found = numpy.asarray(points)
    if found.dtype.kind not in "fiu" or not numpy.can_cast(found.dtype, "f8"):
        raise TypeError(
            f"points of {found.dtype}: convert them to float64 with points.astype('f8')"
        )
    if len(shape) != 1 or found.ndim != 2 or found.shape[0] != shape[0]:
        raise ValueError(
            f"points of the shape {found.shape} for values of the shape {shape}: there is one axis "
            "of n values, and n rows of coordinates"
        )
    if name in COORDINATE_NAMES:
        raise ValueError(f"the name {name!r} is that of coordinates of the mesh")
    return numpy.require(found, dtype="f8", requirements=["C", "A"]), found.shape[1]


def points_of(array: PackedArray, threads: int) -> np.ndarray[Any, Any] | None:
    """The points of the mesh that the values of an array are at; None if they are on none."""
    import numpy

    points = array.points(threads)
    if points is None:
        return None
    coordinates, axes = points
    return numpy.frombuffer(coordinates, "f8").reshape(-1, axes).copy()
