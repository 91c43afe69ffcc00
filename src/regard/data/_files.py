"""Which files are read, and how: what all that read texts agree on."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal, get_args

from regard.core.arguments import one_of, path_of, several
from regard.core.errors import InputError

FORMATS = ("text", "jsonl", "csv", "tsv", "parquet")
"""What an input can be."""

Unit = Literal["line", "paragraph", "file"]
"""What is a row of plain text."""


@dataclass(frozen=True, kw_only=True)
class Csv:
    r"""How CSV and TSV are written, where not as RFC 4180 says.

    Args:
        delimiter: the character between fields; also "\t", these two characters, for a tab. None is a comma,
            for TSV a tab.
        escape: the character that takes a quotation mark, a delimiter, a line end or itself into the field,
            such as the backslash of Spark and MySQL. Before any other it stands for itself. A field of it and
            an N is null. Doubled quotation marks are read too.
        header: whether the first record names the columns. Else they are called "1", "2", and so on.

    Raises:
        InputError: a delimiter or an escape that cannot be one.
    """

    delimiter: str | None = None
    escape: str | None = None
    header: bool = True

    def __post_init__(self) -> None:
        for name in ("delimiter", "escape"):
            value = getattr(self, name)
            # From a command line a tab comes as two characters.
            value = {r"\t": "\t", r"\\": "\\"}.get(value, value)
            object.__setattr__(self, name, value)
            if value is not None and (len(value) != 1 or value in '"\r\n'):
                raise InputError(f"{name} must be one character, no quote or line end; got {value!r}.")
        if self.escape == (self.delimiter or ","):
            raise InputError(f"escape must not be the delimiter; got {self.escape!r} for both.")


@dataclass(eq=False)
class Files:
    """Files in the order given, and how they are read.

    Plain text, JSON lines, CSV, TSV and Parquet; all but the last also compressed by gzip, zstd, bz2 or xz.
    In JSON lines and Parquet the name of a column may be a path to a field within a field (doc.body), unless
    a column has that very name.

    The arguments are those of `Rows`, without its columns.

    Raises:
        InputError: there is no file, stdin is named twice, or an argument is none of those above.
    """

    paths: Sequence[str | Path]
    _: KW_ONLY
    format: str | None = None
    csv: Csv = Csv()
    encoding: str = "utf-8"
    unit: Unit = "line"
    copies: Path | None = None

    def __post_init__(self) -> None:
        # One file for a list of one.
        if isinstance(self.paths, str | Path):
            self.paths = [self.paths]
        if not self.paths:
            raise InputError("no file is given; give at least one, or - for stdin.")
        self.paths = several("paths", self.paths, "files")
        for path in self.paths:
            path_of("paths", path)
        if [str(path) for path in self.paths].count("-") > 1:
            raise InputError("- can stand for one input only: stdin is read once.")
        one_of("unit", self.unit, get_args(Unit))
        if self.format is not None:
            one_of("format", self.format, FORMATS)
        if not _has_lines(self.encoding):
            raise InputError(
                "encoding must be one that Python knows and whose lines end in the byte 0x0A, such as "
                f"cp1252; got {self.encoding!r}."
            )


def _has_lines(encoding: str) -> bool:
    try:
        # UTF-16, for one, has other bytes: its lines would be cut in the middle.
        return b"a\n".decode(encoding) == "a\n"
    except (LookupError, UnicodeError):
        return False
