"""Bits of values on unstructured meshes (examples/fields/mesh.py) in several orders of the points: the section of
docs/evaluation/tango.md, which tango_evaluation.py puts there. Alone, this program prints the section.

Reverse Cuthill-McKee needs scipy, and is left out without it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steps import ROOT
from tango_evaluation import BARO, FIELDS, enter_environment, nrmse, table

MESHES = ["even", "graded", "refined", "space"]
TARGETS = [1e-3, 1e-4, 1e-5]
FOLDER = FIELDS / "meshes"


def baro(*words: object) -> dict[str, Any]:
    """What a command of `baro data` tells."""
    command = [BARO, "data", *map(str, words), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def bits(values: Any, points: Path | None = None) -> tuple[list[float], float]:
    """Bits of a value at each error and of the exact array, checked against the values, and those of a point."""
    import numpy as np

    path, packed, out = FOLDER / "in.npy", FOLDER / "packed.baro", FOLDER / "out.npy"
    np.save(path, values)
    baro("pack", path, "-o", packed, "--force", *(["--points", points] if points else []))
    listed = baro("inspect", packed).get("arrays", [])
    coordinates = sum(array["bytes"] for array in listed if array["name"].startswith("mesh/"))
    found = []
    for target in [*TARGETS, 0]:
        read = baro("unpack", packed, "--error", f"nrmse={target}", "-o", out, "--force")["bytes"]
        error = nrmse(values, np.load(out))
        assert error <= target, f"{error} for {target}"
        found.append((read - coordinates) * 8 / values.size)
    return found, coordinates * 8 / values.size


def by_x(points: Any) -> Any:
    """The order by one coordinate."""
    import numpy as np

    return np.argsort(points[:, 0], kind="stable")


def strips(points: Any) -> Any:
    """The order along strips of equal widths, there and back; in space along rods. Their width is one that suits even
    meshes: that of 1.5 points of a regular grid."""
    import numpy as np

    count, axes = points.shape
    low, size = points.min(axis=0), np.ptp(points, axis=0).max()
    number = round(count ** (1 / axes) / 1.5)
    cells = np.minimum(((points[:, :-1] - low[:-1]) / size * number).astype(int), number - 1)
    keys = []
    for axis in range(axes):
        along = points[:, axis] if axis == axes - 1 else cells[:, axis]
        # Each second strip is walked back, so it begins where the one before it ends.
        is_back = cells[:, :axis].sum(axis=1) % 2 == 1
        keys.append(np.where(is_back, -along, along))
    return np.lexsort(keys[::-1])


def breadth_first(points: Any) -> Any:
    """Reverse Cuthill-McKee along the edges of a Delaunay triangulation."""
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee
    from scipy.spatial import Delaunay

    cells = Delaunay(points).simplices
    corners = range(cells.shape[1])
    edges = np.concatenate([cells[:, [a, b]] for a in corners for b in corners if a != b])
    graph = coo_array((np.ones(len(edges)), edges.T), shape=(len(points), len(points)))
    return reverse_cuthill_mckee(graph.tocsr(), symmetric_mode=True)


def measured(name: str) -> dict[str, str]:
    """The cells of a mesh by the name of the row."""
    import numpy as np

    points_path = FOLDER / f"{name}-points.npy"
    points, values = np.load(points_path), np.load(FOLDER / f"{name}-values.npy")
    on_grid = FOLDER / f"{name}-grid.npy"
    orders: dict[str, Callable[[Any], Any]] = {
        "as numbered, at random": lambda points: np.arange(len(points)),
        "by one coordinate": by_x,
        "breadth first (reverse Cuthill-McKee)": breadth_first,
        "strips, there and back": strips,
    }
    text = lambda found: " / ".join(f"{value:.2f}" for value in found)  # noqa: E731
    cells = {"*regular grid with as many points*": text(bits(np.load(on_grid))[0]) if on_grid.exists() else "-"}
    for label, order in orders.items():
        try:
            cells[label] = text(bits(values[order(points)])[0])
        except ImportError:
            cells[label] = "-"
    rings = FOLDER / f"{name}-rings.npy"
    cells["along the rings"] = text(bits(values[np.load(rings)])[0]) if rings.exists() else "-"
    found, coordinates = bits(values, points_path)
    cells["**Hilbert curve** (`--points`)"] = text(found)
    cells["coordinates, once for a file"] = f"{coordinates:.1f}"
    print(name, cells, file=sys.stderr, flush=True)
    return cells


def section() -> list[str]:
    """The lines of the document."""
    program = ROOT / "examples" / "fields" / "mesh.py"
    subprocess.run([sys.executable, program, FOLDER], check=True)
    columns = {name: measured(name) for name in MESHES}
    rows = [[label, *(columns[name][label] for name in MESHES)] for label in columns[MESHES[0]]]
    head = ["order of the points", "even, plane", "graded, plane", "refined, plane", "random, space"]
    return [
        "## Unstructured meshes",
        "",
        "Smooth eddies and a blob at 60,000 points that are numbered at random ([mesh.py](../../examples/fields/mesh.py)): on "
        "rings in a disc, moved a little, as a plasma's cross-section has them; random in a disc, half of them near its edge; "
        "around five centres, the denser the nearer; and random in a cube. Each cell has bits of a value "
        "at 1e-3, 1e-4 and 1e-5 and of the exact array, with the wavelet along the order. Strips are as wide as 1.5 points of a "
        "regular grid. The coordinates are exact, in bits for a point.",
        "",
        *table(head, rows),
    ]


if __name__ == "__main__":
    enter_environment(__file__)
    FOLDER.mkdir(parents=True, exist_ok=True)
    print("\n".join(section()))
