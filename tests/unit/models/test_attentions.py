"""The attention of a model as an option: built, written, loaded, decoded, traced, and refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core import DilatedWindow
from regard.core.errors import CheckpointError, InputError
from regard.models import (
    FamilyConfig,
    Loaded,
    family_of,
    load_checkpoint,
    masks_of,
    new_network,
    write_checkpoint,
)
from regard.models._attentions import PerformerChoice
from regard.pruning import prune
from regard.tracing import Trace, trace_ids
from regard.tracing.pages._page import page_record
from tolerances import PARITY_FP32, WEIGHTS, assert_close_to_largest

SIZES = {
    "vocab_size": 13,
    "d_model": 12,
    "num_layers": 2,
    "num_heads": 3,
    "d_ff": 11,
    "max_seq_len": 29,
    "initializer_range": 0.3,
}
CAUSAL = ["performer", "linear", {"name": "window", "width": 2, "dilation": 3}]
EVERY = [
    *(("gpt2", each) for each in CAUSAL),
    ("llama", "linear"),
    *(("bert", each) for each in [*CAUSAL, "linformer", {"name": "linformer", "rank": 3, "shares": False}]),
    ("roberta", "linformer"),
]


def config_of(family: str, attention: Any) -> FamilyConfig:
    more: dict[str, Any] = {"num_kv_heads": 3} if family == "llama" else {}
    if family == "roberta":
        more["pad_token_id"] = 1
    config: FamilyConfig = family_of(family).config.of_sizes(
        **SIZES, **more, attention=attention, attention_dropout_p=0.0
    )
    return config


def model(tmp_path: Path, family: str, attention: Any) -> Loaded:
    network = new_network(config_of(family, attention), seed=5)
    return load_checkpoint(write_checkpoint(network, tmp_path / "model"))


IDS = torch.tensor([[3, 1, 4, 5, 9, 2, 6, 5, 3, 5, 8, 9]])


@pytest.mark.parametrize(("family", "attention"), EVERY, ids=str)
def test_what_is_written_is_loaded_and_can_be_traced(family: str, attention: Any, tmp_path: Path) -> None:
    config = config_of(family, attention)
    network = new_network(config, seed=5).eval()
    loaded = load_checkpoint(write_checkpoint(network, tmp_path / "model"))
    assert loaded.network.config == config
    assert loaded.family == family
    with torch.no_grad():
        found, wanted = (each(IDS).last_hidden_state for each in (loaded.network, network))
    assert_close_to_largest(found, wanted, PARITY_FP32)
    stored = json.loads((tmp_path / "model" / "config.json").read_text())
    assert stored["model_type"] == f"regard-{family}"  # transformers would compute softmax attention
    softmax = new_network(config_of(family, "softmax"), seed=5).eval()
    with torch.no_grad():
        assert float((softmax(IDS).last_hidden_state - wanted).abs().max()) > 1e-3

    trace = trace_ids(loaded, IDS)
    for each in (trace, Trace.open(trace.save(tmp_path / "it.trace"))):
        if "linformer" in str(attention):
            with pytest.raises(InputError, match="is Linformer, which has no weight for each query and key"):
                each.weights(1)
            continue
        weights = each.weights(1).double()
        assert float((weights.sum(dim=2) - 1).abs().max()) < WEIGHTS
        context = each.attention_of(1).context[0].double()
        values = each.attention_of(1).inputs.v[0].double()
        assert_close_to_largest(context, (weights @ values)[0], PARITY_FP32)


@pytest.mark.parametrize("attention", CAUSAL, ids=str)
def test_token_by_token_is_as_in_one_pass(attention: Any, tmp_path: Path) -> None:
    network: Any = model(tmp_path, "gpt2", attention).network
    real = torch.ones(2, 12, dtype=torch.bool)
    real[1, :5] = False
    ids = IDS.expand(2, -1)
    with torch.no_grad():
        state = network.begin(back=2)
        pieces = [network.decode(ids[:, :6], state, mask=real[:, :6])]
        pieces += [
            network.decode(ids[:, at : at + 1], state, mask=real[:, at : at + 1]) for at in range(6, 12)
        ]
        found = torch.cat([piece.logits for piece in pieces], dim=1)
        assert_close_to_largest(found[0], network(ids[:1]).logits[0], PARITY_FP32)
        assert_close_to_largest(found[1, 5:], network(ids[1:, 5:]).logits[0], PARITY_FP32)
        state.cut(10)
        state.pick(torch.tensor([1, 0]))
        again = network.decode(ids[:, 10:], state, mask=real[:, 10:].flip(0)).logits
    assert_close_to_largest(again, found[:, 10:].flip(0), PARITY_FP32)


def test_heads_are_cut_out_whatever_the_kernel(tmp_path: Path) -> None:
    loaded = model(tmp_path, "bert", "linear")
    lesser = prune(loaded, {0: [1]})
    with torch.no_grad():
        assert lesser.network(IDS).last_hidden_state.shape == (1, 12, 12)
    assert lesser.network.config.attention == loaded.network.config.attention  # type: ignore[attr-defined]


def test_a_model_says_what_attention_it_has(tmp_path: Path) -> None:
    assert (
        masks_of(model(tmp_path, "gpt2", "linear").network) == "linear attention in place of softmax; causal"
    )
    window = config_of("gpt2", CAUSAL[2])
    assert masks_of(new_network(window)) == "causal, window of 2 tokens before and 0 after, 3 apart"
    network = new_network(config_of("bert", CAUSAL[2]))
    assert network.encoder is not None
    assert network.encoder.patterns[0].mask == DilatedWindow(left=2, right=2, dilation=3)


@pytest.mark.parametrize(
    ("family", "attention", "message"),
    [
        ("gpt2", "linformer", "attention must be softmax, performer, linear, window for this family"),
        ("bert", "perform", "attention must be one of softmax, performer, .*Did you mean 'performer'"),
        ("bert", 3, "attention must be a name, or a table with a name; got 3"),
        (
            "bert",
            {"name": "performer", "rank": 3},
            "attention.rank is not a setting; there are attention.features, attention.seed",
        ),
        (
            "bert",
            {"name": "performer", "features": 0},
            "attention.features must be a whole number, at least 1; got 0",
        ),
        ("bert", {"name": "performer", "features": "9"}, "attention.features must be a whole number"),
        ("bert", {"name": "linformer", "shares": 1}, "attention.shares must be true or false; got 1"),
        ("bert", {"name": "linformer", "rank": 30}, "attention.rank must be at most max_seq_len = 29"),
        (
            "bert",
            {"name": "window", "dilation": 0},
            "attention.dilation must be a whole number, at least 1; got 0",
        ),
    ],
    ids=str,
)
def test_what_a_model_cannot_have_is_refused(family: str, attention: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        new_network(config_of(family, attention))


def test_weights_that_are_not_there_are_not_dropped() -> None:
    with pytest.raises(InputError, match="attention_dropout_p must be 0 with performer attention"):
        family_of("bert").config.of_sizes(**SIZES, attention="performer", attention_dropout_p=0.1)
    assert family_of("bert").config.of_sizes(**SIZES, attention="window").attention_dropout_p == 0.1


def test_a_file_with_another_attention_is_refused_with_its_field(tmp_path: Path) -> None:
    folder = write_checkpoint(new_network(config_of("bert", "linear")), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"regard_attention": {"name": "reformer"}}))
    with pytest.raises(CheckpointError, match=r"json: the field 'regard_attention': attention must be"):
        load_checkpoint(folder)


def test_a_page_draws_a_kernel_s_own_weights_or_refuses(tmp_path: Path) -> None:
    trace = trace_ids(model(tmp_path, "gpt2", "linear"), IDS)
    drawn = page_record(trace).layers["decoder"][1]
    assert drawn.weights is not None
    assert_close_to_largest(drawn.weights[2], trace.weights(1, 2), WEIGHTS)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(InputError, match="is Linformer, which has no weight for each query and key"):
        page_record(trace_ids(model(other, "bert", "linformer"), IDS))


def test_every_layer_of_performers_draws_its_own_features() -> None:
    first, second = (PerformerChoice(features=7, seed=3).kernel(layer, 31) for layer in (0, 1))
    assert (first.seed, second.seed) == (3, 4)
