"""Concordance lines: each use with what stands to its left and right."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from unicodedata import bidirectional

from regard.concordance._meaning import Calibration, Reason
from regard.concordance._uses import Place
from regard.concordance._values import SENTENCE_ENDS
from regard.core.displayable import Displayable
from regard.core.wording import excerpt, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDTH: Final = 80
# A line of 80 cells has 32 before the word.
_SHOWN: Final = 32
"""Cells of a terminal for what stands before the word."""


@dataclass(frozen=True, eq=False)
class Line:
    """A use of a word in its context.

    Attributes:
        place: where it stands.
        similarity: to what was asked for, a cosine; None where nobody asked for a meaning.
        probability: that the sense is the same; None where that is not calibrated.
        answer: "same", "unsure" or "other", likewise.
        reasons: the words that make it like the query, where they were asked for.
        label: of its sense, where it has one.
    """

    place: Place
    similarity: float | None = None
    probability: float | None = None
    answer: str | None = None
    reasons: tuple[Reason, ...] = ()
    label: str | None = None

    @property
    def left(self) -> str:
        """What stands before the word in its text."""
        return self.place.body[: self.place.start]

    @property
    def right(self) -> str:
        """What stands after it."""
        return self.place.body[self.place.stop :]

    @property
    def sentence(self) -> tuple[str, str, str]:
        """What stands before the word in its sentence, the word, and what stands after it there."""
        # From the last end of a sentence on the left to the first on the right.
        start = max((found.end() for found in SENTENCE_ENDS.finditer(self.left)), default=0)
        end = SENTENCE_ENDS.search(self.right)
        return self.left[start:], self.place.node, self.right[: end.end() if end else None].rstrip()


@dataclass(frozen=True, eq=False)
class Lines(Displayable):
    """Concordance lines, in order.

    Attributes:
        lines: each of them.
        total: how many uses there are, of which these are a part.
        about: how they were ordered, in words.
        per_million: how many uses there are in a million words; None of a sample, and of other words.
        width: of a line as it is drawn, in cells.
        whole: whether whole sentences are drawn in the place of lines.
    """

    lines: tuple[Line, ...]
    total: int
    about: str = ""
    per_million: float | None = None
    width: int = _WIDTH
    whole: bool = False

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> Line:
        return self.lines[index]

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __repr__(self) -> str:
        return f"Lines({len(self)} of {self.total} uses)"

    def first(self, count: int) -> "Lines":
        """The first of them."""
        return replace(self, lines=self.lines[:count])

    def to_rows(self) -> list[dict[str, Any]]:
        """A dictionary for each: number, left, node, right, where it stands, and what is known of it.

        `start` and `stop` are code points of the row of the corpus that `source` and `place` name.
        """
        # Columns only where some line has them, and then for all lines.
        ranked = any(line.similarity is not None for line in self.lines)
        labelled = any(line.label is not None for line in self.lines)
        reasoned = any(line.reasons for line in self.lines)
        metas = [json.loads(line.place.meta) for line in self.lines]
        fields = list(dict.fromkeys(name for meta in metas for name in meta))
        rows = []
        for line, meta in zip(self.lines, metas, strict=True):
            place = line.place
            row: dict[str, Any] = {
                "use": place.use,
                "left": line.left,
                "node": place.node,
                "right": line.right,
                "source": place.source,
                "place": place.where,
                "start": place.offset + place.start,
                "stop": place.offset + place.stop,
                "date": place.date,
            }
            if ranked:
                row |= {"similarity": line.similarity, "probability": line.probability, "answer": line.answer}
            if labelled:
                row |= {"sense": line.label, "probability": line.probability}
            if reasoned:
                row["reasons"] = [{"word": each.word, "drop": each.drop} for each in line.reasons]
            rows.append(row | {f"meta.{name}": meta.get(name) for name in fields})
        return rows

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.cells import cell_len, set_cell_size
        from rich.text import Text

        head = f"{len(self):,} of {self.total:,} use{'s' * (self.total != 1)}"
        head += f", {self.about}" if self.about else ""
        yield Text(head if self.per_million is None else f"{head}; {self.per_million:,.1f} per million words")
        yield Text()
        # As wide as the largest number of a use.
        gutter = max((len(str(line.place.use)) for line in self.lines), default=0)
        before = round(_SHOWN * self.width / _WIDTH)
        for line in self.lines:
            if self.whole:
                left, node, right = (_one_line(each) for each in line.sentence)
                shown = Text(f"{line.place.use:>{gutter}}  ", style="dim")
                shown.append(_isolated(left), style="not dim").append(_isolated(node), style="not dim bold")
                yield shown.append(_isolated(right), style="not dim")
                yield from self._about(line, gutter)
                continue
            # More than can be shown, since blanks are joined first.
            left, right = (
                _one_line(each) for each in (line.left[-2 * self.width :], line.right[: self.width])
            )
            node = excerpt(line.place.node, before)
            shown = Text(f"{line.place.use:>{gutter}}  ", style="dim", no_wrap=True, overflow="crop")
            shown.append(_isolated(_before(left, before)), style="not dim")
            shown.append(_isolated(node), style="not dim bold")
            # Cells that are left for what stands after the word.
            rest = self.width - gutter - 2 - before - cell_len(node)
            yield shown.append(_isolated(set_cell_size(right, max(rest, 0)).rstrip()), style="not dim")
            yield from self._about(line, gutter)

    def _about(self, line: Line, gutter: int) -> "Iterator[RenderableType]":
        from rich.text import Text

        if line.similarity is not None or line.label is not None:
            chance = line.probability and f"{line.answer or 'likely'}, {100 * line.probability:.0f} %"
            cosine = line.similarity and f"cosine {line.similarity:.3f}"
            where = printable(f"{line.place.where} of {line.place.source}")
            about = (line.label and printable(line.label), chance, cosine, where, line.place.date)
            indent = " " * (gutter + 2)
            yield Text(indent + "   ".join(map(str, filter(None, about))), style="dim")
            if line.reasons:
                words = ", ".join(f"{each.word} {each.drop:+.3f}" for each in line.reasons)
                reasons = excerpt(f"{indent}because of {words}", self.width)
                yield Text(reasons, style="dim")


def _isolated(text: str) -> str:
    """A text whose letters run to the left, so that they do not move those around it (UAX #9)."""
    # U+2068 and U+2069 isolate a text: its letters run to the left without moving the rest of the line.
    to_left = any(bidirectional(each) in ("R", "AL") for each in text)
    return f"\u2068{text}\u2069" if to_left else text


def _one_line(text: str) -> str:
    inner = " ".join(text.split())
    return printable(inner.join((" " * text[:1].isspace(), " " * (inner != "" and text[-1:].isspace()))))


def _before(text: str, cells: int) -> str:
    """The end of a text in so many cells, to the right."""
    from rich.cells import cell_len

    while cell_len(text) > cells:
        text = text[1:]
    return " " * (cells - cell_len(text)) + text


def scored(calibration: Calibration | None, line: Line, cosine: float) -> Line:
    """A line with its likeness, and what that says."""
    if calibration is None:
        return replace(line, similarity=cosine)
    probability = float(calibration(cosine))
    return replace(line, similarity=cosine, probability=probability, answer=calibration.answer(probability))
