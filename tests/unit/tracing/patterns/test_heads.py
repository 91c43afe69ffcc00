"""Heads whose pattern is known, by hand-made scores or weights, are named; shuffled ones are not."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.core import Causal
from regard.models import Loaded
from regard.models.families import gpt2, llama
from regard.models.families.bert import BertConfig
from regard.models.families.bert import build as build_bert
from regard.positions import Rotary
from regard.tracing import HeadCard, heads, heads_of_trace
from regard.tracing.patterns import query_draws
from tolerances import WEIGHTS
from unit.models import tiny
from unit.tracing import heads_by_hand as by_hand
from unit.tracing.heads_by_hand import scored, shuffled, traced


def repeated(length: int, vocabulary: int, seed: int = 0) -> list[int]:
    """Random tokens, twice."""
    generator = torch.Generator().manual_seed(seed)
    once: list[int] = torch.randperm(vocabulary, generator=generator)[:length].tolist()
    return once * 2


IDS = repeated(17, 29)


def cards(
    rules: Sequence[by_hand.Wanted], *, kind: Any = "decoder", ids: Sequence[int] = IDS
) -> list[HeadCard]:
    inputs = scored(ids, rules, causal=kind == "decoder")
    return list(heads_of_trace(traced(inputs, ids, kind)).cards)


RULES = {
    "previous": by_hand.offset(-1),
    "self": by_hand.offset(0),
    "positional stride": by_hand.offset(-3),
    "induction": by_hand.induction,
    "duplicate token": by_hand.duplicate,
    "delimiter sink": by_hand.sink,
    "broadcast": by_hand.shared(3),
}


def test_hand_made_decoder_heads_are_named() -> None:
    found = cards(list(RULES.values()))
    assert [card.pattern for card in found] == list(RULES)
    for card in found:
        assert card.best.effect > 0.6
        assert card.best.low > 0.4
        assert card.best.mass > 0.99
        assert card.best.low <= card.best.effect <= card.best.high
    assert found[2].best.name == "positional stride -3"
    assert found[5].best.name == "delimiter sink first word"


def test_hand_made_encoder_heads_are_named() -> None:
    rules = {"next": by_hand.offset(1), "positional stride": by_hand.offset(4)} | {
        name: RULES[name] for name in ("previous", "self", "broadcast")
    }
    found = cards(list(rules.values()), kind="encoder")
    assert [card.pattern for card in found] == list(rules)
    assert found[1].best.detail == "+4"


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_keys_leave_none(seed: int) -> None:
    names = ("previous", "induction", "duplicate token", "self", "positional stride")
    ids = IDS
    for kind in ("decoder", "encoder"):
        inputs = shuffled(scored(ids, [RULES[name] for name in names], causal=kind == "decoder"), seed)
        table = heads_of_trace(traced(inputs, ids, kind))
        assert [card.pattern for card in table.cards] == ["none"] * len(names)


def test_a_uniform_head_has_no_pattern() -> None:
    for kind in ("decoder", "encoder"):
        [card] = cards([by_hand.uniform], kind=kind)
        assert card.pattern == "none"
        # It attends evenly, and of the two heads without a pattern that is one.
        assert all(math.isnan(each.effect) or each.effect < WEIGHTS for each in card.findings)


@pytest.mark.parametrize("seed", range(3))
def test_random_sharp_heads_have_no_pattern(seed: int) -> None:
    """Each row attends to a few keys of its own, drawn by chance: the hardest of heads without a pattern."""
    torch.manual_seed(seed)
    count, num_heads = 41, 23
    ids = torch.randint(0, 19, (count,)).tolist()
    inputs = scored(ids, [by_hand.uniform] * num_heads, causal=True)
    inputs = replace(inputs, q=torch.randn(inputs.q.shape) * 4.0)
    for kind, mask in (("decoder", Causal()), ("encoder", None)):
        table = heads_of_trace(traced(replace(inputs, mask=mask), ids, kind))
        assert {card.pattern for card in table.cards} == {"none"}


def test_heads_of_a_random_model_have_no_pattern() -> None:
    config = gpt2.Gpt2Config(vocab_size=31, d_model=30, num_layers=3, num_heads=5, d_ff=7, max_seq_len=37)
    torch.manual_seed(0)
    loaded = tiny.loaded(gpt2.build(config).eval())
    table = heads(loaded, [torch.randint(0, 31, (37,)).tolist() for _ in range(3)])
    assert table.counts() == {"none": 15}


VOCAB, POSITIONS = 19, 37
SLOTS = VOCAB + POSITIONS
"""Tokens, then positions, as ones and zeros; further on, the previous token, which layer 0 writes."""


def hand_made_gpt2() -> Loaded:
    """A GPT-2 of two layers whose circuit copies: previous token, then induction (Olsson et al. 2022)."""
    config = gpt2.Gpt2Config(
        vocab_size=VOCAB,
        d_model=3 * SLOTS,
        num_layers=2,
        num_heads=3,
        d_ff=1,
        max_seq_len=POSITIONS,
        scale_by_head_dim=False,
        head=None,
    )
    network = gpt2.build(config)
    token, position, before = slice(0, VOCAB), slice(VOCAB, SLOTS), slice(SLOTS, SLOTS + VOCAB)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "norm" not in name:
                parameter.zero_()
        stack = network.stack("decoder")
        stack.embeddings.tokens.weight[:, token] = torch.eye(VOCAB)
        stack.embeddings.positions.weight[:, position] = torch.eye(POSITIONS)
        first, second = (layer.attention for layer in stack.layers)
        rows = [slice(head * SLOTS, (head + 1) * SLOTS) for head in range(3)]

        def set_(weight: torch.Tensor, row: slice, to: slice, of: slice, value: torch.Tensor) -> None:
            weight[row][to, of] = value

        # Head 0 of layer 0: the query at i asks for key i - 1, and copies its token to `before`.
        set_(first.q.weight, rows[0], position, position, torch.eye(POSITIONS))
        set_(first.k.weight, rows[0], position, position, torch.eye(POSITIONS).roll(1, 0))
        first.k.weight[rows[0]][VOCAB, SLOTS - 1] = 0.0
        set_(first.v.weight, rows[0], token, token, torch.eye(VOCAB))
        first.output.weight[before, rows[0]] = torch.eye(SLOTS)[token]
        # Head 1 of layer 0: the same token, at another position.
        set_(first.q.weight, rows[1], token, token, torch.eye(VOCAB))
        set_(first.k.weight, rows[1], token, token, torch.eye(VOCAB))
        set_(first.q.weight, rows[1], position, position, -torch.eye(POSITIONS))
        set_(first.k.weight, rows[1], position, position, torch.eye(POSITIONS))
        # Head 0 of layer 1: the key whose previous token is the query's.
        set_(second.q.weight, rows[0], token, token, torch.eye(VOCAB))
        set_(second.k.weight, rows[0], token, before, torch.eye(VOCAB))
    return tiny.loaded(network.eval())


def test_the_circuit_of_a_hand_made_gpt2() -> None:
    loaded = hand_made_gpt2()
    texts = [repeated(17, VOCAB, seed) for seed in range(3)]
    table = heads(loaded, texts)
    assert table[0, 0].pattern == "previous"
    assert table[0, 1].pattern == "duplicate token"
    assert table[1, 0].pattern == "induction"
    assert {table[at].pattern for at in ((0, 2), (1, 1), (1, 2))} == {"none"}
    for at in ((0, 0), (0, 1), (1, 0)):
        assert table[at].best.mass > 0.9

    # The same weights, their columns of keys shuffled: nothing is left of it.
    with torch.no_grad():
        torch.manual_seed(3)
        for layer in loaded.network.stack("decoder").layers:
            k = layer.attention.k.weight
            k.copy_(k[:, torch.randperm(k.shape[1])])
    assert heads(loaded, texts).counts() == {"none": 6}


def test_a_hand_made_bert() -> None:
    """Previous, next, self and the same token, in one layer, by positions and tokens of ones and zeros."""
    size = 4 * SLOTS
    config = BertConfig(
        vocab_size=VOCAB, d_model=size, num_layers=1, num_heads=4, d_ff=1, max_seq_len=POSITIONS
    )
    network = build_bert(config)
    token, position = slice(0, VOCAB), slice(VOCAB, SLOTS)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "norm" not in name:
                parameter.zero_()
        stack = network.stack("encoder")
        stack.embeddings.tokens.weight[:, token] = torch.eye(VOCAB)
        stack.embeddings.positions.weight[:, position] = torch.eye(POSITIONS)
        attention = stack.layers[0].attention
        for head, shift in enumerate((1, -1, 0)):
            rows = slice(head * SLOTS, (head + 1) * SLOTS)
            attention.q.weight[rows][position, position] = torch.eye(POSITIONS)
            attention.k.weight[rows][position, position] = torch.eye(POSITIONS).roll(shift, 0)
        rows = slice(3 * SLOTS, 4 * SLOTS)
        attention.q.weight[rows][token, token] = attention.k.weight[rows][token, token] = torch.eye(VOCAB)
        attention.q.weight[rows][position, position] = -torch.eye(POSITIONS)
        attention.k.weight[rows][position, position] = torch.eye(POSITIONS)
    table = heads(tiny.loaded(network.eval()), [repeated(17, VOCAB, 5)])
    assert [card.pattern for card in table.cards] == ["previous", "next", "self", "duplicate token"]


def test_a_hand_made_llama() -> None:
    """By rotation alone: the query is turned back by one place, to where the previous key points."""
    dim = 16
    config = llama.LlamaConfig(
        vocab_size=VOCAB,
        d_model=2 * dim,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        d_ff=1,
        max_seq_len=POSITIONS,
        head_dim=dim,
        rotary=Rotary(dim, base=20.0),
        layer_types=("full_attention",),
    )
    network = llama.build(config)
    angles = 20.0 ** (-torch.arange(dim // 2) * 2.0 / dim)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "norm" not in name:
                parameter.zero_()
        stack = network.stack("decoder")
        stack.embeddings.tokens.weight[:, 0] = 1.0
        attention = stack.layers[0].attention
        attention.k.weight[: dim // 2, 0] = 1.5
        attention.q.weight[: dim // 2, 0] = 1.5 * torch.cos(angles)
        attention.q.weight[dim // 2 : dim, 0] = -1.5 * torch.sin(angles)
    ids = [each % VOCAB for each in range(31)]
    table = heads(tiny.loaded(network.eval()), [ids])
    assert [card.pattern for card in table.cards] == ["previous", "none"]


def test_the_draws_of_queries_follow_from_the_seed() -> None:
    assert query_draws(0).poisson(1.0, (2, 3)).tolist() == [[4, 0, 1], [2, 0, 0]]
