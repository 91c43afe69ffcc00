"""The logit lens: what the model would say if it stopped after each layer."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.tracing.measures._needed import hidden_of
from regard.tracing.measures._readout import check_head, logits_of_layers, outermost
from regard.tracing.record import Selector, Trace, chosen_of


@dataclass(frozen=True, kw_only=True, eq=False)
class LogitLens:
    """The best tokens at each layer and position.

    Args:
        positions: which tokens of the text, P of them.
        tokens: what they are.
        ids: int64 (L + 1, P, k), the best tokens, best first; row 0 is of what layer 0 reads, row L of what
            the model says.
        logits: float32 (L + 1, P, k), their logits.
        log_probabilities: float32 (L + 1, P, k), their logarithms after the softmax over the vocabulary.
        pieces: the same ids as the vocabulary writes them; ids as text where there is no tokenizer.
    """

    positions: tuple[int, ...]
    tokens: tuple[str, ...]
    ids: Tensor
    logits: Tensor
    log_probabilities: Tensor
    pieces: tuple[tuple[tuple[str, ...], ...], ...]

    def __repr__(self) -> str:
        layers, positions, k = self.ids.shape
        return f"LogitLens({layers} layers x {positions} positions, the best {k})"


def logit_lens(trace: Trace, token: Selector | None = None, *, k: int = 5) -> LogitLens:
    """Apply the last norm and the head to the hidden state after every layer.

        logits_l = head(norm(x_l)),  l = 0 .. L;  logits_L are the model's own

    On regard's own models norm and head run alone; through the lens the whole model runs once a layer, with
    x_l in the place of what its last layer hands on.

    Args:
        token: which positions, of the decoder where there is one: an index, a slice or a word; None: all.
        k: how many of the best tokens.

    Returns:
        See `LogitLens`.

    Raises:
        InputError: no head over the vocabulary, no hidden states, a token that is not there, or a k that is
            not from 1 to the size of the vocabulary.

    Example:
        >>> import torch
        >>> import regard
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=31, n_embd=6, n_layer=2, n_head=3, n_positions=17)
        >>> trace = regard.lens(GPT2LMHeadModel(config).eval()).trace(token_ids=[3, 1, 4])
        >>> trace.logit_lens(-1, k=2)
        LogitLens(3 layers x 1 positions, the best 2)

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens", LessWrong.
    """
    loaded = trace.require_model()
    kind = outermost(loaded.network.plain)
    check_head(trace)
    passage = trace.passage(kind)
    rows = chosen_of("token", passage.encoding, token)
    ids, logits, logs = [], [], []
    for layer in logits_of_layers(trace, range(len(hidden_of(trace, kind))), rows):
        if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= layer.shape[1]:
            raise InputError(f"k must be from 1 to {layer.shape[1]}, the tokens there are; got {k!r}.")
        wide = layer.float() if layer.dtype.itemsize < 4 else layer
        best = wide.topk(k, dim=1)
        ids.append(best.indices.cpu())
        logits.append(best.values.float().cpu())
        logs.append((best.values - wide.logsumexp(dim=1, keepdim=True)).float().cpu())
    tokenizer = loaded.tokenizer

    def written(number: int) -> str:
        return (None if tokenizer is None else tokenizer.piece_of(number)) or str(number)

    found = torch.stack(ids)
    return LogitLens(
        positions=rows,
        tokens=tuple(passage.tokens[row] for row in rows),
        ids=found,
        logits=torch.stack(logits),
        log_probabilities=torch.stack(logs),
        pieces=tuple(
            tuple(tuple(written(number) for number in place) for place in layer) for layer in found.tolist()
        ),
    )
