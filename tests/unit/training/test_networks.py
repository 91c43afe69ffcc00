"""New networks of the sizes that somebody asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import InputError
from regard.models import FAMILIES, Transformer, family_of, write_checkpoint
from regard.models.families.deberta import DebertaConfig
from regard.training._batch import Batch, stack_input
from regard.training._networks import NetworkSpec, network_of
from regard.training.tasks._task import run
from unit.training.small import WORDS, tokenizer

SIZES = {"d_model": 12, "num_layers": 5, "num_heads": 3, "d_ff": 20}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_sizes_are_enough_for_every_family(family: str) -> None:
    sizes = {name: size for name, size in SIZES.items() if name not in family_of(family).config.ABSENT}
    wanted = NetworkSpec(start=None, family=family, sizes=sizes, length=8, seed=0)
    network = network_of(wanted, tokenizer(), head="language-model")
    assert {name: getattr(network.config, name) for name in sizes} == sizes
    ids = torch.tensor([[5, 6, 7, 8, 9, 5, 6, 7]])
    second = {"decoder_token_ids": ids[:, :3]} if len(network.prefixes) == 2 else {}
    assert network(ids, **second).last_hidden_state.shape[-1] == 12
    assert network.config.vocab_size == len(WORDS)


def test_a_new_deberta_has_half_as_many_buckets_as_positions_and_at_most_those_published() -> None:
    found = {length: DebertaConfig.of_sizes(d_model=12, max_seq_len=length) for length in (31, 512, 1024)}
    assert {length: config.num_buckets for length, config in found.items()} == {31: 15, 512: 256, 1024: 256}
    assert found[31].d_embedding == 12
    assert DebertaConfig.of_sizes(max_seq_len=31, num_buckets=5).num_buckets == 5


def new(family: str, **sizes: Any) -> Transformer:
    wanted = NetworkSpec(start=None, family=family, sizes={**SIZES, **sizes}, length=29, seed=0)
    return network_of(wanted, tokenizer(), head="language-model")


@pytest.mark.parametrize(
    ("family", "sizes", "told"),
    [
        ("gpt2", {"num_heads": 5}, "model.num_heads must divide"),
        ("gpt2", {"attention": "lineer"}, "model.attention must be one of .*Did you mean 'linear'"),
        ("gpt2", {"attention": "linformer"}, "model.attention must be softmax, performer, linear, window"),
        ("bert", {"attention": {"name": "linformer", "rank": 31}}, "model.attention.rank must be at most"),
        ("perceiver-io", {"num_latents": 0}, "model.num_latents must be at least 1; got 0"),
        ("bert", {"d_model": "8"}, "model.d_model must be a whole number; got '8'"),
        ("gpt2", {"activation": 3.5}, "model.activation must be a text; got 3.5"),
    ],
)
def test_sizes_that_cannot_be_are_named_as_settings(family: str, sizes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=f"^{told}"):
        new(family, **sizes)


def test_dropout_turned_off_or_changed_is_so_everywhere() -> None:
    for family, sizes, wanted in [
        ("gpt2", {"dropout_p": 0}, [0.0, 0.0, 0.0, 0.0]),
        ("gpt2", {"dropout_p": 0.3, "attention_dropout_p": 0.2}, [0.3, 0.3, 0.2, 0.3]),
        ("gpt2", {"dropout_p": 0.3, "attention": "linear"}, [0.3, 0.3, 0.0, 0.3]),
        ("gpt2", {"embedding_dropout_p": 0.3}, [0.1, 0.3, 0.1, 0.1]),
        ("bert", {"dropout_p": 0.3}, [0.3, 0.3, None]),
        ("distilbert", {"dropout_p": 0.3}, [0.3, 0.3, 0.2]),
        ("distilbert", {"dropout_p": 0.0}, [0.0, 0.0, 0.0]),
        ("marian", {"dropout_p": 0.3}, [0.3, 0.0, 0.0, 0.0]),  # these are not dropped by default
    ]:
        config = new(family, **sizes).config
        assert _rates(config) == wanted, (family, sizes)
    for rate in (-0.1, 1.0, True, "half"):
        with pytest.raises(InputError, match=r"^model\.dropout_p must be a (finite )?number"):
            new("gpt2", dropout_p=rate)


def _rates(config: Any) -> list[float | None]:
    kinds = ("dropout_p", "embedding_dropout_p", "attention_dropout_p", "activation_dropout_p")
    return [getattr(config, each) for each in (*kinds, "classifier_dropout_p") if hasattr(config, each)]


def test_a_checkpoint_takes_other_dropout_and_lies_as_a_new_network(tmp_path: Path) -> None:
    def further(**sizes: Any) -> Transformer:
        wanted = NetworkSpec(start=str(folder), family="gpt2", sizes=sizes, length=29, seed=0)
        return network_of(wanted, tokenizer(), head="language-model")

    begun = new("gpt2")
    folder = write_checkpoint(begun, tmp_path / "gpt2", tokenizer=tokenizer())
    found = further(dropout_p=0.3, attention_dropout_p=0.0)
    assert _rates(found.config) == [0.3, 0.3, 0.0, 0.3]
    assert {each.p for each in found.modules() if isinstance(each, torch.nn.Dropout)} == {0.3}
    for ours, theirs in zip(found.parameters(), begun.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.stride() == theirs.stride()  # a file of GPT-2 holds q, k and v as one transposed matrix
    assert _rates(further().config) == [0.1] * 4
    with pytest.raises(InputError, match=r"model must be left out, or set .*gpt2 has its sizes; got d_model"):
        further(d_model=8)


def test_texts_in_a_row_are_refused_by_the_setting_that_puts_them_there() -> None:
    texts = stack_input([[np.array([5, 6, 7]), np.array([8, 9])]], pad_id=0)
    packed = Batch(source=texts, labels=texts.ids, counts={}, examples=2, more={})
    told = "^batch.form must not be packed for this model: mask must be Causal, Padding or both for linear"
    with pytest.raises(InputError, match=told):
        run(new("gpt2", attention="linear"), packed)
