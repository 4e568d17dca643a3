"""The programs of the interference experiment and the page of its results, without root and without a slow disk."""

import contextlib
import http.server
import json
import socketserver
import sys
import threading
import tomllib
import types

import interference_evaluation as evaluation
import interference_load as load
import interference_page as page
import pytest
from interference_load import Packed

MIB = 1 << 20
PACKED = Packed([1000, 5000, 2 * MIB, 3 * MIB + 17], [1e-1, 1e-2, 1e-4, 0.0])


class Clock:
    """A clock that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("works", "expect"),
    [
        ([1, 1, 1, 1], [(0, 0), (6, 0), (12, 0), (18, 0)]),
        ([7, 1, 1], [(0, 0), (12, 1), (18, 0)]),
        ([13, 6], [(0, 0), (18, 2)]),
        ([6, 6, 6, 6], [(0, 0), (6, 0), (12, 0), (18, 0)]),
        ([100], [(0, 0)]),
    ],
)
def test_periods_that_were_passed_are_counted(monkeypatch, works, expect):
    clock = Clock()
    monkeypatch.setattr(load, "time", clock)
    seen = []
    for at, late in load.periods(102.0, 6.0, 126.0):
        seen.append((at, late))
        clock.now += works[len(seen) - 1]
    assert seen == expect


def test_buckets_of_an_inspected_array():
    told = {"buckets": [{"bytes_so_far": 10, "error": {"nrmse": 0.5}}, {"bytes_so_far": 30, "error": {"nrmse": 0.0}}]}
    assert Packed.of(told) == Packed([10, 30], [0.5, 0.0])


@pytest.mark.parametrize(
    ("error", "expect"), [(None, 1000), (1.0, 1000), (1e-2, 5000), (5e-3, 2 * MIB), (0.0, 3 * MIB + 17), (-1.0, 3 * MIB + 17)]
)
def test_what_a_bound_needs(error, expect):
    assert PACKED.needed(error) == expect


@pytest.mark.parametrize(("length", "expect"), [(999, None), (1000, 1e-1), (2 * MIB - 1, 1e-2), (3 * MIB + 17, 0.0)])
def test_the_error_is_that_of_whole_buckets(length, expect):
    assert PACKED.error_of(length) == expect


def test_the_question_has_the_buckets_after_the_base():
    asked = PACKED.question("/x/field.baro", 1e-3, 7, 6.0)
    assert asked["base_bytes"] == 1000 and asked["error"] == {"nrmse": 1e-3}
    assert asked["buckets"][0] == {"bytes": 4000, "nrmse": 1e-2}
    assert asked["base_bytes"] + sum(bucket["bytes"] for bucket in asked["buckets"]) == PACKED.ends[-1]
    assert PACKED.question("/x", None, 5, 6.0)["error"] is None


class StandIn(http.server.BaseHTTPRequestHandler):
    """Stands in for an agent: answers as it is told, and keeps what it was asked."""

    asked: list = []
    answers: list = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.path, json.loads(body)))
        status, text = self.answers.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def stand_in(tmp_path):
    """The socket of a stand-in for the agent."""
    StandIn.asked, StandIn.answers = [], []
    path = tmp_path / "s"
    with socketserver.UnixStreamServer(str(path), StandIn) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield str(path)
        server.shutdown()
        thread.join()


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """Makes readers of a file as long as the packed array; not every file system has direct I/O."""
    monkeypatch.setattr(load.os, "O_DIRECT", 0)
    path = tmp_path / "field.baro"
    path.write_bytes(bytes(PACKED.ends[-1]))
    settings = {"path": str(path), "ends": PACKED.ends, "errors": PACKED.errors, "period_s": 6.0, "priority": 10, "error": 1e-2}
    return lambda **more: load.Reader(settings | {"bytes": PACKED.ends[-1]} | more)


@pytest.mark.parametrize(("length", "error"), [(1, None), (5000, 1e-2), (2 * MIB + 1, 1e-4), (PACKED.ends[-1], 0.0)])
def test_a_reader_without_an_agent(reader, length, error):
    taken = reader(bytes=length).step()
    assert (taken["bytes"], taken["nrmse"]) == (length, error)
    assert "plan" not in taken and "refused" not in taken


def test_a_file_that_is_too_short_is_an_error(reader):
    with pytest.raises(OSError, match="were read"):
        reader(bytes=PACKED.ends[-1] + 1).step()


def test_a_reader_does_what_the_agent_plans_and_reports_it(reader, stand_in):
    plan = {"decision": 17, "buckets": 2, "bytes": 1, "degree": 0.4, "weight": 640, "reason": "it is so", "foreign": 1}
    StandIn.answers = [(200, json.dumps(plan)), (200, '{"decision": 17}')]
    taken = reader(control=stand_in).step()
    assert (taken["bytes"], taken["nrmse"], taken["plan"]["weight"]) == (2 * MIB, 1e-4, 640)
    assert StandIn.asked[0][1]["base_nrmse"] == 1e-1
    assert "foreign" not in taken["plan"] and "refused" not in taken
    (plan_path, _), (report_path, report) = StandIn.asked
    assert (plan_path, report_path) == ("/api/v1/control/plan", "/api/v1/control/report")
    assert report == {"decision": 17, "bytes": 2 * MIB, "seconds": taken["seconds"], "nrmse": 1e-4}


@pytest.mark.parametrize(("probe", "length"), [({"bucket": 1, "bytes": 500}, 1500), ({"bytes": 1 << 40}, PACKED.ends[-1]), (None, 1000)])
def test_a_probe_is_read_beyond_the_buckets(reader, stand_in, probe, length):
    StandIn.answers = [(200, json.dumps({"buckets": 0, "probe": probe})), (200, "{}")]
    assert reader(control=stand_in).step()["bytes"] == length


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((429, '{"error": "too many"}'), "plan: 429: {\"error\": \"too many\"}"),
        ((200, "nonsense"), "plan: no JSON"),
        ((200, "[]"), "plan: no object"),
        ((200, "{}"), "plan: 'buckets'"),
        ((200, '{"buckets": null}'), "plan: "),
    ],
)
def test_without_a_plan_a_reader_reads_what_its_bound_needs(reader, stand_in, answer, said):
    StandIn.answers = [answer]
    taken = reader(control=stand_in).step()
    assert taken["bytes"] == 5000 and taken["refused"].startswith(said)


def test_no_agent_and_a_plan_beyond_the_array(reader, stand_in, tmp_path):
    taken = reader(control=str(tmp_path / "none")).step()
    assert taken["bytes"] == 5000 and "no answer" in taken["refused"]
    StandIn.answers = [(200, '{"buckets": 99}'), (404, "gone")]
    taken = reader(control=stand_in).step()
    assert taken["bytes"] == PACKED.ends[-1] and taken["refused"] == "report: 404: gone"


def test_the_reader_of_the_package(monkeypatch, tmp_path):
    """With a stand-in for the package, which is not installed for the tests of the scripts."""
    last = types.SimpleNamespace(
        id=17, buckets=2, degree=0.5, weight=300.0, weight_reason=None, reason="so", bytes=5000, nrmse=1e-2, reported=True
    )
    opened = []
    array = types.SimpleNamespace(read=lambda: None, last=last)
    progressive = types.SimpleNamespace(open=lambda *words, **more: opened.append((words, more)) or array)
    monkeypatch.setitem(sys.modules, "barograph", types.SimpleNamespace(progressive=progressive))
    path = tmp_path / "field.baro"
    path.write_bytes(b"x")
    settings = {"path": str(path), "control": "/run/x/control.sock", "error": None, "priority": 10, "period_s": 6.0}
    reader = load.PackageReader(settings)
    taken = reader.step()
    assert opened == [((str(path), None, 10), {"agent": True, "interval": 6.0, "run_dir": "/run/x"})]
    assert (taken["bytes"], taken["plan"]["weight"], "refused" in taken) == (5000, 300.0, False)
    last.reported = False
    assert reader.step()["refused"] == "so"
    last.id = None
    assert "refused" not in reader.step()
    assert load.PackageReader(settings | {"control": None}) and opened[-1][1] == {"agent": False, "interval": 6.0}


@pytest.mark.parametrize(("lines", "expect"), [([], ""), (["a  b", "c\nd"], "a b c d"), (["x" * 300], "x" * 240 + " …")])
def test_reasons_are_brief(lines, expect):
    assert evaluation.brief(lines) == expect


def test_rows():
    names = [row.name for row in evaluation.rows_of([], sweeps=False)]
    assert names[:3] == ["no-noise", "none", "storage"] and names[-4:] == ["cross", "cross-learnt", "package-none", "package-cross"]
    swept = evaluation.rows_of([], sweeps=True)
    assert {row.priority for row in swept if row.name.startswith("priority")} == {1, 5, 10}
    assert [row.name for row in evaluation.rows_of(["cross", "none"], sweeps=False)] == ["cross", "none"]
    assert evaluation.rows_of(["error-1e-03"], sweeps=False)[0].error == 1e-3
    assert {row.nodes for row in swept} == {1, 2, evaluation.NODES_MAX} and not any(row.is_main for row in swept if "-1" in row.name)
    with pytest.raises(SystemExit, match="no row cros: choose of no-noise"):
        evaluation.rows_of(["cros"], sweeps=False)


def test_sessions_have_the_rows_with_the_same_writers_in_turn():
    rows = evaluation.rows_of(["no-noise", "none", "cross", "nodes-2", "storage"], sweeps=True)
    sessions = evaluation.sessions_of(rows)
    assert [[row.name for row in session.rows] for session in sessions] == [["no-noise"], ["none", "cross", "storage"], ["nodes-2"]]
    options = types.SimpleNamespace(learning=150.0, seconds=60.0)
    assert [session.seconds(options) for session in sessions] == [60, 150 + 180, 150 + 60]
    assert [row.name for row in sessions[1].rotated(4)] == ["cross", "storage", "none"]


def test_a_session_runs_readers_beside_writers_on_each_node(monkeypatch, tmp_path):
    clock, set_to, begun = Clock(), [], []
    groups = types.SimpleNamespace(folder=tmp_path, set_weight=lambda name, weight: set_to.append((name, weight)))
    tiers = [evaluation.Tier(tmp_path / str(number), f"/dev/loop{number}", groups, evaluation.Disk()) for number in range(2)]

    @contextlib.contextmanager
    def started(role, settings, python=""):
        begun.append((role, settings))
        yield settings | {"role": role}

    def lines_of(process, end):
        clock.now = max(clock.now, end)
        ats = [0.0] if process["role"] == "reader" else [0.0, 10.0, 12.0]
        return [{"at": at, "path": process["path"]} for at in ats]

    monkeypatch.setattr(evaluation, "time", clock)
    monkeypatch.setattr(evaluation, "started", started)
    monkeypatch.setattr(evaluation, "lines_of", lines_of)
    rows = [evaluation.Row("a", "a", writers=2, nodes=2), evaluation.Row("b", "b", writers=2, weight=300, nodes=2)]
    options = types.SimpleNamespace(learning=9.0, seconds=2.0, python="python")
    runs = list(evaluation.run_session(evaluation.Session(rows), 1, tiers, PACKED, options))
    assert [role for role, _ in begun] == ["writer"] * 4 + ["reader"] * 4
    assert set_to == [("reader", 300)] * 2 + [("reader", 100)] * 2
    begin = begun[0][1]["begin"]
    assert [(settings["begin"] - begin, settings["end"] - begin) for _, settings in begun[4::2]] == [(9, 11), (11, 13)]
    assert [(run["row"], run["start"], len(run["steps"])) for run in runs] == [("b", 9, 2), ("a", 11, 2)]
    ats = [[[line["at"] for line in lines] for lines in run["writers"]] for run in runs]
    assert ats == [[[10, 10]] * 2, [[12, 12]] * 2]
    assert {line["path"] for line in runs[0]["writers"][0]} == {str(tmp_path / number / "checkpoint-1") for number in "01"}


def test_configurations_of_the_agent():
    tier = evaluation.Tier(None, "/dev/loop3", None, evaluation.Disk())
    rows = {row.name: tomllib.loads(evaluation.config_of(row, tier))["control"] for row in evaluation.rows_of([], sweeps=False)}
    assert rows["cross"] == {"weights": "controllers", "thresholds": {"loop3": {"low": 30e6, "high": 120e6}}}
    assert rows["application"]["weights"] == "off"
    assert rows["cross-learnt"] == {"weights": "controllers"}
    whole = tomllib.loads(evaluation.config_of(evaluation.rows_of(["cross"], sweeps=False)[0], tier))
    assert whole["interference"] == {"devices": ["loop3"], "step_seconds": 6, "read_bytes": 48_000_000}
    assert whole["sources"]["disk"] == {"skip": [], "bandwidth_max": {"loop3": 120_000_000}}


def step(at, seconds, size=120_000_000, nrmse=0.0, late=0, **more):
    return {"at": at, "late": late, "seconds": seconds, "bytes": size, "nrmse": nrmse, **more}


def run(row, *steps, writers=()):
    return {"row": row, "load": [0.5, 1.5], "processors_busy": 0.25, "steps": list(steps), "writers": list(writers)}


def results(*runs, left_out=None):
    rows = [row for row in evaluation.rows_of([], sweeps=False) if row.name in {run["row"] for run in runs} or row.name in (left_out or {})]
    return {
        **page.SETTINGS,
        "seconds": 120, "learning_s": 150, "repeats": 2, "other_repeats": 1, "processors": 2, "kernel": "6.1", "groups_version": 1,
        "array": {"snapshots": 75, "ends": PACKED.ends, "errors": PACKED.errors},
        "rows": [evaluation.asdict(row) for row in rows],
        "left_out": left_out or {},
        "runs": list(runs),
    }  # fmt: skip


def test_figures_are_over_the_steps_of_all_runs():
    found = page.figures([run("none", step(6, 2, late=1), step(12, 4)), run("none", step(6, 6, 60_000_000, 1e-3)), run("none")])
    assert (found.steps, found.mean, found.longest, found.run_means, found.late) == (3, 4, 6, (3, 6), 1)
    assert found.deviation == pytest.approx(2)
    assert (found.rate_least, found.error, found.megabytes) == (10, (0.0, 1e-3), 100)
    assert page.figures([run("none", step(6, 2))]) is None
    assert page.figures([]) is None


CHECKPOINTS = ([step(20, 3), step(40, 5)], [], [step(22.5, 1)])


def test_tables_have_rows_machine_and_what_was_left_out():
    text = page.tables(
        results(
            run("none", step(6, 2), step(12, 4), writers=CHECKPOINTS),
            run("cross", step(6, 1, 30_000_000, 1e-4, plan={"weight": 300.0}), step(12, 0.5, 30_000_000, 1e-4, plan={"weight": None}, refused="x")),
            left_out={"application": "the agent does not plan"},
        )
    )
    lines = text.splitlines()
    assert lines[2] == "| no adaptivity | 2 | 120.0 | 3.00 ± 1.41 (3.00 to 3.00) | 4.00 | - | 45 / 30 | exact | 100 | 0 |"
    assert "| 30.0 | 0.75 ± 0.35 (0.75 to 0.75) | 1.00 | -75 % | 45 / 30 | 1e-04 | 300 | 0, 1 steps without the agent |" in lines[3]
    assert "| no adaptivity | 4.00 | - | 1.00 | - | - | - |" in lines
    assert "| no adaptivity | 0.5 | 1.5 | 25% |" in lines
    assert lines[-1] == "Left out: *application only, the agent plans*, the agent does not plan."


def test_a_run_in_a_line_has_the_quiet_row_beside_it():
    quiet, noisy = run("no-noise", step(6, 1), step(12, 1)), run("none", step(6, 2), step(12, 4), writers=CHECKPOINTS)
    text = page.line_of(results(quiet, noisy), noisy, "1/1 no adaptivity")
    assert text.startswith("1/1 no adaptivity: 2 steps of 120 MB, 3.00 ± 1.41 s, longest 4.00 s, 45 MB/s (least 30), checkpoints 4.00 - 1.00 s; no noise 1.00 s; load 0.5")
    assert "no noise" not in page.line_of(results(quiet), quiet, "q")
    assert "too few steps" in page.line_of(results(quiet), run("none"), "n")


def test_the_results_are_read_as_they_were_written():
    whole = results(run("none", step(6, 2), step(12, 4)), run("none", step(6, 3)))
    assert json.loads(evaluation.as_text(whole)) == json.loads(json.dumps(whole))
    empty = results()
    assert json.loads(evaluation.as_text(empty)) == json.loads(json.dumps(empty))


def test_the_page_is_that_of_its_data():
    data = json.loads(evaluation.DATA.read_text()) if evaluation.DATA.exists() else None
    assert evaluation.PAGE.read_text() == page.page(data)


def test_the_page_without_data_has_the_settings_of_the_evaluation():
    assert [tuple(writer) for writer in page.SETTINGS["writers"]] == evaluation.WRITERS
    assert page.SETTINGS["disk"] == {name: getattr(evaluation.Disk(), name) for name in page.SETTINGS["disk"]}
    assert page.SETTINGS["reader_period_s"] == evaluation.READER_PERIOD
    assert tuple(page.SETTINGS["thresholds"]) == evaluation.THRESHOLDS
    measured = page.page(results(run("none", step(6, 2), step(12, 4))))
    assert "There are none yet" not in measured and "Linux 6.1, control groups of version 1" in measured
