"""The interference experiment of Tango at a tenth of its times and sizes: a reader of a packed array and six
writers of checkpoints (Table IV of the paper) on an emulated slow tier. `make interference-evaluation` builds what it
needs first, and writes docs/evaluation/interference.md.

    interference_evaluation.py [--rows none,storage,...] [--repeats 5] [--seconds 60] [--sweeps] [--publish]

It needs root, and an hour and a quarter with its defaults and the sweeps, on a machine that does nothing else. The results are in
target/interference/results.json, and with --publish in docs/evaluation/. Rows with the same writers are measured one after the other
while these go on, in another order in each repeat: so a machine that changes changes all of them, and each meets all checkpoints."""

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
from dataclasses import asdict, dataclass, replace
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
# Bytes of a read for which the agent forecasts the bandwidth.
FORECAST_BYTES = 48_000_000
# Megabytes a second at which the agent's degree is 0 and 1, as in the paper's evaluation.
THRESHOLDS = (30.0, 120.0)
REASON_CHARACTERS_MAX = 240
# From the start of a process to its first work.
LEAD_SECONDS = 1.5
# Most nodes of a row, each with a disk, an agent, a reader and writers of its own.
NODES_MAX = 4
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
    nodes: int = 1
    # Whether the row is one of those that the evaluation is about, which have more runs.
    is_main: bool = True


def rows_of(names: list[str], sweeps: bool) -> list[Row]:
    """The rows by name, or all; the sweeps are those of figures 13, 14 and 16 of the paper."""
    cross = Row("", "", is_planned=True, is_main=False)
    rows = [
        Row("no-noise", "no noise", writers=0),
        Row("none", "no adaptivity"),
        Row("storage", f"storage only (weight {HIGH_WEIGHT})", weight=HIGH_WEIGHT),
        Row("application-fixed", f"application only, {FIXED_DEGREE:.0%} of the bytes", degree=FIXED_DEGREE),
        Row("cross-fixed", f"{FIXED_DEGREE:.0%} of the bytes and weight {HIGH_WEIGHT}", degree=FIXED_DEGREE, weight=HIGH_WEIGHT),
        Row("application", "application only, the agent plans", is_planned=True, may_weigh=False),
        Row("cross", "cross-layer, the agent plans and weighs", is_planned=True),
        replace(cross, name="cross-learnt", title="the same with thresholds that it learns", is_learning=True),
        Row("package-none", "no adaptivity, with barograph.progressive, decoded", is_package=True, is_main=False),
        replace(cross, name="package-cross", title="cross-layer, with barograph.progressive, decoded", is_package=True),
    ]
    swept = [
        *(replace(cross, name=f"priority-{p}", title=f"cross-layer, priority {p}, NRMSE 0.01", error=1e-2, priority=p) for p in (1, 5, 10)),
        *(replace(cross, name=f"error-{e:.0e}", title=f"cross-layer, priority 10, NRMSE {e:g}", error=e) for e in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)),
        *(replace(cross, name=f"nodes-{n}", title=f"cross-layer, priority 10, NRMSE 0.01, {n} nodes", error=1e-2, nodes=n) for n in (2, NODES_MAX)),
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
    with agent.running(BARO, PLACE / f"agent-{row.name}-{Path(tier.device).name}.log", config_of(row, tier)) as names:
        yield f"{names['BAROGRAPH_RUN_DIR']}/control.sock"


def config_of(row: Row, tier: Tier) -> str:
    """The configuration of the agent for a row: as an administrator writes it who knows the disk and how often it is
    read. Loop devices are left out otherwise, since they lie on other disks."""
    text = f'[control]\nweights = "{"controllers" if row.may_weigh else "off"}"\n'
    text += f"[interference]\ndevices = ['{Path(tier.device).name}']\nstep_seconds = {READER_PERIOD:g}\nread_bytes = {FORECAST_BYTES}\n"
    text += f"[sources.disk]\nskip = []\nbandwidth_max = {{ '{Path(tier.device).name}' = {round(tier.disk.megabytes_per_second * 1e6)} }}\n"
    if not row.is_learning:
        low, high = (megabytes * 1e6 for megabytes in THRESHOLDS)
        text += f"[control.thresholds.{Path(tier.device).name}]\nlow = {low}\nhigh = {high}\n"
    return text


def processor_seconds() -> tuple[float, float]:
    """Seconds in which the processors worked, and all of them, since the machine started."""
    fields = [float(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    ticks = os.sysconf("SC_CLK_TCK")
    return (sum(fields) - fields[3] - fields[4]) / ticks, sum(fields) / ticks


@dataclass(frozen=True)
class Session:
    """Rows that are measured one after the other beside the same writers, who go on meanwhile."""

    rows: list[Row]

    @property
    def writers(self) -> int:
        return self.rows[0].writers

    @property
    def nodes(self) -> int:
        return self.rows[0].nodes

    def rotated(self, repeat: int) -> list[Row]:
        """The rows in the order of a repeat: each begins another time, and so meets other checkpoints."""
        first = repeat % len(self.rows)
        return self.rows[first:] + self.rows[:first]

    def seconds(self, options: argparse.Namespace) -> float:
        """Its length. Agents, if there are some, see the writers before the first row."""
        return self.learning(options) + len(self.rows) * options.seconds

    def learning(self, options: argparse.Namespace) -> float:
        """Seconds before the first row."""
        return options.learning if self.writers else 0.0


def sessions_of(rows: list[Row]) -> list[Session]:
    """The rows as sessions: those with other writers, or on other nodes, are in others."""
    kinds = {(row.writers, row.nodes): None for row in rows}
    return [Session([row for row in rows if (row.writers, row.nodes) == kind]) for kind in kinds]


def run_session(session: Session, repeat: int, tiers: list[Tier], packed: Packed, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Runs writers and agents of all nodes, and the reader of each row in its turn; yields the lines of each row. Those
    of a writer are those of this writer on all nodes, as far as they are of the row's time."""
    with contextlib.ExitStack() as running:
        controls = [
            {config: running.enter_context(planner(row, tier)) for config, row in {config_of(row, tier): row for row in session.rows if row.is_planned}.items()}
            for tier in tiers
        ]
        begin = time.monotonic() + LEAD_SECONDS
        times = {"begin": begin, "end": begin + session.seconds(options)}
        writers = [running.enter_context(started("writer", settings | times)) for tier in tiers for settings in writers_of(session.writers, tier)]
        runs = []
        for number, row in enumerate(session.rotated(repeat)):
            start = session.learning(options) + number * options.seconds
            sleep_until(begin + start - LEAD_SECONDS)
            load, busy = [os.getloadavg()[0]], processor_seconds()
            times = {"begin": begin + start, "end": begin + start + options.seconds}
            readers = []
            for tier, of_tier in zip(tiers, controls, strict=True):
                tier.groups.set_weight("reader", 100 if row.weight is None else row.weight)
                control = of_tier[config_of(row, tier)] if row.is_planned else None
                python = options.python if row.is_package else sys.executable
                readers.append(running.enter_context(started("reader", reader_of(row, tier, packed, control) | times, python)))
            steps = [line for reader in readers for line in lines_of(reader, times["end"])]
            done = processor_seconds()
            load.append(os.getloadavg()[0])
            share = (done[0] - busy[0]) / max(done[1] - busy[1], 1e-9)
            runs.append({"row": row.name, "repeat": repeat, "start": start, "load": load, "processors_busy": share, "steps": steps})
        written = [lines_of(writer, begin + session.seconds(options)) for writer in writers]
    for run in runs:
        of_writers = [[line for lines in written[number :: session.writers] for line in lines] for number in range(session.writers)]
        run["writers"] = [[line for line in lines if 0 <= line["at"] - run["start"] < options.seconds] for lines in of_writers]
        yield run


def sleep_until(at: float) -> None:
    """Waits for a time of the monotonic clock."""
    time.sleep(max(0.0, at - time.monotonic()))


def reader_of(row: Row, tier: Tier, packed: Packed, control: str | None) -> dict[str, Any]:
    """What the reader of a row does."""
    length = packed.ends[-1]
    return {
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


def writers_of(count: int, tier: Tier) -> list[dict[str, Any]]:
    """What the writers of a node do."""
    settings = []
    for number, (period, size) in enumerate(WRITERS[:count], 1):
        group = str(tier.groups.folder / f"writer-{number}")
        settings.append({"group": group, "path": str(tier.mount / f"checkpoint-{number}"), "period_s": period, "bytes": size})
    return settings


@contextlib.contextmanager
def started(role: str, settings: dict[str, Any], python: str = sys.executable) -> Iterator[subprocess.Popen]:
    """A reader or a writer; it is killed at the end if it is still there."""
    words = [python, LOAD, role, json.dumps(settings)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def lines_of(process: subprocess.Popen, end: float) -> list[dict[str, Any]]:
    """The lines of a process, which ends soon after a time. They stay far below what a pipe holds."""
    text = process.communicate(timeout=max(1.0, end + LINGER_SECONDS_MAX - time.monotonic()))[0]
    if process.returncode != 0:
        raise RuntimeError("a reader or a writer failed: what it says is above")
    return [json.loads(line) for line in text.splitlines()]


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
        "forecast_bytes": FORECAST_BYTES,
        "seconds": options.seconds,
        "learning_s": options.learning,
        "repeats": options.repeats,
        "other_repeats": options.other_repeats,
        "processors": os.cpu_count(),
        "kernel": os.uname().release,
        "array": {"snapshots": options.snapshots, "ends": packed.ends, "errors": packed.errors},
        "rows": [asdict(row) for row in rows],
        "left_out": {},
        "runs": [],
    }
    with contextlib.ExitStack() as running:
        tiers = [running.enter_context(slow_tier.running(PLACE / folder, disk, groups, group)) for folder, group in places()[: max(row.nodes for row in rows)]]
        results["groups_version"] = tiers[0].groups.version
        for tier in tiers:
            fill(tier, array)
        for row in rows:
            reason = hindrance(row, tiers[0], packed, options.python)
            if reason:
                results["left_out"][row.name] = reason
                print(f"{row.title}: left out, {reason}", flush=True)
        for repeat in range(max(options.repeats, options.other_repeats)):
            repeated = [row for row in rows if repeat < repeats_of(row, options) and row.name not in results["left_out"]]
            for session in sessions_of(repeated):
                print(f"{', '.join(row.name for row in session.rotated(repeat))}: {session.seconds(options):.0f} s ...", flush=True)
                for run in run_session(session, repeat, tiers[: session.nodes], packed, options):
                    results["runs"].append(run)
                    row = next(row for row in rows if row.name == run["row"])
                    print(interference_page.line_of(results, run, f"{repeat + 1}/{repeats_of(row, options)} {row.title}"), flush=True)
                # Kept after each session: what was measured is not lost if a later one fails.
                write(PLACE / "results.json", as_text(results))
    return results


def repeats_of(row: Row, options: argparse.Namespace) -> int:
    """How often a row is measured."""
    return options.repeats if row.is_main else options.other_repeats


def places() -> list[tuple[str, str]]:
    """The folder of each node's tier, and its control group."""
    others = range(2, NODES_MAX + 1)
    return [("tier", slow_tier.GROUP), *((f"tier-{number}", f"{slow_tier.GROUP}-{number}") for number in others)]


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
    parser.add_argument("--repeats", type=int, default=5, help="runs of each row of the experiment")
    parser.add_argument("--other-repeats", type=int, default=1, help="runs of the sweeps, and of rows with the package or learnt thresholds")
    parser.add_argument("--seconds", type=float, default=60, help="seconds of a run")
    parser.add_argument("--learning", type=float, default=150, help="seconds of writing before the first run, in which agents see the writers")
    parser.add_argument("--snapshots", type=int, default=78, help="states in the array, 1.5 MB each")
    parser.add_argument("--python", default=sys.executable, help="a Python that has the package barograph, with numpy")
    parser.add_argument("--publish", action="store_true", help="write docs/evaluation/interference.md and its data")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page from the data that are there")
    parser.add_argument("--clean", action="store_true", help="measure nothing; remove what a killed run has left")
    options = parser.parse_args()
    wrong = [
        name
        for name, least, most in (("repeats", 1, 1000), ("other_repeats", 1, 1000), ("seconds", READER_PERIOD, 86400), ("learning", 0, 86400), ("snapshots", 1, 150))
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
            for folder, group in places():
                slow_tier.take_down(PLACE / folder, replace(groups, name=group))
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
