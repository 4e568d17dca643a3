"""The answer of a query, in the forms that Python programs use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas
    import pyarrow

    from barograph import _barograph

# Number of rows of a large answer that __repr__ shows.
_ROWS_SHOWN_MAX = 20
_CELL_WIDTH_MAX = 40


class Result:
    """Rows and columns. Iterates over rows as dicts; ``len()`` is the number of rows."""

    def __init__(self, rows: _barograph.Rows | _barograph.Table) -> None:
        self._rows = rows

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order; a repeated name gets a number (`value_2`)."""
        return self._rows.columns

    def rows(self) -> list[dict[str, Any]]:
        """Returns a dict per row, of int, float, bool, str, bytes and None."""
        return list(self)

    def arrow(self) -> pyarrow.Table:
        """Returns a pyarrow table. Raises ImportError if pyarrow is not installed."""
        try:
            import pyarrow.ipc
        except ImportError as missing:
            raise ImportError(
                "arrow() and pandas() need pyarrow: pip install 'barograph[arrow]'"
            ) from missing
        with pyarrow.ipc.open_stream(self._rows.arrow_ipc()) as reader:
            return reader.read_all()

    def arrow_ipc(self) -> bytes:
        """Returns an Arrow IPC stream, for any program that reads Arrow; it needs no library here.
        """
        return self._rows.arrow_ipc()

    def pandas(self) -> pandas.DataFrame:
        """Returns a pandas data frame. Raises ImportError if pandas or pyarrow is not installed."""
        return self.arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow PyCapsule interface: polars, DuckDB and others accept a Result as it is."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        columns = self._rows.columns
        return (dict(zip(columns, row, strict=True)) for row in self._rows.tuples())

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        columns = self._rows.columns
        shown = [[_cell(value) for value in row] for row in self._rows.tuples(_ROWS_SHOWN_MAX)]
        widths = [max(len(line[i]) for line in [columns, *shown]) for i in range(len(columns))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in [columns, ["-" * width for width in widths], *shown]
        ]
        more = len(self) - len(shown)
        lines.append(f"({len(self)} rows{f', {more} not shown' if more else ''})")
        return "\n".join(lines)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _CELL_WIDTH_MAX else text[: _CELL_WIDTH_MAX - 1] + "…"
