"""All vectors, and other words that are used so: exact search is the oracle."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.concordance import Concordance, Reading, build_index
from regard.concordance import _anyword as anyword
from regard.concordance import _vectors as vectors
from regard.concordance._meaning import span_of
from regard.concordance._uses import select, single
from regard.core.errors import InputError, MissingExtraError

pytestmark = pytest.mark.skipif(find_spec("lancedb") is None, reason="LanceDB is not installed")

TEXTS = [
    "They fished from the bank of a river.",
    "The bank lent money to the banks of the town.",
    "We sat on the shore of the lake.",
    "The lender took the money.",
    "A stream has two banks, and Banks was his name.",
    "Long words stand here. " * 90,  # is cut into parts
    "* * *",
]
SENTENCE = "She sat on the bank of the stream."


def make(folder: Path) -> Path:
    rows = [{"text": text, "n": number, "genre": "ab"[number % 2]} for number, text in enumerate(TEXTS)]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    build_index([folder / "a.jsonl"], folder / "index", Reading(meta=("genre",)))
    return folder / "index"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Concordance:
    concordance = Concordance(make(tmp_path_factory.mktemp("any")))
    with pytest.raises(InputError, match="run `regard index --all` first"):
        concordance.find("bank", sentence=SENTENCE, any_word=True)
    concordance.embed_all()
    return concordance


def exact(found: Concordance, query: Any, barred: set[str]) -> list[int]:
    keys = dict(found._store.rows("SELECT id, key FROM form"))
    scored = {
        use: np.frombuffer(v, np.float16).astype(np.float32) @ query
        for use, v in found._store.rows("SELECT use, v FROM vector")
        if keys[int(found._store.tokens.forms[use])] not in barred
    }
    return sorted(scored, key=lambda use: -scored[use])


def test_all_vectors_are_those_that_are_computed_one_by_one(found: Concordance, tmp_path: Path) -> None:
    one = Concordance(make(tmp_path), found.vectors.embed)
    for word in ("bank", "words", "stand", "stream"):
        uses = select(one._store, word)
        assert np.abs(one.vectors.vectors_of(uses) - found.vectors.vectors_of(uses)).max() < 1e-3  # float16
    words = len(found._store.tokens.words)
    assert found._store.one("SELECT count(*) FROM vector") == words


def test_each_text_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    concordance = Concordance(make(tmp_path))
    embedder, read = concordance.vectors.embed._embedder, list[str]()
    spans = embedder.spans
    monkeypatch.setattr(embedder, "spans", lambda texts: read.extend(texts) or spans(texts))
    monkeypatch.setattr(vectors, "_USES_AT_ONCE", 250)
    told: list[tuple[int, int]] = []
    concordance.vectors.all(lambda *at: told.append(at))
    texts = concordance._store.one("SELECT count(*) FROM text")
    assert len(read) == len(set(read)) == texts
    assert len(told) > 1
    assert told[-1][0] == told[-1][1]
    read.clear()
    concordance.vectors.all()
    assert read == []


def test_the_nearest_other_words_are_those_of_exact_search(found: Concordance) -> None:
    query = found.vectors.embed([span_of(SENTENCE, "bank")])[0]
    lines = found.find("bank", sentence=SENTENCE, any_word=True, k=8)
    assert [line.place.use for line in lines] == exact(found, query, {"bank"})[:8]
    assert lines[0].probability is None
    assert lines[0].similarity == max(line.similarity or 0 for line in lines)
    both = found.find("/banks?/", sentence="on the *bank* of the stream", any_word=True, k=8)
    assert not {line.place.node.lower() for line in both} & {"bank", "banks"}


def test_other_words_under_conditions_and_by_examples(found: Concordance) -> None:
    query = found.vectors.embed([span_of(SENTENCE, "bank")])[0]
    order = exact(found, query, {"bank"})
    lines = found.find("bank", sentence=SENTENCE, any_word=True, k=5, where=["genre=b"])
    wanted = set(select(found._store, "/.*/", ["genre=b"]).uses.tolist())
    assert [line.place.use for line in lines] == [use for use in order if use in wanted][:5]
    bank = select(found._store, "bank")
    lines = found.find("bank", more=bank.uses[:1].tolist(), any_word=True, k=3)
    assert [line.place.use for line in lines] == exact(found, found.vectors.vectors_of(bank)[0], {"bank"})[:3]
    assert found.find("brook", sentence="by the brook", any_word=True, k=2).total > 0  # not in the corpus


def test_lemmas_are_left_out_where_the_corpus_has_them(tmp_path: Path) -> None:
    rows = ["1\tgave\tgive\tVERB", "2\tgiven\tgive\tVERB", "3\tgifts\tgift\tNOUN"]
    (tmp_path / "a.conllu").write_text("\n".join(rows) + "\n\n")
    build_index([tmp_path / "a.conllu"], tmp_path / "index")
    concordance = Concordance(tmp_path / "index")
    concordance.embed_all()
    lines = concordance.find("gives", sentence="she gives", any_word=True)
    assert {line.place.node for line in lines} == {"gave", "given", "gifts"}
    lines = concordance.find("gave", sentence="she gave", any_word=True)
    assert [line.place.node for line in lines] == ["gifts"]


def test_what_does_not_go_with_other_words_is_refused(found: Concordance) -> None:
    for more in ({"sort": ["L1"]}, {"sample": 3}, {"k": None}, {"sentence": None}):
        with pytest.raises(InputError, match="any_word goes with"):
            found.find("bank", any_word=True, **{"sentence": SENTENCE} | more)  # type: ignore[arg-type]


@pytest.mark.parametrize("any_word", [False, True])
def test_numbers_of_uses_are_checked_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, any_word: bool
) -> None:
    concordance = Concordance(make(tmp_path))
    monkeypatch.setattr(vectors.VectorCache, "vectors_of", lambda *_, **__: pytest.fail("it was computed"))
    other = select(concordance._store, "river").uses[0]
    for uses in ({"more": [-1]}, {"more": [10**6]}, {"more": [], "sentence": SENTENCE, "less": [2**70]}):
        with pytest.raises(InputError, match=r"(more|less) must be a whole number, from 0 to"):
            concordance.find("bank", any_word=any_word, **uses)  # type: ignore[arg-type]
    if not any_word:
        with pytest.raises(InputError, match="more must be uses of this word"):
            concordance.find("bank", more=[other])


def test_a_reader_sees_what_others_added_and_embedded(found: Concordance, tmp_path: Path) -> None:
    index, embed = make(tmp_path), found.vectors.embed
    reader, other = Concordance(index, embed), Concordance(index, embed)
    other.embed_all()
    asked: dict[str, Any] = {"sentence": SENTENCE, "any_word": True, "k": 5}
    before = reader.find("bank", **asked)
    (tmp_path / "b.jsonl").write_text('{"text": "She sat on the edge of the stream.", "genre": "a"}\n')
    build_index([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], index, Reading(meta=("genre",)))
    with pytest.raises(InputError, match="those of the texts that were added"):
        reader.find("bank", **asked)
    other.embed_all()
    after, fresh = reader.find("bank", **asked), Concordance(index, embed).find("bank", **asked)
    assert [line.place.use for line in after] == [line.place.use for line in fresh]
    assert after.total == fresh.total == before.total + 8


def test_a_table_without_its_index_is_built_again(
    found: Concordance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before was damaged, and the work that mends it is stopped: all of it is still to be done."""
    concordance = Concordance(make(tmp_path), found.vectors.embed)
    concordance.embed_all()
    shutil.rmtree(next((tmp_path / "index" / "any").glob("*.lance")) / "data")

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lancedb.table.LanceTable.create_index", stopped)
        with pytest.raises(KeyboardInterrupt):
            concordance.embed_all()
    with pytest.raises(InputError, match="run `regard index --all` first"):
        concordance.find("bank", sentence=SENTENCE, any_word=True)
    concordance.embed_all()
    indices = anyword.AnyWord(concordance._store)._table.list_indices()
    assert [each.index_type for each in indices] == ["Bitmap"]


def test_without_lancedb_the_package_is_named(found: Concordance, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("regard.core.extras.import_module", absent)
    with pytest.raises(MissingExtraError, match="lancedb"):
        found.embed_all()


def test_many_rows_have_an_index_that_finds_nearly_all(
    found: Concordance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anyword, "_FEWEST", 300)
    monkeypatch.setattr(anyword, "_BATCH", 100)
    concordance = Concordance(make(tmp_path), found.vectors.embed)
    concordance.embed_all()
    others = anyword.AnyWord(concordance._store)
    kinds = [each.index_type for each in others._table.list_indices()]
    assert sorted(kinds) == ["Bitmap", "IvfRq"]
    query = found.vectors.embed([span_of(SENTENCE, "bank")])[0]
    near = others.nearest(query, others.own("bank"), 10).tolist()
    assert len(set(near) & set(exact(found, query, {"bank"})[:10])) >= 9
    assert len(concordance.vectors.vectors_of(single(near))) == 10
