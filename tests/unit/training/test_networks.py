"""New networks of the sizes that somebody asks for."""

from __future__ import annotations

import pytest
import torch

from regard.models import FAMILIES, family_of
from regard.models.deberta import DebertaConfig
from regard.training._networks import Wanted, network_of
from unit.training.small import WORDS, tokenizer

SIZES = {"d_model": 12, "num_layers": 5, "num_heads": 3, "d_ff": 20}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_sizes_are_enough_for_every_family(family: str) -> None:
    sizes = {name: size for name, size in SIZES.items() if name not in family_of(family).config.ABSENT}
    wanted = Wanted(start=None, family=family, sizes=sizes, length=8, seed=0)
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
