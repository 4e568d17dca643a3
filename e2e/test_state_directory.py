"""A full state directory and damaged statements: the agent observes, reports the trouble, and loses
nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from harness import BARO, Agent, environment, eventually

FULL = r"""
    mkdir state
    mount -t tmpfs -o size=64m none state
    dd if=/dev/zero of=state/fill bs=64k 2>/dev/null || true
    "$baro" up --config file.toml --run-dir run --state-dir state --http off >log 2>&1 &
    agent=$!
    for i in $(seq 600); do grep -q "^barograph ready" log && break; sleep 0.05; done
    "$baro" watch agent.cpu.seconds --count 3 --run-dir run >/dev/null
    echo "STATUS $("$baro" status --run-dir run)"
    echo "DOCTOR $("$baro" doctor --run-dir run)"
    "$baro" insight create "CREATE INSIGHT my.a AS SELECT count(*) FROM memory_total_bytes" --run-dir run 2>refused && exit 3
    rm state/fill
    for i in $(seq 1200); do ls state/archive/nodes/*/log/*.log >/dev/null 2>&1 && break; sleep 0.05; done
    ls state/archive/nodes/*/log/*.log
    "$baro" insight create "CREATE INSIGHT my.a AS SELECT count(*) FROM memory_total_bytes" --run-dir run
    for i in $(seq 1200); do "$baro" status --run-dir run >after; grep -q "No space left" after || break; sleep 0.05; done
    kill $agent
    wait $agent
    echo "KEPT $(cat state/insights.json)"
"""


def test_history_begins_when_a_full_state_directory_has_room_again(tmp_path: Path) -> None:
    unshare = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let its user mount")
    (tmp_path / "file.toml").write_text("[archive]\nfree_bytes_min = 0\n")
    prelude = f"set -eu; cd {shlex.quote(str(tmp_path))}; baro={shlex.quote(BARO)}; "
    done = subprocess.run(
        [*unshare, "bash", "-c", prelude + FULL], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=180, env=environment(),
    )  # fmt: skip
    log = (tmp_path / "log").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + log
    before, after = (tmp_path / "refused").read_text(), (tmp_path / "after").read_text()
    doctor = done.stdout.partition("DOCTOR")[2].partition("KEPT")[0]
    assert "No space left" in done.stdout.partition("DOCTOR")[0]
    assert "insights.json" in doctor and "history is not written" in doctor
    assert "insights.json" in before and "No space left" in before
    assert "No space left" not in after
    assert "CREATE INSIGHT my.a" in done.stdout.partition("KEPT")[2]
    assert "ERROR" in log and "panicked" not in log


@pytest.mark.parametrize("kind", ["insights", "policies", "rules"])
@pytest.mark.parametrize("damaged", ['{"a":', "\0\0\0"])
def test_damaged_statements_are_kept_beside(tmp_path: Path, kind: str, damaged: str) -> None:
    agent = Agent(tmp_path)
    agent.state_dir.mkdir()
    file = agent.state_dir / f"{kind}.json"
    for n in (1, 2):
        file.write_text(damaged * n)
        agent.start()
        aside = Path(f"{file}.damaged-{n}")
        assert aside.read_text() == damaged * n
        assert str(aside) in agent.output()
        # Rules are loaded last: the next document reports it.
        eventually(lambda aside=aside: str(aside) in agent.out("doctor"), "the doctor's word")
        agent.stop()
    assert Path(f"{file}.damaged-1").read_text() == damaged
