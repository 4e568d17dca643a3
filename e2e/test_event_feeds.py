"""File events for those who want to know: server-sent events that go on after a break, kills of the
agent in between, readers that are too slow, and what everyone may read."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from harness import PATIENCE_SECONDS, QUICK, Agent, eventually

Start = Callable[..., Agent]

# More than a ring holds.
FILES = 5_000


def watched(agent: Agent, folder: Path, name: str = "tree", readers: str = "all") -> Path:
    tree = folder / name
    tree.mkdir(exist_ok=True)
    agent.out("event", "add", tree, "--name", name, "--readers", readers)
    eventually(
        lambda: agent.sql(f"SELECT 1 FROM watches WHERE name = '{name}' AND state = 'live'"), "a live watch"
    )
    return tree


class Feed:
    """A client of `/api/v1/events`."""

    def __init__(self, agent: Agent, after: str | None = None, way: str = "tcp", **query: str) -> None:
        self.id: str | None = None
        self._connection = agent.connection(way)
        headers = {} if after is None else {"Last-Event-ID": after}
        self._connection.request("GET", f"/api/v1/events?{urlencode(query)}", headers=headers)
        self.response = self._connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["content-type"] == "text/event-stream"
        self._messages = self._read()
        assert next(self._messages)[0] == "start"

    def _read(self) -> Iterator[tuple[str, Any]]:
        name, data = "message", None
        while line := self.response.readline():
            field, _, value = line.decode().rstrip("\n").partition(": ")
            match field:
                case "id":
                    self.id = value
                case "event":
                    name = value
                case "data":
                    data = json.loads(value)
                case "":
                    if data is not None:
                        yield name, data
                    name, data = "message", None

    def next(self) -> tuple[str, Any]:
        return next(self._messages)

    def until(self, path: Path) -> list[dict[str, Any]]:
        """The events until that of a path; nothing may be missing before it."""
        events = []
        while not events or events[-1]["path"] != str(path):
            name, event = self.next()
            assert name == "message", event
            events.append(event)
        return events

    def close(self) -> str:
        self.response.close()
        self._connection.close()
        assert self.id is not None
        return self.id


def made(events: list[dict[str, Any]]) -> list[str]:
    return [Path(event["path"]).name for event in events if event["kind"] == "create"]


def test_each_event_is_one_message_and_a_reader_goes_on_after_the_last(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    feed = Feed(agent, kind="create")
    for number in range(FILES):
        (tree / f"f{number}").touch()
    events = feed.until(tree / f"f{FILES - 1}")
    assert made(events) == [f"f{number}" for number in range(FILES)]
    # The fields are those of the command.
    with agent.command_running("event", "watch", "--since", "-1h", "--count", "1", "--json") as command:
        assert command.stdout
        shown = json.loads(command.stdout.readline())
    assert shown.keys() == events[0].keys() and shown == events[0] | {"kind": shown["kind"]}
    # While it is away, the ring overwrites events, and the agent restarts and is killed.
    last = feed.close()
    for number in range(FILES):
        (tree / f"g{number}").touch()
    eventually(lambda: agent.sql(f"SELECT 1 FROM events WHERE path = '{tree}/g{FILES - 1}'"), "events")
    agent.restart()
    feed = Feed(agent, after=last, kind="create")
    events = feed.until(tree / f"g{FILES - 1}")
    assert made(events) == [f"g{number}" for number in range(FILES)]
    # From the beginning, and from a message in the middle.
    feed.close()
    feed = Feed(agent, kind="create", since="-1h")
    middle = feed.until(tree / "f99")[-1]
    last = feed.close()
    assert last == f"tree={middle['idx']}@{middle['ts']}"
    assert made(Feed(agent, after=last, kind="create").until(tree / "g9"))[:2] == ["f100", "f101"]
    # The parameter is for clients that cannot set the header.
    assert made(Feed(agent, kind="create", **{"after": last}).until(tree / "f102")) == ["f100", "f101", "f102"]


def test_a_kill_of_the_agent_breaks_feeds_and_loses_nothing(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    feed = Feed(agent)
    names: list[str] = []
    for turn in range(3):
        for number in range(300):
            (tree / f"t{turn}-{number}").touch()
        names += made(feed.until(tree / f"t{turn}-150"))
        agent.stop(signal.SIGKILL)
        # What the dead agent has sent is read to its end.
        rest: list[dict[str, Any]] = []
        try:
            while True:
                rest.append(feed.next()[1])
        except (StopIteration, http.client.HTTPException, OSError):
            names += made([event for event in rest if event.get("kind")])
        last = feed.close()
        agent.start()
        eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")
        feed = Feed(agent, after=last)
        (tree / f"end{turn}").touch()
        while "end" not in str(names[-1:]):
            name, event = feed.next()
            names += made([event]) if name == "message" else []
    expect = {f"t{turn}-{number}" for turn in range(3) for number in range(300)}
    assert expect <= set(names)


def test_filters_and_what_is_refused(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    one, two = watched(agent, tmp_path, "one"), watched(agent, tmp_path, "two")
    (one / "dir").mkdir()
    for tree in (one, two):
        (tree / "a.h5").touch()
        (tree / "b.txt").touch()
    (one / "dir" / "c.h5").touch()
    (two / "b.txt").unlink()
    eventually(lambda: agent.post_sql("SELECT path FROM events WHERE kind = 'unlink'").json, "all events")

    def told(**query: str) -> set[tuple[str, str]]:
        feed = Feed(agent, since="-1h", **query)
        (one / "end.h5").touch()
        (two / "end.h5").touch()
        ends = {one / "end.h5", two / "end.h5"}
        if source := query.get("source"):
            ends = {tmp_path / source / "end.h5"}
        if path := query.get("path"):
            ends = {Path(path) / "end.h5"}
        found = set()
        while ends:
            name, event = feed.next()
            assert name == "message", event
            ends.discard(Path(event["path"]))
            found.add((event["kind"], str(Path(event["path"]).relative_to(tmp_path))))
        feed.close()
        return {event for event in found if "end" not in event[1]}

    assert told(kind="create", glob="*.h5") == {
        ("create", "one/a.h5"),
        ("create", "two/a.h5"),
        ("create", "one/dir/c.h5"),
    }
    assert told(kind="create,unlink", source="two") == {
        ("create", "two/a.h5"),
        ("create", "two/b.txt"),
        ("unlink", "two/b.txt"),
    }
    assert {path for _, path in told(path=str(one), kind="create,mkdir")} == {
        "one/a.h5",
        "one/b.txt",
        "one/dir",
        "one/dir/c.h5",
    }

    def refused(query: str, status: int, message: str) -> None:
        answer = agent.get(f"/api/v1/events?{query}")
        assert answer.status == status and message in answer.message, answer.text

    refused("kind=made", 400, "the kinds are create, mkdir")
    refused("after=tree", 400, "no position of events")
    refused("since=noon", 400, "is not a time")
    refused("path=/a&node=b", 400, "unknown parameter")
    # One user has a quarter of the places.
    feeds = [Feed(agent) for _ in range(8)]
    refused("", 503, "too many watchers")
    feeds.pop().close()

    def has_place() -> bool:
        connection = agent.connection()
        connection.request("GET", "/api/v1/events")
        response = connection.getresponse()
        response.close()
        connection.close()
        return response.status == 200

    eventually(has_place, "a place")


def test_what_cannot_be_given_any_more_is_told(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    (tree / "first").touch()
    feed = Feed(agent, since="-1h")
    feed.until(tree / "first")
    last = feed.close()
    (tree / "unseen").touch()
    eventually(lambda: agent.sql(f"SELECT 1 FROM events WHERE path = '{tree}/unseen'"), "an event")
    agent.stop()
    shutil.rmtree(agent.state_dir / "applications")
    agent.start()
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")
    for number in range(9):
        (tree / f"f{number}").touch()
    eventually(lambda: agent.sql(f"SELECT 1 FROM events WHERE path = '{tree}/f8'"), "events")
    # The numbers have begun anew, with other events.
    feed = Feed(agent, after=last)
    name, gap = feed.next()
    assert name == "gap" and gap["source"] == "tree" and gap["missing"] is None, gap
    assert "has given their numbers to other events" in gap["reason"]
    # It goes on with what there is.
    feed.until(tree / "f8")
    # A source of which nothing is known any more.
    feed = Feed(agent, after="gone=7")
    name, gap = feed.next()
    while name != "gap":
        name, gap = feed.next()
    assert gap["source"] == "gone" and gap["after"] == 7 and gap["before"] is None
    assert "neither the last event nor a later one" in gap["reason"]


def test_a_reader_that_does_not_read_gets_all_when_it_does(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path)
    feed = Feed(agent, kind="create")
    for number in range(8 * FILES):
        os.close(os.open(tree / f"f{number}", os.O_CREAT | os.O_WRONLY))
    last = f"f{8 * FILES - 1}"
    eventually(
        lambda: agent.sql(f"SELECT 1 FROM events WHERE path = '{tree}/{last}'"), "events", 4 * PATIENCE_SECONDS
    )
    assert made(feed.until(tree / last)) == [f"f{number}" for number in range(8 * FILES)]


def test_what_only_the_owner_may_read_is_not_sent(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    secret = watched(agent, tmp_path, "secret", readers="owner")
    public = watched(agent, tmp_path, "public")
    (secret / "s").touch()
    eventually(lambda: agent.sql(f"SELECT 1 FROM events WHERE path = '{secret}/s'"), "an event")
    (public / "p").touch()
    for way in ["tcp", "read.sock", "control.sock"]:
        feed = Feed(agent, since="-1h", way=way)
        events = feed.until(public / "p")
        assert {event["source"] for event in events} == {"public"}
        assert "secret" not in feed.close()
