"""Cards over a corpus: what is counted, the intervals, the examples, and what is refused."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import InputError
from regard.models import Loaded
from regard.tracing import KeepPolicy, Offset, heads, heads_of_trace, repeated_tokens, trace_ids, trace_text
from regard.tracing.patterns._counter import Bootstrap, Draws
from regard.tracing.patterns._rows import Rows
from tolerances import FP64, WEIGHTS
from unit.models import tiny
from unit.tracing import heads_by_hand as by_hand
from unit.tracing.conftest import HEADS, LAYERS, MAX_SEQ_LEN, make_loaded
from unit.tracing.stacks import loaded as of_network

TEXTS = [
    "the fishing bank by the river",
    "the money by the bank",
    "river bank",
    "the river by the money bank",
]


def rows_of(mass: np.ndarray, even: float = 0.25, habit: float = 0.1) -> Rows:
    """Rows of one head and one pattern, all of which count."""
    values = torch.from_numpy(mass)[None, :, None]
    nothing = torch.full((1, 1, 3), -1)
    return Rows(
        mass=values,
        even=torch.full(values.shape, even),
        habit=torch.full(values.shape, habit),
        counted=torch.ones(values.shape),
        asked=torch.tensor([2 * len(mass)]),
        parts=torch.zeros(1, 0),
        best_query=nothing,
        best_key=nothing,
    )


def test_means_and_captured_mass() -> None:
    table = Bootstrap((1, 1), Draws(resamples=50, seed=0))
    masses = [np.array([0.5, 0.7]), np.array([0.9])]
    for mass in masses:
        table.add(rows_of(mass))
    found = table.effects(np.array([0.95]))
    assert found.mass.item() == pytest.approx(0.7, abs=FP64)
    assert found.effect.item() == pytest.approx(0.7 - 0.25, abs=FP64)
    assert found.captured.item() == pytest.approx(2.1 / 6, abs=FP64)
    assert found.queries.item() == 3
    assert math.isnan(found.low.item())  # three queries tell nothing
    assert math.isnan(found.high.item())


def test_seven_queries_tell_too_little_and_eight_enough() -> None:
    """Random heads that are sharp on a text of seven tokens would otherwise get names by chance."""
    for queries in (7, 8):
        table = Bootstrap((1, 1), Draws(resamples=50, seed=0))
        table.add(rows_of(np.full(queries, 0.6)))
        assert math.isnan(table.effects(np.array([0.95])).low.item()) == (queries == 7)


def test_the_larger_of_the_two_is_taken_off() -> None:
    table = Bootstrap((1, 1), Draws(resamples=50, seed=0))
    table.add(rows_of(np.full(8, 0.6), even=0.1, habit=0.35))
    found = table.effects(np.array([0.95]))
    assert found.effect.item() == pytest.approx(0.25, abs=WEIGHTS)
    assert found.low.item() == pytest.approx(0.25, abs=WEIGHTS)


@pytest.mark.parametrize(("texts", "unit"), [(9, "query"), (10, "text")])
def test_intervals_cover_the_mean_as_often_as_they_say(texts: int, unit: str) -> None:
    """Of texts whose rows hang together, a bootstrap over texts knows how little is known."""
    rng = np.random.default_rng(7)
    covered, trials, widths = 0, 40, []
    for trial in range(trials):
        table = Bootstrap((1, 1), Draws(resamples=200, seed=trial))
        for _ in range(30 if unit == "text" else texts):
            of_text = rng.uniform(0.2, 0.8) if unit == "text" else 0.5
            table.add(rows_of(of_text + rng.uniform(-0.1, 0.1, size=13), even=0.0, habit=0.0))
        assert table.unit == unit
        found = table.effects(np.array([0.9]))
        covered += int(found.low.item() <= 0.5 <= found.high.item())
        widths.append(found.high.item() - found.low.item())
    assert 0.77 < covered / trials <= 1.0
    spread = 0.6 / math.sqrt(12 * 30) if unit == "text" else 0.2 / math.sqrt(12 * 9 * 13)
    assert np.mean(widths) == pytest.approx(2 * 1.645 * spread, rel=0.1)


def test_a_corpus_is_the_sum_of_its_texts(loaded: Loaded) -> None:
    """Pooled means, counted by hand from the tables of the single texts."""
    whole = heads(loaded, TEXTS)
    singles = [heads(loaded, text) for text in TEXTS]
    assert (whole.texts, whole.tokens, whole.refused, whole.unit) == (4, 9 + 7 + 4 + 8, 0, "query")
    assert len(whole) == LAYERS * HEADS
    for number, card in enumerate(whole.cards):
        for finding in card.findings:
            if finding.pattern == "positional stride":
                continue  # the best of fourteen, which may be another one in each text
            each = [
                next(one for one in table.cards[number].findings if one.pattern == finding.pattern)
                for table in singles
            ]
            counts = [one.queries for one in each]
            assert finding.queries == sum(counts)
            if finding.queries:
                masses = [one.mass * one.queries for one in each if one.queries]
                assert finding.mass == pytest.approx(sum(masses) / sum(counts), abs=WEIGHTS)
                assert finding.captured <= finding.mass + WEIGHTS


def test_examples_are_the_strongest_rows_of_several_texts(loaded: Loaded) -> None:
    table = heads(loaded, iter(TEXTS), patterns=lambda kind: [Offset(-1)])
    best = []
    for text in TEXTS:
        weights = trace_text(loaded, text).weights(1, 2)
        rows = range(2 if len(weights) == 2 else 1, len(weights) - 1)
        best.append(max((float(weights[row, row - 1]), row) for row in rows))
    order = sorted(range(4), key=lambda text: -best[text][0])[:3]
    card = table[1, 2]
    assert [each.text for each in card.examples] == order
    for each in card.examples:
        mass, row = best[each.text]
        assert (each.query, each.key) == (row, row - 1)
        assert each.mass == pytest.approx(mass, abs=WEIGHTS)
        assert each.tokens == tuple(
            t.surface for t in loaded.require_tokenizer().encode(TEXTS[each.text]).tokens
        )
    # A single text gives several rows.
    [one] = heads(loaded, TEXTS[0], patterns=lambda kind: [Offset(-1)], layer=1, head=2).cards
    assert [each.text for each in one.examples] == [0, 0, 0]
    masses = [each.mass for each in one.examples]
    assert masses == sorted(masses, reverse=True)
    assert len({each.query for each in one.examples}) == 3


def test_layers_and_heads_are_those_of_the_whole_table(loaded: Loaded) -> None:
    whole = heads(loaded, TEXTS)
    assert heads(loaded, TEXTS, layer=-1).cards == whole.cards[HEADS:] or _alike(
        heads(loaded, TEXTS, layer=-1).cards, whole.cards[HEADS:]
    )
    [card] = heads(loaded, TEXTS, layer=0, head=-2).cards
    assert (card.layer, card.head) == (0, 1)
    assert _alike([card], [whole[0, 1]])


def _alike(one: Any, other: Any) -> bool:
    """Equal, where NaN equals NaN."""
    return [card.to_json() for card in one] == [card.to_json() for card in other]


def test_the_same_seed_gives_the_same_table(loaded: Loaded) -> None:
    first, again, other = (heads(loaded, TEXTS, seed=seed) for seed in (3, 3, 4))
    assert first.to_json() == again.to_json()
    assert first.to_json()["cards"] != other.to_json()["cards"]


def test_a_level_widens_the_interval_and_a_threshold_unnames(loaded: Loaded) -> None:
    narrow, wide = (heads(loaded, TEXTS, level=level)[0, 0].findings for level in (0.5, 0.99))
    lows = [{one.pattern: one.low for one in each if one.queries > 15} for each in (narrow, wide)]
    assert lows[0]
    assert all(lows[1][name] < low for name, low in lows[0].items())
    ids = list(range(23))
    trace = by_hand.traced(by_hand.scored(ids, [by_hand.offset(-1)], causal=True), ids)
    assert heads_of_trace(trace, threshold=0.5).counts() == {"previous": 1}
    assert heads_of_trace(trace, threshold=0.99).counts() == {"none": 1}


def test_strides_pay_for_being_many() -> None:
    """The interval of the best of several variants is wider than that of the same one alone."""
    torch.manual_seed(0)
    ids = list(range(31))
    inputs = by_hand.scored(ids, [by_hand.uniform], causal=True)
    noisy = type(inputs)(q=torch.randn(inputs.q.shape) * 3, k=inputs.k, v=inputs.v, mask=inputs.mask)
    trace = by_hand.traced(noisy, ids)
    alone, several = (
        {
            one.name: one
            for one in heads_of_trace(trace, patterns=lambda kind, tried=tried: tried)[0, 0].findings
        }
        for tried in ([Offset(-3)], [Offset(-3), Offset(-2), Offset(-4)])
    )
    [name] = several
    single = heads_of_trace(trace, patterns=lambda kind: [Offset(int(name.split()[-1]))])[0, 0].best
    assert single.effect == several[name].effect
    assert several[name].low < single.low
    assert set(alone) == {"positional stride -3"}


def test_texts_are_read_once_and_forgotten(loaded: Loaded) -> None:
    alive: list[int] = []

    def corpus() -> Iterator[str]:
        for number in range(13):
            alive.append(number)
            yield TEXTS[number % 4]

    table = heads(loaded, corpus())
    assert alive == list(range(13))
    assert (table.texts, table.unit) == (13, "text")
    assert all(card.examples[0].text < 4 for card in table.cards)  # the first of equal ones


def test_texts_that_the_model_cannot_take(loaded: Loaded) -> None:
    long = "bank " * MAX_SEQ_LEN
    with pytest.raises(InputError, match=r"^texts\[1\]: text has 21 tokens .* takes at most 19"):
        heads(loaded, ["river bank", long])
    with pytest.raises(InputError, match=r"^text has 21 tokens"):
        heads(loaded, long)
    told: list[tuple[int, str]] = []
    table = heads(
        loaded, ["river bank", long, "", "the bank"], on_refused=lambda n, e: told.append((n, str(e)))
    )
    assert (table.texts, table.refused) == (2, 2)
    assert [number for number, _ in told] == [1, 2]
    assert "takes at most 19" in told[0][1]
    assert "text is empty" in told[1][1]
    with pytest.raises(
        InputError, match="at least one that the model can take; 1 were passed over, the first because text"
    ):
        heads(loaded, [long], on_refused=lambda n, e: None)
    with pytest.raises(InputError, match=r"at least one that the model can take; got none\."):
        heads(loaded, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": [3, 4]}, "texts must be texts, or sequences of token ids"),
        ({"threshold": 1.0}, r"threshold must be from 0 to below 1; got 1\.0"),
        ({"level": 1.0}, "level must be between 0 and 1"),
        ({"level": 0.999}, r"resamples must be at least 2000 for intervals of 0\.999; got 400"),
        ({"layer": LAYERS}, "layer must be from 0 to 1"),
        ({"head": HEADS}, "head must be from 0 to 2, or negative to count from the end; got 3"),
        ({"kind": "decoder"}, 'kind must be "encoder"'),
        ({"patterns": lambda _: []}, "patterns must give a list of patterns of kind .encoder., at least one"),
        ({"targets": ["the bank"]}, "target must be None: this model has no decoder"),
        ({"targets": []}, "targets must be one for each text; targets ended after 0"),
    ],
)
def test_what_is_refused(loaded: Loaded, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        heads(loaded, **{"texts": ["river bank"]} | arguments)


@pytest.fixture(scope="module")
def both() -> Loaded:
    torch.manual_seed(7)
    return of_network(tiny.both().float())


def test_a_trace_without_attention(loaded: Loaded) -> None:
    trace = trace_text(loaded, "the fishing bank", keeping=KeepPolicy(keep="residual"))
    with pytest.raises(InputError, match=r'attention layer 0 is not in this trace: .*keep="residual"'):
        heads_of_trace(trace)


def test_an_encoder_decoder(both: Loaded) -> None:
    ids, targets = [[3, 1, 4, 1, 5, 9, 2], [2, 6, 5, 3]], [[4, 7, 1, 8, 2], [4, 5, 1]]
    alone = heads(both, ids)
    assert {card.kind for card in alone.cards} == {"encoder"}
    table = heads(both, ids, targets=targets)
    assert [sum(card.kind == kind for card in table.cards) for kind in ("encoder", "decoder", "cross")] == [
        6,
        15,
        15,
    ]
    assert table.tokens == 11 + 8
    assert _alike([card for card in table.cards if card.kind == "encoder"], alone.cards)
    names = {finding.pattern for card in table.cards if card.kind == "cross" for finding in card.findings}
    assert names == {"alignment", "induction", "duplicate token", "delimiter sink", "broadcast"}
    assert len(heads(both, ids, targets=targets, kind="cross", layer=1, head=4)) == 1
    for kind in ("decoder", "cross"):
        with pytest.raises(InputError, match=f'targets must be given for kind="{kind}"'):
            heads(both, ids, kind=kind)
    with pytest.raises(InputError, match="texts ended after 2"):
        heads(both, ids, targets=[*targets, [4]])


def test_a_layer_that_only_the_decoder_has(both: Loaded) -> None:
    """A table of some kinds would look like one of all: the kind has to be said."""
    ids, target = [3, 1, 4, 1, 5, 9, 2], [4, 7, 1, 8, 2]
    trace = trace_ids(both, ids, target, keeping=KeepPolicy(keep="qk", layers=[2]))
    with pytest.raises(InputError, match=r'^kind must be "decoder" or "cross": "encoder" has none of'):
        heads_of_trace(trace)
    for table in (heads_of_trace(trace, kind="cross"), heads(both, [ids], targets=[target], kind="cross")):
        assert {card.layer for card in table.cards} == ({2} if len(table) == 5 else {0, 1, 2})
    for chosen, message in (
        ({"layer": 2}, r'^kind must be "decoder" or "cross": "encoder" has no layer 2\.$'),
        ({"layer": 3, "kind": "decoder"}, r"layer must be from 0 to 2, .*; got 3"),
        ({"layer": 9}, r"layer must be from 0 to 1, .*; got 9"),
    ):
        with pytest.raises(InputError, match=message):
            heads(both, [ids], targets=[target], **chosen)  # type: ignore[arg-type]


def test_hand_made_cross_heads() -> None:
    source, target = list(range(31)), [30, *range(7, 23)]
    same = by_hand.scored(target, [by_hand.uniform], causal=False, keys=source)
    q = torch.zeros(1, 3, len(target), len(source))
    for query, token in enumerate(target):
        q[0, 0, query, token] = by_hand.SHARP
        q[0, 1, query, min(token + 1, 30)] = by_hand.SHARP
        q[0, 2, query, round(query * 30 / 16)] = by_hand.SHARP
    inputs = type(same)(q=q, k=same.k.expand(1, 3, 31, 31), v=same.v.expand(1, 3, 31, 31), scale=1.0)
    trace = by_hand.traced(inputs, source, "cross", target)
    table = heads_of_trace(trace, kind="cross")
    assert [card.pattern for card in table.cards] == ["duplicate token", "induction", "alignment"]
    assert {
        card.pattern
        for card in heads_of_trace(
            by_hand.traced(by_hand.shuffled(inputs), source, "cross", target), kind="cross"
        ).cards
    } == {"none"}


def test_repeated_tokens() -> None:
    loaded = make_loaded(max_seq_len=43)
    found = list(repeated_tokens(loaded, 7, length=17, seed=5))
    assert len({len(ids) for ids in found}) > 1  # a copy is not always equally far back
    for ids in found:
        assert (ids[0], ids[-1]) == (2, 3)
        half = (len(ids) - 2) // 2
        assert ids[1 : half + 1] == ids[half + 1 : -1]
        assert 12 <= half <= 17
        assert not set(ids[1:-1]) & {0, 1, 2, 3}
    assert found == list(repeated_tokens(loaded, 7, length=17, seed=5))
    assert found != list(repeated_tokens(loaded, 7, length=17, seed=6))
    assert max(len(ids) for ids in repeated_tokens(make_loaded(), 5)) <= MAX_SEQ_LEN
    assert heads(loaded, found).texts == 7
    with pytest.raises(InputError, match="count must be a whole number, at least 1; got 0"):
        repeated_tokens(loaded, 0)
    with pytest.raises(InputError, match=r"the model must take at least 8 tokens beside .*; tiny takes 9"):
        repeated_tokens(make_loaded(max_seq_len=9), 1)
