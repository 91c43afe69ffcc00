"""ModernBERT's own parts: its mean over a text, and the spellings of its config.

That the whole network is transformers' is tested in tests/parity.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.checkpoints import Fields
from regard.core import Window
from regard.core.errors import CheckpointError
from regard.models import family_of
from regard.models.families.modernbert import ModernBertConfig
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.models.folders import network

# As the first published files have it, with sizes of our own.
OLD: dict[str, Any] = {
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 5,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "global_attn_every_n_layers": 2,
    "global_rope_theta": 101.0,
    "hidden_activation": "gelu",
    "hidden_size": 42,
    "initializer_cutoff_factor": 2.0,
    "intermediate_size": 37,
    "layer_norm_eps": 1e-05,
    "local_attention": 10,
    "local_rope_theta": 11.0,
    "max_position_embeddings": 23,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "pad_token_id": 7,
    "position_embedding_type": "absolute",
    "reference_compile": False,
    "repad_logits_with_grad": False,
    "sparse_pred_ignore_index": -100,
    "sparse_prediction": False,
    "tie_word_embeddings": True,
    "vocab_size": 53,
}


def read(values: dict[str, Any]) -> ModernBertConfig:
    return ModernBertConfig.from_hf(Fields(file=Path("config.json"), values=values), ["head.norm.weight"])


def test_a_file_of_the_first_version() -> None:
    config = read(OLD)
    assert config.layer_types == ("full_attention", "sliding_attention", "full_attention")
    assert {kind: rotary.base for kind, rotary in config.rope.items()} == {
        "full_attention": 101.0,
        "sliding_attention": 11.0,
    }
    assert (config.head, config.pooling, config.local_attention) == ("masked-lm", "mean", 10)
    assert read(config.to_hf()) == config


def test_half_of_the_window_lies_on_either_side() -> None:
    stack = family_of("modernbert").build(replace(read(OLD), local_attention=7)).stack("encoder")
    masks = [pattern.mask for pattern in stack.patterns]
    assert masks == [None, Window(left=3, right=3), None]
    assert stack.patterns[0] is stack.patterns[2]


@pytest.mark.parametrize(
    "changes", [{"classifier_pooling": "max"}, {"norm_eps": None}, {"use_rms_norm": True}]
)
def test_fields_that_it_does_not_have(changes: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=next(iter(changes))):
        read(OLD | changes)


def test_a_classifier_of_means_leaves_padding_out() -> None:
    net = network("modernbert", head="sequence", pooling="mean")
    ids, mask = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([[True, True, True, False, False]])
    with torch.no_grad():
        short = net(ids[:, :3]).logits
        assert short is not None
        assert_close_to_largest(net(ids, mask=mask).logits, short, FP32_OF_LARGEST)
