"""Conditions and words: what they find, by plain Python over the rows, and what is refused."""

import re

import pytest

from regard.concordance import Concordance
from regard.concordance._meaning import span_of
from regard.core.errors import InputError
from unit.concordance.conftest import ROWS, Make


def lines_with(small: Concordance, word: str, *where: str) -> list[int]:
    return [int(line.place.where.split()[1]) for line in small.find(word, where=where, k=None)]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ([], [1, 2, 3, 4, 5, 6]),
        (["genre=news"], [2, 3, 4]),
        (["genre!=news"], [1, 5, 6]),  # what has no genre is not news
        (["genre~^fic"], [1, 5]),
        (["genre!~^fic"], [2, 3, 4, 6]),
        (["meta.genre = news", "date>=2000"], [4]),
        (["date>=1991"], [2, 3, 4, 5]),
        (["date<1991"], [1]),
        (["date<1991-02"], [1, 2]),
        (["date<=1991-02"], [1, 2, 3]),
        (["date>1991-01", "date<2004-08"], [3, 4, 5]),
        (["date>1991-02"], [4, 5]),
        (["date>1991"], [4, 5]),
        (["year=1991"], [2, 3]),
        (["decade=1990s"], [1, 2, 3]),
        (["month=1990-05"], [1]),
        (["genre>5"], []),
        (["genre<5"], []),  # words are not below numbers
        (["text~river"], [1, 3, 5, 6]),
        (["text!~river"], [2, 4]),
        (["source=rows.jsonl"], [1, 2, 3, 4, 5, 6]),
        (["text~ b[.]"], []),
    ],
)
def test_conditions(small: Concordance, where: list[str], rows: list[int]) -> None:
    wanted = [n for n in rows if re.search(r"\bbanks?\b", ROWS[n - 1][0], re.IGNORECASE)]
    if not wanted:
        with pytest.raises(InputError, match="has no use of '/banks\\?/' with"):
            lines_with(small, "/banks?/", *where)
        return
    assert sorted(set(lines_with(small, "/banks?/", *where))) == wanted


@pytest.mark.parametrize(
    ("word", "rows"),
    [
        ("bank", [1, 2, 2, 4, 5, 6]),
        ("BANK", [1, 2, 2, 4, 5, 6]),
        ("gave up", [4, 4]),
        ("gave  it up", [4]),
        ("the bank", [1, 2, 2, 4, 5]),
        ("bank; the", [5]),
        ("/ban.*/", [1, 2, 2, 3, 3, 4, 5, 6]),
        ("/.*ks/", [3, 3]),
        ("Bank of England", [2]),
    ],
)
def test_words(small: Concordance, word: str, rows: list[int]) -> None:
    assert lines_with(small, word) == rows
    keys = {line.place.node.lower() for line in small.find(word)}
    assert word.startswith("/") or keys == {" ".join(word.lower().split())}


def test_words_of_a_corpus_that_has_its_own(made: Make) -> None:
    rows = [
        ("well-known", "well-known"),
        ("New York", "New York"),
        ("do", "do"),
        ("n't", "not"),
        ("banks", "bank"),
    ]
    content = "".join(f"{n}\t{form}\t{lemma}\tX\n" for n, (form, lemma) in enumerate(rows, 1))
    concordance = made(content, "a.conllu")
    for word, node in (
        ("well-known", "well-known"),
        ("new york", "New York"),
        ("not", "n't"),
        ("bank", "banks"),
        ("n't banks", "n't banks"),
    ):
        assert [line.place.node for line in concordance.find(word)] == [node]


@pytest.mark.parametrize(
    ("word", "where", "message"),
    [
        ("bnak", [], "'bnak' is none. Did you mean 'bank'"),
        ("rivers", [], "Did you mean 'river'"),
        ("the zzzz", [], "'zzzz' is none.$"),
        ("", [], "word must be a word"),
        ("\u200b", [], "word must be"),
        ("a " * 9, [], "up to 8 in a row"),
        ("/zz.*/", [], "fits none"),
        ("/(/", [], "word must be a regular expression"),
        ("river bank", [], "never stand in a row"),
        ("bank", ["genre"], "where must be NAME=VALUE"),
        ("bank", ["genr=news"], "known|genre; got 'genr'"),
        ("bank", ["genre~("], "where must be a regular expression"),
        ("bank", ["genre=sports"], "no use of 'bank' with genre=sports"),
        ("bank", ["@press"], "where must name a subcorpus that is saved before; got '@press'"),
    ],
)
def test_what_is_refused(small: Concordance, word: str, where: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small.find(word, where=where)


def test_saved_subcorpora(made: Make) -> None:
    rows = [
        f'{{"text": "a bank {n}", "genre": "{genre}", "odd name": {n}}}' for n, genre in enumerate("abab")
    ]
    concordance = made("\n".join(rows), "a.jsonl", meta=("genre", "odd name"))
    concordance.save_subcorpus("late", ["odd name>=2"])
    concordance.save_subcorpus("b", ["genre=b", "@late"])
    concordance.save_subcorpus("late", ["@late", "text~bank"])  # by what it was
    assert [line.place.where for line in concordance.find("bank", where=["@b"])] == ["line 4"]
    assert len(concordance.find("bank", where=["@late"])) == 2
    with pytest.raises(InputError, match="that is one of @b, @late; got '@lat'"):
        concordance.find("bank", where=["@lat"])
    for name, where in (("a b", ["genre=a"]), ("x", []), ("x", ["nope=1"])):
        with pytest.raises(InputError):
            concordance.save_subcorpus(name, where)


@pytest.mark.parametrize(
    ("sentence", "word", "meant"),
    [
        ("The *bank* by the bank.", None, (4, 8)),
        ("The *bank* by the bank.", "bank", (4, 8)),
        ("A bank.", "BANK", (2, 6)),
        ("She gave up.", "gave up", (4, 11)),
        ("銀行在*河岸*。", None, (3, 5)),
    ],
)
def test_the_word_that_is_meant(sentence: str, word: str | None, meant: tuple[int, int]) -> None:
    span = span_of(sentence, word)
    assert (span.text, span.start, span.stop) == (sentence.replace("*", ""), *meant)


@pytest.mark.parametrize(
    ("sentence", "word", "message"),
    [
        ("The bank by the bank.", "bank", "is there 2 times. Mark the one meant"),
        ("The bank.", "river", "not there"),
        ("The bank.", None, "between asterisks"),
        ("** bank", None, "between asterisks"),
    ],
)
def test_no_word_that_is_meant(sentence: str, word: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        span_of(sentence, word)


def test_a_search_that_takes_too_long_is_refused(small: Concordance, monkeypatch: pytest.MonkeyPatch) -> None:
    before = small.find("bank").total
    monkeypatch.setattr("regard.concordance._store._PATIENCE", 0.05)
    with pytest.raises(InputError, match="takes too long"):
        small.find("bank", where=[r"text~(.|\w)+(.|\w)+\d"])
    monkeypatch.undo()
    monkeypatch.setattr("regard.concordance._store._STEPS", 1)
    with small.within(-1), pytest.raises(InputError, match="takes too long"):
        small.find("bank")
    assert small.find("bank").total == before
