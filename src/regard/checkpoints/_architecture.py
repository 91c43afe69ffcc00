"""What stands on top of a stored model: which head, and how many labels it tells apart."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from regard.checkpoints._fields import Fields
from regard.core.errors import CheckpointError

HeadKind: TypeAlias = Literal["language-model", "masked-lm", "sequence", "token", "replaced"]
"""What a head is for: the next token, a masked one, a label for the text or for each token, or whether each
was replaced."""

HEADS: Mapping[str, HeadKind | None] = MappingProxyType(
    {
        "DoubleHeadsModel": "language-model",
        "EncoderModel": None,
        "ForCausalLM": "language-model",
        "ForConditionalGeneration": "language-model",
        "ForMaskedLM": "masked-lm",
        "ForMultipleChoice": None,
        "ForNextSentencePrediction": None,
        "ForPreTraining": None,
        "ForQuestionAnswering": None,
        "ForSequenceClassification": "sequence",
        "ForTokenClassification": "token",
        "LMHeadModel": "language-model",
        "MTModel": "language-model",
        "Model": None,
        "WithLMHead": "language-model",
        "WithLMHeadModel": "language-model",
    }
)
"""How the names of `transformers`' classes end, and regard's head for each; None where it has none.

`ForPreTraining` means several things (BERT's has a masked-LM head, ELECTRA's tells real tokens from replaced
ones), so a family that has it says which.
"""

_LABELS_WHERE_NOTHING_IS_SAID = 2


def head_of(fields: Fields, more: Mapping[str, HeadKind | None] = MappingProxyType({})) -> HeadKind | None:
    """The head that a checkpoint has, by the class that wrote it: the first of `architectures`.

    Args:
        fields: the configuration; the field counts as read.
        more: endings of class names that a family reads otherwise than `HEADS`, or in addition.

    Returns:
        The head, or None for a model without one, or with one that regard does not have (whose tensors a
        network leaves out), or where the file does not say.

    Raises:
        CheckpointError: the field is not a list of names.

    >>> from pathlib import Path
    >>> fields = Fields(file=Path("config.json"), values={"architectures": ["BertForPreTraining"]})
    >>> head_of(fields) is None, head_of(fields, {"ForPreTraining": "masked-lm"})
    (True, 'masked-lm')
    """
    # The first of the list is the class that wrote the weights.
    written_by = fields.list_of("architectures", str, None)
    if not written_by:
        return None
    endings = {**HEADS, **more}
    # the longest that fits: GPT2LMHeadModel ends with Model too
    fitting = max((ending for ending in endings if written_by[0].endswith(ending)), key=len, default=None)
    return None if fitting is None else endings[fitting]


def label_names(fields: Fields) -> tuple[str, ...]:
    """The labels of a classifier by their numbers, as `id2label` has them; none where it does not say.

    >>> from pathlib import Path
    >>> label_names(Fields(file=Path("config.json"), values={"id2label": {"1": "yes", "0": "no"}}))
    ('no', 'yes')
    """
    names = fields.get("id2label", dict, None) or {}
    # JSON has the numbers as texts: "10" must come after "9".
    return tuple(str(names[number]) for number in sorted(names, key=int))


def num_labels(fields: Fields) -> int:
    """How many labels a classifier tells apart: the length of `id2label`, or `num_labels`, or 2.

    Raises:
        CheckpointError: the fields disagree, or say something else than a number of labels.

    >>> from pathlib import Path
    >>> labels = {"0": "no", "1": "yes", "2": "maybe"}
    >>> num_labels(Fields(file=Path("config.json"), values={"id2label": labels}))
    3
    """
    counts: dict[str, int] = {}
    names = fields.get("id2label", dict, None)
    # Both are counts of the same thing, so that they must agree where a file has several.
    if names is not None:
        if set(names) != {str(number) for number in range(len(names))}:
            raise CheckpointError(
                f"{fields.file}: the labels of 'id2label' must be numbered from 0 without a gap, "
                f"got {', '.join(sorted(names)[:8]) or 'none'}"
            )
        counts["id2label"] = len(names)
    for key in ("num_labels", "_num_labels"):
        number = fields.get(key, int, None)
        if number is not None:
            counts[key] = number
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{key} says {number}" for key, number in counts.items())
        raise CheckpointError(
            f"{fields.file}: the fields disagree about the number of labels ({said}); "
            "correct the one that is not the classifier's"
        )
    number = next(iter(counts.values()), _LABELS_WHERE_NOTHING_IS_SAID)
    if number < 1:
        raise CheckpointError(f"{fields.file}: the number of labels must be at least 1; got {number}")
    return number
