"""Analyses of fields, and how far off they are when a field is read less precisely: blobs that are found and
measured, a picture that is compared with the true one, and the area and the force of high pressure.

    python3 analyses.py TRUE.npy READ.npy

prints what each analysis says of both arrays. Only numpy is needed.
"""

from __future__ import annotations

import json
import sys

import numpy as np

Field = np.ndarray

# Bounds of what is high: a share of the range above the smallest value.
HIGH = 0.3
# Blobs with fewer points are noise.
BLOB_POINTS_MIN = 9
# Weights and window of the structural similarity, as its authors give them (Wang and others 2004).
SSIM_CONSTANTS = (0.01, 0.03)
SSIM_SIGMA, SSIM_RADIUS = 1.5, 5


def high(field: Field, like: Field) -> Field:
    """The points that are high, by the range of `like`."""
    return field > like.min() + HIGH * (like.max() - like.min())


def labels(mask: Field) -> Field:
    """The connected parts of a mask in two dimensions: each point has the number of its part, and 0 is outside."""
    label = np.where(mask, np.arange(1, mask.size + 1).reshape(mask.shape), 0)
    while True:
        padded = np.pad(label, 1)
        near = [padded[1:-1, 1:-1], padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]]
        grown = np.where(mask, np.maximum.reduce(near), 0)
        # Every label also jumps to the label of the point that it names, so that long parts end soon.
        inside = grown > 0
        grown[inside] = np.maximum(grown[inside], grown.ravel()[grown[inside] - 1])
        if np.array_equal(grown, label):
            return label
        label = grown


def blobs(field: Field, like: Field) -> dict[str, float]:
    """Number of blobs, their mean area in points, and their mean mass: what XGC's analysis asks for."""
    label = labels(high(field, like))
    names, counts = np.unique(label[label > 0], return_counts=True)
    names, counts = names[counts >= BLOB_POINTS_MIN], counts[counts >= BLOB_POINTS_MIN]
    masses = [field[label == name].sum() for name in names]
    return {
        "count": float(len(names)),
        "area": float(counts.mean()) if len(counts) else 0.0,
        "mass": float(np.mean(masses)) if len(masses) else 0.0,
    }


def pressure(field: Field, like: Field) -> dict[str, float]:
    """Share of the area with high pressure, and the force on it with a unit of area for the whole."""
    mask = high(field, like)
    return {"area": float(mask.mean()), "force": float(field[mask].sum() / field.size)}


def dice(one: Field, other: Field) -> float:
    """How much two masks overlap: twice what they share, over the sum of both."""
    total = one.sum() + other.sum()
    return float(2 * (one & other).sum() / total) if total else 1.0


def smoothed(picture: Field) -> Field:
    """Means by a Gaussian window, of those points that have a whole one."""
    at = np.arange(-SSIM_RADIUS, SSIM_RADIUS + 1)
    weights = np.exp(-(at**2) / (2 * SSIM_SIGMA**2))
    weights /= weights.sum()
    for axis in (0, 1):
        windows = np.lib.stride_tricks.sliding_window_view(picture, len(weights), axis=axis)
        picture = windows @ weights
    return picture


def ssim(one: Field, other: Field) -> float:
    """Structural similarity of two pictures with 256 grey levels: 1 if they are the same."""
    a, b = ((constant * 255) ** 2 for constant in SSIM_CONSTANTS)
    means = [smoothed(picture) for picture in (one, other)]
    squares = [smoothed(picture**2) - mean**2 for picture, mean in zip((one, other), means, strict=True)]
    both = smoothed(one * other) - means[0] * means[1]
    likeness = (2 * means[0] * means[1] + a) * (2 * both + b)
    return float((likeness / ((means[0] ** 2 + means[1] ** 2 + a) * (squares[0] + squares[1] + b))).mean())


def picture(field: Field, like: Field) -> Field:
    """A field as grey levels 0 to 255, by the range of `like`."""
    share = (field - like.min()) / (like.max() - like.min())
    return np.round(255 * np.clip(share, 0, 1))


def off(read: float, true: float) -> float:
    """Relative error."""
    return 0.0 if read == true else abs(read - true) / abs(true) if true else float("inf")


def compared(true: Field, read: Field) -> dict[str, float]:
    """How far off the analyses of a reading are: relative errors, and 1 - SSIM and 1 - Dice. Of three dimensions the
    middle plane is analysed."""
    while true.ndim > 2:
        true, read = true[len(true) // 2], read[len(read) // 2]
    found, expected = blobs(read, true), blobs(true, true)
    pushed, push = pressure(read, true), pressure(true, true)
    return {
        "blob count": off(found["count"], expected["count"]),
        "blob area": off(found["area"], expected["area"]),
        "blob mass": off(found["mass"], expected["mass"]),
        "high area": off(pushed["area"], push["area"]),
        "force": off(pushed["force"], push["force"]),
        "1 - SSIM": 1 - ssim(picture(true, true), picture(read, true)),
        "1 - Dice": 1 - dice(high(true, true), high(read, true)),
    }


def main() -> None:
    """Compares two files."""
    true, read = (np.load(path) for path in sys.argv[1:3])
    print(json.dumps(compared(true, read), indent=2))


if __name__ == "__main__":
    main()
