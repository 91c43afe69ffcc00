"""What of a tokenizer is written into a page, and which are refused, by the name of the component."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from regard.core.errors import InputError
from regard.text import Tokenizer
from regard.text._sentencepiece import Renumbered
from unit.text.conftest import BUILDERS

Change = Callable[[Backend], object]


def _set(name: str, value: Any) -> Change:
    return lambda backend: setattr(backend, name, value)


def _set_in_model(name: str, value: Any) -> Change:
    return lambda backend: setattr(backend.model, name, value)


def _after(cut: pre_tokenizers.PreTokenizer, *, blank: bool = False) -> pre_tokenizers.Sequence:
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=blank)])


TWICE = processors.TemplateProcessing(single="$A $A", pair="$A $B", special_tokens=[])
TWO = processors.Sequence([processors.TemplateProcessing(), processors.TemplateProcessing()])
MISNAMED = processors.BertProcessing(("</s>", 0), ("<s>", 1))

REFUSED: dict[str, tuple[str, Change, str]] = {
    "another model": ("unigram", lambda _: None, "its model is Unigram"),
    "another normalizer": (
        "wordpiece",
        _set("normalizer", normalizers.Lowercase()),
        "its normalizer is Lowercase, not BertNormalizer",
    ),
    "a normalizer": (
        "byte_level",
        _set("normalizer", normalizers.Lowercase()),
        "its normalizer has {'type': 'Lowercase'}",
    ),
    "another pre-tokenizer": (
        "wordpiece",
        _set("pre_tokenizer", pre_tokenizers.Whitespace()),
        "its pre-tokenizer is Whitespace, not BertPreTokenizer",
    ),
    "another blank": (
        "byte_level",
        _set("normalizer", normalizers.Prepend("_")),
        "its normalizer has {'type': 'Prepend', 'prepend': '_'}",
    ),
    "another kind of cut": (
        "byte_level",
        _set("pre_tokenizer", _after(pre_tokenizers.Split(Regex("a"), "removed"))),
        "its pre-tokenizer has {'type': 'Split', 'pattern': {'Regex': 'a'}, 'behavior': 'Removed'",
    ),
    "an expression that means another thing elsewhere": (
        "byte_level",
        _set("pre_tokenizer", _after(pre_tokenizers.Split(Regex(r"\s+$"), "isolated"))),
        r"its pre-tokenizer cuts by '\\s+$', of which '$' is not known",
    ),
    "a greed that another library lacks": (
        "byte_level",
        _set("pre_tokenizer", _after(pre_tokenizers.Split(Regex("a?+b"), "isolated"))),
        "its pre-tokenizer cuts by 'a?+b', of which '?+b' is not known",
    ),
    "no bytes": (
        "byte_level",
        _set("pre_tokenizer", None),
        "its model has byte_fallback = False, and its pre-tokenizer no ByteLevel",
    ),
    "characters without bytes": (
        "byte_level",
        lambda backend: (_set("pre_tokenizer", None)(backend), _set_in_model("byte_fallback", True)(backend)),
        "its vocabulary lacks the bytes <0x00> <0x01>",
    ),
    "digits in groups": (
        "byte_level",
        _set("pre_tokenizer", _after(pre_tokenizers.Digits(individual_digits=False))),
        "its pre-tokenizer has {'type': 'Digits', 'individual_digits': False}",
    ),
    "another cut before it": (
        "byte_level",
        _set("pre_tokenizer", _after(pre_tokenizers.Punctuation())),
        "its pre-tokenizer has {'type': 'Punctuation',",
    ),
    "a blank before each digit": (
        "byte_level",
        _set("pre_tokenizer", _after(pre_tokenizers.Digits(individual_digits=True), blank=True)),
        "its pre-tokenizer puts a blank before every part",
    ),
    "chance": ("byte_level", _set_in_model("dropout", 0.1), "its model has dropout = 0.1"),
    "a single word": (
        "wordpiece",
        lambda backend: backend.add_tokens([AddedToken("bank", single_word=True)]),
        "its added token 'bank' is to be found as a single word",
    ),
    "nothing to find": (
        "wordpiece",
        lambda backend: backend.add_tokens([AddedToken("\u0301")]),
        "nothing is left of its added token '\u0301' after the normalizer",
    ),
    "two that look alike": (
        "wordpiece",
        lambda backend: backend.add_tokens([AddedToken("bank"), AddedToken("Bank")]),
        "its added token 'Bank' looks like another in a text",
    ),
    "a text twice": (
        "byte_level",
        _set("post_processor", TWICE),
        "its template does not give every text once",
    ),
    "two templates": ("byte_level", _set("post_processor", TWO), "its post-processor is Sequence"),
    "a name of another token": ("byte_level", _set("post_processor", MISNAMED), "its template names <s>"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_components_are_refused_by_name(case: str) -> None:
    kind, change, said = REFUSED[case]
    backend = BUILDERS[kind]()
    change(backend)
    with pytest.raises(InputError) as caught:
        Tokenizer.from_str(backend.to_str()).portable()
    assert str(caught.value).startswith(f"the JSON given cannot be written into a page: {said}")


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("byte_level", lambda vocabulary: vocabulary.pop("!"), "its vocabulary lacks the bytes !. A"),
        (
            "wordpiece",
            lambda vocabulary: vocabulary.pop("[UNK]"),
            r"its vocabulary lacks '\[UNK\]', the token of",
        ),
        ("wordpiece", lambda vocabulary: vocabulary.update(x=9), "its pieces '.' and '.' share the id 9"),
    ],
)
def test_vocabularies_that_do_not_do_are_refused(
    kind: str, change: Callable[[dict[str, int]], object], said: str
) -> None:
    file = json.loads(BUILDERS[kind]().to_str())
    file["model"] |= {"merges": []} if kind == "byte_level" else {}
    change(file["model"]["vocab"])
    with pytest.raises(InputError, match=said):
        Tokenizer.from_str(json.dumps(file)).portable()


def test_renumbered_ids_are_refused() -> None:
    backend = Renumbered(BUILDERS["unigram"](), {"<unk>": 0, "</s>": 1}, "<unk>")
    with pytest.raises(InputError, match="its ids are renumbered, as Marian's"):
        Tokenizer(backend, source="a folder").portable()


def test_what_is_written() -> None:
    facts = Tokenizer.from_str(BUILDERS["wordpiece"]().to_str()).portable(512)
    assert json.loads(json.dumps(facts)).keys() == facts.keys()
    assert facts["limit"] == 512
    assert facts["rows"] is None
    assert facts["model"]["pieces"][:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert facts["model"]["steps"] == {"clean": True, "chinese": True, "strip": True, "lower": True}
    assert facts["template"] == {
        "single": [(2, 0), ("A", 0), (3, 0)],
        "pair": [(2, 0), ("A", 0), (3, 0), ("B", 1), (3, 1)],
    }
    runs = facts["characters"]["runs"]
    assert sum(runs[::2]) == 0x110000
    lowered = {code: many for code, *many in facts["characters"]["lowered"]}
    assert lowered[ord("İ")] == [ord("i"), 0x307]
    assert lowered[ord("Σ")] == [ord("σ")]
    assert lowered[ord("ẞ")] == [ord("ß")]
