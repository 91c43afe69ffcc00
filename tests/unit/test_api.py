"""`regard.Model`: where all capabilities meet, on the default model."""

import inspect
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

import regard
from integration.live_models import live_model
from regard import training
from regard.api import _embedding
from regard.api._embedding import OfSentences, OfWords
from regard.concordance import build_index
from regard.core.errors import InputError, RegardError
from regard.data import Rows
from regard.embedding import Request
from regard.models import write_checkpoint
from regard.text import write_tokenizer
from regard.tracing.pages._page import page_record
from regard.words import WordVectors
from tolerances import PARITY_FP32, assert_close_to_largest

TEXTS = ["a river bank", "fish", "time flies like an arrow"] * 7
FISHING = "Write a poem about a man fishing on a river bank."
MONEY = "Write a poem about a man withdrawing money from a bank."


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> regard.Model:
    """A GPT-2 whose tokens are bytes, and a few words."""
    return live_model(tmp_path_factory.mktemp("of-bytes") / "model", "gpt2")


def test_what_is_no_path_is_an_error_that_names_the_argument(of_bytes: regard.Model) -> None:
    trace, settings = of_bytes.trace("a thing"), training.read_settings("clm", data={"train": ["a.txt"]})
    vectors = WordVectors(words=["a"], vectors=torch.zeros(1, 2).numpy())
    wrong: Any = 3
    for name, call in {
        "path": [
            *(regard.Concordance, regard.Trace.open, trace.save, trace.write_page),
            *(trace.table(0, 0).write, WordVectors.open, vectors.save),
        ],
        "folders": [lambda path: training.curves([path])],
        "paths": [lambda path: Rows([path], ("text",))],
        "corpus": [lambda path: build_index([path], "index")],
        "run": [training.film],
        "model": [lambda path: training.score(path, [__file__])],
        "name": [regard.load],
        "file": [lambda path: training.read_settings("clm", file=path)],
        "folder": [
            of_bytes.save,
            lambda path: training.train(settings, path),
            lambda path: write_checkpoint(of_bytes.network, path),
            lambda path: write_tokenizer(of_bytes.tokenizer, path),
            lambda path: build_index([__file__], path),
        ],
    }.items():
        for each in call:
            with pytest.raises(InputError, match=f"^{name} must be a string or a path; got int"):
                each(wrong)


@pytest.mark.parametrize("paths", [3, "ab"])
def test_one_path_where_several_are_asked_for(paths: Any) -> None:
    for call in (
        training.curves,
        lambda given: build_index(given, "x"),
        lambda given: training.score("m", given),
    ):
        with pytest.raises(InputError, match=r"such as a list; got one: write \["):
            call(paths)


def test_no_result_shows_the_alphabet_of_bytes(of_bytes: regard.Model) -> None:
    trace, read = of_bytes.trace("the  thing\n\t日 of"), of_bytes.tokenizer.shown
    lens, rank, explained = trace.logit_lens(k=20), trace.logit_lens(of="Ġ"), trace.explain(-1)
    tables = [trace.table(0, 0), trace.table(0, 0, query=-1), trace.ablation(0, 0), trace.heads()[0, 0]]
    for result in (lens, rank, explained, *tables):
        assert not {*"ĠĊĉæ"} & {*str(result)}, result
        for row in result.to_rows():
            names = {name: value for name, value in row.items() if not name.endswith("piece")}
            assert not {*"ĠĊĉæ"} & {*repr(names)}, names
    tokens = tuple(map(read, trace.token_ids))
    assert tokens[:3] == ("the", "␣", "␣")
    assert lens.tokens == rank.tokens == explained.tokens == trace.statistics().tokens == tokens
    pieces = tuple(trace.tokens)
    assert lens.token_pieces == rank.token_pieces == explained.token_pieces == explained.key_pieces == pieces
    for row in lens.to_rows():
        assert (row["shown"], row["piece"]) == (read(row["id"]), of_bytes.tokenizer.piece_of(row["id"]))
        assert row["token_piece"] == trace.tokens[row["position"]]


def test_no_text_that_is_written_shows_the_alphabet_of_bytes(of_bytes: regard.Model) -> None:
    watched = of_bytes.generate("the  thing\n日", trace=True, max_length=12)
    told = [text for step in watched.steps for text in (step.text, *(each.text for each in step.likeliest))]
    assert not {*"ĠĊĉæ"} & {*"".join(told)}
    assert any(text.startswith("<0x") for text in told)
    record = page_record(of_bytes.trace("the  thing\n日"), story=True)
    ending = record.story["decoder"].ending
    assert ending is not None
    assert [each["text"] for each in ending["next"]] != []
    assert not {*"ĠĊĉæ"} & {*"".join(each["text"] for each in ending["next"])}
    read = [token.bytes for token in record.decoder.tokens if token.surface == "日"]
    assert read == ["<0xE6>", "<0x97>", "<0xA5>"]


def test_describes_itself(model: regard.Model) -> None:
    facts = model.describe()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    wanted = {
        "name": "sentence-transformers/all-MiniLM-L6-v2",
        "family": "bert",
        "num_layers": 6,
        "num_heads": 12,
        "d_model": 384,
        "vocab_size": 30522,
        "max_seq_len": 512,
        "parameters": 22713216,
        "dtype": "float32",
        "found_in": "package",
        "use_pooler": True,
        "left_out": [],
    }
    assert {key: facts[key] for key in wanted} == wanted
    assert repr(model).startswith("Model('sentence-transformers/all-MiniLM-L6-v2', bert, 6 layers x 12 heads")


def test_calling_it_calls_the_network(model: regard.Model) -> None:
    ids = torch.tensor([[101, 2924, 102], [101, 102, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    with torch.no_grad():
        both = model(ids, mask=mask).last_hidden_state
        alone = model(ids[1:, :2]).last_hidden_state
    assert_close_to_largest(both[1, :2], alone[0], PARITY_FP32)


def test_a_list_of_texts_gives_a_list_of_traces(model: regard.Model) -> None:
    traces = model.trace([FISHING, MONEY])
    assert [trace.encoding.texts for trace in traces] == [(FISHING,), (MONEY,)]
    assert model.trace(()) == []


def test_a_pair(model: regard.Model) -> None:
    trace = model.trace("a bank", "a river")
    assert trace.tokens == ["[CLS]", "a", "bank", "[SEP]", "a", "river", "[SEP]"]


def test_the_documents_ids(model: regard.Model) -> None:
    assert model.trace("time flies like an arrow").token_ids[1:-1] == [2051, 10029, 2066, 2019, 8612]


def test_compares_a_word_between_texts(model: regard.Model) -> None:
    comparison = model.compare([FISHING, MONEY], "bank")
    assert comparison.similarity[:, 0, 1].round(3).tolist() == pytest.approx(
        [1.0, 0.896, 0.897, 0.896, 0.903, 0.913, 0.847], abs=0.0011
    )
    assert comparison.similarity[0, 0, 1] == pytest.approx(1.0, abs=1e-12)


def test_token_ids_in_place_of_a_text(model: regard.Model) -> None:
    trace = model.trace(FISHING)
    of_ids = model.trace(token_ids=trace.token_ids)
    assert of_ids.tokens == trace.tokens
    assert torch.equal(of_ids.weights(3, 5), trace.weights(3, 5))
    for arguments in ({}, {"text": FISHING, "token_ids": [1]}):
        with pytest.raises(InputError, match="text or token_ids must be given, and not both; got "):
            model.trace(**arguments)  # type: ignore[call-overload]
    for name in ("pair", "target"):
        with pytest.raises(InputError, match="must be None with token_ids"):
            model.trace(token_ids=[1], **{name: MONEY})  # type: ignore[call-overload]
    for ids in ([1, 2], torch.tensor([1, 2])):
        with pytest.raises(InputError, match=r"text.* must be .*; got .*trace\(token_ids=\.\.\.\)"):
            model.trace(ids)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="target_ids must be None with a text"):
        model.trace(FISHING, target_ids=[1])  # type: ignore[call-overload]
    with pytest.raises(InputError, match="target must be None: this model has no decoder"):
        model.trace(FISHING, target=MONEY)


def test_embed_shows_and_types_the_fields_of_a_request(model: regard.Model) -> None:
    fields = inspect.signature(Request).parameters
    shown = inspect.signature(model.embed).parameters
    assert list(shown) == ["texts", *fields, "progress"]
    typed = {*OfSentences.__annotations__} | {*OfWords.__annotations__}
    assert typed == {*fields, "progress"} - {"level"}
    with pytest.raises(InputError, match=r"truncat_dim is not a setting; did you mean truncate_dim"):
        model.embed(["a"], truncat_dim=3)  # type: ignore[call-overload]


def test_parity(model: regard.Model) -> None:
    for parity in (model.parity(), model.trace(FISHING).parity()):
        assert [(each.kind, each.layer) for each in parity.layers] == [("encoder", i) for i in range(6)]
        assert 0.0 < parity.largest <= parity.bound
        parity.check("the default model")


def test_parity_notices_a_context_that_is_not_the_model_s(model: regard.Model) -> None:
    trace = model.trace(FISHING)
    layers = trace.attention()
    other = replace(layers[2], context=layers[2].context.roll(1, dims=0))  # each head has its neighbour's
    wrong = replace(
        trace, encoder=replace(trace.source, attention=(*layers[:2], other, *layers[3:]))
    ).parity()
    assert [each.context > wrong.bound for each in wrong.layers] == [False, False, True, False, False, False]
    with pytest.raises(RegardError, match=r"tiny: encoder attention layer 2: weights x values differ"):
        wrong.check("tiny")


def test_the_lens_is_the_same_model(model: regard.Model) -> None:
    hf_model = transformers.BertModel.from_pretrained(model.loaded.source.folder).eval()
    seen = regard.lens(hf_model, model.tokenizer, name="seen")
    assert (seen.name, seen.loaded.family, seen.parity().output) == ("seen", "bert", 0.0)
    assert repr(seen) == "Model('seen', bert through the lens, 6 layers x 12 heads, d_model 384)"
    ours, theirs = model.trace(FISHING), seen.trace(FISHING)
    assert theirs.tokens == ours.tokens
    for layer in range(6):
        assert (theirs.weights(layer) - ours.weights(layer)).abs().max().item() <= PARITY_FP32
        assert_close_to_largest(theirs.embedding("bank", layer), ours.embedding("bank", layer), PARITY_FP32)
    facts = seen.describe()
    assert (facts["found_in"], facts["positions"]) == ("transformers", "as its own code has it")


@pytest.mark.parametrize("level", ["sentence", "word"])
def test_progress_is_told_of_all_texts(
    model: regard.Model, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setattr(_embedding, "_AT_ONCE", 8)
    of_list: list[tuple[int, int]] = []
    model.embed(TEXTS, level=level, progress=lambda *each: of_list.append(each), threads=2)  # type: ignore[call-overload]
    assert {total for _, total in of_list} == {21}
    assert [done for done, _ in of_list] == sorted(done for done, _ in of_list)
    assert {8, 16, 21} <= {done for done, _ in of_list}
    of_iterator: list[tuple[int, int]] = []
    model.embed(iter(TEXTS), level=level, progress=lambda *each: of_iterator.append(each))  # type: ignore[call-overload]
    assert {total for _, total in of_iterator} == {8, 16, 21}
    assert of_iterator[-1] == (21, 21)


def test_a_text_in_windows_counts_once(model: regard.Model) -> None:
    seen: list[int] = []
    long = " ".join(["bank"] * 90)
    window = regard.Windows(size=16, overlap=4)
    model.embed(
        [long, "fish"], window=window, batch_tokens=16, threads=1, progress=lambda done, _: seen.append(done)
    )
    assert seen[0] == 0
    assert seen[-1] == 2
    assert max(seen) == 2


def test_what_cannot_be_called_is_refused(model: regard.Model) -> None:
    with pytest.raises(InputError, match="progress must be a function"):
        model.embed(TEXTS, progress=3)  # type: ignore[call-overload]
