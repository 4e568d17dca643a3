"""Runs commands as steps of suites: each has a time limit, a log, and a line on the screen."""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from counts import Counts, failed_names

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "target" / "test-logs"

# Longest time of a step in seconds; a step that takes longer is ended and has failed.
STEP_SECONDS_MAX = 40 * 60
# Most failed tests that are run once more, to distinguish constant failures from occasional ones.
SECOND_TRIES_MAX = 3
# Most lines of a failed step's output that are printed; its log has all of them.
SHOWN_LINES_MAX = 120
# Most lines of each step that explain a failure, before the closing table.
SHOWN_REASONS_MAX = 16
# Most names of failed tests in the closing table.
SHOWN_NAMES_MAX = 10


class StepFailed(Exception):
    """A step that other steps need has failed; the failure was already reported."""


@dataclass
class Suite:
    """A named part of the test run, with its results."""

    name: str
    tests: bool = True
    counts: Counts = Counts()
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    # Lines from the output of failed steps, for the end of the output.
    reasons: list[str] = field(default_factory=list)

    def fail(self, note: str) -> None:
        self.counts += Counts(failed=1)
        self.notes.append(note)

    def close(self) -> None:
        """Fails a suite of tests that ran none, whatever its commands returned."""
        if self.tests and self.counts.ran == 0 and not self.notes:
            self.fail("ran no test")


class Runner:
    """Runs the steps of suites."""

    def __init__(self) -> None:
        self.environment = os.environ | {"CARGO_TERM_COLOR": "never", "NO_COLOR": "1"}
        LOGS.mkdir(parents=True, exist_ok=True)

    def step(
        self,
        suite: Suite,
        title: str,
        command: list[str | Path],
        *,
        cwd: Path = ROOT,
        env: dict[str, str] | None = None,
        count: Callable[[str], Counts] | None = None,
        needed: bool = False,
        again: Callable[[list[str]], list[str | Path]] | None = None,
    ) -> bool:
        """Runs `command`, adds the counts that `count` reads from its output to `suite`, and prints
        the result.

        A step that fails without a failed test counts as one failure.
        With `needed`, a failure ends the suite by raising StepFailed.
        `again` makes a command of the names of failed tests that runs them once more, to
        distinguish constant failures from occasional ones. The step has failed in either case: a
        test that passes only when it is tried again has an unknown cause. The output of the first
        attempt stays in its log.
        """
        print(f"{suite.name:<9}{title} ...", flush=True)
        log = LOGS / f"{suite.name}-{title.replace(' ', '-').replace('/', '-')}.log"
        start = time.monotonic()
        status = execute(command, cwd, self.environment | (env or {}), log)
        seconds = time.monotonic() - start
        output = log.read_text(errors="replace")
        counts = count(output) if count else Counts()
        failed = failed_names(output)
        names = ", ".join(failed[:SHOWN_NAMES_MAX])
        learned = f"{counts.failed} failed"
        if again and count and 1 <= counts.failed <= SECOND_TRIES_MAX:
            print(f"{suite.name:<9}{title}: failed, tried again to learn more: {names}", flush=True)
            second = log.with_suffix(".second.log")
            repeated = execute(again(failed), cwd, self.environment | (env or {}), second)
            text = second.read_text(errors="replace")
            learned += second_outcome(failed, counts, text, count(text), repeated)
            seconds = time.monotonic() - start
        suite.counts += counts
        suite.seconds += seconds
        good = status == 0 and counts.failed == 0
        verdict = "ok" if good else f"FAILED (exit status {status})"
        tally = f", {counts.passed} of {counts.ran} tests passed" if count else ""
        print(f"{suite.name:<9}{title}: {verdict}, {seconds:.1f} s{tally}", flush=True)
        if good:
            return True
        show(output, log)
        suite.reasons += reasons(output)
        if counts.failed == 0:
            suite.fail(f"{title} failed")
        else:
            suite.notes.append(f"{title}: {learned}: {names}")
        if needed:
            raise StepFailed(title)
        return False


def second_outcome(
    failed: list[str], first: Counts, output: str, second: Counts, status: int
) -> str:
    """What it has shown to run the failed tests of a first try once more."""
    if status == 0 and second.failed == 0 and second.passed >= first.failed:
        return ", PASSED WHEN TRIED AGAIN: find the cause"
    again = [name for name in failed_names(output) if name in failed]
    passed = [name for name in failed if name not in again]
    # A test counts as passed only if all others of the second try are known by name.
    if not again or not passed or (second.passed, second.failed) != (len(passed), len(again)):
        return ", and again"
    mended = ", ".join(passed)
    return f", and again {', '.join(again)}, but PASSED WHEN TRIED AGAIN {mended}: find the cause"


# Process groups of the steps that run now, in any thread.
RUNNING: set[int] = set()
# No step is started after this is set.
ENDING = threading.Event()


def end_all() -> None:
    """Ends the running steps of all threads, and prevents new ones."""
    ENDING.set()
    for group in RUNNING.copy():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def execute(command: list[str | Path], cwd: Path, env: dict[str, str], log: Path) -> int:
    """Runs a command without standard input; writes all output to `log`, and ends its group if it
    is late."""
    with log.open("wb") as out:
        if ENDING.is_set():
            out.write(b"interrupted\n")
            return 130
        try:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            out.write(f"{command[0]}: {error.strerror}\n".encode())
            return 127
        RUNNING.add(process.pid)
        try:
            return process.wait(STEP_SECONDS_MAX)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            out.write(f"\nended after {STEP_SECONDS_MAX} s\n".encode())
            return 124
        finally:
            RUNNING.discard(process.pid)


def show(output: str, log: Path) -> None:
    """Prints the part of a failed step's output that explains the failure."""
    lines = excerpt(output.splitlines())
    for line in lines:
        print(f"    | {line}")
    print(f"    | (all of it: {log.relative_to(ROOT)})", flush=True)


# Lines that explain a failed assertion in the output of pytest, `node --test` and cargo test.
REASON = re.compile(r"^(?:E {3}|> |\s+\[?(?:AssertionError|Error)|\s+error: |\s+[+-] {2,}|thread '.*panicked|assertion |\s+(?:left|right): )")


def reasons(output: str) -> list[str]:
    """The lines of a failed step's output that explain the failure, for readers who see only the
    end."""
    found = [line for line in output.splitlines() if REASON.match(line)]
    return found[:SHOWN_REASONS_MAX]


def excerpt(lines: list[str]) -> list[str]:
    """The blocks that cargo test prints for failed tests, if there are any, otherwise the last
    lines."""
    kept: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("---- "):
            inside = True
        elif line.startswith("test result: "):
            inside = False
        if inside:
            kept.append(line)
    return kept[:SHOWN_LINES_MAX] if kept else lines[-SHOWN_LINES_MAX:]
