"""Files whose rows belong together by their number."""

from collections.abc import Iterator, Mapping
from itertools import count

from regard.core.errors import InputError
from regard.data._rows import Row, Rows


class ParallelRows:
    """Rows of several inputs side by side, such as texts and their translations.

    Args:
        sides: by name, inputs of one column. The name becomes the column of its texts.

    Raises:
        InputError: there is no side, or one of several columns; while they are read, one ends before another:
            then the message has the line and both counts.

    Example:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.en").write_text("a bank\\na river\\n")
        >>> _ = (folder / "a.de").write_text("eine Bank\\nein Fluss\\n")
        >>> rows = ParallelRows({"source": Rows([folder / "a.en"]), "target": Rows([folder / "a.de"])})
        >>> [row.values for row in rows][1]
        {'source': 'a river', 'target': 'ein Fluss'}
    """

    def __init__(self, sides: Mapping[str, Rows]) -> None:
        wide = next((name for name, rows in sides.items() if len(rows.columns) != 1), None)
        if not sides or wide is not None:
            raise InputError(f"sides must each have one column; got {wide if sides else 'no side'!r}.")
        self.columns = tuple(sides)
        self._sides = dict(sides)

    def __iter__(self) -> Iterator[Row]:
        running = [iter(rows) for rows in self._sides.values()]
        for number in count():
            rows = [next(each, None) for each in running]
            there = [row for row in rows if row is not None]
            if not there:
                return
            if len(there) < len(rows):
                raise self._unequal(number, rows, running)
            values = {
                column: next(iter(row.values.values()))
                for column, row in zip(self.columns, there, strict=True)
            }
            yield Row(values, " and ".join(row.place for row in there))

    def _unequal(self, number: int, rows: list[Row | None], running: list[Iterator[Row]]) -> InputError:
        counts = [
            number + (row is not None) + sum(1 for _ in rest) for row, rest in zip(rows, running, strict=True)
        ]
        first = next(row for row in rows if row is not None)
        told = " and ".join(
            f"{rows.name} has {found:,}" for rows, found in zip(self._sides.values(), counts, strict=True)
        )
        return InputError(
            f"{' and '.join(self.columns)} must have as many rows: {told}; {first.place} has no partner."
        )
