"""Watches the running heat equation and sets its time step: as large as it stays stable.

    python steer.py [--seconds 20]

The residual of a good run falls. While it does, the step grows by a third at a time; if it rises,
or the program's bounds refuse the step, the next one is the last good step grown by half as much.
Each decision is printed as a line of JSON.
"""

import argparse
import json
import math
import time

import barograph

LOOK_S = 0.5
GROWTH = 4 / 3
SMALLEST_GROWTH = 1.02
WORSE = 1.05
"""A residual that grows by this factor within a look is not on its way down."""


def residual(stream: barograph.Stream) -> float:
    value = stream.value()
    return math.inf if value is None or math.isnan(value) else value


def steer(seconds: float, target: dict[str, str]) -> int:
    """Sets the knob until the program ends or the time is over; returns how often it did."""
    end = time.monotonic() + seconds
    stream, good = opened(end)
    growth, turned, before = GROWTH, 0, residual(stream)
    now_dt = good
    while time.monotonic() < end:
        time.sleep(LOOK_S)
        try:
            now = residual(stream)
        except barograph.UnknownStreamError:
            break  # The program has ended, and its streams with it.
        is_falling = now <= before * WORSE
        if is_falling:
            good, wanted = now_dt, now_dt * growth
        else:
            wanted, growth = good, 1 + (growth - 1) / 2
        before = now if is_falling else math.inf
        try:
            answer = barograph.set_knob("heat.dt", wanted, target=target, wait=2.0)
        except barograph.Error as refused:
            print(json.dumps({"refused": str(refused), "dt": wanted}), flush=True)
            growth = 1 + (growth - 1) / 2
            if growth < SMALLEST_GROWTH:
                break
            continue
        turned += 1
        told = {"ts": time.time_ns(), "residual": now, "dt": wanted, "falling": is_falling, "state": answer.state}
        print(json.dumps(told), flush=True)
        now_dt = wanted
        if growth < SMALLEST_GROWTH:
            break
    return turned


def opened(end: float) -> tuple[barograph.Stream, float]:
    """Waits for the residual of the first rank and its time step; returns the stream and the time
    step. A stream exists before its first value.
    """
    while True:
        try:
            stream, dt = barograph.stream("app.heat.residual", rank="0"), barograph.stream("app.heat.dt", rank="0").value()
            if dt is not None:
                return stream, dt
            late: Exception = TimeoutError("no rank has put its time step")
        except (barograph.UnknownStreamError, barograph.NoAgentError) as error:
            late = error
        if time.monotonic() > end:
            raise late
        time.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    steer(parser.parse_args().seconds, {"rank": "0"})
