"""The interference experiment of Tango at a tenth of its times and sizes: a reader of a packed array and six
writers of checkpoints (Table IV of the paper) on an emulated slow tier. `make interference-evaluation` builds what it
needs first, and writes docs/evaluation/interference.md.

    interference_evaluation.py [--rows none,storage,...] [--repeats 5] [--seconds 120] [--sweeps] [--publish]

It needs root, and two and a half hours with its defaults on a machine that does nothing else. The results are in
target/interference/results.json, and with --publish in docs/evaluation/. The rows of all repeats take turns, so that
a machine that changes changes all of them."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import agent
import interference_page
import slow_tier
from interference_load import Packed, Refused, ask
from slow_tier import Disk, Tier
from steps import ROOT

BARO = Path(os.environ.get("BARO_BIN", ROOT / "target" / "release" / "baro"))
PLACE = ROOT / "target" / "interference"
DATA = ROOT / "docs" / "evaluation" / "data" / "interference.json"
PAGE = ROOT / "docs" / "evaluation" / "interference.md"
LOAD = ROOT / "scripts" / "interference_load.py"
VENV = ROOT / "target" / "interference-python"
NUMPY = "numpy==2.4.6"

# Table IV at a tenth: seconds between checkpoints, and bytes of one.
WRITERS = [(20.0, 76_800_000), (22.5, 51_200_000), (36.0, 51_200_000), (18.0, 102_400_000), (15.0, 102_400_000), (12.0, 102_400_000)]
READER_PERIOD = 6.0
HIGH_WEIGHT = 1000
FIXED_DEGREE = 0.4
# Megabytes a second at which the agent's degree is 0 and 1, as in the paper's evaluation.
THRESHOLDS = (30.0, 120.0)
REASON_CHARACTERS_MAX = 240
# From the start of the processes to their first work.
LEAD_SECONDS = 1.5
# How long processes may take to finish what they have begun when a run ends.
LINGER_SECONDS_MAX = 60


@dataclass(frozen=True)
class Row:
    """What is measured: who writes, how much is read, and who sets the weight."""

    name: str
    title: str
    writers: int = len(WRITERS)
    weight: int | None = None
    degree: float = 1.0
    # Whether the agent plans each step, whether it may set the weight of the reader, and whether it has to learn the
    # thresholds of the disk.
    is_planned: bool = False
    may_weigh: bool = True
    is_learning: bool = False
    # Whether the reader is that of the package of Python, whose time includes the decoding.
    is_package: bool = False
    error: float | None = None
    priority: int = 10


def rows_of(names: list[str], sweeps: bool) -> list[Row]:
    """The rows by name, or all; the sweeps are those of figures 13 and 14 of the paper."""
    rows = [
        Row("no-noise", "no noise", writers=0),
        Row("none", "no adaptivity"),
        Row("storage", f"storage only (weight {HIGH_WEIGHT})", weight=HIGH_WEIGHT),
        Row("application-fixed", f"application only, {FIXED_DEGREE:.0%} of the bytes", degree=FIXED_DEGREE),
        Row("cross-fixed", f"{FIXED_DEGREE:.0%} of the bytes and weight {HIGH_WEIGHT}", degree=FIXED_DEGREE, weight=HIGH_WEIGHT),
        Row("application", "application only, the agent plans", is_planned=True, may_weigh=False),
        Row("cross", "cross-layer, the agent plans and weighs", is_planned=True),
        Row("cross-learnt", "the same with thresholds that it learns", is_planned=True, is_learning=True),
        Row("package-none", "no adaptivity, with barograph.progressive, decoded", is_package=True),
        Row("package-cross", "cross-layer, with barograph.progressive, decoded", is_planned=True, is_package=True),
    ]
    swept = [
        *(Row(f"priority-{p}", f"cross-layer, priority {p}, NRMSE 0.01", is_planned=True, error=1e-2, priority=p) for p in (1, 5, 10)),
        *(Row(f"error-{e:.0e}", f"cross-layer, priority 10, NRMSE {e:g}", is_planned=True, error=e) for e in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)),
    ]
    known = {row.name: row for row in rows + swept}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no row {', '.join(unknown)}: choose of {', '.join(known)}")
    if names:
        return [known[name] for name in names]
    return rows + swept if sweeps else rows


# ---- The array ----


def packed_array(snapshots: int) -> Path:
    """A packed array of the solver of examples/fields, made once: 78 states of a Taylor-Green vortex have some 120 MB
    at full precision."""
    packed = PLACE / f"taylor-green-{snapshots}.baro"
    if packed.exists():
        return packed
    PLACE.mkdir(parents=True, exist_ok=True)
    plain = PLACE / "taylor-green-series.npy"
    print(f"making {packed.relative_to(ROOT)}: a vortex of {snapshots} states ...", flush=True)
    subprocess.run([python_with_numpy(), ROOT / "examples" / "fields" / "fields.py", PLACE, str(snapshots)], check=True)
    subprocess.run([BARO, "data", "pack", plain, "-o", packed, "--force"], check=True, stdout=subprocess.DEVNULL)
    plain.unlink()
    return packed


def python_with_numpy() -> str | Path:
    """A Python that has numpy: this one, or one of an environment of its own."""
    if subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True, check=False).returncode == 0:
        return sys.executable
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", NUMPY]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return python


def inspected(packed: Path) -> Packed:
    """The buckets of the array."""
    done = subprocess.run([BARO, "data", "inspect", packed, "--json"], check=True, capture_output=True, text=True)
    return Packed.of(json.loads(done.stdout))


def fill(tier: Tier, packed: Path) -> None:
    """Puts the array and the files of the writers on the tier: checkpoints go over the ones before, as from the second
    one on."""
    command = ["dd", "bs=1M", "oflag=direct", "status=none"]
    slow_tier.run([*command, f"if={packed}", f"of={tier.mount / 'field.baro'}"])
    for number, (_, size) in enumerate(WRITERS, 1):
        pieces = -(-size // (1 << 20))
        slow_tier.run([*command, "if=/dev/zero", f"of={tier.mount / f'checkpoint-{number}'}", f"count={pieces}"])


# ---- A run ----


@contextlib.contextmanager
def planner(row: Row, tier: Tier) -> Iterator[str | None]:
    """The control socket of an agent for a row that is planned; None for others."""
    if not row.is_planned:
        yield None
        return
    with agent.running(BARO, PLACE / f"agent-{row.name}.log", config_of(row, tier)) as names:
        yield f"{names['BAROGRAPH_RUN_DIR']}/control.sock"


def config_of(row: Row, tier: Tier) -> str:
    """The configuration of the agent for a row."""
    text = f'[control]\nweights = "{"controllers" if row.may_weigh else "off"}"\n'
    if not row.is_learning:
        low, high = (megabytes * 1e6 for megabytes in THRESHOLDS)
        text += f"[control.thresholds.{Path(tier.device).name}]\nlow = {low}\nhigh = {high}\n"
    return text


def processor_seconds() -> tuple[float, float]:
    """Seconds in which the processors worked, and all of them, since the machine started."""
    fields = [float(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    ticks = os.sysconf("SC_CLK_TCK")
    return (sum(fields) - fields[3] - fields[4]) / ticks, sum(fields) / ticks


def one_run(row: Row, tier: Tier, packed: Packed, options: argparse.Namespace) -> dict[str, Any]:
    """Runs writers and reader together; returns their lines, with the load of the machine before and after."""
    length = packed.ends[-1]
    tier.groups.set_weight("reader", 100)
    load, busy = [os.getloadavg()[0]], processor_seconds()
    with planner(row, tier) as control:
        if row.weight is not None:
            tier.groups.set_weight("reader", row.weight)
        begin = time.monotonic() + LEAD_SECONDS
        end = begin + options.warm_up + options.seconds
        times = {"begin": begin, "end": end}
        reader = times | {
            "group": str(tier.groups.folder / "reader"),
            "path": str(tier.mount / "field.baro"),
            "period_s": READER_PERIOD,
            "bytes": length if row.degree == 1 else int(length * row.degree),
            "ends": packed.ends,
            "errors": packed.errors,
            "control": control,
            "is_package": row.is_package,
            "error": row.error,
            "priority": row.priority,
        }
        loads = [("reader", reader)]
        for number, (period, size) in enumerate(WRITERS[: row.writers], 1):
            group = str(tier.groups.folder / f"writer-{number}")
            writer = {"group": group, "path": str(tier.mount / f"checkpoint-{number}"), "period_s": period, "bytes": size}
            loads.append(("writer", times | writer))
        lines = work(loads, end, options.python if row.is_package else sys.executable)
    done = processor_seconds()
    load.append(os.getloadavg()[0])
    share = (done[0] - busy[0]) / max(done[1] - busy[1], 1e-9)
    return {"row": row.name, "load": load, "processors_busy": share, "steps": lines[0], "writers": lines[1:]}


def work(loads: list[tuple[str, dict[str, Any]]], end: float, python: str) -> list[list[dict[str, Any]]]:
    """The lines of each process; the reader's are run by this Python."""
    processes = [
        subprocess.Popen(
            [python if role == "reader" else sys.executable, LOAD, role, json.dumps(settings)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        for role, settings in loads
    ]
    try:
        # Their lines stay far below what a pipe holds.
        texts = [process.communicate(timeout=max(1.0, end + LINGER_SECONDS_MAX - time.monotonic()))[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    failed = [role for (role, _), process in zip(loads, processes, strict=True) if process.returncode != 0]
    if failed:
        raise RuntimeError(f"a {failed[0]} failed: what it says is above")
    return [[json.loads(line) for line in text.splitlines()] for text in texts]


def hindrance(row: Row, tier: Tier, packed: Packed, python: str) -> str | None:
    """Why a row cannot be measured, or None."""
    if row.is_package:
        done = subprocess.run([python, "-c", "from barograph import progressive"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{Path(python).name} has no barograph.progressive (--python): {brief(done.stderr.splitlines()[-1:])}"
    question = packed.question(str(tier.mount / "field.baro"), row.error, row.priority, READER_PERIOD)
    try:
        with planner(row, tier) as control:
            if control is not None:
                ask(control, "plan", question | {"dry_run": True})
    except (Refused, RuntimeError) as error:
        return f"this agent plans no readings: {brief([str(error)])}"
    return None


def brief(lines: list[str]) -> str:
    """Lines as one that is not long."""
    text = " ".join(" ".join(lines).split())
    return text if len(text) <= REASON_CHARACTERS_MAX else text[:REASON_CHARACTERS_MAX] + " …"


# ---- All runs ----


def measure(rows: list[Row], options: argparse.Namespace) -> dict[str, Any]:
    """Sets up the tier and runs all rows in turn."""
    if not BARO.exists():
        raise SystemExit(f"{BARO} is not there: cargo build --release --bin baro, or name it with BARO_BIN")
    disk = Disk()
    slow_tier.install()
    lack = slow_tier.missing(disk)
    if lack:
        raise SystemExit(lack)
    array = packed_array(options.snapshots)
    packed = inspected(array)
    groups = ["reader", *(f"writer-{number}" for number in range(1, len(WRITERS) + 1))]
    results: dict[str, Any] = {
        "disk": asdict(disk),
        "writers": WRITERS,
        "reader_period_s": READER_PERIOD,
        "thresholds": THRESHOLDS,
        "seconds": options.seconds,
        "warm_up_s": options.warm_up,
        "repeats": options.repeats,
        "processors": os.cpu_count(),
        "kernel": os.uname().release,
        "array": {"snapshots": options.snapshots, "ends": packed.ends, "errors": packed.errors},
        "rows": [asdict(row) for row in rows],
        "left_out": {},
        "runs": [],
    }
    with slow_tier.running(PLACE / "tier", disk, groups) as tier:
        results["groups_version"] = tier.groups.version
        fill(tier, array)
        for row in rows:
            reason = hindrance(row, tier, packed, options.python)
            if reason:
                results["left_out"][row.name] = reason
                print(f"{row.title}: left out, {reason}", flush=True)
        for repeat in range(options.repeats):
            for row in rows:
                if row.name not in results["left_out"]:
                    run = one_run(row, tier, packed, options)
                    results["runs"].append(run | {"repeat": repeat})
                    print(interference_page.line_of(results, run, f"{repeat + 1}/{options.repeats} {row.title}"), flush=True)
                    # Kept after each run: what was measured is not lost if a later one fails.
                    write(PLACE / "results.json", as_text(results))
    return results


def write(path: Path, text: str) -> None:
    """Writes a file as a whole, or leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def as_text(results: dict[str, Any]) -> str:
    """Results as JSON with a line for each run."""
    runs = ",\n".join(map(json.dumps, results["runs"]))
    head = json.dumps({name: value for name, value in results.items() if name != "runs"}, indent=1)
    return f'{head[:-2]},\n "runs": [\n{runs}\n]}}\n'


def lock() -> None:
    """Makes sure that no other run is at work, whose tier this one would take down; held until this process ends."""
    PLACE.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(PLACE / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("another interference evaluation of this checkout is at work: wait for its end")


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="names of rows, with commas; without it all but the sweeps")
    parser.add_argument("--sweeps", action="store_true", help="also the rows over priority and error bound")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each row")
    parser.add_argument("--seconds", type=float, default=120, help="seconds of a run that count")
    parser.add_argument("--warm-up", type=float, default=36, help="seconds of a run before that")
    parser.add_argument("--snapshots", type=int, default=78, help="states in the array, 1.5 MB each")
    parser.add_argument("--python", default=sys.executable, help="a Python that has the package barograph, with numpy")
    parser.add_argument("--publish", action="store_true", help="write docs/evaluation/interference.md and its data")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page from the data that are there")
    parser.add_argument("--clean", action="store_true", help="measure nothing; remove what a killed run has left")
    options = parser.parse_args()
    wrong = [
        name
        for name, least, most in (("repeats", 1, 1000), ("seconds", READER_PERIOD, 86400), ("warm_up", 0, 86400), ("snapshots", 1, 150))
        if not least <= getattr(options, name) <= most
    ]
    if wrong:
        parser.error(f"--{wrong[0].replace('_', '-')} is out of range")
    return options


def main() -> None:
    """Measures, prints the tables, and publishes them if that is wanted."""
    options = arguments()
    # A request to end is an exception, after which everything is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.page:
        write(PAGE, interference_page.page(json.loads(DATA.read_text()) if DATA.exists() else None))
        return
    lock()
    if options.clean:
        groups = slow_tier.groups_here()
        if groups:
            slow_tier.take_down(PLACE / "tier", groups)
        return
    rows = rows_of([name for name in options.rows.split(",") if name], options.sweeps)
    results = measure(rows, options)
    print(interference_page.tables(results))
    if options.publish:
        write(DATA, as_text(results))
        write(PAGE, interference_page.page(results))


if __name__ == "__main__":
    try:
        main()
    except slow_tier.Missing as error:
        sys.exit(str(error))
