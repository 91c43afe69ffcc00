"""The parts that BERT and its descendants share: heads by hand, the output layer, the names on disk."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from regard.blocks import ACTIVATIONS
from regard.checkpoints import to_hf
from regard.models import FAMILIES, Transformer
from regard.models._heads import Classifier, MaskedLMHead, token_classifier
from regard.models._post_norm import (
    Pooler,
    PostNormConfig,
    UntiedOutput,
    dense_classifier,
    masked_lm_head,
)
from regard.models._reading import LastState
from regard.models.bert import BertConfig, build
from regard.models.distilbert import DistilBertConfig
from regard.models.electra import ElectraConfig
from regard.models.mpnet import MPNetConfig
from regard.models.roberta import RobertaConfig
from tolerances import FP32_OF_LARGEST, FP64, assert_close_to_largest

SIZES: dict[str, Any] = {
    "vocab_size": 31,
    "d_model": 15,
    "num_layers": 1,
    "num_heads": 3,
    "d_ff": 19,
    "max_seq_len": 11,
}
CONFIGS: dict[str, Any] = {
    "bert": BertConfig(**SIZES),
    "distilbert": DistilBertConfig(**SIZES),
    "electra": ElectraConfig(**SIZES, d_embedding=7),
    "mpnet": MPNetConfig(**SIZES),
    "roberta": RobertaConfig(**SIZES),
}
PREFIXES = {name: f"{name}." for name in CONFIGS}
OUTPUTS = {
    "bert": ("cls.predictions.decoder.weight", {"cls.predictions.bias"}, "cls.predictions.decoder.bias"),
    "distilbert": ("vocab_projector.weight", {"vocab_projector.bias"}, None),
    "electra": ("generator_lm_head.weight", {"generator_lm_head.bias"}, None),
    "mpnet": ("lm_head.decoder.weight", {"lm_head.bias"}, "lm_head.decoder.bias"),
    "roberta": ("lm_head.decoder.weight", {"lm_head.bias"}, "lm_head.decoder.bias"),
}


def made(family: str, **changes: Any) -> Transformer:
    return FAMILIES[family].build(replace(CONFIGS[family], **changes)).eval()


def apply(head: Any, state: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = head(LastState(state=state, token_ids=torch.zeros(state.shape[:2])))
    return logits


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


def test_a_dense_classifier_by_hand() -> None:
    head = dense_classifier(PostNormConfig(d_model=2, num_labels=3, dropout_p=0.5), "tanh").eval()
    state_dict = {
        "hidden.weight": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
        "hidden.bias": torch.zeros(2),
        "score.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
        "score.bias": torch.tensor([0.0, 0.0, 10.0]),
    }
    head.load_state_dict(state_dict)
    # atanh(0.5) = ln(3) / 2: after the layer and tanh, 0.5 and 0.8 = tanh(ln(9) / 2).
    state = torch.tensor([[[0.549306, 0.549306], [7.0, 7.0]]])
    assert_close_to_largest(apply(head, state), torch.tensor([[0.5, 0.8, 11.3]]), FP32_OF_LARGEST)


def test_dropout_comes_before_both_layers_of_a_dense_classifier() -> None:
    config = PostNormConfig(d_model=64, num_labels=64, classifier_dropout_p=0.5, dropout_p=0.0)
    head = dense_classifier(config, "relu")
    for name in ("hidden", "score"):
        head.get_submodule(name).load_state_dict({"weight": torch.eye(64), "bias": torch.zeros(64)})
    logits = apply(head.train(), torch.ones(1, 1, 64)).detach()
    # What a dropout of 1/2 keeps, it doubles.
    assert set(logits[0].tolist()) == {0.0, 4.0}


def test_a_classifier_of_tokens_has_a_row_for_each() -> None:
    head = token_classifier(6, 3, dropout_p=0.0)
    state = torch.randn(2, 5, 6)
    assert torch.equal(apply(head, state), head.get_submodule("labels")(state))


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

    @pytest.mark.parametrize("family", sorted(CONFIGS))
    def test_its_names_on_disk(self, family: str) -> None:
        weight, biases, own_bias = OUTPUTS[family]
        for is_tied in (True, False):
            stored = to_hf(made(family, head="masked-lm", tie_word_embeddings=is_tied), FAMILIES[family].keys)
            assert (weight in stored) is not is_tied
            assert biases <= stored.keys()
            if own_bias is not None:
                assert (own_bias in stored) is not is_tied


class TestNamesOnDisk:
    @pytest.mark.parametrize("family", sorted(CONFIGS))
    @pytest.mark.parametrize("head", ["masked-lm", "sequence", "token"])
    def test_the_prefix_stands_before_the_encoder_of_a_model_with_a_head(
        self, family: str, head: Any
    ) -> None:
        keys = FAMILIES[family].keys
        bare, headed = to_hf(made(family), keys).keys(), to_hf(made(family, head=head), keys).keys()
        prefixed = {name for name in headed if name.startswith(PREFIXES[family])}
        assert {name.removeprefix(PREFIXES[family]) for name in prefixed} == bare
        assert headed - prefixed
        assert not any(name.startswith(PREFIXES[family]) for name in bare)

    @pytest.mark.parametrize(
        ("family", "ours", "theirs"),
        [
            ("bert", "encoder.layers.1.attention.q.bias", "encoder.layer.1.attention.self.query.bias"),
            ("mpnet", "encoder.layers.1.attention.q.bias", "encoder.layer.1.attention.attn.q.bias"),
            ("mpnet", "encoder.layers.1.attention.output.weight", "encoder.layer.1.attention.attn.o.weight"),
            (
                "mpnet",
                "encoder.layers.1.attention_residual.norm.bias",
                "encoder.layer.1.attention.LayerNorm.bias",
            ),
            ("mpnet", "encoder.bias.table.weight", "encoder.relative_attention_bias.weight"),
            ("electra", "encoder.embeddings.projection.weight", "embeddings_project.weight"),
            ("roberta", "head.score.weight", "classifier.out_proj.weight"),
            ("roberta", "head.labels.weight", "classifier.weight"),
        ],
    )
    def test_some_of_them(self, family: str, ours: str, theirs: str) -> None:
        assert FAMILIES[family].keys.to_hf(ours) == theirs
        assert FAMILIES[family].keys.to_ours(PREFIXES[family] + theirs) == (ours,)

    def test_only_what_stands_beside_the_encoder_may_be_left_out(self) -> None:
        for family in CONFIGS:
            keys = FAMILIES[family].keys
            assert keys.leaves_out("qa_outputs.weight")
            assert keys.leaves_out("classifier.weight")
            assert not keys.leaves_out("encoder.layer.0.attention.self.query.lora_A.weight")


def test_roberta_counts_tokens_and_mpnet_too() -> None:
    ids = torch.tensor([[3, 1, 4, 1, 5], [1, 3, 4, 1, 5]])
    for family in ("mpnet", "roberta"):
        network = made(family)
        torch.nn.init.normal_(network.get_parameter("encoder.embeddings.positions.weight"))
        positions = torch.tensor([[2, 1, 3, 1, 4], [1, 2, 3, 1, 4]])
        mask = ids != 1
        counted, given = network(ids, mask=mask), network(ids, mask=mask, positions=positions)
        assert torch.equal(counted.last_hidden_state, given.last_hidden_state)


def test_electra_projects_only_where_the_sizes_differ() -> None:
    assert made("electra").stack("encoder").embeddings.projection is not None
    assert made("electra", d_embedding=15).stack("encoder").embeddings.projection is None


@pytest.mark.parametrize(
    ("family", "activation"),
    [("bert", "relu"), ("distilbert", "relu"), ("electra", "gelu"), ("mpnet", "gelu"), ("roberta", "gelu")],
)
def test_the_masked_lm_heads_activation_where_the_layers_have_relu(family: str, activation: str) -> None:
    network = made(family, head="masked-lm", activation="relu")
    assert isinstance(network.head, MaskedLMHead)
    assert network.head.activation is ACTIVATIONS[activation]


@pytest.mark.parametrize(
    ("family", "sequence", "token"),
    [
        ("bert", 0.2, 0.2),
        ("distilbert", 0.2, 0.3),
        ("electra", 0.2, 0.2),
        ("mpnet", 0.3, 0.3),
        ("roberta", 0.2, 0.2),
    ],
)
def test_dropout_in_classifiers(family: str, sequence: float, token: float) -> None:
    changes = {"dropout_p": 0.3} | ({} if family == "mpnet" else {"classifier_dropout_p": 0.2})
    for head, expected in (("sequence", sequence), ("token", token)):
        network = made(family, head=head, **changes)
        assert isinstance(network.head, Classifier)
        dropouts = [layer.p for layer in network.head.children() if isinstance(layer, nn.Dropout)]
        assert set(dropouts) == {expected}
