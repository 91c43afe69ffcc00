"""DistilBERT (Sanh et al. 2019)."""

from dataclasses import dataclass, field

from torch import nn

from regard.checkpoints import ID_BUFFERS, KeyMap, Rename
from regard.models._config import Rate, Size, Small, hf
from regard.models._heads import Activation, Classifier, first_position
from regard.models._init import Scheme, Sinusoids
from regard.models._transformer import Transformer
from regard.models.families._family import Family
from regard.models.families._post_norm import PostNormConfig, post_norm_encoder


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(PostNormConfig):
    """A DistilBERT encoder; the defaults are those of distilbert-base-uncased.

    Args:
        starts_sinusoidal: whether the table of positions began as sinusoids; it is stored like any other.
        classifier_dropout_p: before a classifier of texts, in training.

    The others are those of `PostNormConfig`; `norm_eps` is 1e-12, which no field of config.json can change.
    """

    STEMS = {"distilbert": "DistilBert"}
    STARTS = {"masked-lm": "vocab_", "sequence": "pre_classifier.", "token": "classifier."}
    # The first acts in answers to questions and in training only; nothing ever read the other.
    IGNORED_FIELDS = frozenset({"qa_dropout", "tie_weights_"})

    d_model: Size = hf("dim", 768, is_required=True)
    num_layers: Size = hf("n_layers", 6, is_required=True)
    num_heads: Size = hf("n_heads", 12, is_required=True)
    d_ff: Size = hf("hidden_dim", 3072, is_required=True)
    starts_sinusoidal: bool = hf("sinusoidal_pos_embds", False)
    activation: str = hf("activation", "gelu")
    norm_eps: Small = field(default=1e-12, init=False)
    dropout_p: Rate = hf("dropout", 0.1)
    attention_dropout_p: Rate = hf("attention_dropout", 0.1)
    classifier_dropout_p: Rate = hf("seq_classif_dropout", 0.2)

    @property
    def label_dropout_p(self) -> float:
        """The dropout in a classifier of tokens, in training."""
        return self.dropout_p

    def initial(self) -> Scheme:
        return {"*.positions.weight": Sinusoids()} if self.starts_sinusoidal else {}


def build(config: DistilBertConfig) -> Transformer:
    """A smaller BERT, distilled from it.

    Source: Sanh et al. 2019, arXiv 1910.01108, section 3.
    """

    def classifier() -> Classifier:
        return Classifier(
            first_position,
            hidden=nn.Linear(config.d_model, config.d_model),
            activation=Activation("relu"),  # whatever `activation` says
            dropout=nn.Dropout(config.classifier_dropout_p),
            labels=nn.Linear(config.d_model, config.num_labels),
        )

    return post_norm_encoder(
        config,
        classifier=classifier,
        lm_activation=config.activation,
        has_own_bias=False,  # the output layer stores the one bias, tied or not
        # Dropout follows the feed-forward network only: the published model has none after attention.
        attention_output_dropout_p=0.0,
    )


_LAYER = "transformer.layer.{layer}"

DISTILBERT_KEYS = KeyMap(
    rules=(
        Rename("embeddings.word_embeddings.weight", "encoder.embeddings.tokens.weight"),
        Rename("embeddings.position_embeddings.weight", "encoder.embeddings.positions.weight"),
        Rename("embeddings.LayerNorm.{part}", "encoder.embeddings.norm.{part}"),
        Rename(f"{_LAYER}.attention.q_lin.{{part}}", "encoder.layers.{layer}.attention.q.{part}"),
        Rename(f"{_LAYER}.attention.k_lin.{{part}}", "encoder.layers.{layer}.attention.k.{part}"),
        Rename(f"{_LAYER}.attention.v_lin.{{part}}", "encoder.layers.{layer}.attention.v.{part}"),
        Rename(f"{_LAYER}.attention.out_lin.{{part}}", "encoder.layers.{layer}.attention.output.{part}"),
        Rename(f"{_LAYER}.sa_layer_norm.{{part}}", "encoder.layers.{layer}.attention_residual.norm.{part}"),
        Rename(f"{_LAYER}.ffn.lin1.{{part}}", "encoder.layers.{layer}.ffn.hidden.{part}"),
        Rename(f"{_LAYER}.ffn.lin2.{{part}}", "encoder.layers.{layer}.ffn.output.{part}"),
        Rename(f"{_LAYER}.output_layer_norm.{{part}}", "encoder.layers.{layer}.ffn_residual.norm.{part}"),
        Rename("vocab_transform.{part}", "head.dense.{part}"),
        Rename("vocab_layer_norm.{part}", "head.norm.{part}"),
        Rename("vocab_projector.{part}", "head.output.{part}"),
        Rename("pre_classifier.{part}", "head.hidden.{part}"),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("distilbert.",),
    # What a network may lack of these: answers to questions.
    heads=("vocab_", "pre_classifier.", "classifier.", "qa_outputs."),
    buffers=ID_BUFFERS,
)
"""DistilBERT's names on disk and in the network."""

FAMILIES = (Family("distilbert", DistilBertConfig, build, DISTILBERT_KEYS, pruned_in_4=True, live=True),)
