"""What each head does: the record, its table and its card in a terminal, and its file."""

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from regard.core.errors import InputError
from regard.views._printable import excerpt, printable

if TYPE_CHECKING:
    from rich.console import Console
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


@dataclass(frozen=True, kw_only=True)
class HeadCard:
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


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadTable:
    """What every head of a model does over a text or a corpus.

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


def _without_nan(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in fields.items()
    }


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else {"query": "queries"}.get(noun, f"{noun}s")


def print_heads(table: HeadTable, console: "Console") -> None:
    """A row a head, in 80 columns; where there is one head only, its card."""
    from rich.text import Text

    console.print(Text(_heading(table), style="dim"))
    if len(table.cards) == 1:
        _print_card(table.cards[0], console)
        return
    for kind in dict.fromkeys(card.kind for card in table.cards):
        cards = [card for card in table.cards if card.kind == kind]
        console.print()
        if len(cards) < len(table.cards):
            console.print(Text(f"{kind} attention", style="bold"))
        _print_table(cards, table.threshold, console)
    console.print()
    counts = (f"{count} {name}" for name, count in table.counts().items())
    console.print(Text.assemble((f"{len(table)} heads: ", "bold"), ", ".join(counts)))


def _heading(table: HeadTable) -> str:
    texts, tokens = _plural(table.texts, "text"), _plural(table.tokens, "token")
    return (
        f"{printable(table.model)}: {table.texts:,} {texts}, {table.tokens:,} {tokens}\n"
        f"effect: attention to the pattern's keys, over chance; {table.level:.0%} interval over "
        f"{_plural(2, table.unit)}, named if above {table.threshold:g}"
    )


# A second pattern that is weaker is not worth a reader's time.
_WEAK = 0.05


def _print_table(cards: list[HeadCard], threshold: float, console: "Console") -> None:
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
    console.print(drawn)


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


def _print_card(card: HeadCard, console: "Console") -> None:
    from rich.table import Table
    from rich.text import Text

    console.print()
    verdict = card.best.name if card.pattern != NONE else "no pattern"
    style = f"bold {_STYLES.get(card.pattern, '')}".replace("bold bold", "bold").rstrip()
    console.print(
        Text.assemble(
            (f"{card.kind} layer {card.layer}, head {card.head}: ", "bold"), (printable(verdict), style)
        )
    )
    console.print()
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    drawn.add_column("pattern", width=27, no_wrap=True)
    for name, width in (("effect", 6), ("interval", 12), ("mass", 5), ("captured", 8), ("queries", 9)):
        drawn.add_column(name, justify="left" if name == "interval" else "right", width=width)
    for finding in card.findings:
        unknown = math.isnan(finding.effect)
        drawn.add_row(
            Text(printable(finding.name), style=_STYLES.get(finding.pattern, "")),
            "-" if unknown else f"{finding.effect:.2f}",
            _interval(finding),
            "-" if unknown else f"{finding.mass:.2f}",
            "-" if unknown else f"{finding.captured:.0%}",
            f"{finding.queries:,}",
        )
    console.print(drawn)
    for number, example in enumerate(card.examples):
        if number == 0:
            console.print()
            where = f"Where {printable(card.best.name)} is strongest: the [query] reads the <key>"
            console.print(Text(where, "dim"))
        line = Text.assemble((f"{example.mass:.2f}  ", "bold"))
        if card.kind != "cross":
            line.append_text(_marked(example.tokens, {example.query: "query", example.key: "key"}))
        else:
            line.append_text(_marked(example.tokens, {example.query: "query"}))
            line.append("  reads  ", "dim").append_text(_marked(example.keys, {example.key: "key"}))
        console.print(line)


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
