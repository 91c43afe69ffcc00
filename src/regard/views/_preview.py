"""What a page says of itself before its script runs: its title, one remark, and a picture for links to it.

The remark is the page's own (static/base/said.js), where a word gets more than anything else does. Of other
rows nothing is said here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from io import BytesIO
from typing import Any

import numpy as np

from regard.core.errors import InputError
from regard.core.extras import missing
from regard.core.wording import excerpt
from regard.views._assets import palette
from regard.views._layer_record import weight_rows
from regard.views._records import AttentionRecord
from regard.views._said import claims
from regard.views._sheet import Curve, Shape, Sheet, Text, figure_of
from regard.views._start import MARK, SPECIAL, Words

_WIDTH, _HEIGHT, _MARGIN = 576.0, 302.4, 30.0
"""Points: 1200 x 630 pixels, what links are drawn with."""

_LINE, _LARGEST, _SMALLEST = 150.0, 28.0, 13.0
"""Where the text stands, and how large."""

_LEAST = 0.01  # a smaller share has no arc


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Preview:
    """A page in short.

    Attributes:
        model: Its name.
        text: What it read.
        said: The remark on the word that the page opens on, or what else there is to say.
        words: The text's words; () where the page has no front door.
        shares: What each gets from the word at `looks`.
        looks: The place of that word.
    """

    model: str
    text: str
    said: str
    words: Sequence[str] = ()
    shares: Sequence[float] = ()
    looks: int = 0

    def head(self, address: str = "", picture: str = "") -> str:
        """The title, and what those read who draw a link to the page.

        Args:
            address, picture: The addresses of the page and of its picture; "" where they are not known.
        """
        title, said = (_ascii(text) for text in (f"{excerpt(self.text, 60)} · regard", self.said))
        tags = {"title": title, "description": said, "url": address, "image": picture}
        return "\n".join(
            [
                f'<title>{title}</title>\n<meta name="description" content="{said}">',
                *(f'<meta property="og:{name}" content="{text}">' for name, text in tags.items() if text),
                *(['<meta name="twitter:card" content="summary_large_image">'] if picture else []),
            ]
        )

    def png(self) -> bytes:
        """A picture of 1200 x 630 pixels: the sentence with its arcs, the remark, and the model's name.

        Raises:
            InputError: There is no front door; or the text runs from right to left, or has letters that
                matplotlib's font lacks.
            MissingExtraError: matplotlib is not installed.
        """
        if not self.words:
            raise InputError("text must be one text that looks at itself, for a picture of its front door.")
        drawn = BytesIO()
        figure_of(self._sheet()).savefig(drawn, format="png", dpi=150)
        return drawn.getvalue()

    def _sheet(self) -> Sheet:
        # Where each word begins and ends.
        places, size = _laid_out(self.text, self.words, self.looks)
        ink, soft, blue = (palette()[name] for name in ("ink", "soft", "query"))
        shapes: list[Shape] = [
            Text(x=x, y=_LINE, text=self.words[at], size=size, colour=blue if at == self.looks else ink)
            for at, (x, _) in places.items()
        ]
        start = sum(places[self.looks]) / 2
        # Weak arcs first, so that strong ones lie on top.
        seen = [at for at in places if at != self.looks and self.shares[at] >= _LEAST]
        for at in sorted(seen, key=lambda at: self.shares[at]):
            share, end, over = self.shares[at], sum(places[at]) / 2, _LINE - 0.7 * size
            arc = Curve(
                start=(start, over),
                end=(end, over),
                colour=blue,
                width=0.6 + 5 * share,
                opacity=0.25 + 0.75 * share,
                rise=min(90.0, 14 + 0.35 * abs(end - start)),
            )
            shapes.append(arc)
        said = Text(x=_MARGIN, y=_HEIGHT - 64, text=excerpt(self.said, 72), size=14, colour=ink)
        name = Text(x=_MARGIN, y=_HEIGHT - 30, text=f"regard · {self.model}", size=11, colour=soft)
        shapes += [said, name]
        return Sheet(width=_WIDTH, height=_HEIGHT, title=self.text, description=self.said, shapes=shapes)


def preview_of(record: AttentionRecord, start: Mapping[str, Any] | None) -> Preview:
    """A page of one run in short; `start`: what it opens on, as `find_start` has it."""
    side = record.encoder or record.decoder
    assert side is not None
    heads = sum(layer.heads for layers in record.layers.values() for layer in layers)
    said = f"Where each of {heads} heads of {record.model} looks."
    plain = Preview(model=record.model, text=side.text or "Attention", said=said)
    if start is None or len(record.kinds) > 1 or side.text is None or side.pair is not None:
        return plain
    # The word that the page opens on, and how much it gives to each other.
    kind, words = start["kind"], Words(side.tokens)
    layer = next(each for each in record.layers[kind] if each.layer == start["layer"])
    looks = int(np.searchsorted(words.starts, start["pin"], side="right")) - 1
    tokens = words.starts[looks] + np.arange(words.sizes[looks])
    rows = weight_rows(layer, start["head"], tokens)[:, : len(side.tokens)]
    # What each word would get if every visible token got the same.
    evens = (rows > 0) / (rows > 0).sum(axis=1, keepdims=True)
    share, even = (np.add.reduceat(each.mean(axis=0), words.starts) for each in (rows, evens))
    shown = words.ranks > SPECIAL
    is_word = words.ranks > MARK
    if kind == "decoder":
        is_word[0] = False  # attention rests on it
    is_word[looks] = False
    most = int(np.where(is_word, share, -1).argmax())
    # Odds, not shares: 60 % of ten words is more than 60 % of two.
    odds, of_even = (each[most] / (1 - min(each[most], 1 - 1e-9)) for each in (share, even))
    others = max(share[looks], share[~is_word].sum() - share[looks])
    looking, seen = words.texts[[looks, most]]
    # Only what is clearly more than chance, and more than all the rest to marks.
    if odds >= claims()["odds"] * of_even and share[most] > others and looking != seen:
        part = "its one head" if heads == 1 else f"one of {heads} heads"
        of = "more than 99" if share[most] > 0.995 else round(100 * share[most])
        said = f"In {part}, {looking} gives {of} % of its attention to {seen}."
    texts, shares = words.texts[shown].tolist(), share[shown].tolist()
    return replace(plain, said=said, words=texts, shares=shares, looks=int(shown[:looks].sum()))


def _laid_out(text: str, words: Sequence[str], looks: int) -> tuple[dict[int, tuple[float, float]], float]:
    """The ends of each word on one line, and the size of type; of a long text, the words around one."""
    try:
        from matplotlib.font_manager import FontProperties, findfont, get_font
        from matplotlib.textpath import text_to_path
    except ImportError as error:
        raise missing("pictures need", error, "matplotlib") from error
    font = FontProperties(size=1)
    # A missing letter would be a box in the picture.
    has = get_font(findfont(font)).get_char_index
    if lacking := {sign for sign in text if sign.isprintable() and not has(ord(sign))}:
        raise InputError(f"text must have letters of matplotlib's font, for a picture; got {min(lacking)!r}.")
    ends, x, end = [], 0.0, 0
    for word in words:
        at = max(end, text.find(word, end))
        gap, width = (
            text_to_path.get_text_width_height_descent(each, font, False)[0] for each in (text[end:at], word)
        )
        ends.append((x + gap, x + gap + width))
        x, end = x + gap + width, at + len(word)
    first, last, room = 0, len(words) - 1, _WIDTH - 2 * _MARGIN
    # Words go at the end that is further from the one shown.
    while ends[last][1] - ends[first][0] > room / _SMALLEST and first < last:
        first, last = (first + 1, last) if looks - first > last - looks else (first, last - 1)
    left, right = ends[first][0], ends[last][1]
    size = min(_LARGEST, room / (right - left))
    places = {
        at: (_MARGIN + size * (ends[at][0] - left), _MARGIN + size * (ends[at][1] - left))
        for at in range(first, last + 1)
    }
    return places, size


def _ascii(text: str) -> str:
    return escape(" ".join(text.split())).encode("ascii", "xmlcharrefreplace").decode()
