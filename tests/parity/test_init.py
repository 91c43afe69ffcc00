"""The weights of every family before training, against those that transformers draws."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from parity.families import ENTRIES, OF_PARAMETERS
from parity.families_entry import LABELS, save
from parity.harness import by_our_names
from regard.models import init_weights, new_network
from regard.models.families.bert import BertConfig
from regard.models.families.gpt2 import Gpt2Config

pytestmark = pytest.mark.usefixtures("quiet")

# Where the field is not called `initializer_range`.
RANGES = {"t5": ("initializer_factor", 0.7), "bart": ("init_std", 0.05), "mbart": ("init_std", 0.05)}
RANGES["marian"] = RANGES["bart"]
HEADED = [
    (name, label)
    for name in OF_PARAMETERS
    for label in ENTRIES[name].classes
    if label not in ("base", *ENTRIES[name].left_out) and (label != "token" or name in ("bert", "gpt2"))
]
DRAWS = 3


def drawn(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.named_parameters()}


@pytest.mark.parametrize(("name", "label"), HEADED)
def test_every_parameter_begins_as_theirs(name: str, label: str, tmp_path: Path) -> None:
    """Mean and spread within five standard errors, and nothing but zeros or ones where theirs are."""
    entry = ENTRIES[name]
    field, value = RANGES.get(entry.name, ("initializer_range", 0.05))
    labels: dict[str, Any] = {"num_labels": LABELS} if label in ("sequence", "token") else {}
    config = entry.make_config(**labels, **{field: value})
    saved = save(entry.classes[label](config), entry.shape_of(label), tmp_path)
    read: Any = regard.load(saved.folder).network.config
    assert read.initializer_range == value
    ours, theirs = [], []
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        theirs.append(by_our_names(saved, entry.classes[label](config).state_dict()))
        ours.append(drawn(new_network(read, seed=seed)))
    assert ours[0].keys() == theirs[0].keys()
    for key in ours[0]:
        mine, other = (torch.stack([each[key].double() for each in runs]) for runs in (ours, theirs))
        if other.unique().numel() == 1 or ("positions" in key and torch.equal(*other[:2])):
            assert torch.allclose(mine, other, atol=1e-6), f"{key}: {mine.unique()} not {other.unique()}"
            continue
        assert torch.equal(mine == 0, other == 0), f"{key}: zeros in other places"
        mine, other = mine[mine != 0], other[other != 0]
        count, std = mine.numel(), float(other.std())
        assert abs(float(mine.mean() - other.mean())) < 5 * std * (2 / count) ** 0.5, key
        assert float(mine.std()) == pytest.approx(std, rel=5 / count**0.5), key


def test_weights_follow_from_the_seed_alone() -> None:
    config = BertConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11, max_seq_len=7)
    before = torch.get_rng_state()
    first, again, other = (drawn(new_network(config, seed=seed)) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], again[key]) for key in first)
    table = "encoder.embeddings.tokens.weight"
    assert not torch.equal(first[table], other[table])
    half = new_network(config, seed=5).to(torch.bfloat16)
    init_weights(half, generator=torch.Generator().manual_seed(3))
    assert all(torch.equal(value, first[key].to(torch.bfloat16)) for key, value in drawn(half).items())


def test_some_parameters_alone() -> None:
    config = Gpt2Config(vocab_size=13, d_model=6, num_layers=2, num_heads=2, d_ff=11, max_seq_len=7)
    network = new_network(config)
    before = drawn(network)
    init_weights(network, only={"decoder.norm.weight", "decoder.layers.1.ffn.output.weight"})
    after = drawn(network)
    assert {key for key in after if not torch.equal(after[key], before[key])} == {
        "decoder.layers.1.ffn.output.weight"
    }
