"""RoBERTa (Liu et al. 2019) and XLM-R (Conneau et al. 2020), which differ in their vocabulary only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from regard.blocks import CountTokens
from regard.checkpoints import ID_BUFFERS, Fields, KeyMap
from regard.core.errors import CheckpointError
from regard.models._attentions import TakesAttention
from regard.models._config import Rows, Size, Small, hf
from regard.models._transformer import Transformer
from regard.models.families._family import Family
from regard.models.families._post_norm import (
    ATTENTION_RULES,
    DENSE_CLASSIFIER_RULES,
    EMBEDDING_RULES,
    FEED_FORWARD_RULES,
    LM_HEAD_RULES,
    POOLER_RULES,
    PostNormConfig,
    dense_classifier,
    has_pooler,
    post_norm_encoder,
)


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(PostNormConfig, TakesAttention):
    """A RoBERTa encoder; the defaults are those of roberta-base.

    Args:
        model_type: "roberta" or "xlm-roberta", the names of config.json for one and the same network.
        max_seq_len: the longest text; the table of positions has 1 + `pad_token_id` rows more, since the
            first token's position is the number after that (`max_position_embeddings` counts all the rows).
        num_token_types: rows of the table of token types.
        use_pooler: whether the checkpoint has the pooler, a dense layer with tanh on the first position.
        pad_token_id: what fills up a text, and the number of padding's position.

    The others are those of `PostNormConfig` and `TakesAttention`.
    """

    STEMS = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta"}
    STARTS = {"masked-lm": "lm_head.", "sequence": "classifier.", "token": "classifier."}

    # `absent`: the class in transformers has other defaults than roberta-base, and a file may lack a field.
    vocab_size: Size = hf("vocab_size", 50265, is_required=True)
    norm_eps: Small = hf("layer_norm_eps", 1e-5, absent=1e-12)
    pad_token_id: int = hf("pad_token_id", 1)
    model_type: Literal["roberta", "xlm-roberta"] = hf("model_type", "roberta")
    num_token_types: Rows = hf("type_vocab_size", 1, absent=2)
    use_pooler: bool = True

    @property
    def num_positions(self) -> int:
        """Rows of the table of positions."""
        return self.max_seq_len + self.pad_token_id + 1

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        # The table has pad_id + 1 rows before the first token's.
        pad_id, rows = read["pad_token_id"], read["max_seq_len"]
        if not 0 <= pad_id < rows - 1:
            raise CheckpointError(
                f"{fields.file}: the field 'pad_token_id' must be from 0 to {rows - 2}, two below "
                f"max_position_embeddings, since positions count on from it; got {pad_id}"
            )
        counted = {"max_seq_len": rows - pad_id - 1, "use_pooler": has_pooler(tensors)}
        return super().derived(fields, tensors, read) | counted

    def extra(self) -> dict[str, Any]:
        return {"max_position_embeddings": self.num_positions}


def build(config: RobertaConfig) -> Transformer:
    """A BERT trained longer, on more text, without the next sentence; XLM-R is one in a hundred languages.

    Padding is told by its id: where it is masked but has another id, positions count on over it, unless they
    are given.

    Source: Liu et al. 2019, arXiv 1907.11692, section 4; XLM-R: Conneau et al. 2020, arXiv 1911.02116.
    """
    return post_norm_encoder(
        config,
        classifier=lambda: dense_classifier(config, "tanh"),
        numbering=CountTokens(config.pad_token_id),
    )


ROBERTA_KEYS = KeyMap(
    rules=(
        *EMBEDDING_RULES,
        *ATTENTION_RULES,
        *FEED_FORWARD_RULES,
        *POOLER_RULES,
        *LM_HEAD_RULES,
        *DENSE_CLASSIFIER_RULES,
    ),
    prefixes=("roberta.",),
    # What a network may lack of these: answers to questions.
    heads=("lm_head.", "classifier.", "qa_outputs."),
    buffers=ID_BUFFERS,
)
"""RoBERTa's names on disk and in the network."""

FAMILIES = (
    Family("roberta", RobertaConfig, build, ROBERTA_KEYS, pruned_in_4=True),
    Family("xlm-roberta", RobertaConfig, build, ROBERTA_KEYS, pruned_in_4=True),
)
