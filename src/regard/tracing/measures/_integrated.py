"""Integrated gradients: how much each token's learned embedding adds to a number."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.core import Taps
from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.models import StackKind
from regard.text import Encoding
from regard.tracing.measures._gradients import Scalar
from regard.tracing.record import Trace
from regard.tracing.run import rerun, watched_pass

_MOST_STEPS = 1000
"""The nodes of more are not worth their time: the error falls exponentially where the model is smooth."""


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegratedGradients:
    """What each token's embedding adds, and how exactly that adds up.

    Args:
        tokens: the tokens.
        attributions: float32 (tokens,), their sum over the entries of each embedding.
        by_entry: float32 (tokens, d), the same for each entry.
        value: f at the text.
        baseline_value: f at the baseline.
        error: sum of the attributions - (value - baseline_value); by the axiom of completeness 0, up to the
            steps of the integral. More steps make it smaller.
    """

    tokens: tuple[str, ...]
    attributions: Tensor
    by_entry: Tensor
    value: float
    baseline_value: float
    error: float

    def __repr__(self) -> str:
        return (
            f"IntegratedGradients({len(self.tokens)} tokens, {self.baseline_value:.6g} -> {self.value:.6g}, "
            f"error {self.error:.1e})"
        )


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
    RMSNorm and nothing added to its embeddings does at the zero vector; give it a token for a baseline.

    Args:
        of: from the model's output to one number, as in `gradients`.
        baseline: what the tokens are compared with: None for the zero vector, the id of a token ([PAD],
            [MASK]) for its row at every position, or a tensor (tokens, d) or (d,).
        steps: forward and backward passes, 1 to 1000.
        kind: whose tokens, "encoder" or "decoder"; needed only where there are both.

    Returns:
        The attributions, and in `error` how far they are from adding up.

    Raises:
        InputError: as `gradients`; a baseline of another shape, or an id that is none; steps out of range.

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
    values, at_text = watched_pass(trace, network, of, [tap])
    x = values[tap].detach()
    start = _baseline(trace, baseline, x, stack)

    def at(share: float) -> tuple[Tensor, Tensor]:
        point = (start + share * (x - start)).to(x.dtype)
        found, value = watched_pass(trace, network, of, [tap], lambda name, own: point)
        return value, found[tap]

    at_baseline, _ = at(0.0)
    total = torch.zeros_like(x, dtype=torch.float64)
    # Gauss-Legendre is exact for polynomials of degree 2 n - 1, so far fewer gradients are needed than by
    # evenly spaced steps; its nodes are of (-1, 1), and the line is (0, 1).
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        value, point = at(0.5 * (node + 1.0))
        [gradient] = torch.autograd.grad(value, [point])
        total += 0.5 * weight * gradient.double()
    by_entry = ((x - start).double() * total)[0]
    before, after = float(at_baseline.detach()), float(at_text.detach())
    return IntegratedGradients(
        tokens=tuple(traced.tokens),
        attributions=by_entry.sum(dim=1).float().cpu(),
        by_entry=by_entry.float().cpu(),
        value=after,
        baseline_value=before,
        error=float(by_entry.sum()) - (after - before),
    )


def _baseline(trace: Trace, baseline: int | Tensor | None, x: Tensor, stack: StackKind) -> Tensor:
    if baseline is None:
        return torch.zeros_like(x)
    if isinstance(baseline, Tensor):
        if baseline.shape not in (x.shape, x.shape[1:], x.shape[2:]) or not baseline.is_floating_point():
            raise InputError(
                f"baseline must be floating point of shape {tuple(x.shape[1:])} or {tuple(x.shape[2:])}; got "
                f"{baseline.dtype} of shape {tuple(baseline.shape)}."
            )
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
        alike = Encoding.from_ids([baseline] * x.shape[1])
        rerun(trace, network, taps=Taps({tap: seen.append}), instead={stack: alike})
    return seen[0]
