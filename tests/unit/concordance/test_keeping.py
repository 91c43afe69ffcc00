"""Indexes that can only be read, damage of every kind, and lines as people keep them."""

import csv
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from regard.concordance import Concordance, Reading, _store, build_index
from regard.concordance._store import FILE
from regard.core.errors import InputError, OutputError
from unit.concordance.conftest import Make, write_rows

SENTENCE = "She sat on the bank of the stream."


@pytest.fixture
def index(tmp_path: Path) -> Path:
    build_index(
        [write_rows(tmp_path / "rows.jsonl")], tmp_path / "index", Reading(date="date", meta=("genre",))
    )
    return tmp_path / "index"


def only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for another user, or on a disk that cannot be written: SQLite then opens the file to read alone."""
    monkeypatch.setattr(_store.os, "access", lambda path, mode: False)


def test_an_index_that_can_only_be_read(
    index: Path, small: Concordance, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Concordance(shutil.copytree(index, index.with_name("mine")), small.vectors.embed)
    before = {each.name: each.read_bytes() for each in index.iterdir()}
    only_read(monkeypatch)
    found = Concordance(index, wanted.vectors.embed)
    for _ in range(2):  # nothing is kept, so the vectors are computed again
        lines = found.find("bank", sentence=SENTENCE)
        assert lines.to_rows() == wanted.find("bank", sentence=SENTENCE).to_rows()
    assert found.count("bank").to_rows() == wanted.count("bank").to_rows()
    assert found.collocates("bank").to_rows() == wanted.collocates("bank").to_rows()
    with pytest.raises(OutputError, match="can only be read"):
        found.save_subcorpus("news", ["genre=news"])
    assert {each.name: each.read_bytes() for each in index.iterdir()} == before


def test_reading_while_its_owner_writes(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Concordance(index)
    writer.save_subcorpus("news", ["genre=news"])  # lies beside the file, in what SQLite calls its log
    assert (index / f"{FILE}-wal").stat().st_size > 0
    only_read(monkeypatch)
    assert len(Concordance(index).find("bank", where=["@news"])) == 3
    writer._store.db.close()


def test_an_index_that_nobody_holds_is_closed(index: Path, small: Concordance) -> None:
    concordance = Concordance(index, small.vectors.embed)
    concordance.find("bank", sentence=SENTENCE)
    db = concordance._store.db
    del concordance
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        db.execute("SELECT 1")


def zeros(file: Path) -> None:
    data = bytearray(file.read_bytes())
    middle = len(data) // 3 // 4096 * 4096
    data[middle : middle + 3 * 4096] = bytes(3 * 4096)
    file.write_bytes(data)


def sql(statement: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        with closing(sqlite3.connect(file)) as db:
            db.execute(statement)
            db.commit()

    return change


@pytest.mark.parametrize(
    "damage",
    [
        zeros,
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:5000]),
        sql("UPDATE manifest SET value = '{' WHERE name = 'fields'"),
        sql("DROP TABLE manifest"),
        sql("DROP TABLE form"),
        sql("UPDATE block SET forms = x'00'"),
        sql("UPDATE block SET gaps = forms"),
        sql("UPDATE block SET texts = docs"),
        sql("DELETE FROM block"),
        sql("UPDATE vector SET v = x'0000'"),
    ],
    ids=[
        "zeros",
        "empty",
        "cut",
        "manifest",
        "no-manifest",
        "no-forms",
        "packed",
        "gaps",
        "texts",
        "no-blocks",
        "vector",
    ],
)
def test_damage_is_told_in_a_line(index: Path, small: Concordance, damage: Callable[[Path], object]) -> None:
    concordance = Concordance(index, small.vectors.embed)
    concordance.find("bank", sentence=SENTENCE)
    embed = concordance.vectors.embed
    concordance._store.db.close()
    damage(index / FILE)
    with pytest.raises(InputError, match=r"is damaged \(.*\); make the index again"):
        Concordance(index, embed).find("bank", sentence=SENTENCE)


@pytest.mark.skipif(find_spec("lancedb") is None, reason="LanceDB is not installed")
@pytest.mark.parametrize("empty", [True, False])
def test_other_words_are_mended(index: Path, small: Concordance, empty: bool) -> None:
    concordance = Concordance(index, small.vectors.embed)
    concordance.embed_all()
    asked = {"sentence": SENTENCE, "any_word": True, "k": 3}
    wanted = [line.place.use for line in concordance.find("bank", **asked)]  # type: ignore[arg-type]
    if empty:
        shutil.rmtree(index / "any")
        (index / "any").mkdir()
    else:
        shutil.rmtree(next((index / "any").glob("*.lance")) / "data")
    again = Concordance(index, concordance.vectors.embed)
    with pytest.raises(InputError, match=r"any_word must have its folder whole, .* run `regard index --all`"):
        again.find("bank", **asked)  # type: ignore[arg-type]
    again.embed_all()
    assert [line.place.use for line in again.find("bank", **asked)] == wanted  # type: ignore[arg-type]


def test_a_table_for_spreadsheets(made: Make, tmp_path: Path) -> None:
    made('=HYPERLINK("x") bank\n- bank\n+1 @bank\tof -\nthe bank, 3 - 4\n').find("bank").write(
        tmp_path / "a.tsv"
    )
    data = (tmp_path / "a.tsv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbfuse\tleft\tnode\tright\t")
    rows = list(csv.DictReader(data.decode("utf-8-sig").splitlines(), dialect="excel-tab"))
    assert [row["left"] for row in rows] == ['\'=HYPERLINK("x") ', "'- ", "'+1 @", "the "]
    assert [row["right"] for row in rows] == ["", "", " of -", ", 3 - 4"]
    assert all(cell is None or cell[:1] not in ("=", "+", "-", "@") for row in rows for cell in row.values())
    made_again = Concordance(tmp_path / "index").find("bank")
    made_again.write(tmp_path / "a.csv")
    exact = list(csv.DictReader((tmp_path / "a.csv").read_text("utf-8").splitlines()))
    assert exact[1]["left"] == "- "


def test_wider_lines_and_whole_sentences(made: Make) -> None:
    from dataclasses import replace

    before, after = "It rained. " + "Very " * 30, " was far away, " + "and " * 30 + "so on."
    found = made(f'{before}old bank{after} "No?" she said. A bank! Yes.\n', unit="file").find("bank")
    wide = str(replace(found, width=140)).splitlines()
    assert max(map(len, wide)) <= 140 < len(wide[2]) + 5
    assert len(str(found).splitlines()[2]) <= 80
    [first, second] = [line.sentence for line in found]
    assert "".join(first) == f"{'Very ' * 30}old bank{after}".strip()
    assert second == ("A ", "bank", "!")
    shown = " ".join(str(replace(found, whole=True)).split())
    assert "".join(first) in shown
    assert json.loads(json.dumps(found.to_rows()))[0]["node"] == "bank"
    assert np.all([line.place.node == "bank" for line in found])
