"""The example of rules on file events: images get a small picture, and all of it goes to a second
agent's directory, whose rule verifies and notes it. And a folder that is kept in step."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from harness import QUICK, ROOT, Agent, environment, eventually

Start = Callable[..., Agent]

EXAMPLE = ROOT / "examples" / "rules"
IMAGES = 12


def image(folder: Path, number: int) -> Path:
    """Writes an image of 64 by 48 pixels, each of its own grey."""
    path = folder / f"image{number}.ppm"
    pixels = bytes((number + at) % 256 for at in range(64 * 48) for _ in range(3))
    path.write_bytes(b"P6 64 48 255\n" + pixels)
    return path


def watched(agent: Agent, folder: Path, name: str) -> None:
    agent.out("event", "add", folder, "--name", name)
    eventually(lambda: agent.sql("SELECT 1 FROM watches WHERE state = 'live'"), "a live watch")


def test_images_get_pictures_and_are_replicated_and_verified(start: Start, tmp_path: Path) -> None:
    lab, replica, catalogue = tmp_path / "lab", tmp_path / "replica", tmp_path / "catalogue"
    (lab / "raw").mkdir(parents=True)
    replica.mkdir()
    instrument, server = start(config=QUICK), start(config=QUICK)
    watched(instrument, lab, "lab")
    watched(server, replica, "replica")
    rules = [
        (instrument, f"thumbnails ON EVENT close_write WHERE ext = 'ppm' THEN RUN '{EXAMPLE}/thumbnail.py' '{{path}}' '{lab}/small/{{stem}}.pgm'"),
        (instrument, f"replicate ON EVENT close_write, rename WHERE ext IN ('ppm', 'pgm') THEN RUN '{EXAMPLE}/replicate.sh' '{{path}}' '{replica}'"),
        (server, f"verify ON EVENT rename WHERE ext IN ('ppm', 'pgm') THEN RUN '{EXAMPLE}/verify.sh' '{{path}}' '{catalogue}' RETRY 3 CONCURRENCY 1"),
    ]  # fmt: skip
    for agent, rule in rules:
        agent.out("rule", "create", f"CREATE RULE {rule}")
    made = [image(lab / "raw", number) for number in range(IMAGES // 2)]
    eventually(lambda: list(replica.glob("*.ppm")), "a first copy")
    instrument.stop(signal.SIGKILL)
    made += [image(lab / "raw", number) for number in range(IMAGES // 2, IMAGES)]
    instrument.start()
    names = sorted(name for path in made for name in (path.name, f"{path.stem}.pgm"))
    eventually(lambda: catalogue.exists() and sorted(catalogue.read_text().split()) == names, "all are noted", 120)
    for path in made:
        assert (replica / path.name).read_bytes() == path.read_bytes()
        picture = (replica / f"{path.stem}.pgm").read_bytes()
        assert picture.startswith(b"P5\n32 24\n255\n") and len(picture) == 13 + 32 * 24
    eventually(lambda: not server.sql("SELECT 1 FROM actions WHERE state IN ('waiting', 'running')"), "nothing is left")
    assert server.sql("SELECT reason FROM actions WHERE state = 'dead'") == []


def contents(folder: Path) -> dict[str, bytes | str | None]:
    """What is below a folder: contents of files, targets of links, None for directories."""
    found: dict[str, bytes | str | None] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def change(folder: Path, random: Random) -> None:
    """Makes one change somewhere in a folder."""
    places = [folder, *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())]
    here, there = random.choice(places), random.choice(places)
    name = random.choice(["a", "b c", "d'e", "-f", "ä", "$(x)", ".g"])
    path, other = here / name, there / random.choice(["a", "b c", "h"])
    free = not os.path.lexists(path)
    match random.randrange(7):
        case 0 | 1 if free or (path.is_file() and not path.is_symlink()):
            path.write_bytes(random.randbytes(random.randrange(100)))
        case 2 if free and len(places) < 12:
            path.mkdir()
        case 3 if path.is_file() or path.is_symlink():
            path.unlink()
        case 4 if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        case 5 if path.exists() and not os.path.lexists(other) and not other.is_relative_to(path):
            path.rename(other)
        case 6 if free:
            path.symlink_to("nowhere")


@pytest.mark.parametrize("path", ["p", "p/q", "p/q/x"])
@pytest.mark.parametrize("was", ["a link that leads nowhere", "a link to a directory", "a file"])
def test_a_late_call_finds_something_else_where_a_directory_is_now(tmp_path: Path, path: str, was: str) -> None:
    folder, copy, other = (tmp_path / name for name in ("folder", "copy", "other"))
    (folder / "p" / "q").mkdir(parents=True)
    (folder / "p" / "q" / "x").write_text("x")
    copy.mkdir()
    other.mkdir()
    match was:
        case "a file":
            (copy / "p").write_text("before")
        case "a link to a directory":
            (copy / "p").symlink_to(other)
        case _:
            (copy / "p").symlink_to("nowhere")
    env = environment(BAROGRAPH_PATH=str(folder / path), BAROGRAPH_OLD_PATH="")
    subprocess.run([EXAMPLE / "mirror.sh", folder, copy], check=True, env=env)
    assert contents(copy) == contents(folder)
    assert list(other.iterdir()) == [], "nothing is written through a link"


def test_a_folder_is_kept_in_step(start: Start, tmp_path: Path) -> None:
    """A folder of a laptop and its copy at the lab, with the agent killed in between."""
    laptop, lab, random = tmp_path / "laptop", tmp_path / "lab", Random(7)
    laptop.mkdir()
    lab.mkdir()
    agent = start(config=QUICK)
    watched(agent, laptop, "laptop")
    kinds = "create, mkdir, symlink, link, close_write, rename, unlink, rmdir"
    agent.out("rule", "create", f"CREATE RULE mirror ON EVENT {kinds} FROM 'laptop' THEN RUN '{EXAMPLE}/mirror.sh' '{laptop}' '{lab}' CONCURRENCY 1 RETRY 5")
    for step in range(300):
        change(laptop, random)
        if step == 150:
            agent.stop(signal.SIGKILL)
        if step == 200:
            agent.start()
    # One script after the other, some hundred times: on a busy machine that takes minutes.
    try:
        eventually(lambda: contents(lab) == contents(laptop), "the copy is in step", 300)
    except AssertionError as error:
        states = agent.sql("SELECT state, count(*) AS n, max(attempts) AS attempts FROM actions GROUP BY state")
        raise AssertionError(f"{error}; {states}; {agent.sql('SELECT * FROM rules')}") from None
    eventually(lambda: not agent.sql("SELECT 1 FROM actions WHERE state IN ('waiting', 'running')"), "nothing is left", 300)
    assert contents(lab) == contents(laptop)
    assert agent.sql("SELECT reason FROM actions WHERE state = 'dead'") == []
