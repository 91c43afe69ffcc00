"""ELECTRA (Clark et al. 2020): its generator, and its discriminator, which is what one builds on."""

from dataclasses import dataclass

from regard.checkpoints import ID_BUFFERS, KeyMap, Rename
from regard.core.errors import InputError
from regard.models._attentions import TakesAttention
from regard.models._config import Rows, Size, hf
from regard.models._heads import MaskedLMHead
from regard.models._transformer import Transformer
from regard.models.families._family import Family
from regard.models.families._post_norm import (
    ATTENTION_RULES,
    DENSE_CLASSIFIER_RULES,
    EMBEDDING_RULES,
    FEED_FORWARD_RULES,
    PostNormConfig,
    dense_classifier,
    post_norm_encoder,
)


@dataclass(frozen=True, kw_only=True)
class ElectraConfig(PostNormConfig, TakesAttention):
    """An ELECTRA encoder; the defaults are those of electra-small-discriminator.

    Args:
        d_embedding: size of the tables of embeddings; where it is not `d_model`, a linear layer leads from
            one to the other.
        num_token_types: rows of the table of token types.

    The others are those of `PostNormConfig` and `TakesAttention`.
    """

    STEMS = {"electra": "Electra"}
    STARTS = {
        "masked-lm": "generator_",
        "sequence": "classifier.",
        "token": "classifier.",
        "replaced": "discriminator_",
    }
    HEADS = {"ForPreTraining": "replaced"}
    ENDINGS = {**PostNormConfig.ENDINGS, "replaced": "ForPreTraining"}
    # Only the head for multiple choice has these.
    IGNORED_FIELDS = frozenset(
        {
            *("summary_activation", "summary_first_dropout", "summary_last_dropout"),
            *("summary_proj_to_labels", "summary_type", "summary_use_proj"),
        }
    )

    d_model: Size = hf("hidden_size", 256, is_required=True)
    num_heads: Size = hf("num_attention_heads", 4, is_required=True)
    d_ff: Size = hf("intermediate_size", 1024, is_required=True)
    d_embedding: Size = hf("embedding_size", 128, is_required=True)
    num_token_types: Rows = hf("type_vocab_size", 2)


def build(config: ElectraConfig) -> Transformer:
    """The generator, whose head is "masked-lm", or the discriminator, whose head is "replaced".

    Source: Clark et al. 2020, arXiv 2003.10555, sections 2 and 3.1; the smaller embeddings: appendix A.
    """
    return post_norm_encoder(
        config,
        classifier=lambda: dense_classifier(config, "gelu"),  # where BERT and RoBERTa have tanh
        has_own_bias=False,  # the output layer stores the one bias, tied or not
        d_embedding=config.d_embedding,
    )


def share_embeddings(generator: Transformer, discriminator: Transformer) -> None:
    """Give the generator the discriminator's tables of tokens, positions and token types.

    The generator's output layer follows where it is tied to its table. An optimiser is given the parameters
    of both once each, as `torch.nn.ModuleList([generator, discriminator]).parameters()` has them.

    Args:
        generator, discriminator: networks of this family; the generator's layers may be smaller.

    Raises:
        InputError: tables of different sizes.

    Example:
        >>> from regard.models import new_network
        >>> sizes = {"vocab_size": 13, "d_embedding": 6, "num_layers": 1, "num_heads": 2, "d_ff": 11}
        >>> generator = new_network(ElectraConfig(**sizes, d_model=4, head="masked-lm"))
        >>> discriminator = new_network(ElectraConfig(**sizes, d_model=8, head="replaced"))
        >>> share_embeddings(generator, discriminator)
        >>> generator.head.output.weight is discriminator.encoder.embeddings.tokens.weight
        True

    Source: Clark et al. 2020, arXiv 2003.10555, section 3.2, "Weight sharing".
    """
    # What the generator learns of tokens, the discriminator gets too.
    ours, theirs = generator.stack("encoder").embeddings, discriminator.stack("encoder").embeddings
    for name in ("tokens", "positions", "token_types"):
        shapes = [tuple(each.weight.shape) for each in (getattr(ours, name), getattr(theirs, name)) if each]
        # The tables have two sizes, or only one network has them.
        if len(set(shapes)) > 1 or len(shapes) == 1:
            raise InputError(
                f"generator and discriminator must have tables of {name} of one size: both with the same "
                f"d_embedding and as many rows; got {' and '.join(map(str, shapes))}."
            )
    if isinstance(generator.head, MaskedLMHead) and generator.head.output.weight is ours.tokens.weight:
        # A tied head follows its table.
        generator.head.output.weight = theirs.tokens.weight
    ours.tokens, ours.positions, ours.token_types = theirs.tokens, theirs.positions, theirs.token_types


ELECTRA_KEYS = KeyMap(
    rules=(
        *EMBEDDING_RULES,
        Rename("embeddings_project.{part}", "encoder.embeddings.projection.{part}"),
        *ATTENTION_RULES,
        *FEED_FORWARD_RULES,
        Rename("generator_predictions.dense.{part}", "head.dense.{part}"),
        Rename("generator_predictions.LayerNorm.{part}", "head.norm.{part}"),
        Rename("generator_lm_head.{part}", "head.output.{part}"),
        Rename("discriminator_predictions.dense.{part}", "head.inner.{part}"),
        Rename("discriminator_predictions.dense_prediction.{part}", "head.replaced.{part}"),
        *DENSE_CLASSIFIER_RULES,
    ),
    prefixes=("electra.",),
    # What a network may lack of these: answers to questions, multiple choice.
    heads=(
        "generator_predictions.",
        "generator_lm_head.",
        "discriminator_predictions.",
        "classifier.",
        "qa_outputs.",
        "sequence_summary.",
    ),
    buffers=ID_BUFFERS,
)
"""ELECTRA's names on disk and in the network."""

FAMILIES = (Family("electra", ElectraConfig, build, ELECTRA_KEYS, pruned_in_4=True),)
