"""Runs every test of the project and counts them.

    scripts/test.py                 all suites
    scripts/test.py NAME...         the suites named

What the tests need is set up on the way: build trees, .venv/, node_modules/, a Chromium, Prometheus.
The last line is `N passed, N failed`; the exit status is 0 only if nothing failed and every suite ran
tests. With CI=true in the environment a missing browser or Prometheus is a failure, otherwise a warning.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit("the tests need Python 3.11 or later: see CONTRIBUTING.md")

import functools
import hashlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import agent
import browser
import cache
import counts
import environment
import lake
import packages
import prometheus
from steps import LOGS, ROOT, Runner, StepFailed, Suite, end_all

CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")
KOKKOS = Path("/usr/include/trilinos/Kokkos_Core.hpp")
# Programs that documents use or figures are compared with, with the Debian packages that contain them.
FOREIGN = {
    "pkg-config": "pkg-config",
    "psql": "postgresql-client",
    "sqlite3": "sqlite3",
    "iostat": "sysstat",
    "fio": "fio",
    # Redis under another name: the package of the server would start a service.
    "redis-check-rdb": "redis-tools",
}
BARO = ROOT / "target" / "debug" / "baro"
# A writer with known streams, for the tests of readers.
DEMO = ROOT / "target" / "debug" / "examples" / "demo_run_dir"
STAGE_SERVER = ROOT / "target" / "debug" / "examples" / "stage_server"
# A program that copies files to an object store, as the agent does.
COPY = ROOT / "target" / "debug" / "examples" / "copy_to_target"
DEMO_SEGMENT = ROOT / "target" / "debug" / "examples" / "demo_segment"
EXTENSION = ROOT / "crates" / "query" / "extension"
EXTENSION_TARGET = ROOT / "target" / "extension"
WORKSPACE = ["--workspace", "--exclude", "barograph-python", "--locked"]
# Tests of one Rust program that run at once. Most wait for programs, times and disks and not for a
# processor, so there are more than the machine may have processors.
RUST_TESTS_AT_ONCE = 4
# Files of end-to-end tests that run at once.
E2E_FILES_AT_ONCE = 2

# Free bytes that a run needs: where nothing is built yet, and in a checkout that has been tested before.
SPACE_MIN = 18 << 30
SPACE_BUILT_MIN = 6 << 30

runner = Runner()
if CI:
    # In CI our own crates are built only once: data for a second build is not worth writing.
    runner.environment["CARGO_INCREMENTAL"] = "0"


def once(prepare: Callable[[Suite], None]) -> Callable[[Suite], None]:
    """Does a preparation for the first suite that needs it; the other suites share its result."""
    done: list[bool] = []
    lock = threading.Lock()

    @functools.wraps(prepare)
    def wrapped(suite: Suite) -> None:
        with lock:
            if not done:
                done.append(False)
                prepare(suite)
                done[0] = True
            elif not done[0]:
                suite.fail("what it needs was not built")
                raise StepFailed(prepare.__name__)

    return wrapped


def tools() -> None:
    """Fails at once, before anything is built, if a tool is missing."""
    missing = [name for name in ("cargo", "rustc", "cc", "node", "npm") if not shutil.which(name)]
    if missing:
        sys.exit(f"the tests need {', '.join(missing)}: see CONTRIBUTING.md")


def space() -> None:
    """Fails at once where the disk has too little room: full disks fail tests in misleading ways."""
    need = SPACE_BUILT_MIN if BARO.exists() else SPACE_MIN
    for place in (ROOT, Path(tempfile.gettempdir())):
        free = shutil.disk_usage(place).free
        if free < need:
            sys.exit(f"the tests need {need >> 30} GiB of free space, and {place} has {free >> 30}")


@once
def build(suite: Suite) -> None:
    """Builds the tests and `baro` with one set of features, so that nothing is compiled twice."""
    targets = ["--lib", "--bins", "--tests", "--examples"]
    runner.step(suite, "build", ["cargo", "build", *WORKSPACE, *targets], needed=True)


@once
def install_environment(suite: Suite) -> None:
    environment.prepare(runner, suite)


@once
def build_extension(suite: Suite) -> None:
    place = ["--manifest-path", EXTENSION / "Cargo.toml", "--target-dir", EXTENSION_TARGET]
    runner.step(suite, "build extension", ["cargo", "build", "--locked", *place], needed=True)


@once
def build_package(suite: Suite) -> None:
    command = [environment.VENV / "bin" / "maturin", "develop", "--uv", "--locked"]
    if not environment.has_installer():
        command.remove("--uv")
    runner.step(
        suite, "build package", command, cwd=ROOT / "python", env=environment.variables(), needed=True
    )


def install_prometheus(suite: Suite) -> None:
    """Installs the programs that ours is compared with; without them tests skip, but with CI=true
    they fail."""
    absent = prometheus.missing_after_install()
    if absent:
        packages = ", ".join(sorted(set(prometheus.PROGRAMS.values())))
        suite.notes.append(f"NOT COMPARED: no {', '.join(absent)} (install {packages})")


def pytest(suite: Suite, title: str, *paths: Path, workers: int = 0) -> None:
    """Runs pytest on `paths` in .venv/; its environment names the built programs and libraries. With
    `workers`, so many files are tested at once."""
    report = LOGS / f"{suite.name}-{title.replace(' ', '-')}.xml"
    report.unlink(missing_ok=True)
    command = [environment.PYTHON, "-m", "pytest", "-q", "-rsfE", f"--junitxml={report}"]
    # Only what failed tests wrote is kept, for one run: it can be gigabytes.
    command += ["-o", "tmp_path_retention_policy=failed", "-o", "tmp_path_retention_count=1"]
    # A file stays with one worker, since its tests share what they start.
    side_by_side = ["-n", str(workers), "--dist", "loadfile"] if workers else []
    runner.step(
        suite,
        title,
        [*command, *side_by_side, *paths],
        again=lambda _failed: [*command, "--last-failed", *paths],
        env=environment.variables()
        | {
            "BARO_BIN": str(BARO),
            "BARO_COPY": str(COPY),
            "BARO_DEMO": str(DEMO),
            "BARO_DEMO_SEGMENT": str(DEMO_SEGMENT),
            "BARO_STAGE_SERVER": str(STAGE_SERVER),
            "BARO_SQLITE_SO": str(EXTENSION_TARGET / "debug" / "libbaro_sqlite.so"),
        }
        | lake.variables(),
        count=lambda _output: counts.junit(report),
    )


def checks(suite: Suite) -> None:
    """Checks that need little or no building: form, layers, house rules, licences."""
    form = ["--check", "--", "-l", "--color", "never"]
    runner.step(suite, "rustfmt", ["cargo", "fmt", "--all", *form])
    runner.step(suite, "rustfmt extension", ["cargo", "fmt", *form], cwd=EXTENSION)
    for check in ("layers", "tidy", "licenses"):
        runner.step(suite, check, ["cargo", "xtask", check])


def scripts(suite: Suite) -> None:
    """Tests these scripts: the code that counts tests must be tested too."""
    install_environment(suite)
    pytest(suite, "pytest", ROOT / "scripts" / "tests")


def web(suite: Suite) -> None:
    """Tests the page: types, the committed bundle, its pure modules."""
    install_modules(suite, ROOT / "web")
    runner.step(suite, "npm run check", ["npm", "run", "check"], cwd=ROOT / "web")
    runner.step(suite, "npm test", ["npm", "test"], cwd=ROOT / "web", count=counts.node)


def install_modules(suite: Suite, folder: Path) -> None:
    """Installs the packages of the lock file, unless they were installed last."""
    want = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    stamp = folder / "node_modules" / ".lock.sha256"
    if stamp.is_file() and stamp.read_text() == want:
        return
    command = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"]
    runner.step(suite, "npm ci", command, cwd=folder, needed=True)
    stamp.write_text(want)


def rust(suite: Suite) -> None:
    """Tests the workspace: tests and doctests, lints, generated documents."""
    if not shutil.which("gfortran"):
        # The tests of libbaro compile its Fortran module; without a compiler they are skipped.
        packages.install("rust", "gfortran")
    install_prometheus(suite)
    build(suite)
    tests = ["cargo", "test", *WORKSPACE, "--no-fail-fast"]
    runner.step(
        suite,
        "cargo test",
        tests,
        env={"RUST_TEST_THREADS": str(RUST_TESTS_AT_ONCE)},
        count=counts.cargo,
        again=lambda failed: [*tests, "--", "--exact", *failed],
    )
    runner.step(suite, "generate", ["cargo", "xtask", "generate", "--check"], env={"BARO_BIN": str(BARO)})
    strict = ["--locked", "--", "-D", "warnings"]
    runner.step(suite, "clippy", ["cargo", "clippy", "--workspace", "--all-targets", *strict])
    # Code that only the loadable extension compiles.
    loadable = ["--package", "barograph-query", "--lib", "--no-default-features", "--features", "loadable"]
    runner.step(suite, "clippy loadable", ["cargo", "clippy", *loadable, *strict])


def sql(suite: Suite) -> None:
    """Tests the loadable extension in the programs that load it."""
    install_environment(suite)
    build_extension(suite)
    build(suite)
    pytest(suite, "pytest", EXTENSION)


def python(suite: Suite) -> None:
    """Tests the Python package as a program that imports it."""
    install_environment(suite)
    build_package(suite)
    build(suite)
    pytest(suite, "pytest", ROOT / "python")


def e2e(suite: Suite) -> None:
    """Tests the real `baro` through its command line, SQL, HTTP and shared memory."""
    # The programs in examples/ and the commands in documents need these; without them their tests
    # skip, but with CI=true they fail.
    absent = [package for name, package in FOREIGN.items() if not shutil.which(name)]
    if not shutil.which("mpicc") or not KOKKOS.is_file():
        absent += ["mpich", "libmpich-dev", "libtrilinos-kokkos-dev"]
    if absent:
        packages.install("e2e", *absent)
    install_environment(suite)
    lake.prepare(runner, suite)
    build_package(suite)
    build_extension(suite)
    build(suite)
    install_prometheus(suite)
    pytest(suite, "pytest", ROOT / "e2e", workers=E2E_FILES_AT_ONCE)


def browsers(suite: Suite) -> None:
    """Tests the page in a real Chromium, with the real agent."""
    path = browser.find_or_install()
    if not path:
        reason = f"no Chromium found: install {browser.PACKAGE} or set BAROGRAPH_CHROME"
        if CI:
            suite.fail(reason)
        else:
            suite.notes.append(f"NOT RUN: {reason}")
        return
    folder = ROOT / "e2e" / "browser"
    build(suite)
    install_modules(suite, folder)
    env = {"BAROGRAPH_CHROME": path}
    tests = ["npm", "test"]
    runner.step(suite, "npm test", tests, cwd=folder, env=env, count=counts.node, again=lambda _failed: tests)
    over_any_agent = ["node", "--test", "any-agent.test.mjs"]
    try:
        with agent.running(BARO, LOGS / "browser-agent.log") as names:
            runner.step(
                suite,
                "real agent",
                over_any_agent,
                cwd=folder,
                env=env | names,
                count=counts.node,
                again=lambda _failed: over_any_agent,
            )
    except RuntimeError as error:
        suite.fail(str(error))


SUITES: dict[str, Callable[[Suite], None]] = {
    "checks": checks,
    "web": web,
    "scripts": scripts,
    "rust": rust,
    "sql": sql,
    "python": python,
    "e2e": e2e,
    "browser": browsers,
}
# Suites of one lane run one after the other, those that fail soonest first. The lanes run side by
# side: the first keeps the processors busy, while in the others programs mostly wait for each other.
LANES = [["checks", "rust"], ["web", "scripts", "sql", "python", "browser"], ["e2e"]]
# Suites without tests: they count only if they fail.
CHECKS = {"checks"}


def run(name: str) -> Suite:
    suite = Suite(name, tests=name not in CHECKS)
    try:
        SUITES[name](suite)
    except StepFailed:
        pass  # reported and counted where it happened
    suite.close()
    return suite


def run_lanes(lanes: list[list[str]]) -> list[Suite]:
    """Runs all suites; returns them in the order of SUITES. An interrupt ends the steps of every
    lane."""
    with ThreadPoolExecutor(len(lanes)) as threads:
        try:
            ran = [threads.submit(lambda lane: [run(name) for name in lane], lane) for lane in lanes]
            suites = [suite for lane in ran for suite in lane.result()]
        except BaseException:
            end_all()
            raise
    return sorted(suites, key=lambda suite: list(SUITES).index(suite.name))


def report(suites: list[Suite], seconds: float) -> int:
    """Prints the closing table and the closing line; returns the exit status."""
    for suite in suites:
        for line in suite.reasons:
            print(f"{suite.name:<9}| {line}")
    print(f"\n{'suite':<9}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    total = counts.Counts()
    for suite in suites:
        total += suite.counts
        tally = suite.counts
        notes = f"  {'; '.join(suite.notes)}" if suite.notes else ""
        print(
            f"{suite.name:<9}{tally.passed:>8}{tally.failed:>8}{tally.skipped:>9}{suite.seconds:>9.1f}{notes}"
        )
    print(f"\n{len(suites)} suites in {seconds / 60:.1f} minutes")
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if total.failed else 0


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"no suite {', '.join(unknown)}: there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    # A shell starts background programs with interrupts ignored, and children inherit that; but the
    # tests interrupt programs, as do people.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tools()
    space()
    start = time.monotonic()
    cache.attempt("restore")
    suites = run_lanes([[name for name in lane if not names or name in names] for lane in LANES])
    if all(suite.counts.failed == 0 for suite in suites):
        cache.attempt("save")
    return report(suites, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
