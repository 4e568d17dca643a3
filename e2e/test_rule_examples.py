"""The example of rules on file events: images get a small picture, and all of it goes to a second
agent's directory, whose rule verifies and notes it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from harness import QUICK, ROOT, Agent, eventually

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
