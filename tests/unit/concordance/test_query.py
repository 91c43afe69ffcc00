"""What is typed for a word: wildcards, patterns in phrases, CQL beside expressions, and what is refused."""

import random
import re
from itertools import groupby

import pytest

from regard.concordance import Concordance
from regard.concordance._uses import select
from regard.core.errors import InputError
from unit.concordance.conftest import ROWS, Make


def nodes(concordance: Concordance, word: str, **options: object) -> list[str]:
    return [line.place.node for line in concordance.find(word, k=None, **options)]  # type: ignore[arg-type]


def in_rows(pattern: str) -> list[str]:
    return [found for text, _, _ in ROWS for found in re.findall(rf"\b{pattern}\b", text, re.IGNORECASE)]


@pytest.mark.parametrize(
    ("word", "pattern"),
    [
        ("bank*", r"banks?"),
        ("*ks", r"\w*ks"),
        ("b?nk", r"bank"),
        ("the bank*", r"the banks?"),
        ("/the|its/ /ban.*/", r"(?:the|its) ban\w*"),
        ("the /r.*/", r"the r\w*"),
        ("/[bl].*/", r"[bl]\w*"),
        ("the|its /[^b]{3}[a-z]*/", r"(?:the|its) [^b]{3}[a-z]*"),
        ("the * of", r"the \w+ of"),
        ("bank|loan", r"(?:bank|loan)"),
        ("gave|Gave up", r"gave up"),
        ("bnak|bank", r"bank"),
        ("*|it up", r"\w+ up"),
    ],
)
def test_wildcards_and_patterns(small: Concordance, word: str, pattern: str) -> None:
    assert nodes(small, word) == in_rows(pattern) != []


def test_marks_that_are_wildcards_elsewhere(made: Make) -> None:
    found = made("Why? They ate * and * again.\nWhy not? A b|c d|e.\n")
    assert nodes(found, "*") == ["*", "*"]
    assert nodes(found, "?") == ["?", "?"]
    assert nodes(found, r"why \?") == ["Why?"]
    assert nodes(found, r"ate \*") == nodes(found, "ate *") == ["ate *"]
    # In a row it is any word, whether or not the corpus has the mark.
    assert nodes(found, "they * *") == ["They ate *"]
    assert nodes(found, "wh?") == ["Why", "Why"]
    with pytest.raises(InputError, match=r"'why\?' fits none. A mark itself is \\\?"):
        found.find("why?")


LETTERS = "abcde"
CASES = [
    ('"a" "b"', "ab"),
    ('[word="a"] []{0,2} "c"', "a.{0,2}c"),
    ('"a" ("b" | "c" "d") "e"?', "a(?:b|cd)e?"),
    ('[word="a|b"]{2,3} [!(word="c" | word="d")]', "[ab]{2,3}[abe]"),
    ('[word!="a" & word!="b"] "a"{2}', "[cde]a{2}"),
    ('("a" "b"){1,2} "c"', "(?:ab){1,2}c"),
    ('"e"? "d" []', "e?d."),
    ('[] "b" "b"', ".bb"),
    ('"a"{,2} "d"', "a{0,2}d"),
    ('("a"? | "c") "b"', "(?:a?|c)b"),
]


@pytest.mark.parametrize(("query", "pattern"), CASES)
def test_cql_finds_what_an_expression_over_letters_finds(made: Make, query: str, pattern: str) -> None:
    """Each letter is a word: a sequence of words is a string. The fewest words that fit, in one text."""
    draw = random.Random(0)
    rows = ["".join(draw.choices(LETTERS, k=draw.randint(1, 23))) for _ in range(31)]
    store = made("\n".join(map(" ".join, rows)) + "\n")._store
    found = select(store, query)
    wanted, before = [], 1
    for row in rows:
        for start in range(len(row)):
            ends = (end for end in range(start + 1, len(row) + 1) if re.fullmatch(pattern, row[start:end]))
            if (end := next(ends, None)) is not None:
                wanted.append((before + start, end - start))
        before += len(row)
    assert list(zip(found.uses.tolist(), found.sizes.tolist(), strict=True)) == wanted
    assert len(wanted) > 2


TAGGED = """1\tgoes\tgo\tVERB
2\tto\tto\tADP
3\tthe\tthe\tDET
4\tbank\tbank\tNOUN

1\tGo\tgo\tNOUN
2\tbank\tbank\tVERB
"""


def test_lemmas_and_tags(made: Make) -> None:
    found = made(TAGGED, "a.conllu")
    assert nodes(found, '[lemma="go" & pos="VERB"] []{0,3} "bank"') == ["goes to the bank"]
    assert nodes(found, '[lemma="go"] []{0,3} "bank"') == ["goes to the bank", "Go bank"]
    assert (
        nodes(found, '[tag="N.*" & word="bank"]') == nodes(found, '[upos="NOUN" & lemma!="go"]') == ["bank"]
    )
    assert nodes(found, '"go"') == nodes(found, '"Go"') == ["Go"]
    assert nodes(found, '"Go"', case=True) == ["Go"]
    assert nodes(found, '"go"%c', case=True) == ["Go"]
    with pytest.raises(InputError, match='"go" fits none'):
        found.find('"go"', case=True)
    assert [(row["form"], row["count"]) for row in found.count('[lemma="go"] []{0,3} "bank"').rows] == [
        ("go bank", 1),
        ("goes to the bank", 1),
    ]
    assert [row["lemma"] for row in found.count('"go.*" []{0,3} "bank"', by="lemma").rows] == [
        "go bank",
        "go to the bank",
    ]


def test_vectors_of_matches_of_several_lengths(made: Make) -> None:
    found = made(TAGGED, "a.conllu")
    query = '[lemma="go"] []{0,3} "bank"'
    ranked = found.find(query, sentence="She *goes to the bank* at noon.")
    alone = {word: found.find(word, sentence="She *goes to the bank* at noon.")[0] for word in ("go bank",)}
    assert {line.place.node for line in ranked} == {"goes to the bank", "Go bank"}
    by_node = {line.place.node: line.similarity for line in ranked}
    assert by_node["Go bank"] == alone["go bank"].similarity


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ('"the" within <s/>', "\"the\" within <s/> is not understood from 'within <s/>' on"),
        ('[word="the"', "is not understood at its end"),
        ("[word=the]", "is not understood from 'the]' on"),
        ('"the" []*', "bounds of 0 to 20, such as \\{0,3\\}; got '\\*'"),
        ('"the" []+', "bounds of 0 to 20"),
        ('"the" []{3,2} "bank"', "bounds of 0 to 20"),
        ('"the" []{2,} "bank"', "bounds of 0 to 20"),
        ('"the"?', "all of this may be left out"),
        ('[lemma="be"]', "must not ask for lemma: the index has none"),
        ('[pos="N"]', "must not ask for pos: the index has none"),
        ('[colour="red"]', "must be one of word, lemma, pos, tag, upos; got 'colour'"),
        ('"gave up"', "fits none. In CQL each quoted part is one word"),
        ('"zz.*"', '"zz.*" fits none'),
        ('[word="("]', "must be a regular expression"),
        ("the zz*", "'zz\\*' fits none"),
        ("/zz/ the", "'/zz/' fits none"),
        ("the /(/", "must be a regular expression"),
        ("|", r"must have words beside \|; got '\|'"),
        ("the | bank", r"must have words beside \|"),
    ],
)
def test_what_is_not_understood_is_refused(small: Concordance, word: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        small.find(word)


def test_case_and_diacritics(made: Make) -> None:
    found = made("Café cafe CAFÉ.\nŁukasz straße ｗｉｄｔｈ İstanbul.\nMay may, bank's l'homme.\n")
    assert nodes(found, "cafe") == ["cafe"]
    assert nodes(found, "café") == ["Café", "CAFÉ"]
    assert nodes(found, "cafe", diacritics=False) == ["Café", "cafe", "CAFÉ"]
    assert nodes(found, "CAFE*", diacritics=False) == ["Café", "cafe", "CAFÉ"]
    assert nodes(found, "Cafe", diacritics=False, case=True) == ["Café"]
    assert nodes(found, "May", case=True) == ["May"]
    assert nodes(found, "/m.y/", case=True) == ["may"]
    for word, node in (
        ("lukasz", "Łukasz"),
        ("strasse", "straße"),
        ("width", "ｗｉｄｔｈ"),
        ("istanbul", "İstanbul"),
    ):
        assert nodes(found, word, diacritics=False) == [node]
    assert found.count("cafe", diacritics=False).total == 2  # forms without regard to case
    for word, stands in (("bank", "bank's"), ("homme", "l'homme")):
        with pytest.raises(InputError, match=f"{word!r} is not. It stands in {stands} \\(1\\), which"):
            found.find(word)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("don’t", ["Don't", "don’t"]),
        ("don't", ["Don't", "don’t"]),
        ("straße", ["Straße", "STRASSE"]),
        ("stra.e", ["Straße"]),
        ("strass.", ["Straße", "STRASSE"]),
        ("cafe\u0301", ["Café"]),
    ],
)
def test_an_expression_has_the_spellings_of_a_word(made: Make, expression: str, words: list[str]) -> None:
    found = made("Don't, don’t.\nStraße, STRASSE.\nCafé, cafe.\n")
    for typed in (f'"{expression}"', f"/{expression}/"):
        assert nodes(found, typed) == words
    as_typed = [word for word in words if word[0] == expression[0]]
    for word in as_typed[:1]:
        assert nodes(found, f"/{expression}/", case=True) == as_typed == nodes(found, word, case=True)


def test_the_word_of_the_sentence_may_be_another_form(made: Make) -> None:
    pytest.importorskip("simplemma")
    found = made("They leave early.\nThe leaves fell.\n", lemmas="en")
    lines = found.find("leave", sentence="He was leaving at noon.")  # not in the corpus
    assert {line.place.node for line in lines} == {"leave", "leaves"}
    with pytest.raises(InputError, match="'leave' is not there"):
        found.find("leave", sentence="He stayed.")


def test_hits_of_one_start_are_one(made: Make) -> None:
    found = made("a b b b\n")
    uses = select(found._store, '"a" []{0,2} "b"')
    assert [(key, len([*of])) for key, of in groupby(uses.uses.tolist())] == [(1, 1)]
    assert uses.sizes.tolist() == [2]
