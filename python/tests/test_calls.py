"""Programs that are called: handlers that run, knobs that are set, by an agent and without one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Agent, eventually
from test_publication import Publish, publish

import barograph

__all__ = ["publish"]  # A fixture.


def fired(call: Callable[[], barograph.Fired]) -> barograph.Fired:
    """Calls until a program matches: declarations reach the agent with a delay."""
    answers: list[barograph.Fired] = []

    def is_meant() -> bool:
        try:
            answers.append(call())
        except barograph.ControlError:
            return False
        return True

    eventually(is_meant, "somebody is meant")
    return answers[0]


def test_handlers_run_where_the_program_polls(
    agent: Agent, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: unraisable.append(str(args.exc_value)))
    p = publish("polled", {}, run_dir=agent.run_dir)
    seen: list[Any] = []

    def handle(call: barograph.Call) -> None:
        seen.append(call.payload)
        assert call.name == "polled.say" and call.id > 0 and call.ts > 0
        if call.payload == "fail":
            raise RuntimeError("as told")

    p.on("polled.say", handle, help="keeps what it is given")
    payloads = [None, 1, 0.5, True, "text", b"\0b", {"a": [1]}, [1.5], "fail"]
    for payload in payloads:
        answer = fired(lambda given=payload: barograph.fire("polled.say", given, run_dir=agent.run_dir))
        assert answer.matched == 1
    assert seen == []

    def has_polled() -> bool:
        p.poll()
        return len(seen) == len(payloads)

    eventually(has_polled, "all have run")
    assert seen == payloads
    assert unraisable == ["as told"] and "as told" in (p.handler_failure or "")


def test_publications_handle_calls_by_their_labels(agent: Agent, publish: Publish) -> None:
    seen: list[str] = []
    ours = {"pid": str(os.getpid())}
    parts = {}
    for phase in ("solve", "io"):
        parts[phase] = publish(f"parts.{phase}", {}, labels={"phase": phase}, run_dir=agent.run_dir)
        parts[phase].on("parts.say", lambda _, phase=phase: seen.append(phase))
    # Either, and then both in the order in which they were declared: one process, one answer.
    for target, expect in [({"phase": "io"}, ["io"]), ({"phase": "solve"}, ["solve"]), ({}, ["solve", "io"])]:
        seen.clear()
        answer = fired(lambda t=target: barograph.fire("parts.say", target={**ours, **t}, run_dir=agent.run_dir))
        assert answer.matched == 1

        def has_polled(wanted: list[str] = expect) -> bool:
            parts["solve"].poll()
            return seen == wanted

        eventually(has_polled, f"{expect} have run")
    with pytest.raises(barograph.ControlError):
        barograph.fire("parts.say", target={**ours, "phase": "other"}, run_dir=agent.run_dir)


def test_a_program_that_listens(agent: Agent, publish: Publish) -> None:
    p = publish("listening", {}, run_dir=agent.run_dir)
    threads: list[str] = []
    p.on("listening.say", lambda call: threads.append(threading.current_thread().name))
    p.listen()
    answer = fired(lambda: barograph.fire("listening.say", wait=20, run_dir=agent.run_dir))
    assert (answer.matched, answer.acknowledged, answer.failed) == (1, 1, 0)
    assert len(threads) == 1 and threads[0] != threading.current_thread().name
    p.close()
    assert p.poll() == 0


def test_knobs(agent: Agent, publish: Publish) -> None:
    p = publish("tuned", {}, run_dir=agent.run_dir)
    tolerance = p.knob("tolerance", 0.5, min=0, max=1, unit="1", help="where it stops")
    steps, is_on = p.knob("steps", 5, min=0, max=9), p.knob("on", False)
    assert (tolerance.value, steps.value, is_on.value) == (0.5, 5, False)
    assert isinstance(steps.value, int) and is_on.value is False
    assert (tolerance.name, tolerance.unit, tolerance.version) == ("tolerance", "1", 0)
    assert repr(tolerance) == "<Knob tuned.tolerance: 0.5>"
    target = {"pid": str(os.getpid())}
    for name, value in [("tolerance", 0.25), ("steps", 9), ("on", True)]:
        fired(
            lambda name=name, value=value: barograph.set_knob(
                f"tuned.{name}", value, target=target, run_dir=agent.run_dir
            )
        )
    with pytest.raises(barograph.ControlError):
        barograph.set_knob("tuned.tolerance", 2.0, run_dir=agent.run_dir)

    def is_set() -> bool:
        p.frame()
        return is_on.value is True

    eventually(is_set, "frames set them")
    assert (tolerance.value, steps.value) == (0.25, 9)
    assert p.knob("tolerance", 0.5, min=0, max=1, unit="1").value == 0.25
    p.close()
    assert tolerance.value == 0.25


@pytest.mark.parametrize(
    ("declare", "error", "why"),
    [
        (lambda p: p.on("No", print), ValueError, "No"),
        (lambda p: p.on("no", 3), TypeError, "callable"),
        (lambda p: p.knob("No", 0.5), ValueError, "No"),
        (lambda p: p.knob("k", "text"), TypeError, "float"),
        (lambda p: p.knob("k", 2.0, max=1), ValueError, "bounds"),
        (lambda p: p.knob("k", True, max=1), ValueError, "bool"),
        (lambda p: p.knob("k", 1, min=0.5), ValueError, "whole"),
        (lambda p: p.knob("k", 1 << 70), OverflowError, "."),
        (lambda p: p.knob("x", 1), ValueError, "another type"),
    ],
)
def test_wrong_declarations(
    publish: Publish, declare: Callable[[Any], Any], error: type[Exception], why: str
) -> None:
    p = publish("wrong", {"x": "1"})
    with pytest.raises(error, match=why):
        declare(p)


def test_wrong_calls(tmp_path: Path) -> None:
    with pytest.raises(barograph.NoAgentError):
        barograph.fire("a", run_dir=tmp_path)


def test_switched_off(publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAROGRAPH", "off")
    p = publish("off", {})
    p.on("off.say", print)
    p.listen()
    knob = p.knob("k", 0.5, min=0, max=1)
    assert p.poll() == 0 and p.frame() == 0
    assert knob.value == 0.5 and p.handler_failure is None


def test_the_example_is_tuned_and_ended(agent: Agent) -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "knob.py"
    environment = os.environ | {"BAROGRAPH_RUN_DIR": str(agent.run_dir)}
    with subprocess.Popen(
        [sys.executable, example], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            run_dir = agent.run_dir
            fired(lambda: barograph.set_knob("solver.tolerance", 0.25, run_dir=run_dir))
            answer = fired(lambda: barograph.fire("finish", wait=20, run_dir=run_dir))
            assert answer.acknowledged == 1
            said, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert said == "0.25\n"
