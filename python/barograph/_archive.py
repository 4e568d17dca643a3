"""The past for programs that compute over much of it: files and tables, in the caller's process.

This module stands alone because it is the one that uses other libraries (pyarrow, pandas, polars,
DuckDB); each is imported when it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from barograph import _barograph
from barograph._result import Result

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path
    from typing import Literal

    import duckdb
    import pandas
    import polars

    Tier = Literal["raw", "1s", "1min", "1h"]

_SAMPLE_COLUMNS = (
    "ts, name, labels, value, exact, text, unit, quality, error, node, life, number"
)
_BUCKET_COLUMNS = (
    "ts, name, labels, unit, count, min, max, sample_mean, last, "
    "min_exact, max_exact, last_exact, last_text, held_ns, time_mean, node"
)


class Archive:
    """Observed samples, as Parquet files and the remaining live samples: no call costs the agent
    anything.

    ``run_dir`` names the agent (without it the default one), ``path`` an archive alone. Times are
    ns since the epoch, RFC 3339 texts, or relative ones (``"-1h"``); ``start <= ts < stop``.
    Patterns may have labels: ``disk.*{device=vda}``.

    Tables of samples have the columns ``ts`` (int64, ns), ``name``, ``labels`` (a JSON object),
    ``value`` (float64; null for texts, bools are 0 and 1), ``exact`` (int64, only if an integer is
    beyond 2**53 and ``value`` is rounded), ``text``, ``unit``, ``quality``, ``error``, ``node``;
    those of buckets ``ts`` (start), ``name``, ``labels``, ``unit``, ``count``, ``min``, ``max``,
    ``sample_mean``, ``last``, ``min_exact``, ``max_exact``, ``last_exact`` (int64, like ``exact``),
    ``last_text``, ``held_ns``, ``time_mean``, ``node``: in ``time_mean`` a value is weighted by the
    time for which it held, in ``sample_mean`` each sample counts once.
    """

    def __init__(
        self,
        run_dir: str | PathLike[str] | None = None,
        path: str | PathLike[str] | None = None,
    ) -> None:
        self._archive = _barograph.Archive(run_dir, path)

    @property
    def path(self) -> Path | None:
        """The directory; None if the agent keeps no archive."""
        return self._archive.path

    @property
    def nodes(self) -> list[str]:
        """The nodes that have samples in the archive, sorted by name."""
        return self._archive.nodes

    def files(
        self,
        tier: Tier = "raw",
        start: int | str | None = None,
        stop: int | str | None = None,
        match: str = "*",
    ) -> list[str]:
        """Returns paths of the Parquet files of a tier that may hold matching samples, by node and
        time.

        They are Hive-partitioned by ``node``, ``date`` and ``hour``; other files in the directory
        do not count. A file may later be merged into another one or be deleted by retention: call
        again then.
        """
        return [str(file) for file in self._archive.files(tier, match, start, stop)]

    def tail(
        self,
        match: str = "*",
        start: int | str | None = None,
        stop: int | str | None = None,
        samples_max: int | None = None,
    ) -> Result:
        """Returns the samples that no Parquet file has yet: those of the log and of the rings.

        Raises QueryError (``kind`` is ``limit``) if there are more than ``samples_max``
        (10,000,000). Files and tail that are read one after the other may overlap, because samples
        become Parquet in between: :meth:`moment` and :meth:`duckdb` read both at once.
        """
        return self.moment("raw", match, start, stop, samples_max)[1]

    def moment(
        self,
        tier: Tier = "raw",
        match: str = "*",
        start: int | str | None = None,
        stop: int | str | None = None,
        samples_max: int | None = None,
    ) -> tuple[list[str], Result]:
        """Returns the files of a tier and the remaining samples, read at once: together each sample
        once.

        With a tier of buckets the rest is in buckets, too. A bucket of which both files and rest
        have parts has a row for each: add counts and ``held_ns``, weight ``time_mean`` by
        ``held_ns``. The tier ``1s`` has only streams with more than two samples a second.
        """
        files, rest = self._archive.moment(tier, match, start, stop, samples_max)
        return [str(file) for file in files], Result(rest)

    def table(
        self,
        match: str = "*",
        start: int | str | None = None,
        stop: int | str | None = None,
        step: int | str | None = None,
        samples_max: int | None = None,
    ) -> Result:
        """Returns every sample, or buckets of ``step`` (ns, or ``"10s"``), by name, labels, node
        and time.

        Buckets are whole and come from the coarsest tier that fits. Raises QueryError (``kind`` is
        ``limit``) if there are more than ``samples_max`` rows (10,000,000).
        """
        return Result(self._archive.table(match, start, stop, step, samples_max))

    def pandas(
        self,
        match: str = "*",
        start: int | str | None = None,
        stop: int | str | None = None,
        step: int | str | None = None,
    ) -> pandas.DataFrame:
        """Returns :meth:`table` as a pandas data frame; texts are categories. Needs pandas and
        pyarrow.
        """
        return self.table(match, start, stop, step).pandas()

    def polars(
        self,
        match: str = "*",
        start: int | str | None = None,
        stop: int | str | None = None,
        step: int | str | None = None,
    ) -> polars.DataFrame:
        """Returns :meth:`table` as a polars data frame; texts are categories. Needs polars."""
        library = _library("polars")
        return library.read_ipc_stream(self.table(match, start, stop, step).arrow_ipc())

    def duckdb(
        self,
        connection: duckdb.DuckDBPyConnection | None = None,
        tier: Tier = "raw",
        match: str = "*",
        start: int | str | None = None,
        stop: int | str | None = None,
        samples_max: int | None = None,
    ) -> duckdb.DuckDBPyConnection:
        """Returns a DuckDB connection with the view ``samples``: files and rest, each sample once.

        It has the columns of samples with ``life`` and ``number``, or those of buckets. ``match``,
        ``start`` and ``stop`` select files and bound the rest; rows of the files are not filtered.
        The view is the archive at the time of this call: call again for later samples, and when a
        file has gone. Needs duckdb and pyarrow.
        """
        library = _library("duckdb")
        files, rest = self.moment(tier, match, start, stop, samples_max)
        if connection is None:
            connection = library.connect()
        connection.register("barograph_rest", rest.arrow())
        columns = _SAMPLE_COLUMNS if tier == "raw" else _BUCKET_COLUMNS
        sql = f"SELECT {columns} FROM barograph_rest"
        if files:
            listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
            read = f"read_parquet([{listed}], hive_partitioning = true, hive_types_autocast = false)"
            sql = f"SELECT {columns} FROM {read} UNION ALL {sql}"
        connection.execute(f"CREATE OR REPLACE TEMP VIEW samples AS {sql}")
        return connection

    def __repr__(self) -> str:
        return f"<Archive in {self.path}>" if self.path else "<Archive: none is kept>"


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as missing:
        raise ImportError(f"this needs {name}: pip install 'barograph[{name}]'") from missing
