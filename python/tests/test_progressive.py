"""Packed arrays: bounds, parts, damage, threads, disks that fill."""

from __future__ import annotations

import itertools
import math
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from barograph import progressive

Array = np.ndarray[Any, Any]


def field(shape: tuple[int, ...], dtype: str = "f8", seed: int = 1) -> Array:
    """A smooth field with a step and a little noise."""
    axes = [np.linspace(0, 3 + axis, n) for axis, n in enumerate(shape)]
    grid = np.meshgrid(*axes, indexing="ij")
    values = np.sin(sum(grid) * 1.3) + (grid[0] > 1.5)
    return (values + np.random.default_rng(seed).normal(0, 1e-3, shape)).astype(dtype)


def errors(values: Array, read: Array) -> dict[str, float]:
    """The error of a reading by every measure, of the values that are numbers."""
    there = np.isfinite(values)
    assert np.array_equal(there, np.isfinite(read))
    values, read = values[there].astype("f8"), read[there].astype("f8")
    rmse = math.sqrt(np.mean((values - read) ** 2))
    width, magnitude = values.max() - values.min(), np.abs(values).max()
    exact = rmse == 0
    return {
        "rmse": rmse,
        "linf": float(np.abs(values - read).max()),
        "nrmse": rmse / width,
        "psnr": math.inf if exact else 20 * math.log10(width / rmse),
        "psnr_max": math.inf if exact else 20 * math.log10(magnitude / rmse),
    }


SHAPES = [(1,), (7,), (5000,), (60, 91), (1, 33), (20, 1, 31), (70, 9, 66), (7, 9, 8, 10)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_every_bit_comes_back(shape: tuple[int, ...], dtype: str) -> None:
    values = field(shape, dtype)
    packed = progressive.open(progressive.pack(values) or b"")
    assert (packed.shape, packed.dtype, packed.ndim) == (shape, values.dtype, len(shape))
    assert (packed.size, packed.nbytes, len(packed)) == (values.size, values.nbytes, shape[0])
    assert packed.reached is None and packed.last is None
    read = packed.read()
    assert read.dtype == values.dtype and read.tobytes() == values.tobytes()
    assert packed.reached is not None and packed.reached.linf == 0 and packed.is_exact


@pytest.mark.parametrize("basis", ["linear", "cubic", "wavelet"])
def test_each_bound_holds_at_each_bucket(basis: progressive.Basis) -> None:
    values = field((61, 50))
    values[5, 5:9] = np.nan
    packed = progressive.open(progressive.pack(values, basis=basis) or b"")
    assert packed.basis == basis and packed.missing == 4 and len(packed.buckets) > 10
    for at, bucket in enumerate(packed.buckets):
        for measure in ("nrmse", "psnr", "psnr_max", "linf"):
            bound = getattr(bucket, measure)
            if math.isinf(bound) and at < len(packed.buckets) - 1:
                continue
            count = packed.buckets_for({measure: bound})
            assert count <= at + 1
            seen = errors(values, packed.read({measure: bound}))
            assert packed.reached is not None and packed.reached.buckets == count
            assert packed.reached.error == packed.buckets[count - 1]
            if measure in ("nrmse", "linf"):
                assert seen[measure] <= bound
            else:
                assert seen[measure] >= bound
            # What the header tells is a bound of what is found, and a near one.
            told = packed.reached.error
            assert 0.9 * told.rmse <= seen["rmse"] <= told.rmse * (1 + 1e-9)
            assert 0.5 * told.linf <= seen["linf"] <= told.linf


def test_ways_to_say_a_bound() -> None:
    values = field((40, 40))
    packed = progressive.open(progressive.pack(values) or b"", 1e-3)
    assert packed.error == "nrmse=1e-3"
    coarse = packed.read()
    for same in (0.001, "nrmse=1e-3", {"nrmse": 0.001}, np.float32(0.001), "psnr=60"):
        assert packed.buckets_for(same) == packed.buckets_for(1e-3)
        assert packed.read(same).tobytes() == coarse.tobytes()
    assert errors(values, coarse)["nrmse"] <= 1e-3
    assert packed.read(0).tobytes() == values.tobytes()
    assert np.asarray(packed).tobytes() == coarse.tobytes()
    assert np.array(packed, dtype="f4").dtype == np.float32
    for wrong in ("mse=1", {"psnr": 1, "linf": 1}, {}, -1e-3, math.nan, "nrmse=x", {"mse": 1}):
        with pytest.raises(ValueError):
            packed.read(wrong)
    with pytest.raises(ValueError, match="without a copy"):
        packed.__array__(copy=False)


def test_a_bound_that_is_out_of_reach_says_what_the_best_is() -> None:
    lossy = progressive.open(progressive.pack(field((30, 30)), lossy=True, finest=1e-3) or b"")
    assert not lossy.is_exact
    with pytest.raises(progressive.OutOfReachError, match="the best one has") as caught:
        lossy.read(1e-9)
    assert 0 < caught.value.best <= 1e-3
    assert lossy.reached is None
    lossy.read()
    with pytest.raises(progressive.OutOfReachError):
        lossy.buckets_for({"psnr": 300})


def test_what_is_missing_comes_back() -> None:
    values = field((50, 60), "f4")
    values[3, 4] = np.inf
    values[7] = -999.0
    packed = progressive.open(progressive.pack(values, fill=-999) or b"")
    assert packed.missing == 61 and packed.range[0] > -10
    read = packed.read(1e-2)
    assert (read[7] == -999).all() and read[3, 4] == np.inf
    masked = np.ma.masked_array(field((50, 60)), mask=np.zeros((50, 60), bool))
    masked[2, 3:6] = np.ma.masked
    read = progressive.open(progressive.pack(masked) or b"").read()
    assert np.isnan(read[2, 3:6]).all() and np.isfinite(read).sum() == 2997
    none = np.full((4, 4), np.nan)
    packed = progressive.open(progressive.pack(none) or b"")
    assert packed.missing == 16 and np.isnan(packed.read()).all()


def test_constant_values_and_whole_numbers() -> None:
    for values in (np.full((9, 9), 3.25), np.zeros(100), np.arange(400.0).reshape(20, 20)):
        packed = progressive.open(progressive.pack(values) or b"")
        assert packed.read(0).tobytes() == values.tobytes()
        assert np.isfinite(packed.read(1e-2)).all()


def test_memory_that_is_not_contiguous_or_foreign() -> None:
    values = field((40, 30))
    want = progressive.pack(values)
    fortran = np.asfortranarray(values)
    wide = np.zeros((80, 60))
    wide[::2, ::2] = values
    read_only = values.copy()
    read_only.setflags(write=False)
    odd = np.frombuffer(b"x" + values.tobytes(), "u1")[1:].view("f8").reshape(40, 30)
    for same in (fortran, wide[::2, ::2], values.astype(">f8"), read_only, odd, values.tolist()):
        assert progressive.pack(same) == want
    for wrong in (np.arange(5), np.zeros(3, "f2"), np.zeros(3, "c16"), ["a"], np.zeros(3, bool)):
        with pytest.raises(TypeError, match=r"array.astype\('f8'\)"):
            progressive.pack(wrong)
    for wrong in (np.float64(3), np.zeros((2, 0)), np.zeros((1, 1, 1, 1, 1))):
        with pytest.raises(ValueError, match="shape"):
            progressive.pack(wrong)
    with pytest.raises(ValueError, match="linear, cubic or wavelet"):
        progressive.pack(values, basis="haar")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finest"):
        progressive.pack(values, finest=2)
    with pytest.raises(ValueError, match="threads"):
        progressive.pack(values, threads=0)


def test_threads_change_no_bit() -> None:
    values = field((70, 65, 66))
    packed = [progressive.pack(values, threads=threads) for threads in (1, 2, 5)]
    assert packed[0] == packed[1] == packed[2]
    read = [progressive.open(packed[0] or b"", threads=threads).read(1e-4) for threads in (1, 2, 5)]
    assert read[0].tobytes() == read[1].tobytes() == read[2].tobytes()


def test_others_run_on_meanwhile() -> None:
    """Another thread counts while an array is packed and read."""
    values = field((400, 400))
    packed = progressive.open(progressive.pack(values) or b"")
    ended, counted = threading.Event(), [0]

    def count() -> None:
        while not ended.is_set():
            counted[0] += 1
            # Gives the interpreter's lock away.
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    held = sys.getswitchinterval()
    # No switch is forced, so the thread runs only where the lock is given away.
    sys.setswitchinterval(1e4)
    try:
        for work in (lambda: progressive.pack(values), packed.read):
            before = counted[0]
            work()
            assert counted[0] > before
    finally:
        sys.setswitchinterval(held)
        ended.set()
        thread.join()


@pytest.fixture
def packed_file(tmp_path: Path) -> tuple[Path, Array]:
    """An array of four blocks in a file."""
    values = field((700, 620))
    path = tmp_path / "field.baro"
    assert progressive.pack(values, path) is None
    return path, values


def test_only_the_bytes_that_are_needed_are_read(packed_file: tuple[Path, Array]) -> None:
    path, values = packed_file
    whole = path.stat().st_size
    packed = progressive.open(path)
    header = packed.bytes_read
    assert packed.path == str(path) and header < 10_000
    for error in (1e-1, 1e-2, 1e-3):
        before = packed.bytes_read
        packed.read(error)
        assert packed.reached is not None
        assert packed.reached.bytes == packed.bytes_read - before
        want = sum(bucket.bytes for bucket in packed.buckets[: packed.reached.buckets])
        assert packed.reached.bytes == want < whole / 2
    packed.read()
    assert packed.reached is not None and packed.reached.bytes + header == whole
    assert packed.read(region=[(10, 20), slice(-9, None)]).tobytes() == (
        np.ascontiguousarray(values[10:20, -9:]).tobytes()
    )
    assert packed.reached.bytes < whole / 2
    coarse = packed.read(level=2)
    assert coarse.shape == (176, 156) and packed.reached.bytes < whole / 4
    for wrong in ([(0, 5)], [(0, 5), (3, 3)], [(0, 701), (0, 5)], [slice(0, 5, 2), (0, 5)], slice(3)):
        with pytest.raises(ValueError):
            packed.read(region=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level 0"):
        packed.read(region=[(0, 5), (0, 5)], level=1)
    with pytest.raises(ValueError, match="level"):
        packed.read(level=-1)


def test_indices_are_those_of_numpy(packed_file: tuple[Path, Array]) -> None:
    path, values = packed_file
    packed = progressive.open(path)
    few = [-1, slice(None), slice(9, 2, -3), slice(1, 40, 7), slice(5, 5)]
    more = [3, slice(5, 9), slice(-4, None), np.int64(7), ..., (..., 4), (4, ...)]
    for key in [*few, *more, *itertools.product(few, few)]:
        read, want = packed[key], values[key]
        assert np.shape(read) == np.shape(want), key
        assert np.array_equal(read, want), key
    for wrong in (700, -701, (0, 0, 0), (..., ...), [1, 2], np.array([True]), None, "a", 1.5, True):
        with pytest.raises(IndexError):
            packed[wrong]
    volume = field((20, 30, 40), "f4")
    packed = progressive.open(progressive.pack(volume) or b"")
    for key in [(1, ..., 3), (slice(2, 5), slice(None, None, -2)), (..., slice(3, 9)), (1, 2, 3)]:
        assert np.array_equal(packed[key], volume[key]), key


def test_a_bound_of_the_largest_difference_holds_for_parts(
    packed_file: tuple[Path, Array],
) -> None:
    path, values = packed_file
    packed = progressive.open(path, "linf=0.01")
    for rows, columns in itertools.product((0, 300, 520), (10, 400)):
        part = packed[rows : rows + 60, columns : columns + 70]
        assert np.abs(part - values[rows : rows + 60, columns : columns + 70]).max() <= 0.01


def test_damage_is_named_and_nothing_else_happens(tmp_path: Path) -> None:
    values = field((30, 40))
    whole = progressive.pack(values) or b""
    header = progressive.open(whole).bytes_read
    for at in range(0, header, 3):
        changed = bytearray(whole)
        changed[at] ^= 0x20
        with pytest.raises(progressive.DamagedArrayError):
            progressive.open(bytes(changed)).read()
    for at in range(header, len(whole), 7):
        changed = bytearray(whole)
        changed[at] ^= 0x01
        packed = progressive.open(changed)
        with pytest.raises(progressive.DamagedArrayError, match="bucket .* is damaged"):
            packed.read()
        # A part is not checked: it is an error, or values of any kind.
        try:
            assert packed[3:20, 5:9].shape == (17, 4)
        except progressive.DamagedArrayError:
            pass
    for end in range(0, len(whole), 5):
        try:
            packed = progressive.open(whole[:end])
        except progressive.DamagedArrayError:
            assert end < header
            continue
        with pytest.raises(progressive.DamagedArrayError, match="cut short"):
            packed.read()
    # What is whole is still of use.
    cut = progressive.open(whole[: len(whole) // 2])
    assert errors(values, cut.read(1e-2))["nrmse"] <= 1e-2
    later = whole[:8] + b"\x07\x00" + whole[10:]
    with pytest.raises(progressive.DamagedArrayError, match="version 7"):
        progressive.open(later)
    rng = np.random.default_rng(7)
    for size in (0, 1, 50, 5000):
        with pytest.raises(progressive.DamagedArrayError):
            progressive.open(rng.bytes(size))
        with pytest.raises(progressive.DamagedArrayError):
            progressive.open(b"BAROPROG\x01\x00" + rng.bytes(size))


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        progressive.open(tmp_path / "none.baro")
    assert caught.value.filename == str(tmp_path / "none.baro")
    with pytest.raises(OSError, match="no regular file"):
        progressive.open(tmp_path)
    with pytest.raises(OSError, match="no regular file"):
        progressive.pack(np.zeros(4), tmp_path)
    with pytest.raises(OSError, match="no regular file"):
        progressive.pack(np.zeros(4), "/dev/null")
    with pytest.raises(FileNotFoundError):
        progressive.pack(np.zeros(4), tmp_path / "none" / "a.baro")
    for wrong in ({"priority": 0}, {"priority": 11}, {"interval": 0.0}, {"interval": math.nan}):
        with pytest.raises(ValueError):
            progressive.open(progressive.pack(np.zeros(4)) or b"", **wrong)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not permitted here: {made.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_leaves_the_file_before(small_disk: Path) -> None:
    path = small_disk / "field.baro"
    before = field((20, 20))
    progressive.pack(before, path)
    with pytest.raises(OSError, match="No space left") as caught:
        progressive.pack(field((300, 300)), path)
    assert caught.value.errno == 28 and caught.value.filename == str(path)
    assert list(small_disk.iterdir()) == [path]
    assert progressive.open(path).read().tobytes() == before.tobytes()


def test_variables_and_time_steps_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.baro"
    waves = {("wave", step): np.sin(np.arange(3_000.0) / (20 + step)) for step in range(3)}
    waves["wind", None] = np.arange(50.0).reshape(5, 10)
    for (name, step), values in waves.items():
        progressive.pack(values, path, append=True, name=name, time_step=step)
    for (name, step), values in waves.items():
        packed = progressive.open(path, name=name, time_step=step)
        assert (packed.name, packed.time_step) == (name, step)
        assert packed.read().tobytes() == values.tobytes()
        assert packed.bytes_read < path.stat().st_size / 2
        assert pickle.loads(pickle.dumps(packed)).read().tobytes() == values.tobytes()
    with pytest.raises(ValueError, match=r"3 of 4 arrays are meant \(wave step 0, wave step 1"):
        progressive.open(path, name="wave")
    with pytest.raises(ValueError, match="0 of 4 arrays"):
        progressive.open(path.read_bytes(), time_step=7)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="this name and step already"):
        progressive.pack(waves["wave", 1], path, append=True, name="wave", time_step=1)
    with pytest.raises(ValueError, match="255 bytes"):
        progressive.pack(waves["wave", 1], path, append=True, name="é" * 128)
    with pytest.raises(ValueError, match="append needs a file"):
        progressive.pack(waves["wave", 1], append=True)
    assert path.read_bytes() == before


def test_a_reader_goes_on_with_the_file_that_it_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.baro"
    first, second = field((50, 50), seed=1), field((60, 40), seed=2)
    progressive.pack(first, path)
    packed = progressive.open(path)
    progressive.pack(second, path)
    assert packed.read().tobytes() == first.tobytes()
    assert progressive.open(path).read().tobytes() == second.tobytes()
    # A file that others cut while it is open.
    cut = progressive.open(path)
    with path.open("r+b") as file:
        file.truncate(500)
    with pytest.raises(OSError, match="cannot be read"):
        cut.read()


def test_copies_and_threads_read_alike(packed_file: tuple[Path, Array]) -> None:
    path, values = packed_file
    packed = progressive.open(path, {"psnr": 70})
    want = packed.read().tobytes()
    again = pickle.loads(pickle.dumps(packed))
    assert again.error == packed.error and again.read().tobytes() == want
    in_memory = pickle.loads(pickle.dumps(progressive.open(path.read_bytes(), {"psnr": 70})))
    assert in_memory.path is None and in_memory.read().tobytes() == want
    seen: list[bool] = []
    threads = [
        threading.Thread(target=lambda: seen.append(packed.read().tobytes() == want))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 4
    assert "(700, 620) float64" in repr(packed) and str(path) in repr(packed)


def test_numpy_is_named_where_it_is_missing() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from barograph import progressive\n"
        "try:\n    progressive.pack([1.0])\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "pip install 'barograph[numpy]'" in done.stdout
