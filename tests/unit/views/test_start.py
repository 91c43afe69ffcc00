"""What a page opens on: worked by hand on a few weights."""

import json
import re
from dataclasses import replace
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
    Subject,
    every_head,
    find_start,
    render_page,
)
from regard.views._assets import read
from regard.views._records import HeldHeads
from regard.views._start import own_links
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
    arrays = (np.array(each, np.float32) for each in layers)
    given = tuple(LayerRecord.of_weights(place, array) for place, array in enumerate(arrays))
    return AttentionRecord(
        model="m",
        encoder=of_keys or (side if kind == "encoder" else None),
        decoder=side if kind != "encoder" else None,
        layers={kind: given},
    )


def _links(count: int, *links: tuple[int, int, float]) -> Any:
    """A head with these weights, (query, key, weight), and what is left on the first token."""
    head = np.zeros((count, count))
    for query, key, weight in links:
        head[query, key] = weight
    head[:, 0] += 1 - head.sum(axis=1)
    return head


def _start(head: int, pin: int, key: int, **more: Any) -> dict[str, Any]:
    return {"kind": "encoder", "layer": 0, "head": head, "pin": pin, "key": key} | more


SENTENCE = _side("[CLS]", "river", "of", "deep", ",", "bank", "[SEP]")
# Loud where it does not count: on special tokens, on punctuation, between neighbours and of function words.
LOUD = _links(7, (1, 0, 0.9), (3, 4, 0.9), (2, 5, 0.9), (5, 2, 0.9), (1, 3, 0.05))
# To one word that all look at: no link of any of them.
SHARED = _links(7, *((query, 5, 0.9) for query in (0, 1, 2, 3, 4, 6)))
FAR = _links(7, (1, 5, 0.3), (5, 1, 0.1), (5, 3, 0.6))


@pytest.mark.parametrize(
    ("side", "heads", "wanted"),
    [
        (SENTENCE, [LOUD, SHARED, FAR], _start(2, 5, 3)),
        (SENTENCE, [LOUD, SHARED], _start(0, 1, 3)),
        # a word in pieces is a word: the mean of its rows, the sum of what goes to it
        (
            _side("[CLS]", "un", "cut", "s", "of", "grass", words=(None, 0, 0, 0, 1, 2)),
            [_links(6, (1, 3, 0.9), (3, 1, 0.9)), _links(6, (5, 2, 0.2), (5, 3, 0.2))],
            _start(1, 5, 1, units="words"),
        ),
        # two words, side by side
        (_side("[CLS]", "river", "bank"), [_links(3, (1, 1, 0.9)), _links(3, (2, 1, 0.4))], _start(1, 2, 1)),
        # nothing but function words, and then no word at all
        (_side("[CLS]", "of", "a", "."), [_links(4, (1, 3, 0.9)), _links(4, (2, 1, 0.3))], _start(1, 2, 1)),
        (
            _side("[CLS]", "!", "?", "[SEP]"),
            [_links(4, (1, 0, 0.9)), _links(4, (1, 2, 0.2))],
            _start(1, 1, 2),
        ),
        # one word: itself
        (_side("[CLS]", "bank", "[SEP]"), [_links(3, (1, 2, 0.9)), _links(3, (1, 1, 0.5))], _start(1, 1, 1)),
        # nothing but special tokens
        (_side("[CLS]", "[SEP]"), [_links(2, (0, 1, 0.9)), _links(2)], _start(0, 1, 0)),
    ],
)
def test_opens_on_the_link_that_is_most_its_own(side: Side, heads: Any, wanted: dict[str, Any]) -> None:
    record = _record(side, np.stack(heads))
    assert find_start(record, every_head(record)) == wanted
    # whatever comes first
    turned = _record(side, np.stack(heads[::-1]))
    assert find_start(turned, every_head(turned)) == wanted | {"head": len(heads) - 1 - wanted["head"]}
    assert facts_of(render_page(record))["start"] == wanted


def test_a_head_that_looks_by_place_counts_less() -> None:
    named = [[{"name": "previous", "effect": 0.5}], [{"name": "duplicate token", "effect": 0.9}]]
    record = _record(SENTENCE, np.stack([_links(7, (5, 3, 0.6)), _links(7, (5, 1, 0.5))]))
    assert find_start(record, every_head(record)) == _start(0, 5, 3)
    record = replace(record, names={"said": "", "patterns": [], "kinds": {"encoder": [named]}})
    assert find_start(record, every_head(record)) == _start(1, 5, 1)


def test_a_ready_sentence_opens_on_the_word_that_it_is_about() -> None:
    ready = {each["text"]: each for each in json.loads(read("ready.json"))}
    trophy, bank, *_ = ready
    words = _side("[CLS]", *re.findall(r"\w+|\.", bank), "[SEP]")  # walked is 2, river 5, bank 6
    heads = [_links(9, (5, 2, 0.9), (6, 0, 0.9)), _links(9, (6, 2, 0.3)), _links(9, (2, 6, 0.8))]
    for side, wanted in ((words, _start(0, 5, 2)), (replace(words, text=bank), _start(1, 6, 2))):
        record = _record(side, np.stack(heads))
        assert find_start(record, every_head(record)) == wanted
    # Among some words alone: "it" at trophy or at suitcase, however strong another link is.
    words = replace(_side("[CLS]", *re.findall(r"\w+|\.", trophy), "[SEP]"), text=trophy)
    heads = [
        _links(16, (10, 13, 0.9)),
        _links(16, (10, 2, 0.2)),
        _links(16, (2, 8, 0.9)),
    ]  # it, big; it, trophy
    record = _record(words, np.stack(heads))
    assert find_start(record, every_head(record)) == _start(1, 10, 2)


def test_every_ready_sentence_has_its_words() -> None:
    for each in json.loads(read("ready.json")):
        for text in (each["text"], each.get("other", each["text"])):
            words = re.findall(r"\w+", text)
            assert words.count(each["about"]) == 1
            assert {*each.get("among", ())} <= {*words}


def test_of_a_long_text_the_first_words_count() -> None:
    side = _side(*(f"word{place}" for place in range(80)))
    late, early = _links(80, (70, 60, 0.9), (5, 60, 0.9)), _links(80, (40, 30, 0.4))
    record = _record(side, np.stack([late, early]))
    assert find_start(record, every_head(record)) == _start(1, 40, 30)


def test_is_among_the_heads_that_are_held() -> None:
    record = _record(SENTENCE, np.stack([FAR, LOUD]), np.stack([SHARED, FAR]))
    held = HeldHeads(heads={("encoder", 0): (1,), ("encoder", 1): (0, 1)}, every=False)
    assert find_start(record, held) == _start(1, 5, 3) | {"layer": 1}


def test_a_decoder_s_and_another_text_s_keys_count_as_the_kind_has_them() -> None:
    # The last word is the only one that sees itself: that is no more than others give.
    causal = np.stack([_links(4, (3, 3, 0.9)), _links(4, (1, 1, 0.1), (2, 1, 0.1), (3, 1, 0.4))])
    record = _record(_side("[BOS]", "deep", "river", "bank"), causal, kind="decoder")
    assert find_start(record, every_head(record)) == _start(1, 3, 1) | {"kind": "decoder"}
    # Attention rests on a decoder's first word: that is a link where there is no other.
    rests = np.stack([_links(4, (1, 1, 1.0), (2, 2, 1.0), (3, 0, 0.9)), _links(4, (3, 1, 0.2))])
    record = _record(_side("Write", "deep", "river", "bank"), rests, kind="decoder")
    assert find_start(record, every_head(record)) == _start(1, 3, 1) | {"kind": "decoder"}
    record = _record(_side("river", "bank"), [_links(2)], kind="decoder")
    assert find_start(record, every_head(record)) == _start(0, 1, 0) | {"kind": "decoder"}
    # Across texts no distance counts: the key at the query's own place is as far as any.
    crossed = np.array([[[0.1, 0.9], [0.3, 0.7]], [[0.8, 0.2], [0.1, 0.9]]])
    record = _record(_side("Fluss", "Bank"), crossed, kind="cross", of_keys=_side("river", "[SEP]"))
    assert find_start(record, every_head(record)) == _start(1, 0, 0) | {"kind": "cross"}


def test_each_kind_has_a_start_of_its_own() -> None:
    heads = {
        "encoder": [_links(4), _links(4, (3, 1, 0.4))],
        "decoder": [_links(3, (1, 1, 0.1), (2, 1, 0.95))],  # next to each other
        "cross": [np.array([[0.8, 0.1, 0.1, 0], [0.1, 0.9, 0, 0], [0.1, 0, 0.1, 0.8]])],
    }
    layers = {kind: (LayerRecord.of_weights(0, np.stack(each)),) for kind, each in heads.items()}
    sides = {"encoder": _side("[CLS]", "deep", "river", "bank"), "decoder": _side("[BOS]", "Fluss", "Bank")}
    record = AttentionRecord(model="m", **sides, layers=layers)
    encoder, decoder, cross = (
        _start(head, pin, key) | {"kind": kind}
        for kind, head, pin, key in (("encoder", 1, 3, 1), ("decoder", 0, 2, 1), ("cross", 0, 1, 1))
    )
    assert find_start(record, every_head(record)) == cross | {"others": [encoder, decoder]}


def test_two_runs_open_on_the_head_and_the_word_that_differ_most() -> None:
    one = _record(_side("a", "river", "bank"), np.stack([_links(3), _links(3)]))
    other = _record(
        _side("a", "deep", "river", "bank"), np.stack([_links(4, (3, 2, 0.2)), _links(4, (3, 2, 0.9))])
    )
    pairs = ((0, 0), (1, 2), (2, 3))
    of_kind = {"queries": pairs, "keys": pairs, "divergence": [[0.1, 0.4]]}
    page: Page = render_page(one, other, subject=Subject("compared", {"kinds": {"encoder": of_kind}}))
    # As both are shown together: a, deep, river, bank.
    assert facts_of(page)["start"] == {"kind": "encoder", "layer": 0, "head": 1, "pin": 3}


def test_of_a_text_that_was_written_the_rows_that_wrote_it_count() -> None:
    """The first two words were given: the row of "bank" is the first that wrote."""
    side = _side("[BOS]", "sea", "river", "bank", "lies", "deep")
    early, late = _links(6, (3, 1, 0.9), (4, 1, 0.3)), _links(6, (4, 2, 0.6), (5, 1, 0.2))
    record = _record(side, [early, late], kind="decoder")
    given = {"kind": "decoder"}
    assert find_start(record, every_head(record)) == _start(0, 3, 1) | given
    assert find_start(record, every_head(record), 4) == _start(1, 4, 2) | given
    page = render_page(record, subject=Subject("writing", {"first": 5, "steps": []}))
    assert facts_of(page.html)["start"] == _start(1, 4, 2) | given


def test_links_are_what_is_more_than_others_give() -> None:
    weights = np.array([[0.25, 0.75, 0.0], [0.75, 0.25, 0.0], [0.0, 0.5, 0.5]])
    every, far, counts = np.ones((3, 3), bool), ~np.eye(3, dtype=bool), np.ones(3, bool)
    wanted = [[-np.inf, 0.75**0.5 * 0.25, 0], [0.75**0.5 * 5 / 12, -np.inf, 0], [0, 0, -np.inf]]
    assert own_links(weights, every, far, counts) == pytest.approx(np.array(wanted))
    # The first query does not see the second key: the mean is that of the others.
    seen = np.tri(3, dtype=bool)
    assert own_links(weights, seen, far, counts)[2, 1] == pytest.approx(0.5**0.5 * (0.5 - 0.375))
    # Without the first key all give most to the second: it is a link of none of them.
    assert own_links(weights, every, far, np.array([False, True, True]))[0, 1] == 0
