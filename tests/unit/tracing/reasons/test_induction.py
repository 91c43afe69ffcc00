"""Induction, trained here in some seconds: the head that finds "the word after the same word" says why."""

from functools import cache
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from regard.models import Network, new_network
from regard.models.families.llama import LlamaConfig
from regard.positions import Rotary
from regard.tracing import Trace, trace_ids
from regard.tracing.reasons import pairs_of_head
from unit.models import tiny

WORDS, START = 17, 0


def lists(rows: int, length: int) -> torch.Tensor:
    """A start, some different words in any order, and the same words again: (rows, 1 + 2 length)."""
    once = 1 + torch.rand(rows, WORDS - 1).argsort(dim=1)[:, :length]
    return torch.cat([torch.full((rows, 1), START), once, once], dim=1)


@cache
def network() -> Network:
    """A decoder of two layers that goes on with a list that is said again."""
    torch.manual_seed(0)
    config = LlamaConfig(
        model_type="mistral",
        vocab_size=WORDS,
        d_model=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=2,
        head_dim=32,
        d_ff=64,
        max_seq_len=64,
        # The heads of layer 0 see the token before and themselves: what they become is soon decided.
        layer_types=("sliding_attention", "full_attention"),
        sliding_window=2,
        rotary=Rotary(32, base=30.0),
        initializer_range=0.1,
    )
    made = new_network(config).train()
    steps = 200
    optimiser = torch.optim.AdamW(made.parameters(), lr=0.01, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.01, total_steps=steps)
    for _ in range(steps):
        length = int(torch.randint(4, 13, ()))
        ids = lists(32, length)
        logits = made(ids).logits[:, length + 1 : -1]
        loss = cross_entropy(logits.flatten(0, 1), ids[:, length + 2 :].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(made.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return made.eval()


def heads() -> tuple[Trace, int, int]:
    """A new list, the head of layer 1 that looks at what followed last time, and that of layer 0 before."""
    torch.manual_seed(1)
    trace = trace_ids(tiny.loaded(network()), lists(1, 9)[0].tolist())
    queries = torch.arange(10, 18)
    weights = trace.weights()
    induces = int(weights[1][:, queries, queries - 8].mean(dim=1).argmax())
    before = int(weights[0].diagonal(-1, dim1=1, dim2=2).mean(dim=1).argmax())
    assert float(weights[1][induces, queries, queries - 8].mean()) > 0.5
    assert float(weights[0][before].diagonal(-1).mean()) > 0.5
    return trace, induces, before


def test_it_has_learned_induction() -> None:
    torch.manual_seed(2)
    ids = lists(100, 8)
    guessed = network()(ids).logits[:, 9:-1].argmax(dim=2)
    assert float((guessed == ids[:, 10:]).double().mean()) > 0.9


def test_the_key_says_that_it_follows_the_same_word() -> None:
    trace, induces, before = heads()
    for query in range(11, 18):
        key = query - 8
        found = trace.why(1, induces, query, key, check=True)
        first = next(part for part in found.key_parts if part.writer.name == "head")
        assert (first.writer.layer, first.writer.head) == (0, before)
        assert first.source == key - 1  # the same word as the query, earlier
        assert trace.token_ids[key - 1] == trace.token_ids[query]
        assert first.value > 0.5 * found.value > 0
        assert first.weight is not None
        assert first.weight < 0.5 * found.weight


def test_over_the_text_it_is_the_same_head() -> None:
    trace, induces, before = heads()
    found: Any = trace.why_heads(1, induces, query=slice(11, None))
    first = found.key_feeds[0]
    assert (first.writer.name, first.writer.layer, first.writer.head) == ("head", 0, before)
    assert first.times > 2
    asked = found.query_feeds[0]  # a query says its own word, by the other head of layer 0
    assert (asked.writer.name, asked.writer.layer, asked.writer.head) == ("head", 0, 1 - before)


def test_a_page_draws_the_circuit() -> None:
    trace, induces, before = heads()
    found, whole = pairs_of_head(trace, 1, induces, "decoder"), trace.why_heads(1, induces)
    assert found["value"] == pytest.approx(whole.value, abs=0.0051)
    for side, feeds, head in (("key", whole.key_feeds, before), ("query", whole.query_feeds, 1 - before)):
        assert found["feeds"][side][0] == [
            0,
            head,
            pytest.approx(feeds[0].value - feeds[0].chance, abs=0.0051),
        ]
        assert len(found["feeds"][side]) == sum(
            each.writer.name == "head" and abs(each.times) >= 2 for each in feeds
        )
