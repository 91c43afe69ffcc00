"""What each head does: the cards, and the table of them, which shows itself."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.printable import excerpt, printable
from regard.tracing.patterns._bootstrap import FEWEST_UNITS
from regard.tracing.patterns._table_file import write_rows

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

NONE = "none"
"""The pattern of a head that has none."""


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
        yield from _card_parts(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadTable(Displayable):
    """What every head of a model does over a text or a corpus.

    `table[layer, head]` is one head's card, a loop goes over all of them, and `print` shows the table.

    Args:
        model: its name.
        cards: kind by kind, layer by layer, head by head.
        texts, tokens: how much was read.
        refused: how many texts were passed over, because the model cannot take them.
        threshold: what the lower end of an effect's interval must exceed for the pattern to be named.
        level: how many of the resamples an interval holds: 0.95.
        unit: what was resampled: "text", or "query" where there were few texts.
        seed, resamples: of the bootstrap.
    """

    model: str
    cards: tuple[HeadCard, ...]
    texts: int
    tokens: int
    refused: int
    threshold: float
    level: float
    unit: str
    seed: int
    resamples: int

    def __repr__(self) -> str:
        found = ", ".join(f"{count} {name}" for name, count in self.counts().items())
        return f"HeadTable({self.model!r}, {self.texts} {_plural(self.texts, 'text')}: {found})"

    def __len__(self) -> int:
        return len(self.cards)

    def __iter__(self) -> Iterator[HeadCard]:
        return iter(self.cards)

    def __getitem__(self, at: tuple[int, int] | tuple[str, int, int]) -> HeadCard:
        """The card of (layer, head), or of (kind, layer, head) where there are several kinds of attention.

        Negative numbers count from the end of the layers and heads that the table has.

        Raises:
            InputError: there is no such card, or several.
        """
        *kinds, layer, head = at
        cards = [card for card in self.cards if not kinds or card.kind == kinds[0]]
        layers = sorted({card.layer for card in cards})
        if isinstance(layer, int) and -len(layers) <= layer < 0:
            layer = layers[layer]
        heads = sorted({card.head for card in cards if card.layer == layer})
        if isinstance(head, int) and -len(heads) <= head < 0:
            head = heads[head]
        found = [card for card in cards if (card.layer, card.head) == (layer, head)]
        if len(found) != 1:
            several = " (kind, layer, head), since there are several kinds," if found else ""
            raise InputError(f"a card is asked for by{several or ' (layer, head)'} of the table; got {at!r}.")
        return found[0]

    def counts(self) -> dict[str, int]:
        """How many heads have each pattern, the most frequent first, "none" last."""
        found = Counter(card.pattern for card in self.cards)
        return dict(sorted(found.items(), key=lambda each: (each[0] == NONE, -each[1], each[0])))

    def to_json(self) -> dict[str, Any]:
        """Every field under its name; NaN as None."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "cards"}
        return {**plain, "cards": [card.to_json() for card in self.cards]}

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a head: kind, layer, head, its pattern, and what was found of that pattern."""
        return [_row_of(card) for card in self.cards]

    def write(self, path: str | Path) -> Path:
        """Write a Parquet file of the rows, with every finding and example, whole or not at all.

        A row has kind, layer, head, pattern, detail, effect, low, high, mass, captured, queries (of the named
        pattern, or of the strongest where there is none), `findings`, a list of the same for every pattern,
        and `examples`. What belongs to all rows (model, texts, level, ...) stands as JSON in the file's
        metadata, under "regard".

        Raises:
            InputError: an ending other than .parquet.
            MissingExtraError: pyarrow is not installed.
            OutputError: the file cannot be written.
        """
        rows = [_row_of(card) | card.to_json() for card in self.cards]
        return write_rows(rows, {**self.to_json(), "cards": len(self.cards)}, Path(path))

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        yield Text(_heading(self), style="dim")
        if len(self.cards) == 1:
            yield ""
            yield from _card_parts(self.cards[0])
            return
        for kind in dict.fromkeys(card.kind for card in self.cards):
            cards = [card for card in self.cards if card.kind == kind]
            yield ""
            if len(cards) < len(self.cards):
                yield Text(f"{kind} attention", style="bold")
            yield _table(cards, self.threshold)
        yield ""
        counts = (f"{count} {name}" for name, count in self.counts().items())
        yield Text.assemble((f"{len(self)} heads: ", "bold"), ", ".join(counts))
        if all(math.isnan(card.best.low) for card in self.cards):
            yield Text(f"Names need {FEWEST_UNITS} queries or more: give a longer text, or several.")


def _row_of(card: HeadCard) -> dict[str, Any]:
    place = {"kind": card.kind, "layer": card.layer, "head": card.head}
    return place | card.to_rows()[0] | {"pattern": card.pattern}  # the card's own pattern may be "none"


def _without_nan(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in fields.items()
    }


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else {"query": "queries"}.get(noun, f"{noun}s")


def _heading(table: HeadTable) -> str:
    texts, tokens = _plural(table.texts, "text"), _plural(table.tokens, "token")
    return (
        f"{printable(table.model)}: {table.texts:,} {texts}, {table.tokens:,} {tokens}\n"
        f"effect: attention to the pattern's keys, over chance; {table.level:.0%} interval over "
        f"{_plural(2, table.unit)}, named if above {table.threshold:g}"
    )


# A second pattern that is weaker is not worth a reader's time.
_WEAK = 0.05


def _table(cards: list[HeadCard], threshold: float) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    drawn.add_column("head", justify="right", width=4)
    drawn.add_column("pattern", width=25, no_wrap=True, overflow="ellipsis")
    drawn.add_column("effect", justify="right", width=6)
    drawn.add_column("interval", width=10)
    drawn.add_column("captured", justify="right", width=8)
    drawn.add_column("next", width=22, no_wrap=True, overflow="ellipsis")
    layer = -1
    for card in cards:
        if card.layer != layer:
            layer = card.layer
            if card is not cards[0]:
                drawn.add_row()
            drawn.add_row("", Text(f"layer {layer}", style="bold"))
        named, best = card.pattern != NONE, card.best
        following = card.second if named else best
        drawn.add_row(
            str(card.head),
            Text(printable(best.name) if named else "-", style=_STYLES.get(card.pattern, "")),
            *((f"{best.effect:.2f}", _interval(best), f"{best.captured:.0%}") if named else ("", "", "")),
            _following(following, threshold),
        )
    return drawn


_STYLES = {
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


def _interval(finding: HeadFinding) -> str:
    return "-" if math.isnan(finding.low) else f"{finding.low:.2f}..{finding.high:.2f}"


def _following(finding: HeadFinding | None, threshold: float) -> "Text":
    from rich.text import Text

    if finding is None or not finding.effect >= _WEAK:  # or not a number
        return Text()
    sure = finding.low > threshold
    return Text(f"{finding.effect:.2f} {printable(finding.pattern)}", style="" if sure else "dim")


# Tokens of an example that are shown on either side of its query and its key.
_AROUND = 4


def _card_parts(card: HeadCard) -> "Iterator[RenderableType]":
    from rich.text import Text

    verdict = card.best.name if card.pattern != NONE else "no pattern"
    style = f"bold {_STYLES.get(card.pattern, '')}".replace("bold bold", "bold").rstrip()
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
    return (printable(finding.name), _interval(finding), *numbers, f"{finding.queries:,}")


_MARKS = {"query": ("[", "]", "bold"), "key": ("<", ">", "bold underline")}


def _marked(tokens: tuple[str, ...], places: dict[int, str]) -> "Text":
    """The tokens around some places, the query's in square brackets, the key's in angle brackets."""
    from rich.text import Text

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
        if place != last + 1:
            line.append("… ", "dim")
        before, after, style = _MARKS.get(real.get(place, ""), ("", "", ""))
        line.append(f"{before}{excerpt(tokens[place], 30)}{after} ", style)
        last = place
    if shown and last + 1 < len(tokens):
        line.append("…", "dim")
    return line
