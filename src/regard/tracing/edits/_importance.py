"""What each head is worth: how far outputs move without it, and how much a metric changes."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from regard.core.arguments import check_function
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.progress import OnProgress
from regard.core.tensors import cosine
from regard.core.wording import excerpt
from regard.models import Kind, Loaded, Network, Output, stack_of
from regard.text import Encoding
from regard.tracing.edits._changes import Replace, Write, Zero
from regard.tracing.edits._edit import SITES, Edit, taps_of
from regard.tracing.edits._network import outputs_of
from regard.tracing.record import KeepPolicy, Trace
from regard.tracing.run import Metric, TraceOfRun, check_mode, gradients_at, number_of, rerun, seen_at

if TYPE_CHECKING:
    from rich.console import RenderableType


ImportanceMethod = Literal["gradient", "zero", "mean"]
"""By the gradient of a head mask, or by putting zero or the mean in the place of a head's context."""

ExampleMetric = Callable[[Output, int], "Tensor | float"]
"""From what a network returns for one example, and the example's number, to one number, such as a loss."""

Measured = Sequence[tuple[Trace, Metric]]
"""The examples, each with its metric."""


def head_importance(
    loaded: Loaded,
    examples: Sequence[Trace],
    metric: ExampleMetric,
    *,
    method: ImportanceMethod = "gradient",
    kind: Kind | None = None,
    batch: int | None = None,
    progress: OnProgress = None,
) -> Tensor:
    """Measure how much each head matters to a metric, over examples.

    With A_h a head's context over the whole text, before the heads are joined:

        "gradient"  mean over the examples of |A_h^T d metric / d A_h|, which is |d metric / d xi_h| of a
                    head mask xi of ones: one pass forward and back for each example
        "zero"      mean over the examples of metric(A_h = 0) - metric, with its sign: of a loss, what the
                    head saves; the heads run together, as the rows of a batch
        "mean"      the same with A_h at every position its mean over all tokens of all examples

    Args:
        loaded: the model.
        examples: traces; only their tokens are read.
        metric: from a `regard.models.Output` (batch 1, with logits) and the example's number, counted from 0,
            to one number, such as the loss against a label; for "gradient" a differentiable tensor.
        method: see above.
        kind: "encoder", "decoder" or "cross"; needed only where there are several.
        batch: how many heads are ablated in one pass, as in `patch`.
        progress: called with (done, total) after each example, or each head of one.

    Returns:
        float64 (layers, heads); NaN where a layer has fewer heads than another, or no cross-attention. The
        gradients are not normalised; Michel et al. divide each layer's by its L2 norm.

    Raises:
        InputError: no examples, an unknown method or kind, a metric that is no finite number (or has no
            gradient), or a network in training mode.

    Example:
        >>> from regard.tracing import head_importance
        >>> import regard
        >>> model = regard.load()
        >>> texts = model.trace(["a man fishing on a river bank", "time flies like an arrow"])
        >>> table = head_importance(model.loaded, texts, lambda out, index: out.last_hidden_state.norm())
        >>> table.shape, bool((table >= 0).all())
        (torch.Size([6, 12]), True)

    Source: Michel et al. 2019, arXiv 1905.10650, section 2.2 (ablation) and equation 2 (gradient).
    """
    if method not in ("gradient", "zero", "mean"):
        raise InputError(f'method must be "gradient", "zero" or "mean"; got {method!r}.')
    if not examples:
        raise InputError("examples must be at least one text; got none.")
    check_function("metric", metric, "from an output and an example's number to one number")
    check_function("progress", progress, "of what is done and what there is", optional=True)
    network, site = loaded.network, SITES["context"]
    kind = site.kind(kind, network)
    taps = {layer: tap for layer, tap in taps_of(site, kind, network).items() if isinstance(layer, int)}
    check_mode(network)
    # Each example's own number goes with it.
    measured = [(trace, _of_example(metric, index)) for index, trace in enumerate(examples)]
    if method == "gradient":
        worth = _by_gradient(network, measured, taps, progress)
    else:
        with torch.no_grad():
            # The metric of each example as it is, and each head's mean.
            whole, means = _whole(network, measured, taps)
            if method == "zero":
                means = {layer: torch.zeros_like(mean) for layer, mean in means.items()}
            worth = _by_ablation(network, measured, whole, means, kind, batch, progress)
    # A layer may have fewer heads than another, or no cross-attention.
    size = (network.depth(stack_of(kind)), max(len(row) for row in worth.values()))
    # NaN where a layer has no such head.
    table = torch.full(size, math.nan, dtype=torch.float64)
    for layer, row in worth.items():
        # The mean over the examples.
        table[layer, : len(row)] = row.cpu() / len(examples)
    return table


def _of_example(metric: ExampleMetric, index: int) -> Metric:
    return lambda output: metric(output, index)


def _by_gradient(
    network: Network, measured: Measured, taps: Mapping[int, str], progress: OnProgress
) -> dict[int, Tensor]:
    """The sum over the examples of |A_h^T d metric / d A_h|."""
    sums: dict[int, Tensor] = {}
    for done, (trace, metric) in enumerate(measured, start=1):
        # d metric / d mask of a head = context . d metric / d context, for a mask of 1: no mask is needed.
        contexts, moves, _ = gradients_at(trace, network, list(taps.values()), metric, called="metric")
        for layer, tap in taps.items():
            product = contexts[tap][0].double() * moves[tap][0].double()
            # Summed over tokens and entries of a head, then without its sign.
            sums[layer] = sums.get(layer, 0.0) + product.sum(dim=(1, 2)).abs()
        if progress is not None:
            progress(done, len(measured))
    return sums


def _by_ablation(
    network: Network,
    measured: Measured,
    whole: Sequence[float],
    values: Mapping[int, Tensor],
    kind: Kind,
    batch: int | None,
    progress: OnProgress,
) -> dict[int, Tensor]:
    """The sum over the examples of metric(a head's context replaced by its value) - metric."""
    # Every head of every layer, one at a time.
    heads = [(layer, head) for layer, value in values.items() for head in range(len(value))]
    variants = [
        Replace("head", layer=layer, head=head, kind=kind, value=values[layer][head]) for layer, head in heads
    ]
    sums = {layer: torch.zeros(len(value), dtype=torch.float64) for layer, value in values.items()}
    done, total = 0, len(measured) * len(heads)
    for (trace, metric), before in zip(measured, whole, strict=True):
        # One batch of variants for each example.
        outputs = outputs_of(network, trace, variants, batch=batch)
        for (layer, head), output in zip(heads, outputs, strict=True):
            sums[layer][head] += number_of("metric", metric(output)) - before
            done += 1
            if progress is not None:
                progress(done, total)
    return sums


def _whole(
    network: Network, measured: Measured, taps: Mapping[int, str]
) -> tuple[list[float], dict[int, Tensor]]:
    """The metric of each example, and each head's mean context over all tokens of all examples."""
    whole, sums, count = [], dict[int, Tensor](), 0
    for trace, metric in measured:
        output, kept = seen_at(taps.values(), trace, network, logits=True)
        whole.append(number_of("metric", metric(output)))
        for layer, tap in taps.items():
            # Sums over tokens, to become means over all tokens of all texts.
            sums[layer] = sums.get(layer, 0.0) + kept[tap][0].double().sum(dim=1)
        count += kept[tap].shape[2]
    return whole, {layer: (total / count).to(kept[taps[layer]].dtype) for layer, total in sums.items()}


class Likeness:
    """The mean cosine between contextual embeddings of a full model and of a changed one, on some texts.

        likeness = mean over texts of  mean over tokens of  cos(h_token, h_token of the full model)

    1 for the model itself. What is compared is the last hidden state, special tokens included; a head on top
    is not.

    Args:
        loaded: the full model, with one stack.
        texts: at least one.

    Attributes:
        traces: of the texts by the full model, which are the examples for `head_importance`.

    Raises:
        InputError: no texts, a text that the model cannot take, or an encoder and a decoder.

    Example:
        >>> from regard.tracing import Likeness
        >>> from regard.models import load_checkpoint
        >>> from regard.pruning import prune
        >>> full = load_checkpoint()
        >>> likeness = Likeness(full, ["a river bank", "a bank loan"])
        >>> round(likeness(full), 4), likeness(prune(full, {0: [3]})) < 1
        (1.0, True)
    """

    def __init__(self, loaded: Loaded, texts: Sequence[str]) -> None:
        if not isinstance(texts, Sequence) or isinstance(texts, str) or not texts:
            raise InputError(f"texts must be a list of at least one text; got {texts!r}.")
        if len(loaded.network.prefixes) > 1:
            raise InputError(
                f"model must have one stack; {loaded.source.name} has an encoder and a decoder, whose output "
                "depends on what the decoder reads. Give model.pruning_curve a metric of your own."
            )
        # What the last layer hands on is all that is compared.
        keeping = KeepPolicy(keep="residual", layers=-1)
        self.traces: tuple[Trace, ...] = tuple(
            TraceOfRun.of_text(loaded, text, keeping=keeping) for text in texts
        )
        self._full = [self._state(loaded, trace) for trace in self.traces]

    def __call__(self, loaded: Loaded) -> float:
        """The likeness of a changed model, which must read texts as the full one does."""
        states = (self._state(loaded, trace) for trace in self.traces)
        found = [float(self._cosine(state, index)) for index, state in enumerate(states)]
        return sum(found) / len(found)

    def loss(self, output: Output, index: int) -> Tensor:
        """1 - the likeness of what a model gives for one text: a metric for `head_importance`.

        It is least for the full model, so its gradient there is zero: take `method="zero"` or `"mean"`.
        """
        return 1 - self._cosine(output.last_hidden_state[0], index)

    def _cosine(self, state: Tensor, index: int) -> Tensor:
        full = self._full[index]
        alike = cosine(state.double(), full.to(state.device).double())
        # Rounding may step over the ends.
        return alike.clamp(-1.0, 1.0).mean()

    def _state(self, loaded: Loaded, trace: Trace) -> Tensor:
        with torch.no_grad():
            return rerun(trace, loaded.network).last_hidden_state[0]


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
    # Without logits where they would be too many to hold.
    logits = len(encoding.tokens) * loaded.network.config.vocab_size <= _MOST_LOGITS
    without = Zero("head", layer=layer, head=head, kind=kind)
    # Both in one function, so that they differ in the edit alone.
    whole, changed = outputs_of(loaded.network, self, [None, without], batch=1, logits=logits)
    h, other = (each.last_hidden_state[0].double() for each in (whole, changed))
    return Ablation(
        kind=kind,
        layer=layer,
        head=head,
        tokens=tuple(token.label for token in encoding.tokens),
        # |h' - h| / |h| of each token
        moved=((other - h).norm(dim=1) / h.norm(dim=1)).float().cpu(),
        cosine=cosine(h, other).float().cpu(),
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
    likeliest = logits[0].double().softmax(dim=1).max(dim=1)
    ids: Sequence[int] = likeliest.indices.tolist()
    tokens = Encoding.from_ids(list(ids), loaded.tokenizer).tokens
    return tuple(
        LikeliestToken(token=token.shown, probability=probability)
        for token, probability in zip(tokens, likeliest.values.tolist(), strict=True)
    )


def unseen(tokens: Sequence[int]) -> Edit:
    """No other token may look at these, in any head: they see themselves and each other, as before."""

    def function(scores: Tensor) -> Tensor:
        if not all(0 <= token < scores.shape[-1] for token in tokens):
            raise InputError(f"unseen must be tokens of the text, from 0 to {scores.shape[-1] - 1}.")
        # Tokens may still look at themselves and at each other.
        others = [row for row in range(scores.shape[-2]) if row not in tokens]
        scores[..., torch.tensor(others, dtype=torch.long)[:, None], torch.tensor(tokens)] = -torch.inf
        return scores

    return Write("scores", function)


def unseen_word(trace: Trace, token: int) -> Edit:
    """No other word may look at the word of a token."""
    tokens = trace.stack(None).encoding.tokens
    word = tokens[token].word
    return unseen(
        [
            place
            for place, each in enumerate(tokens)
            if place == token or (word is not None and each.word == word)
        ]
    )
