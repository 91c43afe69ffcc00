"""What each head is worth: how much a metric changes without it, or by the gradient of a head mask."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from regard.core import Taps
from regard.core.arguments import check_function
from regard.core.errors import InputError
from regard.models import Kind, Loaded, Network, Output, stack_of
from regard.tracing.edits._capture import check_mode, keep_in
from regard.tracing.edits._metric import Progress, differentiable, number_of
from regard.tracing.edits._sites import kind_of, points_of, site_named
from regard.tracing.record import Trace, check_trace
from regard.tracing.run import run_again

ImportanceMethod = Literal["gradient", "zero", "mean"]
"""By the gradient of a head mask, or by putting zero or the mean in the place of a head's context."""

ExampleMetric = Callable[[Output, int], "Tensor | float"]
"""From what a network returns for one example, and the example's number, to one number, such as a loss."""


def head_importance(
    loaded: Loaded,
    examples: Sequence[Trace],
    metric: ExampleMetric,
    *,
    method: ImportanceMethod = "gradient",
    kind: Kind | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """What each head is worth to a metric, over examples.

    With A_h a head's context over the whole text, before the heads are joined:

        "gradient"  mean over the examples of |A_h^T d metric / d A_h|, which is |d metric / d xi_h| of a
                    head mask xi of ones: one pass forward and back for each example
        "zero"      mean over the examples of metric(A_h = 0) - metric, with its sign: of a loss, what the
                    head saves; one pass for each head and example
        "mean"      the same with A_h at every position its mean over all tokens of all examples

    Args:
        loaded: the model.
        examples: traces; only their tokens are read.
        metric: from a `regard.models.Output` (batch 1, with logits) and the example's number, counted from 0,
            to one number, such as the loss against a label; for "gradient" a differentiable tensor.
        method: see above.
        kind: "encoder", "decoder" or "cross"; needed only where there are several.
        progress: called with (done, total) after each pass.

    Returns:
        float64 (layers, heads); NaN where a layer has fewer heads than another, or no cross-attention. The
        gradients are not normalised; Michel et al. divide each layer's by its L2 norm.

    Raises:
        InputError: no examples, an unknown method or kind, a metric that is no finite number (or has no
            gradient), or a network in training mode.

    Example:
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
    if not isinstance(examples, Sequence):
        raise InputError(f"examples must be a list of traces; got {type(examples).__name__}.")
    if not examples:
        raise InputError("examples must be at least one text; got none.")
    for number, trace in enumerate(examples):
        check_trace(f"examples[{number}]", trace)
    check_function("metric", metric, "from an output and an example's number to one number")
    check_function("progress", progress, "of what is done and what there is", optional=True)
    site = site_named("context")
    kind = kind_of(site, kind, loaded.network)
    found_points = points_of(site, kind, loaded.network)
    points = {layer: point for layer, point in found_points.items() if layer is not None}
    network = loaded.network
    check_mode(network)
    report = _Report(progress)
    if method == "gradient":
        found = _by_gradient(network, examples, metric, tuple(points.values()), report)
    else:
        found = _by_ablation(
            network, examples, metric, tuple(points.values()), report, is_mean=method == "mean"
        )
    depth = network.depth(stack_of(kind))
    # A layer may have fewer heads than another, or no cross-attention.
    table = torch.full((depth, max(len(row) for row in found.values())), math.nan, dtype=torch.float64)
    for layer, point in points.items():
        table[layer, : len(found[point])] = found[point].cpu()
    return table


class _Report:
    """Counts passes, and tells them."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.total = self.done = 0

    def one(self) -> None:
        self.done += 1
        if self._progress is not None:
            self._progress(self.done, self.total)


def _by_gradient(
    network: Network,
    examples: Sequence[Trace],
    metric: ExampleMetric,
    points: Sequence[str],
    report: _Report,
) -> dict[str, Tensor]:
    """The mean over the examples of |d metric / d mask|, at a mask of ones."""
    report.total = len(examples)
    sums: dict[str, Tensor] = {}
    for index, trace in enumerate(examples):
        masks: dict[str, Tensor] = {}
        with torch.enable_grad():
            taps = Taps({point: _masked(masks, point) for point in points})
            value = differentiable(metric(run_again(trace, network, taps=taps, logits=True), index))
            gradients = torch.autograd.grad(value, list(masks.values()), allow_unused=True)
        for point, gradient in zip(masks, gradients, strict=True):
            size = torch.zeros_like(masks[point]) if gradient is None else gradient
            sums[point] = sums.get(point, torch.zeros((), dtype=torch.float64)) + size.abs().double().cpu()
        report.one()
    return {point: total / len(examples) for point, total in sums.items()}


def _masked(masks: dict[str, Tensor], point: str) -> Any:
    def listen(context: Tensor) -> Tensor:
        masks[point] = torch.ones(
            context.shape[1], dtype=context.dtype, device=context.device, requires_grad=True
        )
        return context * masks[point][:, None, None]

    return listen


def _by_ablation(
    network: Network,
    examples: Sequence[Trace],
    metric: ExampleMetric,
    points: Sequence[str],
    report: _Report,
    *,
    is_mean: bool,
) -> dict[str, Tensor]:
    """The mean over the examples of metric(without the head) - metric(with it)."""
    with torch.no_grad():
        whole, means = _whole(network, examples, metric, points)
        report.total = len(examples) * sum(len(mean) for mean in means.values())
        found = {}
        for point, mean in means.items():
            found[point] = torch.zeros(len(mean), dtype=torch.float64)
            for head in range(len(mean)):
                value = mean[head] if is_mean else torch.zeros_like(mean[head])
                taps = Taps({point: _replaced(head, value)})
                for index, trace in enumerate(examples):
                    output = run_again(trace, network, taps=taps, logits=True)
                    found[point][head] += number_of(metric(output, index)) - whole[index]
                    report.one()
    return {point: total / len(examples) for point, total in found.items()}


def _replaced(head: int, value: Tensor) -> Any:
    def listen(context: Tensor) -> Tensor:
        changed = context.clone()
        changed[:, head] = value.to(context.dtype)
        return changed

    return listen


def _whole(
    network: Network,
    examples: Sequence[Trace],
    metric: ExampleMetric,
    points: Sequence[str],
) -> tuple[list[float], dict[str, Tensor]]:
    """The metric of each example, and each head's mean context over all tokens of all examples."""
    whole, sums, counts = [], dict[str, Tensor](), dict[str, int]()
    for index, trace in enumerate(examples):
        kept: dict[str, Tensor] = {}
        taps = Taps({point: keep_in(kept, point) for point in points})
        whole.append(number_of(metric(run_again(trace, network, taps=taps, logits=True), index)))
        for point, context in kept.items():
            total = context[0].double().sum(dim=1)
            sums[point] = sums[point] + total if point in sums else total
            counts[point] = counts.get(point, 0) + context.shape[2]
    return whole, {point: total / counts[point] for point, total in sums.items()}
