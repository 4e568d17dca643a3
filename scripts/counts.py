"""The number of tests that ran, from the reports of each test runner."""

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree


@dataclass(frozen=True)
class Counts:
    """Tests of one run of one runner."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    @property
    def ran(self) -> int:
        return self.passed + self.failed


CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
# `node --test` prints "# pass 3" in TAP and "ℹ pass 3" in its spec form.
NODE = re.compile(r"^[#ℹ] (pass|fail|cancelled|skipped|todo) (\d+)\s*$", re.MULTILINE)


# The names of failed tests in the output of pytest (with -rfE), cargo test and `node --test`.
FAILED_NAME = re.compile(
    r"^(?:(?:FAILED|ERROR) (\S+::\S.*?)(?: - .*)?|test (\S+) (?:- .* )?\.\.\. FAILED|\s*✖ (.+?) \(\d[\d.]*ms\)|\s*not ok \d+ - (.+))$",
    re.MULTILINE,
)


def failed_names(output: str) -> list[str]:
    """The tests that failed, by the names that their runner gives them, each once."""
    found = ("".join(groups) for groups in FAILED_NAME.findall(output))
    return list(dict.fromkeys(found))


def cargo(output: str) -> Counts:
    """Counts of `cargo test`, summed over all its test binaries and doctests."""
    total = Counts()
    for passed, failed, ignored in CARGO.findall(output):
        total += Counts(int(passed), int(failed), int(ignored))
    return total


def node(output: str) -> Counts:
    """Counts of `node --test`; a cancelled test is a failed one."""
    tally = dict.fromkeys(("pass", "fail", "cancelled", "skipped", "todo"), 0)
    for what, count in NODE.findall(output):
        tally[what] += int(count)
    return Counts(
        tally["pass"], tally["fail"] + tally["cancelled"], tally["skipped"] + tally["todo"]
    )


def junit(report: Path) -> Counts:
    """Counts of a JUnit report, as written by `pytest --junitxml`; without a report there are no
    tests."""
    if not report.is_file():
        return Counts()
    total = Counts()
    for suite in ElementTree.parse(report).iter("testsuite"):
        number = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
        failed = number["failures"] + number["errors"]
        passed = max(0, number["tests"] - failed - number["skipped"])
        total += Counts(passed, failed, number["skipped"])
    return total
