"""Publishing by programs: with an agent, without one, before one, in threads and children."""

from __future__ import annotations

import array
import gc
import importlib.util
import multiprocessing
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import Agent, eventually
from test_lives import in_child

import barograph

INT, FLOAT, BOOL, TEXT, FRAME, BYTES = 1, 2, 3, 4, 5, 6
# Number of values and their sum.
SUM = "count(*) AS n, sum(value) AS total"

# Other libraries of these tests have threads; the children use none of them.
forking = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

Publish = Callable[..., barograph.Publication]


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publish]:
    """Makes publications, in the test's own directory unless told otherwise, and closes them."""
    monkeypatch.delenv("BAROGRAPH", raising=False)
    made: list[barograph.Publication] = []
    # Only the test makes a directory that is named.
    (tmp_path / "run").mkdir(exist_ok=True)

    def make(name: str, values: Any, **more: Any) -> barograph.Publication:
        made.append(barograph.publication(name, values, **{"run_dir": tmp_path / "run"} | more))
        return made[-1]

    yield make
    for publication in made:
        publication.close()


def load_reader() -> Any:
    """The program that reads ingest files, from the reference documents."""
    path = Path(__file__).parents[2] / "docs" / "reference" / "read_ingest.py"
    spec = importlib.util.spec_from_file_location("read_ingest", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Committed:
    """Content of the files of a run directory that no agent reads."""

    def __init__(self, run_dir: Path) -> None:
        self.declared: list[dict[str, Any]] = []
        self.puts: list[tuple[str, int, Any]] = []
        self.lost = 0
        reader = load_reader()
        self.files = len(list((run_dir / "ingest").glob("*.ingest")))
        for path in (run_dir / "ingest").glob("*.ingest"):
            file = reader.IngestFile(path)
            declared, rings = file.look()
            declarations = list(file.declarations(declared))
            self.declared += declarations
            names = {d["value"]: d["name"] for d in declarations if "value" in d}
            for ring, (position, committed) in enumerate(rings):
                records, lost, damaged = file.records(ring, position, committed)
                assert damaged == 0
                self.lost += lost
                self.puts += [self._put(names, *record[1:]) for record in records]
            os.close(file.fd)

    @staticmethod
    def _put(
        names: dict[int, str], kind: int, series: int, time: int, payload: Any
    ) -> tuple[str, int, Any]:
        name = "frame" if kind == FRAME else names[series]
        if kind in (INT, FLOAT):
            (payload,) = struct.unpack("<q" if kind == INT else "<d", struct.pack("<Q", payload))
        elif kind == TEXT:
            payload = payload.decode()
        return name, time, payload

    def values(self, name: str) -> list[Any]:
        return [value for known, _, value in self.puts if known == name]


@pytest.fixture
def committed(tmp_path: Path) -> Callable[[], Committed]:
    return lambda: Committed(tmp_path / "run")


def totals(agent: Agent, table: str, where: str = "true") -> tuple[object, object]:
    """Count and sum of the values in a table of this user's programs."""
    rows = agent.rows(f"SELECT {SUM} FROM {table} WHERE {where}")
    return (rows[0]["n"], rows[0]["total"]) if rows else (0, None)


def test_what_is_put_is_in_sql(agent: Agent, publish: Publish) -> None:
    p = publish(
        "lulesh",
        {
            "residual": "1",
            "step_time": barograph.gauge("seconds", help="time of one step"),
            "iteration": barograph.counter("steps", int),
            "phase": str,
            "converged": bool,
        },
        labels={"mesh": "fine"},
        application="solver",
        run_dir=agent.run_dir,
    )
    assert p.enabled and p.error is None and p.run_dir == agent.run_dir
    for n in range(100):
        with p:
            p.put(residual=0.5 * n, iteration=n, phase="solve", converged=n == 99)
            p.step_time.put(0.25)
    eventually(lambda: totals(agent, "app_lulesh_frame") == (100, 4950), "100 frames")
    labelled = "application = 'solver' AND mesh = 'fine'"
    assert totals(agent, "app_lulesh_residual", labelled) == (100, 2475.0)
    assert totals(agent, "app_lulesh_iteration") == (100, 4950)
    assert totals(agent, "app_lulesh_step_time") == (100, 25.0)
    applications = agent.applications()
    assert applications
    newest = {s.name: s.value for s in applications.latest_all("app.lulesh.*")}
    assert newest["app.lulesh.phase"] == "solve" and newest["app.lulesh.converged"] is True
    (step_time,) = applications.streams("app.lulesh.step_time")
    meaning = (step_time.type, step_time.unit, step_time.kind, step_time.help)
    assert meaning == ("float64", "seconds", "gauge", "time of one step")
    (iteration,) = applications.streams("app.lulesh.iteration")
    assert (iteration.type, iteration.unit, iteration.kind) == ("int64", "steps", "counter")
    assert p.lost == 0


def test_an_agent_that_comes_late(late_agent: Agent, publish: Publish) -> None:
    late_agent.run_dir.mkdir(exist_ok=True)
    p = publish("late", {"x": "1"}, run_dir=late_agent.run_dir)
    assert p.enabled
    with p:
        p.x.put_many(range(10))
    late_agent.start()
    eventually(lambda: totals(late_agent, "app_late_x") == (10, 45.0), "what was put before")
    with p:
        p.x.put(55.0)
    eventually(lambda: totals(late_agent, "app_late_x") == (11, 100.0), "what was put after")


def test_batches(publish: Publish, committed: Callable[[], Committed]) -> None:
    p = publish("batches", {"x": "1", "n": int, "flag": bool, "word": str})
    grid = numpy.arange(12.0).reshape(3, 4)
    large = numpy.arange(10_000.0)
    batches: tuple[Any, ...] = (
        large,
        grid[:, 1],
        grid.ravel()[::-2],
        numpy.arange(3, dtype=numpy.float32),
        numpy.arange(3),
        numpy.arange(3, dtype=numpy.uint8),
        numpy.arange(3, dtype=">f8"),
        memoryview(array.array("d", [1.5, 2.5])),
        numpy.array([]),
        [1, 2.5, numpy.float64(3)],
        (x / 2 for x in range(3)),
    )
    for batch in batches:
        p.x.put_many(batch)
    batches = numpy.arange(9_000), numpy.arange(3, dtype=numpy.int32), [2**63 - 1, -(2**63)]
    for batch in batches:
        p.n.put_many(batch)
    p.flag.put_many(numpy.array([True, False]))
    p.word.put_many(["a", "é"])
    p.frame()
    seen = committed()
    assert seen.values("x") == [
        *large, 1, 5, 9, 11, 9, 7, 5, 3, 1, *[0, 1, 2] * 4, 1.5, 2.5, 1, 2.5, 3, 0, 0.5, 1,
    ]  # fmt: skip
    assert seen.values("n") == [*range(9_000), 0, 1, 2, 2**63 - 1, -(2**63)]
    assert seen.values("flag") == [1, 0] and seen.values("word") == ["a", "é"]
    times = [time for _, time, _ in seen.puts]
    assert times == sorted(times) and len(set(times)) > 1_000, "each has the time of its put"


def test_batches_of_a_wrong_shape_or_type(publish: Publish) -> None:
    p = publish("shapes", {"x": "1", "n": int, "word": str})
    with pytest.raises(ValueError, match="one dimension, and this has 2"):
        p.x.put_many(numpy.zeros((2, 2)))
    with pytest.raises(TypeError):
        p.x.put_many(numpy.array(1.0))
    with pytest.raises(TypeError, match="takes an int, not float"):
        p.n.put_many(numpy.arange(3.0))
    with pytest.raises(TypeError, match="takes a float, not str"):
        p.x.put_many(["1"])
    with pytest.raises(TypeError, match="use put"):
        p.word.put_many("one text")
    with pytest.raises(TypeError):
        p.x.put_many(1.0)  # type: ignore[arg-type]


def test_without_an_agent_all_goes_on(publish: Publish, committed: Callable[[], Committed]) -> None:
    p = publish("alone", {"x": "1", "word": str}, readers="all", labels={"mesh": "fine"})
    assert p.enabled and p.error is None
    p.put(x=1, word="a" * 40)
    p.put(word=b"\0\xff")
    assert committed().puts == [], "nobody sees half a frame"
    assert p.frame() == 0
    seen = committed()
    assert [(name, value) for name, _, value in seen.puts] == [
        ("x", 1.0), ("word", "a" * 40), ("word", b"\0\xff"), ("frame", 0),
    ]  # fmt: skip
    (process, publication, *_) = seen.declared
    assert process["process"] == barograph._publication._application()
    assert (publication["readers"], publication["labels"]) == ("all", {"mesh": "fine"})
    p.x.put_many(numpy.arange(200_000.0))
    p.commit()
    seen = committed()
    assert seen.values("x")[-1] == 199_999 and seen.lost > 100_000, "the newest are kept"


def test_frames(publish: Publish, committed: Callable[[], Committed]) -> None:
    p = publish("frames", {"x": "1"})
    assert (p.frame(), p.frame(), p.frame(7), p.frame(n=9), p.frame()) == (0, 1, 7, 9, 10)
    with p as same, p.step(20) as stepped:
        assert same is p and stepped is p
    with p.step():
        p.put(x=1)
    assert committed().values("frame") == [0, 1, 7, 9, 10, 20, 21, 22]
    with pytest.raises(KeyError), p:
        p.put(x=2)
        raise KeyError
    seen = committed()
    assert seen.values("x") == [1, 2], "what was put is there"
    assert seen.values("frame")[-1] == 22, "but it was no frame"
    for wrong in (-1, 2**63):
        with pytest.raises(ValueError, match="frame's number"):
            p.frame(wrong)
    with pytest.raises(TypeError, match="frame's number"):
        p.step("1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "kind", "says"),
    [
        ("x", "0.5", TypeError, "app.wrong.x takes a float, not str: convert it"),
        ("x", None, TypeError, "not NoneType"),
        ("x", 10**400, ValueError, "64 bits"),
        ("n", 0.5, TypeError, "app.wrong.n takes an int, not float"),
        ("n", 2**63, ValueError, "64 bits"),
        ("flag", 1, TypeError, "takes a bool, not int"),
        ("word", 1, TypeError, "takes a str or bytes, not int"),
        ("word", "\ud800", ValueError, "surrogates"),
        ("y", 1, ValueError, "wrong has no value y: declare it .* there are x, n, flag, word"),
    ],
)
@pytest.mark.parametrize("off", [False, True])
def test_wrong_puts(
    publish: Publish,
    committed: Callable[[], Committed],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: Any,
    kind: type[Exception],
    says: str,
    off: bool,
) -> None:
    if off:
        monkeypatch.setenv("BAROGRAPH", "off")
    p = publish("wrong", {"x": "1", "n": int, "flag": bool, "word": str})
    with pytest.raises(kind, match=says):
        p.put(**({"x": 1, "n": 1} | {name: value}))
    if name in p.values:
        with pytest.raises(kind, match=says):
            p[name].put(value)
    p.commit()
    if not off:
        assert committed().puts == [], "all or nothing"


@pytest.mark.parametrize(
    ("arguments", "more", "kind", "says"),
    [
        (("Wrong", {"x": "1"}), {}, ValueError, "Wrong"),
        (("wrong", {"X": "1"}), {}, ValueError, "X"),
        (("wrong", {"frame": "1"}), {}, ValueError, "choose another name"),
        (("process", {"x": "1"}), {}, ValueError, "choose another name"),
        (("wrong", {"x": "u" * 300}), {}, ValueError, "unit"),
        (("wrong", {"x": 1.0}), {}, TypeError, "x is declared as 1.0: give a unit"),
        (("wrong", {"x": set}), {}, TypeError, "give a unit"),
        (("wrong", {1: "1"}), {}, TypeError, "give a str"),
        (("wrong", ["x"]), {}, TypeError, "give a dict"),
        (("wrong", {}), {"labels": {"rank": 3}}, TypeError, "label 'rank' is 3: give a str"),
        (("wrong", {}), {"labels": {"user": "me"}}, ValueError, "the agent adds"),
        (("wrong", {}), {"readers": "me"}, ValueError, "owner, group and all"),
        (("wrong", {}), {"overflow": "spill"}, ValueError, "drop-oldest and block"),
        (("wrong", {}), {"application": "a" * 600}, ValueError, "too large"),
    ],
)
def test_wrong_declarations(
    publish: Publish, arguments: Any, more: Any, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        publish(*arguments, **more)


def test_wrong_specifications() -> None:
    with pytest.raises(TypeError, match=r"use state\(\)"):
        barograph.counter("steps", str)
    with pytest.raises(TypeError, match="unit is 3"):
        barograph.gauge(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float, int, bool and str"):
        barograph.state(complex)  # type: ignore[arg-type]
    assert barograph.gauge("1") == barograph.ValueSpec("gauge", float, "1")


def test_what_has_another_meaning_already(publish: Publish) -> None:
    p = publish("twice", {"x": "1"})
    again = publish("twice", {"x": "1", "y": int})
    assert (again.x.unit, again.y.type, list(p.values)) == ("1", "int64", ["x"])
    with pytest.raises(ValueError, match="another type, unit or kind"):
        publish("twice", {"x": int})
    with pytest.raises(ValueError, match="choose another name"):
        publish("twice", {"x": "1"}, readers="all")
    elsewhere = publish("twice", {"x": "1"}, run_dir="/nowhere")
    assert not elsewhere.enabled and "already" in (elsewhere.error or "")


def test_attributes_and_items(publish: Publish) -> None:
    p = publish("named", {"x": "1", "put": int, "solve.time": barograph.gauge("seconds")})
    assert p["x"] is p.x and p["put"].type == "int64" and callable(p.put)
    p.put(**{"solve.time": 1.0, "put": 2})
    assert (p.name, list(p.values)) == ("named", ["x", "put", "solve.time"])
    assert (p.x.name, p.x.type, p.x.unit, p.x.kind) == ("x", "float64", "1", "gauge")
    assert repr(p) == "<Publication named: x, put, solve.time>"
    assert repr(p.x) == "<ValueHandle app.named.x, float64 gauge>"
    with pytest.raises(AttributeError, match="has no value 'y'; it has x, put, solve.time"):
        p.y.put(1)
    with pytest.raises(ValueError, match="no value y"):
        p["y"]


def test_switched_off(publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAROGRAPH", "off")
    p = publish("off", {"x": "1", "word": str})
    assert not p.enabled and "BAROGRAPH=off" in (p.error or "")
    with p:
        p.put(x=1, word="w")
        p.x.put_many(numpy.arange(10.0))
    assert (p.frame(), p.lost, p.run_dir) == (1, 0, None)
    assert not (tmp_path / "run" / "ingest").exists() and "off: publishing is" in repr(p)


def test_where_nothing_can_be_made(publish: Publish, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    p = publish("nowhere", {"x": "1"}, run_dir=tmp_path / "file" / "run")
    assert not p.enabled and "file/run" in (p.error or "")
    with p:
        p.x.put(1.0)


def test_closing(publish: Publish, committed: Callable[[], Committed], tmp_path: Path) -> None:
    p = publish("closing", {"x": "1"})
    x = p.x
    x.put(1)
    p.close()
    p.close()
    with p:
        p.put(x=2)
        x.put_many([3.0, 4.0])
    assert not p.enabled and repr(p) == "<Publication closing: x (off: closed)>"
    assert committed().values("x") == [1] and p.lost == 0
    (tmp_path / "other").mkdir()
    other = publish("closing", {"x": "1"}, run_dir=tmp_path / "other")
    assert other.enabled, "the process may publish elsewhere now"


def test_a_value_that_is_held_alone(
    publish: Publish, committed: Callable[[], Committed], tmp_path: Path
) -> None:
    p = barograph.publication("held", {"x": "1"}, run_dir=tmp_path / "run")
    x = p.x
    del p
    gc.collect()
    x.put(1)
    del x
    gc.collect()
    assert committed().values("x") == [1], "the last of it has closed the file"


def test_threads(agent: Agent, publish: Publish) -> None:
    p = publish("threads", {"x": "1", "n": int}, run_dir=agent.run_dir)

    def work(first: int) -> None:
        for n in range(first, first + 500):
            p.x.put(n)
            p.put(n=n)
            p.frame(n)

    threads = [threading.Thread(target=work, args=(500 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect = (2_000, sum(range(2_000)))
    for table in ("app_threads_x", "app_threads_n", "app_threads_frame"):
        eventually(lambda table=table: totals(agent, table) == expect, table)  # type: ignore[misc]
    assert p.lost == 0


def test_blocking_puts_lose_nothing_while_an_agent_reads(agent: Agent, publish: Publish) -> None:
    p = publish("blocking", {"x": "1"}, overflow="block", run_dir=agent.run_dir)
    for start in range(0, 300_000, 100_000):
        with p:
            p.x.put_many(numpy.arange(float(start), start + 100_000.0))
    lost = p.lost
    expect = 300_000 - lost
    eventually(lambda: totals(agent, "app_blocking_x")[0] == expect, "what was not given up")


@forking
def test_a_forked_child_has_a_file_of_its_own(
    publish: Publish, committed: Callable[[], Committed]
) -> None:
    p = publish("forked", {"x": "1", "word": str})
    p.x.put(1)

    def child() -> None:
        p.x.put(10)
        p.put(word="child")
        p.frame(3)
        assert p.enabled and p.lost == 0
        p.x.put(11)
        p.close()

    assert in_child(child) == 0
    p.x.put(2)
    p.frame(0)
    seen = committed()
    assert seen.files == 2
    assert sorted(seen.values("x")) == [1, 2, 10, 11], "nothing twice"
    assert sorted(seen.values("frame")) == [0, 3] and seen.values("word") == ["child"]


def published_by(run_dir: Path, rank: int) -> None:
    """The work of a process that inherits nothing."""
    p = barograph.publication("many", {"x": "1"}, labels={"rank": str(rank)}, run_dir=run_dir)
    with p:
        p.x.put_many([float(rank)] * 10)


@forking
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(agent: Agent, publish: Publish, method: str) -> None:
    inherited = publish("inherited", {"x": "1"}, labels={"method": method}, run_dir=agent.run_dir)
    context: Any = multiprocessing.get_context(method)
    ranks = range(3) if method == "fork" else range(3, 6)
    processes = [context.Process(target=published_by, args=(agent.run_dir, n)) for n in ranks]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    for n in ranks:
        where = f"rank = '{n}'"
        eventually(
            lambda where=where, n=n: totals(agent, "app_many_x", where) == (10, 10.0 * n),  # type: ignore[misc]
            where,
        )
    with inherited:
        inherited.put(x=1)
    where = f"method = '{method}'"
    eventually(lambda: totals(agent, "app_inherited_x", where) == (1, 1.0), "the parent goes on")
