"""Draws a run of the heat equation: residual, time step, seconds per step, and load of the disks.

    python plot.py heat.png [--start -5min]        (needs matplotlib)
"""

import argparse

import barograph
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

LANES = [
    ("residual [K/s]", "app.heat.residual{rank=0}", "log"),
    ("time step [s]", "app.heat.dt{rank=0}", "log"),
    ("wall clock of a step [s]", "app.heat.step.seconds{rank=0}", "log"),
    ("disks busy", "disk.busy.ratio", "linear"),
]


def draw(path: str, start: str) -> int:
    """Writes the picture; returns the number of samples in it."""
    figure, axes = plt.subplots(len(LANES), 1, sharex=True, figsize=(9, 8), constrained_layout=True)
    drawn, began = 0, None
    for axis, (title, pattern, scale) in zip(axes, LANES, strict=True):
        by_labels: dict[str, list[tuple[int, float]]] = {}
        for row in barograph.history(pattern, start=start):
            if row["value"] is not None:
                by_labels.setdefault(row["labels"], []).append((row["ts"], row["value"]))
        if began is None:
            began = min((ts for samples in by_labels.values() for ts, _ in samples), default=None)
        for labels, samples in sorted(by_labels.items()):
            since = [(ts - (began or 0), value) for ts, value in sorted(samples) if ts >= (began or 0)]
            axis.plot([ts / 1e9 for ts, _ in since], [value for _, value in since], label=labels, linewidth=1)
            drawn += len(since)
        axis.set_ylabel(title, fontsize=8)
        axis.set_yscale(scale)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("seconds since the first frame")
    figure.savefig(path, dpi=120)
    return drawn


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--start", default="-5min")
    arguments = parser.parse_args()
    print(draw(arguments.path, arguments.start), "samples")
