"""Records real traces for the laboratory: a workload on a file system of its own, read ten times a
second.

    scripts/record_traces.py run hacc-regular checkpoint --seconds 750 --out DIR    some, in parallel
    scripts/record_traces.py run all --seconds 750 --out DIR
    scripts/record_traces.py run all --seconds 750 --seed holdout --holdout --out DIR
    scripts/record_traces.py list

Each workload gets an ext4 of 300 MB in a file, mounted through a loop device (which needs root), so
that counters and capacity are its own. `machine` has no file system: it records what the machine's
disk does anyway. `fio` must be installed.

Each workload is written to NAME-1s-train.csv.gz and NAME-1s-test.csv.gz (the first and the second
half), and the same at 100 ms (the first 150 s of each half). With `--holdout` there are no halves:
everything is written to NAME-1s-holdout.csv.gz and NAME-100ms-holdout.csv.gz. Another `--seed`
gives other random numbers. The script reads /proc itself, since sar has no intervals below a
second.
"""

import argparse
import gzip
import io
import math
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TICK_SECONDS = 0.1
TICKS_PER_SECOND = 10
FAST_SECONDS_MAX = 150
IMAGE_BYTES = 300 << 20
SECTOR_BYTES = 512
MEMORY = {"MemFree": "memory_free", "Cached": "memory_cached", "Dirty": "memory_dirty", "Writeback": "memory_writeback"}
COLUMNS = (
    "time_ns",
    "read_bytes[B]",
    "write_bytes[B]",
    "reads[1]",
    "writes[1]",
    "busy_time[ms]",
    "in_flight[1]",
    "available[B]",
    *(f"{name}[B]" for name in MEMORY.values()),
)


def append(path: Path, size: int, *, sync: bool = True) -> None:
    """Appends `size` bytes to a file."""
    with path.open("ab", buffering=0) as file:
        while size > 0:
            size -= file.write(os.urandom(min(size, 1 << 20)))
        if sync:
            os.fsync(file.fileno())


def fio(folder: Path, *options: str) -> None:
    """One run of fio on one file of 64 MB."""
    command = ["fio", "--name=lab", f"--filename={folder}/data", "--size=64M", "--output=/dev/null", *options]
    subprocess.run(command, check=True, cwd=folder)


def sequential(folder: Path, _: random.Random) -> None:
    """64 MB written at 2 MB/s, a pause, the same read, deleted."""
    fio(folder, "--rw=write", "--bs=256k", "--rate=2M", "--end_fsync=1", "--fallocate=none")
    time.sleep(5)
    fio(folder, "--rw=read", "--bs=256k", "--rate=4M", "--direct=1")
    (folder / "data").unlink()
    time.sleep(5)


def mixed(folder: Path, _: random.Random) -> None:
    """4 KiB at random, two reads to a write, 60 a second."""
    fio(folder, "--rw=randrw", "--rwmixread=66", "--bs=4k", "--direct=1", "--rate_iops=40,20", "--time_based", "--runtime=60")


def bursty(folder: Path, seeded: random.Random) -> None:
    """Bursts of 1 to 8 MB after pauses of 6 s on average, exponentially distributed."""
    time.sleep(min(30.0, seeded.expovariate(1 / 6)))
    path = folder / "burst"
    append(path, seeded.randrange(1 << 20, 8 << 20))
    if path.stat().st_size > 100 << 20:
        path.unlink()


def checkpoint(folder: Path, seeded: random.Random) -> None:
    """40 MB every 45 s or so at 8 MB/s; the newest two are kept."""
    begun = time.monotonic()
    path = folder / "checkpoint"
    for _ in range(20):
        append(path, 2 << 20)
        time.sleep(0.25)
    path.rename(folder / f"checkpoint-{time.monotonic_ns()}")
    for old in sorted(folder.glob("checkpoint-*"))[:-2]:
        old.unlink()
    time.sleep(max(1.0, 45 + seeded.uniform(-2, 2) - (time.monotonic() - begun)))


def hacc_regular(folder: Path, _: random.Random) -> None:
    """38,000 B every 5 s (apollo.md 4.3.1)."""
    append(folder / "hacc", 38_000)
    time.sleep(5 - time.monotonic() % 5)


def hacc_irregular(folder: Path, seeded: random.Random) -> None:
    """19,000 to 38,000 B every 5 to 20 s (apollo.md 4.3.1)."""
    append(folder / "hacc", seeded.randint(19_000, 38_000))
    time.sleep(seeded.uniform(5, 20))


def log_rotate(folder: Path, seeded: random.Random) -> None:
    """A log whose rate goes up and down within 90 s, rotated at 4 MB, three kept."""
    path = folder / "log"
    rate = 60_000 * (1.2 + math.sin(2 * math.pi * time.monotonic() / 90)) * seeded.uniform(0.7, 1.3)
    append(path, int(rate * 0.5), sync=False)
    if path.stat().st_size > 4_000_000:
        for age in (3, 2):
            older = folder / f"log.{age - 1}"
            if older.exists():
                older.rename(folder / f"log.{age}")
        path.rename(folder / "log.1")
    time.sleep(0.5)


def small_files(folder: Path, seeded: random.Random) -> None:
    """Trees of 400 files of up to 16 kB, made within 20 s, kept for a while, deleted at once."""
    tree = folder / f"tree-{time.monotonic_ns()}"
    tree.mkdir()
    for index in range(400):
        append(tree / str(index), seeded.randrange(1, 16_000), sync=False)
        time.sleep(0.05)
    time.sleep(seeded.uniform(5, 15))
    shutil.rmtree(tree)
    time.sleep(seeded.uniform(2, 10))


def fill(folder: Path, _: random.Random) -> None:
    """100 kB ten times a second, not synchronised, deleted at 100 MB: a ramp, then a cliff."""
    path = folder / "fill"
    append(path, 100_000, sync=False)
    if path.stat().st_size > 100_000_000:
        path.unlink()
    time.sleep(0.1)


def machine(_folder: Path, _: random.Random) -> None:
    """No workload: records what the machine's own disk and memory do."""
    time.sleep(1)


WORKLOADS: dict[str, Callable[[Path, random.Random], None]] = {
    "sequential": sequential,
    "mixed": mixed,
    "bursty": bursty,
    "checkpoint": checkpoint,
    "hacc-regular": hacc_regular,
    "hacc-irregular": hacc_irregular,
    "log-rotate": log_rotate,
    "small-files": small_files,
    "fill": fill,
    "machine": machine,
}


def repeat(name: str, folder: Path, seed: str) -> None:
    """Repeats one workload for ever; its name and the seed determine the random numbers."""
    seeded = random.Random(name + seed)
    while True:
        WORKLOADS[name](folder, seeded)


def row(device: str, folder: Path) -> str:
    """One row of COLUMNS, read now."""
    now_ns = time.time_ns()
    fields: list[str] = []
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if fields[2] == device:
            break
    reads, read_sectors, writes, write_sectors, in_flight, busy_ms = (int(fields[at]) for at in (3, 5, 7, 9, 11, 12))
    capacity = os.statvfs(folder)
    memory: dict[str, int] = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        key, rest = line.split(":")
        if key in MEMORY:
            memory[key] = int(rest.split()[0]) << 10
    values = (
        now_ns,
        read_sectors * SECTOR_BYTES,
        write_sectors * SECTOR_BYTES,
        reads,
        writes,
        busy_ms,
        in_flight,
        capacity.f_bavail * capacity.f_frsize,
        *(memory[key] for key in MEMORY),
    )
    return ",".join(map(str, values))


def record(device: str, folder: Path, seconds: int) -> list[str]:
    """Records a row each TICK_SECONDS; a late row does not delay the rows after it."""
    start = time.monotonic()
    rows = []
    for tick in range(seconds * TICKS_PER_SECOND):
        time.sleep(max(0.0, start + tick * TICK_SECONDS - time.monotonic()))
        rows.append(row(device, folder))
    return rows


def save(path: Path, name: str, interval_ns: int, rows: list[str]) -> None:
    """Writes a trace; the same rows always give the same file."""
    text = "\n".join((f"# trace {name}", f"# interval_ns {interval_ns}", ",".join(COLUMNS), *rows, ""))
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(text.encode())
    path.write_bytes(packed.getvalue())


def save_parts(out: Path, name: str, rows: list[str], *, holdout: bool) -> None:
    """Writes two halves that share no moment, or everything as the hold-out; each at 1 s, and its
    beginning at 100 ms."""
    middle = len(rows) // 2
    parts = {"holdout": rows} if holdout else {"train": rows[:middle], "test": rows[middle:]}
    for part, those in parts.items():
        save(out / f"{name}-1s-{part}.csv.gz", name, 10**9, those[::TICKS_PER_SECOND])
        fast = those[: FAST_SECONDS_MAX * TICKS_PER_SECOND]
        save(out / f"{name}-100ms-{part}.csv.gz", name, 10**8, fast)


def root_device() -> str:
    """The whole disk below `/`, by its name in diskstats."""
    source = subprocess.run(["findmnt", "-no", "SOURCE", "/"], check=True, capture_output=True, text=True).stdout
    return Path(source.strip().split("[")[0]).name


def run(name: str, chosen: argparse.Namespace) -> None:
    """Records one workload, from making its file system to removing it."""
    def keep(rows: list[str]) -> None:
        save_parts(chosen.out, name, rows, holdout=chosen.holdout)

    with tempfile.TemporaryDirectory(prefix="barograph-trace-") as scratch:
        folder, image = Path(scratch) / "mount", Path(scratch) / "image"
        folder.mkdir()
        if name == "machine":
            keep(record(root_device(), Path("/"), chosen.seconds))
            return
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-m0", "-E", "lazy_itable_init=0,lazy_journal_init=0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, folder], check=True)
        worker = multiprocessing.Process(target=repeat, args=(name, folder, chosen.seed), daemon=True)
        try:
            source = subprocess.run(["findmnt", "-no", "SOURCE", folder], check=True, capture_output=True, text=True).stdout
            worker.start()
            keep(record(Path(source.strip()).name, folder, chosen.seconds))
        finally:
            worker.terminate()
            worker.join()
            unmount(folder)


def unmount(folder: Path) -> None:
    """Unmounts a file system, with patience: fio may outlive its parent by a moment."""
    for _ in range(90):
        if subprocess.run(["umount", folder], check=False, capture_output=True).returncode == 0:
            return
        time.sleep(1)
    sys.exit(f"{folder} is still in use: umount it by hand")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name the workloads")
    options = commands.add_parser("run", help="record some workloads side by side")
    options.add_argument("workload", nargs="+", choices=[*WORKLOADS, "all"])
    options.add_argument("--seconds", type=int, default=750)
    options.add_argument("--seed", default="", help="any text; the default is that of the train and test traces")
    options.add_argument("--holdout", action="store_true", help="no halves: all of it is a hold-out")
    options.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    if chosen.command == "list":
        for name, workload in WORKLOADS.items():
            print(f"{name:16}{workload.__doc__}")
        return
    names = list(WORKLOADS) if "all" in chosen.workload else chosen.workload
    chosen.out.mkdir(parents=True, exist_ok=True)
    runs = [multiprocessing.Process(target=run, args=(name, chosen)) for name in names]
    for process in runs:
        process.start()
    for process in runs:
        process.join()
    sys.exit(any(process.exitcode for process in runs))


if __name__ == "__main__":
    main()
