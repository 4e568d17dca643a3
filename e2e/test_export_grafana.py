"""The dashboards in etc/grafana: they have the published form, and show only what an agent has."""

from __future__ import annotations

import enum
import importlib
import json
import re
import subprocess
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import QUICK, ROOT, Agent, baro, eventually, machine

FOLDER = ROOT / "etc" / "grafana"
NAMES = sorted(path.name for path in FOLDER.glob("*.json"))
# The newest version that Grafana 11 and 12 write.
SCHEMA_VERSION = 41


def dashboard(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_text())


def panels(name: str) -> Iterator[dict[str, Any]]:
    """The panels that show data."""
    yield from (panel for panel in dashboard(name)["panels"] if panel["type"] != "row")


def plain(model: object) -> Any:
    """A model of the SDK as JSON."""
    if hasattr(model, "to_json"):
        return plain(model.to_json())
    if isinstance(model, dict):
        return {key: plain(value) for key, value in model.items()}
    if isinstance(model, (list, tuple)):
        return [plain(value) for value in model]
    return model.value if isinstance(model, enum.Enum) else model


def lost(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """The parts of our JSON that the SDK did not understand."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key not in theirs:
                yield f"{path}.{key} is unknown"
            else:
                yield from lost(value, theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for at, (value, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(value, other, f"{path}[{at}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} was understood as {theirs!r}"


def misfits(value: Any, kind: Any, path: str) -> Iterator[str]:
    """The places where a model's values do not have their declared types."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:
        tries = [list(misfits(value, each, path)) for each in inner]
        if all(tries):
            # The intended type is the one that matches furthest.
            yield from max(tries, key=lambda faults: len(faults[0].split()[0]))
    elif kind in (Any, object) or isinstance(kind, typing.TypeVar):
        return
    elif origin is typing.Literal:
        if value not in inner:
            yield f"{path} = {value!r} is none of {inner}"
    elif origin is list:
        if not isinstance(value, list):
            yield f"{path} is no list"
            return
        for at, each in enumerate(value):
            yield from misfits(each, inner[0], f"{path}[{at}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{path} is no object"
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        if value not in {each.value for each in kind}:
            yield f"{path} = {value!r} is none of {[each.value for each in kind]}"
    elif kind is float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            yield f"{path} = {value!r} is no number"
    elif isinstance(kind, type) and hasattr(kind, "from_json"):
        # The SDK leaves some lists as they were.
        value = kind.from_json(value) if isinstance(value, dict) else value
        if not isinstance(value, kind):
            yield f"{path} is no {kind.__name__}"
            return
        for name, hint in hints(kind).items():
            yield from misfits(getattr(value, name), hint, f"{path}.{name}")
    elif isinstance(kind, type) and not isinstance(value, kind):
        yield f"{path} = {value!r} is no {kind.__name__}"


def hints(kind: type) -> dict[str, Any]:
    """The declared types of a model's fields, except the `datasource` of queries."""
    return typing.get_type_hints(kind, vars(importlib.import_module(kind.__module__)))


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_is_of_the_published_form(name: str) -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    ours = dashboard(name)
    model = models.Dashboard.from_json(json.loads(json.dumps(ours)))
    understood = plain(model)
    # The queries of a panel depend on the data source.
    queries = [panel.pop("targets", None) for panel in ours["panels"] + understood["panels"]]
    assert any(queries)
    # Objects that only a plugin knows are passed on unchanged; everything else must be known.
    assert [fault for fault in lost(ours, understood) if ".timepicker" not in fault] == []
    assert list(misfits(model, models.Dashboard, name)) == []
    assert ours["schemaVersion"] == SCHEMA_VERSION


def test_what_is_wrong_is_found() -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    ours = dashboard(NAMES[0])
    ours["titel"] = "x"
    ours["panels"][1]["gridPos"]["h"] = "8"
    ours["graphTooltip"] = 7
    model = models.Dashboard.from_json(json.loads(json.dumps(ours)))
    assert [fault for fault in lost(ours, plain(model)) if "titel" in fault] == [".titel is unknown"]
    faults = " ".join(misfits(model, models.Dashboard, "x"))
    assert "grid_pos.h = '8' is no int" in faults and "graph_tooltip = 7 is none of" in faults


@pytest.mark.parametrize("name", NAMES)
def test_panels_lie_side_by_side(name: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    numbers = [panel["id"] for panel in dashboard(name)["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in dashboard(name)["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    for panel in panels(name):
        assert panel["description"].endswith("."), panel["title"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent of a machine with everything that a dashboard shows, and with an export that
    fails."""
    folder = tmp_path_factory.mktemp("whole")
    tree = machine("nvme-v2", folder)
    for mount in ("scratch", "jobs", "lustre/work space", "home"):
        (tree / mount).mkdir(parents=True)
    config = QUICK + '[export.remote_write]\nurl = "http://127.0.0.1:1/"\n'
    agent = Agent(folder, "--sys-root", tree, "--node", "node_1", config=config)
    yield agent.start()
    agent.destroy()


def expressions() -> Iterator[tuple[str, str]]:
    for panel in panels("barograph-node.json"):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in dashboard("barograph-node.json")["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"])
            assert found, variable
            yield variable["name"], found[1]


def exposed(*agents: Agent) -> list[str]:
    """The samples of all these agents: a fixture tree is static, and a real machine may have no
    disk."""
    texts = [agent.get("/metrics").text for agent in agents]
    return [line for text in texts for line in text.splitlines() if not line.startswith("#")]


def test_every_metric_is_in_the_exposition(whole: Agent, live: Agent) -> None:
    metric = re.compile(r"\b(?:barograph|node)_\w+(?=\{|,|$)")
    expected = {name for _, expr in expressions() for name in metric.findall(expr)}
    assert len(expected) > 20

    def all_there() -> bool:
        return expected <= {line.split("{")[0] for line in exposed(whole, live)}

    eventually(all_there, f"all of {sorted(expected)} in the exposition")


def test_labels_that_legends_name_are_there(whole: Agent, live: Agent) -> None:
    test_every_metric_is_in_the_exposition(whole, live)
    lines = exposed(whole, live)
    for panel in panels("barograph-node.json"):
        for target in panel["targets"]:
            (metric, *_) = re.findall(r"barograph_\w+(?=\{)", target["expr"])
            ours = [line for line in lines if line.startswith(f"{metric}{{")]
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert any(f'{label}="' in line for line in ours), (panel["title"], label)


def test_every_expression_is_promql(tmp_path_factory: pytest.TempPathFactory) -> None:
    """promtool reads the expressions, as rules, like Prometheus does."""
    rules = [
        {"record": f"r{at}", "expr": re.sub(r"\$(node|device)\b", "x", expr)}
        for at, (_, expr) in enumerate(expressions())
    ]
    path = tmp_path_factory.mktemp("rules") / "rules.json"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    try:
        done = subprocess.run(
            ["promtool", "check", "rules", path], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("no promtool installed")
    assert done.returncode == 0, done.stdout + done.stderr


STATEMENTS = [
    (panel["title"], panel["targets"][0]["url_options"]["data"], panel["targets"][0]["columns"])
    for panel in panels("barograph-sql.json")
]
KINDS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: True,
    "number": lambda value: isinstance(value, (int, float)),
    # Milliseconds since the epoch, in this century.
    "timestamp_epoch": lambda value: 1e12 < value < 4e12,
}


@pytest.mark.parametrize(("title", "statement", "columns"), STATEMENTS, ids=[each[0] for each in STATEMENTS])
def test_every_statement_runs(
    whole: Agent, title: str, statement: str, columns: list[dict[str, str]]
) -> None:
    # Grafana inserts the time range in milliseconds.
    statement = statement.replace("${__from}", "0").replace("${__to}", "4000000000000")
    assert "$" not in statement

    def rows() -> list[dict[str, Any]]:
        answer = whole.post_sql(statement)
        # A value that is derived from two looks has no table before the second.
        return answer.json if answer.status == 200 else []

    found = eventually(rows, f"rows of {title}: {whole.post_sql(statement).text[:200]}")
    assert set(found[0]) == {column["selector"] for column in columns}
    for row in found:
        for column in columns:
            value = row[column["selector"]]
            assert value is None or KINDS[column["type"]](value), (title, column, value)
    assert baro("sql", statement, "--json", "--run-dir", whole.run_dir).returncode == 0
