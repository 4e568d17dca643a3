"""The report of a step on a test that fails occasionally."""

from pathlib import Path

import counts
import pytest
import steps

PASSED = "test result: ok. 1 passed; 0 failed; 0 ignored;"
FAILED = "test data::is_whole ... FAILED\ntest result: FAILED. 2 passed; 1 failed; 0 ignored;"
BOTH = "test a::one ... FAILED\ntest b::two ... FAILED\ntest result: FAILED. 2 passed; 2 failed; 0 ignored;"


@pytest.mark.parametrize(
    ("second", "note"),
    [
        (f"echo '{PASSED}'", "tests: 1 failed, PASSED WHEN TRIED AGAIN: find the cause: data::is_whole"),
        (f"echo '{FAILED}'; false", "tests: 1 failed, and again: data::is_whole"),
    ],
)
def test_a_second_try_tells_more_and_mends_nothing(
    second: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LOGS", tmp_path)
    monkeypatch.setattr(steps, "ROOT", tmp_path)
    suite = steps.Suite("rust")
    first = ["sh", "-c", f"echo '{FAILED}'; false"]
    good = steps.Runner().step(
        suite, "tests", first, cwd=tmp_path, count=counts.cargo, again=lambda _failed: ["sh", "-c", second]
    )
    assert not good
    assert (suite.counts, suite.notes) == (counts.Counts(passed=2, failed=1), [note])
    # The output of the first attempt is not overwritten.
    assert "is_whole" in (tmp_path / "rust-tests.log").read_text()
    assert (tmp_path / "rust-tests.second.log").exists()


@pytest.mark.parametrize(
    ("second", "learned"),
    [
        (
            "test b::two ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored;",
            ", and again b::two, but PASSED WHEN TRIED AGAIN a::one: find the cause",
        ),
        (BOTH, ", and again"),
        # The name of what failed is not known, or nothing says that the other one passed.
        ("test result: FAILED. 1 passed; 1 failed; 0 ignored;", ", and again"),
        ("test b::two ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored;", ", and again"),
        ("error: could not compile", ", and again"),
    ],
)
def test_a_second_try_names_what_failed_again_and_what_passed(second: str, learned: str) -> None:
    failed, first = counts.failed_names(BOTH), counts.cargo(BOTH)
    assert steps.second_outcome(failed, first, second, counts.cargo(second), 1) == learned
