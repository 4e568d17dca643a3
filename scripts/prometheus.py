"""The real Prometheus, its promtool and node_exporter, which the tests ask the same as ours."""

import shutil

import packages

# Each program with the package of Debian that holds it.
PROGRAMS = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
}


def missing() -> list[str]:
    """The programs that are not there."""
    return [name for name in PROGRAMS if not shutil.which(name)]


def missing_after_install() -> list[str]:
    """As `missing`; as root on a system with apt, installs them first."""
    absent = missing()
    if absent:
        packages.install("prometheus", *sorted({PROGRAMS[name] for name in absent}))
    return missing()
