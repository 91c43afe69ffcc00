"""Other words in the place of one: nearest by transformers' own table, shares of its own runs."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import regard
from regard.checkpoints import DEFAULT_MODEL, find
from regard.core.errors import InputError
from regard.tracing.pages._instead import instead_of, other_words

BANK = "Write a poem about a man fishing on a river bank."


@cache
def _theirs() -> tuple[Any, Any]:
    folder = find(DEFAULT_MODEL).folder
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    return model, AutoTokenizer.from_pretrained(folder)


def _share(text: str, layer: int, head: int, query: int, key: int) -> float:
    model, tokenizer = _theirs()
    with torch.no_grad():
        run = model(**tokenizer(text, return_tensors="pt"), output_attentions=True)
    return float(run.attentions[layer][0, head, query, key])


def test_the_nearest_words_and_their_shares() -> None:
    trace = regard.load().trace(BANK)
    model, tokenizer = _theirs()
    table = model.embeddings.word_embeddings.weight.detach().numpy()
    vocabulary = tokenizer.convert_ids_to_tokens(range(len(table)))
    poem = table[vocabulary.index("poem")]
    cosines = [float(row @ poem / np.linalg.norm(row) / np.linalg.norm(poem)) for row in table]
    wanted: list[str] = []
    for at in sorted(range(len(table)), key=lambda at: -cosines[at]):
        name = vocabulary[at]
        if name.isalpha() and len(name) > 2 and all(name[:3] != one[:3] for one in ["poem", *wanted]):
            wanted.append(name)
        if len(wanted) == 2:
            break
    long = ["write", "about", "fishing", "river", "bank"]  # of four letters or more
    wanted.append(min(long, key=lambda name: cosines[vocabulary.index(name)]))
    assert other_words(trace, 3) == wanted
    found = instead_of(trace, 5, 11, 1, 3)
    assert [each["text"] for each in found] == wanted
    for each in found:
        share = _share(BANK.replace("poem", each["text"]), 5, 11, 1, 3)
        assert each["share"] == pytest.approx(share, abs=1e-4)


def test_words_of_several_pieces() -> None:
    """A query is the mean of its pieces, and what it gives to a word the sum over those of the word."""
    text = "The anglers wrote a sonnet."
    trace = regard.load().trace(text)
    _, tokenizer = _theirs()
    tokens = tokenizer.tokenize(text)
    assert tokens[1:3] == ["angle", "##rs"]
    key = trace.encoding.find("sonnet")[0]
    for each in instead_of(trace, 3, 5, 2, key):
        other = text.replace("sonnet", each["text"])
        count = len(tokenizer.tokenize(each["text"]))
        share = np.mean([sum(_share(other, 3, 5, at, key + i) for i in range(count)) for at in (2, 3)])
        assert each["share"] == pytest.approx(share, abs=1e-4)


def test_a_decoders_words_begin_with_a_blank() -> None:
    trace = regard.load("smollm2").trace("The capital of France is")
    assert other_words(trace, 3) == ["Spain", "Germany", "capital"]


@pytest.mark.parametrize(("query", "key"), [(1, 1), (1, 0), (0, 1)])
def test_other_tokens_are_refused(query: int, key: int) -> None:
    with pytest.raises(InputError, match="query and key must be tokens of two words of one text"):
        instead_of(regard.load().trace("fruit flies"), 0, 0, query, key)


def test_a_pair_is_refused() -> None:
    with pytest.raises(InputError, match="of one text"):
        instead_of(regard.load().trace("fruit flies", "time flies"), 0, 0, 1, 2)
