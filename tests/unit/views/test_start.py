"""What a page opens on: worked by hand on a few weights."""

from typing import Any

import numpy as np
import pytest

from regard.views import (
    AttentionRecord,
    LayerRecord,
    Page,
    PageToken,
    RecordKind,
    Side,
    every_head,
    find_start,
    render_page,
)
from regard.views._records import HeldHeads
from regard.views._start import far_links
from unit.views.conftest import facts_of


def _side(*texts: str, words: tuple[int | None, ...] = ()) -> Side:
    """Tokens of these texts; those in brackets are special."""
    special = [text.startswith("[") for text in texts]
    named = words or tuple(None if each else place for place, each in enumerate(special))
    rows = zip(texts, special, named, strict=True)
    tokens = tuple(PageToken(text=text, special=each, word=word) for text, each, word in rows)
    return Side(text=" ".join(texts), tokens=tokens)


def _record(
    side: Side, *layers: Any, kind: RecordKind = "encoder", of_keys: Side | None = None
) -> AttentionRecord:
    given = tuple(LayerRecord.given(place, np.array(each, np.float32)) for place, each in enumerate(layers))
    return AttentionRecord(
        model="m",
        encoder=of_keys or (side if kind == "encoder" else None),
        decoder=side if kind != "encoder" else None,
        layers={kind: given},
    )


def _links(count: int, *links: tuple[int, int, float]) -> Any:
    """A head with these weights, (query, key, weight), and what is left on the query itself."""
    head = np.zeros((count, count))
    for query, key, weight in links:
        head[query, key] = weight
    return head + np.diag(1 - head.sum(axis=1))


SENTENCE = _side("[CLS]", "river", "bank", ",", "deep", "[SEP]")
# Loud where it does not count: on special tokens, on punctuation, on the neighbour.
LOUD = _links(6, (1, 0, 0.9), (2, 5, 0.9), (4, 3, 0.9), (1, 2, 0.05), (2, 1, 0.05), (3, 1, 0.95))
FAR = _links(6, (1, 4, 0.3), (4, 1, 0.2), (4, 2, 0.6))
FAR_ONCE = _links(6, (2, 4, 0.8))


@pytest.mark.parametrize(
    ("side", "heads", "head", "pin"),
    [
        (SENTENCE, [LOUD, FAR_ONCE, FAR], 2, 4),  # means 0, 0.8 / 3 and (0.3 + 0 + 0.6) / 3
        (SENTENCE, [LOUD, FAR_ONCE], 1, 2),
        # pieces of one word: "un", "cut" and "s" are no far link, "grass" is
        (
            _side("un", "cut", "s", "grass", words=(0, 0, 0, 1)),
            [_links(4, (0, 2, 0.9), (2, 0, 0.9)), _links(4, (1, 3, 0.2))],
            1,
            1,
        ),
        # two words, side by side: the next token counts
        (_side("[CLS]", "river", "bank"), [_links(3, (1, 0, 0.9)), _links(3, (2, 1, 0.4))], 1, 2),
        # no word at all: what is no content
        (_side("[CLS]", "!", "?", "[SEP]"), [_links(4, (1, 0, 0.9)), _links(4, (1, 2, 0.2))], 1, 1),
        # one word: itself
        (_side("[CLS]", "bank", "[SEP]"), [_links(3, (1, 0, 0.9)), _links(3, (1, 2, 0.5))], 1, 1),
        # nothing but special tokens
        (_side("[CLS]", "[SEP]"), [_links(2, (0, 1, 0.9), (1, 0, 0.9)), _links(2)], 1, 0),
    ],
)
def test_opens_where_most_is_to_be_seen(side: Side, heads: Any, head: int, pin: int) -> None:
    record = _record(side, np.stack(heads))
    wanted = {"kind": "encoder", "layer": 0, "head": head, "pin": pin}
    assert find_start(record, every_head(record)) == wanted
    # whatever comes first
    turned = _record(side, np.stack(heads[::-1]))
    assert find_start(turned, every_head(turned)) == wanted | {"head": len(heads) - 1 - head}
    assert facts_of(render_page(record))["start"] == wanted


def test_is_among_the_heads_that_are_held() -> None:
    record = _record(SENTENCE, np.stack([FAR, LOUD]), np.stack([LOUD, FAR_ONCE]))
    held = HeldHeads(heads={("encoder", 0): (1,), ("encoder", 1): (0, 1)}, every=False)
    assert find_start(record, held) == {"kind": "encoder", "layer": 1, "head": 1, "pin": 2}


def test_a_decoder_s_and_another_text_s_keys_count_as_the_kind_has_them() -> None:
    causal = _links(3, (2, 0, 0.4))
    record = _record(_side("a", "river", "bank"), np.stack([np.eye(3), causal]), kind="decoder")
    assert find_start(record, every_head(record)) == {"kind": "decoder", "layer": 0, "head": 1, "pin": 2}
    # Across texts no distance counts: the key at the query's own place is as far as any.
    crossed = np.array([[[0.1, 0.9], [0.9, 0.1]], [[0.8, 0.2], [0.1, 0.9]]])
    record = _record(_side("eine", "Bank"), crossed, kind="cross", of_keys=_side("a", "[SEP]"))
    assert find_start(record, every_head(record)) == {"kind": "cross", "layer": 0, "head": 0, "pin": 1}


def test_each_kind_has_a_start_of_its_own() -> None:
    heads = {
        "encoder": [np.eye(3), _links(3, (2, 0, 0.4))],
        "decoder": [_links(2, (1, 0, 0.95))],  # next to each other: no far link
        "cross": [np.array([[0.8, 0.1, 0.1], [0.1, 0.9, 0.0]])],
    }
    layers = {kind: (LayerRecord.given(0, np.stack(each)),) for kind, each in heads.items()}
    sides = {"encoder": _side("a", "river", "bank"), "decoder": _side("eine", "Bank")}
    record = AttentionRecord(model="m", **sides, layers=layers)
    encoder, decoder, cross = (
        {"kind": kind, "layer": 0, "head": head, "pin": pin}
        for kind, head, pin in (("encoder", 1, 2), ("decoder", 0, 1), ("cross", 0, 1))
    )
    assert find_start(record, every_head(record)) == cross | {"others": [encoder, decoder]}


def test_two_runs_open_on_the_head_and_the_word_that_differ_most() -> None:
    one = _record(_side("a", "river", "bank"), np.stack([_links(3), _links(3)]))
    other = _record(
        _side("a", "deep", "river", "bank"), np.stack([_links(4, (3, 0, 0.2)), _links(4, (3, 0, 0.9))])
    )
    pairs = ((0, 0), (1, 2), (2, 3))
    of_kind = {"queries": pairs, "keys": pairs, "divergence": [[0.1, 0.4]]}
    difference = {"kinds": {"encoder": of_kind}}
    page: Page = render_page(one, other, difference=difference)
    # As both are shown together: a, deep, river, bank.
    assert facts_of(page)["start"] == {"kind": "encoder", "layer": 0, "head": 1, "pin": 3}


def test_of_a_text_that_was_written_the_rows_that_wrote_it_count() -> None:
    """The first two words were given: the row of "bank" is the first that wrote."""
    side = _side("a", "river", "bank", "is", "deep")
    early, late = _links(5, (1, 4, 0.9), (3, 0, 0.3)), _links(5, (3, 1, 0.5), (4, 0, 0.2))
    record = _record(side, [early, late], kind="decoder")
    given = {"kind": "decoder", "layer": 0}
    assert find_start(record, every_head(record)) == {**given, "head": 0, "pin": 1}
    assert find_start(record, every_head(record), 2) == {**given, "head": 1, "pin": 3}
    page = render_page(record, writing={"first": 3, "steps": []})
    assert facts_of(page.html)["start"] == {**given, "head": 1, "pin": 3}


@pytest.mark.parametrize(("last", "wanted"), [((0, 0, 0, 1), [0.2, 0.5]), ((0, 0, 0, 0), [0.2, np.nan])])
def test_far_links_are_the_largest_weights_that_count(last: tuple[int, ...], wanted: list[float]) -> None:
    weights = np.array([[0.1, 0.6, 0.2, 0.1], [0.0, 0.2, 0.3, 0.5]])
    far = np.array([(0, 0, 1, 1), last], bool)
    assert far_links(weights, far) == pytest.approx(wanted, nan_ok=True)
