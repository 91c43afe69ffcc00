"""How two traces differ, against loops over whole matrices."""

import numpy as np
import pytest
import torch

from regard.core.errors import InputError
from regard.tracing import difference, difference_page, divergence, trace_text
from tolerances import WEIGHTS
from unit.tracing.conftest import HEADS, LAYERS, make_loaded


def test_of_two_checkpoints_every_weight_is_compared() -> None:
    one, other = (trace_text(make_loaded(name), "the fishing bank") for name in ("one", "another"))
    found = difference(one, other)
    assert (found.between, found.names, found.likeness, found.left_out) == (
        "models",
        ("one", "another"),
        None,
        {},
    )
    each = found.kinds["encoder"]
    assert each.queries == each.keys == tuple((i, i) for i in range(6))
    np.testing.assert_array_equal(each.divergence, divergence(one, other).heads.numpy())
    for layer in range(LAYERS):
        for head in range(HEADS):
            apart = other.weights(layer, head).double() - one.weights(layer, head).double()
            assert each.most[layer, head] == pytest.approx(apart.abs().max().item(), abs=WEIGHTS)
            assert each.most[layer, head] > 1e-4


def test_of_two_texts_partners_are_compared_and_words_are_likened() -> None:
    loaded = make_loaded()
    one, other = trace_text(loaded, "the fishing bank by the river"), trace_text(loaded, "the money bank .")
    found = difference(one, other)
    assert found.between == "texts"
    assert found.names == ("the fishing bank by the river", "the money bank .")
    each = found.kinds["encoder"]
    assert each.queries == ((0, 0), (1, 1), (4, 3), (8, 5))  # [CLS] the bank [SEP]
    places = [torch.tensor(side) for side in zip(*each.queries, strict=True)]
    for layer in range(LAYERS):
        ours = one.weights(layer)[:, places[0]][..., places[0]].double()
        theirs = other.weights(layer)[:, places[1]][..., places[1]].double()
        wanted = (theirs - ours).abs().amax(dim=(1, 2)).numpy()
        np.testing.assert_allclose(each.most[layer], wanted, rtol=0, atol=WEIGHTS)
    likeness = found.likeness
    assert likeness is not None
    assert likeness.words == ("the", "bank")
    assert likeness.places == (1, 4)
    assert likeness.layers == ("0 learned", "1", "2 contextual")
    for row, (a, b) in zip(likeness.cosines, ((1, 1), (4, 3)), strict=True):
        for layer in range(LAYERS + 1):
            x, y = one.embeddings(layer)[a].double(), other.embeddings(layer)[b].double()
            assert row[layer] == pytest.approx(float(x @ y / (x.norm() * y.norm())), abs=WEIGHTS)


def test_a_word_of_several_pieces_counts_where_all_of_them_are_partners() -> None:
    loaded = make_loaded()
    whole = difference(trace_text(loaded, "fishing by the bank"), trace_text(loaded, "the fishing money"))
    assert whole.likeness is not None
    assert whole.likeness.words == ("fishing",)
    part = difference(trace_text(loaded, "fishing by"), trace_text(loaded, "fish by"))
    assert part.likeness is not None
    assert part.likeness.words == ("by",)


def test_what_is_not_there_is_named() -> None:
    loaded = make_loaded()
    one, other = (trace_text(loaded, text) for text in ("fishing", "fish"))
    found = difference(one, other)
    assert found.likeness is None
    assert "no word is the same in both" in found.left_out["likeness of words"]
    with pytest.raises(InputError, match="tokens in common"):
        difference(one, trace_text(loaded, "money"))
    with pytest.raises(InputError, match="the same layers"):
        difference_page(one, trace_text(make_loaded(num_layers=3), "fishing"))
