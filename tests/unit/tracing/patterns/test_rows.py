"""What rows give to patterns, and what they would give without one, against loops in float64."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.core import AttentionInputs, Causal, DenseBias, Padding, Predicate, Window
from regard.text import Encoding, Token
from regard.tracing import (
    Alignment,
    Broadcast,
    DelimiterSink,
    DuplicateToken,
    HeadPattern,
    Induction,
    Offset,
    Sides,
    default_patterns,
    trace_ids,
    trace_text,
)
from regard.tracing.patterns._rows import Rows, TextPatterns, look_at_mask, measure, same_view
from regard.tracing.record import is_punctuation
from tolerances import WEIGHTS
from unit.tracing.conftest import make_loaded, make_tokenizer

HEADS, QUERIES = 3, 11
TEXT = "the bank. the river, by the money"
"""Tokens: [CLS] the bank . the river [UNK] by the money [SEP]; the comma is unknown to the tokenizer."""

TOKENS = make_tokenizer().encode(TEXT).tokens
TARGET = make_tokenizer().encode("money by the bank").tokens[1:]


def record(queries: int = QUERIES, keys: int = QUERIES, **fields: Any) -> AttentionInputs:
    torch.manual_seed(queries + keys)
    q = torch.randn(1, HEADS, queries, 5) * 2
    k = torch.randn(1, 1, keys, 5)  # grouped: the heads share keys
    return AttentionInputs(q=q, k=k, v=k, **fields)


MASKS: dict[str, dict[str, Any]] = {
    "all": {},
    "causal": {"mask": Causal()},
    "window": {"mask": Causal() & Window(left=3)},
    "padding": {"mask": Padding(torch.arange(QUERIES)[None] != 5)},
    "of heads": {"mask": Predicate(lambda q, k: (k - q + torch.arange(HEADS)[None, :, None, None]) % 4 != 0)},
    "bias": {"bias": DenseBias(torch.randn(1, HEADS, QUERIES, QUERIES))},
    "hidden by a bias": {
        "bias": DenseBias(
            torch.zeros(QUERIES, QUERIES).masked_fill(torch.ones(11, 11).triu(1) > 0, -65504.0)[None, None]
        )
    },
    "sinks": {"sinks": torch.tensor([0.5, -1.0, 2.0]), "mask": Causal()},
    "cap": {"softcap": 2.0, "scale": 0.7},
}


@lru_cache
def weights_of(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    """float64 (heads, queries, keys), and which may be seen, by the definition."""
    queries, keys = torch.arange(inputs.q_len), torch.arange(inputs.k_len)
    scores = inputs.q[0].double() @ inputs.k[0].double().mT * inputs.factor
    if inputs.softcap is not None:
        scores = inputs.softcap * torch.tanh(scores / inputs.softcap)
    allowed = torch.ones(scores.shape, dtype=torch.bool)
    if inputs.bias is not None:
        assert isinstance(inputs.bias, DenseBias)
        scores = scores + inputs.bias.values[0].double()
        allowed = allowed & (inputs.bias.values[0] > -60000)
    if inputs.mask is not None:
        allowed = allowed & inputs.mask.block(queries, keys)[0]
    scores = scores.masked_fill(~allowed, -torch.inf)
    if inputs.sinks is not None:
        scores = torch.cat([scores, inputs.sinks.double()[:, None, None].expand(-1, inputs.q_len, 1)], dim=2)
    return scores.softmax(dim=2)[..., : inputs.k_len].nan_to_num(), allowed


def keys_by_definition(pattern: HeadPattern, sides: Sides, query: int) -> list[int]:
    """The pattern's keys of a query, for patterns with rows of their own and for the sink."""
    tokens, keys = sides.queries, sides.keys
    same = [at for at, key in enumerate(keys) if key.text == tokens[query].text and not tokens[query].special]
    if sides.kind == "decoder":
        same = [at for at in same if at < query]
    elif sides.kind == "encoder":
        same = [at for at in same if at != query]
    match pattern:
        case Offset(offset):
            return [query + offset] if 0 <= query + offset < len(keys) else []
        case DuplicateToken():
            return same
        case Induction():
            return [
                at + 1 for at in same if at + 1 < len(keys) and (sides.kind == "cross" or at + 1 != query)
            ]
        case DelimiterSink():
            return [
                at
                for at, key in enumerate(keys)
                if key.special or key.surface in ".," or (at == 0 and sides.kind == "decoder")
            ]
        case Alignment():
            middle = round(query * (len(keys) - 1) / (len(tokens) - 1))
            return [at for at in (middle - 1, middle, middle + 1) if 0 <= at < len(keys)]
    raise AssertionError(pattern)


def by_loops(
    inputs: AttentionInputs, sides: Sides, pattern: HeadPattern, head: int, query: int
) -> list[float] | None:
    """mass, even, habit; None where the row says nothing."""
    weights, allowed = weights_of(inputs)
    row, sees = weights[head], allowed[head]
    wanted = keys_by_definition(pattern, sides, query)
    if sides.queries[query].special or (
        isinstance(pattern, DelimiterSink) and sides.kind != "cross" and query in wanted
    ):
        return None
    wanted = [key for key in wanted if sees[query, key]]
    visible = int(sees[query].sum())
    if not 0 < len(wanted) < visible:
        return None
    even = len(wanted) / visible
    habit = 0.0
    for key in wanted:
        others = [at for at in range(inputs.q_len) if at != query and sees[at, key]]
        habit += sum(float(row[at, key]) for at in others) / len(others) if others else 1 / visible
    mass = sum(float(row[query, key]) for key in wanted)
    return [mass, even, even if isinstance(pattern, DelimiterSink) else habit]


def measured(inputs: AttentionInputs, sides: Sides, patterns: Sequence[HeadPattern]) -> Rows:
    asked = TextPatterns.of_text(sides, patterns)
    return measure(inputs, asked, look_at_mask(inputs, asked))


def check(inputs: AttentionInputs, sides: Sides, patterns: Sequence[HeadPattern]) -> None:
    rows, counted = measured(inputs, sides, patterns), 0
    for number, pattern in enumerate(patterns):
        for head in range(HEADS):
            of_best: list[float] = []
            for query in range(inputs.q_len):
                expected = by_loops(inputs, sides, pattern, head, query)
                at = (head, query, number)
                assert bool(rows.counted[at]) == (expected is not None), (pattern, at)
                if expected is not None:
                    counted += 1
                    found = [float(each[at]) for each in (rows.mass, rows.even, rows.habit)]
                    assert found == pytest.approx(expected, abs=WEIGHTS), (pattern, at)
                    of_best.append(expected[0])
            for rank, mass in enumerate(sorted(of_best, reverse=True)[:3]):
                query = int(rows.best_query[head, number, rank])
                assert float(rows.mass[head, query, number]) == pytest.approx(mass, abs=WEIGHTS)
                if not isinstance(pattern, DelimiterSink):
                    wanted = keys_by_definition(pattern, sides, query)
                    row, sees = (each[head, query] for each in weights_of(inputs))
                    best = max((key for key in wanted if sees[key]), key=lambda key: float(row[key]))
                    assert int(rows.best_key[head, number, rank]) == best
    assert counted > 100


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_rows_of_one_sequence(name: str, kind: Any) -> None:
    sides = Sides(kind=kind, queries=TOKENS, keys=TOKENS)
    check(
        record(**MASKS[name]),
        sides,
        [each for each in default_patterns(kind) if not isinstance(each, Broadcast)],
    )


def test_rows_of_cross_attention() -> None:
    sides = Sides(kind="cross", queries=TARGET, keys=TOKENS)
    patterns = [each for each in default_patterns("cross") if not isinstance(each, Broadcast)]
    rows = measured(record(len(TARGET), QUERIES), sides, patterns)
    inputs = record(len(TARGET), QUERIES)
    for number, pattern in enumerate(patterns):
        for query in range(len(TARGET)):
            expected = by_loops(inputs, sides, pattern, 1, query)
            assert bool(rows.counted[1, query, number]) == (expected is not None)
            if expected is not None:
                found = [float(each[1, query, number]) for each in (rows.mass, rows.even, rows.habit)]
                assert found == pytest.approx(expected, abs=WEIGHTS)
    assert float(rows.counted.sum()) > 0


@pytest.mark.parametrize("name", ["all", "causal"])
def test_broadcast_is_chosen_by_half_and_measured_on_the_other(name: str) -> None:
    inputs = record(**MASKS[name])
    sides = Sides(kind="encoder", queries=TOKENS, keys=TOKENS)
    rows = measured(inputs, sides, [DelimiterSink(), Broadcast(2)])
    weights, allowed = weights_of(inputs)
    # "the" three times, bank, river, [UNK] (a comma, and so a delimiter), by, money
    plain = [at for at, token in enumerate(TOKENS) if token.surface not in (".", ",") and not token.special]
    assert plain == [1, 2, 4, 5, 7, 8, 9]
    for head in range(HEADS):
        by_even = {key: float(weights[head, 0::2, key].sum()) for key in plain}
        chosen = sorted(plain, key=by_even.__getitem__, reverse=True)[:2]
        for query in range(QUERIES):
            seen = [key for key in chosen if allowed[head, query, key]]
            counts = query % 2 == 1 and not TOKENS[query].special and query not in chosen and bool(seen)
            counts = counts and len(seen) < int(allowed[head, query].sum())
            assert bool(rows.counted[head, query, 1]) == counts
            if counts:
                mass = float(weights[head, query, chosen].sum())
                assert float(rows.mass[head, query, 1]) == pytest.approx(mass, abs=WEIGHTS)
                even = len(seen) / int(allowed[head, query].sum())
                assert (
                    float(rows.even[head, query, 1])
                    == float(rows.habit[head, query, 1])
                    == pytest.approx(even)
                )
        if int(rows.best_query[head, 1, 0]) >= 0:
            assert int(rows.best_key[head, 1, 0]) == chosen[0]
    assert rows.asked.tolist() == [7, 5]


def test_parts_of_the_sink_add_up() -> None:
    inputs = record()
    rows = measured(inputs, Sides(kind="encoder", queries=TOKENS, keys=TOKENS), [DelimiterSink()])
    weights, _ = weights_of(inputs)
    asked = [1, 2, 4, 5, 7, 8, 9]
    for part, keys in enumerate(([0], [10], [3, 6])):
        expected = weights[:, asked][..., keys].sum(dim=(1, 2)).float()
        assert torch.allclose(rows.parts[:, part], expected, rtol=0, atol=10 * WEIGHTS)


def test_one_query_alone() -> None:
    tokens = Encoding.from_ids([7]).tokens
    one = record(1, 1)
    rows = measured(one, Sides(kind="encoder", queries=tokens, keys=tokens), default_patterns("encoder"))
    assert not rows.counted.any()


def test_a_text_of_delimiters_alone() -> None:
    tokens = make_tokenizer().encode("...").tokens
    sides = Sides(kind="encoder", queries=tokens, keys=tokens)
    rows = measured(record(5, 5), sides, default_patterns("encoder"))
    assert rows.counted[..., -2:].sum() == 0  # neither a sink nor a broadcast has queries
    assert rows.counted.sum() > 0


def test_nearest_occurrences_only() -> None:
    tokens = Encoding.from_ids([5] * 23).tokens
    earlier = DuplicateToken().places(Sides(kind="decoder", queries=tokens, keys=tokens))[22]
    assert sorted(earlier.tolist()) == list(range(14, 22))
    around = DuplicateToken().places(Sides(kind="encoder", queries=tokens, keys=tokens))[11]
    assert sorted(around.tolist()) == [7, 8, 9, 10, 12, 13, 14, 15]
    after = Induction().places(Sides(kind="decoder", queries=tokens, keys=tokens))[22]
    assert sorted(after.tolist()) == list(range(15, 22))  # a token does not come after itself


def test_layers_share_a_look_at_the_mask() -> None:
    assert same_view(record(mask=Causal()), record(mask=Causal()))
    assert not same_view(record(mask=Causal()), record(mask=Causal() & Window(left=3)))
    assert not same_view(record(), record(mask=Causal()))
    assert not same_view(record(**MASKS["bias"]), record(bias=DenseBias(torch.zeros(1, 1, 11, 11))))
    assert same_view(record(**MASKS["bias"]), record(**MASKS["bias"]))


def test_punctuation() -> None:
    [token] = Encoding.from_ids([7]).tokens

    def shows(surface: str) -> Token:
        return replace(token, surface=surface)

    assert all(is_punctuation(shows(each), ()) for each in (".", "...", "—", " ,", "।"))
    assert not any(is_punctuation(shows(each), ()) for each in ("a.", "", " ", "+", "7", "␣", "it's"))
    assert not is_punctuation(replace(token, surface=".", special=True), ())


def test_a_sink_is_what_the_statistics_call_punctuation() -> None:
    """A mark within a word is of the word; ids without a text show their pieces."""
    loaded = make_loaded()
    for trace, marks in (
        (trace_text(loaded, "the fish.bank by the river."), [8]),
        (trace_text(loaded, "the river . bank ."), [3, 5]),
        (trace_ids(loaded, [2, 4, 11, 7, 3]), [2]),
    ):
        part = DelimiterSink().parts(Sides.of_trace(trace, "encoder"))["punctuation"]
        assert part.nonzero()[:, 0].tolist() == marks, trace.tokens
        wanted = trace.weights(1)[..., marks].sum(dim=2)
        assert (trace.statistics().to_punctuation[1] - wanted).abs().max() < WEIGHTS
