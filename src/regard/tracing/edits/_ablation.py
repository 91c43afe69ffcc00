"""The causal check: the same run without one head, or with a word that no other may look at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.wording import excerpt
from regard.models import Kind, Loaded, Output
from regard.text import Encoding
from regard.tracing.edits._changes import Write, Zero
from regard.tracing.edits._edit import Edit
from regard.tracing.edits._network import edited, outputs_of
from regard.tracing.record import KeepPolicy, Trace
from regard.tracing.run import TraceOfRun

if TYPE_CHECKING:
    from rich.console import RenderableType

# Logits of a longer text are not worked out: twice as many numbers are held.
_MOST_LOGITS = 1 << 26


@dataclass(frozen=True, kw_only=True, slots=True)
class LikeliestToken:
    """What a language model gives the largest probability after a token: its text, and the probability."""

    token: str
    probability: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ablation(Displayable):
    """How a model's output moves when one head's output is zero.

    Args:
        kind, layer, head: the head.
        tokens: whose outputs these are: of a model with two stacks, the decoder's.
        moved: float32 (tokens,), |h' - h| / |h| of the last hidden states h, with the head, and h', without.
        cosine: float32 (tokens,), the cosine of h and h'.
        before, after: the likeliest token after each token, with the head and without it; None where the
            model gives no logits of a vocabulary, or too many to hold.
    """

    kind: "Kind"
    layer: int
    head: int
    tokens: tuple[str, ...]
    moved: Tensor
    cosine: Tensor
    before: tuple[LikeliestToken, ...] | None
    after: tuple[LikeliestToken, ...] | None

    def __repr__(self) -> str:
        token = self.tokens[int(self.moved.argmax())]
        return (
            f"Ablation({self.kind} {self.layer}.{self.head}: {token!r} moves most, by {self.moved.max():.3f})"
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a token: how far its output moves, the cosine, and the likeliest tokens after it."""
        rows: list[dict[str, Any]] = [
            {"token": token, "moved": moved, "cosine": cosine}
            for token, moved, cosine in zip(
                self.tokens, self.moved.tolist(), self.cosine.tolist(), strict=True
            )
        ]
        if self.before is None or self.after is None:
            return rows
        tops = zip(self.before, self.after, strict=True)
        both = [{"before": one.token, "after": other.token} for one, other in tops]
        return [row | tokens for row, tokens in zip(rows, both, strict=True)]

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        head = f"Without head {self.layer}.{self.head} ({self.kind})"
        yield Text(f"{head}: |h' - h| / |h| of each token's output h", style="dim")
        yield ""
        most = max(float(self.moved.max()), 1e-9)
        cells = [
            [excerpt(row["token"], 24), f"{row['moved']:.3f}", "█" * round(40 * row["moved"] / most)]
            for row in self.to_rows()
        ]
        yield plain_table(["token", "moved", ""], cells, bar=True)


def ablation(self: Trace, layer: int, head: int, *, kind: "Kind | None" = None) -> Ablation:
    """Measure how far the output moves without one head (its output set to zero, as by `Zero("head")`).

    A weight says where a head looks; whether the model needs it is another question. The model runs twice on
    the trace's tokens, and is left as it is.

    Args:
        layer, head, kind: the head, as in `weights`.

    Returns:
        How far each token's output moves, and which token is likeliest after it.

    Raises:
        InputError: a layer or head that is not there, or a trace without its model.

    Example:
        >>> import regard
        >>> found = regard.load().trace("time flies like an arrow").ablation(3, 5)
        >>> print(found)  # doctest: +ELLIPSIS, +NORMALIZE_WHITESPACE
        Without head 3.5 (encoder): |h' - h| / |h| of each token's output h
        <BLANKLINE>
        token  moved
        [CLS]  0.009  █████████████████
        ...

    Source: Michel et al. 2019, arXiv 1905.10650, section 2.3, whose masks are this zero.
    """

    kind = self.kind(kind)
    layer = self.layer_index(layer, kind)
    head = self.head_index(head, kind, layer)
    loaded = self.require_model()
    stack = list(loaded.network.prefixes)[-1]
    encoding = self.stack(stack).encoding
    logits = len(encoding.tokens) * loaded.network.config.vocab_size <= _MOST_LOGITS
    without = Zero("head", layer=layer, head=head, kind=kind)
    whole, changed = outputs_of(loaded.network, self, [None, without], batch=1, logits=logits)
    h, other = (each.last_hidden_state[0].double() for each in (whole, changed))
    return Ablation(
        kind=kind,
        layer=layer,
        head=head,
        tokens=tuple(token.surface for token in encoding.tokens),
        moved=((other - h).norm(dim=1) / h.norm(dim=1)).float().cpu(),
        cosine=torch.nn.functional.cosine_similarity(h, other, dim=1).float().cpu(),
        before=_likeliest(loaded, whole, len(h)),
        after=_likeliest(loaded, changed, len(h)),
    )


def _likeliest(loaded: Loaded, output: Output, count: int) -> tuple[LikeliestToken, ...] | None:
    config = loaded.network.config
    sizes = {config.vocab_size, getattr(config, "decoder_vocab_size", config.vocab_size)}
    logits = output.logits
    # The logits of a classifier are of labels, or of the whole text.
    if logits is None or logits.ndim != 3 or logits.shape[1] != count or logits.shape[2] not in sizes:
        return None
    found = logits[0].double().softmax(dim=1).max(dim=1)
    ids: Sequence[int] = found.indices.tolist()
    tokens = Encoding.from_ids(list(ids), loaded.tokenizer).tokens
    return tuple(
        LikeliestToken(token=token.surface or token.text, probability=probability)
        for token, probability in zip(tokens, found.values.tolist(), strict=True)
    )


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
