"""A word that no other word may look at: the edit, and what becomes of the others."""

import pytest
import torch

import regard
from regard.core.errors import InputError
from regard.tracing.pages._unseen import unseen, unseen_cosines

TEXT = "an unforgettable poem about attention"


def test_no_other_word_looks_at_it_and_the_others_move() -> None:
    model = regard.load()
    trace = model.trace(TEXT)
    tokens = list(trace.encoding.find("unforgettable"))
    assert len(tokens) > 1
    changed = model.edited(unseen(tokens)).trace(TEXT)
    others = [place for place in range(len(trace.tokens)) if place not in tokens]
    for layer in range(6):
        weights = changed.weights(layer)
        assert weights[:, others][:, :, tokens].max() == 0
        torch.testing.assert_close(weights.sum(dim=2), torch.ones(weights.shape[:2]))
        assert weights[:, tokens][:, :, tokens].max() > 0  # its pieces see each other
    found = unseen_cosines(trace, tokens[-1])
    wanted = torch.cosine_similarity(trace.embeddings(), changed.embeddings())
    torch.testing.assert_close(found.float(), wanted)
    assert found[others].min() < 0.98
    with pytest.raises(InputError, match="unseen must be tokens of the text, from 0 to"):
        model.edited(unseen([99])).trace(TEXT)
