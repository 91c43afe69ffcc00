"""Gradients of any number that a model gives: by tensors on the way to it, times attention, integrated."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard.core import Taps
from regard.core.arguments import whole
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.memory import check_room
from regard.models import Kind, Network, Output, StackKind
from regard.text import Encoding
from regard.tracing.measures._readout import attention_tap
from regard.tracing.measures._rollout import own_attention
from regard.tracing.record import Selector, Trace, chosen_of
from regard.tracing.run import gradients_at, rerun, watched_pass

if TYPE_CHECKING:
    from rich.console import RenderableType

Scalar = Callable[[Output], Tensor]
"""From what a network returns, for a batch of one, to one number, with its graph."""

_RECORDS = ".inputs"
"""The taps that show a record, which nothing can be differentiated by."""


def gradients(trace: Trace, *, of: Scalar, at: str | Sequence[str]) -> dict[str, Tensor]:
    """Gradients of a number with respect to the tensors at some taps, for the trace's text.

        g = d of(output) / d tap

    The model runs again, forward and backward; its parameters and their `.grad` are left alone. Where scores
    or weights are among the taps the layer computes them, which takes O(N^2) memory.

    Args:
        of: from the model's output to one number: `lambda out: out.logits[0, -1, 42]`.
        at: names of taps, or patterns: "layers.*.attention.weights", "embeddings.tokens".

    Returns:
        For each tap, in the order of the forward pass, a tensor of its shape (batch 1) and type, on the CPU;
        zero where the number does not depend on it.

    Raises:
        InputError: the model is not at hand, a tap that is none, or not of one tensor; an `of` that gives
            anything but one finite number that the model computed; or a call inside `torch.inference_mode`.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> tap = "layers.5.attention.weights"
        >>> trace.gradients(of=lambda out: out.last_hidden_state[0, 0, 0], at=tap)[tap].shape
        torch.Size([1, 12, 7, 7])
    """
    network = trace.require_model().network
    _, by_tap, _ = gradients_at(trace, network, tap_names(network, at), of)
    return {name: each.detach().cpu() for name, each in by_tap.items()}


def tap_names(network: Network, at: str | Sequence[str]) -> list[str]:
    """The taps that are meant, in the order of the forward pass."""
    patterns = [at] if isinstance(at, str) or not isinstance(at, Sequence) else list(at)
    if not patterns or not all(isinstance(each, str) for each in patterns):
        raise InputError(f"at must be the name of a tap or a pattern, or several; got {at!r}.")
    known = network.tap_names()
    # Names that no tap fits are refused by Taps itself.
    Taps(dict.fromkeys(patterns, lambda value: None)).check(known)
    for pattern in patterns:
        # A pattern passes records over; a name means them.
        if pattern in known and pattern.endswith(_RECORDS):
            raise InputError(
                f"at must be taps of a tensor; {pattern!r} shows a record. Take q, k, v, scores or weights."
            )
    return [
        name
        for name in known
        if not name.endswith(_RECORDS) and any(fnmatchcase(name, each) for each in patterns)
    ]


def attention_gradients(
    trace: Trace, layer: int, head: int | None = None, *, of: Scalar, kind: "Kind | None" = None
) -> Tensor:
    """Attention weights times the gradient of a number with respect to them.

        A_h * dA_h,  dA_h = d of(output) / d A_h

    Args:
        layer, head, kind: as in `Trace.weights`.
        of: from the model's output to one number, as in `gradients`.

    Returns:
        float32 on the CPU, (queries, keys), or (heads, queries, keys) where head is None; with sinks one
        column more, as the weights have it. Positive entries raise the number.

    Raises:
        InputError: as `gradients`; a layer or head that is not there; or a text that is too long.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.attention_gradients(5, 0, of=lambda out: out.last_hidden_state[0, 0, 0]).shape
        torch.Size([7, 7])

    Source: Barkan et al. 2021, "Grad-SAM", arXiv 2204.11073, section 3 (there with a ReLU and a mean); Chefer
    et al. 2021, arXiv 2103.15679, equation 5.
    """
    kind = trace.kind(kind)
    layer = trace.layer_index(layer, kind)
    network = trace.require_model().network
    _check_memory(trace, kind, 1, "take gradients at q, k and v, which are small")
    name = f"{attention_tap(network, kind, layer)}.weights"
    # (heads, queries, keys)
    [product] = _products(trace, of, [name])
    return (product if head is None else product[trace.head_index(head, kind, layer)]).float().cpu()


def relevance(
    trace: Trace, token: Selector | None = None, *, of: Scalar, kind: "Kind | None" = None
) -> Tensor:
    """How much a number depends on each token, by weights times gradients through all layers of a stack.

        R_0 = I,  R <- R + E_l R,  E_l = mean_h max(0, A_h * dA_h)

    Rows are propagated from the last layer down, r <- r + r E: no product of whole matrices. The weights and
    their gradients of all layers are held at once, which is O(L H N^2) memory and forecast first.

    Args:
        token: the rows of R that are wanted, such as the position that `of` reads: an index, a slice or a
            word; None gives all.
        of: from the model's output to one number.
        kind: "encoder" or "decoder"; needed only where there are both.

    Returns:
        float32 on the CPU, (tokens, N); each row holds the 1 of the token itself.

    Raises:
        InputError: as `gradients`; kind "cross"; or a text that is too long.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> trace.relevance(0, of=lambda out: out.last_hidden_state[0, 0, 0]).shape
        torch.Size([1, 7])

    Source: Chefer, Gur and Wolf 2021, arXiv 2103.15679, section 3, equations 5 and 6 (self-attention).
    """
    stack = own_attention(trace, kind, "relevance")
    network = trace.require_model().network
    # All tokens, or those asked for.
    encoding = trace.stack(stack).encoding
    rows = list(chosen_of("token", encoding, token))
    layers, count = range(network.depth(stack)), len(encoding.tokens)
    _check_memory(trace, stack, len(layers), "take attention_gradients of one layer, or rollout")
    products = _products(trace, of, [f"{attention_tap(network, stack, layer)}.weights" for layer in layers])
    # Rows of the product of all layers: a row times a matrix costs N^2, a matrix times a matrix N^3.
    flow = torch.zeros(len(rows), count, dtype=torch.float64, device=products[0].device)
    flow[range(len(rows)), rows] = 1.0
    for each in reversed(products):
        # The mean over heads of max(0, weight x gradient), and the token itself beside it.
        flow = flow + flow @ each[..., :count].clamp(min=0.0).double().mean(dim=0)
    return flow.float().cpu()


def _check_memory(trace: Trace, kind: Kind, layers: int, instead: str) -> None:
    queries, keys = (len(side.tokens) for side in trace.sides(kind))
    network = trace.require_model().network
    check_room(
        f"attention of {queries} tokens, with gradients, in {layers} layers of {trace.model}",
        # Scores, weights, gradients: some six numbers of float32.
        24.0 * network.config.num_heads * layers * queries * keys,
        next(network.parameters()).device,
        f"give a shorter text, or {instead}",
    )


def _products(trace: Trace, of: Scalar, names: list[str]) -> list[Tensor]:
    values, found, _ = gradients_at(trace, trace.require_model().network, names, of)
    # The first text of the batch, which is the only one.
    return [(values[name] * found[name])[0] for name in names]


_MISSED = 0.05
"""The share of the effect beyond which attributions that do not add up are no explanation."""
_MOST_STEPS = 1000
"""The nodes of more are not worth their time: the error falls exponentially where the model is smooth."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IntegratedGradients(Displayable):
    """What each token's embedding adds, and how exactly that adds up; `print` shows it.

    Args:
        tokens: the tokens, as people read them.
        attributions: float32 (tokens,), their sum over the entries of each embedding.
        by_entry: float32 (tokens, d), the same for each entry.
        value: f at the text.
        baseline_value: f at the baseline.
        error: sum of the attributions - (value - baseline_value); by the axiom of completeness 0, up to the
            steps of the integral. More steps make it smaller where the model is smooth along the line.
    """

    tokens: tuple[str, ...]
    attributions: Tensor
    by_entry: Tensor
    value: float
    baseline_value: float
    error: float

    @property
    def missed(self) -> float:
        """|error| / |value - baseline_value|: the share of the effect that they miss or invent."""
        effect = abs(self.value - self.baseline_value)
        # No effect at all, but an error: infinitely much is missed.
        return abs(self.error) / effect if effect else math.inf if self.error else 0.0

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a token, with what it adds."""
        return [
            {"position": position, "token": token, "attribution": added}
            for position, (token, added) in enumerate(
                zip(self.tokens, self.attributions.tolist(), strict=True)
            )
        ]

    def __repr__(self) -> str:
        return (
            f"IntegratedGradients({len(self.tokens)} tokens, {self.baseline_value:.6g} -> {self.value:.6g}, "
            f"error {self.error:.1e}, {self.missed:.1%} of the effect)"
        )

    def _parts(self) -> "Iterator[RenderableType]":
        yield f"From {self.baseline_value:.6g} to {self.value:.6g}; the tokens miss {self.missed:.1%}.\n"
        rows = self.to_rows()
        yield plain_table(["token", "adds"], [(row["token"], f"{row['attribution']:+.3f}") for row in rows])


def integrated_gradients(
    trace: Trace,
    *,
    of: Scalar,
    baseline: int | Tensor | None = None,
    steps: int = 32,
    kind: StackKind | None = None,
) -> IntegratedGradients:
    """Attribute a number to the tokens, by gradients along a line from a baseline to their embeddings.

        a_i = (x_i - b_i) . integral_0^1 d f(b + t (x - b)) / d x_i dt

    x are the learned embeddings (the rows of the table, at the tap `embeddings.tokens`); positions, token
    types and norms stay as they are. The integral is by Gauss and Legendre: exact for polynomials of degree
    2 steps - 1. Where the model jumps at the baseline it does not converge, and `error` says so: a model with
    RMSNorm and nothing added to its embeddings does at the zero vector; give it a token for a baseline. A
    warning says so where more than 5 % of the effect is missed.

    Args:
        of: from the model's output to one number, as in `gradients`.
        baseline: what the tokens are compared with: None for the zero vector, the id of a token ([PAD],
            [MASK]) for its row at every position, or a tensor (tokens, d) or (d,).
        steps: forward and backward passes, 1 to 1000.
        kind: whose tokens, "encoder" or "decoder"; needed only where there are both.

    Returns:
        The attributions, and in `error` how far they are from adding up.

    Raises:
        InputError: as `gradients`; a baseline of another shape, or an unknown id; steps out of range.

    Example:
        >>> import regard
        >>> trace = regard.load().trace("time flies like an arrow")
        >>> found = trace.integrated_gradients(of=lambda out: out.last_hidden_state[0, 0, 0], baseline=0)
        >>> abs(found.error) < 1e-3 * max(1.0, abs(found.value))
        True

    Source: Sundararajan, Taly and Yan 2017, arXiv 1703.01365, section 3, equation 1; completeness is
    proposition 1.
    """
    network = trace.require_model().network
    steps = whole("steps", steps, least=1, most=_MOST_STEPS)
    traced = trace.stack(kind)
    stack: StackKind = "decoder" if traced is trace.decoder else "encoder"
    tap = f"{network.prefixes[stack]}embeddings.tokens"
    if tap not in network.tap_names():
        raise InputError(
            f"integrated gradients need the learned embeddings of the {stack}, which {trace.model} does not "
            "show through the lens; take trace.gradients at a tap that it has."
        )
    # The number of the text as it is, with a graph to the embeddings.
    values, at_text = watched_pass(trace, network, of, [tap])
    x = values[tap].detach()
    start = _baseline(trace, baseline, x, stack)

    def at(share: float) -> tuple[Tensor, Tensor]:
        # A point on the line from the baseline to the text.
        point = (start + share * (x - start)).to(x.dtype)
        tensors, value = watched_pass(trace, network, of, [tap], lambda name, own: point)
        return value, tensors[tap]

    # The number at the baseline, which the attributions add up to the difference from.
    at_baseline, _ = at(0.0)
    total = torch.zeros_like(x, dtype=torch.float64)
    # Gauss-Legendre is exact for polynomials of degree 2 n - 1, so far fewer gradients are needed than by
    # evenly spaced steps; its nodes are of (-1, 1), and the line is (0, 1).
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        # From (-1, 1) to (0, 1): the node moved, the weight halved.
        value, point = at(0.5 * (node + 1.0))
        [gradient] = torch.autograd.grad(value, [point])
        total += 0.5 * weight * gradient.double()
    # (tokens, d_model): the way of each entry times the mean gradient along it.
    by_entry = ((x - start).double() * total)[0]
    before, after = float(at_baseline.detach()), float(at_text.detach())
    attributions = IntegratedGradients(
        tokens=traced.shown,
        attributions=by_entry.sum(dim=1).float().cpu(),
        by_entry=by_entry.float().cpu(),
        value=after,
        baseline_value=before,
        error=float(by_entry.sum()) - (after - before),
    )
    if attributions.missed > _MISSED:
        warnings.warn(
            f"integrated gradients add up to {float(by_entry.sum()):.3g} where the effect is "
            f"{after - before:.3g}: off by {attributions.missed:.0%} with steps={steps}. Give more steps; "
            "if that does not help, the model jumps on the line from the baseline: give a token's id as it.",
            stacklevel=3,
        )
    return attributions


def _baseline(trace: Trace, baseline: int | Tensor | None, x: Tensor, stack: StackKind) -> Tensor:
    # Zeros, as long as the text.
    if baseline is None:
        return torch.zeros_like(x)
    if isinstance(baseline, Tensor):
        if baseline.shape not in (x.shape, x.shape[1:], x.shape[2:]) or not baseline.is_floating_point():
            raise InputError(
                f"baseline must be floating point of shape {tuple(x.shape[1:])} or {tuple(x.shape[2:])}; got "
                f"{baseline.dtype} of shape {tuple(baseline.shape)}."
            )
        # One vector for all tokens, or one for each.
        return baseline.detach().to(x).expand_as(x)
    network = trace.require_model().network
    if not isinstance(baseline, int) or isinstance(baseline, bool):
        raise InputError(
            f"baseline must be a token's id, a tensor, or None for zeros; got {type(baseline).__name__}."
        )
    rows = network.config.vocab_size
    if stack == "decoder":
        rows = getattr(network.config, "decoder_vocab_size", rows)
    if not 0 <= baseline < rows:
        raise InputError(f"baseline must be an id from 0 to {rows - 1}; got {baseline}.")
    seen: list[Tensor] = []
    tap = f"{network.prefixes[stack]}embeddings.tokens"
    with torch.no_grad():
        # The baseline of a token's id is what the model makes of a text of that token alone.
        alike = Encoding.from_ids([baseline] * x.shape[1])
        rerun(trace, network, taps=Taps({tap: seen.append}), instead={stack: alike})
    return seen[0]
