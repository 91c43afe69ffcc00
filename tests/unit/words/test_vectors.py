"""Word vectors by hand, their files, and what gensim reads and hashes."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.checkpoints import write_tensors
from regard.core.errors import CheckpointError, InputError
from regard.words import Ngrams, Parts, WordVectors
from tolerances import FP32_OF_LARGEST, assert_close_to_largest

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
    pytest.importorskip("gensim")
    from gensim.models.fasttext import ft_ngram_hashes

    own = Ngrams(shortest=shortest, longest=longest, buckets=1999993)
    assert own.buckets_of(word) == list(ft_ngram_hashes(word, shortest, longest, 1999993))


def test_gensim_reads_every_bit_and_finds_the_same(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
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
    pytest.importorskip("gensim")
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


def test_several_words_are_those_of_gensim(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    from gensim.models import KeyedVectors

    draw = np.random.default_rng(2)
    words = [f"w{each}" for each in range(97)]
    made = WordVectors(words=words, vectors=draw.normal(size=(97, 6)))
    made.save(tmp_path / "v.bin")
    theirs = KeyedVectors.load_word2vec_format(tmp_path / "v.bin", binary=True)
    for more, less in ((["w1", "w5", "w9"], ["w2", "w4"]), (["w3"], "w4"), ([], ["w7", "w8"]), ("w6", [])):
        found, wanted = made.nearest(more, 7, unlike=less), theirs.most_similar(more, less, topn=7)
        assert [name for name, _ in found] == [name for name, _ in wanted]
        assert [cosine for _, cosine in found] == pytest.approx([cosine for _, cosine in wanted], abs=1e-6)
    for _ in range(20):
        asked = draw.choice(words, 5, replace=False).tolist()
        assert made.odd_one_out(asked) == theirs.doesnt_match(asked)
    every = made.nearest(made["w3"], 97)
    assert made.nearest(made["w3"], 5) == every[:5]


def test_nearest_and_similarity_are_the_same_numbers() -> None:
    """Also of vectors whose squares float32 does not hold, and in the order of float64."""
    rows = [[1, 0], [1e30, 1e30], [1e-30, 0], [3e-39, -3e-39], [0, 0], [1, 1e-4], [1, 2e-4], [3e38, 3e38]]
    made = WordVectors(words=list("abcdefgh"), vectors=rows)
    for word in made:
        found = made.nearest(word)
        assert found == sorted(found, key=lambda each: (-each[1], each[0]))
        assert {other: made.similarity(word, other) for other in made if other != word} == dict(found)
    assert made.similarity("a", "b") == pytest.approx(0.5**0.5)
    assert made.similarity("a", "c") == 1.0
    assert [word for word, _ in made.nearest(np.array([1e300, 0]), 4)] == ["a", "c", "f", "g"]


def test_what_is_asked_wrongly_is_one_line() -> None:
    made = vectors()
    for ask, told in (
        (lambda: made["then"], "got 'then'; near ones are 'the'."),
        (lambda: made.nearest(np.zeros(3)), "or a vector of 7 finite numbers; got array([0., 0., 0.])."),
        (lambda: made.nearest([np.nan] * 7), "or a vector of 7 finite numbers; got [nan, nan"),
        (
            lambda: made.nearest(3),
            "to must be a word, several words, or a vector of 7 finite numbers; got 3.",
        ),
        (lambda: made.nearest([]), "to must be at least one word, or a vector; got none."),
        (lambda: made.nearest("the", unlike="nö"), "word must be one of the 5 with a vector; got 'nö'"),
        (lambda: made.odd_one_out(["the", "’s"]), "words must be three words at least; got ['the', '’s']."),
        (lambda: made.nearest("the", 0), "count must be a whole number, at least 1; got 0."),
        (lambda: vectors(words=["a"] * 5), "words must be different; 'a' is there twice."),
        (lambda: vectors(words=["a"]), "one row for each of 1 words; got (5, 7)."),
        (lambda: vectors(words=[1, 2, 3, 4, 5]), "words must be strings."),
        (lambda: vectors(vectors=[[1.0], [2.0, 3.0]]), "vectors must be rows of numbers, all as long; "),
        (lambda: vectors(vectors=np.full((5, 7), 1e39)), "vectors must be finite numbers."),
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


# Everything but a blank and the ends of a line, as French numbers, lines of gensim's text, and controls.
ODD = ["12\u202f500", "a\u00a0b", "\u2028", "\t", "\x00", "\x85", "\ufeff", "\x1f\x8b", "PK"]


@pytest.mark.parametrize("name", ["v.txt", "v.BIN", "v.vec.gz", "v.bin.gz", "v.safetensors"])
def test_what_is_written_is_read(name: str, tmp_path: Path) -> None:
    made, file = (
        vectors(words=[*ODD, *WORDS], vectors=np.random.default_rng(1).normal(size=(14, 7))),
        tmp_path / name,
    )
    made.save(file)
    found = WordVectors.open(file)
    assert list(found) == list(made)
    assert (found.vectors == made.vectors).all()
    part = WordVectors.open(file, limit=3)
    assert list(part) == ODD[:3]
    assert (part.vectors == made.vectors[:3]).all()
    if name.endswith("safetensors"):
        return
    made.save(tmp_path / f"2.{name}")
    assert file.read_bytes() == (tmp_path / f"2.{name}").read_bytes()
    pytest.importorskip("gensim")
    from gensim.models import KeyedVectors

    theirs = KeyedVectors.load_word2vec_format(file, binary=".bin" in name.lower())
    assert theirs.index_to_key == list(made)
    assert (theirs.vectors == made.vectors).all()
    theirs.save_word2vec_format(file, binary=".bin" in name.lower())
    assert list(WordVectors.open(file)) == list(made)
    for word in ("New York", "a\nb", "a\r", "", "\ud800"):
        with pytest.raises(InputError) as raised:
            vectors(words=[word, *WORDS[1:]]).save(file)
        assert f"{word!r} does. Save a .safetensors file." in str(raised.value)
    assert list(WordVectors.open(file)) == list(made)


def test_the_files_that_people_have(tmp_path: Path) -> None:
    file = tmp_path / "x"
    for content, words in (
        (b"the 0.1 0.2\n. . 3 4\nNew York 5 6", ["the", ". .", "New York"]),  # GloVe
        ("2 2\nß 0 1 \n河 1 0 \n\n\n".encode(), ["ß", "河"]),
        (b"\xef\xbb\xbf2 2\r\na 1 2\r\nb 3 4\r\n", ["a", "b"]),
        (b"2 1\na " + np.float32([2]).tobytes() + b"\nb " + np.float32([3]).tobytes() + b"\n", ["a", "b"]),
    ):
        file.write_bytes(content)
        found = WordVectors.open(file)
        assert list(found) == words
        file.write_bytes(gzip.compress(content, mtime=0))
        assert (WordVectors.open(file).vectors == found.vectors).all()
    for content in (b"4 2\na 1 2\nb 3 4\na 5 6\na 7 8\n", b"a 1 2\nb 3 4\na 5 6\na 7 8\n"):
        file.write_bytes(content)
        with pytest.warns(UserWarning, match="x: 2 words came again; the first of each is kept."):
            found = WordVectors.open(file)
        assert repr(found) == "WordVectors(2 words of 2; 2 came again and are left out)"
        assert found.vectors.tolist() == [[1, 2], [3, 4]]
        assert WordVectors.open(file, limit=2).repeated == 0


@pytest.mark.parametrize("longest", [0, 4])
def test_a_model_of_fasttext_has_vectors_for_any_word(longest: int, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    from gensim.models import FastText
    from gensim.models.fasttext import load_facebook_vectors, save_facebook_model

    texts = [["naïve", "river", "bank", "</s>"], ["河岸", "12\u202f500", "river", "bank"]] * 3
    model = FastText(
        texts,
        vector_size=7,
        min_count=1,
        min_n=3 if longest else 0,
        max_n=longest,
        bucket=50 * bool(longest),
        epochs=1,
    )
    file = tmp_path / "model.bin"
    save_facebook_model(model, str(file))
    theirs, made = load_facebook_vectors(str(file)), WordVectors.open(file)
    assert list(made) == theirs.index_to_key
    for word in (*made, *["rivers", "ba", "xyz"][:longest]):
        if word != "</s>":  # gensim gives it n-grams, the authors' program does not
            assert_close_to_largest(made[word], theirs[word], FP32_OF_LARGEST)
    assert Ngrams().buckets_of("</s>") == []
    whole = file.read_bytes()
    file.write_bytes(gzip.compress(whole, mtime=0))
    assert list(WordVectors.open(file, limit=3)) == list(made)[:3]
    file.write_bytes(whole[:200])
    with pytest.raises(CheckpointError, match="is no whole fastText model; download it again"):
        WordVectors.open(file)


def model_of(*, version: int = 12, kind: int = 3, shortest: int = 2, is_quantized: bool = False) -> bytes:
    """A model of fastText that tells texts apart, by the authors' layout: three words, then a label."""
    begun = struct.pack("<14id", 793712314, version, 3, *[5, 1, 1, 5, 1, 3], kind, 20, shortest, 4, 100, 1e-4)
    listed = struct.pack("<3i2q", 4, 3, 1, 99, -1)
    for place, word in enumerate(["the", "naïve", "</s>", "__label__a"]):
        listed += word.encode() + b"\0" + struct.pack("<qb", 9, place == 3)
    return begun + listed + struct.pack("<?2q", is_quantized, 23, 3) + TABLE.tobytes()


TABLE = np.random.default_rng(4).normal(size=(23, 3)).astype("<f4")


def test_a_model_of_fasttext_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "model"
    for more, shortest in (
        ({}, 2),
        ({"shortest": 0}, 1),
        ({"version": 11, "kind": 2}, 2),
        ({"version": 11}, 9),
    ):
        file.write_bytes(model_of(**more))
        made = WordVectors.open(file)
        assert list(made) == ["the", "naïve", "</s>"]
        for row, word in enumerate(made):
            buckets = (
                Ngrams(shortest=shortest, longest=4, buckets=20).buckets_of(word) if shortest < 5 else []
            )
            rows = TABLE[[row, *(3 + each for each in buckets)]]
            assert_close_to_largest(made[word], rows.mean(axis=0), FP32_OF_LARGEST)
        assert (made.parts is None) == (shortest > 4)
    for more, told in (
        ({"is_quantized": True}, r"\(.ftz\); take the .bin"),
        ({"version": 10}, "of version 10; "),
    ):
        file.write_bytes(model_of(**more))
        with pytest.raises(CheckpointError, match=told):
            WordVectors.open(file)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "its first line should be the number of words and the size of a vector, such as '14221 100'"),
        (b"the cat 0.2\n", "such as '14221 100', or a word and its numbers; it begins 'the cat 0.2'"),
        (b"the 1 2\ncat 3\n", "word 2 cannot be read: 'cat' has 1 numbers instead of 2"),
        (b"the 1 2\ncat 3 4 5\n", "word 2 cannot be read: 'cat 3' has 3 numbers instead of 2"),
        (b"PK\3\4...", "is a zip archive; unpack it, and open the file that is in it"),
        (gzip.compress(b"1 2\na 1 2\n", mtime=0)[:-9], "cannot be read (Compressed file ended before"),
        (b"2 0\na\nb\n", "it begins '2 0'"),
        (b"3 2\na 1 2\nb 3 4\n", "its header says 3 words, and ends after 2;"),
        (b"999999 2\na 1 2\n", "its header says 999,999 words, and ends after 1;"),
        (b"999999 9999\na 1 2\n", "word 1 cannot be read: 'a' has 2 numbers instead of 9,999"),
        (b"2 9999\na 1 2\nb 3 4\n", "word 1 cannot be read: 'a' has 2 numbers instead of 9,999"),
        (b"1 2\na 1 2\nb 3 4\n", "its header says 1 words, and there are more;"),
        (b"2 2\na 1 2\nb 3\n", "word 2 cannot be read: 'b' has 1 numbers instead of 2"),
        (b"2 2\na 1 2\nb 3 x\n", "word 2 cannot be read: could not convert string to float: 'x'"),
        (b"2 2\na 1 2\nb 3 nan\n", "vectors must be finite numbers."),
        (b"2 2\na \xff\x00\x00\x00\n\x80b", "its header says 2 words, and ends after 0; download it again"),
        (b"1 2\n\xff \0\0\0\0\0\0\0\0", "word 1 cannot be read: 'utf-8' codec can't decode byte 0xff"),
        (b"2 2\na 0.25 0.125\n\xff 1 2\n", "word 2 cannot be read: 'utf-8' codec can't decode byte 0xff"),
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
    with pytest.raises(CheckpointError, match=r"cannot be read \(embedded null byte\)"):
        WordVectors.open("a\0b")


@pytest.mark.parametrize("words", ["nonsense", "3", '{"a": 1}', "[1, 2]"])
def test_damaged_safetensors(tmp_path: Path, words: str) -> None:
    file = tmp_path / "v.safetensors"
    write_tensors({"vectors": torch.eye(2)}, file, metadata={"words": words})
    with pytest.raises(CheckpointError, match=r"v\.safetensors: "):
        WordVectors.open(file)
