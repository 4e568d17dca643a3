"""Keeps compiled dependencies outside the checkout, so that a fresh clone builds in minutes.

    scripts/cache.py restore    before a build: fills target directories that do not exist yet
    scripts/cache.py save       after a good build: keeps the compiled dependencies

Cargo recognises our own crates by the times of their files, which mean nothing in another clone:
only crates from the registry, which it recognises by their version, are kept, and the stand-ins for
such crates (etc/stand-ins), whose files get a time before that of the build.
A failure here costs time but never breaks a build: it is printed and ignored.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = ("Cargo.toml", "crates/query/extension/Cargo.toml")
# Build trees that are kept, under their names in the cache.
TREES = {"workspace": "target/debug", "extension": "target/extension/debug"}
# Other files that decide how a dependency is compiled.
INPUTS = ("Cargo.lock", "crates/query/extension/Cargo.lock", "rust-toolchain.toml", ".cargo/config.toml")
# Crates that stand in for dependencies; other dependencies are built with them.
STAND_INS = "etc/stand-ins"
# Seconds since the epoch: the time of their files where their builds are filled in (the year 2000).
STAND_INS_TIME = 946_684_800
KEYS_MAX = 2
# A tree larger than this contains too many old files to be the start of a new key.
BASE_BYTES_MAX = 6 << 30
HASHED = re.compile(r"(.+)-[0-9a-f]{16}(?:\.[^/]*)?")


def home() -> Path:
    """The directory of the keys: BAROGRAPH_CACHE or ~/.cache/barograph."""
    named = os.environ.get("BAROGRAPH_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "barograph"


def key() -> str:
    """The key for this set of dependencies, compiler and profile."""
    digest = hashlib.sha256()
    digest.update(subprocess.check_output(["rustc", "-vV"], cwd=ROOT))
    digest.update(os.environ.get("RUSTFLAGS", "").encode())
    profile = tomllib.loads((ROOT / "Cargo.toml").read_text()).get("profile", {})
    digest.update(json.dumps(profile, sort_keys=True).encode())
    for path in [*(ROOT / name for name in INPUTS), *stand_ins()]:
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()[:16]


def stand_ins() -> list[Path]:
    """The files of all stand-ins."""
    return sorted(path for path in (ROOT / STAND_INS).rglob("*") if path.is_file())


def own_names() -> set[str]:
    """The names, as packages and as crates, of everything that is built from this repository."""
    names: set[str] = set()
    for manifest in MANIFESTS:
        if not (ROOT / manifest).is_file():
            continue
        text = subprocess.check_output(
            ["cargo", "metadata", "--no-deps", "--format-version=1", "--manifest-path", manifest],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        for package in json.loads(text)["packages"]:
            names.add(package["name"])
            names.update(target["name"] for target in package["targets"])
    return names | {name.replace("-", "_") for name in names}


def is_foreign(name: str, own: set[str]) -> bool:
    """Whether a file or folder of a build tree belongs to a dependency from the registry."""
    match = HASHED.fullmatch(name)
    if not match:
        return False
    stem = match[1]
    return stem not in own and stem.removeprefix("lib") not in own


def foreign(tree: Path, own: set[str]) -> dict[str, list[str]]:
    """The files of a build tree that may be kept, by folder."""
    found = {}
    for part in (".fingerprint", "build", "deps"):
        folder = tree / part
        names = os.listdir(folder) if folder.is_dir() else []
        found[part] = sorted(name for name in names if is_foreign(name, own))
    return found


def copy(names: list[str], source: Path, target: Path) -> None:
    """Copies files with their times and modes, on which cargo relies."""
    target.mkdir(parents=True, exist_ok=True)
    batch = 500
    for start in range(0, len(names), batch):
        subprocess.run(
            ["cp", "-a", "--reflink=auto", "-t", target, "--", *names[start : start + batch]],
            cwd=source,
            check=True,
        )


def keys() -> list[Path]:
    """All keys, the most recently used first."""
    found = [path for path in home().glob("[0-9a-f]*") if path.is_dir()]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def restore() -> str:
    """Fills missing build trees from this key, or else from the newest other key.

    Files of another key that this one does not need remain unused: cargo identifies crates by their
    hash.
    """
    stored = home() / key()
    exact = stored.is_dir()
    if not exact:
        stored = next((path for path in keys() if size(path) <= BASE_BYTES_MAX), None)
        if stored is None:
            return "nothing kept yet"
    done = []
    for name, place in TREES.items():
        source, target = stored / name, ROOT / place
        if target.exists() or not source.is_dir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}-{os.getpid()}")
        try:
            subprocess.run(["cp", "-a", "--reflink=auto", source, fresh], check=True)
            fresh.rename(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        done.append(place)
    os.utime(stored)
    if done and exact:
        for path in stand_ins():
            os.utime(path, (STAND_INS_TIME, STAND_INS_TIME))
    if not done:
        return "the build trees are there already"
    return f"filled {', '.join(done)} from {'this' if exact else 'another'} key ({stored.name})"


def save() -> str:
    """Keeps the dependencies of the build trees, if this key lacks any of them."""
    stored, own = home() / key(), own_names()
    trees = {name: foreign(ROOT / place, own) for name, place in TREES.items()}
    if not any(set(parts[".fingerprint"]) - kept(stored / name) for name, parts in trees.items()):
        return "nothing new to keep"
    home().mkdir(parents=True, exist_ok=True)
    fresh = home() / f".fresh-{os.getpid()}"
    try:
        if stored.exists():
            # A run of one suite builds one tree only: the kept files of the others stay.
            subprocess.run(["cp", "-a", "--reflink=auto", stored, fresh], check=True)
        for name, parts in trees.items():
            for part, names in parts.items() if parts[".fingerprint"] else ():
                copy(names, ROOT / TREES[name] / part, fresh / name / part)
        if stored.exists():
            old = home() / f".old-{os.getpid()}"
            stored.rename(old)
            shutil.rmtree(old, ignore_errors=True)
        fresh.rename(stored)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    prune()
    return f"kept {size(stored) >> 20} MiB as {stored.name}"


def kept(tree: Path) -> set[str]:
    folder = tree / ".fingerprint"
    return set(os.listdir(folder)) if folder.is_dir() else set()


def prune() -> None:
    """Keeps the newest keys, and removes the remains of interrupted runs."""
    for path in keys()[KEYS_MAX:]:
        shutil.rmtree(path, ignore_errors=True)
    for path in home().glob(".*-*"):
        if not (Path("/proc") / path.name.rsplit("-", 1)[1]).exists():
            shutil.rmtree(path, ignore_errors=True)


def attempt(what: str) -> None:
    """Does `restore` or `save` and prints the result; never raises and never fails."""
    try:
        print(f"cache    {what}: {({'restore': restore, 'save': save})[what]()}", flush=True)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"cache    {what}: passed over: {error}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("restore", "save"):
        sys.exit("usage: cache.py restore|save")
    attempt(sys.argv[1])
