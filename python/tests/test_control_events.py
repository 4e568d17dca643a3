"""Control events: published and consumed by this process, in three ways."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from conftest import Agent

import barograph
from barograph import _control_events

SECONDS = 30.0


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """A process publishes in one place: what a test has opened is closed."""
    yield
    _control_events._publisher.cache_clear()


def test_a_program_hears_itself_in_three_ways(agent: Agent) -> None:
    place = agent.run_dir
    node = barograph.connect(place)
    events = node.control_events("test.*", "sub*", properties={"name": "te?t"})
    others = node.control_events(exclude_own=True)
    assert events.check() is None

    def publish(number: int) -> None:
        done = barograph.control_event(
            "test.event", "subject", number, confidence=0.5, properties={"name": "text"}, run_dir=place
        )
        assert done

    publish(1)
    event = events.wait(SECONDS)
    assert event is not None and event.is_own
    assert (event.kind, event.value, event.confidence) == ("test.event", 1.0, 0.5)
    assert (event.pid, event.missed, event.properties) == (os.getpid(), 0, {"name": "text"})
    assert event.labels["user"] and "test.event" in repr(event)
    # Of another kind, and without the property.
    assert barograph.control_event("other", run_dir=place)
    assert barograph.control_event("test.event", "subject", run_dir=place)
    publish(2)
    publish(3)
    with pytest.raises(ValueError, match="function"):
        events.dispatch(0)
    heard: list[float | None] = []
    events.on(lambda event: heard.append(event.value))
    while len(heard) < 2:
        assert events.dispatch(SECONDS) > 0
    assert heard == [2.0, 3.0] and events.dispatch(0) == 0
    publish(4)
    assert [event.value for event in [next(events)]] == [4.0]
    assert others.check() is None and events.missed == 0


def test_a_function_that_raises_ends_the_dispatch(agent: Agent) -> None:
    place = agent.run_dir
    events = barograph.connect(place).control_events(timeout=0)

    def handler(event: barograph.ControlEvent) -> None:
        raise LookupError(event.subject)

    events.on(handler)
    for subject in ("first", "second"):
        assert barograph.control_event("a", subject, run_dir=place)
    with pytest.raises(LookupError, match="first"):
        events.dispatch(SECONDS)
    second = events.wait(SECONDS)
    assert second is not None and second.subject == "second"
    assert list(events) == []


def test_wrong_words_are_refused(agent: Agent) -> None:
    node = barograph.connect(agent.run_dir)
    for wrong in ({"confidence_min": 2.0}, {"past": -1.0}, {"age_max": float("nan")}):
        with pytest.raises(ValueError, match="confidence|seconds"):
            node.control_events(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="readers"):
        barograph.control_event("a", application="wrong", readers="everyone")  # type: ignore[arg-type]
