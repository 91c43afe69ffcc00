"""What every head does: the table of their cards, which shows itself, and its Parquet file."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.core.displayable import Displayable
from regard.core.errors import InputError
from regard.core.extras import pyarrow
from regard.core.wording import printable
from regard.tracing.patterns._card import NONE, STYLES, HeadCard, card_parts, interval_of
from regard.tracing.patterns._counter import FEWEST_UNITS

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadTable(Displayable):
    """What every head of a model does over a text or a corpus.

    `table[layer, head]` is one head's card, a loop goes over all of them, and `print` shows the table.

    `write` gives a row a head: kind, layer, head, pattern, detail, effect, low, high, mass, captured, queries
    (of the named pattern, or of the strongest where there is none). A .parquet file has also `findings`, a
    list of the same for every pattern, and `examples`; what belongs to all rows (model, texts, level, ...)
    stands as JSON in its metadata, under "regard".

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
        # Negative numbers count among the layers that the table has.
        if isinstance(layer, int) and -len(layers) <= layer < 0:
            layer = layers[layer]
        heads = sorted({card.head for card in cards if card.layer == layer})
        if isinstance(head, int) and -len(heads) <= head < 0:
            head = heads[head]
        matches = [card for card in cards if (card.layer, card.head) == (layer, head)]
        if len(matches) != 1:
            several = " (kind, layer, head), since there are several kinds," if matches else ""
            raise InputError(f"a card is asked for by{several or ' (layer, head)'} of the table; got {at!r}.")
        return matches[0]

    def counts(self) -> dict[str, int]:
        """How many heads have each pattern, the most frequent first, "none" last."""
        # "none" last, the most frequent first, of equals by name.
        found = Counter(card.pattern for card in self.cards)
        return dict(sorted(found.items(), key=lambda each: (each[0] == NONE, -each[1], each[0])))

    def to_json(self) -> dict[str, Any]:
        """Every field under its name; NaN as None."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "cards"}
        return {**plain, "cards": [card.to_json() for card in self.cards]}

    @property
    def axes(self) -> tuple[str, ...]:
        return ("kind", "layer", "head")

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a head: kind, layer, head, its pattern, and what was found of that pattern."""
        return [_row_of(card) for card in self.cards]

    def _stored(self) -> Any:
        about = {**self.to_json(), "cards": len(self.cards)}
        return _arrow([_row_of(card) | card.to_json() for card in self.cards], about)

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        yield Text(_heading(self), style="dim")
        if len(self.cards) == 1:
            yield ""
            yield from card_parts(self.cards[0])
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
        # Without an interval nothing can be named.
        if all(math.isnan(card.best.low) for card in self.cards):
            yield Text(f"Names need {FEWEST_UNITS} queries or more: give a longer text, or several.")


def _row_of(card: HeadCard) -> dict[str, Any]:
    place = {"kind": card.kind, "layer": card.layer, "head": card.head}
    # The card's own pattern may be "none".
    return place | card.to_rows()[0] | {"pattern": card.pattern}


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else {"query": "queries"}.get(noun, f"{noun}s")


def _heading(table: HeadTable) -> str:
    texts, tokens = _plural(table.texts, "text"), _plural(table.tokens, "token")
    return (
        f"{printable(table.model)}: {table.texts:,} {texts}, {table.tokens:,} {tokens}\n"
        f"effect: attention to the pattern's keys, over chance; {table.level:.0%} interval over "
        f"{_plural(2, table.unit)}, named if above {table.threshold:g}"
    )


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
            # An empty row between layers.
            if card is not cards[0]:
                drawn.add_row()
            drawn.add_row("", Text(f"layer {layer}", style="bold"))
        named, best, following = card.pattern != NONE, card.best, card.second
        # The second name has to be as sure as the first.
        sure = following is not None and following.low > threshold
        drawn.add_row(
            str(card.head),
            Text(printable(best.name) if named else "-", style=STYLES.get(card.pattern, "")),
            *((f"{best.effect:.2f}", interval_of(best), f"{best.captured:.0%}") if named else ("", "", "")),
            Text(f"{following.effect:.2f} {printable(following.pattern)}" if following and sure else ""),
        )
    return drawn


def _arrow(rows: list[dict[str, Any]], about: dict[str, Any]) -> Any:
    """The rows of a table of heads, and what belongs to all of them."""
    pa, _ = pyarrow()
    finding = {
        "pattern": pa.string(),
        "detail": pa.string(),
        **dict.fromkeys(("effect", "low", "high", "mass", "captured"), pa.float64()),
        "queries": pa.int64(),
    }
    example = {
        "text": pa.int64(),
        "tokens": pa.list_(pa.string()),
        "keys": pa.list_(pa.string()),
        "query": pa.int64(),
        "key": pa.int64(),
        "mass": pa.float64(),
    }
    schema = pa.schema(
        {
            "kind": pa.string(),
            "layer": pa.int64(),
            "head": pa.int64(),
            **finding,
            "findings": pa.list_(pa.struct(list(finding.items()))),
            "examples": pa.list_(pa.struct(list(example.items()))),
        },
        # What belongs to the whole table, as JSON beside the schema.
        metadata={"regard": json.dumps(about)},
    )
    return pa.Table.from_pylist(rows, schema=schema)
