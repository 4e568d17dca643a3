"""The output of the test runners is counted correctly."""

import pytest

import counts
import steps
from counts import Counts
from steps import Suite, excerpt

CARGO = """
running 3 tests
test a ... ok
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: FAILED. 1 passed; 2 failed; 4 ignored; 0 measured; 0 filtered out; finished in 1.20s
"""
TAP = "# tests 7\n# suites 1\n# pass 4\n# fail 1\n# cancelled 1\n# skipped 1\n# todo 0\n"
SPEC = "ℹ tests 2\nℹ pass 2\nℹ fail 0\nℹ cancelled 0\nℹ skipped 0\nℹ todo 0\n"


@pytest.mark.parametrize(
    ("read", "output", "expect"),
    [
        (counts.cargo, CARGO, Counts(4, 2, 4)),
        (counts.cargo, "error: could not compile `x`\n", Counts()),
        (counts.cargo, "the test result: ok. 3 passed; 0 failed; 0 ignored;\n", Counts()),
        (counts.node, TAP, Counts(4, 2, 1)),
        (counts.node, SPEC + TAP, Counts(6, 2, 1)),
        (counts.node, "pass 3\n", Counts()),
    ],
)
def test_text(read, output, expect):
    assert read(output) == expect


@pytest.mark.parametrize(
    ("xml", "expect"),
    [
        ('<testsuites><testsuite tests="5" failures="1" errors="1" skipped="1"/></testsuites>', Counts(2, 2, 1)),
        ('<testsuite tests="2"/>', Counts(2)),
        (None, Counts()),
    ],
)
def test_junit(tmp_path, xml, expect):
    report = tmp_path / "report.xml"
    if xml:
        report.write_text(xml)
    assert counts.junit(report) == expect


def test_a_suite_without_tests_has_failed():
    suite = Suite("empty")
    suite.close()
    assert suite.counts == Counts(failed=1)
    checks = Suite("checks", tests=False)
    checks.close()
    assert checks.counts == Counts()


def test_excerpt_prefers_the_blocks_of_failed_tests():
    lines = ["running 2 tests", "---- one stdout ----", "panicked", "test result: FAILED.", "noise"]
    assert excerpt(lines) == ["---- one stdout ----", "panicked"]
    assert excerpt(["a", "b"]) == ["a", "b"]


def test_failed_tests_are_named_as_their_runner_names_them():
    output = """
FAILED e2e/test_up.py::test_it[a b] - AssertionError: no
ERROR e2e/test_up.py::test_other
test graph::two ... ok
test graph::one ... FAILED
✖ the page has ink (12.5ms)
not ok 3 - the strips
✖ failing tests:
test result: FAILED. 1 passed; 1 failed;
test graph::one ... FAILED
"""
    assert counts.failed_names(output) == [
        "e2e/test_up.py::test_it[a b]",
        "e2e/test_up.py::test_other",
        "graph::one",
        "the page has ink",
        "the strips",
    ]


def test_many_failures_get_no_second_try(tmp_path, monkeypatch):
    monkeypatch.setattr(steps, "LOGS", tmp_path)
    monkeypatch.setattr(steps, "ROOT", tmp_path)
    suite = Suite("some")
    command = ["sh", "-c", "echo 'ℹ fail 4'; exit 1"]
    steps.Runner().step(suite, "t", command, cwd=tmp_path, count=counts.node, again=lambda _failed: ["true"])
    assert suite.counts == Counts(failed=4)


@pytest.mark.parametrize(
    "line",
    [
        "E       ValueError: not enough values to unpack (expected 1, got 0)",
        "thread 'frames::one' panicked at tests/it/frames.rs:1:",
        "  left: 1",
        "    +   'console: Failed to load resource: the server responded with a status of 503'",
    ],
)
def test_reasons_are_found_at_the_end_of_the_output(line):
    assert steps.reasons(f"test one ... FAILED\n{line}\ntest two ... ok\n") == [line]
