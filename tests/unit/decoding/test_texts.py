"""Texts in, texts out: order, batches, dropout, what tokenizers know."""

from collections.abc import Sequence
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors

from regard.core.errors import InputError
from regard.decoding import Rules, decode_texts, greedy
from regard.text import Tokenizer
from unit.decoding.toy import decoder, pair

WORDS = ["<pad>", "</s>", "a", "b", "c", "d", "e", "f", "g"]
TEXTS = ["a b", "", "c d e f a b c d e f", " \n", "g", "b b b", "a b"]
ROWS = 11  # of the table: two more than words


def tokenizer(*, end: bool) -> Tokenizer:
    backend = tokenizers.Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, "<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<pad>", "</s>"])
    if end:
        backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return Tokenizer.from_str(backend.to_str(), roles={"pad": "<pad>", "eos": "</s>"})


def by_hand(text: str, network: Any, *, two: bool) -> str:
    ids = [WORDS.index(word) for word in text.split()]
    rules = Rules(start_ids=(0,) if two else (), end_ids=(1,), forbidden_ids=(9, 10), max_length=6)
    (way,) = greedy(network, [ids + [1] * two], rules=rules)
    return " ".join(WORDS[id] for id in way.token_ids if id > 1)


@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("beam", [1, 3])
def test_texts_in_their_order_each_as_if_alone(two: bool, beam: int) -> None:
    network, words = pair(ROWS) if two else decoder(ROWS), tokenizer(end=True)
    done: list[int] = []
    written = decode_texts(
        network, words, TEXTS, beam=beam, max_length=6, batch_tokens=40, advance=done.append
    )
    assert [not text for text in written] == [not text.strip() for text in TEXTS]
    assert sum(done) == 5
    assert len(done) > 1
    alone = [decode_texts(network, words, [text], beam=beam, max_length=6)[0] for text in TEXTS]
    assert written == alone
    if beam == 1:
        assert written == [by_hand(text, network, two=two) if text.strip() else "" for text in TEXTS]


def test_dropout_rests_and_comes_back() -> None:
    network, words = pair(ROWS), tokenizer(end=True)
    expected = decode_texts(network, words, TEXTS, max_length=6)
    network.train()
    frozen = network.encoder.eval()  # type: ignore[union-attr]
    assert decode_texts(network, words, TEXTS, max_length=6) == expected
    assert network.training
    assert not frozen.training


def test_rows_of_the_table_that_are_no_word_are_never_written() -> None:
    network, words = decoder(ROWS), tokenizer(end=False)
    with torch.no_grad():
        network.head.output.weight[9:] *= 30  # type: ignore[union-attr, index, operator]
    for beam in (1, 2):
        assert all(text for text in decode_texts(network, words, ["a", "b"], beam=beam, max_length=4))


@pytest.mark.parametrize("texts", [[], ["", " "]])
def test_nothing_to_write(texts: Sequence[str]) -> None:
    assert decode_texts(decoder(ROWS), tokenizer(end=False), texts) == [""] * len(texts)


def test_refusals() -> None:
    network, words = pair(ROWS), tokenizer(end=True)
    with pytest.raises(
        InputError, match=r"texts\[2\] must have at most 19 tokens, the model's limit; got 21"
    ):
        decode_texts(network, words, ["a", "", "a " * 20])
    with pytest.raises(InputError, match="beam must be a whole number, at least 1; got 0"):
        decode_texts(network, words, ["a"], beam=0)
