"""Measures the cost of publishing for the heat equation: equal runs with and without it,
alternating.

    python overhead.py ./heat [--ranks 1] [--cells 512] [--steps 3000] [--rows 64] [--rounds 7] [--instructions]

Prints seconds of processor time of the ranks, their ratio, and the values per second; an agent must
run. On a shared machine these times are noisy: --instructions counts the instructions of a step
under valgrind, of one rank, in a minute or two.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess


def run(arguments: argparse.Namespace, publishing: bool) -> tuple[float, float]:
    """Returns seconds of processor time, and of the wall clock, of one run."""
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


def instructions(arguments: argparse.Namespace, publishing: bool) -> float:
    """Returns instructions per step: start and end of the program are in both runs, and cancel."""
    few, many = 50, 250
    counted = []
    for steps in few, many:
        environment = os.environ | ({} if publishing else {"BAROGRAPH": "off"})
        count = ["--cells", arguments.cells, "--steps", steps, "--rows", arguments.rows, "--seconds", 600]
        program = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", arguments.heat, *map(str, count)]
        done = subprocess.run(program, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
        counted += [int(line.split()[-1]) for line in done.stderr.splitlines() if "Collected :" in line]
    return (counted[1] - counted[0]) / (many - few)


def count(arguments: argparse.Namespace) -> None:
    off, on = (instructions(arguments, publishing) for publishing in (False, True))
    values = arguments.rows + 2
    print(f"{off:,.0f} instructions a step, {on:,.0f} with {values} values: {100 * (on / off - 1):+.3f} %, {(on - off) / values:.0f} a value")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heat")
    for name, default in [("ranks", 1), ("cells", 512), ("steps", 3000), ("rows", 64), ("rounds", 7)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--instructions", action="store_true")
    arguments = parser.parse_args()
    if arguments.instructions:
        return count(arguments)
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
