"""Texts that run together: their traces are those of each text alone."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers

import lens_models
import regard
from regard.foreign import lens
from regard.models import Loaded
from regard.positions import DynamicNTKScaling, LongRoPEScaling, Rotary, RotaryScaling
from regard.text import Tokenizer
from regard.tracing import KeepPolicy, Trace, kept_bytes, trace_text, trace_texts
from tolerances import PARITY_FP32, assert_close_to_largest
from unit.models import folders, tiny

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8", "w3 w2 w1", "w9 w8 w7 w6", "w1 w1", "w2"]


def model_of(family: str, folder: Path) -> Loaded:
    folders.write_tokenizer(folder, 31)
    if family.startswith("lens "):
        backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lens(lens_models.FAMILIES[family.removeprefix("lens ")](), backend)
    words = Tokenizer.from_folder(folder, tokenizer_class="BertTokenizer")
    return tiny.loaded(folders.network(family).float(), tokenizer=words, family=family)


@pytest.mark.parametrize("family", [*folders.TRACED, "lens bert", "lens gemma2", "lens gpt2", "lens t5"])
def test_a_trace_is_that_of_the_text_alone(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(family, tmp_path)
    passes: list[int] = []
    run = model.network.forward

    def counted(token_ids: torch.Tensor, **arguments: Any) -> Any:
        passes.append(len(token_ids))
        return run(token_ids, **arguments)

    some = (
        [KeepPolicy(keep="qk", dtype=torch.float64)] if family in ("bert", "llama", "bart", "lens t5") else []
    )
    for keeping in (KeepPolicy(), *some):
        alone = [trace_text(model, text, keeping=keeping) for text in TEXTS]
        with monkeypatch.context() as patched:
            patched.setattr(model.network, "forward", counted)
            passes.clear()
            together = trace_texts(model, TEXTS, keeping=keeping)
        assert sum(passes) == len(TEXTS)
        assert (len(passes) == len(TEXTS)) == (family == "deberta-v2")
        for one, other in zip(alone, together, strict=True):
            assert one.tokens == other.tokens
            # Alone, the values of a recurrent network are its annotations, in the same memory.
            assert kept_bytes(other) == kept_bytes(one) or family == "bahdanau"
            same(one, other)
            for kind in one.kinds:
                for layer in one.layers_of(kind):
                    same_attention(one, other, layer, kind)


@pytest.mark.parametrize(
    "scaling",
    [DynamicNTKScaling(3.0, 2), LongRoPEScaling((1.0,) * 5, (2.0, 3.0, 5.0, 7.0, 11.0), 2, 3.0)],
    ids=["dynamic", "longrope"],
)
def test_texts_that_are_turned_by_their_length_run_with_none_of_another(
    scaling: RotaryScaling, tmp_path: Path
) -> None:
    folders.write_tokenizer(tmp_path, 31)
    network = folders.network("llama", rotary=Rotary(10, base=100.0, scaling=scaling)).float()
    model = tiny.loaded(
        network, tokenizer=Tokenizer.from_folder(tmp_path, tokenizer_class="BertTokenizer"), family="llama"
    )
    for one, other in zip(
        (trace_text(model, text) for text in TEXTS), trace_texts(model, TEXTS), strict=True
    ):
        for layer in one.layers_of("decoder"):
            same_attention(one, other, layer, "decoder")


def same(one: Trace, other: Trace) -> None:
    for kind in one.kinds:
        if kind != "cross" and one.stack(kind).keeping.hidden and one.stack(kind).hidden:
            for layer in (0, "input", 1, -1):
                assert_close_to_largest(
                    other.embeddings(layer, kind=kind), one.embeddings(layer, kind=kind), PARITY_FP32
                )


def same_attention(one: Trace, other: Trace, layer: int, kind: Any) -> None:
    assert_close_to_largest(other.weights(layer, kind=kind), one.weights(layer, kind=kind), PARITY_FP32)
    mask, theirs = (each.attention_of(layer, kind).inputs.mask for each in (other, one))
    assert type(mask) is type(theirs)
    if one.source.keeping.values:
        assert_close_to_largest(other.context(layer, kind=kind), one.context(layer, kind=kind), PARITY_FP32)
        assert_close_to_largest(other.v(layer, kind=kind), one.v(layer, kind=kind), PARITY_FP32)


def test_any_sequence_of_texts_and_nothing_else(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model = regard.Model(model_of("bert", tmp_path))
    for texts in (TEXTS, tuple(TEXTS), pandas.Series(TEXTS, index=range(7, 0, -1)), iter(TEXTS)):
        assert [trace.encoding.texts for trace in model.trace(texts)] == [(text,) for text in TEXTS]
    assert model.trace([]) == []
    with pytest.raises(regard.InputError, match=r"text 2 of 3: text is empty"):
        model.trace(["w1", "", "w2"])
    for odd in ([1, 2, 3], ["w1", None], 7, b"w1"):
        with pytest.raises(regard.InputError, match=r"text.* must be .*; got .*token_ids="):
            model.trace(odd)
    with pytest.raises(regard.InputError, match="pair and target must be None with several texts"):
        model.trace(["w1"], "w2")


def test_edits_keep_to_their_text(tmp_path: Path) -> None:
    model = regard.Model(model_of("bert", tmp_path)).edited(regard.Zero("weights", layer=0, key="w1"))
    first, second = model.trace(["w1 w2 w3", "w3 w2 w1"])
    assert float(first.weights(0, key="w1").abs().max()) == float(second.weights(0, key="w1").max()) == 0


def test_a_model_that_takes_one_text_at_a_time(tmp_path: Path) -> None:
    folders.write_tokenizer(tmp_path, 31)
    sizes = {"vocab_size": 31, "n_embd": 12, "n_layer": 1, "n_head": 2, "n_positions": 19}
    config = transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=1)
    config.pad_token_id = None
    classifier = lens_models.build(transformers.GPT2ForSequenceClassification, config)
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [len(each.tokens) for each in trace_texts(lens(classifier, backend), ["w1 w2", "w3 w4"])] == [2, 2]
