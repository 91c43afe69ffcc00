"""Small corpora and their indexes."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from regard.concordance import Concordance, Reading, build_index

ROWS = [
    ("She sat on the bank of the river.", "fiction", "1990-05-03"),
    ("The bank lent money to the Bank of England.", "news", "1991"),
    ("Banks lend, and the river floods its banks.", "news", "1991-02-01"),
    ("He gave up. They gave it up; she gave up the bank loan.", "news", "2001"),
    ("Reeds grow on the bank; the river was low.", "fiction", "2004-07-09"),
    ("A bank, a river, a loan!", None, None),
]
"""Texts with a genre and a date."""

Make = Callable[..., Concordance]


def write_rows(path: Path) -> Path:
    rows = [{"text": text, "genre": genre, "date": date} for text, genre, date in ROWS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def every_use(concordance: Concordance) -> list[tuple[str, str, int, int, str]]:
    """Of each use the place and body of its text, where it begins and ends there, and its form."""
    store = concordance._store
    texts = store.rows("SELECT d.place, t.body FROM text t JOIN doc d ON d.id = t.doc ORDER BY t.id")
    forms = dict(store.rows("SELECT id, form FROM form"))
    uses, starts, stops = store.tokens.spans(np.arange(1, len(texts) + 1))
    assert uses.tolist() == list(range(1, len(store.tokens) + 1))
    of = (store.tokens.text_of(uses) - 1).tolist()
    spans = zip(of, starts.tolist(), stops.tolist(), store.tokens.forms[1:].tolist(), strict=True)
    return [(*texts[text], start, stop, forms[form]) for text, start, stop, form in spans]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Concordance:
    """The concordance of ROWS, which no test writes to."""
    folder = tmp_path_factory.mktemp("small")
    reading = Reading(date="date", meta=("genre",))
    build_index([write_rows(folder / "rows.jsonl")], folder / "index", reading)
    return Concordance(folder / "index")


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """A function that indexes a text as a file of some name."""

    def make(content: str, name: str = "corpus.txt", **reading: object) -> Concordance:
        (tmp_path / name).write_text(content, "utf-8")
        build_index([tmp_path / name], tmp_path / "index", Reading(**reading))  # type: ignore[arg-type]
        return Concordance(tmp_path / "index")

    return make
