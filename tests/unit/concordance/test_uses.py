"""Neighbours, order and samples, beside a plain loop; and lines as they are drawn."""

import re
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from regard.concordance import Concordance
from regard.concordance._meaning import span_of
from regard.concordance._uses import neighbours, select
from regard.core.errors import InputError
from regard.text import split_words
from unit.concordance.conftest import ROWS, Make

HYPHEN = "\u00ad"  # a soft one, which tokenizers drop


def by_hand(word: list[str], left: int, right: int) -> list[tuple[int, int, str]]:
    found, use = [], 0
    for text, _, _ in ROWS:
        words = [text[a:b].lower() for a, b in split_words(text) if text[a].isalnum()]
        for at in range(len(words) - len(word) + 1):
            if words[at : at + len(word)] == word:
                end = at + len(word)
                found += [(use, n - at, words[n]) for n in range(max(0, at - left), at)]
                found += [(use, n - end + 1, words[n]) for n in range(end, min(len(words), end + right))]
                use += 1
    return found


@pytest.mark.parametrize(("word", "left", "right"), [("bank", 3, 3), ("the", 9, 0), ("gave up", 2, 4)])
def test_neighbours(small: Concordance, word: str, left: int, right: int) -> None:
    found = neighbours(small._store, select(small._store, word), left, right)
    names = dict(small._store.rows("SELECT id, key FROM form"))
    columns = map(np.ndarray.tolist, (found.row, found.distance, found.form))
    rows = [(row, distance, names[form]) for row, distance, form in zip(*columns, strict=True)]
    assert rows == by_hand(word.split(), left, right)


def test_sort(small: Concordance) -> None:
    def sides(keys: list[str]) -> list[tuple[str, str, str]]:
        lines = small.find("bank", sort=keys)
        before = [(re.findall(r"\w+", line.left) or [""])[-1].lower() for line in lines]
        after = [(re.findall(r"\w+", line.right) or [""])[0].lower() for line in lines]
        return list(zip(before, (line.place.node for line in lines), after, strict=True))

    assert [left for left, _, _ in sides(["L1"])] == ["a", "the", "the", "the", "the", "the"]
    assert [right for *_, right in sides(["L1", "R1"])] == ["a", "lent", "loan", "of", "of", "the"]
    assert [right for *_, right in sides(["r1", "l1"])] == ["a", "lent", "loan", "of", "of", "the"]
    assert [right for *_, right in sides(["L2"])][:2] == ["lent", "a"]  # where nothing stands: first
    everything = small.find("/banks?/", sort=["node", "L1"])
    assert [line.place.node.lower() for line in everything] == ["bank"] * 6 + ["banks"] * 2
    for keys in (["L0"], ["X1"], ["L10"], ["1"]):
        with pytest.raises(InputError, match="sort must be of L1 to L9, node and R1 to R9"):
            small.find("bank", sort=keys)


def test_words_are_sorted_as_in_dictionaries(made: Make) -> None:
    pytest.importorskip("pyuca")
    found = made("the Zoo.\nthe éclair.\nthe ähnlich.\nthe apple.\nthe Ärger.\nthe end.\n")
    nodes = [line.right.strip(" .") for line in found.find("the", sort=["R1"])]
    assert nodes == ["ähnlich", "apple", "Ärger", "éclair", "end", "Zoo"]


def test_samples(small: Concordance) -> None:
    drawn = [[line.place.use for line in small.find("the", sample=4, seed=seed)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] == sorted(drawn[0])
    assert len(small.find("the", sample=999, k=None)) == 8
    for options in ({"sample": 0}, {"sample": 2, "seed": -1}, {"k": 0}, {"sort": "L1"}, {"more": 5}):
        with pytest.raises(InputError):
            small.find("the", **options)  # type: ignore[arg-type]


def test_rows_and_files(small: Concordance, tmp_path_factory: pytest.TempPathFactory) -> None:
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("files")
    lines = small.find("banks")
    [first, second] = lines.to_rows()
    assert (first["left"], first["node"], first["place"], first["start"], first["stop"]) == (
        "",
        "Banks",
        "line 3",
        0,
        5,
    )
    assert (second["right"], second["date"], second["meta.genre"]) == (".", "1991-02-01", "news")
    assert lines.to_arrow().to_pylist() == [first, second]
    for ending in ("csv", "jsonl", "parquet"):
        lines.write(folder / f"a.{ending}")
    assert pq.read_table(folder / "a.parquet").to_pylist() == [first, second]
    head, one, _ = (folder / "a.csv").read_text("utf-8").splitlines()
    assert head == ",".join(first)
    assert one.startswith(f"{first['use']},,Banks,")
    assert (folder / "a.jsonl").read_text("utf-8").count("\n") == 2
    with pytest.raises(InputError, match="output must end in"):
        lines.write(folder / "a.txt")
    assert sorted(each.suffix for each in folder.iterdir()) == [".csv", ".jsonl", ".parquet"]


def test_fields_that_a_row_lacks(made: Make) -> None:
    rows = [
        '{"text": "a bank"}',
        '{"text": "a bank", "genre": "news", "year": 3}',
        '{"text": "bank", "year": 1}',
    ]
    table = made("\n".join(rows), "a.jsonl", meta=("genre", "year")).find("bank").to_arrow()
    assert table.column("meta.genre").to_pylist() == [None, "news", None]
    assert table.column("meta.year").to_pylist() == [None, 3, 1]


def test_fields_of_several_kinds(made: Make, tmp_path: Path) -> None:
    rows = ['{"text": "a bank", "year": 3}', '{"text": "bank", "year": "about 4"}']
    lines = made("\n".join(rows), "a.jsonl", meta=("year",)).find("bank")
    with pytest.raises(InputError, match="values of one kind in a column"):
        lines.write(tmp_path / "a.parquet")
    assert not (tmp_path / "a.parquet").exists()
    lines.write(tmp_path / "a.csv")


def test_lines_as_they_are_drawn(made: Make) -> None:
    texts = [
        "He sat on the bank",
        "河岸上有一家很大的銀行在這裡，" * 2 + "河岸 bank 河岸" + "上有一家很大的銀行在這裡" * 2,
        "ذهب إلى ضفة النهر bank ثم عاد إلى البيت",
        "\x1b[31mred\x07 [bold]bank[/bold] \u202e:smile:",
        "word " * 30 + "bank" + " word" * 30,
        "banknotesandcoinsofmanycountriesofthisworld",
    ]
    found = made("\n".join(texts)).find("/bank.*/")
    title, blank, *lines = str(found).splitlines()
    assert (title, blank) == ("6 of 6 uses, in the order of the corpus; 43,478.3 per million words", "")
    assert len(lines) == 6
    assert {cell_len(line[: line.index("bank")]) for line in lines} == {3 + 2 + 32}
    assert max(map(cell_len, lines)) <= 80
    assert not re.search("[\x00-\x1f\u202e]", "".join(lines))
    assert "␛[31mred␇ [bold]bank[/bold] " in lines[3]


def test_uses_of_which_the_tokenizer_leaves_nothing_are_left_out(made: Make, tmp_path: Path) -> None:
    """Soft hyphens with the lemma "bank": one in a text, one that is all of its text."""
    texts = [["the", "bank", HYPHEN], [HYPHEN], ["a", "bank", "the", "bank"]]
    rows = [
        f"# part = {part}\n"
        + "".join(f"{n}\t{word}\t{word.replace(HYPHEN, 'bank')}\tX\n" for n, word in enumerate(text, 1))
        for part, text in zip("abb", texts, strict=True)
    ]
    concordance = made("\n".join(rows), "a.conllu")
    told = "2 left out, where the tokenizer drops the word"
    found = concordance.find("bank", sentence="the bank of a river", why=True)
    assert (len(found), found.total, found.about) == (3, 5, f"the likest in meaning first; {told}")
    assert concordance.senses("bank").about.endswith(f"one group. {told}.")
    drift = concordance.drift("bank", "part", samples=9)
    assert ([change.uses for change in drift.changes], drift.left_out) == ([(1, 2)], 2)
    seen: list[str] = []
    concordance.teach("bank", tmp_path / "x.json", lambda line, names: seen.append(line.place.node) or "")
    assert seen == ["bank"] * 3
    with pytest.raises(InputError, match="word must leave a token somewhere"):
        concordance.find("bank", sentence="a *bank*", where=[f"form={HYPHEN}"])
    with pytest.raises(InputError, match="word must leave a token; the tokenizer drops all of"):
        concordance.find("bank", sentence=f"a *{HYPHEN}* bank")


def test_why_weighs_words_by_what_they_carry(small: Concordance) -> None:
    lines = small.find("bank", sentence="on the bank of the river", why=True)
    for line in lines:
        drops = {each.word: each.drop for each in line.reasons}
        assert min(drops.values(), default=1) >= 0.001
        words = list(drops)
        if {"the", "river"} <= drops.keys() and drops["the"] < 1.5 * drops["river"]:
            assert words.index("river") < words.index("the")
    assert lines[0].reasons[0].word in ("river", "sat")


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
        ("bnak", [], "'bnak' is not. Did you mean 'bank'"),
        ("rivers", [], "Did you mean 'river'"),
        ("the zzzz", [], "'zzzz' is not.$"),
        ("", [], "word must be a word"),
        ("\u200b", [], "word must be"),
        ("a " * 9, [], "never stand in a row"),
        ("bank", ["genre>5"], "where must compare genre with a word: it has no numbers; got 'genre>5'"),
        ("/zz.*/", [], "fits none"),
        ("/(/", [], "word must be a regular expression"),
        ("river bank", [], "never stand in a row"),
        ("bank", ["genre"], "where must be NAME=VALUE"),
        ("bank", ["genr=news"], "known|genre; got 'genr'"),
        ("bank", ["genre~("], "where must be a regular expression"),
        (
            "bank",
            ["genre=newz"],
            r"no use of 'bank' with genre=newz\. No text has genre=newz: genre is news, fiction\.$",
        ),
        ("bank", ["genre=x|news"], r"genre=x\|news: .* One of several values is genre~\^\(x\|news\)\$\.$"),
        (
            "bank",
            ["genre=news", "year>2010"],
            r"year>2010\. No text has year>2010: year is 2004, 2001, 1990, 1991\.$",
        ),
        ("bank", ["decade=1980s"], r"No text has decade=1980s: decade is 1990s, 2000s\.$"),
        ("reeds", ["genre=news", "decade=1990s"], r"with genre=news, decade=1990s\.$"),
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
    monkeypatch.setattr("regard.concordance._values.PATIENCE", 0.05)
    with pytest.raises(InputError, match="takes too long"):
        small.find("bank", where=[r"text~(.|\w)+(.|\w)+\d"])
    monkeypatch.undo()
    monkeypatch.setattr("regard.concordance._store._STEPS", 1)
    with small.within(-1), pytest.raises(InputError, match="takes too long"):
        small.find("bank")
    assert small.find("bank").total == before


def test_a_phrase_ends_with_its_text(made: Make) -> None:
    corpus = made("He gave\nup the ghost.\nShe gave up.\n")
    assert [line.place.body for line in corpus.find("gave up").lines] == ["She gave up."]
