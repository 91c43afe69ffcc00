"""The parts that BERT and its descendants share."""

from typing import Any

import pytest
import torch
from torch import nn

from regard.models import family_of
from regard.models._post_norm import (
    Pooler,
    PostNormConfig,
    UntiedOutput,
    masked_lm_head,
)
from regard.models.families.bert import BertConfig, build
from tolerances import FP64, assert_close_to_largest


def test_the_pooler_reads_the_first_position() -> None:
    pooler, state = Pooler(6).double(), torch.randn(2, 5, 6, dtype=torch.float64)
    weight, bias = pooler.dense.weight.detach(), pooler.dense.bias.detach()
    expected = torch.stack([torch.tanh(weight @ row[0] + bias) for row in state])
    assert_close_to_largest(pooler(state), expected, FP64)
    changed = state.clone()
    changed[:, 1:] = 0
    assert torch.equal(pooler(changed), pooler(state))


def test_layers_are_apart_and_their_dropout_is_as_given() -> None:
    config = BertConfig(
        num_layers=3,
        d_model=6,
        num_heads=2,
        d_ff=11,
        activation="relu",
        norm_eps=1e-3,
        dropout_p=0.3,
        attention_dropout_p=0.4,
    )
    layers: Any = build(config).stack("encoder").layers
    assert len({id(parameter) for layer in layers for parameter in layer.parameters()}) == 3 * 16
    for layer in layers:
        assert layer.attention.dropout_p == 0.4
        for residual in (layer.attention_residual, layer.ffn_residual):
            assert residual.dropout.p == 0.3
            assert isinstance(residual.norm, nn.LayerNorm)
            assert residual.norm.eps == 1e-3


class TestTheOutputLayer:
    def test_untied_it_reads_its_own_bias(self) -> None:
        output = UntiedOutput(6, 13)
        with torch.no_grad():
            output.own_bias.copy_(torch.arange(13.0))
            output.bias.fill_(100.0)
        x = torch.randn(2, 6)
        assert torch.equal(output(x), nn.functional.linear(x, output.weight, torch.arange(13.0)))

    @pytest.mark.parametrize("is_tied", [True, False])
    def test_tied_it_is_the_table(self, is_tied: bool) -> None:
        tokens = nn.Embedding(13, 6)
        head = masked_lm_head(PostNormConfig(d_model=6, tie_word_embeddings=is_tied), tokens, "gelu")
        assert (head.output.weight is tokens.weight) is is_tied
        assert isinstance(head.output, UntiedOutput) is not is_tied


def test_only_what_stands_beside_the_encoder_may_be_left_out() -> None:
    for family in ("bert", "distilbert", "electra", "mpnet", "roberta"):
        keys = family_of(family).keys
        assert keys.leaves_out("qa_outputs.weight")
        assert keys.leaves_out("classifier.weight")
        assert not keys.leaves_out("encoder.layer.0.attention.self.query.lora_A.weight")
