"""Texts that are cut into words already: their ids are those of transformers, their words the given ones."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import tokenizers
import transformers

import regard
from regard.core.errors import InputError
from regard.text import Tokenizer, Words, split_words
from tolerances import PARITY_FP32, assert_close_to_largest

WORDS = [
    "New York",
    "don't",
    "fishing",
    "U.S.",
    "x\u0301y",
    "naïve",
    "日本",
    "👍🏽",
    "_",
    "[MASK]",
    "bank",
    "...",
]


def test_it_is_a_text_that_knows_its_words() -> None:
    text = Words(WORDS)
    assert text == " ".join(WORDS)
    assert (text.words, [text[start:end] for start, end in split_words(text)]) == (WORDS, WORDS)
    again = pickle.loads(pickle.dumps(text))
    assert (type(again), again, again.spans) == (Words, text, text.spans)
    assert Words([]) == ""
    with pytest.raises(InputError, match="words must be a list of words; got the text 'bank'"):
        Words("bank")
    for bad in (["a", ""], ["a", " "], ["a", None]):
        with pytest.raises(InputError, match=r"words\[1\] must be a text that is not blank"):
            Words(bad)  # type: ignore[arg-type]


def test_ids_are_those_of_transformers(all_tokenizers: dict[str, Tokenizer]) -> None:
    """Of tokenizers that run words together those of one made with add_prefix_space=True."""
    for name, tokenizer in all_tokenizers.items():
        backend = tokenizers.Tokenizer.from_str(tokenizer.to_str())
        before = backend.pre_tokenizer
        if isinstance(before, tokenizers.pre_tokenizers.ByteLevel):
            before.add_prefix_space = True
            backend.pre_tokenizer = before
        oracle = transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
        for words in (WORDS, ["bank"], ["a", "river"]):
            read = tokenizer.encode(Words(words))
            assert list(read.token_ids) == oracle(words, is_split_into_words=True).input_ids, name
            assert [word.text for word in read.words] == words
            pair = tokenizer.encode(Words(words), Words(["a", "bank"]))
            both = oracle(words, ["a", "bank"], is_split_into_words=True)
            assert list(pair.token_ids) == both.input_ids, name


def test_tokens_and_words_know_their_places(all_tokenizers: dict[str, Tokenizer]) -> None:
    """A token stands within its word; bulk and encode agree."""
    for name, tokenizer in all_tokenizers.items():
        text = Words(["\x10te\x01st", *WORDS, "\x02bank"])
        read = tokenizer.encode(text, add_special_tokens=False)
        for token in read.tokens:
            assert token.span is not None
            if token.word is not None and token.span[0] < token.span[1]:
                start, end = read.words[token.word].span
                assert start <= token.span[0] <= token.span[1] <= end, (name, token)
        for word in read.words:
            if word.tokens:
                assert read.find(f"{word.text}#1") == read.find(word.span) == word.tokens
        (aligned,) = tokenizer.bulk.aligned([text])
        assert aligned.ids == list(read.token_ids) == tokenizer.bulk.pieces(["a bank", text])[1]
        assert aligned.words == [word.span for word in read.words if word.tokens]


def test_words_beside_a_plain_text_are_refused(default: Tokenizer) -> None:
    with pytest.raises(InputError, match="pair must be cut into words where the text is, or neither"):
        default.encode(Words(["a"]), "bank")


def test_every_entrance_takes_lists_of_words(tmp_path: Path) -> None:
    model = regard.load()
    hf = transformers.AutoTokenizer.from_pretrained(model.loaded.source.folder)
    own = transformers.AutoModel.from_pretrained(model.loaded.source.folder)
    words = ["New York", "'s", "unforgettable", "bank"]
    read = hf(words, is_split_into_words=True, return_tensors="pt")
    states = own(**read).last_hidden_state[0].detach()
    of = read.word_ids()
    wanted = [states[[n for n, each in enumerate(of) if each == word]].mean(0) for word in range(len(words))]
    trace, plain = model.trace([words, "a plain text"])
    found = model.embed(["a plain text", tuple(words)], level="word").of(1)
    assert found.texts == words
    assert found.spans.tolist() == [list(span) for span in Words(words).spans]
    for place, word in enumerate(words):
        assert_close_to_largest(found.vectors[place], wanted[place], PARITY_FP32)
        assert_close_to_largest(trace.embedding(word), wanted[place], PARITY_FP32)
    assert plain.encoding.texts == ("a plain text",)
    trace.save(tmp_path / "a.safetensors")
    assert regard.Trace.open(tmp_path / "a.safetensors").encoding == trace.encoding
    alone = model.trace(Words(words))
    assert_close_to_largest(alone.embedding("New York"), wanted[0], PARITY_FP32)
    assert model.heads([words]).to_json() == model.heads([Words(words)]).to_json()
    assert model.compare([words, ["a", "bank"]], "bank").texts == ("New York 's unforgettable bank", "a bank")
    sentence = model.embed([words])
    assert_close_to_largest(sentence[0], _normed(states.mean(0)), PARITY_FP32)
    prompted = model.embed([words, "x"], prompt="query: ")
    assert_close_to_largest(prompted[0], model.embed([["query:", *words]])[0], PARITY_FP32)


def _normed(vector: object) -> object:
    return vector / vector.norm()  # type: ignore[attr-defined, operator]
