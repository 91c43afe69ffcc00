"""Results as tables: data frames and files; and those that show themselves in a terminal and a notebook."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from csv import DictWriter
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from regard.core.errors import InputError
from regard.core.extras import optional, pyarrow
from regard.core.files import write_whole

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_WIDTH: Final = 80
_IN_HTML: Final = '<pre style="line-height: 1.25; font-family: Menlo, Consolas, monospace">{code}</pre>'


class Tabular(ABC):
    """A result that is a table: `to_pandas`, `to_arrow` and `to_file` give its rows, `to_rows`.

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

    def to_file(self, path: str | Path) -> None:
        """Write the rows to a .csv, .tsv, .jsonl or .parquet file, whole or not at all.

        TSV is for spreadsheets: it begins with a byte-order mark, and a text that would be taken for a
        formula, as it begins with = + - or @, has an apostrophe before it. The others are exact.

        Raises:
            InputError: another ending.
            MissingExtraError: pyarrow is not installed, for Parquet.
            OutputError: the file cannot be written.
        """
        path = Path(path)
        rows = self.to_rows()
        if path.suffix == ".parquet":
            table, (_, parquet) = self.to_arrow(), pyarrow()
            write_whole(path, lambda file: parquet.write_table(table, file))
        elif path.suffix == ".jsonl":
            lines = (json.dumps(row, ensure_ascii=False, allow_nan=False, default=str) for row in rows)
            write_whole(path, "".join(f"{line}\n" for line in lines).encode())
        elif path.suffix in (".csv", ".tsv"):
            text, tabs = StringIO(newline=""), path.suffix == ".tsv"
            names = list(dict.fromkeys(name for row in rows for name in row))
            writer = DictWriter(text, names, dialect="excel-tab" if tabs else "excel")
            writer.writeheader()
            for row in rows:
                nested = {
                    name: json.dumps(each) for name, each in row.items() if isinstance(each, list | dict)
                }
                cells = row | nested
                writer.writerow({name: _cell(each) for name, each in cells.items()} if tabs else cells)
            write_whole(path, text.getvalue().encode("utf-8-sig" if tabs else "utf-8"))
        else:
            raise InputError(f"output must end in .csv, .tsv, .jsonl or .parquet; got {path.name!r}.")

    def to_arrow(self) -> Any:
        """The rows as an Arrow table.

        Raises:
            InputError: a column has values of several kinds, as metadata may.
            MissingExtraError: pyarrow is not installed.
        """
        pa, _ = pyarrow()
        try:
            return pa.Table.from_pylist(self.to_rows())
        except pa.ArrowInvalid as error:
            told = f"rows must have values of one kind in a column ({error}); write .jsonl or .csv."
            raise InputError(told) from error

    def to_xarray(self) -> Any:
        """The rows as an xarray dataset over `axes`.

        Raises:
            InputError: the table has no axes.
            MissingExtraError: pandas or xarray is not installed.
        """
        if not self.axes:
            raise InputError(f"{type(self).__name__} has no axes; take to_pandas().")
        optional("arrays with named axes need", "xarray", "xarray")
        return self.to_pandas().set_index(list(self.axes)).to_xarray()


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


def _cell(value: Any) -> Any:
    """A value that no spreadsheet takes for a formula, in one line."""
    if not isinstance(value, str):
        return value
    line = " ".join(value.splitlines()).replace("\t", " ")
    return f"'{line}" if line.lstrip()[:1] in ("=", "+", "-", "@") and line.strip() else line


def _drawn(shown: Displayable, *, record: bool = False) -> "Console":
    from rich.console import Console

    console = Console(
        file=StringIO(),
        width=max(_WIDTH, getattr(shown, "width", 0)),
        record=record,
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
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        table.add_column(
            name, justify="left" if place < left or (bar and place == len(columns) - 1) else "right"
        )
    for row in rows:
        table.add_row(*map(Text, row))  # not strings: rich would read "[SEP]" as its own markup
    return table
