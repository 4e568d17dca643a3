"""Fields of small solvers, as an analysis would read them: two-dimensional turbulence, blobs that drift and
spread, a gas with shocks, and a Taylor-Green vortex in three dimensions; and the height of a real terrain.

    python3 fields.py DIRECTORY

writes each as a file of numpy. Only numpy is needed; the terrain comes with matplotlib, and is left out without it.

    python3 fields.py DIRECTORY SNAPSHOTS

writes the last SNAPSHOTS states of the Taylor-Green vortex instead, one after the other along the first axis, so
that each is a block of a packed array: 75 of them are 157 MB, and 1 or 2 minutes of work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

Field = np.ndarray


def wave_numbers(n: int, axes: int) -> list[Field]:
    """The wave numbers of a periodic cube of n points an axis, one array for each axis."""
    k = np.fft.fftfreq(n, 1 / n)
    return list(np.meshgrid(*([k] * axes), indexing="ij"))


def vorticity(n: int = 256, steps: int = 800) -> Field:
    """Vorticity of decaying turbulence in a periodic square: incompressible Navier-Stokes, pseudo-spectral, with
    the two-thirds rule, by the midpoint method."""
    kx, ky = wave_numbers(n, 2)
    square = kx**2 + ky**2
    inverse = 1 / np.where(square == 0, 1, square)
    mask = (np.abs(kx) < n / 3) & (np.abs(ky) < n / 3)
    noise = np.fft.fft2(np.random.default_rng(1).standard_normal((n, n)))
    w = noise * np.exp(-(((np.sqrt(square) - 8) / 4) ** 2))
    w *= 10 / np.abs(np.fft.ifft2(w)).max()
    viscosity, dt = 2e-4, 2e-3

    def change(w: Field) -> Field:
        stream = w * inverse
        u, v = (np.real(np.fft.ifft2(1j * k * stream)) for k in (ky, -kx))
        dx, dy = (np.real(np.fft.ifft2(1j * k * w)) for k in (kx, ky))
        return -np.fft.fft2(u * dx + v * dy) * mask - viscosity * square * w

    for _ in range(steps):
        w = w + dt * change(w + dt / 2 * change(w))
    return np.real(np.fft.ifft2(w))


def blobs(n: int = 256, steps: int = 200) -> Field:
    """Thirty blobs of density that a vortex carries and that diffuse: spectral, by the midpoint method."""
    x, y = np.meshgrid(*([np.arange(n) * 2 * np.pi / n] * 2), indexing="ij")
    u, v = np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y)
    kx, ky = wave_numbers(n, 2)
    random = np.random.default_rng(2)
    density = np.zeros((n, n))
    for _ in range(30):
        (a, b), width = random.uniform(1, 5.2, 2), random.uniform(0.1, 0.3)
        density += random.uniform(0.3, 1) * np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * width**2))
    dt = 5e-3

    def change(c: Field) -> Field:
        hat = np.fft.fft2(c)
        dx, dy = (np.real(np.fft.ifft2(1j * k * hat)) for k in (kx, ky))
        spread = np.real(np.fft.ifft2(-(kx**2 + ky**2) * hat))
        return -(u * dx + v * dy) + 1e-3 * spread

    for _ in range(steps):
        density = density + dt * change(density + dt / 2 * change(density))
    return density


def shock(n: int = 256, until: float = 0.3) -> Field:
    """Density of the third Riemann problem of Lax and Liu in two dimensions: Euler's equations, by finite volumes
    with limited slopes and the fluxes of Harten, Lax and van Leer."""
    gamma = 1.4
    at = (np.arange(n) + 0.5) / n
    right, up = np.meshgrid(at > 0.5, at > 0.5, indexing="ij")
    states = {(1, 1): (1.5, 0, 0, 1.5), (0, 1): (0.5323, 1.206, 0, 0.3), (0, 0): (0.138, 1.206, 1.206, 0.029), (1, 0): (0.5323, 0, 1.206, 0.3)}
    primitive = np.zeros((4, n, n))
    for (a, b), state in states.items():
        primitive[:, (right == a) & (up == b)] = np.array(state)[:, None]

    def conserved(p: Field) -> Field:
        r, u, v, e = p
        return np.stack([r, r * u, r * v, e / (gamma - 1) + r * (u**2 + v**2) / 2])

    def primitives(c: Field) -> Field:
        r, mx, my, e = c
        return np.stack([r, mx / r, my / r, (gamma - 1) * (e - (mx**2 + my**2) / (2 * r))])

    def flux(p: Field, axis: int) -> Field:
        normal, pressure = p[1 + axis], p[3]
        moved = conserved(p) * normal
        moved[1 + axis] += pressure
        moved[3] += pressure * normal
        return moved

    def across(p: Field, axis: int) -> Field:
        """The differences of the fluxes through both faces of each cell."""
        pad = [(0, 0), (0, 0), (0, 0)]
        pad[1 + axis] = (2, 2)
        q = np.moveaxis(np.pad(p, pad, mode="edge"), 1 + axis, 1)
        low, high = q[:, 1:-1] - q[:, :-2], q[:, 2:] - q[:, 1:-1]
        slope = np.where(low * high > 0, np.sign(low) * np.minimum(abs(low), abs(high)), 0)
        left, other = (q[:, 1:-1] + slope / 2)[:, :-1], (q[:, 1:-1] - slope / 2)[:, 1:]
        speeds = [np.sqrt(gamma * s[3] / s[0]) for s in (left, other)]
        least = np.minimum(left[1 + axis] - speeds[0], other[1 + axis] - speeds[1])
        most = np.maximum(left[1 + axis] + speeds[0], other[1 + axis] + speeds[1])
        low_flux, high_flux = flux(left, axis), flux(other, axis)
        between = (most * low_flux - least * high_flux + least * most * (conserved(other) - conserved(left))) / (most - least)
        faces = np.where(least >= 0, low_flux, np.where(most <= 0, high_flux, between))
        return np.moveaxis(faces[:, 1:] - faces[:, :-1], 1, 1 + axis)

    state, time = conserved(primitive), 0.0
    while time < until:
        p = primitives(state)
        fastest = (np.maximum(abs(p[1]), abs(p[2])) + np.sqrt(gamma * p[3] / p[0])).max()
        dt = min(0.3 / n / fastest, until - time)
        first = state - dt * n * (across(p, 0) + across(p, 1))
        p = primitives(first)
        state = (state + first - dt * n * (across(p, 0) + across(p, 1))) / 2
        time += dt
    return state[0]


def taylor_green(n: int = 64, steps: int = 150) -> Field:
    """The last state of a Taylor-Green vortex."""
    for state in taylor_green_states(n, steps):
        last = state
    return last()


def taylor_green_series(snapshots: int, n: int = 64, steps: int = 150) -> Field:
    """The states after the last steps, as many as are asked for, one after the other along the first axis."""
    if not 1 <= snapshots <= steps:
        raise ValueError(f"{snapshots} snapshots: the vortex is followed over {steps} steps")
    states = enumerate(taylor_green_states(n, steps))
    return np.concatenate([state() for at, state in states if at >= steps - snapshots])


def taylor_green_states(n: int, steps: int) -> Iterator[Callable[[], Field]]:
    """The states after each step, to be computed or not: magnitude of the vorticity of a Taylor-Green vortex with a
    small disturbance, without which eighths of the cube would be copies of each other. Incompressible Navier-Stokes,
    pseudo-spectral, by the midpoint method."""
    k = np.stack(wave_numbers(n, 3))
    square = (k**2).sum(axis=0)
    inverse = 1 / np.where(square == 0, 1, square)
    mask = (np.abs(k) < n / 3).all(axis=0)
    x, y, z = np.meshgrid(*([np.arange(n) * 2 * np.pi / n] * 3), indexing="ij")
    velocity = np.stack([np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), 0 * x])
    disturbance = np.random.default_rng(4).standard_normal(velocity.shape) * 0.1
    viscosity, dt = 1e-3, 0.02

    def transform(values: Field) -> Field:
        return np.fft.fftn(values, axes=(1, 2, 3))

    def back(values: Field) -> Field:
        return np.real(np.fft.ifftn(values, axes=(1, 2, 3)))

    def curl(hat: Field) -> Field:
        return 1j * np.cross(k, hat, axis=0)

    def solenoidal(hat: Field) -> Field:
        return hat - k * ((k * hat).sum(axis=0) * inverse)

    hat = solenoidal(transform(velocity) + transform(disturbance) * np.exp(-square / 20))

    def change(hat: Field) -> Field:
        force = transform(np.cross(back(hat), back(curl(hat)), axis=0)) * mask
        return solenoidal(force) - viscosity * square * hat

    for _ in range(steps):
        hat = hat + dt * change(hat + dt / 2 * change(hat))
        yield lambda hat=hat: np.sqrt((back(curl(hat)) ** 2).sum(axis=0))


def terrain() -> Field:
    """Heights around Jacksboro, Tennessee, in whole metres: the sample of matplotlib, from data of the United States
    Geological Survey."""
    from matplotlib import cbook

    sample = np.load(cbook.get_sample_data("jacksboro_fault_dem.npz", asfileobj=False))
    return sample["elevation"].astype("f8")


ALL: dict[str, Callable[[], Field]] = {
    "vorticity": vorticity,
    "blobs": blobs,
    "shock": shock,
    "taylor-green": taylor_green,
    "terrain": terrain,
}


def main() -> None:
    """Writes all fields."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 2:
        np.save(directory / "taylor-green-series.npy", taylor_green_series(int(sys.argv[2])))
        return
    for name, make in ALL.items():
        try:
            field = make()
        except ImportError as error:
            print(f"{name}: left out, {error}")
            continue
        np.save(directory / f"{name}.npy", field)
        print(f"{name}: {field.shape}, {field.min():.4g} to {field.max():.4g}")


if __name__ == "__main__":
    main()
