"""The sizes of an ELECTRA, and the fields of config.json that give them."""

from dataclasses import dataclass

from regard.models._config import hf
from regard.models._post_norm_config import PostNormConfig


@dataclass(frozen=True, kw_only=True)
class ElectraConfig(PostNormConfig):
    """An ELECTRA encoder; the defaults are those of electra-small-discriminator.

    Args:
        d_embedding: size of the tables of embeddings; where it is not `d_model`, a linear layer leads from
            one to the other.
        num_token_types: rows of the table of token types.

    The others are those of `PostNormConfig`.

    Example:
        >>> ElectraConfig().d_model, ElectraConfig().d_embedding
        (256, 128)
    """

    STEMS = {"electra": "Electra"}
    STARTS = {"masked-lm": "generator_", "sequence": "classifier.", "token": "classifier."}
    # Of the head for multiple choice only.
    INERT = frozenset(
        {
            *("summary_activation", "summary_first_dropout", "summary_last_dropout"),
            *("summary_proj_to_labels", "summary_type", "summary_use_proj"),
        }
    )

    d_model: int = hf("hidden_size", 256, is_required=True)
    num_heads: int = hf("num_attention_heads", 4, is_required=True)
    d_ff: int = hf("intermediate_size", 1024, is_required=True)
    d_embedding: int = hf("embedding_size", 128, is_required=True)
    num_token_types: int = hf("type_vocab_size", 2)
