"""Texts whose words have tags, as plain text: a word and its tag a line."""

from collections.abc import Iterator, Sequence

from regard.core.errors import InputError
from regard.data import Row, Rows

CONLL = (".txt", ".conll", ".bio", ".iob", ".iob2")
"""How the names of such files end."""


class TaggedRows:
    """The texts of files in which each line holds a word first and its tag last, and blank lines part texts.

    Lines that begin with "#" and a blank are remarks, and "-DOCSTART-" is no word.

    Args:
        paths: the files.
        columns: what the words and the tags are called.
        encoding: of the files.

    Raises:
        InputError: a line without a tag; the message says where its text begins.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "some.conll")
        >>> _ = path.write_text("Paris NNP B-LOC\\nflooded VBD O\\n\\nRain NN O\\n")
        >>> [row.values for row in TaggedRows([str(path)], ("words", "tags"))][0]
        {'words': ['Paris', 'flooded'], 'tags': ['B-LOC', 'O']}

    Source: Tjong Kim Sang and De Meulder 2003, arXiv cs/0306050, section 2.2.
    """

    def __init__(self, paths: Sequence[str], columns: Sequence[str], *, encoding: str = "utf-8") -> None:
        self._rows, self._columns = Rows(paths, unit="paragraph", encoding=encoding), columns

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            lines = [line.split() for line in row.text().split("\n") if not line.startswith("# ")]
            lines = [line for line in lines if line[0] != "-DOCSTART-"]
            for line in lines:
                if len(line) < 2:
                    raise InputError(f"the text from {row.place} on: {line[0]!r} has no tag on its line.")
            if lines:
                values = ([line[0] for line in lines], [line[-1] for line in lines])
                yield Row(dict(zip(self._columns, values, strict=True)), row.place)
