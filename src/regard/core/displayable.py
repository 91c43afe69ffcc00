"""Results as tables: data frames and files; and those that show themselves in a terminal and a notebook."""

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from csv import DictWriter
from functools import partial
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from regard.core.arguments import path_of
from regard.core.errors import InputError
from regard.core.extras import optional, pyarrow
from regard.core.files import write_whole

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

# Columns that every terminal has.
_WIDTH: Final = 80
# A fixed-width font and lines close together: boxes and bars then touch.
_IN_HTML: Final = '<pre style="line-height: 1.25; font-family: Menlo, Consolas, monospace">{code}</pre>'


class Tabular(ABC):
    """A result that is a table: `to_pandas`, `to_arrow` and `write` give its rows, `to_rows`.

    Where cells lie along axes, such as layers and heads, `axes` names their columns, and `to_xarray` gives
    the others as arrays over them.
    """

    @property
    def axes(self) -> tuple[str, ...]:
        """The columns that say which cell a row is; () of a table without axes."""
        return ()

    @abstractmethod
    def to_rows(self) -> list[dict[str, Any]]:
        """The rows of its table, each by column name."""

    def to_pandas(self) -> Any:
        """The rows as a pandas data frame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        [pandas] = optional("data frames need", "pandas", "pandas")
        return pandas.DataFrame(self.to_rows())

    def write(self, path: str | PathLike[str]) -> None:
        """Write the rows to a .csv, .tsv, .json, .jsonl or .parquet file, whole or not at all.

        TSV is for spreadsheets: it begins with a byte-order mark, and a text that would be taken for a
        formula, as it begins with = + - or @, has an apostrophe before it. The others are exact.

        Raises:
            InputError: another ending.
            MissingExtraError: pyarrow is not installed, for Parquet.
            OutputError: the file cannot be written.
        """
        # The ending decides the format; an unknown one is refused before anything is written.
        check_table_file("output", path_of("path", path))
        ending = Path(path).suffix.lower()
        if ending == ".parquet":
            table, (_, parquet) = self._stored(), pyarrow()
            write_whole(path, lambda file: parquet.write_table(table, file))
        elif ending in (".json", ".jsonl"):
            # NaN is no JSON; what JSON has no type for is written as text.
            rows, dump = self.to_rows(), partial(json.dumps, ensure_ascii=False, allow_nan=False, default=str)
            # One value for .json, one line for each row for .jsonl.
            lines = [dump(rows, indent=1)] if ending == ".json" else map(dump, rows)
            write_whole(path, "".join(f"{line}\n" for line in lines).encode())
        else:
            write_whole(path, _as_csv(self._cells(), tabs=ending == ".tsv"))

    def to_file(self, path: str | PathLike[str]) -> None:
        """As `write`, its former name."""
        warnings.warn("to_file is write now", DeprecationWarning, stacklevel=2)
        self.write(path)

    def _stored(self) -> Any:
        """The Arrow table that a Parquet file has."""
        return self.to_arrow()

    def _cells(self) -> list[dict[str, Any]]:
        """The rows as CSV has them."""
        return [
            # CSV has no lists: they are written as JSON in one cell.
            {name: json.dumps(each) if isinstance(each, list | dict) else each for name, each in row.items()}
            for row in self.to_rows()
        ]

    def to_arrow(self) -> Any:
        """The rows as an Arrow table.

        Raises:
            InputError: a column has values of several kinds, as metadata may.
            MissingExtraError: pyarrow is not installed.
        """
        pa, _ = pyarrow()
        try:
            return pa.Table.from_pylist(self.to_rows())
        # Such as numbers and texts in one column, which JSON and CSV can hold.
        except pa.ArrowInvalid as error:
            message = f"rows must have values of one kind in a column ({error}); write .jsonl or .csv."
            raise InputError(message) from error

    def to_xarray(self) -> Any:
        """The rows as an xarray dataset over `axes`.

        Raises:
            InputError: the table has no axes.
            MissingExtraError: pandas or xarray is not installed.
        """
        if not self.axes:
            raise InputError(f"{type(self).__name__} has no axes; take to_pandas().")
        optional("arrays with named axes need", "xarray", "xarray")
        frame, axes = self.to_pandas(), list(self.axes)
        # In the order of the rows: pandas sorts, and would put the layer "input" behind the last.
        return frame.set_index(axes).to_xarray().reindex({axis: frame[axis].unique() for axis in axes})


class Displayable(Tabular):
    """A result that shows itself.

    `print(result)` gives text in 80 columns, and a notebook shows the same with colours. A class says what is
    drawn (`_parts`).

    Example:
        >>> import regard
        >>> found = regard.load().heads("The cat sat on the mat.", layer=0)
        >>> print(found)  # doctest: +ELLIPSIS
        sentence-transformers/all-MiniLM-L6-v2: 1 text, 9 tokens
        ...
        >>> found.to_pandas().columns.tolist()[:4]
        ['kind', 'layer', 'head', 'pattern']
    """

    @abstractmethod
    def _parts(self) -> "Iterator[RenderableType]":
        """What is drawn, from top to bottom, in 80 columns."""

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        yield from self._parts()

    def __str__(self) -> str:
        return _drawn(self).file.getvalue().rstrip()  # type: ignore[attr-defined, no-any-return]

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        html = _drawn(self, record=True).export_html(inline_styles=True, code_format=_IN_HTML)
        return html.rstrip()


TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
"""The endings of files that `Tabular.write` writes."""


def check_table_file(name: str, path: Path) -> None:
    """Refuse a file that `Tabular.write` could not write, before the work is done."""
    if path.suffix.lower() not in TABLES:
        raise InputError(f"{name} must end in .csv, .tsv, .json, .jsonl or .parquet; got {path.name!r}.")
    if path.suffix.lower() == ".parquet":
        pyarrow()


def _as_csv(rows: list[dict[str, Any]], *, tabs: bool) -> bytes:
    text = StringIO(newline="")
    # Rows may have different columns: all of them, in the order of their first appearance.
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = DictWriter(text, names, dialect="excel-tab" if tabs else "excel")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(each) for name, each in row.items()} if tabs else row)
    # A .tsv is for spreadsheets, which know UTF-8 by this mark.
    return text.getvalue().encode("utf-8-sig" if tabs else "utf-8")


def _cell(value: Any) -> Any:
    """A value that no spreadsheet takes for a formula, in one line."""
    if not isinstance(value, str):
        return value
    # Tabs and line ends would begin a cell or a row.
    line = " ".join(value.splitlines()).replace("\t", " ")
    return f"'{line}" if line.lstrip()[:1] in ("=", "+", "-", "@") and line.strip() else line


def _drawn(shown: Displayable, *, record: bool = False) -> "Console":
    # Here and not above: importing rich takes time, and few results are shown.
    from rich.console import Console

    console = Console(
        file=StringIO(),
        width=max(_WIDTH, getattr(shown, "width", 0)),
        record=record,
        # Into text, also when a notebook asks.
        force_jupyter=False,
        color_system="truecolor" if record else None,
    )
    console.print(shown)
    return console


def plain_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, gap: int = 2, bar: bool = False
) -> "RenderableType":
    """A table without lines; `left` of the first columns are aligned to the left, numbers stand to the right.

    `gap` is the blanks between two columns; a `bar` in the last column begins at the left.
    """
    # As in `_drawn`.
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    # Texts to the left, numbers to the right; a bar at the end begins at the left too.
    for place, name in enumerate(columns):
        table.add_column(
            name, justify="left" if place < left or (bar and place == len(columns) - 1) else "right"
        )
    for row in rows:
        table.add_row(*map(Text, row))  # not strings: rich would read "[SEP]" as its own markup
    return table
