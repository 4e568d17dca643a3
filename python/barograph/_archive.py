"""The past for programs that compute over much of it: files and tables, in the caller's process.

It stands alone because it is where other libraries (pyarrow, pandas, polars, DuckDB) are met; each is
imported when it is asked for.
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
    """What was observed, as Parquet files and the live rest: no call costs the agent anything.

    ``run_dir`` names the agent (without it the default one), ``path`` an archive by itself. Times are
    ns since the epoch, RFC 3339 texts, or relative ones (``"-1h"``); ``start <= ts < stop``. Patterns
    may have labels: ``disk.*{device=vda}``.

    Tables of samples have the columns ``ts`` (int64, ns), ``name``, ``labels`` (a JSON object), ``value``
    (float64; null for texts, bools are 0 and 1), ``exact`` (int64, only where an integer is beyond 2**53
    and ``value`` is rounded), ``text``, ``unit``, ``quality``, ``error``, ``node``; those of buckets
    ``ts`` (start), ``name``, ``labels``, ``unit``, ``count``, ``min``, ``max``, ``sample_mean``, ``last``,
    ``min_exact``, ``max_exact``, ``last_exact`` (int64, as ``exact``), ``last_text``,
    ``held_ns``, ``time_mean``, ``node``: a value weighs as long as it held in ``time_mean``, and once in
    ``sample_mean``.
    """

    def __init__(
        self,
        run_dir: str | PathLike[str] | None = None,
        path: str | PathLike[str] | None = None,
    ) -> None:
        self._archive = _barograph.Archive(run_dir, path)

    @property
    def path(self) -> Path | None:
        """The directory; None when the agent keeps no archive."""
        return self._archive.path

    @property
    def nodes(self) -> list[str]:
        """The nodes that were observed, by name."""
        return self._archive.nodes

    def files(
        self,
        tier: Tier = "raw",
        start: int | str | None = None,
        stop: int | str | None = None,
        match: str = "*",
    ) -> list[str]:
        """Paths of the Parquet files of a tier that may hold what matches, by node and time.

        They are Hive-partitioned by ``node``, ``date`` and ``hour``; other files in the directory do
        not count. A file may be merged into another or reach the end of its time later on: ask again.
        """
        return [str(file) for file in self._archive.files(tier, match, start, stop)]

    def tail(
        self,
        match: str = "*",
        start: int | str | None = None,
        stop: int | str | None = None,
        samples_max: int | None = None,
    ) -> Result:
        """The samples that no Parquet file has yet: those of the log and of the rings.

        Raises QueryError (``kind`` is ``limit``) when there are more than ``samples_max`` (10,000,000).
        Files and tail that were asked for one after the other may overlap, since samples become
        Parquet in between: :meth:`moment` and :meth:`duckdb` take both at once.
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
        """The files of a tier and the rest, taken at once: together they hold each sample once.

        With a tier of buckets the rest is in buckets, too; a bucket of which files or rest have parts
        has a row for each: add counts and ``held_ns``, weigh ``time_mean`` by ``held_ns``. The tier ``1s`` has only streams with more than
        two samples a second.
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
        """Every sample, or buckets of ``step`` (ns, or ``"10s"``), by name, labels, node and time.

        Buckets are whole and come from the coarsest tier that fits. Raises QueryError (``kind`` is
        ``limit``) when there are more than ``samples_max`` rows (10,000,000).
        """
        return Result(self._archive.table(match, start, stop, step, samples_max))

    def pandas(
        self,
        match: str = "*",
        start: int | str | None = None,
        stop: int | str | None = None,
        step: int | str | None = None,
    ) -> pandas.DataFrame:
        """:meth:`table` as a pandas data frame; texts are categories. Needs pandas and pyarrow."""
        return self.table(match, start, stop, step).pandas()

    def polars(
        self,
        match: str = "*",
        start: int | str | None = None,
        stop: int | str | None = None,
        step: int | str | None = None,
    ) -> polars.DataFrame:
        """:meth:`table` as a polars data frame; texts are categories. Needs polars."""
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
        """A DuckDB connection with the view ``samples``: files and rest, each sample once.

        It has the columns of samples with ``life`` and ``number``, or those of buckets. ``match``,
        ``start`` and ``stop`` choose files and bound the rest; rows of the files are not filtered.
        The view is what the archive was at this call: call again for what came later, and when a
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
