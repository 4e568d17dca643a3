"""`baro probe`: it measures a device, and keeps the result where the agent looks for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import BARO, QUICK, Agent, baro, environment, eventually

# The least that is measured: the device is a file of this machine, whose speed says nothing.
LITTLE = ("--seconds", "0.2", "--mib", "4")


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """The name of a block device that nobody else uses: a file behind a loop device."""
    if os.geteuid() != 0 or not shutil.which("losetup"):
        pytest.skip("only root can set up a block device, with losetup")
    image = tmp_path / "image"
    image.write_bytes(os.urandom(8 << 20))
    made = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"loop devices are not permitted here: {made.stderr.strip()}")
    path = made.stdout.strip()
    yield path.removeprefix("/dev/")
    subprocess.run(["losetup", "--detach", path], check=True)


def kept(agent: Agent) -> dict[str, dict[str, object]]:
    """The measurements in the state directory of an agent, by device."""
    return tomllib.loads((agent.state_dir / "probes.toml").read_text())


def test_the_result_is_kept_for_the_agent_that_runs(live: Agent, device: str) -> None:
    # The agent of the environment, and the one of --run-dir.
    found = baro("probe", device, *LITTLE, "--json", env=environment(BAROGRAPH_RUN_DIR=str(live.run_dir)))
    assert found.returncode == 0, found
    outcome = json.loads(found.stdout)
    assert outcome["kept"] == str(live.state_dir / "probes.toml")
    record = kept(live)[device]
    assert record["bytes_per_second"] == outcome["bytes_per_second"] > 0
    assert record["size_bytes"] == outcome["size_bytes"] == 8 << 20
    named = live.ask("probe", device, *LITTLE)
    assert named["kept"] == outcome["kept"]
    assert kept(live)[device]["bytes_per_second"] == named["bytes_per_second"]
    # What is not to be kept is not.
    before = kept(live)
    for option in ("--dry-run", "--force"):
        assert live.ask("probe", device, *LITTLE, option)["kept"] is None
    assert kept(live) == before
    assert str(live.state_dir) in live.out("probe", device, *LITTLE)


def test_the_agent_publishes_what_was_measured(start: Callable[..., Agent], device: str) -> None:
    # By default devices that are on others, such as this one, are left out.
    agent = start(config=QUICK.replace("[sources.disk]\n", "[sources.disk]\nskip = []\n"))
    of_device = f"device={device}"
    eventually(lambda: agent.has(f"disk.*{{{of_device}}}"), "the device")
    assert agent.value("disk.bandwidth.max.bytes_per_second", of_device) is None
    measured = agent.ask("probe", device, *LITTLE)["bytes_per_second"]
    greatest = lambda: agent.value("disk.bandwidth.max.bytes_per_second", of_device)  # noqa: E731
    assert eventually(greatest, "the greatest bandwidth") == pytest.approx(measured)
    assert agent.value("disk.bandwidth.source.name", of_device) == "probed"


def test_without_an_agent_the_place_must_be_named(device: str, tmp_path: Path) -> None:
    nobody = tmp_path / "nobody"
    refused = baro("probe", device, *LITTLE, "--run-dir", nobody)
    assert refused.returncode == 2 and refused.stdout == "", refused
    assert f"{nobody} has no agent of this user: name its --state-dir or --config" in refused.stderr
    assert not nobody.exists()
    state = tmp_path / "state"
    named = baro("probe", device, *LITTLE, "--state-dir", state, "--json")
    assert named.returncode == 0, named
    assert json.loads(named.stdout)["kept"] == str(state / "probes.toml")
    # The place is named in one way.
    both = baro("probe", device, "--run-dir", nobody, "--state-dir", state)
    assert both.returncode == 2 and "cannot be used with" in both.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for other users")
def test_the_agent_of_another_user_does_not_choose_the_place(live: Agent) -> None:
    command = [BARO, "probe", "loop0", "--run-dir", live.run_dir]
    refused = subprocess.run(
        command, user=4_711, group=4_711, extra_groups=[], capture_output=True, text=True, check=False,
        env=environment(HOME="/nonexistent"),
    )  # fmt: skip
    assert refused.returncode == 2 and "has no agent of this user" in refused.stderr, refused


def test_what_is_no_device_is_refused(live: Agent) -> None:
    assert "there is no /dev/no-such-disk: `ls /sys/block` names the disks" in live.error("probe", "no-such-disk")
    assert "/dev/null is no block device" in live.error("probe", "null")
    assert "--seconds 0.01 is not between 0.1 and 60" in live.error("probe", "null", "--seconds", "0.01", status=2)
