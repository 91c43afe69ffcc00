"""A model as the work of a job: its columns are the embedder's, and what is settled is obeyed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import InputError
from regard.embedding import Embedder, Mix, Request, Truncate
from regard.embedding.job import ModelWork, open_model
from regard.models import Loaded, load_checkpoint
from regard.text import Words
from unit.kernels.targets import needs_vnni

TEXTS = ["A river bank.", "He fishes on the bank of a river, far from any bank.", "Bank"]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_checkpoint()


def columns(work: ModelWork, texts: list[str]) -> dict[str, Any]:
    piece = work.embed(texts)
    found = {}
    for (name, sample), column in zip(work.sample.items(), piece.columns.values(), strict=True):
        found[name] = np.asarray(column)
        assert not len(column) or found[name].dtype.kind == np.asarray(sample).dtype.kind
        assert found[name].shape == (len(piece.rows), *np.asarray(sample).shape[1:])
    return found | {"rows": piece.rows, "rejected": piece.rejected, "counts": piece.counts}


def test_sentences(loaded: Loaded) -> None:
    found = columns(ModelWork(loaded, Request()), TEXTS)
    wanted = Embedder(loaded, Request()).sentences(TEXTS)
    assert list(found)[:5] == ["tokens", "windows", "cut", "unknown", "vector"]
    np.testing.assert_array_equal(found["vector"], wanted.vectors)
    np.testing.assert_array_equal(found["tokens"], wanted.report.tokens)
    assert found["rows"].tolist() == [0, 1, 2]
    assert found["counts"] == {
        "tokens": int(wanted.report.tokens.sum()),
        "windowed": 0,
        "cut": 0,
        "cut_tokens": 0,
        "without_vector": 0,
        "unknown": 0,
        "zero": 0,
        "infinite": 0,
    }


def test_words_at_two_layers_as_int8(loaded: Loaded) -> None:
    request = Request(level="word", layer=[0, -2], storage="int8")
    found = columns(ModelWork(loaded, request), TEXTS)
    wanted = Embedder(loaded, request).spans(TEXTS)
    names = ["index", "text", "start", "end", "unknown", "vector_0", "scale_0", "vector_5", "scale_5"]
    assert list(found)[:9] == names
    assert wanted.scales is not None
    for place, layer in enumerate((0, 5)):
        np.testing.assert_array_equal(found[f"vector_{layer}"], wanted.vectors[:, place])
        np.testing.assert_array_equal(found[f"scale_{layer}"], wanted.scales[:, place])
    assert found["text"][:4].tolist() == ["A", "river", "bank", "."]
    assert found["index"].tolist() == [*range(4), *range(14), 0]
    spans = zip(found["rows"], found["start"], found["end"], strict=True)
    assert [TEXTS[row][start:end] for row, start, end in spans] == found["text"].tolist()


def test_given_words_keep_their_numbers(loaded: Loaded) -> None:
    """Also behind one of which the tokenizer leaves no token."""
    found = columns(
        ModelWork(loaded, Request(level="word")), ["a bank", Words(["New York", "\u200b", "bank"])]
    )
    assert found["text"].tolist() == ["a", "bank", "New York", "bank"]
    assert (found["index"].tolist(), found["rows"].tolist()) == ([0, 1, 0, 2], [0, 0, 1, 1])
    tokens = columns(ModelWork(loaded, Request(level="token")), [Words(["New York", "bank"])])
    assert (tokens["text"].tolist(), tokens["index"].tolist()) == (["New", "York", "bank"], [0, 1, 2])


@pytest.mark.parametrize("level", ["sentence", "word", "token"])
def test_texts_that_cannot_be_embedded(loaded: Loaded, level: Any) -> None:
    work = ModelWork(loaded, Request(level=level))
    found = columns(work, ["one", "\u200b", "two", "\ufeff"])
    assert sorted(set(found["rows"].tolist())) == [0, 2]
    assert sorted(found["rejected"]) == [1, 3]
    assert found["rejected"][1].startswith("leaves no token: ")
    np.testing.assert_array_equal(found["vector"], columns(work, ["one", "two"])["vector"])


@pytest.mark.parametrize("level", ["sentence", "word"])
def test_a_text_with_a_vector_that_is_not_finite_is_put_aside(level: Any) -> None:
    """Beside one without a token: the damage is in one row of the table, which no other text reads."""
    loaded = load_checkpoint()
    (fish,) = loaded.require_tokenizer().encode("fish", add_special_tokens=False).token_ids
    work = ModelWork(loaded, Request(level=level))
    before = columns(work, TEXTS)
    with torch.no_grad():
        loaded.network.stack("encoder").embeddings.tokens.weight[fish] = torch.nan  # type: ignore[union-attr]
    found = columns(ModelWork(loaded, Request(level=level)), ["a fish", *TEXTS, "\u200b", "Fish!"])
    assert {place: reason[:22] for place, reason in found["rejected"].items()} == {
        0: "a vector of the text h",
        4: "leaves no token: the t",
        5: "a vector of the text h",
    }
    assert found["counts"] == before["counts"] | {"infinite": 2}
    np.testing.assert_array_equal(found["vector"], before["vector"])
    assert found["rows"].tolist() == (before["rows"] + 1).tolist()


def test_only_texts_that_cannot_be_embedded(loaded: Loaded) -> None:
    for level in ("sentence", "word"):
        found = columns(ModelWork(loaded, Request(level=level)), ["\u200b"])  # type: ignore[arg-type]
        assert (len(found["rows"]), len(found["rejected"])) == (0, 1)


def test_what_is_cut_off_is_counted(loaded: Loaded) -> None:
    found = columns(ModelWork(loaded, Request(window=Truncate(6))), TEXTS)
    assert found["cut"].tolist() == [0, 10, 0]
    assert (found["counts"]["cut"], found["counts"]["cut_tokens"]) == (1, 10)


def test_what_is_settled_is_json_and_names_model_and_tokenizer(loaded: Loaded) -> None:
    settled = ModelWork(loaded, Request(layer=Mix([3, 4]), pooling="mean")).settled
    assert json.loads(json.dumps(settled)) == settled
    assert settled["model"] == loaded.mark()
    assert settled["tokenizer"] == loaded.require_tokenizer().mark()
    assert settled["versions"]["torch"] == torch.__version__
    other = ModelWork(load_checkpoint(dtype=torch.bfloat16), Request()).settled
    assert other["model"] != settled["model"]


def wanted(**values: Any) -> dict[str, Any]:
    return {"level": "word", "layer": [3], "mix": None, "storage": "float16", **values}


def test_what_was_settled_before_is_obeyed() -> None:
    name = "sentence-transformers/all-MiniLM-L6-v2"
    first = open_model(name, wanted(precision="bfloat16", threads=3, batch_tokens=77), None)
    assert (first.settled["precision"], first.threads, first.about["threads"]) == ("bfloat16", 3, 3)
    earlier = first.settled | {"bytes_at_a_time": 12345}
    again = open_model(name, wanted(precision="fast"), earlier)
    assert again.settled == earlier
    assert again.characters == 12345
    assert open_model(name, wanted(precision="fast", threads=1), earlier).settled == earlier
    assert open_model(name, wanted(), earlier).settled["precision"] == "float32"
    for nothing in ("threads", "batch_tokens"):
        with pytest.raises(InputError, match=f"{nothing} must be a whole number, at least 1; got 0"):
            open_model(name, wanted(**{nothing: 0}), None)


@needs_vnni
def test_fast_goes_on_as_what_it_was_and_its_loss_is_written_down() -> None:
    name = "sentence-transformers/all-MiniLM-L6-v2"
    first = open_model(name, wanted(precision="int8"), None)
    assert first.settled["precision"] == "int8"
    about = json.loads(json.dumps(first.about))
    loss = about["loss"]
    assert 0.9 < loss["smallest_cosine"] < loss["mean_cosine"] < 1.0
    assert about["computed"] == f"int8, smallest cosine to float32 {loss['smallest_cosine']:.4f}"
    assert open_model(name, wanted(precision="fast"), first.settled).settled == first.settled
    exact = open_model(name, wanted(), None).about
    assert (exact["computed"], exact["loss"]) == ("float32, exact", None)
