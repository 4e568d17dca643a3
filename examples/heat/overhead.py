"""What publishing costs the heat equation: runs of as many steps, with and without it, by turns.

    python overhead.py ./heat [--ranks 1] [--cells 512] [--steps 3000] [--rows 64] [--rounds 7]

Prints seconds of processor time of the ranks, their ratio, and the values a second; an agent must run.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess


def run(arguments: argparse.Namespace, publishing: bool) -> tuple[float, float]:
    """Seconds of processor time, and of the wall clock, of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    launcher = ["mpirun", "-n", str(arguments.ranks)] if arguments.ranks > 1 else []
    counts = ["--cells", arguments.cells, "--steps", arguments.steps, "--rows", arguments.rows, "--seconds", 600]
    environment = os.environ | ({} if publishing else {"BAROGRAPH": "off"})
    program = [*launcher, arguments.heat, *map(str, counts)]
    done = subprocess.run(program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = json.loads(done.stdout.splitlines()[-1])
    if publishing and summary["lost"]:
        print("lost:", summary["lost"])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, summary["wall_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heat")
    for name, default in [("ranks", 1), ("cells", 512), ("steps", 3000), ("rows", 64), ("rounds", 7)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    with_, without = [], []
    for _ in range(arguments.rounds):
        without.append(run(arguments, publishing=False))
        with_.append(run(arguments, publishing=True))
    values = arguments.ranks * arguments.steps * (arguments.rows + 2)
    wall = statistics.median(wall for _, wall in with_)
    on, off = (statistics.median(cpu for cpu, _ in runs) for runs in (with_, without))
    print(f"{values / wall:,.0f} values/s; processor time {on:.3f} s with, {off:.3f} s without: {100 * (on / off - 1):+.2f} %")
    spread = [100 * (cpu / off - 1) for cpu, _ in without]
    print(f"without it, runs differ from their median by {min(spread):+.2f} to {max(spread):+.2f} %; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
