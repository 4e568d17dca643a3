"""The question of a reader to the agent: how many buckets of an array to read, and how important it
is (Tango's loop, from the side of the analysis).

This module stands alone because a reading goes on without it: whatever the agent answers, and if it
does not, the bound of the reader decides.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from barograph import _barograph
from barograph._barograph import Error
from barograph._control import ControlError, post

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barograph.progressive import Bucket, Reached

AGENT_SECONDS_MAX = 2.0
"""The longest time in seconds for which a reading waits for the agent's decision."""

# Longest label that the agent keeps.
_LABEL_CHARACTERS_MAX = 80

# The piece in which bytes are read whose time is measured.
_FETCH_BYTES = 1 << 20

# The agent's sockets: the first one gives weights, the second one may.
_SOCKETS = ("control.sock", "read.sock")


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
        label: str | None,
        start: int,
        header_bytes: int,
        buckets: Sequence[Bucket],
        priority: int,
        dry_run: bool,
        run_dir: str | os.PathLike[str] | None,
    ) -> None:
        self._path = path
        self._file = None if path is None else _identity(os.stat(path))
        self._label = label if label is not None else os.path.basename(path or "")
        self._start = start
        self._header_bytes = header_bytes
        self._buckets = buckets
        self._socket = _SOCKETS[0]
        self._priority = priority
        self._dry_run = dry_run
        self._run_dir = run_dir

    def ask(
        self, bound: str | None, alone: int, least: int, interval: float | None, share: float
    ) -> Decision:
        """Asks for a decision. ``alone`` is the number of buckets that are read without an agent,
        ``least`` that of the bound, ``share`` the share of the array's bytes that is wanted.
        """
        if self._path is None:
            return Decision.without(bound, alone, "the array is in memory, which has no device")
        try:
            answer = self._post("plan", self._question(bound, interval, share))
            return self._decision(answer, alone, least)
        except ControlError as error:
            return Decision.without(bound, alone, f"the agent has not decided ({error})")
        except (OSError, Error) as error:
            return Decision.without(bound, alone, f"no agent answers ({error})")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return Decision.without(bound, alone, f"the agent's answer is not understood ({error!r})")

    def fetch(self, decision: Decision) -> float | None:
        """Reads the bytes of a decision into memory of the system, and returns the time that this
        took in seconds: what it says about the device would be wrong if decoding were part of it.

        Nothing is read, and nothing returned, without a decision of the agent, or if the file is
        another one by now.
        """
        if decision.id is None or self._path is None:
            return None
        left = sum(bucket.bytes for bucket in self._buckets[: decision.buckets])
        scratch, place = bytearray(min(left, _FETCH_BYTES)), self._start + self._header_bytes
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if _identity(os.fstat(file)) != self._file:
                return None
            began = time.monotonic()
            while left > 0:
                read = os.preadv(file, [memoryview(scratch)[:left]], place)
                if read == 0:
                    return None
                place, left = place + read, left - read
            return time.monotonic() - began
        except OSError:
            return None
        finally:
            os.close(file)

    def report(
        self, decision: Decision, reached: Reached | None, fetched_s: float | None
    ) -> Decision:
        """Tells the agent what came of a decision, which gives the weight back, and returns the
        decision with it. Without the time of the bytes alone it is no measurement of the device.
        """
        if reached is not None:
            decision = replace(
                decision, nrmse=reached.nrmse, bytes=reached.bytes, seconds=reached.seconds
            )
        if decision.id is None:
            return decision
        is_measured = fetched_s is not None and reached is not None
        body = {
            "decision": decision.id,
            "bytes": decision.bytes if is_measured else 0,
            "seconds": fetched_s if is_measured else 0.0,
            "nrmse": None if decision.nrmse is None else _finite(decision.nrmse),
        }
        try:
            self._post("report", body)
        except (OSError, Error):
            # The lease ends by itself.
            return decision
        return replace(decision, reported=True)

    def _question(
        self, bound: str | None, interval: float | None, share: float
    ) -> dict[str, Any]:
        error, measure = None, "nrmse"
        if bound is not None:
            measure, _, value = bound.partition("=")
            error = {measure: _finite(float(value))}
        base, *others = self._buckets
        device = self._file[0] if self._file else 0
        return {
            "path": self._path,
            # The number says more than the path: links in it were followed, and the file is there.
            "device": f"{os.major(device)}:{os.minor(device)}",
            "label": self._label[:_LABEL_CHARACTERS_MAX],
            "base_bytes": round((self._header_bytes + base.bytes) * share),
            "base_nrmse": _finite(base.nrmse),
            "base_error": _finite(getattr(base, measure)),
            "buckets": [
                {
                    "bytes": round(bucket.bytes * share),
                    "nrmse": _finite(bucket.nrmse),
                    "error": _finite(getattr(bucket, measure)),
                }
                for bucket in others
            ],
            "error": error,
            "priority": self._priority,
            "interval_s": interval,
            "dry_run": self._dry_run,
        }

    def _decision(self, answer: dict[str, Any], alone: int, least: int) -> Decision:
        proposed = 1 + int(answer["buckets"])
        if not 1 <= proposed <= len(self._buckets):
            raise ValueError(f"{proposed} buckets of {len(self._buckets)}")
        bandwidth = answer.get("bandwidth") or {}
        # Whatever the agent knows and decides, the bound holds.
        buckets = alone if self._dry_run else max(proposed, least)
        reason = str(answer["reason"])
        if self._dry_run:
            reason = f"dry run: {buckets} buckets are read, as the bound needs; {reason}"
        elif buckets > proposed:
            reason = f"{reason}; the bound needs {buckets} buckets"
        return Decision(
            buckets=buckets,
            reason=reason,
            id=int(answer["decision"]),
            proposed=proposed,
            degree=_number(answer.get("degree")),
            bandwidth=_number(bandwidth.get("value")),
            bandwidth_error=_number(bandwidth.get("error")),
            bandwidth_basis=bandwidth.get("basis"),
            weight=_number(answer.get("weight")),
            weight_reason=answer.get("weight_reason"),
            lease_s=_number(answer.get("lease_s")),
            dry_run=self._dry_run,
        )

    def _post(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        named = self._run_dir or os.environ.get("BAROGRAPH_RUN_DIR")
        run_dir = named or _barograph.Observer(None).run_dir
        path = f"/api/v1/control/{verb}"
        try:
            return post(os.path.join(run_dir, self._socket), path, body, AGENT_SECONDS_MAX)
        except (PermissionError, ControlError) as error:
            is_refused = isinstance(error, PermissionError) or error.kind == "refused"
            if verb != "plan" or self._socket == _SOCKETS[1] or not is_refused:
                raise
            refusal = error
        # Only the agent's user and root may control it; all others ask as readers.
        try:
            answer = post(os.path.join(run_dir, _SOCKETS[1]), path, body, AGENT_SECONDS_MAX)
        except OSError:
            raise refusal from None
        self._socket = _SOCKETS[1]
        return answer


def _identity(seen: os.stat_result) -> tuple[int, int]:
    """What a file is, whatever its name."""
    return seen.st_dev, seen.st_ino


def _finite(value: float) -> float:
    """The value as JSON has it, which knows no infinity."""
    return max(-sys.float_info.max, min(value, sys.float_info.max))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
