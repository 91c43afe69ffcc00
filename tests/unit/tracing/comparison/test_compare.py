"""One word between texts: the cosine at every layer, worked out by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.core.errors import InputError
from regard.models import Loaded, family_of
from regard.models.families.electra import ElectraConfig
from regard.tracing import Trace, compare, trace_text
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.models import tiny
from unit.tracing.conftest import make_loaded, make_tokenizer

TEXTS = ["the fishing bank", "bank by the river .", "money bank ."]


@pytest.fixture
def traces(loaded: Loaded) -> list[Trace]:
    return [trace_text(loaded, text) for text in TEXTS]


def test_a_text_with_itself_is_one_and_no_more(loaded: Loaded) -> None:
    trace = trace_text(loaded, "the bank by the river")
    similarity = compare([trace, trace, trace], "bank").similarity
    assert similarity.max() <= 1.0
    assert similarity.min() > 1 - 1e-12


def test_is_the_cosine_at_every_layer(traces: list[Trace]) -> None:
    comparison = compare(traces, "bank")
    assert (comparison.model, comparison.texts, comparison.words) == ("tiny", tuple(TEXTS), ("bank",) * 3)
    assert comparison.similarity.shape == (3, 3, 3)
    for layer in range(3):
        vectors = [
            trace.embeddings(layer)[row].double().numpy()
            for trace, row in zip(traces, (4, 1, 2), strict=True)
        ]
        cosines = [[a @ b / np.sqrt(a @ a * (b @ b)) for b in vectors] for a in vectors]
        assert_close_to_largest(comparison.similarity[layer], cosines, FP32_OF_LARGEST)
    assert comparison.similarity[0] == pytest.approx(1.0)
    assert comparison.similarity[2, 0, 1] < 0.999


def test_a_word_for_each_text(traces: list[Trace]) -> None:
    comparison = compare(traces, ["fishing", "river", "."])
    assert comparison.words == ("fishing", "river", ".")
    fishing, river = traces[0].embeddings(0)[[2, 3]].mean(0), traces[1].embeddings(0)[4]
    expected = torch.cosine_similarity(fishing.double(), river.double(), dim=0)
    assert comparison.similarity[0, 0, 1] == pytest.approx(float(expected), rel=FP32_OF_LARGEST)


def test_one_text_twice(traces: list[Trace]) -> None:
    assert compare([traces[0], traces[0]], "bank").similarity == pytest.approx(1.0)


def test_a_pair_is_one_text(loaded: Loaded, traces: list[Trace]) -> None:
    pair = trace_text(loaded, "the bank", "the river")
    assert compare([pair, traces[0]], "bank").texts == ("the bank | the river", TEXTS[0])


def test_a_zero_vector_has_no_direction(traces: list[Trace]) -> None:
    passage = traces[0].source
    assert passage.learned is not None
    still = replace(traces[0], encoder=replace(passage, learned=torch.zeros_like(passage.learned)))
    comparison = compare([still, traces[1]], "bank")
    assert np.isnan(comparison.similarity[0, 0, 1])
    assert np.isfinite(comparison.similarity[1:]).all()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda traces: compare(traces, "river"),
            '^text 1: "river" is not a word of the text; the words are "the", "fishing"',
        ),
        (lambda traces: compare(traces, ["bank", "bank"]), "one, or one for each of the 3 texts; got 2"),
        (lambda traces: compare(traces[:1], "bank"), r"texts must be two or more, .*; got 1"),
        (
            lambda traces: compare([traces[0], trace_text(make_loaded("other"), "the bank")], "bank"),
            "traces must come from one model; got other, tiny",
        ),
    ],
)
def test_what_does_not_fit(traces: list[Trace], ask: Callable[[list[Trace]], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(traces)


def test_learned_embeddings_of_another_width(tmp_path: Path) -> None:
    """ELECTRA's table is narrower than its layers."""
    network = (
        family_of("electra")
        .build(
            ElectraConfig(
                vocab_size=23, d_model=15, d_embedding=7, num_layers=2, num_heads=3, d_ff=11, max_seq_len=19
            )
        )
        .eval()
    )
    loaded = tiny.loaded(network, tokenizer=make_tokenizer(), family="electra")
    found = compare([trace_text(loaded, text) for text in TEXTS], "bank").similarity
    assert found.shape == (3, 3, 3)
    assert_close_to_largest(found[0], np.ones((3, 3)), FP32_OF_LARGEST)
