"""Word vectors by hand, their files, and what gensim reads and hashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.core.errors import CheckpointError, InputError
from regard.static import Ngrams, Parts, WordVectors

WORDS = ["the", "Fluß", "河岸", "don't", "’s"]


def vectors(**more: Any) -> WordVectors:
    rows = np.random.default_rng(1).normal(size=(len(WORDS), 7)).astype(np.float32)
    return WordVectors(**{"words": WORDS, "vectors": rows, **more})


def with_parts() -> WordVectors:
    ngrams = Ngrams(shortest=3, longest=4, buckets=10**6)
    buckets = np.array(sorted(set(ngrams.buckets_of("bank"))))
    return vectors(parts=Parts(ngrams=ngrams, buckets=buckets, vectors=np.arange(7 * 7).reshape(7, 7) / 32))


@pytest.mark.parametrize("word", ["as", "a", "Fluß", "naïve", "河岸", "'s"])
@pytest.mark.parametrize(("shortest", "longest"), [(3, 6), (1, 2), (2, 5)])
def test_buckets_are_those_of_gensim(word: str, shortest: int, longest: int) -> None:
    from gensim.models.fasttext import ft_ngram_hashes

    own = Ngrams(shortest=shortest, longest=longest, buckets=1999993)
    assert own.buckets_of(word) == list(ft_ngram_hashes(word, shortest, longest, 1999993))


def test_gensim_reads_every_bit_and_finds_the_same(tmp_path: Path) -> None:
    from gensim.models import KeyedVectors

    made, file = vectors(), tmp_path / "vectors.txt"
    made.save(file)
    theirs = KeyedVectors.load_word2vec_format(file)
    assert theirs.index_to_key == WORDS
    assert (theirs.vectors == made.vectors).all()
    for word in WORDS:
        found, wanted = made.nearest(word), theirs.most_similar(word)
        assert [name for name, _ in found] == [name for name, _ in wanted]
        assert [cosine for _, cosine in found] == pytest.approx([cosine for _, cosine in wanted], abs=1e-6)
    analogy = theirs.most_similar(positive=["Fluß", "’s"], negative=["the"])
    assert [name for name, _ in made.analogy("the", "Fluß", "’s")] == [name for name, _ in analogy]
    theirs.save_word2vec_format(file)
    again = WordVectors.open(file)
    assert list(again) == WORDS
    assert (again.vectors == made.vectors).all()


def test_a_word_of_known_ngrams_has_their_mean(tmp_path: Path) -> None:
    from gensim.models.fasttext import FastTextKeyedVectors

    with_parts().save(tmp_path / "v.safetensors")
    made = WordVectors.open(tmp_path / "v.safetensors")
    assert list(made) == WORDS
    assert (made["the"] == with_parts()["the"]).all()
    assert "bank" not in made
    assert (made["bank"] == with_parts().parts.vectors.mean(axis=0)).all()  # type: ignore[union-attr]
    theirs = FastTextKeyedVectors(7, 3, 4, 10**6)
    theirs.vectors_ngrams = np.zeros((10**6, 7), np.float32)
    theirs.vectors_ngrams[made.parts.buckets] = made.parts.vectors  # type: ignore[union-attr]
    assert (theirs["bank"] == made["bank"]).all()
    wanted = [bucket in made.parts.ngrams.buckets_of("ban") for bucket in made.parts.buckets]  # type: ignore[union-attr]
    assert 0 < sum(wanted) < 7
    assert made["ban"] == pytest.approx(made.parts.vectors[wanted].mean(axis=0))  # type: ignore[union-attr]
    assert made.nearest("bank", 1) == made.nearest(made["bank"], 1)
    with pytest.raises(InputError, match=r"word must be one of the 5 with a vector; got 'xyz'\."):
        made["xyz"]


def test_what_is_asked_wrongly_is_one_line() -> None:
    made = vectors()
    for ask, told in (
        (lambda: made["then"], "got 'then'; near ones are 'the'."),
        (lambda: made.nearest(np.zeros(3)), "to must be a word, or a vector of 7; got shape (3,)."),
        (lambda: made.nearest("the", 0), "count must be a whole number, at least 1; got 0."),
        (lambda: vectors(words=["a"] * 5), "words must be different; 'a' is there twice."),
        (lambda: vectors(words=["a"]), "one row for each of 1 words; got (5, 7)."),
        (lambda: vectors(words=["a b", *WORDS[1:]]).save("x.txt"), "'a b' does."),
        (lambda: Ngrams(shortest=4, longest=3), "shortest must be from 1 to longest, 3; got 4."),
        (lambda: Ngrams(buckets=0), "buckets must be from 1 to 2147483647; got 0."),
    ):
        with pytest.raises(InputError) as raised:
            ask()
        assert told in str(raised.value)
    assert (
        WordVectors(words=["a", "b"], vectors=np.eye(2, dtype=np.float32) * [0, 1]).similarity("a", "b")
        == 0.0
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "its first line should be the number of words and the size of a vector, such as '14221 100'"),
        (b"the 0.1 0.2\n", "it begins 'the 0.1 0.2'"),
        (b"2 0\na\nb\n", "it begins '2 0'"),
        (b"3 2\na 1 2\nb 3 4\n", "its header says 3 words, and ends after 2;"),
        (b"999999 9999\na 1 2\n", "its header says 999,999 words, and ends after 1;"),
        (b"2 9999\na 1 2\nb 3 4\n", "its header says that a vector has 9,999 numbers, more than it holds;"),
        (b"1 2\na 1 2\nb 3 4\n", "its header says 1 words, and line 3 is one more;"),
        (b"2 2\na 1 2\nb 3\n", "its header says that a vector has 2 numbers, and line 3 has 1"),
        (b"2 2\na 1 2\nb 3 x\n", "line 3, of 'b': could not convert string to float: 'x'"),
        (b"2 2\na 1 2\na 3 4\n", "words must be different; 'a' is there twice."),
        (b"2 2\na 1 2\nb 3 nan\n", "vectors must be finite numbers."),
        (b"2 2\na \xff\x00\x00\x00\n\x80b", "line 2 is not UTF-8 text; is it word2vec's binary format?"),
    ],
)
def test_a_file_that_is_not_what_it_says(content: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_bytes(content)
    with pytest.raises(CheckpointError) as raised:
        WordVectors.open(file)
    assert str(raised.value).startswith(str(file))
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(CheckpointError, match="No such file"):
        WordVectors.open(tmp_path / "none.txt")
