"""Cards and tables of heads: the records, what is printed of them, and the file."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from regard.core.errors import InputError, MissingExtraError, OutputError
from regard.tracing import HeadCard, HeadExample, HeadFinding, HeadTable


def finding(pattern: str, effect: float, low: float, detail: str = "") -> HeadFinding:
    return HeadFinding(
        pattern=pattern, detail=detail, effect=effect, low=low, high=effect + 0.05, mass=effect + 0.1,
        captured=0.5, queries=1234,
    )  # fmt: skip


UNKNOWN = HeadFinding(
    pattern="induction", detail="", effect=math.nan, low=math.nan, high=math.nan, mass=math.nan,
    captured=0.0, queries=0,
)  # fmt: skip
TOKENS = ("[CLS]", "a", "bank\x1b[31m", "[/x]", "河")
EXAMPLE = HeadExample(text=3, tokens=TOKENS, keys=TOKENS, query=2, key=1, mass=0.75)


def card(head: int, *findings: HeadFinding, pattern: str | None = None, **fields: Any) -> HeadCard:
    usual: dict[str, Any] = {"kind": "encoder", "layer": 0, "examples": (EXAMPLE,)}
    name = findings[0].pattern if pattern is None else pattern
    return HeadCard(head=head, pattern=name, findings=findings, **(usual | fields))


def table(*cards: HeadCard, **fields: Any) -> HeadTable:
    usual: dict[str, Any] = {
        "model": "tiny", "texts": 2, "tokens": 1357, "refused": 0, "threshold": 0.1, "level": 0.95,
        "unit": "query", "seed": 0, "resamples": 400,
    }  # fmt: skip
    return HeadTable(cards=cards, **(usual | fields))


CARDS = (
    card(0, finding("previous", 0.71, 0.65), finding("delimiter sink", 0.25, 0.2, "punctuation"), UNKNOWN),
    card(
        1, finding("delimiter sink", 0.5, 0.4, "punctuation"), finding("positional stride", 0.2, 0.01, "-2")
    ),
    card(2, finding("next", 0.2, 0.04), UNKNOWN, pattern="none", layer=1),
)


def printed(what: Any, *, width: int = 80, color: bool = False) -> str:
    console = Console(width=width, force_terminal=color, color_system="truecolor" if color else None)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_the_records() -> None:
    whole = table(*CARDS)
    assert whole[0, 1] is CARDS[1]
    assert len(whole) == 3
    assert whole[-2, -1] is CARDS[1]
    assert whole[CARDS[1].kind, 0, 1] is CARDS[1]
    for at in ((0, 7), (5, 0), (-9, 0), ("cross", 0, 1)):
        with pytest.raises(InputError, match="a card is asked for by"):
            whole[at]
    assert whole.counts() == {"delimiter sink": 1, "previous": 1, "none": 1}
    assert repr(whole) == "HeadTable('tiny', 2 texts: 1 delimiter sink, 1 previous, 1 none)"
    assert CARDS[1].best.name == "delimiter sink punctuation"
    assert CARDS[1].second == CARDS[1].findings[1]
    assert card(0, UNKNOWN).second is None
    plain = json.loads(json.dumps(whole.to_json(), allow_nan=False))
    assert plain["cards"][0]["findings"][2] == {
        "pattern": "induction", "detail": "", "effect": None, "low": None, "high": None, "mass": None,
        "captured": 0.0, "queries": 0,
    }  # fmt: skip
    assert plain["cards"][0]["examples"][0]["tokens"][4] == "河"


def test_the_table() -> None:
    lines = [line.rstrip() for line in printed(table(*CARDS)).splitlines()]
    assert lines == [
        "tiny: 2 texts, 1,357 tokens",
        "effect: attention to the pattern's keys, over chance; 95% interval over queries,",
        "named if above 0.1",
        "",
        "head pattern                   effect interval   captured next",
        "     layer 0",
        "   0 previous                    0.71 0.65..0.76      50% 0.25 delimiter sink",
        "   1 delimiter sink punctuati…   0.50 0.40..0.55      50%",
        "",
        "     layer 1",
        "   2 -",
        "",
        "3 heads: 1 delimiter sink, 1 previous, 1 none",
    ]


def test_kinds_have_tables_of_their_own() -> None:
    crossed = card(0, finding("alignment", 0.6, 0.5), kind="cross")
    out = printed(table(*CARDS, crossed))
    assert "\nencoder attention\n" in out
    assert "\ncross attention\n" in out
    assert out.count("layer 0") == 2


def test_the_next_pattern_is_told_where_it_is_as_sure_as_a_name() -> None:
    weak = card(3, finding("previous", 0.5, 0.4), finding("next", 0.3, 0.1))
    out = printed(table(*CARDS, weak))
    assert "0.25 delimiter sink" in out
    assert "positional stride" not in out
    assert "0.30 next" not in out


@pytest.mark.parametrize(("lows", "is_told"), [((math.nan, math.nan), True), ((math.nan, 0.04), False)])
def test_too_few_queries_to_name_a_head_are_told(lows: tuple[float, ...], is_told: bool) -> None:
    few = [card(head, finding("next", 0.2, low), pattern="none") for head, low in enumerate(lows)]
    assert ("give a longer text, or several" in printed(table(*few))) is is_told


def test_the_card() -> None:
    lines = [line.rstrip() for line in printed(table(CARDS[0])).splitlines()]
    assert "encoder layer 0, head 0: previous" in lines
    assert any(line.split() == ["previous", "0.65..0.76", "0.71", "0.81", "50%", "1,234"] for line in lines)
    assert any(line.split() == ["induction", "-", "-", "-", "-", "0"] for line in lines)
    assert lines[-1] == "0.75  [CLS] <a> [bank␛[31m] [/x] 河"
    crossed = replace(EXAMPLE, keys=("un", "banc"), key=1)
    other = card(0, finding("alignment", 0.6, 0.5), kind="cross", examples=(crossed,))
    assert "[bank␛[31m] [/x] 河   reads  un <banc>" in printed(table(other))
    assert "no pattern" in printed(table(CARDS[2]))


def test_long_examples_are_cut_around_query_and_key() -> None:
    tokens = tuple(str(number) for number in range(100))
    far = replace(EXAMPLE, tokens=tokens, keys=tokens, query=50, key=10)
    out = printed(table(card(0, finding("previous", 0.6, 0.5), examples=(far,))), width=200)
    assert "0.75  … 6 7 8 9 <10> 11 12 13 14 … 46 47 48 49 [50] 51 52 53 54 …\n" in out


@pytest.mark.parametrize("what", [table(*CARDS), table(CARDS[0])])
def test_nothing_is_wider_than_80_columns(what: HeadTable) -> None:
    assert max(map(cell_len, printed(what).splitlines())) <= 80


def test_the_file(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "heads.parquet"
    table(*CARDS).write(path)
    rows = parquet.read_table(path).to_pylist()
    assert [(row["layer"], row["head"], row["pattern"], row["effect"]) for row in rows] == [
        (0, 0, "previous", 0.71),
        (0, 1, "delimiter sink", 0.5),
        (1, 2, "none", 0.2),
    ]
    assert rows[0]["findings"][2]["effect"] is None
    assert rows[0]["examples"][0]["query"] == 2
    assert json.loads(parquet.read_schema(path).metadata[b"regard"])["tokens"] == 1357
    with pytest.raises(OutputError, match="cannot be written"):
        table(*CARDS).write(tmp_path / "nowhere" / "heads.parquet")


def test_files_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"must end in \.csv, .*; got 'heads\.txt'"):
        table(*CARDS).write(tmp_path / "heads.txt")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install pyarrow"):
        table(*CARDS).write(tmp_path / "heads.parquet")
    assert not list(tmp_path.iterdir())


def test_a_table_is_a_sequence_of_cards_and_shows_itself() -> None:
    whole = table(*CARDS)
    assert list(whole) == list(CARDS)
    assert "delimiter sink" in str(whole)
    assert "<pre" in whole._repr_html_()
    frame = whole.to_pandas()
    assert frame[["layer", "head", "pattern"]].to_numpy().tolist() == [
        [0, 0, "previous"], [0, 1, "delimiter sink"], [1, 2, "none"],
    ]  # fmt: skip
    assert frame["effect"].tolist() == [0.71, 0.5, 0.2]
    assert str(CARDS[0]).startswith("encoder layer 0, head 0: previous")
