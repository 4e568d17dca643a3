"""File events in programs, from Python and C: each once, with paths of any bytes, over restarts of
either side."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import barograph
import pytest
from harness import QUICK, ROOT, Agent, environment, eventually
from test_applications import INCLUDE, LIBRARY
from test_event_feeds import FILES, watched

Start = Callable[..., Agent]

EXAMPLES = ROOT / "docs" / "examples"


def paths(events: barograph.Events, count: int) -> list[str]:
    """The next paths; nothing may be missing between them."""
    found = []
    for event in events:
        assert isinstance(event, barograph.FileEvent), event
        found.append(event.path)
        if len(found) == count:
            break
    return found


def test_python_follows_events_and_goes_on(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    tree = watched(agent, tmp_path, readers="owner")
    observer = barograph.connect(agent.run_dir)
    events = observer.events("create", path=tree, timeout=60)
    odd = os.fsencode(tree) + b"/\xff\n"
    os.close(os.open(odd, os.O_CREAT | os.O_WRONLY))
    event = next(events)
    assert isinstance(event, barograph.FileEvent)
    assert (event.path, event.path_bytes) == (os.fsdecode(odd), odd)
    assert (event.kind, event.source, event.quality, event.complete) == ("create", "tree", "measured", True)
    assert event.old_path is None and event.old_path_bytes is None and not event.directory
    assert event.to_dict()["path"] == os.fsdecode(odd) and "FileEvent create" in repr(event)
    # More than a ring holds, while nobody reads.
    for number in range(FILES):
        (tree / f"f{number}").touch()
    agent.restart()
    assert paths(events, FILES) == [f"{tree}/f{number}" for number in range(FILES)]
    # Another reader goes on there, and a child of this process too.
    (tree / "after").touch()
    place = events.position
    assert place.startswith("tree=")
    child = os.fork()
    if child == 0:
        os._exit(0 if paths(events, 1) == [f"{tree}/after"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert paths(events, 1) == [f"{tree}/after"]
    assert paths(observer.events("create", after=place, timeout=60), 1) == [f"{tree}/after"]
    assert paths(observer.events(since="-1h", glob="*/f7", source="tree", timeout=60), 1) == [f"{tree}/f7"]
    assert list(observer.events(source="other", since=0, timeout=0.1)) == []


def test_python_is_told_what_is_missing_and_what_is_wrong(start: Start, tmp_path: Path) -> None:
    agent = start(config=QUICK)
    watched(agent, tmp_path)
    observer = barograph.connect(agent.run_dir)
    gap = next(observer.events(after="gone=7", timeout=60))
    assert isinstance(gap, barograph.EventGap), gap
    assert (gap.source, gap.after, gap.before, gap.missing) == ("gone", 7, None, None)
    assert "neither" in gap.reason and "gone" in repr(gap)
    with pytest.raises(ValueError, match="no kind"):
        observer.events("made")
    with pytest.raises(ValueError, match="no position"):
        observer.events(after="gone")
    with pytest.raises(ValueError, match="since"):
        observer.events(since="noon")


def compiled(folder: Path) -> list[str]:
    shutil.copy(LIBRARY / "libbaro.so", folder / "libbaro.so.1")
    (folder / "libbaro.so").symlink_to("libbaro.so.1")
    program = folder / "events"
    source = EXAMPLES / "events.c"
    options = [f"-I{INCLUDE}", f"-L{folder}", f"-Wl,-rpath,{folder}"]
    subprocess.run(["cc", "-Wall", "-Werror", *options, source, "-o", program, "-lbaro"], check=True)
    return [str(program)]


@pytest.mark.parametrize("language", ["c", "python"])
def test_the_example_goes_on_where_it_was(start: Start, tmp_path: Path, language: str) -> None:
    (tmp_path / "build").mkdir()
    example = compiled(tmp_path / "build") if language == "c" else [sys.executable, str(EXAMPLES / "events.py")]
    agent = start(config=QUICK)
    tree, place = watched(agent, tmp_path), tmp_path / "place"
    command = [*example, str(tree), str(place)]

    def run(begun: Callable[[], object], names: list[str]) -> None:
        beside = environment(BAROGRAPH_RUN_DIR=str(agent.run_dir))
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=beside) as program:
            assert program.stdout
            try:
                begun()
                for name in names:
                    assert program.stdout.readline() == f"{tree}/{name}\n"
                last = agent.sql(f"SELECT idx FROM events WHERE path = '{tree}/{names[-1]}' AND kind = 'close_write'")
                # The place is kept after the line is printed.
                eventually(lambda: f"tree={last[0]['idx']}@" in place.read_text(), "the place")
            finally:
                program.kill()

    def first() -> None:
        eventually(place.exists, "the beginning of the program")
        (tree / "one").write_text("1")

    run(first, ["one"])
    for number in range(FILES):
        (tree / f"f{number}").write_text("x")
    run(lambda: None, [f"f{number}" for number in range(FILES)])
