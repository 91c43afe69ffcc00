"""Neighbours, order and samples, beside a plain loop; and lines as they are drawn."""

import re
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from regard.concordance import Concordance
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


def test_samples(small: Concordance) -> None:
    drawn = [[line.place.use for line in small.find("the", sample=4, seed=seed)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] == sorted(drawn[0])
    assert len(small.find("the", sample=999, k=None)) == 8
    for options in ({"sample": 0}, {"sample": 2, "seed": -1}, {"k": 0}):
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
        lines.to_file(folder / f"a.{ending}")
    assert pq.read_table(folder / "a.parquet").to_pylist() == [first, second]
    head, one, _ = (folder / "a.csv").read_text("utf-8").splitlines()
    assert head == ",".join(first)
    assert one.startswith(f"{first['use']},,Banks,")
    assert (folder / "a.jsonl").read_text("utf-8").count("\n") == 2
    with pytest.raises(InputError, match="output must end in"):
        lines.to_file(folder / "a.txt")
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
        lines.to_file(tmp_path / "a.parquet")
    assert not (tmp_path / "a.parquet").exists()
    lines.to_file(tmp_path / "a.csv")


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
    assert (title, blank) == ("6 of 6 uses, in the order of the corpus", "")
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
