"""Staging and placement with real processes: loss under SIGKILL beside Redis, throughput and latency beside Redis and
files, and data placement on emulated tiers. `make staging-evaluation` builds what it needs first.

    staging_evaluation.py [--parts loss,rates,tiers] [--repeats 5] [--kills 8] [--page]

It writes docs/evaluation/staging.md and its data, each part as soon as it is measured; parts that are not measured are
kept as they were. It takes about ten minutes with its defaults. The part `tiers` needs root, and redis-server is needed
for the others (scripts/peers.sh)."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import slow_tier
import staging_loss
import staging_page
import staging_rates
import staging_servers
import staging_tiers
from staging_servers import BUILT, MODULE, Missing
from steps import ROOT

DATA = ROOT / "docs" / "evaluation" / "data" / "staging.json"
PAGE = ROOT / "docs" / "evaluation" / "staging.md"
PARTS = ("loss", "rates", "tiers")


def measure(part: str, folder: Path, options: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> None:
    """Measures a part, and keeps the results."""
    build = {"build": BUILT.name, "module_build": MODULE.name}
    if part == "loss":
        keep(build | {"settings": loss_settings(options.kills), "runs": staging_loss.measure(folder, options.kills)})
    if part == "rates":
        keep(
            build
            | {"cold_bytes": staging_rates.COLD_BYTES, "blocks_max": staging_rates.BLOCKS_MAX}
            | staging_rates.measure(folder, options.repeats)
        )
    if part == "tiers":
        policies = list(staging_tiers.POLICIES)
        staging_tiers.measure(folder, options.repeats, policies, lambda told: keep(build | told))


def loss_settings(kills: int) -> dict[str, Any]:
    """The figures of which the page tells."""
    return {
        "kills": kills,
        "seed": staging_loss.SEED,
        "writers": staging_loss.WRITERS,
        "block_kib": staging_loss.BLOCK_BYTES >> 10,
        "new_every": staging_loss.NEW_BLOCK_EVERY,
        "hot": staging_loss.HOT_BLOCKS - staging_loss.HOT_BLOCKS // staging_loss.NEW_BLOCK_EVERY,
        "pause_ms": staging_loss.PAUSE_SECONDS * 1e3,
        "down_s": staging_loss.DOWN_SECONDS,
        "gap_low": staging_loss.GAP_SECONDS[0],
        "gap_high": staging_loss.GAP_SECONDS[1],
        "wait_ms": staging_loss.WAIT_MILLISECONDS,
        "redis": staging_servers.redis_version(),
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    models = [
        row.split(":", 1)[1].strip()
        for row in Path("/proc/cpuinfo").read_text().splitlines()
        if row.startswith("model name")
    ]
    return {
        "processors": os.cpu_count(),
        "processor": models[0] if models else platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nice": os.nice(0),
    }


def write(path: Path, text: str) -> None:
    """Writes a file as a whole, or leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def as_text(results: dict[str, Any]) -> str:
    """Results as JSON with a line for each run or row."""
    parts = []
    for name, part in results.items():
        lists = {key: value for key, value in part.items() if key in ("runs", "rows")}
        head = json.dumps({key: value for key, value in part.items() if key not in lists})
        body = "".join(f',\n  "{key}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]" for key, rows in lists.items())
        parts.append(f' "{name}": {head[:-1]}{body}}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="what is measured, with commas")
    parser.add_argument("--repeats", type=int, default=5, help="of throughput and of placement")
    parser.add_argument("--kills", type=int, default=8, help="of each system")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing; write the page from the data that are there"
    )
    options = parser.parse_args()
    options.parts = [part for part in options.parts.split(",") if part]
    if any(part not in PARTS for part in options.parts):
        parser.error(f"parts are {', '.join(PARTS)}")
    if not (1 <= options.repeats <= 1000 and 1 <= options.kills <= 1000):
        parser.error("--repeats and --kills are 1 to 1000")
    return options


def main() -> None:
    """Measures, and writes page and data after each part."""
    options = arguments()
    # A request to end is an exception, after which everything is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results: dict[str, Any] = json.loads(DATA.read_text()) if DATA.exists() else {}
    missing = []

    def keep(part: str, told: dict[str, Any]) -> None:
        results[part] = told
        write(DATA, as_text(results))

    if not options.page:
        results["machine"] = machine()
        with (
            tempfile.TemporaryDirectory(dir="/dev/shm", prefix="baro-staging-") as name,
            staging_servers.package(Path(name)),
        ):
            for part in options.parts:
                begin = time.monotonic()
                try:
                    measure(part, Path(name), options, lambda told, part=part: keep(part, told))  # type: ignore[misc]
                except (Missing, slow_tier.Missing) as lack:
                    missing.append(f"{part}: {lack}")
                    continue
                print(f"{part}: {time.monotonic() - begin:.0f} s", flush=True)
    write(PAGE, staging_page.page(results))
    if missing:
        sys.exit("not measured: " + "; ".join(missing))


if __name__ == "__main__":
    main()
