"""Activation patching, and its estimate by one gradient: where the difference between texts is carried."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.core import Taps
from regard.core.arguments import check_function
from regard.core.errors import InputError
from regard.models import Kind, Loaded, Network, StackKind
from regard.text import Encoding
from regard.tracing.edits._capture import check_mode, encodings_of, keep_in
from regard.tracing.edits._changes import Replace
from regard.tracing.edits._chosen import Layers, layers_of
from regard.tracing.edits._metric import Metric, Progress, differentiable, number_of
from regard.tracing.edits._sites import Axis, Layer, Site, SiteName, site_named, taps_of
from regard.tracing.edits._variants import outputs_of
from regard.tracing.record import Trace, check_trace
from regard.tracing.run import run_again

Per = Literal["position", "head"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Patching:
    """The metric of the corrupted text, with one place at a time as it is in the clean text.

    Args:
        values: float64 (layers, positions or heads), the metric with that place patched; by attribution, its
            first-order estimate.
        clean, corrupted: the metric of the two texts, unpatched.
        layers: the layer of each row, named as in `Edit`.
        site, kind, per, method: what was asked for.

    Example:
        >>> import torch
        >>> table = Patching(values=torch.tensor([[1.0, 3.0]]), clean=5.0, corrupted=1.0, layers=(0,),
        ...                  site="residual", kind="encoder", per="position", method="activation")
        >>> table.recovered
        tensor([[0.0000, 0.5000]])
    """

    values: Tensor
    clean: float
    corrupted: float
    layers: tuple[Layer, ...]
    site: str
    kind: Kind
    per: Per
    method: Literal["activation", "attribution"]

    @property
    def effect(self) -> Tensor:
        """What the patch changes: values - corrupted."""
        return self.values - self.corrupted

    @property
    def recovered(self) -> Tensor:
        """(values - corrupted) / (clean - corrupted): 0 is no effect, 1 all that is between the texts.

        Raises:
            InputError: the metric does not tell the two texts apart.
        """
        if self.clean == self.corrupted:
            raise InputError(f"metric must differ between the two texts; it is {self.clean} of both.")
        return self.effect / (self.clean - self.corrupted)

    def __repr__(self) -> str:
        rows, columns = self.values.shape
        return (
            f"Patching({self.method} at {self.kind} {self.site}, {rows} layers x {columns} {self.per}s, "
            f"clean {self.clean:.6g}, corrupted {self.corrupted:.6g})"
        )


def activation_patching(
    loaded: Loaded,
    clean: Trace,
    corrupted: Trace,
    metric: Metric,
    *,
    site: SiteName = "residual",
    kind: Kind | None = None,
    per: Per | None = None,
    layer: Layers = None,
    batch: int | None = None,
    progress: Progress | None = None,
) -> Patching:
    """Where the difference between two texts is carried: each place in turn as it is in the clean text.

        values[l, p] = metric(corrupted text, with the clean text's tensor in layer l at p)

    One cell for each layer and position, or layer and head; cells run together, as the rows of a batch.

    Args:
        loaded: the model.
        clean, corrupted: traces of two texts with as many tokens; only their tokens are read.
        metric: from a `regard.models.Output` (batch 1, with logits) to one number.
        site, kind, layer: as in `Edit`.
        per: "position" (of k and v the key's; of weights and scores the query's row) takes all heads of a
            position, "head" a head at all positions; by default "head" where the site has heads.
        batch: how many cells run in one pass; by default as many as have 2,048 tokens, and 2^26 logits.
        progress: called with (done, total) after each cell.

    Returns:
        The table: see `Patching`.

    Raises:
        InputError: texts of different length, a site, kind or layer that the model does not have, a metric
            that is no finite number, or a network in training mode.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> river, money = model.trace(["the river bank", "the money bank"])
        >>> def size(out):
        ...     return out.last_hidden_state[0, 3, 7]
        >>> table = activation_patching(model.loaded, river, money, size)
        >>> abs(float(table.recovered[6].sum()) - 1.0) < 1e-4  # the last state, position by position
        True

    Source: Vig et al. 2020, arXiv 2004.12265, section 3; Heimersheim and Nanda 2024, arXiv 2404.15255.
    """
    work = _Work(loaded.network, clean, corrupted, site, kind, per, layer, metric)
    check_function("progress", progress, "of what is done and what there is", optional=True)
    with torch.no_grad():
        kept, of_clean = work.look(work.clean, metric)
        counts = [kept[tap].shape[work.dim] for tap in work.taps.values()]
        values = torch.full((len(counts), max(counts)), math.nan, dtype=torch.float64)
        cells = [(row, column) for row, count in enumerate(counts) for column in range(count)]
        layers = list(work.taps)
        variants = [work.cell(layers[row], column, kept) for row, column in cells]
        outputs = outputs_of(work.network, work.corrupted, [None, *variants], batch=batch)
        of_corrupted = number_of(metric(next(outputs)))
        for done, ((row, column), output) in enumerate(zip(cells, outputs, strict=True), start=1):
            values[row, column] = number_of(metric(output))
            if progress is not None:
                progress(done, len(cells))
    return work.told(values, of_clean, of_corrupted, "activation")


def attribution_patching(
    loaded: Loaded,
    clean: Trace,
    corrupted: Trace,
    metric: Metric,
    *,
    site: SiteName = "residual",
    kind: Kind | None = None,
    per: Per | None = None,
    layer: Layers = None,
) -> Patching:
    """The first-order estimate of `activation_patching`, of all places in two passes forward and one back.

        values[l, p] = metric(corrupted) + sum over the place of (clean - corrupted) * d metric / d corrupted

    Exact where the metric is a linear function of the site, such as a readout of the last residual; else as
    good as the model is linear between the two texts.

    Args:
        loaded, clean, corrupted, site, kind, per, layer: as in `activation_patching`.
        metric: a differentiable function of the output, giving a tensor of one number.

    Returns:
        The table: see `Patching`.

    Raises:
        InputError: as in `activation_patching`; a metric without a gradient; or scores that the two texts
            mask differently.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> river, money = model.trace(["the river bank", "the money bank"])
        >>> def size(out):
        ...     return out.last_hidden_state[0, 3, 7]
        >>> guess = attribution_patching(model.loaded, river, money, size)
        >>> exact = activation_patching(model.loaded, river, money, size, layer=6)
        >>> bool((guess.values[6] - exact.values[0]).abs().max() < 1e-6)  # a linear readout
        True

    Source: Nanda 2023, "Attribution patching: activation patching at industrial scale"; Syed et al. 2023,
    arXiv 2310.10348, section 3.
    """
    work = _Work(loaded.network, clean, corrupted, site, kind, per, layer, metric)
    with torch.no_grad():
        kept, of_clean = work.look(work.clean, metric)
    found, moves, value = gradients_at(work.network, work.corrupted, tuple(work.taps.values()), metric)
    rows = []
    for tap in work.taps.values():
        product = _difference(kept[tap], found[tap][0], tap) * moves[tap][0].double()
        axes = [dim for dim in range(product.ndim) if dim != work.dim]
        rows.append(product.sum(dim=axes).cpu())
    values = torch.full((len(rows), max(len(row) for row in rows)), math.nan, dtype=torch.float64)
    for index, row in enumerate(rows):
        values[index, : len(row)] = row
    return work.told(values + value, of_clean, value, "attribution")


def gradients_at(
    network: Network, trace: Trace, names: Sequence[str], metric: Metric
) -> tuple[dict[str, Tensor], dict[str, Tensor], float]:
    """What passes some taps, the gradient of a metric there, and the metric: one pass forward, one back.

    Raises:
        InputError: a metric that is no differentiable number.
    """
    found: dict[str, Tensor] = {}
    moves: dict[str, Tensor] = {}

    def listener(tap: str) -> Any:
        def listen(value: Tensor) -> Tensor:
            # A leaf of zeros: its gradient is the gradient here, whatever led here.
            found[tap] = value.detach()
            moves[tap] = torch.zeros_like(value, requires_grad=True)
            return value + moves[tap]

        return listen

    with torch.enable_grad():
        output = run_again(trace, network, taps=Taps({each: listener(each) for each in names}), logits=True)
        value = differentiable(metric(output))
        gradients = torch.autograd.grad(value, list(moves.values()), allow_unused=True)
    return (
        found,
        {
            tap: torch.zeros_like(found[tap]) if gradient is None else gradient
            for tap, gradient in zip(moves, gradients, strict=True)
        },
        number_of(value),
    )


class _Work:
    """What both ways have in common: the texts, the taps, the table's columns."""

    def __init__(
        self,
        network: Network,
        clean: Trace,
        corrupted: Trace,
        site: SiteName,
        kind: Kind | None,
        per: Per | None,
        layer: Layers,
        metric: Metric,
    ) -> None:
        self.network, self.site = network, site_named(site)
        self.kind = self.site.kind(kind, network)
        self.clean, self.corrupted = check_trace("clean", clean), check_trace("corrupted", corrupted)
        check_function("metric", metric, "from an output to one number")
        check_mode(network)
        _check_lengths(encodings_of(clean), encodings_of(corrupted))
        taps = taps_of(self.site, self.kind, network)
        self.taps = {number: taps[number] for number in layers_of(self.site, layer, taps)}
        self.per = _per(self.site, per)
        self.axis: Axis = "head" if self.per == "head" else next(a for a in self.site.axes if a != "head")
        self.dim = self.site.axes.index(self.axis)

    def look(self, trace: Trace, metric: Metric) -> tuple[Mapping[str, Tensor], float]:
        """What passes the taps, without the batch, and the metric."""
        kept: dict[str, Tensor] = {}
        taps = Taps({tap: keep_in(kept, tap) for tap in self.taps.values()})
        output = run_again(trace, self.network, taps=taps, logits=True)
        return {tap: value[0] for tap, value in kept.items()}, number_of(metric(output))

    def cell(self, layer: Layer, column: int, kept: Mapping[str, Tensor]) -> Replace:
        """One cell of the table."""
        value = kept[self.taps[layer]].narrow(self.dim, column, 1)
        chosen: Any = {self.axis: column}
        return Replace(self.site.name, layer=layer, kind=self.kind, value=value, **chosen)

    def told(
        self, values: Tensor, clean: float, corrupted: float, method: Literal["activation", "attribution"]
    ) -> Patching:
        return Patching(
            values=values,
            clean=clean,
            corrupted=corrupted,
            layers=tuple(self.taps),
            site=self.site.name,
            kind=self.kind,
            per=self.per,
            method=method,
        )


def _per(site: Site, per: Per | None) -> Per:
    has_heads = "head" in site.axes
    if per is None:
        return "head" if has_heads else "position"
    if per not in ("position", "head") or (per == "head" and not has_heads):
        wanted = '"position" or "head"' if has_heads else f'"position" at site {site.name!r}'
        raise InputError(f"per must be {wanted}; got {per!r}.")
    return per


def _check_lengths(clean: Mapping[StackKind, Encoding], corrupted: Mapping[StackKind, Encoding]) -> None:
    for kind, encoding in corrupted.items():
        one = len(clean[kind].tokens) if kind in clean else 0
        if one != len(encoding.tokens):
            raise InputError(
                f"clean and corrupted must have the same number of tokens, position by position; the {kind} "
                f"reads {one} and {len(encoding.tokens)}."
            )


def _difference(clean: Tensor, corrupted: Tensor, tap: str) -> Tensor:
    """clean - corrupted, in float64; 0 where the mask forbids in both."""
    same = clean == corrupted
    apart = torch.where(same, 0.0, clean.double() - corrupted.double())
    if bool(apart.isinf().any()):
        raise InputError(
            f"the two texts are masked differently at {tap!r}: no gradient bridges a score of -inf. Patch "
            "another site, or by method='activation'."
        )
    return apart
