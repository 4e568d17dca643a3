"""Bytes of packed arrays at each error, beside zfp, SZ3, SPERR and the scheme of Tango's paper to the letter, on the
fields of examples/fields; what analyses make of readings; unstructured meshes (tango_meshes.py); forecasts of
bandwidth: writes docs/evaluation/tango.md.
`make tango-evaluation` builds what it needs first.

The peers are installed into an environment of their own, target/tango; one that cannot be had is left out."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steps import ROOT

PACKAGES = ["numpy==2.4.6", "matplotlib==3.11.2", "h5py==3.16.0", "hdf5plugin==7.1.0", "scipy==1.17.1"]
VENV = ROOT / "target" / "tango"
FIELDS = ROOT / "target" / "fields"
BARO = Path(os.environ.get("BARO_BIN", ROOT / "target" / "release" / "baro"))
PAGE = ROOT / "docs" / "evaluation" / "tango.md"
TARGETS = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5]
# What examples/fields/analyses.py compares.
QUALITIES = ["blob count", "blob area", "blob mass", "high area", "force", "1 - SSIM", "1 - Dice"]
# Fields that are sampled more finely, and how often an axis is doubled.
FINER = {"blobs": 3, "vorticity": 2}
# What the forecasts of bandwidth print, made by the example of crates/forecast.
FORECASTS = ROOT / "target" / "interference.txt"
# Steps in which a parameter of a peer is halved between too coarse and too fine.
STEPS = 18


def enter_environment(program: str = __file__) -> None:
    """Runs a program again in the environment of the peers."""
    python = VENV / "bin" / "python"
    if Path(sys.prefix) == VENV:
        return
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    for package in PACKAGES:
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
        subprocess.run(command, check=False, stdin=subprocess.DEVNULL)
    os.execv(python, [python, program])


def nrmse(values: Any, read: Any) -> float:
    """Root mean square of the differences as a share of the range."""
    import numpy as np

    return float(np.sqrt(np.mean((values - read) ** 2)) / (values.max() - values.min()))


def least_bytes(values: Any, target: float, pack: Callable[[float], tuple[int, Any]], fine: float, coarse: float) -> float | None:
    """The bytes of a peer whose parameter is as coarse as the error allows, found by halving its logarithm."""
    best = None
    low, high = math.log(fine), math.log(coarse)
    for _ in range(STEPS):
        middle = (low + high) / 2
        size, read = pack(math.exp(middle))
        if nrmse(values, read) <= target:
            best, low = size, middle
        else:
            high = middle
    return best


def hdf5(values: Any, compression: Any) -> tuple[int, Any]:
    """An array in a file of HDF5 in memory, by a filter, as one chunk."""
    import h5py

    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        file.create_dataset("x", data=values, chunks=values.shape, **compression)
    # Opened anew: the file that was written has the values as they were in its cache.
    with h5py.File(memory, "r") as file:
        data = file["x"]
        return data.id.get_storage_size(), data[...]


def peers(values: Any, target: float) -> dict[str, float | None]:
    """The bytes of each peer at an error."""
    width = float(values.max() - values.min())
    sizes: dict[str, float | None] = {}
    try:
        import hdf5plugin
    except ImportError:
        return sizes
    fine, coarse = target / 100, min(target * 100, 0.5)
    # From a hundredth of a bit to 32 bits of a value, as the parameter goes from coarse to fine.
    bits = lambda t: 0.01 * 3200 ** (math.log(coarse / t) / math.log(coarse / fine))  # noqa: E731
    ways: dict[str, list[Callable[[float], Any]]] = {
        "zfp": [lambda t: hdf5plugin.Zfp(accuracy=t * width)],
        "SZ3": [lambda t: hdf5plugin.SZ3(absolute=t * width)],
        "SPERR": [
            lambda t: hdf5plugin.Sperr(absolute=t * width),
            lambda t: hdf5plugin.Sperr(peak_signal_to_noise_ratio=-20 * math.log10(t)),
            lambda t: hdf5plugin.Sperr(rate=bits(t)),
        ],
    }
    for name, filters in ways.items():
        found = [
            least_bytes(values, target, lambda t, way=way: hdf5(values, way(t)), fine, coarse) for way in filters
        ]
        sizes[name] = min((size for size in found if size is not None), default=None)
    return sizes


def ours(
    path: Path, values: Any, basis: str, look: Callable[[float, Any], None] = lambda *_: None
) -> tuple[dict[float, int], int]:
    """The bytes that `baro data unpack` reads at each error, checked against the values, and those of the whole file.
    Each reading is handed to `look`."""
    import numpy as np

    packed, out = path.with_suffix(".baro"), path.with_suffix(".out.npy")

    def baro(*words: object) -> dict[str, Any]:
        command = [BARO, "data", *map(str, words), "--force", "--threads", "1", "--json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    whole = baro("pack", path, "-o", packed, "--basis", basis)
    sizes = {}
    for target in TARGETS:
        sizes[target] = baro("unpack", packed, "--error", f"nrmse={target}", "-o", out)["bytes"]
        read = np.load(out)
        error = nrmse(values, read)
        assert error <= target, f"{path.name} {basis}: {error} for {target}"
        look(target, read)
    baro("unpack", packed, "-o", out)
    assert np.load(out).tobytes() == values.tobytes(), f"{path.name} {basis}: not exact"
    return sizes, whole["bytes"]


def prolonged(coarse: Any, shape: tuple[int, ...]) -> Any:
    """A coarser array at twice the points of each axis, by linear interpolation (Tango, section III-B, step 2)."""
    import numpy as np

    values = coarse
    for axis, length in enumerate(shape):
        at = np.arange(length) / 2
        low = np.minimum(np.floor(at).astype(int), values.shape[axis] - 1)
        high = np.minimum(low + 1, values.shape[axis] - 1)
        share = (at - np.floor(at)).reshape([-1 if a == axis else 1 for a in range(values.ndim)])
        values = np.take(values, low, axis) * (1 - share) + np.take(values, high, axis) * share
    return values


def paper(values: Any, target: float) -> tuple[float, float]:
    """Bytes and share of the values that the paper's scheme reads: two levels with a stride of 2, the largest
    differences of a level first, the coarser level before the finer one; 12 bytes for a difference with its
    coordinate, 8 for a value of the coarsest level. The differences are added, and not taken away as printed."""
    import numpy as np

    levels = [values]
    for _ in range(2):
        levels.append(levels[-1][tuple(slice(None, None, 2) for _ in values.shape)])
    details = [levels[at] - prolonged(levels[at + 1], levels[at].shape) for at in range(2)]
    orders = [np.argsort(-np.abs(detail), axis=None) for detail in details]
    # Differences of points that are on both levels are 0, and not stored.
    most = [int(np.count_nonzero(detail)) for detail in details]

    def read(counts: list[int]) -> Any:
        got = levels[2]
        for at in (1, 0):
            part = np.zeros(details[at].size)
            part[orders[at][: counts[at]]] = details[at].flat[orders[at][: counts[at]]]
            got = prolonged(got, levels[at].shape) + part.reshape(levels[at].shape)
        return got

    def fits(total: int) -> bool:
        coarse = min(total, most[1])
        return nrmse(values, read([total - coarse, coarse])) <= target

    low, high = 0, sum(most)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return levels[2].size * 8 + low * 12, (levels[2].size + low) / values.size


def thinned(values: Any, doublings: int) -> Any:
    """Every second, fourth, eighth … value along each axis, prolonged back to all of them: what an analysis has that
    reads the base alone."""
    shapes = [values.shape]
    coarse = values
    for _ in range(doublings):
        coarse = coarse[tuple(slice(None, None, 2) for _ in values.shape)]
        shapes.append(coarse.shape)
    for shape in reversed(shapes[:-1]):
        coarse = prolonged(coarse, shape)
    return coarse


def finer(values: Any) -> Any:
    """A periodic field at twice the points of each axis: the same waves, and none beside them."""
    import numpy as np

    n = values.shape[0]
    hat = np.fft.fftshift(np.fft.fft2(values))
    wide = np.fft.ifftshift(np.pad(hat, n // 2))
    return np.real(np.fft.ifft2(wide)) * 4


def oversampled() -> list[list[str]]:
    """The same fields on finer and finer grids: what the share of values that is read depends on."""
    import numpy as np

    rows = []
    for name, doublings in FINER.items():
        values = np.load(FIELDS / f"{name}.npy")
        for _ in range(doublings + 1):
            path = FIELDS / f"{name}-{values.shape[0]}.fine.npy"
            np.save(path, values)
            sizes, _ = ours(path, values, "wavelet")
            found = {target: peers(values, target) for target in TARGETS[2:]}
            shares = [paper(values, target)[1] for target in TARGETS[2:]]
            bits = lambda size, count=values.size: "-" if size is None else f"{size * 8 / count:.2f}"  # noqa: E731
            row = [f"{name} {values.shape[0]} × {values.shape[1]}"]
            row += [" / ".join(f"{100 * share:.0f}" for share in shares)]
            row += [" / ".join(bits(sizes[target]) for target in TARGETS[2:])]
            row += [" / ".join(bits(found[target].get(peer)) for target in TARGETS[2:]) for peer in ("SPERR", "SZ3", "zfp")]
            rows.append(row)
            print(*row, flush=True)
            values = finer(values)
    return rows


def analysed(name: str, values: Any, readings: dict[float, Any]) -> list[list[str]]:
    """How far off the analyses of readings are, and of arrays with fewer values."""
    sys.path.insert(0, str(ROOT / "examples" / "fields"))
    from analyses import compared

    cells = lambda found: ["-" if math.isinf(value) else f"{value:.1e}" for value in found.values()]  # noqa: E731
    rows = [[name, f"NRMSE {target:.0e}", *cells(compared(values, read))] for target, read in readings.items()]
    for doublings in (2, 3):
        read = thinned(values, doublings)
        label = f"1 of {2 ** (doublings * values.ndim)} values, NRMSE {nrmse(values, read):.0e}"
        rows.append([name, label, *cells(compared(values, read))])
    return rows


def rows_of(name: str) -> tuple[list[list[str]], list[list[str]]]:
    """The tables of a field: bits of a value at each error, and what analyses make of the readings."""
    import numpy as np

    path = FIELDS / f"{name}.npy"
    values = np.load(path)
    bits = lambda size: "-" if size is None else f"{size * 8 / values.size:.2f}"  # noqa: E731
    rows = []
    readings: dict[float, Any] = {}
    for basis in ("linear", "cubic", "wavelet"):
        sizes, whole = ours(path, values, basis, readings.__setitem__)
        rows.append([f"ours, {basis}", *(bits(sizes[target]) for target in TARGETS), bits(whole)])
    found = [peers(values, target) for target in TARGETS]
    rows += [[peer, *(bits(at.get(peer)) for at in found), "-"] for peer in found[0]]
    scheme = [paper(values, target) for target in TARGETS]
    rows.append(["Tango to the letter", *(bits(size) for size, _ in scheme), "-"])
    rows.append(["its share of the values", *(f"{100 * share:.0f} %" for _, share in scheme), "-"])
    print(name, values.shape, flush=True)
    # The readings of the last basis, the wavelet.
    return rows, analysed(name, values, readings)


def table(head: list[str], rows: list[list[str]], texts: int = 1) -> list[str]:
    """A table of Markdown whose first columns are texts and the others are numbers."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * texts + " ---: |" * (len(head) - texts)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def page(
    tables: dict[str, list[list[str]]], fine: list[list[str]], quality: list[list[str]], meshes: list[str]
) -> str:
    """The document."""
    import numpy as np

    sys.path.insert(0, str(ROOT / "examples" / "fields"))
    from analyses import BLOB_POINTS_MIN, HIGH

    lines = [
        "# Data that gives way, measured",
        "",
        "Generated by `make tango-evaluation`; do not edit. [0011](../design/0011-tango.md) has the decisions behind it.",
        "",
        f"Peers: the filters of {PACKAGES[3]}. Bytes and errors are exact, whatever the machine; no time is measured here.",
        "",
        "## Bits of a value at each error",
        "",
        "Arrays of binary64, so raw is 64. The error is the root mean square of the differences as a share of the range "
        "(NRMSE), measured for every number here, ours and theirs. Ours are all bytes that `baro data unpack --error nrmse=…` reads of one "
        "file, header included; *exact* is the whole file, which gives back every bit. The peers make one file for each error, with the coarsest "
        f"parameter that keeps it ({STEPS} steps of halving; SPERR by its largest error, its PSNR or its rate, whichever is smallest); their "
        "sizes are without headers of HDF5. Tango's scheme is that of the paper with two levels of stride 2, 12 bytes for a difference and its coordinate, the "
        "number of differences chosen so that the measured error is met.",
    ]
    for name, rows in tables.items():
        values = np.load(FIELDS / f"{name}.npy", mmap_mode="r")
        head = ["", *(f"{target:.0e}" for target in TARGETS), "exact"]
        lines += ["", f"### {name} {' × '.join(map(str, values.shape))}", "", *table(head, rows)]
        lines.pop()
    lines += [
        "",
        "The fields are of solvers of ours ([examples/fields](../../examples/fields/fields.py)) and matplotlib's terrain; none is of the paper, whose data is not public.",
        "",
        "## The same fields on finer grids",
        "",
        "The paper says that less than 30 % of the values are read for an NRMSE of 1e-5 (figure 11). That depends on how finely a field is sampled: these are the same waves on grids with twice, four times and eight times "
        "the points of an axis. Each cell has the numbers for 1e-3, 1e-4 and 1e-5: the share of the values that the paper's scheme reads, in %, and bits of a value.",
        "",
        *table(["field", "share read, paper's scheme", "ours, wavelet", "SPERR", "SZ3", "zfp"], fine),
        "## What analyses make of it",
        "",
        f"How far off the analyses of a reading are ([analyses.py](../../examples/fields/analyses.py)): relative errors of the number, the mean area and the mean mass of blobs (connected points above {100 * HIGH:.0f} % of the "
        f"range, at least {BLOB_POINTS_MIN}), and of the area of what is high and the force on it; 1 - SSIM of a picture with 256 grey levels, and 1 - Dice of what is high. Of three dimensions the middle plane is analysed. "
        "The readings are ours with the wavelet, at the bounds; the last rows of each field have every fourth or eighth value of an axis, prolonged, as who reads the paper's base alone (figure 2: at most 25 % at a decimation of 512).",
        "",
        *table(["field", "read", *QUALITIES], quality, 2),
        *meshes,
        "## Forecasts of bandwidth",
        "",
        "Root mean square errors in MB/s of the next 30 steps of 60 s, mean of 24 seeds, starts up to 3 s off where delays are not said to be none; the device has 120 MB/s and the reader reads 300 MB a step. The writers are those of "
        "the paper's Table IV, with other phases, or with periods that have no common multiple. This is a model of a device that is shared by weight ([0005](../design/0005-forecast.md#interference)), not a device; *known schedules* is "
        "the bound of what schedules can say. A window of 30 steps is a common multiple of Table IV's periods: there a replay of the window is exact, which is why the paper's transform fits so well.",
        "",
        *(line for line in FORECASTS.read_text().splitlines() if line.startswith("|")),
        "",
        "How long an analysis waits for such bytes while others write checkpoints to the same disk is measured in [reading beside checkpoints](interference.md).",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measures, and writes the page."""
    enter_environment()
    python = VENV / "bin" / "python"
    subprocess.run([python, ROOT / "examples" / "fields" / "fields.py", FIELDS], check=True)
    tables, quality = {}, []
    for path in sorted(FIELDS.glob("*.npy")):
        if "." not in path.stem:
            tables[path.stem], rows = rows_of(path.stem)
            quality += rows
    # It has the environment and the tables of this program.
    from tango_meshes import section

    PAGE.write_text(page(tables, oversampled(), quality, section()))


if __name__ == "__main__":
    main()
