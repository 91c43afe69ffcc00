"""What the encoders descended from BERT share: the network but for its variations, and names on disk.

BERT, RoBERTa, ELECTRA, MPNet and DistilBERT put the same layer between different embeddings and heads.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.blocks import (
    CountTokens,
    Embeddings,
    FeedForward,
    Linear,
    MultiHeadAttention,
    Numbering,
    Pattern,
    PostNorm,
    SelfAttentionLayer,
    Stack,
)
from regard.checkpoints import Fields, HeadKind, Rename, Shared
from regard.models._attentions import TakesAttention
from regard.models._config import EncoderConfig, Rate, Size, Small, check_sizes, hf
from regard.models._heads import (
    Activation,
    Classifier,
    Head,
    MaskedLMHead,
    ReplacedHead,
    first_position,
    output_layer,
    token_classifier,
)
from regard.models._transformer import Transformer
from regard.positions import LearnedPositions, RelativeBias


@dataclass(frozen=True, kw_only=True)
class PostNormConfig(EncoderConfig):
    """What BERT and all its descendants have; the defaults are those of bert-base-uncased.

    Args:
        max_seq_len: the tokens that the table of positions has rows for.
        norm_eps: added to the variance by every layer norm.
        dropout_p, attention_dropout_p: in training, on sublayers and on attention weights.
        classifier_dropout_p: in training, in a classifier; None for `dropout_p`.

    The others are those of `FamilyConfig`.
    """

    max_seq_len: Size = hf("max_position_embeddings", 512, is_required=True)
    norm_eps: Small = hf("layer_norm_eps", 1e-12)
    dropout_p: Rate = hf("hidden_dropout_prob", 0.1)
    attention_dropout_p: Rate = hf("attention_probs_dropout_prob", 0.1)
    classifier_dropout_p: Rate | None = hf("classifier_dropout", None)

    POOLED: ClassVar[frozenset[HeadKind]] = frozenset()
    """The heads that read the pooler."""

    def trimmed(self) -> Self:
        # DistilBERT and DeBERTa have no pooler to leave out.
        has_choice = any(each.name == "use_pooler" for each in fields(self))
        if self.head is None or not has_choice:
            return self
        changes: Any = {"use_pooler": self.head in self.POOLED}
        return replace(self, **changes)

    @property
    def use_pooler(self) -> bool:
        """Whether there is a pooler, a dense layer with tanh on the first position."""
        return False

    @property
    def num_positions(self) -> int:
        """Rows of the table of positions."""
        return self.max_seq_len

    @property
    def label_dropout_p(self) -> float:
        """The dropout in a classifier, in training."""
        return self.dropout_p if self.classifier_dropout_p is None else self.classifier_dropout_p

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        # Relative positions of BERT's own kind are not built.
        fields.expect("position_embedding_type", ("absolute",), default="absolute")
        fields.expect("is_decoder", (False,), default=False)
        return {}


def has_pooler(tensors: Collection[str]) -> bool:
    """Whether a pooler is stored, which only the names of the tensors say."""
    return any(name.endswith("pooler.dense.weight") for name in tensors)


def post_norm_encoder(
    config: PostNormConfig,
    *,
    classifier: Callable[[], Classifier],
    lm_activation: str = "gelu",  # by name in the code of RoBERTa, MPNet and ELECTRA, whatever the file says
    has_own_bias: bool = True,
    numbering: Numbering | None = None,
    bias: RelativeBias | None = None,
    d_embedding: int | None = None,
    attention_output_dropout_p: float | None = None,
) -> Transformer:
    """Self-attention and feed-forward, each followed by dropout, the residual sum and a layer norm.

    `lm_activation` is that of the masked-LM head, whatever the layers have; `has_own_bias` says whether that
    head's output layer stores a bias of its own where it is not tied.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.1; Devlin et al. 2019, arXiv 1810.04805.
    """
    check_sizes(config)
    # Where positions are counted by tokens, padding has a row of its own among them, which is not trained.
    pad_position = numbering.pad_id if isinstance(numbering, CountTokens) else None
    # ELECTRA's tables are narrower.
    width = config.d_model if d_embedding is None else d_embedding
    embeddings = Embeddings(
        config.vocab_size,
        config.d_model,
        positions=LearnedPositions(config.num_positions, width, pad_id=pad_position),
        num_token_types=config.num_token_types,
        norm=nn.LayerNorm(width, eps=config.norm_eps),  # before the projection, in ELECTRA
        d_embedding=None if width == config.d_model else width,
        pad_id=config.pad_row,
        dropout_p=config.dropout_p,
    )
    # DistilBERT has none there.
    after_attention = config.dropout_p if attention_output_dropout_p is None else attention_output_dropout_p
    # Families with another attention as an option.
    takes = config if isinstance(config, TakesAttention) else None
    layers = [
        SelfAttentionLayer(
            MultiHeadAttention(
                config.d_model,
                config.num_heads,
                dropout_p=config.attention_dropout_p,
                kernel=None if takes is None else takes.kernel_of(layer),
            ),
            FeedForward(config.d_model, config.d_ff, activation=config.activation),
            attention_residual=_residual(config, after_attention),
            ffn_residual=_residual(config, config.dropout_p),
        )
        for layer in range(config.num_layers)
    ]
    # Bidirectional: no mask but that of a windowed attention.
    pattern = Pattern(mask=None if takes is None else takes.masked(None))
    head: Head | None = None
    # The families differ in classifiers and in the masked-LM head.
    match config.head:
        case "masked-lm":
            head = masked_lm_head(config, embeddings.tokens, lm_activation, has_own_bias=has_own_bias)
        case "sequence":
            head = classifier()
        case "token":
            head = token_classifier(config.d_model, config.num_labels, dropout_p=config.label_dropout_p)
        case "replaced":
            head = ReplacedHead(config.d_model, config.activation)
    return Transformer(
        config,
        encoder=Stack(
            embeddings, layers, patterns=[pattern] * config.num_layers, bias=bias, numbering=numbering
        ),
        pooler=Pooler(config.d_model) if config.use_pooler else None,
        head=head,
    )


def _residual(config: PostNormConfig, dropout_p: float) -> PostNorm:
    return PostNorm(nn.LayerNorm(config.d_model, eps=config.norm_eps), dropout_p=dropout_p)


class Pooler(nn.Module):
    """tanh(W x_0 + b): the first position's contextual embedding, as BERT's sentence classifiers read it.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 3.1 ("C"); the dense layer is in their code.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)

    def forward(self, last_hidden_state: Tensor) -> Tensor:
        """(batch, positions, d_model) -> (batch, d_model)."""
        pooled: Tensor = self.dense(last_hidden_state[:, 0]).tanh()
        return pooled


class UntiedOutput(nn.Linear):
    """An output layer apart from the table of learned embeddings, and `bias`, a buffer that nothing reads.

    On disk the bias of a tied output layer has a name of its own. Untied, `transformers` stores a bias with
    the weight, here `own_bias`, and reads that one; the other is still there.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        # In its place a buffer of the same name, since files store both.
        del self.bias
        self.register_buffer("bias", torch.zeros(d_out))
        self.own_bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_in) -> (..., d_out)."""
        return functional.linear(x, self.weight, self.own_bias)


def dense_classifier(config: PostNormConfig, activation: str) -> Classifier:
    """logits = W activation(W_h x_0 + b_h) + b: a label for the text, read off its first position.

    RoBERTa's, ELECTRA's and MPNet's, which do without the pooler. Its last layer is called `score`, since on
    disk it has another name than that of the classifier of tokens.
    """
    return Classifier(
        first_position,
        input_dropout=nn.Dropout(config.label_dropout_p),
        hidden=nn.Linear(config.d_model, config.d_model),
        activation=Activation(activation),
        dropout=nn.Dropout(config.label_dropout_p),
        score=nn.Linear(config.d_model, config.num_labels),
    )


def masked_lm_head(
    config: PostNormConfig, tokens: nn.Embedding, activation: str, *, has_own_bias: bool = True
) -> MaskedLMHead:
    """The masked-LM head, tied to the table of learned embeddings or not; the rest as `post_norm_encoder`."""
    width = tokens.embedding_dim
    # An output layer of its own has two biases on disk.
    if has_own_bias and not config.tie_word_embeddings:
        output: nn.Linear = UntiedOutput(width, tokens.num_embeddings)
    else:
        output = output_layer(tokens, is_tied=config.tie_word_embeddings, use_bias=True)
    norm = nn.LayerNorm(width, eps=config.norm_eps)
    return MaskedLMHead(Linear(config.d_model, width), activation, norm, output)


_THEIRS, _OURS = "encoder.layer.{layer}", "encoder.layers.{layer}"

EMBEDDING_RULES = (
    Rename("embeddings.word_embeddings.weight", "encoder.embeddings.tokens.weight"),
    Rename("embeddings.position_embeddings.weight", "encoder.embeddings.positions.weight"),
    Rename("embeddings.token_type_embeddings.weight", "encoder.embeddings.token_types.weight"),
    Rename("embeddings.LayerNorm.{part}", "encoder.embeddings.norm.{part}"),
)
"""The tables and their norm."""

ATTENTION_RULES = (
    Rename(f"{_THEIRS}.attention.self.query.{{part}}", f"{_OURS}.attention.q.{{part}}"),
    Rename(f"{_THEIRS}.attention.self.key.{{part}}", f"{_OURS}.attention.k.{{part}}"),
    Rename(f"{_THEIRS}.attention.self.value.{{part}}", f"{_OURS}.attention.v.{{part}}"),
    Rename(f"{_THEIRS}.attention.self.kernel.keys", f"{_OURS}.attention.kernel.keys"),
    Rename(f"{_THEIRS}.attention.self.kernel.values", f"{_OURS}.attention.kernel.values"),
    Rename(f"{_THEIRS}.attention.output.dense.{{part}}", f"{_OURS}.attention.output.{{part}}"),
    Rename(f"{_THEIRS}.attention.output.LayerNorm.{{part}}", f"{_OURS}.attention_residual.norm.{{part}}"),
)
"""Attention and the norm after it; MPNet has other names."""

FEED_FORWARD_RULES = (
    Rename(f"{_THEIRS}.intermediate.dense.{{part}}", f"{_OURS}.ffn.hidden.{{part}}"),
    Rename(f"{_THEIRS}.output.dense.{{part}}", f"{_OURS}.ffn.output.{{part}}"),
    Rename(f"{_THEIRS}.output.LayerNorm.{{part}}", f"{_OURS}.ffn_residual.norm.{{part}}"),
)
"""The feed-forward network and the norm after it."""

POOLER_RULES = (Rename("pooler.dense.{part}", "pooler.dense.{part}"),)
"""The pooler."""

LM_HEAD_RULES = (
    Rename("lm_head.dense.{part}", "head.dense.{part}"),
    Rename("lm_head.layer_norm.{part}", "head.norm.{part}"),
    Rename("lm_head.bias", "head.output.bias"),
    Rename("lm_head.decoder.weight", "head.output.weight"),
    Rename("lm_head.decoder.bias", "head.output.own_bias"),
    Shared("lm_head.decoder.bias", ("head.output.bias",), is_written=False),
)
"""The masked-LM head of RoBERTa and MPNet."""

DENSE_CLASSIFIER_RULES = (
    Rename("classifier.dense.{part}", "head.hidden.{part}"),
    Rename("classifier.out_proj.{part}", "head.score.{part}"),
    Rename("classifier.{part}", "head.labels.{part}"),
)
"""The classifiers of texts and of tokens, where the former has a layer in between."""
