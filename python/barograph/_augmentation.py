"""The question of a reader to the agent: how many buckets of an array to read, and how important it
is (Tango's loop, from the side of the analysis).

This module stands alone because a reading goes on without it: whatever the agent answers, and if it
does not, the bound of the reader decides.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from barograph import _barograph

if TYPE_CHECKING:
    from barograph.progressive import Reached

AGENT_SECONDS_MAX = 2.0
"""The longest time in seconds for which a reading waits for the agent's decision."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How many buckets a reading has read, and why."""

    buckets: int
    """Number of buckets that were read, the base among them."""
    reason: str
    """One sentence about it."""
    id: int | None = None
    """Number of the agent's decision, as in the table ``decisions``; None if it was not asked or
    has not answered."""
    proposed: int | None = None
    """Number of buckets that the agent has proposed, the base among them."""
    degree: float | None = None
    """Share of the buckets after the base that the agent has proposed, 0 to 1."""
    bandwidth: float | None = None
    """Bandwidth of the device that the agent expects, in bytes a second."""
    bandwidth_error: float | None = None
    """Half width of its interval."""
    bandwidth_basis: str | None = None
    """What the expectation comes from: ``schedules``, ``mean``, ``measured``, …, or ``none``."""
    weight: float | None = None
    """Weight of the I/O scheduler that this process had during the reading."""
    weight_reason: str | None = None
    """Why it had none."""
    lease_s: float | None = None
    """Longest time in seconds for which it has the weight."""
    nrmse: float | None = None
    """NRMSE that was reached; None if the reading failed."""
    bytes: int | None = None
    """Bytes that were read."""
    seconds: float | None = None
    """Time that the reading took."""
    probe_bytes: int = 0
    """Bytes after the buckets that the agent asked to read as well, to measure the device, since
    these are too few. They are read with the whole array only, and left."""
    dry_run: bool = False
    """Whether the agent's proposal was left aside."""
    reported: bool = False
    """Whether the agent has got the report of the reading."""

    @classmethod
    def without(cls, bound: str | None, buckets: int, why: str) -> Decision:
        """What is read without an agent."""
        until = "all of them" if bound is None else "as the bound needs"
        return cls(buckets, f"{why}: {buckets} buckets are read, {until}")


class Augmentation:
    """The questions of one reader."""

    def __init__(
        self,
        *,
        path: str | None,
        array: _barograph.PackedArray,
        label: str | None,
        priority: int,
        dry_run: bool,
        run_dir: str | os.PathLike[str] | None,
    ) -> None:
        self._dry_run = dry_run
        self._questions: _barograph.Questions | None = None
        if path is not None:
            named = label if label is not None else os.path.basename(path)
            where = None if run_dir is None else os.path.abspath(os.fspath(run_dir))
            self._questions = _barograph.Questions(array, path, named, priority, dry_run, where)

    def ask(
        self, bound: str | None, alone: int, least: int, interval: float | None, share: float
    ) -> Decision:
        """Asks for a decision. ``alone`` is the number of buckets that are read without an agent,
        ``least`` that of the bound, ``share`` the share of the array's bytes that is wanted.
        """
        if self._questions is None:
            return Decision.without(bound, alone, "the array is in memory, which has no device")
        buckets, probe, reason, answer = self._questions.ask(bound, alone, least, interval, share)
        if answer is None:
            return Decision(buckets, reason)
        return Decision(buckets, reason, *answer, probe_bytes=probe, dry_run=self._dry_run)

    def fetch(self, decision: Decision) -> tuple[int, float] | None:
        """Reads the bytes of a decision from the device that the agent was asked about into memory
        of the system, and returns their number and the time that this took in seconds: what it says
        about the device would be wrong if decoding were part of it.

        Nothing is read, and nothing returned, without a decision of the agent, or if the bytes
        cannot be read.
        """
        if decision.id is None or self._questions is None:
            return None
        return self._questions.fetch(decision.buckets, decision.probe_bytes)

    def report(
        self, decision: Decision, reached: Reached | None, fetched: tuple[int, float] | None
    ) -> Decision:
        """Tells the agent what came of a decision, which gives the weight back, and returns the
        decision with it. Without the time of the bytes alone it is no measurement of the device.
        """
        if reached is not None:
            decision = replace(
                decision, nrmse=reached.nrmse, bytes=reached.bytes, seconds=reached.seconds
            )
        if decision.id is None or self._questions is None:
            return decision
        measured = None if reached is None else fetched
        heard = self._questions.report(decision.id, measured, decision.nrmse)
        # If it was not heard, the lease ends by itself.
        return replace(decision, reported=heard)
