"""Data as it comes: dates, blanks, conditions, wrapped lines, joined words, apostrophes, documents."""

import json
import math
import random
import re
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regard.concordance import Concordance, Reading, build_index
from regard.concordance._values import iso_date
from regard.core.errors import InputError
from unit.concordance.conftest import Make


@pytest.mark.parametrize(
    ("text", "order", "wanted"),
    [
        ("1950", None, "1950"),
        ("850", None, "0850"),
        ("1950-3", None, "1950-03"),
        ("1950-03-12", None, "1950-03-12"),
        ("1950-03-12 00:00:00", None, "1950-03-12"),
        ("1950-03-12T09:30:00Z", None, "1950-03-12"),
        ("1950/03/12", None, "1950-03-12"),
        ("19500312", None, "1950-03-12"),
        ("Dec 1999", None, "1999-12"),
        ("December, 1999", None, "1999-12"),
        ("31 Dec. 1999", None, "1999-12-31"),
        ("31st December 1999", None, "1999-12-31"),
        ("December 31, 1999", None, "1999-12-31"),
        (" 1999 ", None, "1999"),
        ("31/12/1999", "dmy", "1999-12-31"),
        ("31.12.1999", "dmy", "1999-12-31"),
        ("12/31/1999", "mdy", "1999-12-31"),
        ("31/12/1999", None, None),
        ("31/12/1999", "mdy", None),
        ("1999-02-30", None, None),
        ("19991331", None, None),
        ("991231", None, None),
        ("c. 1850", None, None),
        ("1990s", None, None),
        ("0", None, None),
    ],
)
def test_dates(text: str, order: str | None, wanted: str | None) -> None:
    assert iso_date(text, order) == wanted


def rows_of(dates: list[object]) -> str:
    return "\n".join(json.dumps({"text": f"bank {n}", "date": date}) for n, date in enumerate(dates, 1))


DATES = ["19500312", "1950-06-20", "19991231", "31/12/1999", "Dec 1999", "", " ", None, 1951, "nineteen"]


def found(concordance: Concordance, *where: str) -> list[int]:
    return [int(line.place.where.split()[1]) for line in concordance.find("bank", where=where, k=None)]


def test_dates_are_parsed_when_they_are_read(tmp_path: Path) -> None:
    corpus = tmp_path / "a.jsonl"
    corpus.write_text(rows_of(DATES))
    done = build_index([corpus], tmp_path / "index", Reading(date="date"))
    assert done.undated == [
        (
            "line 4 of a.jsonl",
            "'31/12/1999' is in no form that is known; say what comes first by --date-order",
        ),
        ("line 10 of a.jsonl", "'nineteen' is in no form that is known"),
    ]
    index = Concordance(tmp_path / "index")
    assert found(index, "date>=1980") == [3, 5]
    assert found(index, "date<1980") == [1, 2, 9]
    assert found(index, "date<=1960-01") == [1, 2, 9]  # what has no date is not before
    assert found(index, "date=1999") == found(index, "date>=1999", "date<=1999") == [3, 5]
    assert found(index, "date=1999-12-31") == [3]
    assert found(index, "month=1999-12") == [3, 5]
    assert found(index, "decade=1950") == found(index, "decade=1950s") == [1, 2, 9]
    assert found(index, "year!=1950") == [3, 4, 5, 6, 7, 8, 9, 10]
    assert [row["year"] for row in index.count("bank", by="year").rows] == ["1950", "1951", "1999", None]
    assert [row["month"] for row in index.count("bank", by="month").rows][:2] == ["1950-03", "1950-06"]
    change = index.drift("bank", bins=["1980"], samples=9)
    assert ([each.uses for each in change.changes], change.left_out) == ([(3, 2)], 5)
    by_decade = index.drift("bank", "decade", samples=9)
    assert [(each.first, each.second, each.uses) for each in by_decade.changes] == [
        ("1950s", "1990s", (3, 2))
    ]
    told = build_index([corpus], tmp_path / "told", Reading(date="date", date_order="dmy"))
    assert [place for place, _ in told.undated] == ["line 10 of a.jsonl"]
    assert found(Concordance(tmp_path / "told"), "date=1999-12-31") == [3, 4]


def test_a_column_of_this_name_is_the_date(made: Make, tmp_path: Path) -> None:
    index = made(rows_of(DATES), "a.jsonl")
    assert found(index, "date>=1980") == [3, 5]
    assert found(index, "meta.date=nineteen") == [10]
    # What is written as dates are kept is kept once.
    assert [json.loads(line.place.meta) for line in index.find("bank", where=["date=1950-06-20"])] == [{}]
    (tmp_path / "never.jsonl").write_text('{"text": "bank 1", "date": "never"}')
    build_index([tmp_path / "never.jsonl"], tmp_path / "never")
    assert found(Concordance(tmp_path / "never"), "date=never") == [1]


def test_a_field_of_dates_is_compared_as_dates_are(made: Make) -> None:
    days = ["2019-12-31", "2020-05-03", "2020", "3 June 2020", "2020-06-30T10:00", "n/a", None, "2021-01"]
    rows = [{"text": "bank", "day": day, "id": f"{n}-5-1"} for n, day in enumerate(days)]
    index = made("\n".join(map(json.dumps, rows)), "a.jsonl")
    assert found(index, "day>=2020") == [2, 3, 4, 5, 8]
    assert found(index, "day=2020") == [2, 3, 4, 5]
    assert found(index, "day=2020-06") == [4, 5]
    assert found(index, "day=2020-06-03") == [4]
    assert found(index, "day!=2020") == [1, 6, 7, 8]
    assert found(index, "day>2020-05", "day<2021") == [4, 5]
    assert found(index, "day=n/a") == [6]
    assert found(index, "day~^3 June") == [4]
    assert found(index, "id=3-5-1") == [4]
    with pytest.raises(
        InputError, match=r"compare day with one such as 1999, 1999-12 or 1999-12-31; got 'day<x"
    ):
        found(index, "day<x")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("year<=nineteen", "where must compare year with one such as 1999; got 'year<=nineteen'"),
        ("year=1999-12", "one such as 1999;"),
        ("month>=1999-12-31", "one such as 1999-12;"),
        ("decade=199x", "one such as 1990;"),
        ("date>=yesterday", "one such as 1999, 1999-12 or 1999-12-31"),
        ("year>=1950 AND year<=1960", "may be given again: all that are given hold"),
        ("year>=1950 or genre=a", r"one of several values is NAME~\^\(A\|B\)\$"),
        ("genre==b", "one = between NAME and VALUE; got 'genre==b'"),
        ("n<few", "where must compare n with a number, as its values are"),
        ("genre>5", "where must compare genre with a word: it has no numbers"),
    ],
)
def test_conditions_without_a_meaning_are_refused(made: Make, condition: str, message: str) -> None:
    rows = [{"text": "bank", "date": "1950", "genre": "a", "n": n} for n in (1, 2)]
    index = made("\n".join(map(json.dumps, rows)), "a.jsonl", date="date", meta=("genre", "n"))
    with pytest.raises(InputError, match=message):
        found(index, condition)


def test_one_condition_is_given_in_a_list(small: Concordance) -> None:
    for ask in (small.find, small.count, small.collocates):
        with pytest.raises(InputError, match=r"where must be several .* got one: write \['genre=news'\]"):
            ask("bank", where="genre=news")


@pytest.mark.parametrize(
    ("condition", "what"),
    [
        ("lemma=bank", "lemmas"),
        ("pos!=NOUN", "parts of speech"),
        ("date!=1999", r"dates; .*Make it anew with the column that has them \(--date-column\)"),
        ("decade=1990", "dates"),
    ],
)
def test_what_an_index_has_none_of_cannot_be_asked_for(made: Make, condition: str, what: str) -> None:
    with pytest.raises(
        InputError, match=f"where must not ask for {condition[:3]}.*: the index has no {what}"
    ):
        found(made("the bank\n"), condition)


def test_what_a_field_holds_is_known_from_all_of_its_values(made: Make) -> None:
    rows: list[dict[str, object]] = [
        {"text": "bank", "n": f"w{at}", "title": f"T{at}", "tags": []} for at in range(1001)
    ]
    rows += [{"text": "bank", "n": 7, "title": "1984", "tags": [3, 4]} for _ in (0, 1)]
    rows = [row | {"id": 2**60 + at} for at, row in enumerate(rows)]
    index = made("\n".join(map(json.dumps, rows)), "a.jsonl", meta=("n", "title", "tags", "id"))
    assert found(index, "n>=5") == found(index, "title<2000") == found(index, "tags>3") == [1002, 1003]
    assert found(index, "title>=T999") == [1000]
    # As floats, all of these are one number.
    assert (
        found(index, f"id={2**60 + 1001}")
        == found(index, f"id>{2**60 + 1000}", f"id<{2**60 + 1002}")
        == [1002]
    )


def test_values_that_json_lacks(made: Make, tmp_path: Path) -> None:
    """Those that Parquet has, and the NaN and Infinity that Python writes into JSON."""
    columns = {
        "text": ["bank", "bank"],
        "day": [date(2020, 1, 2), None],
        "price": [Decimal("5.50"), Decimal("7.25")],
        "score": [math.nan, 2.0],
        "list": [[1.0, math.nan], [2.0]],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    build_index([tmp_path / "a.parquet"], tmp_path / "typed", Reading(meta=tuple(columns)[1:]))
    index = Concordance(tmp_path / "typed")
    fields = [json.loads(line.place.meta) for line in index.find("bank")]
    assert fields == [
        {"day": "2020-01-02", "price": "5.50", "list": [1.0, None]},
        {"price": "7.25", "score": 2.0, "list": [2.0]},
    ]
    assert len(index.find("bank", where=["price>6", "score=2", "list>=2"])) == 1
    lines = made('{"text": "bank", "n": NaN}\n{"text": "bank", "n": -Infinity}\n', "a.jsonl", meta=("n",))
    assert [json.loads(line.place.meta) for line in lines.find("bank")] == [{}, {}]
    halves = tmp_path / "halves.jsonl"
    halves.write_text('{"text": "bank", "a": "\\ud800", "b": ["\\udc00é"]}')
    build_index([halves], tmp_path / "halves")
    assert found(Concordance(tmp_path / "halves"), "a=?", "b=?é") == [1]


def test_values_of_json(made: Make) -> None:
    rows = [
        {"b": True, "tags": ["x", "y"], "n": 10, "s": "10"},
        {"b": False, "tags": ["y"], "n": 10.5, "s": "9"},
        {"b": "true", "tags": [], "n": 2, "s": "war and peace"},
        {"b": None, "tags": [3], "n": None, "s": ""},
    ]
    text = "\n".join(json.dumps({"text": "bank"} | row) for row in rows)
    index = made(text, "a.jsonl", meta=("b", "tags", "n", "s"))
    assert found(index, "b=true") == [1, 3]
    assert found(index, "b!=true") == [2, 4]
    assert found(index, "tags=y") == [1, 2]
    assert found(index, "tags!=y") == [3, 4]
    assert found(index, "tags~^x") == [1]
    assert found(index, "tags=3") == [4]
    assert found(index, "n=10.0") == [1]
    assert found(index, "n>=10") == [1, 2]
    assert found(index, "s=war and peace") == [3]
    assert found(index, "s>9") == [1]
    assert {row["b"]: row["count"] for row in index.count("bank", by="b").rows} == {
        "true": 2,
        "false": 1,
        None: 1,
    }


SENTENCE = (
    "{} people came down to the old river bank at noon and nobody was there to meet them or to say a word."
)


def wrapped(count: int) -> tuple[str, str]:
    """Sentences in lines of 70 characters, and in one line."""
    words = " ".join(SENTENCE.format(n) for n in range(count)).split()
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) > 70:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line]) + "\n", " ".join(words)


def test_wrapped_lines_are_cut_where_sentences_end(made: Make) -> None:
    text, _ = wrapped(101)
    index = made(text, unit="file")
    bodies = [body for (body,) in index._store.rows("SELECT body FROM text ORDER BY id")]
    assert "".join(bodies) == text
    assert len(bodies) > 7
    assert all(body.rstrip().endswith("word.") for body in bodies)
    assert index.find("old river bank").total == index.find("and nobody was there").total == 101


def test_what_is_searched_crosses_the_parts_of_a_text(made: Make) -> None:
    """Without a sentence end: by a plain loop over the words, and none beyond the next document."""
    draw = random.Random(1)
    words = draw.choices(["red", "river", "bank", "x"], k=1511)
    index = made(" ".join(words), unit="file")
    assert index._store.one("SELECT count(*) FROM text") > 5
    pairs = list(pairwise(words))
    assert index.find("river red").total == pairs.count(("river", "red"))
    wanted = len(re.findall(r"(?=\briver(?: \w+){0,2} bank\b)", " ".join(words)))
    assert index.find('"river" []{0,2} "bank"').total == wanted
    sorted_by = [
        line.right.split()[0] if line.right.strip() else ""
        for line in index.find("river", sort=["R1"], k=None)
    ]
    assert sorted_by == sorted(b for a, b in zip(words, [*words[1:], ""], strict=True) if a == "river")
    near = {row["form"]: row["right"] for row in index.collocates("river", span=(0, 1), k=None).rows}
    assert near == {word: pairs.count(("river", word)) for word in ("red", "river", "bank", "x")}
    text = " ".join(words)
    for line in index.find("river red", k=None):
        place, whole = line.place, text[line.place.offset :]
        assert whole.startswith(place.body)
        assert place.node == "river red"
        assert len(line.left) >= 180 or place.offset == 0
        assert len(line.right) >= 180 or place.offset + len(place.body) == len(text)


GERMAN = """# newdoc id = a
1\tWir\twir\tPRON
2\tgehen\tgehen\tVERB
3-4\tzum\t_\t_
3\tzu\tzu\tADP
4\tdem\tder\tDET
5\tFluss\tFluss\tNOUN

# newdoc
1\tDer\tder\tDET
2\tWeg\tWeg\tNOUN
3\tzu\tzu\tADP
4\tihm\ter\tPRON
"""


def test_words_within_joined_ones(made: Make) -> None:
    index = made(GERMAN, "a.conllu")

    def nodes(word: str, *where: str) -> list[str]:
        return [line.place.node for line in index.find(word, where=where)]

    assert nodes("zu") == ["zum", "zu"]
    assert nodes("der") == ["zum", "Der"]
    assert nodes("dem") == nodes("de*")[:1] == ["zum"]
    assert nodes("zu", "pos=DET") == ["zum"]
    assert nodes("zu", "pos!=DET") == ["zu"]
    assert nodes("zu+der") == ["zum"]  # the lemma of the whole, as it was
    assert nodes('[lemma="zu" & pos="ADP"]') == ["zum", "zu"]
    with pytest.raises(InputError, match="fits none"):
        nodes('[lemma="zu" & pos="DET"]')  # no one word is both
    assert nodes('"gehen" [pos="DET"] [pos="NOUN"]') == ["gehen zum Fluss"]
    assert index.find("Weg").to_rows()[0]["meta.document"] == "2"


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        (
            "en",
            "The nation's bank, don't; it's o'clock y’all they’ll",
            "the nation 's bank do n't it 's o'clock y'all they 'll",
        ),
        (
            "fr",
            "L'homme qu'on aujourd’hui s’est jusqu'alors",
            "l' homme qu' on aujourd'hui s' est jusqu' alors",
        ),
        ("it", "Dell'anno un'altra po' c’è", "dell' anno un' altra po c' è"),
    ],
)
def test_words_with_an_apostrophe_are_parted(made: Make, language: str, text: str, words: str) -> None:
    index = made(text + "\n", apostrophes=language)
    forms = {row["form"] for row in index.count(k=None).rows}
    assert forms == set(words.split())


def test_possessives_that_are_not_counted_are_named(made: Make) -> None:
    index = made("The nation and the nation’s bank, the nation's.\n")
    assert index.find("nation").about == "in the order of the corpus; without nation's (2)"
    assert index.find("bank").about == "in the order of the corpus"


def test_right_to_left(made: Make) -> None:
    index = made("ذهب إلى ضفة النهر bank ثم عاد\nHe went to the bank\n")
    first, second = str(index.find("bank")).splitlines()[2:]
    assert re.search("\u2068[^\u2068\u2069]*النهر \u2069bank\u2068 ثم عاد\u2069", first)
    assert "\u2068" not in second


def test_files_that_are_no_corpus_and_files_that_cannot_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "README.md").write_text("# About the bank\n")
    (folder / "a.txt").write_text("A bank.\n")
    (folder / "b.txt").write_bytes(b"A caf\xe9.\n")
    done = build_index([folder], tmp_path / "index", Reading(unit="file"))
    assert done.texts == 1
    [(readme, why), (bad, reason)] = done.put_aside
    assert (Path(readme).name, why) == ("README.md", "by its name it is no text")
    assert bad == "all of b.txt"
    assert "0xe9" in reason
    build_index([folder], tmp_path / "index", Reading(unit="file"))
    assert Concordance(tmp_path / "index").find("bank").total == 1


VRT = """<corpus>
<text id="a" year="1950"><s>
the
bank
</s><s>
a
bank
</s></text>
<text id="b" year="1980"><s>
bank
</s></text>
</corpus>
""".replace("><s", ">\n<s").replace("/s></", "/s>\n</")


def test_documents_of_vrt(made: Make) -> None:
    rows = made(VRT, "a.vrt", date="year").find("bank").to_rows()
    assert [(row["meta.document"], row["meta.id"], row["date"]) for row in rows] == [
        ("1", "a", "1950"),
        ("1", "a", "1950"),
        ("2", "b", "1980"),
    ]


def test_feature_sets_of_vrt_are_lists(made: Make) -> None:
    text = '<text topic="{}" date="{}">\n<s>\nbank\n</s>\n</text>\n'
    index = made(
        "".join(text.format(*each) for each in (("|war|sea|", "1950"), ("|", "|"), ("|x", ""))), "a.vrt"
    )
    topics = [row["meta.topic"] for row in index.find("bank").to_rows()]
    assert topics == [["war", "sea"], [], "|x"]
    assert len(index.find("bank", where=["topic=sea", "year=1950"])) == 1
