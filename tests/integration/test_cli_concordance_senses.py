"""`regard senses` and `regard drift`: groups, a file that is edited, teaching, drift, and bad input."""

import json
from pathlib import Path

import pytest

from integration import test_cli
from integration.test_cli import Run, refused
from regard.cli import concordance
from regard.concordance import Line, Reading, build_index
from regard.concordance._uses import Place

run = test_cli.run

RIVER = [f"We sat on the bank of the river with the {each}." for each in "dog cat boat rod net".split()]  # noqa: SIM905
MONEY = [f"The bank lent him money for the {each}." for each in "house shop car farm boat".split()]  # noqa: SIM905


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rivers until 1990, then money; but for one each."""
    folder = tmp_path_factory.mktemp("corpus")
    dated = zip([*RIVER, MONEY[0], *MONEY[1:], RIVER[0]], range(1980, 2000), strict=False)
    rows = [{"text": text, "date": str(year), "genre": "ab"[year % 2]} for text, year in dated]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    build_index([folder / "a.jsonl"], folder / "index", Reading(date="date", meta=("genre",)))
    return str(folder / "index")


def test_groups_are_written_edited_and_used(run: Run, index: str, tmp_path: Path) -> None:
    file, page = tmp_path / "bank.json", tmp_path / "bank.html"
    code, out, err = run("senses", index, "bank", "--groups", "2", "--file", str(file), "--page", str(page))
    assert (code, err) == (0, "")
    assert out.startswith("bank: 11 uses. 2 groups of vectors, stable")
    assert "\n1   55 %\nbeside it: of, on, river, sat, we, with\n" in out
    assert out.endswith(f"{page}\n")
    assert "</html>" in page.read_text(encoding="utf-8")
    text = file.read_text(encoding="utf-8").replace('"1":', '"river":').replace('"2":', '"money":')
    file.write_text(text, encoding="utf-8")
    found = json.loads(run("senses", index, "bank", "--file", str(file), "--json").out)
    assert {each["sense"]: each["uses"] for each in found["groups"]} == {"river": 6, "money": 5}
    assert [each["sense"] for each in found["lines"]][:7] == ["river"] * 5 + ["money"] * 2


def test_teach_from_lines(run: Run, index: str, tmp_path: Path) -> None:
    file = tmp_path / "bank.json"
    typed = b"x\nwater\ncash\n\n2\nq\n"
    code, out, err = run("senses", index, "bank", "--teach", "-f", str(file), stdin=typed)
    assert code == 0
    assert err.count("[[bank]]") == 6
    assert "1 water   2 cash   n new   s pass over   q stop" in err
    assert err.endswith(f"regard: 3 lines labelled, in {file}\n")
    examples = json.loads(file.read_text())["senses"]
    assert [(name, len(each)) for name, each in examples.items()] == [("water", 1), ("cash", 2)]
    assert out.startswith("bank: 11 uses. Labelled by 3 examples of 2 senses")
    _, _, err = run("senses", index, "bank", "--teach", "-f", str(file), "--most", "1", stdin=b"1\n1\n")
    assert "regard: 1 line labelled" in err
    assert len(json.loads(file.read_text())["senses"]["water"]) == 2


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ("1", "water"),
        ("2", "cash"),
        ("9", ""),
        ("s", ""),
        ("x", ""),
        ("q", None),
        ("\x1b", None),
        ("n", "new one"),
    ],
)
def test_teach_by_a_key_press(monkeypatch: pytest.MonkeyPatch, keys: str, answer: str | None) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.getchar", lambda: keys)
    monkeypatch.setattr("typer.prompt", lambda text, err: " new one ")
    line = Line(
        Place(1, 1, "on the bank", 7, 11, 0, "a", "line 1", None, "{}"), label="cash", probability=0.7
    )
    assert concordance._ask(line, ["water", "cash"]) == answer


def test_drift(run: Run, index: str) -> None:
    code, out, err = run("drift", index, "bank", "--bins", "1986", "--samples", "99")
    assert (code, err) == (0, "")
    assert "\nbefore 1986, 6 uses | from 1986, 5 uses\n" in out
    assert "What sets from 1986 apart\n5 of 5 uses" in out
    found = json.loads(run("drift", index, "bank", "--bins", "1986", "--samples", "99", "--json").out)
    rows = {each["measure"]: each for each in found["rows"]}
    assert list(rows) == ["apd", "prt"]
    assert rows["apd"]["p"] <= 0.1
    assert rows["apd"]["low"] <= rows["apd"]["value"] <= rows["apd"]["high"]
    by_genre = json.loads(run("drift", index, "bank", "--by", "genre", "--samples", "99", "--json").out)
    assert {each["p"] > 0.1 for each in by_genre["rows"]} == {True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("senses", "bnak"), "'bnak' is not. Did you mean 'bank'?"),
        (
            ("senses", "bank", "--groups", "1"),
            "--groups must be 2 or more, and fewer than the 10 distinct uses",
        ),
        (("senses", "bank", "--teach"), "--teach goes with --file"),
        (("senses", "bank", "--page", "-"), "- is not a file to write to"),
        (("senses", "bank", "--file", "{}/broken.json"), "--file must be a JSON file of senses"),
        (("drift", "bank", "--by", "author"), "--by must name a field that the corpus has: source, date"),
        (("drift", "bank", "--bins", "soon"), "--bins must be dates"),
        (("drift", "bank", "--samples", "0"), "--samples must be"),
    ],
)
def test_refused(run: Run, index: str, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    command, *others = (each.format(tmp_path) for each in arguments)
    assert message in refused(run(command, index, *others), 2)
