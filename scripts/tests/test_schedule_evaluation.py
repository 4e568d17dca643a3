"""The evaluation of I/O in turns: its arithmetic."""

from __future__ import annotations

import pytest
import schedule_evaluation as evaluation


def test_works_need_the_load_and_are_the_same_for_each_policy() -> None:
    works = evaluation.works_of(40, 12)
    assert works == evaluation.works_of(40, 12) != evaluation.works_of(40, 13)
    assert len(works) == len(evaluation.PERIODS) and all(len(work) >= evaluation.PHASES_MIN for work in works)
    for period, work in zip(evaluation.PERIODS, works, strict=True):
        assert {size for _, size in work} == {period * evaluation.LOAD / len(works) * evaluation.BANDWIDTH}


def test_quality_is_that_of_the_simulation() -> None:
    works = [[(9.0, 1e8)], [(8.0, 1e8)]]
    share, slowdown, worst = evaluation.quality(works, [[(1.0, 0.0, 1.0)], [(4.0, 2.0, 1.0)]])
    assert share == pytest.approx((0.9 + 8 / 12) / 2)
    assert (slowdown, worst) == (pytest.approx(2.0), 4.0)
