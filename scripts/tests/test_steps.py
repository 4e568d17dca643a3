"""The report of a step on a test that fails occasionally."""

from pathlib import Path

import counts
import pytest
import steps

PASSED = "test result: ok. 1 passed; 0 failed; 0 ignored;"
FAILED = "test data::is_whole ... FAILED\ntest result: FAILED. 2 passed; 1 failed; 0 ignored;"


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
