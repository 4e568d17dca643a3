"""The cache keeps dependencies, never our own crates, and never breaks a build."""

import os

import cache
import pytest

OWN = {"barograph-model", "barograph_model", "main", "baro"}


@pytest.mark.parametrize(
    ("name", "expect"),
    [
        ("serde-0123456789abcdef", True),
        ("libserde-0123456789abcdef.rlib", True),
        ("liblibc-0123456789abcdef.rmeta", True),
        ("md-5-0123456789abcdef", True),
        ("barograph-model-0123456789abcdef", False),
        ("libbarograph_model-0123456789abcdef.rlib", False),
        ("barograph_model-0123456789abcdef.0abc.rcgu.dwo", False),
        ("main-0123456789abcdef", False),
        ("baro-0123456789abcdef.d", False),
        ("serde.d", False),
    ],
)
def test_what_is_kept(name, expect):
    assert cache.is_foreign(name, OWN) is expect


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """An empty checkout and an empty cache; returns a function that puts a crate in its build tree."""
    root = tmp_path / "checkout"
    monkeypatch.setattr(cache, "ROOT", root)
    monkeypatch.setattr(cache, "own_names", lambda: OWN)
    monkeypatch.setattr(cache, "key", lambda: "abc")
    monkeypatch.setenv("BAROGRAPH_CACHE", str(tmp_path / "cache"))

    def put(name: str, tree: str = "target/debug") -> None:
        for part in (".fingerprint", "build", "deps"):
            folder = root / tree / part
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}-0123456789abcdef").write_text(part)

    return put


def stored(tree: str) -> set[str]:
    return {path.name.rsplit("-", 1)[0] for path in (cache.home() / tree / "deps").iterdir()}


def test_round_trip_keeps_times_and_leaves_out_our_own(checkout):
    checkout("serde")
    checkout("barograph_model")
    source = cache.ROOT / "target/debug/deps/serde-0123456789abcdef"
    os.utime(source, ns=(1, 1_234_567_891))
    cache.save()
    cache.shutil.rmtree(cache.ROOT / "target")
    assert "filled target/debug from this key" in cache.restore()
    assert source.stat().st_mtime_ns == 1_234_567_891
    assert [path.name for path in source.parent.iterdir()] == [source.name]


def test_a_tree_that_is_there_is_left_alone(checkout):
    checkout("serde")
    cache.save()
    (cache.ROOT / "target/debug/deps/serde-0123456789abcdef").write_text("newer")
    assert cache.restore() == "the build trees are there already"
    assert (cache.ROOT / "target/debug/deps/serde-0123456789abcdef").read_text() == "newer"


def test_a_later_save_adds(checkout):
    checkout("serde")
    cache.save()
    assert cache.save() == "nothing new to keep"
    cache.shutil.rmtree(cache.ROOT / "target")
    checkout("libsqlite3-sys", tree="target/extension/debug")
    cache.save()
    assert stored("abc/workspace") == {"serde"}
    assert stored("abc/extension") == {"libsqlite3-sys"}


def test_another_key_is_a_base_and_old_keys_go(checkout, monkeypatch):
    checkout("serde")
    for number, name in enumerate(("a1", "a2", "a3")):
        monkeypatch.setattr(cache, "key", lambda name=name: name)
        cache.save()
        os.utime(cache.home() / name, (number, number))
    cache.prune()
    assert sorted(path.name for path in cache.keys()) == ["a2", "a3"]
    cache.shutil.rmtree(cache.ROOT / "target")
    monkeypatch.setattr(cache, "key", lambda: "a4")
    assert "another key (a3)" in cache.restore()


def test_failure_is_passed_over(checkout, monkeypatch, capsys):
    monkeypatch.setenv("BAROGRAPH_CACHE", "/proc/none")
    checkout("serde")
    cache.attempt("save")
    cache.attempt("restore")
    assert "passed over" in capsys.readouterr().out
    assert cache.ROOT.joinpath("target/debug/deps/serde-0123456789abcdef").exists()


def test_a_stand_in_is_older_than_its_build_only_where_that_was_filled_in(checkout, monkeypatch):
    checkout("serde")
    file = cache.ROOT / cache.STAND_INS / "shellexpand/src/lib.rs"
    file.parent.mkdir(parents=True)
    file.write_text("")
    fresh = file.stat().st_mtime
    cache.save()
    cache.restore()
    assert file.stat().st_mtime == fresh, "the build tree is that of this clone"
    cache.shutil.rmtree(cache.ROOT / "target")
    monkeypatch.setattr(cache, "key", lambda: "a1")
    cache.restore()
    assert file.stat().st_mtime == fresh, "another key may be of other stand-ins"
    cache.shutil.rmtree(cache.ROOT / "target")
    monkeypatch.setattr(cache, "key", lambda: "abc")
    cache.restore()
    assert file.stat().st_mtime == cache.STAND_INS_TIME
