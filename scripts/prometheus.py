"""The real Prometheus, its promtool and node_exporter, with which tests compare ours."""

import shutil

import packages

# Each program, with the Debian package that contains it.
PROGRAMS = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
}


def missing() -> list[str]:
    """The programs that are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name)]


def missing_after_install() -> list[str]:
    """The same as `missing`, after installing them as root on a system with apt."""
    absent = missing()
    if absent:
        packages.install("prometheus", *sorted({PROGRAMS[name] for name in absent}))
    return missing()
