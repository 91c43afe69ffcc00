"""The sizes of a BERT, and the fields of config.json that give them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from regard.checkpoints import Fields
from regard.models._config import hf
from regard.models._post_norm_config import PostNormConfig, has_pooler


@dataclass(frozen=True, kw_only=True)
class BertConfig(PostNormConfig):
    """A BERT encoder; the defaults are those of bert-base-uncased.

    Args:
        num_token_types: rows of the table of token types.
        use_pooler: whether the checkpoint has the pooler, a dense layer with tanh on the first position.

    The others are those of `PostNormConfig`.

    Example:
        >>> BertConfig(num_layers=6).d_model
        768
    """

    STEMS = {"bert": "Bert"}
    STARTS = {"masked-lm": "cls.predictions.", "sequence": "classifier.", "token": "classifier."}
    # Pre-training had a second head, which tells whether two sentences follow each other. It is left out, and
    # so the class that is written has the masked-LM head only.
    HEADS = {"ForPreTraining": "masked-lm"}
    # These stand in the released TensorFlow checkpoints, whose code never read them.
    INERT = frozenset(
        {
            *("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
            *("pooler_size_per_head", "pooler_type"),
        }
    )

    num_token_types: int = hf("type_vocab_size", 2)
    use_pooler: bool = True

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        """See `FamilyConfig`."""
        fields.expect("directionality", ("bidi",), default="bidi")
        # A classifier of texts reads it: if it is not stored, loading says so.
        use_pooler = has_pooler(tensors) or read["head"] == "sequence"
        return super().derived(fields, tensors, read) | {"use_pooler": use_pooler}
