"""Vectors of texts against what a trace of each text by itself tells, and what is refused."""

import functools
import itertools
import json
import re
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import regard
from regard import InputError, Mix, Truncate, Windows
from regard.embedding import (
    WORD_KINDS,
    Dense,
    Embedder,
    Kind,
    Request,
    SentenceSettings,
    Unit,
    WordKind,
    _engine_choice,
    pool,
)
from tolerances import PARITY_FP32, assert_close_to_largest
from unit.kernels.targets import needs_vnni

TEXTS = [
    "She sat on the bank of the river.",
    "The bank raised its interest rates, unexpectedly!",
    "fish",
    "Time flies like an arrow; fruit flies like a banana.",
    "naïve café, 東京 and a 👍🏽",
]
TABLE = "encoder.embeddings.tokens.weight"
SENTENCES = [f"sentence number {place} tells of riverbanks unforgettably." for place in range(90)]
LONG = " ".join(SENTENCES)
LONGER = " ".join(SENTENCES[:13])  # than the windows of 32 tokens


def _of_trace(model: regard.Model, text: str, layer: int) -> tuple[list[str], torch.Tensor]:
    trace = model.trace(text)
    states = trace.embeddings(layer)
    words = [word for word in trace.encoding.words if word.tokens]
    return [word.text for word in words], torch.stack([states[list(word.tokens)].mean(0) for word in words])


@pytest.mark.parametrize("layer", [0, 1, 4, -1])
def test_words_are_those_of_a_trace(model: regard.Model, layer: int) -> None:
    found = model.embed(TEXTS, level="word", layer=layer)
    for row, text in enumerate(TEXTS):
        words, vectors = _of_trace(model, text, layer)
        own = found.of(row)
        assert own.texts == words == [text[start:end] for start, end in own.spans]
        assert_close_to_largest(own.vectors, vectors, PARITY_FP32)
    assert found.rows.tolist() == [row for row in range(len(TEXTS)) for _ in found.of(row).texts]


@pytest.mark.parametrize(
    "precision", ["float32", "int16", "bfloat16", pytest.param("int8", marks=needs_vnni)]
)
@pytest.mark.parametrize("size", [2e19, 1e38])
def test_a_vector_of_any_size_gets_the_length_one(size: float, precision: Any) -> None:
    """One entry of the last norm's bias outweighs all others, and its square is infinite in float32."""
    model, entry = regard.load(), 29
    with torch.no_grad():
        dict(model.network.named_parameters())["encoder.layers.5.ffn_residual.norm.bias"][entry] = size
    found = model.embed(TEXTS[:2], precision=precision)
    expected = np.zeros((2, 384))
    expected[:, entry] = 1.0
    assert_close_to_largest(found, expected, PARITY_FP32)
    assert found.report is not None
    loss = found.report.computed.loss
    assert loss is None or loss.smallest_cosine == pytest.approx(1.0, abs=1e-3)
    words = model.embed(TEXTS[:2], level="word", normalize=True, precision=precision).vectors
    assert_close_to_largest(words, np.broadcast_to(expected[:1], words.shape), PARITY_FP32)


PIECES = {
    "mean": lambda states: states.mean(0),
    "first": lambda states: states[0],
    "last": lambda states: states[-1],
    "max": lambda states: states.max(0).values,
}


@functools.cache
def _theirs(folder: Path) -> tuple[Any, Any]:
    return tuple(
        kind.from_pretrained(folder) for kind in (transformers.AutoModel, transformers.AutoTokenizer)
    )


def _by_pieces(model: regard.Model, text: str, kind: str, layer: int) -> torch.Tensor:
    """A loop over the hidden states of transformers; words by its own spans and white space."""
    hf, read_by = _theirs(model.loaded.source.folder)
    read = read_by(text, return_tensors="pt", return_offsets_mapping=True)
    spans = read.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        states = hf(**read, output_hidden_states=True).hidden_states[layer][0]
    words = [found.span() for found in re.finditer(r"\S+", text)]
    return torch.stack(
        [
            PIECES[kind](states[[i for i, (a, b) in enumerate(spans) if start <= a < b <= end]])
            for start, end in words
        ]
    )


@pytest.mark.parametrize("kind", WORD_KINDS)
def test_a_word_is_the_first_last_largest_or_mean_of_its_pieces(model: regard.Model, kind: WordKind) -> None:
    text = "unforgettable riverbanks overflowed unexpectedly near a bank"
    for layer in (3, 6):
        found = model.embed([text], level="word", pooling=kind, layer=layer)
        expected = _by_pieces(model, text, kind, layer)
        assert found.texts == text.split()
        assert_close_to_largest(found.vectors, expected, PARITY_FP32)
    joined = model.embed([text], level="word", pooling=["first", kind]).vectors
    assert_close_to_largest(joined[:, 384:], expected, PARITY_FP32)


def test_tokens_are_those_of_a_trace_but_the_templates(model: regard.Model) -> None:
    found = model.embed(TEXTS, level="token", layer=2)
    for row, text in enumerate(TEXTS):
        trace = model.trace(text)
        assert_close_to_largest(found.of(row).vectors, trace.embeddings(2)[1:-1], PARITY_FP32)
        assert [tuple(span) for span in found.of(row).spans] == [t.span for t in trace.encoding.tokens[1:-1]]


def test_layers_are_an_axis_in_the_order_asked_for(model: regard.Model) -> None:
    several = model.embed(TEXTS, level="word", layer=[5, 0, -4]).vectors
    for place, layer in enumerate([5, 0, 3]):
        alone = model.embed(TEXTS, level="word", layer=layer).vectors
        assert_close_to_largest(several[:, place], alone, PARITY_FP32)


def test_a_mix_is_the_weighted_sum_of_layers(model: regard.Model) -> None:
    layers = model.embed(TEXTS, layer=[2, 6], pooling="mean")
    mixed = model.embed(TEXTS, layer=Mix([2, 6], [0.25, -3.0]), pooling="mean")
    assert_close_to_largest(mixed, 0.25 * layers[:, 0] - 3.0 * layers[:, 1], PARITY_FP32)


def test_a_vector_does_not_depend_on_the_other_texts(model: regard.Model) -> None:
    texts = [*TEXTS, LONGER, *TEXTS[::-1]]
    embedder = Embedder(model.loaded, Request(window=Windows(size=64)))
    together = embedder.sentences(texts).vectors
    for text, vector in zip(texts, together, strict=True):
        (alone,) = embedder.sentences([text]).vectors
        assert np.abs(alone - vector).max() <= 2e-6 * np.abs(vector).max()


def test_the_same_bits_again_and_on_any_number_of_cores(model: regard.Model) -> None:
    texts = [" ".join(words) for words in itertools.permutations(["a", "river", "bank", "unexpectedly"])]
    first = model.embed(texts, threads=1, batch_tokens=31)
    for threads in (1, 2, 3):
        assert np.array_equal(model.embed(texts, threads=threads, batch_tokens=31), first)


def test_windows_embed_each_word_in_the_window_that_it_is_given_to(model: regard.Model) -> None:
    window = Windows(size=32, overlap=10)
    found = model.embed([LONGER], level="word", layer=3, window=window)
    (aligned,) = model.tokenizer.bulk.aligned([LONGER])
    starts = [p for p, w in enumerate(aligned.word_of) if p == 0 or aligned.word_of[p - 1] != w]
    vectors: dict[int, list[torch.Tensor]] = {}
    for part in window.parts(len(aligned.ids), room=30, starts=starts):
        states = model.trace(token_ids=[101, *aligned.ids[part.start : part.stop], 102]).embeddings(3)
        for piece in range(part.first, part.last):
            vectors.setdefault(aligned.word_of[piece], []).append(states[1 + piece - part.start])
    expected = torch.stack([torch.stack(vectors[word]).mean(0) for word in range(len(aligned.words))])
    assert_close_to_largest(found.vectors, expected, PARITY_FP32)
    assert found.report.windows.tolist() == [len(window.parts(len(aligned.ids), room=30, starts=starts))]


@pytest.mark.parametrize("kind", WORD_KINDS)
def test_a_word_longer_than_what_windows_share_is_of_all_its_pieces(
    model: regard.Model, kind: WordKind
) -> None:
    text = "a " + "pneumonoultramicroscopicsilicovolcanoconiosis" * 2 + " b"
    window = Windows(size=14, overlap=2)
    found = model.embed([text], level="word", layer=2, window=window, pooling=kind)
    (aligned,) = model.tokenizer.bulk.aligned([text])
    starts = [p for p, w in enumerate(aligned.word_of) if p == 0 or aligned.word_of[p - 1] != w]
    rows = []
    for part in window.parts(len(aligned.ids), room=12, starts=starts):
        states = model.trace(token_ids=[101, *aligned.ids[part.start : part.stop], 102]).embeddings(2)
        rows += [states[1 + piece - part.start] for piece in range(part.first, part.last)]
    pieces = [place for place, word in enumerate(aligned.word_of) if word == 1]
    assert len(pieces) > 24, "over more than two windows"
    expected = PIECES[kind](torch.stack([rows[place] for place in pieces]))
    assert_close_to_largest(found.vectors[1], expected, PARITY_FP32)
    assert found.texts[0] == "a"


@pytest.mark.parametrize("pooling", ["max", "weighted_mean", "mean_sqrt_len", "cls", "last"])
def test_a_long_sentence_is_pooled_window_by_window(model: regard.Model, pooling: Kind) -> None:
    """Layer 0 is the table: the same in every window, so that it is known without any."""
    ids = torch.tensor(model.tokenizer.encode(LONG).token_ids)
    assert len(ids) > 700
    expected = pool(pooling, model.loaded.network.state_dict()[TABLE][ids], [len(ids)])
    for window in (Windows(size=32, overlap=10), Windows()):
        found = model.embed(["fish", LONG], layer=0, pooling=pooling, window=window)
        assert_close_to_largest(found[1:], expected, PARITY_FP32)


def test_a_long_sentence_is_the_mean_of_all_its_tokens(model: regard.Model) -> None:
    window = Windows(size=32, overlap=10)
    (vector,) = model.embed([LONGER], pooling="mean", window=window)
    tokens = model.embed([LONGER], level="token", window=Windows(size=32, overlap=10))
    (aligned,) = model.tokenizer.bulk.aligned([LONGER])
    parts = window.parts(len(aligned.ids), room=30, starts=())
    first = model.trace(token_ids=[101, *aligned.ids[:30], 102]).embeddings(-1)[0]
    last = model.trace(token_ids=[101, *aligned.ids[parts[-1].start :], 102]).embeddings(-1)[-1]
    rows = [first]
    for part in parts:
        states = model.trace(token_ids=[101, *aligned.ids[part.start : part.stop], 102]).embeddings(-1)
        rows += list(states[1 + part.first - part.start : 1 + part.last - part.start])
    assert len(rows) - 1 == len(tokens)
    assert_close_to_largest(vector, torch.stack([*rows, last]).mean(0), PARITY_FP32)


def test_truncation_reads_the_first_tokens_and_counts_the_rest(model: regard.Model) -> None:
    found = model.embed([LONG, "fish"], window=Truncate(), pooling="mean")
    ids = model.tokenizer.encode(LONG).token_ids
    expected = model.trace(token_ids=[*ids[:255], 102]).embeddings(-1).mean(0)
    assert_close_to_largest(found[0], expected, PARITY_FP32)
    assert found.report is not None
    assert found.report.cut.tolist() == [len(ids) - 256, 0]
    assert found.report.tokens.tolist() == [len(ids), 3]
    words = model.embed([LONG], level="word", window=Truncate(20))
    assert words.texts == [LONG[a:b] for a, b in model.tokenizer.bulk.aligned([LONG])[0].words][: len(words)]
    assert words.report.without_vector.tolist() == [
        len(model.tokenizer.bulk.aligned([LONG])[0].words) - len(words)
    ]


def test_sentences_have_the_checkpoints_own_limit_and_words_the_tables(model: regard.Model) -> None:
    text = "river " * 400
    assert model.embed([text]).report.windows.tolist() == [3]  # type: ignore[union-attr]
    assert model.embed([text], level="word").report.windows.tolist() == [1]
    asked = model.embed([text], window=Windows(size=512))
    assert asked.report.windows.tolist() == [1]  # type: ignore[union-attr]


def test_texts_may_come_from_an_iterator(model: regard.Model) -> None:
    def stream() -> Iterator[str]:
        yield from TEXTS

    assert np.array_equal(model.embed(stream()), model.embed(TEXTS))
    assert model.embed(iter(())).shape == (0, 384)
    assert model.embed([], level="word", layer=[1, 2]).vectors.shape == (0, 2, 384)


def test_many_texts_are_those_of_their_portions(model: regard.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model.embed(TEXTS, level="word")
    monkeypatch.setattr("regard.api._embedding._AT_ONCE", 2)
    parts = model.embed(TEXTS, level="word")
    assert parts.texts == whole.texts
    assert parts.rows.tolist() == whole.rows.tolist()
    assert_close_to_largest(parts.vectors, whole.vectors, PARITY_FP32)
    assert parts.report.tokens.tolist() == whole.report.tokens.tolist()
    with pytest.raises(InputError, match=r"texts\[5\] is empty"):
        model.embed([*TEXTS, " "])


def test_a_part_of_the_array_has_no_report(model: regard.Model) -> None:
    found = model.embed(TEXTS)
    assert found.report is not None
    assert found[:2].report is None
    assert (found * 2).report is None


def test_smaller_vectors(model: regard.Model) -> None:
    whole = model.embed(TEXTS)
    cut = model.embed(TEXTS, truncate_dim=7, normalize=True)
    assert_close_to_largest(
        cut, whole[:, :7] / np.linalg.norm(whole[:, :7], axis=1, keepdims=True), PARITY_FP32
    )
    assert model.embed(TEXTS, storage="float16").dtype == np.float16
    codes = model.embed(TEXTS, storage="int8").astype(np.float32)
    cosines = (codes * whole).sum(1) / np.linalg.norm(codes, axis=1) / np.linalg.norm(whole, axis=1)
    assert cosines.min() > 0.9995
    bits = np.unpackbits(model.embed(TEXTS, storage="ubinary"), axis=1)
    assert np.array_equal(bits, whole > 0)
    words = model.embed(TEXTS, level="word", layer=[1, 3], storage="int8")
    assert words.scales is not None
    plain = model.embed(TEXTS, level="word", layer=[1, 3]).vectors
    assert np.abs(words.vectors * words.scales[..., None] - plain).max() <= words.scales.max()


def test_an_arrow_table_holds_everything(model: regard.Model) -> None:
    words = model.embed(TEXTS, level="word", layer=[1, 3], storage="int8")
    table = words.to_arrow()
    assert table.column_names == [
        *("row", "text", "start", "end", "unknown", "vector_1", "scale_1", "vector_3", "scale_3")
    ]
    assert table["text"].to_pylist() == words.texts
    assert np.array_equal(np.stack(table["vector_3"].to_pylist()), words.vectors[:, 1])
    single = model.embed(TEXTS, level="word").to_arrow()
    assert single.column_names == ["row", "text", "start", "end", "unknown", "vector"]
    assert single.schema.field("vector").type.list_size == 384


def test_words_that_a_token_joins_are_one_row(model: regard.Model) -> None:
    texts = ["by inter\x02national rail", "T\x10his te\x10st, . . ."]
    words = model.embed(texts, level="word")
    assert words.of(0).texts == ["by", "inter\x02national", "rail"]
    assert words.of(1).texts == ["T\x10his", "te\x10st", ",", ".", ".", "."]
    assert int(words.report.without_vector.sum()) == 0
    plain = model.embed(["by international rail", "This test, . . ."], level="word")
    assert_close_to_largest(words.vectors, plain.vectors, PARITY_FP32)
    assert [text[a:b] for text, (a, b) in zip([texts[0]] * 3, words.of(0).spans, strict=True)] == words.of(
        0
    ).texts


def test_words_unknown_to_the_model_are_counted(model: regard.Model) -> None:
    texts = ["🍕 and 🏖 here", "x" * 101, "a [UNK] bank"]
    words = model.embed(texts, level="word")
    told = [text for text, unknown in zip(words.texts, words.unknown, strict=True) if unknown]
    assert told == ["🍕", "🏖", "x" * 101]
    assert words.report.unknown.tolist() == [2, 1, 0]
    sentences = model.embed(texts)
    assert sentences.report.unknown.tolist() == [2, 1, 1]  # where nobody asks for words, a piece is a piece
    assert "3 words unknown to the model, which reads [UNK] for each" in str(words)
    assert "3 unknown" in repr(words.report)
    assert words.to_arrow()["unknown"].to_pylist() == [row["unknown"] for row in words.to_rows()]
    tokens = model.embed(texts, level="token")
    assert [text for text, unknown in zip(tokens.texts, tokens.unknown, strict=True) if unknown][:2] == told[
        :2
    ]
    again = type(words).joined([words.of(0), words.of(1), words.of(2)])
    assert again.unknown.tolist() == words.unknown.tolist()


def test_vectors_of_zeros_are_counted() -> None:
    """As they are stored: float16 has no number for the small ones, and signs may all be negative."""
    model = regard.load()
    norm = model.network.stack("encoder").layers[-1].ffn_residual.norm  # type: ignore[union-attr]
    with torch.no_grad():
        norm.weight.zero_()
        norm.bias.fill_(-1e-9)
    for storage, zero in (("float32", 0), ("float16", 1), ("int8", 0), ("ubinary", 0)):
        found = model.embed(["fish", "a bank"], normalize=False, storage=storage)  # type: ignore[arg-type]
        assert found.report is not None
        assert found.report.zero.tolist() == [zero, zero], storage
    with torch.no_grad():
        norm.bias.zero_()
    words = model.embed(["fish", "a bank"], level="word", layer=[-1, 0], normalize=True)
    assert words.report.zero.tolist() == [1, 2]
    assert "3 vectors of zeros alone, with no direction" in str(words)
    assert "3 vectors zero; pooled by mean, computed in float32" in repr(words.report)
    joined = type(words).joined([words.of(1), words.of(0)])
    assert joined.report.zero.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("options", "pooling"),
    [
        ({}, ("mean",)),
        ({"pooling": ["cls", "max"]}, ("cls", "max")),
        ({"level": "word", "pooling": "first"}, ("first",)),
        ({"level": "token"}, ()),
    ],
)
def test_the_report_says_how_vectors_were_pooled(
    model: regard.Model, options: Any, pooling: tuple[str, ...]
) -> None:
    found = model.embed(["fish"], **options)
    assert found.report.pooling == pooling
    assert ("pooled by" in str(found)) == bool(pooling)


@pytest.mark.parametrize("level", ["sentence", "word"])
def test_vectors_show_themselves(model: regard.Model, level: Any) -> None:
    found = model.embed(TEXTS * 5, level=level, layer=[2, 5], storage="int8")
    for shown in (str(found), found._repr_html_()):
        assert len(shown) < 2500
        assert f"{len(found)} vectors of 2 x 384 numbers (int8), of {5 * len(TEXTS)} texts" in shown
        assert "computed in float32, exact" in shown
        assert f"and {len(found) - 10} more" in shown
    rows, table = found.to_rows(), found.to_arrow()
    assert len(rows) == table.num_rows == len(found)
    assert list(rows[3]) == table.column_names
    assert table.column_names[-4:] == ["vector_2", "scale_2", "vector_5", "scale_5"]
    assert np.array_equal(rows[3]["vector_5"], np.asarray(table["vector_5"][3].as_py()))
    assert found.scales is not None
    assert rows[3]["scale_5"] == table["scale_5"][3].as_py() == found.scales[3, 1]
    assert "vectors of 384 numbers" in str(model.embed([], level=level))


def test_what_is_made_of_sentence_vectors_is_an_array_like_any_other(model: regard.Model) -> None:
    found = model.embed(TEXTS)
    plain = np.asarray(found)
    assert type(plain) is np.ndarray
    assert "vectors of 384 numbers" in str(found)
    assert repr(found).startswith("SentenceVectors(")
    for made, same in (
        (found[1:, :3], plain[1:, :3]),
        (found @ found.T, plain @ plain.T),
        (found * 2, plain * 2),
    ):
        assert str(made) == str(same)
        assert escape(str(same)) in made._repr_html_()
        assert made.report is made.layers is made.scales is None


def test_a_prompt_is_read_with_the_text_and_pooled_or_not(tmp_path: Path) -> None:
    source = regard.load().loaded.source.folder
    folder = shutil.copytree(source, tmp_path / "model")
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    plain, text = regard.load(folder), "a river bank"
    with_prompt = plain.embed([text], prompt_name="query")
    assert_close_to_largest(with_prompt, plain.embed(["query: " + text]), PARITY_FP32)
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling | {"include_prompt": False}))
    states = plain.trace("query: " + text).embeddings(-1)
    expected = states[3:].mean(0)  # [CLS], query, :
    found = regard.load(folder).embed([text], prompt_name="query")
    assert_close_to_largest(found[0], expected / expected.norm(), PARITY_FP32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": "phrase"}, r"level must be one of sentence, word, token; got 'phrase'"),
        ({"layer": 7}, r"layer must be a whole number, from -7 to 6; got 7"),
        ({"layer": []}, r"layer must name at least one layer"),
        ({"layer": [6, 2, -1]}, r"layer must name each layer once; got 6, 2, 6"),
        ({"pooling": "sum"}, r"pooling must be one of mean, .*; got 'sum'"),
        ({"level": "word", "pooling": "cls"}, r"pooling must be one of mean, first, last, max; got 'cls'"),
        ({"level": "token", "pooling": "mean"}, r"pooling must be None with level='token'"),
        ({"level": "word", "prompt": "a"}, r"prompt must be None with level='word'"),
        ({"pooling": []}, r"pooling must name at least one; got none"),
        (
            {"precision": "int4"},
            r"precision must be one of float32, bfloat16, int16, int8, fast; got 'int4'. Did you mean 'int",
        ),
        (
            {"storage": "binary"},
            r"storage must be one of float32, float16, int8, ubinary; .* Did you mean 'ubinary'",
        ),
        ({"window": 5}, r"window must be regard\.Windows"),
        ({"window": Windows(size=513)}, r"size must be at most 512"),
        ({"window": Windows(size=5, overlap=9)}, r"overlap must be less than the 3 pieces"),
        ({"window": Truncate(2)}, r"size must be more than the 2 tokens"),
        ({"threads": 0}, r"threads must be a whole number, at least 1"),
        ({"batch_tokens": 0}, r"batch_tokens must be a whole number"),
        ({"truncate_dim": 385}, r"truncate_dim must be from 1 to 384"),
        ({"prompt": "a", "prompt_name": "b"}, r"cannot both be given"),
        ({"prompt_name": "query"}, r"prompt_name must be a prompt of the checkpoint \(none\)"),
    ],
)
def test_what_is_refused(model: regard.Model, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.embed(TEXTS, **arguments)  # type: ignore[call-overload]


def test_steps_that_do_not_belong_to_the_model_are_refused(
    model: regard.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = SentenceSettings(steps=(Unit(), Dense(weight=torch.zeros(5, 7))))
    monkeypatch.setattr("regard.embedding._embedder.read_sentence_settings", lambda _: foreign)
    with pytest.raises(InputError, match="d_model is 384, but the Dense after the pooling does not take"):
        Embedder(model.loaded, Request())


@pytest.mark.parametrize("text", ["", "half \ud800", "\u200b"])
def test_a_text_that_cannot_be_embedded_is_named(model: regard.Model, text: str) -> None:
    with pytest.raises(InputError, match=r"texts\[1\]"):
        model.embed(["fish", text])
    with pytest.raises(InputError):
        Embedder(model.loaded, Request()).read([text])


class Frame:
    """As of pandas: iterating over it gives the names of its columns."""

    columns = ["text"]
    shape = (3, 1)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("fish", r"got str: write \[text\]"),
        (b"fish", r"got bytes: write \[text\]"),
        (3, r"got int"),
        (Frame(), r"must be one column of texts; got Frame: give one, such as table\['text'\]"),
        ({"text": ["fish"]}, r"must be one column of texts; got dict"),
        (["fish", None], r"texts\[1\] must be .*; got None: leave such rows out first, as series\.dropna"),
        (["fish", "bank", float("nan")], r"texts\[2\] must be a text, or a list of words; got nan"),
        ([[]], r"texts\[0\] must be a text, or a list of words; got list: turn it into one"),
        ([["fish", 3]], r"texts\[0\]: words\[1\] must be a text that is not blank; got 3"),
        (["fish", ["a", " "]], r"texts\[1\]: words\[1\] must be a text that is not blank; got ' '"),
        (np.array([["fish"], ["bank"]]), r"one column of texts; got ndarray: .*array\[:, 0\] of .*\(2, 1\)"),
        (np.array("fish"), r"one column of texts; got ndarray"),
        ([np.array([1, 2])], r"texts\[0\] must be a text, or a list of words; got ndarray: turn it"),
    ],
)
def test_what_is_no_list_of_texts(model: regard.Model, texts: Any, message: str) -> None:
    for level in ("sentence", "word"):
        with pytest.raises(InputError, match=message):
            model.embed(texts, level=level)  # type: ignore[call-overload]


def test_a_column_of_a_table_is_a_list_of_texts(model: regard.Model) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": TEXTS[:2]}, index=[7, 3])
    np.testing.assert_array_equal(model.embed(table["text"]), model.embed(TEXTS[:2]))
    with pytest.raises(InputError, match="got DataFrame"):
        model.embed(table)
    with pytest.raises(InputError, match=r"texts\[1\] must be a text, .*; got (nan|None)"):
        model.embed(pandas.Series(["fish", None]))


def test_what_is_settled_is_plain_json(model: regard.Model) -> None:
    settled = Embedder(model.loaded, Request(level="word", layer=Mix([1, 2]), threads=3)).settled
    assert json.loads(json.dumps(settled)) == settled
    assert settled["layers"] == [1, 2]
    assert settled["threads"] == 3


@pytest.mark.parametrize("has", [True, False])
def test_a_gpu_is_asked_for_its_own_arithmetic(monkeypatch: pytest.MonkeyPatch, has: bool) -> None:
    """Whatever the processor beside it has."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: has)
    monkeypatch.setattr(_engine_choice, "is_native", lambda dtype: not has)
    assert _engine_choice._has_bfloat16(torch.device("cuda", 1)) is has
    assert _engine_choice._has_bfloat16(torch.device("cpu")) is not has


def test_edits_that_fit_any_text_embed(model: regard.Model) -> None:
    """Many texts share a pass, each as its own trace has it."""
    mean = regard.Mean("head", layer=1, head=2, reference=model.trace(list(TEXTS[:2])))
    edited = model.edited(
        regard.Zero("weights", layer=0, head=1), regard.Scale("neuron", factor=0.5, layer=1), mean
    )
    words = edited.embed(TEXTS, level="word", layer=[1, 2])
    for number, text in enumerate(TEXTS):
        for place, layer in enumerate((1, 2)):
            _, wanted = _of_trace(edited, text, layer)
            found = torch.from_numpy(words.vectors[np.asarray(words.rows) == number][:, place])
            assert_close_to_largest(found, wanted, PARITY_FP32)
    assert not np.allclose(edited.embed(TEXTS), model.embed(TEXTS), atol=1e-3)
    assert edited.loaded.mark() != model.loaded.mark()  # by which a job and an index know their model


def test_edits_that_mean_certain_positions_are_refused(model: regard.Model) -> None:
    for edit, name in (
        (regard.Zero("weights", layer=3, key="bank"), "Zero"),
        (regard.Zero("head", layer=3, query=0), "Zero"),
        (regard.Replace("residual", value=model.trace(TEXTS[0]), layer=1), "Replace"),
    ):
        edited = model.edited(edit)
        edited.trace(TEXTS[0])
        with pytest.raises(InputError, match=rf"no edits that mean certain positions, .* text; {name}\("):
            edited.embed(TEXTS[:1], level="word")
