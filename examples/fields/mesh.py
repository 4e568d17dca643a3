"""Values at the points of unstructured meshes, as simulations have them: smooth eddies and a blob, at points that are
numbered at random.

    python3 mesh.py DIRECTORY

writes the points of each mesh and the values at them as files of numpy, and the same function on a regular grid with
about as many points. Only numpy is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

Array = np.ndarray

COUNT = 60_000
"""Number of points of each mesh."""
CENTRES = 5
"""Number of places around which the points of the refined mesh are."""


def even(random: np.random.Generator) -> Array:
    """Points in a disc on rings that are as far apart as the points of a ring, each moved a little: the cross-section
    of a plasma has them on its magnetic surfaces."""
    rings = int(np.sqrt(COUNT / np.pi)) + 1
    points = [np.zeros((1, 2))]
    for ring in range(1, rings + 1):
        turns = (np.arange(int(2 * np.pi * ring)) + random.random()) / int(2 * np.pi * ring)
        points.append(ring / rings * circle(turns))
    return np.concatenate(points)[:COUNT] + random.normal(0, 0.15 / rings, (COUNT, 2))


def graded(random: np.random.Generator) -> Array:
    """Random points in a disc, of which half are near its edge."""
    inner = np.sqrt(random.random(COUNT // 2))
    edge = np.clip(0.9 + 0.05 * random.standard_normal(COUNT - COUNT // 2), 0, 1)
    return np.concatenate([inner, edge])[:, None] * circle(random.random(COUNT))


def refined(random: np.random.Generator) -> Array:
    """Random points around some centres, as many between 0.0001 and 0.001 off as between 0.01 and 0.1."""
    away = np.exp(random.uniform(np.log(1e-4), np.log(0.5), COUNT))
    return centres()[random.integers(0, CENTRES, COUNT)] + away[:, None] * circle(random.random(COUNT))


def space(random: np.random.Generator) -> Array:
    """Random points in a cube."""
    return random.random((COUNT, 3))


def circle(turns: Array) -> Array:
    """Points of a circle around 0."""
    return np.stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)], axis=1)


def centres() -> Array:
    """Where the refined mesh is refined."""
    return np.random.default_rng(11).uniform(-0.6, 0.6, (CENTRES, 2))


def eddies(points: Array, shortest: float) -> Array:
    """Waves in all directions, the amplitude of which falls with their number, from a length of 2 down to the shortest,
    and a blob."""
    random = np.random.default_rng(12)
    directions = random.normal(size=(300, points.shape[1]))
    numbers = 2 * np.pi / np.exp(random.uniform(np.log(shortest), np.log(2), 300))
    waves = directions / np.linalg.norm(directions, axis=1)[:, None] * numbers[:, None]
    values = np.exp(-((points - 0.35) ** 2).sum(axis=1) / 0.005)
    for wave, number in zip(waves, numbers, strict=True):
        values += number**-1.3 * np.cos(points @ wave + random.uniform(0, 2 * np.pi))
    return values


def spirals(points: Array) -> Array:
    """Spirals around the centres, which turn as often between 0.0001 and 0.001 as between 0.01 and 0.1."""
    values = np.zeros(len(points))
    for centre in centres():
        x, y = (points - centre).T
        square = x**2 + y**2 + 1e-8
        values += 0.3 * np.cos(3 * np.log(square) + 3 * np.arctan2(y, x)) * np.exp(-10 * square)
    return values


def grid(low: float, high: float, axes: int) -> Array:
    """The points of a regular grid with about as many points as the meshes, in C order."""
    side = np.linspace(low, high, round(COUNT ** (1 / axes)))
    return np.stack(np.meshgrid(*[side] * axes, indexing="ij"), axis=-1)


def meshes() -> dict[str, dict[str, Array]]:
    """The points of each mesh, and the values at them; the order of the points along rings, if they are on such; and
    the function on a grid, if one resolves it."""
    made = {}
    for seed, build in enumerate([even, graded, refined, space]):
        random = np.random.default_rng(seed)
        built = build(random)
        numbers = random.permutation(COUNT)
        points = built[numbers]
        axes = points.shape[1]
        shortest = 0.1 if axes == 2 else 0.2
        values = eddies(points, shortest)
        found = made[build.__name__] = {"points": points, "values": values}
        if build is refined:
            found["values"] = values + spirals(points)
            continue
        if build is even:
            found["rings"] = np.argsort(numbers)
        # A square of the disc's area, so that the grid is as fine as the mesh is.
        half = np.sqrt(np.pi) / 2
        places = grid(-half, half, 2) if axes == 2 else grid(0, 1, 3)
        found["grid"] = eddies(places.reshape(-1, axes), shortest).reshape(places.shape[:-1])
    return made


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, arrays in meshes().items():
        for kind, array in arrays.items():
            np.save(directory / f"{name}-{kind}.npy", array)
