"""Arrays as files: packed, read within an error, in parts, and what is damaged or does not fit."""

from __future__ import annotations

import importlib.util
import json
import resource
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import progressive_reader
import pytest
from harness import BARO, ROOT


def baro(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BARO, "data", *map(str, words)], capture_output=True, text=True, timeout=120, **more)


def told(*words: object) -> dict[str, Any]:
    done = baro(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def field(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Several blocks of a smooth field with steps, with values that are missing."""
    x, y = np.meshgrid(np.linspace(0, 6, 700), np.linspace(0, 4, 620), indexing="ij")
    values = np.sin(x * y) + (x > 2) * 0.5 + np.random.default_rng(3).normal(0, 1e-4, x.shape)
    values[100:110, 200:260] = np.nan
    path = tmp_path / "field.npy"
    np.save(path, values)
    return path, values


def nrmse(values: np.ndarray, read: np.ndarray) -> float:
    there = np.isfinite(values)
    assert np.array_equal(there, np.isfinite(read))
    difference = values[there] - read[there]
    return float(np.sqrt(np.mean(difference**2)) / (values[there].max() - values[there].min()))


def test_a_reading_is_as_precise_as_is_asked_and_exact_at_the_end(field: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, values = field
    packed = tmp_path / "field.baro"
    made = told("pack", path, "-o", packed)
    assert made["bytes"] == packed.stat().st_size < made["array_bytes"] == values.nbytes
    read_bytes = 0
    for error in ("1e-2", "1e-4", "1e-6"):
        out = tmp_path / f"{error}.npy"
        read = told("unpack", packed, "--error", f"nrmse={error}", "-o", out)
        seen = nrmse(values, np.load(out))
        # The header says it to 1/512, rounded up.
        assert seen <= read["error"]["nrmse"] <= float(error) and read["error"]["nrmse"] <= seen * 1.002
        assert read_bytes < read["bytes"] < packed.stat().st_size
        read_bytes = read["bytes"]
    exact = told("unpack", packed, "-o", tmp_path / "exact.npy")
    assert exact["bytes"] == packed.stat().st_size and exact["error"]["linf"] == 0
    assert np.load(tmp_path / "exact.npy").tobytes() == values.tobytes()


def test_a_part_and_a_coarser_resolution(field: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, values = field
    packed, part, coarse = (tmp_path / name for name in ("field.baro", "part.npy", "coarse.npy"))
    assert baro("pack", path, "-o", packed).returncode == 0
    read = told("unpack", packed, "--region", "20:60,500:600", "-o", part)
    assert np.load(part).tobytes() == values[20:60, 500:600].tobytes()
    assert read["bytes"] < packed.stat().st_size / 2
    read = told("unpack", packed, "--level", 2, "-o", coarse)
    small = np.load(coarse)
    assert list(small.shape) == read["dims"] == [176, 156]
    assert read["bytes"] < packed.stat().st_size / 4
    assert abs(small[100, 20] - values[398, 80]) < 0.1


def test_what_is_in_a_file(field: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, values = field
    packed = tmp_path / "field.baro"
    assert baro("pack", path, "-o", packed, "--basis", "cubic").returncode == 0
    seen = told("inspect", packed)
    assert (seen["dims"], seen["element"], seen["basis"], seen["missing"]) == ([700, 620], "float64", "cubic", 600)
    assert seen["buckets"][-1]["bytes_so_far"] == seen["bytes"] == packed.stat().st_size
    assert seen["buckets"][-1]["error"]["nrmse"] == 0
    shown = baro("inspect", packed).stdout
    assert "exact at the end" in shown and "###" in shown


def test_bad_input_is_named_and_nothing_is_lost(field: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, _ = field
    packed, out = tmp_path / "field.baro", tmp_path / "out.npy"
    assert baro("pack", path, "-o", packed).returncode == 0
    whole = packed.read_bytes()

    def refused(expect: str, *words: object) -> None:
        done = baro(*words)
        assert done.returncode != 0 and expect in done.stderr, done.stderr
        assert "panicked" not in done.stderr

    refused("is there already", "pack", path, "-o", packed)
    refused("no file of numpy", "pack", packed, "-o", out)
    refused("does not begin with BAROPROG", "unpack", path, "-o", out)
    refused("write nrmse=1e-4", "unpack", packed, "--error", "mse=1", "-o", out)
    refused("is not within", "unpack", packed, "--region", "0:701,0:5", "-o", out)
    refused("write a range for each axis", "unpack", packed, "--region", "all", "-o", out)
    np.save(tmp_path / "whole.npy", np.arange(5))
    refused("array.astype('f8')", "pack", tmp_path / "whole.npy", "-o", out)
    assert baro("pack", path, "-o", tmp_path / "lossy.baro", "--lossy", "--finest", "1e-3").returncode == 0
    refused("no reading is within nrmse=1e-9: the best one has", "unpack", tmp_path / "lossy.baro", "--error", "nrmse=1e-9", "-o", out)
    # A cut file, a changed byte, and a later version: what is whole is still of use.
    packed.write_bytes(whole[: len(whole) // 2])
    refused("is cut short", "unpack", packed, "-o", out)
    assert baro("unpack", packed, "--error", "nrmse=1e-2", "-o", out).returncode == 0
    out.unlink()
    packed.write_bytes(whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])
    refused("its checksum does not match", "unpack", packed, "-o", out)
    assert baro("unpack", packed, "--error", "nrmse=1e-4", "-o", out).returncode == 0
    packed.write_bytes(whole[:8] + b"\x07\x00" + whole[10:])
    refused("version 7 of the format", "unpack", packed, "-o", out)


def test_time_steps_are_appended_and_one_that_was_not_finished_is_written_over(tmp_path: Path) -> None:
    packed, out = tmp_path / "run.baro", tmp_path / "out.npy"
    steps = [np.sin(np.arange(3_000.0) / (20 + step)) for step in range(3)]

    def append(step: int, name: str = "wave") -> subprocess.CompletedProcess[str]:
        np.save(tmp_path / "step.npy", steps[step])
        return baro("pack", tmp_path / "step.npy", "-o", packed, "--append", "--name", name, "--step", step)

    sizes = [0]
    for step in range(3):
        assert append(step).returncode == 0
        sizes.append(packed.stat().st_size)
    listing = told("inspect", packed)
    assert [(array["name"], array["step"]) for array in listing["arrays"]] == [("wave", step) for step in range(3)]
    assert listing["incomplete_bytes"] == 0 and sum(array["bytes"] for array in listing["arrays"]) == sizes[3]
    assert told("inspect", packed, "--step", "1")["buckets"][-1]["error"]["nrmse"] == 0
    for step in range(3):
        report = told("unpack", packed, "--step", step, "-o", out, "--force")
        assert np.load(out).tobytes() == steps[step].tobytes() and report["file_bytes"] == sizes[step + 1] - sizes[step]
    # Which one is meant has to be said, and each is there once.
    for words in ([], ["--name", "wave"], ["--step", "7"], ["--name", "other"]):
        refused = baro("unpack", packed, *words, "-o", out, "--force")
        assert refused.returncode == 2 and "--name, --step" in refused.stderr, refused.stderr
    refused = append(1)
    assert refused.returncode == 2 and "has an array of this name and step already" in refused.stderr, refused.stderr
    # An append that was killed: the header is cut, or was not written yet, or buckets are missing.
    whole = packed.read_bytes()
    for rest in (whole[sizes[2] : sizes[2] + 9], bytes(5_000), whole[sizes[2] : -700]):
        packed.write_bytes(whole[: sizes[2]] + rest)
        assert told("inspect", packed)["incomplete_bytes"] == len(rest)
        assert baro("unpack", packed, "--step", "1", "-o", out, "--force").returncode == 0
        assert append(2).returncode == 0
        assert packed.read_bytes() == whole


def test_values_on_a_mesh_come_back_in_the_order_of_its_points(tmp_path: Path) -> None:
    packed, out = tmp_path / "mesh.baro", tmp_path / "out.npy"
    random = np.random.default_rng(5)
    points = {axes: random.random((900, axes)) for axes in (2, 3)}
    for axes, places in points.items():
        np.save(tmp_path / f"{axes}.npy", places)
    np.save(tmp_path / "single.npy", points[2].astype("f4"))
    values = [np.sin(5 * points[2][:, 0]) * points[2][:, 1] + step for step in range(2)]

    def pack(array: np.ndarray, points: str, *words: object) -> subprocess.CompletedProcess[str]:
        np.save(tmp_path / "in.npy", array)
        return baro("pack", tmp_path / "in.npy", "--points", tmp_path / points, "-o", packed, *words)

    for step, array in enumerate(values):
        assert pack(array, "2.npy", "--append", "--name", "p", "--step", step).returncode == 0
    listed = told("inspect", packed)["arrays"]
    assert [(array["name"], array["on_mesh"]) for array in listed] == [("mesh/x", False), ("mesh/y", False), ("p", True), ("p", True)]
    assert "900 on the mesh" in baro("inspect", packed).stdout
    assert " on a mesh, " in baro("inspect", packed, "--step", "0").stdout
    found = progressive_reader.arrays(packed.read_bytes())
    order = progressive_reader.mesh_order(packed.read_bytes())
    for step, array in enumerate(values):
        told("unpack", packed, "--step", step, "-o", out, "--force")
        assert np.load(out).tobytes() == array.tobytes()
        # The reader that was written after the format alone finds the same order.
        assert np.array_equal(found[2 + step].read(len(found[2 + step].buckets)), array[order])
    report = told("unpack", packed, "--step", 1, "--error", "nrmse=1e-3", "-o", out, "--force")
    assert nrmse(values[1], np.load(out)) <= 1e-3 and report["bytes"] < packed.stat().st_size
    told("unpack", packed, "--name", "mesh/x", "-o", out, "--force")
    assert np.load(out).tobytes() == np.ascontiguousarray(points[2][:, 0]).tobytes()
    # Other points, and what is not to be had of a mesh.
    before = packed.read_bytes()
    for words, expect in [
        (("--region", "0:5"), "read as a whole"),
        (("--level", "1"), "read as a whole"),
    ]:
        refused = baro("unpack", packed, "--step", "0", "-o", out, "--force", *words)
        assert refused.returncode == 2 and expect in refused.stderr, refused.stderr
    for array, name, words, expect in [
        (values[0], "3.npy", ("--append",), "a file has one mesh"),
        (values[0], "single.npy", ("--append",), "a file has one mesh"),
        (values[0][1:], "2.npy", ("--append",), "900 points for 899 values"),
        (values[0].reshape(30, 30), "2.npy", ("--append",), "one axis of values"),
        (values[0], "in.npy", ("--append",), "one axis of values"),
        (values[0], "2.npy", ("--append", "--name", "mesh/x"), "of coordinates of the mesh"),
        (values[0], "2.npy", ("--append", "--name", "p", "--step", 0), "this name and step already"),
    ]:
        refused = pack(array, name, *words)
        assert refused.returncode == 2 and expect in refused.stderr, refused.stderr
    assert packed.read_bytes() == before
    # A new file, with points in space.
    assert pack(values[0], "3.npy", "--force").returncode == 0
    told("unpack", packed, "-o", out, "--force")
    assert np.load(out).tobytes() == values[0].tobytes()
    order = progressive_reader.mesh_order(packed.read_bytes())
    array = progressive_reader.arrays(packed.read_bytes())[3]
    assert np.array_equal(array.read(len(array.buckets)), values[0][order])


def test_an_append_that_finds_no_room_leaves_the_arrays_before(field: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not permitted here: {made.stderr.strip()}")
    try:
        np.save(tmp_path / "little.npy", np.arange(500.0))
        assert baro("pack", tmp_path / "little.npy", "-o", small / "run.baro", "--append", "--step", "0").returncode == 0
        before = (small / "run.baro").read_bytes()
        for words in ([], ["--finest", "1e-2"]):
            done = baro("pack", field[0], "-o", small / "run.baro", "--append", "--step", "1", *words)
            assert done.returncode != 0 and "No space left" in done.stderr, done.stderr
            assert (small / "run.baro").read_bytes() == before and len(list(small.iterdir())) == 1
    finally:
        subprocess.run(["umount", small], check=True)


# With few approximations, the exact bucket alone needs more room than a spool has in memory.
@pytest.mark.parametrize("words", [[], ["--finest", "1e-2"]])
def test_a_disk_that_fills_leaves_the_file_before(words: list[str], field: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, _ = field
    small = tmp_path / "small"
    small.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not permitted here: {made.stderr.strip()}")
    try:
        packed = small / "field.baro"
        packed.write_bytes(b"before")
        done = baro("pack", path, "-o", packed, "--force", *words)
        assert done.returncode != 0 and "No space left" in done.stderr, done.stderr
        assert packed.read_bytes() == b"before" and list(small.iterdir()) == [packed]
    finally:
        subprocess.run(["umount", small], check=True)


def test_an_array_larger_than_memory_is_packed_and_unpacked(tmp_path: Path) -> None:
    path, packed, out, part = (tmp_path / name for name in ("field.npy", "field.baro", "out.npy", "part.npy"))
    values = np.lib.format.open_memmap(path, "w+", "f8", (2304, 4096))
    y = np.linspace(0, 9, values.shape[1])
    for row, x in enumerate(np.linspace(0, 20, len(values))):
        values[row] = np.sin(x * np.cos(y)) + (y > x / 3)
    values.flush()
    memory = 60 << 20
    assert values.nbytes >= 1.2 * memory

    def limited(*words: object) -> subprocess.CompletedProcess[str]:
        limit = (resource.RLIMIT_DATA, (memory, memory))
        return baro(*words, "--threads", "2", preexec_fn=lambda: resource.setrlimit(*limit))

    # Few approximations, since they take the time; most bytes are those of the exact bucket.
    done = limited("pack", path, "-o", packed, "--finest", "1e-2")
    assert done.returncode == 0, done.stderr
    done = limited("unpack", packed, "-o", out)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes()[-values.nbytes :] == values.tobytes()
    coarse = told("inspect", packed)["buckets"][-2]["error"]
    done = limited("unpack", packed, "-o", out, "--force", "--error", f"linf={coarse['linf']}", "--json")
    assert done.returncode == 0, done.stderr
    read = np.load(out, mmap_mode="r")
    assert 0 < nrmse(values, read) <= json.loads(done.stdout)["error"]["nrmse"] < 2e-2
    # This part is read at once.
    told("unpack", packed, "--region", "1000:1700,0:4096", "--error", f"linf={coarse['linf']}", "-o", part)
    assert np.load(part).tobytes() == read[1000:1700].tobytes()
    # The checksums are compared before there is an output.
    whole = packed.read_bytes()
    packed.write_bytes(whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])
    out.unlink()
    done = limited("unpack", packed, "-o", out)
    assert done.returncode != 0 and "its checksum does not match" in done.stderr, done.stderr
    assert sorted(tmp_path.iterdir()) == [packed, path, part]


@pytest.mark.parametrize("basis", ["linear", "cubic", "wavelet"])
@pytest.mark.parametrize(("dims", "kind"), [((90,), "f8"), ((37, 21), "f4"), ((11, 1, 9), "f8"), ((9, 6, 7), "f8"), ((5, 3, 4, 9), "f4"), ((1,), "f8")])
def test_a_reader_written_after_the_format_alone_reads_the_same(basis: str, dims: tuple[int, ...], kind: str, tmp_path: Path) -> None:
    random = np.random.default_rng(len(dims))
    values = np.cos(np.arange(np.prod(dims)).reshape(dims) / 3) + random.normal(0, 1e-3, dims)
    whole = np.round(values * 50)
    holes = values.copy()
    holes.flat[len(holes.flat) // 2], holes.flat[0] = np.nan, np.inf
    packed, out = tmp_path / "steps.baro", tmp_path / "out.npy"
    for step, array in enumerate([values, whole, holes]):
        np.save(tmp_path / "in.npy", array.astype(kind))
        words = ["--append", "--name", "é", "--step", step, "--fill", "7", "--basis", basis]
        assert baro("pack", tmp_path / "in.npy", "-o", packed, *words).returncode == 0
    found = progressive_reader.arrays(packed.read_bytes())
    assert [(array.name, array.step, array.dims) for array in found] == [("é", step, list(dims)) for step in range(3)]
    for array in found:
        told_buckets = told("inspect", packed, "--step", array.step)["buckets"]
        for count in sorted({1, len(told_buckets) // 2 or 1, len(told_buckets)}):
            error = told_buckets[count - 1]["error"]
            assert (array.buckets[count - 1][3], array.buckets[count - 1][4]) == (error["rmse"], error["linf"])
            report = told("unpack", packed, "--step", array.step, "--error", f"linf={error['linf']}", "-o", out, "--force")
            assert np.load(out).tobytes() == array.read(report["buckets"]).tobytes()


def test_fields_of_solvers_are_packed_within_their_errors(tmp_path: Path) -> None:
    """The example's solvers, on small grids."""
    spec = importlib.util.spec_from_file_location("fields", ROOT / "examples" / "fields" / "fields.py")
    assert spec is not None and spec.loader is not None
    fields = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fields)
    made = {
        "vorticity": fields.vorticity(48, 20),
        "blobs": fields.blobs(48, 20),
        "shock": fields.shock(48, 0.05),
        "taylor-green": fields.taylor_green(16, 10),
    }
    for name, values in made.items():
        path, out = tmp_path / f"{name}.npy", tmp_path / f"{name}.out.npy"
        np.save(path, values)
        assert np.isfinite(values).all() and values.std() > 0
        assert baro("pack", path, "-o", path.with_suffix(".baro")).returncode == 0
        told("unpack", path.with_suffix(".baro"), "--error", "psnr=60", "-o", out)
        assert nrmse(values, np.load(out)) <= 1e-3
