"""Server maps, without an agent: what programs rely on whatever happens to it."""

from __future__ import annotations

from pathlib import Path

import pytest

import barograph


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("BAROGRAPH", raising=False)
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def test_operations_go_to_the_servers_that_were_declared(run_dir: Path) -> None:
    servers = barograph.server_map("io", servers=(7, 0, 1_023), run_dir=run_dir)
    assert servers.error is None
    operation = servers.operation()
    assert (operation.epoch, operation.servers, operation.start) == (None, None, None)
    with operation as op:
        assert (op.epoch, op.servers, op.start) == (0, [0, 7, 1_023], "off")
        assert not op.is_refused
        with pytest.raises(ValueError, match="already"):
            operation.__enter__()
        op.refused(4)
        assert op.is_refused
    # A server knows of a later epoch, of which nobody here tells.
    with servers.operation(wait=0.01) as op:
        assert (op.start, op.is_refused) == ("late", False)
    with servers.operation() as op:
        assert op.start == "off"


def test_a_server_without_an_agent_serves_those_without_an_epoch(run_dir: Path) -> None:
    server = barograph.map_server("io", 3, run_dir=run_dir)
    with server.serve(0) as request:
        assert request.fence is None
        request.done(4_096)
    with server.serve(6) as request:
        assert request.fence == 6


def test_what_makes_no_sense_is_an_error(run_dir: Path) -> None:
    with pytest.raises(ValueError, match="1,023"):
        barograph.server_map("io", servers=[1_024], run_dir=run_dir)
    with pytest.raises(ValueError, match="at least one"):
        barograph.server_map("io", servers=[], run_dir=run_dir)
    with pytest.raises(ValueError, match="1,023"):
        barograph.map_server("io", 5_000, run_dir=run_dir)
    servers = barograph.server_map("io", servers=[1], run_dir=run_dir)
    for wait in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="seconds"):
            servers.operation(wait=wait)


def test_nothing_is_published_where_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAROGRAPH", "off")
    servers = barograph.server_map("io", servers=range(2))
    assert "BAROGRAPH=off" in str(servers.error)
    with servers.operation() as op:
        assert (op.epoch, op.servers, op.start) == (0, [0, 1], "off")
    with barograph.map_server("io", 1).serve(0) as request:
        assert request.fence is None
