"""Counts by hand, and by scipy."""

import json
import math
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chi2

from regard.concordance import Concordance
from regard.concordance._counts import collocates, dispersion, holm, log_likelihood
from regard.concordance._uses import select
from regard.core.errors import InputError
from regard.text import split_words
from tolerances import FP64
from unit.concordance.conftest import ROWS, Make

# of each genre
WORDS = {"fiction": 17, "news": 30, None: 6}


def words(*genres: str | None) -> Counter[str]:
    texts = [text for text, genre, _ in ROWS if not genres or genre in genres]
    return Counter(text[a:b].lower() for text in texts for a, b in split_words(text) if text[a].isalnum())


def test_frequencies(small: Concordance) -> None:
    found = small.count(k=None)
    assert {row["form"]: row["count"] for row in found.to_rows()} == words()
    assert [row["form"] for row in found.to_rows()][:3] == ["the", "bank", "river"]
    assert found.rows[0]["per_million"] == pytest.approx(1e6 * 8 / 53, rel=FP64, abs=FP64)
    news = small.count(where=["genre=news"], k=2)
    assert [(row["form"], row["count"], row["per_million"]) for row in news.rows] == [
        ("the", 4, 1e6 * 4 / 30),
        ("bank", 3, 1e6 * 3 / 30),
    ]
    assert (len(news), news.total) == (2, len(words("news")))
    assert [(row["form"], row["count"]) for row in small.count("/banks?/").rows] == [
        ("bank", 6),
        ("banks", 2),
    ]


def test_by_a_field(small: Concordance) -> None:
    found = small.count("bank", by="genre")
    assert [(row["genre"], row["count"], row["words"]) for row in found.rows] == [
        ("fiction", 2, WORDS["fiction"]),
        ("news", 3, WORDS["news"]),
        (None, 1, WORDS[None]),
    ]
    off = (abs(2 / 6 - 17 / 53) + abs(3 / 6 - 30 / 53) + abs(1 / 6 - 6 / 53)) / 2
    assert found.dispersion == pytest.approx(off / (1 - 6 / 53), rel=FP64, abs=FP64)
    sizes = small.count(by="genre")
    assert {row["genre"]: row["words"] for row in sizes.rows} == WORDS
    assert sum(row["share"] for row in sizes.rows) == pytest.approx(100, rel=FP64, abs=FP64)
    years = small.count("gave up", by="year", where=["date>1900"])
    assert [(row["year"], row["count"]) for row in years.rows] == [
        ("1990", 0),
        ("1991", 0),
        ("2001", 2),
        ("2004", 0),
    ]
    assert [row["decade"] for row in small.count("bank", by="decade").rows] == ["1990s", "2000s", None]
    upper = small.count("bank", by="genre", where=["form=Bank"])  # rates are among all words
    assert [(row["count"], row["words"]) for row in upper.rows] == [(1, 30), (0, 17), (0, 6)]


def test_numbers_of_a_table_are_in_their_order(made: Make) -> None:
    chapters = made(
        "text,chapter\n" + "".join(f"the bank,{n}\n" for n in (10, 9, -1, 2.5)), "a.csv", meta=("chapter",)
    )
    assert [row["chapter"] for row in chapters.count("bank", by="chapter").rows] == ["-1", "2.5", "9", "10"]


def test_each_value_of_a_list_is_counted(made: Make) -> None:
    tags: list[object] = [["x", "y", "x"], ["y"], [], "y", None, ["[]", 2]]
    rows = [{"text": f"bank {'and ' * n}", "tags": each} for n, each in enumerate(tags)]
    index = made("\n".join(map(json.dumps, rows)), "a.jsonl")
    counted = index.count("bank", by="tags", plot=True)
    assert {row["tags"]: (row["count"], row["words"]) for row in counted.rows} == {
        "x": (1, 1),
        "y": (3, 1 + 2 + 4),
        "[]": (1, 6),
        2: (1, 6),
        None: (2, 3 + 5),
    }
    # The parts overlap: the sizes are no partition.
    assert (counted.dispersion, counted.about) == (None, "bank: 6 of 21 words, 285,714.3 per million")
    assert [row["plot"][0] for row in counted.rows] == ["█"] * 5
    assert {row["tags"]: row["words"] for row in index.count(by="tags").rows}["y"] == 7


@pytest.mark.parametrize(
    ("counts", "sizes", "wanted"),
    [
        ([3, 3], [10, 10], 0),
        ([6, 0], [10, 10], 1),
        ([0, 6], [30, 10], 1),
        ([6, 0], [30, 10], 1 / 3),
        ([1, 2, 3, 4, 5], [20, 20, 20, 20, 20], 0.2 / 0.8),  # Gries 2008: DP = .2
    ],
)
def test_dispersion(counts: list[int], sizes: list[int], wanted: float) -> None:
    assert dispersion(counts, sizes) == pytest.approx(wanted, rel=FP64, abs=FP64)
    assert math.isnan(dispersion([3], [10]))


def dunning(a: int, b: int, size_a: int, size_b: int) -> float:
    """Dunning 1993, section 5: the ratio of two binomial likelihoods."""

    def log(k: int, n: int, p: float) -> float:
        return sum(count * math.log(share) for count, share in ((k, p), (n - k, 1 - p)) if count)

    own, common = (a / size_a, b / size_b), (a + b) / (size_a + size_b)
    apart = log(a, size_a, own[0]) + log(b, size_b, own[1])
    return 2 * (apart - log(a, size_a, common) - log(b, size_b, common))


def test_log_likelihood() -> None:
    a, b = np.random.default_rng(0).integers(1, 60, (2, 40))
    a[0], b[1] = 0, 0
    g2, ratio = log_likelihood(a, b, 4000, 9000)
    for x, y, found, logged in zip(*map(np.ndarray.tolist, (a, b, g2, ratio)), strict=True):
        assert found == pytest.approx(math.copysign(dunning(x, y, 4000, 9000), x / 4000 - y / 9000), abs=1e-9)
        assert logged == pytest.approx(math.log2(max(x, 0.5) / 4000 * 9000 / max(y, 0.5)), rel=FP64, abs=FP64)
    # scipy.stats.chi2_contingency([[10, 10], [990, 1990]], correction=False, lambda_="log-likelihood")
    assert log_likelihood(10, 10, 1000, 2000)[0] == pytest.approx(2.372448644236364, rel=FP64)


def test_keywords(small: Concordance) -> None:
    found = small.count(where=["genre=news"], against=["genre=fiction"], k=None)
    news, fiction = words("news"), words("fiction")
    assert {row["form"]: (row["count"], row["other"]) for row in found.rows} == {
        word: (news[word], fiction[word]) for word in {*news, *fiction}
    }
    scores = [row["g2"] for row in found.rows]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0 > scores[-1]
    for options in ({"where": ["genre=news"], "against": ["rest"]}, {"against": ["genre!=news"]}):
        rest = small.count(**options, k=None)  # type: ignore[arg-type]
        others = words("fiction", None)
        assert {row["form"]: (row["count"], row["other"]) for row in rest.rows} == {
            word: (news[word], others[word]) for word in words()
        }
    for where, against, message in (
        ([], ["rest"], "against must be conditions"),
        (["genre=news"], ["date>=1991"], "against must have no text that where has"),
        (["genre=news"], ["genre=sports"], "No text has genre=sports"),
    ):
        with pytest.raises(InputError, match=message):
            small.count(where=where, against=against)


def test_collocates(small: Concordance) -> None:
    found = small.collocates("bank", span=(1, 1), k=None)
    rows = {row["form"]: (row["left"], row["right"], row["count"], row["other"]) for row in found.rows}
    every = words()
    near = Counter(left=Counter(the=5, a=1), right=Counter(of=2, lent=1, loan=1, the=1, a=1))
    assert {word: row for word, row in rows.items() if row[2]} == {
        word: (
            near["left"][word],
            near["right"][word],
            n := near["left"][word] + near["right"][word],
            every[word] - n,
        )
        for word in ("the", "a", "of", "lent", "loan")
    }
    assert rows["bank"] == (0, 0, 0, 6)  # it stands beside no other one
    assert found.about == "within 1 words of bank, 6 uses, and elsewhere: 12 and 41 words"
    assert sum(row[2] + row[3] for row in rows.values()) == 53


def test_what_they_keep_to(made: Make) -> None:
    """By the formulas, word by word; and p by scipy's chi squared and a loop."""
    draw = random.Random(2)
    text = draw.choices(["very", "good", "bad", "so", "then"], [3, 2, 2, 5, 7], k=701)
    concordance = made(" ".join(text), unit="file")
    found = concordance.collocates("good", span=(1, 2), k=None)
    places = [at for at, word in enumerate(text) if word == "good"]
    spans = {at + shift for at in places for shift in (-1, 1, 2)} & set(range(len(text)))
    near, every = Counter(text[at] for at in spans), Counter(text)
    assert {row["form"]: (row["count"], row["other"]) for row in found.rows} == {
        word: (near[word], n - near[word]) for word, n in every.items()
    }
    for row in found.rows:
        o, c = near[row["form"]], every[row["form"]]
        expected = len(spans) * c / len(text)
        wanted = {
            "log_dice": 14 + math.log2(2 * o / (len(places) + c)),
            "mi": math.log2(o / expected),
            "mi3": math.log2(o**3 / expected),
            "t": (o - expected) / math.sqrt(o),
        }
        assert {name: row[name] for name in wanted} == pytest.approx(wanted, rel=FP64)
    alone = sorted(chi2.sf(abs(row["g2"]), 1) for row in found.rows)
    held: list[float] = []
    for rank, p in enumerate(alone):
        held.append(max([min(1, p * (len(alone) - rank)), *held]))
    assert sorted(row["p"] for row in found.rows) == pytest.approx(held, rel=1e-9)
    for measure in ("log_ratio", "log_dice", "mi", "mi3", "t"):
        rows = concordance.collocates("good", span=(1, 2), measure=measure).rows
        assert [row[measure] for row in rows] == sorted((row[measure] for row in rows), reverse=True)
    least = concordance.collocates("good", span=(1, 2), least=near.most_common(2)[1][1])
    assert {row["form"] for row in least.rows} == {word for word, _ in near.most_common(2)}
    with pytest.raises(InputError, match="least must be fewer: no word is there 999 times"):
        concordance.collocates("good", least=999)
    with pytest.raises(InputError, match="measure must be one of"):
        concordance.collocates("good", measure="dice")


def test_p_of_a_list_is_rarely_small_by_chance(made: Make) -> None:
    """Two halves of one urn: of 99 lists of 50 words, few have a p of .05 or less; alone nearly all would."""
    draw = np.random.default_rng(0)
    shares = draw.dirichlet(np.full(50, 2.0))
    small = alone = 0
    for _ in range(99):
        a, b = draw.multinomial(2000, shares, size=2)
        p = np.array(
            [math.erfc(math.sqrt(abs(g2) / 2)) for g2 in log_likelihood(a, b, 2000, 2000)[0].tolist()]
        )
        small += holm(p).min() <= 0.05
        alone += p.min() <= 0.05
    assert small <= 11  # 99 of 100 such counts, of a binomial of p = .05
    assert alone > 70


def test_groups_of_hits(small: Concordance) -> None:
    found = small.count("/banks?/", by="L1,node")
    pairs = Counter[tuple[str, str]]()
    for text, _, _ in ROWS:
        row = ["", *(text[a:b].lower() for a, b in split_words(text) if text[a].isalnum())]
        pairs.update(pair for pair in pairwise(row) if pair[1].startswith("bank"))
    assert {(row["L1"], row["node"]): row["count"] for row in found.rows} == pairs
    assert sum(row["percent"] for row in found.rows) == pytest.approx(100, rel=FP64)
    assert [row["R1"] for row in small.count("bank", by="r1", k=1).rows] == ["of"]
    with pytest.raises(InputError, match="word must be given for by=R1"):
        small.count(by="R1")


def test_where_in_its_texts_a_word_stands(made: Make) -> None:
    def row(marked: range, genre: str) -> dict[str, str]:
        return {"text": " ".join("bank" if n in marked else "x" for n in range(400)), "genre": genre}

    rows = [row(range(10), "a"), row(range(200, 400), "a"), row(range(399, 400), "b")]
    found = made("\n".join(map(json.dumps, rows)), "a.jsonl", meta=("genre",)).count(
        "bank", by="genre", plot=True
    )
    plots = {each["genre"]: each["plot"] for each in found.rows}
    # Of "a" each cell has 20 words: half of the first, and all from word 600 on.
    assert plots == {"a": "▄" + "·" * 29 + "█" * 10, "b": "·" * 39 + "█"}
    assert plots["a"] in str(found)


def test_the_rate_stands_beside_hits(small: Concordance) -> None:
    assert small.find("bank").per_million == pytest.approx(1e6 * 6 / 53, rel=FP64)
    news = small.find("bank", where=["genre=news"], k=1)
    assert str(news).startswith("1 of 3 uses, in the order of the corpus; 100,000.0 per million words\n")
    assert small.find("bank", sample=2).per_million is None


def test_a_place_near_two_uses_counts_once(made: Make) -> None:
    concordance = made("very very good very\n")
    with pytest.raises(InputError, match="one of them has none"):  # all of it is near, and nothing elsewhere
        concordance.collocates("very", span=(2, 2))
    both = concordance._store
    found = collocates(both, select(both, "very"), select(both, "good"), span=(2, 2))
    assert {row["form"]: (row["left"], row["right"], row["other"]) for row in found.rows} == {
        "good": (0, 1, 0),
        "very": (1, 2, 3),
    }


def test_uses_against_others(small: Concordance) -> None:
    store = small._store
    news, fiction = (select(store, "bank", [f"genre={genre}"]) for genre in ("news", "fiction"))
    found = collocates(store, news, fiction, span=(0, 1), about="news and fiction")
    assert {row["form"]: (row["count"], row["other"]) for row in found.rows} == {
        "lent": (1, 0),
        "loan": (1, 0),
        "of": (1, 1),
        "the": (0, 1),
    }
    assert found.about == "news and fiction: 3 and 2 words"


def test_lemmas_and_parts_of_speech(made: Make) -> None:
    lines = ["1\tBanks\tbank\tNOUN", "2\tbank\tbank\tVERB", "3\t.\t.\tPUNCT", "4\tcash\t_\tNOUN"]
    concordance = made("\n".join(lines), "a.conllu")
    assert [(row["lemma"], row["count"]) for row in concordance.count(by="lemma").rows] == [
        ("bank", 2),
        ("cash", 1),
    ]
    assert [(row["pos"], row["count"]) for row in concordance.count(by="pos").rows] == [
        ("NOUN", 2),
        ("VERB", 1),
    ]
    assert [row["form"] for row in concordance.count("bank", where=["pos=VERB"]).rows] == ["bank"]
    near = concordance.collocates("bank", span=(0, 1), where=["pos=VERB"])  # "cash" is no verb
    assert {row["form"]: (row["count"], row["other"]) for row in near.rows} == {
        "cash": (1, 0),
        "banks": (0, 1),
        "bank": (0, 1),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "lemma"}, "the index has no lemmas"),
        ({"by": "nothing"}, "by must name a field that the corpus has: .*genre"),
        ({"by": "text"}, "by must name a field"),
        ({"word": "bank", "against": ["rest"]}, "against must be left out with a word"),
        ({"by": "genre", "where": ["genre=news"], "against": ["rest"]}, "by must be one of form, lemma, pos"),
        ({"k": 0}, "k must be a whole number"),
        ({"where": ["genre=nws"]}, r"must leave texts\. No text has genre=nws: genre is news, fiction\.$"),
        ({"by": "year", "where": ["genre=nws"]}, "must leave texts"),
        ({"where": ["genre=nws"], "against": ["rest"]}, "must leave texts"),
        ({"where": ["genre=news"], "against": ["genre=x"]}, "must leave texts. No text has genre=x"),
        ({"where": ["genre=news", "year=1990"]}, r"None has all of genre=news, year=1990\.$"),
        ({"by": 3}, "by must be a text; got 3"),
        ({"where": 3}, r"where must be several conditions, such as a list; got one: write \[3\]"),
    ],
)
def test_what_is_refused(small: Concordance, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small.count(**options)  # type: ignore[arg-type]


def test_a_span_has_two_sides(small: Concordance) -> None:
    for span in ((-1, 2), 3, (1, 2, 3), (0, 0)):
        with pytest.raises(InputError, match="span must"):
            small.collocates("bank", span=span)  # type: ignore[arg-type]


def test_as_it_is_drawn(small: Concordance) -> None:
    drawn = str(small.count("bank", by="genre")).splitlines()
    assert [line.rstrip() for line in drawn] == [
        "bank: 6 of 53 words, 113,207.5 per million; dispersion over genre 0.07",
        "",
        "genre    count  words  per million",
        f"fiction      2     17      117,647  {'█' * 17}",
        f"news         3     30      100,000  {'█' * 14}",
        f"-            1      6      166,667  {'█' * 24}",
    ]
    assert str(small.count(k=1)).splitlines()[-1] == f"{len(words()) - 1} more rows"
