"""A word that no other word may look at: what becomes of the others."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.tracing.edits import Edit, Write, edited
from regard.tracing.record import KeepPolicy, Trace
from regard.tracing.run import TraceOfRun


def unseen(tokens: Sequence[int]) -> Edit:
    """No other token may look at these, in any head: they see themselves and each other, as before."""

    def function(scores: Tensor) -> Tensor:
        if not all(0 <= token < scores.shape[-1] for token in tokens):
            raise InputError(f"unseen must be tokens of the text, from 0 to {scores.shape[-1] - 1}.")
        others = [row for row in range(scores.shape[-2]) if row not in tokens]
        scores[..., torch.tensor(others, dtype=torch.long)[:, None], torch.tensor(tokens)] = -torch.inf
        return scores

    return Write("scores", function)


def unseen_cosines(trace: Trace, token: int) -> Tensor:
    """The cosine of each contextual embedding to what it is where no other looks at the word of a token."""
    encoding = trace.stack(None).encoding
    word = encoding.tokens[token].word
    tokens = [
        place
        for place, each in enumerate(encoding.tokens)
        if place == token or (word is not None and each.word == word)
    ]
    loaded = edited(trace.require_model(), [unseen(tokens)])
    other = TraceOfRun.of_encoding(loaded, encoding, keeping=KeepPolicy(keep="residual"))
    return torch.cosine_similarity(trace.embeddings().double(), other.embeddings().double(), dim=1)
