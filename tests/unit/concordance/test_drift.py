"""The measures of drift are those of loops in double precision; where nothing changes, p is uniform."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import kstest

from regard.concordance import Concordance, Reading, build_index
from regard.concordance._drift import Change, drift, parts_of, units_of
from regard.concordance._lines import Line
from regard.concordance._uses import Place
from regard.core.errors import InputError
from tolerances import FP64
from unit.concordance.conftest import Make


def place(use: int, date: str | None = None, doc: int = 0, **meta: str) -> Place:
    return Place(use, doc, f"bank {use}", 0, 4, 0, "a.txt", f"line {use}", date, json.dumps(meta))


def changed(
    vectors: np.ndarray, parts: str, docs: list[int] | None = None, senses: str = "", **more: int
) -> Change:
    of = docs or range(len(parts))
    lines = [Line(place(at, doc=of[at]), label=sense) for at, sense in enumerate(senses or "x" * len(parts))]
    return drift(lines, vectors, list(parts), sorted(set(parts)), **more)[0]


def test_against_loops() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((11, 5)).astype(np.float32) + 1
    parts, senses = "aaaabbbbbbb", "xxyyxzzyzzz"
    found = changed(vectors, parts, senses=senses, samples=19)
    unit = [row / sum(x * x for x in row) ** 0.5 for row in vectors.astype(np.float64)]
    first, second = unit[:4], unit[4:]
    pairs = [1 - sum(x * y for x, y in zip(a, b, strict=True)) for a, b in itertools.product(first, second)]
    assert found.apd.value == pytest.approx(sum(pairs) / len(pairs), rel=FP64)
    a, b = sum(first) / 4, sum(second) / 7
    assert found.prt.value == pytest.approx(1 - (a @ b) / ((a @ a) ** 0.5 * (b @ b) ** 0.5), rel=FP64)
    shares = [[each.count(sense) / len(each) for sense in "xyz"] for each in (senses[:4], senses[4:])]
    assert found.jsd is not None
    assert found.jsd.value == pytest.approx(jensenshannon(*shares, base=2) ** 2, rel=1e-9)
    assert found.uses == (4, 7)


def test_by_hand() -> None:
    # Two at right angles to two: all pairs are 1 apart, as in two of the six deals.
    vectors = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)
    found = changed(vectors, "aabb", senses="rrmm", samples=5000)
    assert found.apd.value == 1
    assert (found.apd.low, found.apd.high) == (1, 1)
    assert found.apd.p == pytest.approx(1 / 3, abs=0.03)
    # The other four deals have cosine 1 for half of their pairs.
    assert found.apd.chance == pytest.approx((2 * 1 + 4 * 0.5) / 6, abs=0.02)
    assert found.jsd is not None
    assert found.jsd.value == 1


def test_the_lines_that_carry_it_are_those_without_which_the_means_are_nearest() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((12, 4)).astype(np.float32) + 2
    vectors[2], vectors[9] = (9, -9, 0, 0), (-9, 9, 0, 0)
    parts = "aaaaaabbbbbb"
    found = changed(vectors, parts, samples=9)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def apart(without: int) -> float:
        rows = [row for row in range(12) if row != without]
        means = [unit[[row for row in rows if parts[row] == part]].mean(0) for part in "ab"]
        return float(np.linalg.norm(means[0] - means[1]))

    for lines, own in zip(found.lines, (range(6), range(6, 12)), strict=True):
        assert lines[0].place.use == min(own, key=apart)


def test_p_is_uniform_where_nothing_changes() -> None:
    rng = np.random.default_rng(0)
    found = []
    for seed in range(150):
        vectors = (rng.standard_normal((24, 4)) + 1).astype(np.float32)
        found.append(changed(vectors, "a" * 10 + "b" * 14, samples=199, seed=seed).apd.p)
    assert kstest(found, "uniform").pvalue > 0.01


def test_documents_are_dealt_whole() -> None:
    # Ten uses in one document speak once: with two documents on either side, no p is below a sixth.
    rng = np.random.default_rng(0)
    vectors = np.concatenate(
        [
            rng.standard_normal((20, 3)) + np.array([5, 0, 0]),
            rng.standard_normal((20, 3)) + np.array([0, 5, 0]),
        ]
    )
    docs = [at // 10 for at in range(40)]
    found = changed(vectors.astype(np.float32), "a" * 20 + "b" * 20, docs, samples=199)
    assert found.apd.p > 1 / 6
    assert changed(vectors.astype(np.float32), "a" * 20 + "b" * 20, samples=199).apd.p == 1 / 200


def test_a_document_may_have_uses_in_both_parts() -> None:
    """An author of both periods: the measures are those of the uses, whoever wrote them."""
    vectors = np.random.default_rng(5).standard_normal((8, 3)) + 1
    parts = "aaaabbbb"
    apart = changed(vectors, parts, samples=9)
    for docs in ([0, 0, 1, 1, 1, 1, 2, 2], [0, 0, 1, 1, 0, 0, 1, 1]):
        across = changed(vectors, parts, docs, samples=9)
        assert across.apd.value == pytest.approx(apart.apd.value, rel=FP64)
        assert across.prt.value == pytest.approx(apart.prt.value, rel=FP64)


def test_which_rows_are_one_document(made: Make, tmp_path: Path) -> None:
    """A row for each sentence, of two documents on either side: by rows nothing seems to be by chance."""
    river, money = "They sat on the bank of the stream with {}.", "He asked the bank for a loan of {}."
    rows = [
        {"text": text.format(n), "part": part, "doc": f"{part}{n % 2}"}
        for part, text in (("a", river), ("b", money))
        for n in range(9)
    ]
    rows.sort(key=lambda row: row["doc"])
    text = "\n".join(map(json.dumps, rows))
    index = made(text, "a.jsonl", meta=("part", "doc"))
    by_row, by_document = (index.drift("bank", "part", document=each, samples=199) for each in (None, "doc"))
    assert by_row.changes[0].apd.p == 1 / 200
    assert by_document.changes[0].apd.p > 1 / 6
    assert by_row.note.startswith("Each row counts as a document, and rows of a.jsonl stand together.")
    assert by_row.note in " ".join(str(by_row).split())
    assert by_document.note == ""
    build_index([tmp_path / "a.jsonl"], tmp_path / "told", Reading(meta=("part",), document="doc"))
    told = Concordance(tmp_path / "told").drift("bank", "part", samples=199)
    assert told.to_rows() == by_document.to_rows()
    with pytest.raises(InputError, match="document must be one of doc, part"):
        index.drift("bank", "part", document="author")


def test_documents_that_the_format_names(made: Make) -> None:
    rows = [(doc, row) for doc in "aabb" for row in range(5)]
    sentence = "1\ta\ta\tDET\n2\tbank\tbank\tNOUN\n\n"
    text = "".join(
        (f"# newdoc\n# meta::part = {'xy'[at // 10]}\n" if not row else "") + sentence
        for at, (_, row) in enumerate(rows)
    )
    lines = made(text, "a.conllu").find("bank", k=None)
    units = units_of([line.place for line in lines], "document")
    assert [units.count(each) for each in dict.fromkeys(units)] == [5, 5, 5, 5]
    assert len(set(units_of([line.place for line in lines], None))) == 20


@pytest.mark.parametrize(
    ("bins", "dates", "names"),
    [
        ([], ["1950", "1960", "1970", None], ["before 1960", "from 1960"]),
        ([], ["1950", "1950", "1950", "1951"], ["before 1951", "from 1951"]),
        (["1960"], ["1959-12-31", "1960-01-01", "1970"], ["before 1960", "from 1960"]),
        (
            ["1960-06", "1950"],
            ["0900", "1950", "1960-05-31", "1960-06-01"],
            ["before 1950", "from 1950", "from 1960-06"],
        ),
    ],
)
def test_periods(bins: list[str], dates: list[str | None], names: list[str]) -> None:
    parts, found = parts_of(dates, "date", bins)
    assert found == names
    assert [each is None for each in parts] == [date is None for date in dates]
    assert [each for each in parts if each] == sorted(filter(None, parts), key=names.index)


@pytest.mark.parametrize(
    ("by", "bins", "message"),
    [
        ("date", [], "by must part the uses into 2 to 6; 'date' gives 1: before 2000."),
        ("date", ["in 1950"], "bins must be dates"),
        ("date", ["1990"], "'date' gives 1: before 1990"),
        ("genre", ["1950"], "bins must be left out where by is not date"),
        ("genre", [], "none of these has a genre"),
        ("file", [], "'file' gives 7: 0, 1, 2, 3, 4, 5, 6."),
    ],
)
def test_refused(by: str, bins: list[str], message: str) -> None:
    values = {"date": ["1950"] * 7, "genre": [None] * 7, "file": [*map(str, range(7))]}
    with pytest.raises(InputError) as error:
        parts_of(values[by], by, bins)
    assert message.replace("before 2000", "from 1950") in str(error.value)
