"""Phases of I/O: a program says when it reads and writes much, and may wait for its turn on a volume that
several programs use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from barograph._barograph import IoVolume
from barograph._publication import _application

if TYPE_CHECKING:
    from os import PathLike


def io_volume(
    volume: str | PathLike[str],
    *,
    application: str | None = None,
    run_dir: str | PathLike[str] | None = None,
) -> IoVolume:
    """Declares a volume on which this program does I/O: the absolute path of a file or directory on
    it, or its name in the agent's configuration (``[schedule.volumes]``).

    ::

        scratch = barograph.io_volume("/scratch/run7")
        with scratch.phase(checkpoint_bytes) as phase:
            write_checkpoint()
            phase.done(checkpoint_bytes)

    The block begins when the phase may do I/O. Nobody is held up for ever: it begins at once
    without an agent or where I/O is not scheduled, and in any case after ``wait`` seconds.
    ``phase.grant`` tells why it began. All processes of a job and application that begin have one
    grant.

    ``application`` is the name of this program, that of its script unless given; ``run_dir`` the
    run directory of the agent. Raises ValueError for a volume that cannot be a label.
    """
    name = _application() if application is None else application
    return IoVolume(os.fspath(volume), name, run_dir)
