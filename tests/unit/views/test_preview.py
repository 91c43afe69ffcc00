"""What a page says of itself before its script runs, by hand."""

import io
import re
import sys
from html import unescape
from typing import Any

import numpy as np
import pytest
from PIL import Image

from regard.core.errors import InputError, MissingExtraError
from regard.views import AttentionRecord, LayerRecord, PageToken, Side, preview_of, render_page

TEXT = "the bank of a river bank is wide."
WORDS = ["[CLS]", *TEXT[:-1].split(), ".", "[SEP]"]
START = {"kind": "encoder", "layer": 0, "head": 1, "pin": 1, "key": 5}


def _record(row: dict[int, float], text: str = TEXT, words: list[str] = WORDS) -> AttentionRecord:
    """A record of two heads: in the second the first word gives these shares, the others get the rest."""
    count = len(words)
    left = (1 - sum(row.values())) / (count - len(row))
    weights = np.full((2, count, count), 1 / count, np.float32)
    weights[1, 1] = [row.get(at, left) for at in range(count)]
    tokens = tuple(
        PageToken(text=each, special=each.startswith("["), word=None if each.startswith("[") else at)
        for at, each in enumerate(words)
    )
    layers: dict[Any, Any] = {"encoder": (LayerRecord.of_weights(0, weights),)}
    return AttentionRecord(model="a <model>", encoder=Side(text=text, tokens=tokens), layers=layers)


NOTHING = "Where each of 2 heads of a <model> looks."


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({5: 0.6}, "In one of 2 heads, the gives 60 % of its attention to river."),
        ({5: 0.999}, "In one of 2 heads, the gives more than 99 % of its attention to river."),
        # Of eleven tokens an even share is 9 %; six times these odds are 37.5 %.
        ({5: 0.38}, "In one of 2 heads, the gives 38 % of its attention to river."),
        ({5: 0.37}, NOTHING),
        # What the word itself, or the marks, get more of is not left unsaid: nothing is said.
        ({5: 0.4, 1: 0.5}, NOTHING),
        ({5: 0.4, 0: 0.3, 10: 0.2}, NOTHING),
        ({}, NOTHING),
    ],
)
def test_the_remark_is_held_against_chance(row: dict[int, float], said: str) -> None:
    preview = preview_of(_record(row), START)
    assert preview.said == said
    assert preview.words == WORDS[1:-1]
    assert preview.looks == 0
    assert preview.shares[4] == pytest.approx(row.get(5, (1 - sum(row.values())) / (11 - len(row))), abs=1e-6)


def test_a_page_says_it_in_its_head() -> None:
    html = render_page(_record({5: 0.6}, text='the "bank" <b> of & a river bank is wide. \u202e')).html
    head = html.partition("</head>")[0]
    assert head.isascii()
    [title] = re.findall("<title>(.*)</title>", head)
    assert unescape(title).startswith('the "bank" <b> of & a river bank is wide.')
    told = dict(re.findall('<meta (?:name|property)="([^"]+)" content="([^"]*)">', head))
    assert unescape(told["og:title"]) == unescape(title)
    assert told["description"] == told["og:description"]
    assert not {"og:image", "og:url", "twitter:card"} & told.keys()
    assert "<b>" not in head


def test_the_picture_has_the_size_of_links_and_the_arc() -> None:
    with Image.open(io.BytesIO(preview_of(_record({5: 0.9}), START).png())) as drawn:
        assert drawn.size == (1200, 630)
        pixels = np.asarray(drawn.convert("RGB")).astype(int)
    blue = (pixels[..., 2] - pixels[..., 0] > 60).any(axis=0)
    columns = np.flatnonzero(blue)
    with Image.open(io.BytesIO(preview_of(_record({2: 0.9}), START).png())) as drawn:
        pixels = np.asarray(drawn.convert("RGB")).astype(int)
    nearer = np.flatnonzero((pixels[..., 2] - pixels[..., 0] > 60).any(axis=0))
    assert 30 < columns.min() < nearer.max() < columns.max() - 100  # to river, which is further than bank


def test_what_has_no_picture_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="text must be one text that looks at itself"):
        preview_of(_record({}), None).png()
    hebrew = ["[CLS]", "הדייג", "ישב", "[SEP]"]
    with pytest.raises(InputError, match="runs from right to left"):
        preview_of(_record({2: 0.9}, "הדייג ישב", hebrew), START).png()
    chinese = ["[CLS]", "河", "岸", "[SEP]"]
    with pytest.raises(InputError, match="letters of matplotlib's font, for a picture; got '岸'"):
        preview_of(_record({2: 0.9}, "河岸", chinese), START).png()
    monkeypatch.setitem(sys.modules, "matplotlib.font_manager", None)
    with pytest.raises(MissingExtraError, match="pictures need"):
        preview_of(_record({5: 0.9}), START).png()


def test_a_long_text_is_cut_and_every_size_fits() -> None:
    for count in (3, 9, 14, 30, 400):
        words = ["[CLS]", *(f"word{i}" for i in range(count)), "[SEP]"]
        record = _record({2: 0.9}, " ".join(words[1:-1]), words)
        with Image.open(io.BytesIO(preview_of(record, START).png())) as drawn:
            pixels = np.asarray(drawn.convert("L"))
        assert (pixels[:, :40] > 250).all()  # the margins are free
        assert (pixels[:, -40:] > 250).all()
