"""What is said of models before training: numbers beside what to hold them against, and no claim."""

import math
import re
from itertools import combinations

import numpy as np
import pytest
import torch

import regard
from regard.tracing import Trace, compare
from regard.tracing.comparison import words_alike
from tolerances import FP32_OF_LARGEST
from unit.models.untrained import FAMILIES, SENTENCES, untrained

SIZES = {"small": (48, 6), "base": (768, 12)}


@pytest.fixture(
    scope="module", params=[(family, size) for family in FAMILIES for size in SIZES], ids="-".join
)
def models(request: pytest.FixtureRequest) -> list[regard.Model]:
    family, size = request.param
    d_model, num_heads = SIZES[size]
    return [untrained(family, seed, d_model=d_model, num_heads=num_heads) for seed in range(2)]


def test_no_head_has_a_name(models: list[regard.Model]) -> None:
    for model in models:
        # Resampled by query, and of twelve texts by text.
        for texts, layer in (([SENTENCES[0]], None), (SENTENCES * 3, 1)):
            table = model.heads(texts, layer=layer, resamples=100)
            assert table.counts() == {"none": len(table)}
            # Nor is anything said to come next.
            rows = [line.split() for line in str(table).splitlines() if re.match(r" *\d+ +-", line)]
            assert [row[1:] for row in rows] == [["-"]] * len(table)


def _cosines_by_hand(trace: Trace, layer: int) -> list[float]:
    """Of all pairs of different words, one by one."""
    words = [each for each in trace.encoding.words if each.text != "."]
    vectors = [(each.text.lower(), trace.embedding(each.span, layer).double()) for each in words]
    return [
        float(torch.cosine_similarity(one, other, dim=0))
        for (name, one), (another, other) in combinations(vectors, 2)
        if name != another
    ]


def test_a_word_between_texts_stands_beside_other_words(models: list[regard.Model]) -> None:
    for model in models:
        traces = model.trace([SENTENCES[1], "a bank does not fit into a river"])
        found = compare(traces, "bank")
        for layer in (0, 2, -1):
            cosines = [each for trace in traces for each in _cosines_by_hand(trace, layer)]
            assert found.others[layer] == pytest.approx(np.mean(cosines), abs=10 * FP32_OF_LARGEST)
        by, apart = 1 - found.similarity[-1, 0, 1], 1 - found.others[-1]
        hardly = "hardly moves, by" if by < 0.05 * apart else "moves by"
        said = (
            f"The word {hardly} {by:.2f} (1 - cosine); two different words of one text are {apart:.2f} apart"
        )
        assert " ".join(str(found).split()).endswith(f"{said} (others).")


def test_punctuation_is_no_word_and_a_word_in_another_case_no_other_one() -> None:
    model = untrained("bert", 0)
    assert math.isnan(words_alike([model.trace("bank bank Bank .")]))
    assert not math.isnan(words_alike([model.trace("bank river .")]))
