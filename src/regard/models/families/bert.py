"""BERT (Devlin et al. 2019) and the many encoders that share its shape, MiniLM among them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.checkpoints import ID_BUFFERS, Fields, GGUFFile, KeyMap, Rename, Shared
from regard.models._attentions import TakesAttention
from regard.models._config import Rows, hf
from regard.models._heads import Classifier, pooled
from regard.models._transformer import Transformer
from regard.models.families._family import Family
from regard.models.families._gguf import Architecture
from regard.models.families._post_norm import (
    ATTENTION_RULES,
    EMBEDDING_RULES,
    FEED_FORWARD_RULES,
    POOLER_RULES,
    PostNormConfig,
    has_pooler,
    post_norm_encoder,
)


@dataclass(frozen=True, kw_only=True)
class BertConfig(PostNormConfig, TakesAttention):
    """A BERT encoder; the defaults are those of bert-base-uncased.

    Args:
        num_token_types: rows of the table of token types.
        use_pooler: whether the checkpoint has the pooler, a dense layer with tanh on the first position.

    The others are those of `PostNormConfig` and `TakesAttention`.
    """

    STEMS = {"bert": "Bert"}
    STARTS = {"masked-lm": "cls.predictions.", "sequence": "classifier.", "token": "classifier."}
    POOLED = frozenset({"sequence"})
    # Pre-training had a second head, which tells whether two sentences follow each other. It is left out, and
    # so the class that is written has the masked-LM head only.
    HEADS = {"ForPreTraining": "masked-lm"}
    # These stand in the released TensorFlow checkpoints, whose code never read them.
    IGNORED_FIELDS = frozenset(
        {
            *("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
            *("pooler_size_per_head", "pooler_type"),
        }
    )

    num_token_types: Rows = hf("type_vocab_size", 2)
    use_pooler: bool = True

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        fields.expect("directionality", ("bidi",), default="bidi")
        # A classifier of texts reads it: if it is not stored, loading says so.
        use_pooler = has_pooler(tensors) or read["head"] == "sequence"
        return super().derived(fields, tensors, read) | {"use_pooler": use_pooler}


def build(config: BertConfig) -> Transformer:
    """Bidirectional Encoder Representations from Transformers.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 3.
    """

    def classifier() -> Classifier:
        labels = nn.Linear(config.d_model, config.num_labels)
        return Classifier(pooled, dropout=nn.Dropout(config.label_dropout_p), labels=labels)

    return post_norm_encoder(config, classifier=classifier, lm_activation=config.activation)


BERT_KEYS = KeyMap(
    rules=(
        *EMBEDDING_RULES,
        *ATTENTION_RULES,
        *FEED_FORWARD_RULES,
        *POOLER_RULES,
        Rename("cls.predictions.transform.dense.{part}", "head.dense.{part}"),
        Rename("cls.predictions.transform.LayerNorm.{part}", "head.norm.{part}"),
        Rename("cls.predictions.bias", "head.output.bias"),
        Rename("cls.predictions.decoder.weight", "head.output.weight"),
        Rename("cls.predictions.decoder.bias", "head.output.own_bias"),
        Shared("cls.predictions.decoder.bias", ("head.output.bias",), is_written=False),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("bert.",),
    # TensorFlow's names for a layer norm's parameters, still in bert-base-uncased.
    aliases=((".gamma", ".weight"), (".beta", ".bias")),
    # What a network may lack of these: whether the next sentence follows, answers to questions.
    heads=("cls.", "classifier.", "qa_outputs."),
    buffers=ID_BUFFERS,
)
"""BERT's names on disk and in the network."""


def _gguf_sizes(fields: Fields, file: GGUFFile) -> dict[str, Any]:
    """The rows of the tables; the number of labels of a head that regard does not read is passed over."""
    fields.expect("attention.causal", (False,), default=False)
    names = file.names()
    tables = {"vocab_size": "token_embd.weight", "type_vocab_size": "token_types.weight"}
    return {field: file.shape(name)[0] if name in names else 0 for field, name in tables.items()}


_BLOCK, _LAYER = "blk.{layer}", "encoder.layer.{layer}"

BERT_GGUF = {
    "bert": Architecture(
        model_type="bert",
        class_name="BertModel",
        fields={
            "block_count": "num_hidden_layers",
            "context_length": "max_position_embeddings",
            "embedding_length": "hidden_size",
            "feed_forward_length": "intermediate_size",
            "attention.head_count": "num_attention_heads",
            "attention.layer_norm_epsilon": "layer_norm_eps",
        },
        names=(
            Rename("token_embd.weight", "embeddings.word_embeddings.weight"),
            Rename("position_embd.weight", "embeddings.position_embeddings.weight"),
            Rename("token_types.weight", "embeddings.token_type_embeddings.weight"),
            Rename("token_embd_norm.{part}", "embeddings.LayerNorm.{part}"),
            Rename(f"{_BLOCK}.attn_q.{{part}}", f"{_LAYER}.attention.self.query.{{part}}"),
            Rename(f"{_BLOCK}.attn_k.{{part}}", f"{_LAYER}.attention.self.key.{{part}}"),
            Rename(f"{_BLOCK}.attn_v.{{part}}", f"{_LAYER}.attention.self.value.{{part}}"),
            Rename(f"{_BLOCK}.attn_output.{{part}}", f"{_LAYER}.attention.output.dense.{{part}}"),
            Rename(f"{_BLOCK}.attn_output_norm.{{part}}", f"{_LAYER}.attention.output.LayerNorm.{{part}}"),
            Rename(f"{_BLOCK}.ffn_up.{{part}}", f"{_LAYER}.intermediate.dense.{{part}}"),
            Rename(f"{_BLOCK}.ffn_down.{{part}}", f"{_LAYER}.output.dense.{{part}}"),
            Rename(f"{_BLOCK}.layer_output_norm.{{part}}", f"{_LAYER}.output.LayerNorm.{{part}}"),
        ),
        more=_gguf_sizes,
    )
}
"""Files of BERT."""

FAMILIES = (Family("bert", BertConfig, build, BERT_KEYS, pruned_in_4=True, live=True),)
