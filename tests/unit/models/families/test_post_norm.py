"""BERT and its descendants: the parts that they share, and config.json, read, written and refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from regard.checkpoints import Fields
from regard.core.errors import CheckpointError, InputError
from regard.models import family_of
from regard.models.families import bert, mpnet
from regard.models.families._post_norm import Pooler, PostNormConfig, UntiedOutput, masked_lm_head
from regard.models.families.bert import BertConfig
from regard.models.families.electra import ElectraConfig
from regard.models.families.mpnet import MPNetConfig
from regard.models.families.roberta import RobertaConfig
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
    layers: Any = bert.build(config).stack("encoder").layers
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


SIZES: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 15,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 19,
    "max_position_embeddings": 13,
}
FIELDS: dict[str, dict[str, Any]] = {
    "bert": SIZES,
    "distilbert": {
        "vocab_size": 31,
        "dim": 15,
        "n_layers": 2,
        "n_heads": 3,
        "hidden_dim": 19,
        "max_position_embeddings": 13,
    },
    "electra": SIZES | {"embedding_size": 7},
    "mpnet": SIZES,
    "roberta": SIZES,
    "xlm-roberta": SIZES,
}
STEMS = {
    "bert": "Bert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "mpnet": "MPNet",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}
MASKED_LM = {
    "bert": "cls.predictions.bias",
    "distilbert": "vocab_transform.bias",
    "electra": "generator_lm_head.bias",
    "mpnet": "lm_head.bias",
    "roberta": "lm_head.bias",
    "xlm-roberta": "lm_head.bias",
}
EVERY = pytest.mark.parametrize("family", sorted(FIELDS))
WITH_POOLER = pytest.mark.parametrize("family", ["bert", "mpnet", "roberta", "xlm-roberta"])


def read(family: str, *tensors: str, **changes: Any) -> Any:
    values = {"model_type": family, **FIELDS.get(family, SIZES), **changes}
    return family_of(family).config.from_hf(Fields(file=Path("config.json"), values=values), tensors)


def refuse(family: str, message: str, *tensors: str, **changes: Any) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(family, *tensors, **changes)


@EVERY
def test_what_is_written_is_read_back(family: str) -> None:
    config = read(
        family,
        MASKED_LM[family],
        "pooler.dense.weight",
        architectures=[f"{STEMS[family]}ForMaskedLM"],
        tie_word_embeddings=False,
        pad_token_id=5,
    )
    assert (config.head, config.tie_word_embeddings, config.pad_token_id) == ("masked-lm", False, 5)
    values = config.to_hf()
    assert values["model_type"] == family
    assert values["architectures"] == [f"{STEMS[family]}ForMaskedLM"]
    names = (MASKED_LM[family], "pooler.dense.weight")
    again = family_of(family).config.from_hf(Fields(file=Path("config.json"), values=values), names)
    assert again == config
    assert type(again) is type(config)


@EVERY
def test_a_head_that_is_named_and_not_stored(family: str) -> None:
    config = read(family, "embeddings.word_embeddings.weight", architectures=[f"{STEMS[family]}ForMaskedLM"])
    assert config.head is None
    # How many labels there are does not matter then, even if the file contradicts itself.
    labels = {"id2label": {"0": "a"}, "num_labels": 3}
    assert read(family, architectures=[f"{STEMS[family]}Model"], **labels).head is None


@EVERY
def test_heads_that_regard_does_not_have(family: str) -> None:
    architectures = [STEMS[family] + "ForQuestionAnswering"]
    assert read(family, "classifier.weight", architectures=architectures).head is None


def test_pre_training() -> None:
    names = ("cls.predictions.bias", "cls.seq_relationship.weight", "bert.pooler.dense.weight")
    config = read("bert", *names, architectures=["BertForPreTraining"])
    assert (config.head, config.use_pooler) == ("masked-lm", True)
    discriminator = ("discriminator_predictions.dense.weight",)
    assert read("electra", *discriminator, architectures=["ElectraForPreTraining"]).head == "replaced"


@EVERY
def test_decoders_are_refused(family: str) -> None:
    ending = "LMHeadModel" if family == "bert" else "ForCausalLM"
    refuse(
        family,
        r"config\.json: .*'architectures' names a class that predicts the next token; .*one of masked-lm, ",
        architectures=[STEMS[family] + ending],
    )
    refuse(family, "is_decoder", is_decoder=True)
    refuse(family, "add_cross_attention", add_cross_attention=True)


@EVERY
def test_fields_that_are_not_known(family: str) -> None:
    values = {"model_type": family, **FIELDS.get(family, SIZES), "colour": "red"}
    fields = Fields(file=Path("config.json"), values=values)
    family_of(family).config.from_hf(fields, [])
    assert "passed over colour = 'red'" in fields.notes[0]  # no class of transformers has it


@pytest.mark.parametrize("family", sorted(FIELDS.keys() - {"distilbert"}))
def test_relative_positions_are_refused(family: str) -> None:
    refuse(family, "position_embedding_type' must be 'absolute'", position_embedding_type="relative_key")


@WITH_POOLER
def test_whether_there_is_a_pooler(family: str) -> None:
    assert read(family, "pooler.dense.weight").use_pooler
    assert read(family, "some.prefix.pooler.dense.weight").use_pooler
    assert not read(family, "embeddings.LayerNorm.weight").use_pooler


def test_berts_classifier_of_texts_has_a_pooler_stored_or_not() -> None:
    named = {"architectures": ["BertForSequenceClassification"]}
    assert read("bert", "classifier.weight", **named).use_pooler
    assert not read(
        "roberta", "classifier.dense.weight", architectures=["RobertaForSequenceClassification"]
    ).use_pooler


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_dropout_in_a_classifier(family: str) -> None:
    assert read(family, hidden_dropout_prob=0.3).label_dropout_p == 0.3
    assert read(family, hidden_dropout_prob=0.3, classifier_dropout=None).label_dropout_p == 0.3
    assert read(family, hidden_dropout_prob=0.3, classifier_dropout=0.0).label_dropout_p == 0.0
    written = read(family, hidden_dropout_prob=0.3).to_hf()
    assert written["classifier_dropout"] is None


def test_mpnets_classifiers_have_the_dropout_of_the_layers() -> None:
    # The field stands in files; no code reads it.
    assert read("mpnet", hidden_dropout_prob=0.3, classifier_dropout=0.2).label_dropout_p == 0.3


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "mpnet"])
def test_the_id_that_pads(family: str) -> None:
    assert read(family).pad_token_id == (1 if family == "mpnet" else 0)
    assert read(family, pad_token_id=None).pad_token_id is None


class TestRoberta:
    def test_positions_start_after_the_id_that_pads(self) -> None:
        assert read("roberta").max_seq_len == 13 - 2
        config = read("roberta", pad_token_id=5)
        assert (config.max_seq_len, config.num_positions) == (7, 13)
        assert config.to_hf()["max_position_embeddings"] == 13

    @pytest.mark.parametrize("pad_id", [-1, 12, 13, 40])
    def test_ids_that_leave_no_position(self, pad_id: int) -> None:
        refuse("roberta", f"'pad_token_id' must be from 0 to 11, .*; got {pad_id}", pad_token_id=pad_id)

    def test_the_last_one_that_leaves_one(self) -> None:
        assert read("roberta", pad_token_id=11).max_seq_len == 1

    def test_an_id_is_needed(self) -> None:
        refuse("roberta", "'pad_token_id' must be a whole number; got None", pad_token_id=None)

    def test_both_names(self) -> None:
        assert read("xlm-roberta").model_type == "xlm-roberta"
        assert RobertaConfig().to_hf()["architectures"] == ["RobertaModel"]


class TestMPNet:
    def test_positions_start_at_two_whatever_pads(self) -> None:
        config = read("mpnet", pad_token_id=5)
        assert (config.max_seq_len, config.num_positions) == (11, 13)
        assert config.to_hf()["max_position_embeddings"] == 13

    def test_a_table_of_positions_without_one_for_a_token(self) -> None:
        refuse("mpnet", "'max_position_embeddings' must be at least 3.*; got 2", max_position_embeddings=2)

    def test_buckets(self) -> None:
        assert read("mpnet").num_buckets == 32
        assert read("mpnet", relative_attention_num_buckets=37).num_buckets == 37
        refuse("mpnet", "must be at least 32.*; got 31", relative_attention_num_buckets=31)
        with pytest.raises(InputError, match="num_buckets must be at least 32; got 31"):
            mpnet.build(MPNetConfig(num_buckets=31))

    def test_all_its_buckets_are_in_the_table(self) -> None:
        config = MPNetConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11, num_buckets=37)
        encoder = mpnet.build(config).encoder
        assert encoder is not None
        table: Any = encoder.get_parameter("bias.table.weight")
        assert table.shape == (37, 2)


def test_the_defaults_are_those_of_the_published_models() -> None:
    assert (BertConfig().d_model, BertConfig().num_layers, BertConfig().norm_eps) == (768, 12, 1e-12)
    assert (RobertaConfig().vocab_size, RobertaConfig().num_positions) == (50265, 514)
    assert (MPNetConfig().vocab_size, MPNetConfig().num_positions) == (30527, 514)
    assert (ElectraConfig().d_embedding, ElectraConfig().d_model, ElectraConfig().d_ff) == (128, 256, 1024)


def test_a_head_without_a_class_in_transformers_is_not_written() -> None:
    with pytest.raises(InputError, match=r"head must be one .* for bert: None, .*; got 'language-model'"):
        BertConfig(head="language-model").to_hf()


def test_what_absence_means_is_not_always_the_default() -> None:
    roberta, deberta = read("roberta"), read("deberta-v2")
    assert (roberta.num_token_types, roberta.norm_eps) == (2, 1e-12)
    assert (RobertaConfig().num_token_types, RobertaConfig().norm_eps) == (1, 1e-5)
    assert (deberta.has_absolute_positions, deberta.relative_attention) == (True, False)


@EVERY
def test_a_size_that_a_file_must_have(family: str) -> None:
    for name in FIELDS[family]:
        values = {"model_type": family, **FIELDS[family]}
        del values[name]
        with pytest.raises(CheckpointError, match=f"'{name}' must be a whole number; it is missing"):
            family_of(family).config.from_hf(Fields(file=Path("config.json"), values=values), [])
