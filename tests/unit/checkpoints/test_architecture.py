"""Which head stands on a checkpoint, by the name of the class that wrote it; and how many labels it has."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import transformers

from regard.checkpoints import HeadKind, head_of, num_labels
from regard.core.errors import CheckpointError
from unit.checkpoints.stored import config

FAMILIES = (
    "bert",
    "distilbert",
    "roberta",
    "xlm_roberta",
    "electra",
    "mpnet",
    "modernbert",
    "gpt2",
    "llama",
    "mistral",
    "phi3",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "deberta_v2",
    "t5",
    "bart",
    "mbart",
    "marian",
)

EXPECTED: dict[str, HeadKind | None] = {
    "ForCausalLM": "language-model",
    "ForConditionalGeneration": "language-model",
    "ForMaskedLM": "masked-lm",
    "ForMultipleChoice": None,
    "ForNextSentencePrediction": None,
    "ForPreTraining": None,
    "ForQuestionAnswering": None,
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
}

OTHERS: dict[str, HeadKind | None] = {
    "BertLMHeadModel": "language-model",
    "GPT2LMHeadModel": "language-model",
    "GPT2DoubleHeadsModel": "language-model",
    "MarianMTModel": "language-model",
    "T5EncoderModel": None,
}


def classes() -> list[str]:
    """The models that transformers saves for these families."""
    names = []
    for family in FAMILIES:
        module = getattr(transformers.models, family)
        names += [
            name
            for name in dir(module)
            if inspect.isclass(value := getattr(module, name))
            and issubclass(value, transformers.PreTrainedModel)
            and not name.endswith("PreTrainedModel")
        ]
    return names


def test_the_classes_of_transformers() -> None:
    """Written down class by class above; what is none of those has no head."""
    found = classes()
    assert {"BertForMaskedLM", "T5ForConditionalGeneration", "MarianMTModel", "Gemma3ForCausalLM"} < {*found}
    assert len(found) > 80
    for name in found:
        wanted = next((head for end, head in EXPECTED.items() if name.endswith(end)), OTHERS.get(name))
        assert wanted is not None or name in OTHERS or name.endswith(("Model", *EXPECTED))
        fields = config(architectures=[name])
        assert head_of(fields) == wanted, name
        fields.done()


@pytest.mark.parametrize("name", ["T5WithLMHeadModel", "XLMWithLMHeadModel", "AutoModelWithLMHead"])
def test_old_names(name: str) -> None:
    assert head_of(config(architectures=[name])) == "language-model"


@pytest.mark.parametrize(
    "values", [{}, {"architectures": None}, {"architectures": []}, {"architectures": ["Sentence"]}], ids=str
)
def test_no_name_no_head(values: dict[str, object]) -> None:
    assert head_of(config(**values)) is None


def test_a_family_may_read_an_ending_otherwise() -> None:
    fields = config(architectures=["ElectraForPreTraining", "ElectraForMaskedLM"])
    assert head_of(fields) is None
    assert head_of(fields, {"ForPreTraining": "masked-lm"}) == "masked-lm"
    assert head_of(config(architectures=["MPTree"]), {"Tree": "token"}) == "token"
    assert head_of(config(architectures=["BertForMaskedLM"]), {"ForMaskedLM": None}) is None


@pytest.mark.parametrize("value", ["BertModel", [3], {"0": "BertModel"}], ids=str)
def test_architectures_that_are_no_names(value: object) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: the field 'architectures.*' must be"):
        head_of(config(architectures=value))


NAMES = {"0": "a", "1": "b", "2": "c"}


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ({}, 2),
        ({"id2label": None, "num_labels": None}, 2),
        ({"id2label": NAMES}, 3),
        ({"num_labels": 7}, 7),
        ({"_num_labels": 5}, 5),
        ({"id2label": NAMES, "num_labels": 3, "_num_labels": 3}, 3),
        ({"id2label": {"0": "score"}}, 1),
    ],
    ids=str,
)
def test_the_number_of_labels(values: dict[str, object], number: int) -> None:
    fields = config(**values)
    assert num_labels(fields) == number
    fields.done(inert=())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"id2label": NAMES, "num_labels": 4},
            r"disagree .* \(id2label says 3, num_labels says 4\); correct",
        ),
        ({"num_labels": 4, "_num_labels": 5}, r"\(num_labels says 4, _num_labels says 5\)"),
        ({"id2label": {"1": "a", "2": "b"}}, "numbered from 0 without a gap, got 1, 2"),
        ({"id2label": {"x": "a"}}, "numbered from 0 without a gap, got x"),
        ({"id2label": {}}, "must be at least 1; got 0"),
        ({"num_labels": 0}, "must be at least 1; got 0"),
        ({"num_labels": True}, r"'num_labels' must be a whole number; got True"),
        ({"id2label": ["a"]}, r"'id2label' must be a table; got \['a'\]"),
    ],
    ids=str,
)
def test_labels_that_make_no_sense(values: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"config\.json: .*{message}"):
        num_labels(config(**values))


@pytest.mark.parametrize("number", [2, 3, 5])
def test_the_number_of_labels_that_transformers_writes(tmp_path: Path, number: int) -> None:
    from regard.checkpoints import read_config

    transformers.BertConfig(num_labels=number).save_pretrained(tmp_path)
    assert num_labels(read_config(tmp_path)) == number
