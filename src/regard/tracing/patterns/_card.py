"""What one head does: its card, which shows itself."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from regard.core.displayable import Displayable, plain_table
from regard.core.wording import excerpt, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

NONE = "none"
"""The pattern of a head that has none."""

STYLES = {
    "previous": "cyan",
    "next": "blue",
    "self": "green",
    "induction": "bold magenta",
    "duplicate token": "magenta",
    "delimiter sink": "yellow",
    "positional stride": "bright_blue",
    "broadcast": "red",
    "alignment": "cyan",
}


@dataclass(frozen=True, kw_only=True)
class HeadFinding:
    """How strongly a head shows one pattern.

    Args:
        pattern, detail: its name, and what tells it from others of the name: "positional stride", "-2".
        effect: how much of a row's attention the pattern's keys get, over what a head without the pattern
            would give them; NaN where no query has such keys.
        low, high: the ends of its interval; NaN where there is too little to tell.
        mass: how much they get, the mean over the queries that have such keys.
        captured: how much they get of the attention of all queries, those without such keys too.
        queries: how many queries have such keys.
    """

    pattern: str
    detail: str
    effect: float
    low: float
    high: float
    mass: float
    captured: float
    queries: int

    @property
    def name(self) -> str:
        """The pattern with its detail: "positional stride -2"."""
        return f"{self.pattern} {self.detail}".rstrip()


@dataclass(frozen=True, kw_only=True)
class HeadExample:
    """A place where a head shows its pattern.

    Args:
        text: which text, from 0, in the order they were given, those that were passed over counted too.
        tokens: the tokens that the query is among, as people read them.
        keys: the tokens that the key is among: the same ones, except in cross-attention.
        query, key: their places; key is the one of the pattern's keys that gets most, -1 for none.
        mass: what all the pattern's keys get.
    """

    text: int
    tokens: tuple[str, ...]
    keys: tuple[str, ...]
    query: int
    key: int
    mass: float


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadCard(Displayable):
    """What one head does.

    Args:
        kind: "encoder", "decoder" or "cross".
        layer, head: from 0.
        pattern: the name of what it does, or "none".
        findings: of every pattern its strongest variant, the named one first, then by effect.
        examples: where it does so most, from as many texts as there are; of a head without a pattern, those
            of its strongest.
    """

    kind: str
    layer: int
    head: int
    pattern: str
    findings: tuple[HeadFinding, ...]
    examples: tuple[HeadExample, ...]

    def __repr__(self) -> str:
        return f"HeadCard({self.kind} {self.layer}.{self.head}: {self.pattern}, {self.best.effect:.2f})"

    @property
    def best(self) -> HeadFinding:
        """What is said of the pattern; of a head without one, of the strongest that it almost has."""
        return self.findings[0]

    @property
    def second(self) -> HeadFinding | None:
        """The next strongest pattern."""
        return self.findings[1] if len(self.findings) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """Every field under its name; NaN as None."""
        plain = asdict(self)
        plain["findings"] = [_without_nan(finding) for finding in plain["findings"]]
        return plain

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a pattern, the strongest first."""
        rows: list[dict[str, Any]] = self.to_json()["findings"]
        return rows

    def _parts(self) -> "Iterator[RenderableType]":
        yield from card_parts(self)


def _without_nan(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in fields.items()
    }


def interval_of(finding: HeadFinding) -> str:
    """The ends of its interval, for people to read."""
    return "-" if math.isnan(finding.low) else f"{finding.low:.2f}..{finding.high:.2f}"


# Tokens of an example that are shown on either side of its query and its key.
_AROUND = 4


def card_parts(card: HeadCard) -> "Iterator[RenderableType]":
    """A card for people to read."""
    from rich.text import Text

    # The verdict as a word, in the pattern's colour.
    verdict = card.best.name if card.pattern != NONE else "no pattern"
    style = f"bold {STYLES.get(card.pattern, '')}".replace("bold bold", "bold").rstrip()
    place = f"{card.kind} layer {card.layer}, head {card.head}: "
    yield Text.assemble((place, "bold"), (printable(verdict), style))
    yield ""
    columns = ("pattern", "interval", "effect", "mass", "captured", "queries")
    yield plain_table(columns, (_finding_cells(finding) for finding in card.findings), left=2)
    for number, example in enumerate(card.examples):
        if number == 0:
            yield ""
            where = f"Where {printable(card.best.name)} is strongest: the [query] reads the <key>"
            yield Text(where, "dim")
        line = Text.assemble((f"{example.mass:.2f}  ", "bold"))
        # Queries and keys are the same text; in cross-attention they stand one after the other.
        if card.kind != "cross":
            line.append_text(_marked(example.tokens, {example.query: "query", example.key: "key"}))
        else:
            line.append_text(_marked(example.tokens, {example.query: "query"}))
            line.append("  reads  ", "dim").append_text(_marked(example.keys, {example.key: "key"}))
        yield line


def _finding_cells(finding: HeadFinding) -> tuple[str, ...]:
    if math.isnan(finding.effect):
        numbers = ("-", "-", "-")
    else:
        numbers = (f"{finding.effect:.2f}", f"{finding.mass:.2f}", f"{finding.captured:.0%}")
    return (printable(finding.name), interval_of(finding), *numbers, f"{finding.queries:,}")


_MARKS = {"query": ("[", "]", "bold"), "key": ("<", ">", "bold underline")}


def _marked(tokens: tuple[str, ...], places: dict[int, str]) -> "Text":
    """The tokens around some places, the query's in square brackets, the key's in angle brackets."""
    from rich.text import Text

    # -1 is no place.
    real = {place: role for place, role in places.items() if place >= 0}
    shown = sorted(
        {
            near
            for place in real
            for near in range(place - _AROUND, place + _AROUND + 1)
            if 0 <= near < len(tokens)
        }
    )
    line, last = Text(), -1
    for place in shown:
        # Tokens in between are left out.
        if place != last + 1:
            line.append("… ", "dim")
        before, after, style = _MARKS.get(real.get(place, ""), ("", "", ""))
        line.append(f"{before}{excerpt(tokens[place], 30)}{after} ", style)
        last = place
    if shown and last + 1 < len(tokens):
        line.append("…", "dim")
    return line
