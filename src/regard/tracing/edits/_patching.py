"""Activation patching, and its estimate by one gradient: where the difference of two texts is carried."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.core.arguments import check_function, one_of
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.memory import check_room
from regard.core.progress import OnProgress
from regard.models import Kind, Loaded, StackKind
from regard.text import Encoding
from regard.tracing.edits._changes import Replace
from regard.tracing.edits._edit import (
    SITES,
    Layer,
    Layers,
    Site,
    SiteName,
    encodings_of,
    stack_along,
    taps_of,
)
from regard.tracing.edits._network import outputs_of
from regard.tracing.record import Trace
from regard.tracing.run import Metric, check_mode, gradients_at, number_of, seen_at

if TYPE_CHECKING:
    from rich.console import RenderableType

Per = Literal["position", "head", "neuron"] | tuple[Literal["head", "neuron"], Literal["position"]]
"""What a cell is in its layer: a position, a head or a neuron, or one of these at one position."""

PatchingMethod = Literal["activation", "attribution"]

_SHOWN: Final = 12
"""Cells that are printed."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Patching(Displayable):
    """The metric of the corrupted text, with one cell at a time as it is in the clean text.

    `print` shows the cells that change it most.

    Args:
        values: float64 (layers, positions, heads or neurons), or (layers, heads or neurons, positions): the
            metric with that cell patched; by attribution, its first-order estimate.
        clean, corrupted: the metric of the two texts, unpatched.
        layers: the layer of each row, named as in `Edit`.
        site, kind, per, method: what was asked for.
        tokens: the clean text's at the positions, as people read them; () where they are not known.

    Example:
        >>> from regard.tracing import Patching
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
    method: PatchingMethod
    tokens: tuple[str, ...] = ()

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

    @property
    def axes(self) -> tuple[str, ...]:
        return ("layer", *_several(self.per))

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a cell: its layer, its head or neuron and its position, and the metric with it patched."""
        rows = []
        for cell in product(*map(range, self.values.shape)):
            value = float(self.values[cell])
            row = dict(zip(self.axes, (self.layers[cell[0]], *cell[1:]), strict=True))
            # Positions are the last axis, where they are one.
            token = {"token": self.tokens[cell[-1]]} if self.tokens else {}
            rows.append({**row, **token, "value": value, "effect": value - self.corrupted})
        return rows

    def __repr__(self) -> str:
        sizes = " x ".join(f"{size} {axis}s" for size, axis in zip(self.values.shape, self.axes, strict=True))
        return (
            f"Patching({self.method} at {self.kind} {self.site}, {sizes}, "
            f"clean {self.clean:.6g}, corrupted {self.corrupted:.6g})"
        )

    def _parts(self) -> "Iterator[RenderableType]":
        yield f"{self.method.title()} patching at {self.kind} {self.site}."
        yield f"The metric is {self.clean:.3f} clean, {self.corrupted:.3f} corrupted. With a cell patched:\n"
        apart = self.clean - self.corrupted
        # NaN where a layer has no such head.
        rows = [row for row in self.to_rows() if not math.isnan(row["value"])]
        rows.sort(key=lambda row: -abs(row["effect"]))
        columns = [name for name in rows[0] if name not in ("value", "effect")]
        cells = [
            (
                *(str(row[name]) for name in columns),
                f"{row['value']:.3f}",
                f"{row['effect']:+.3f}",
                f"{row['effect'] / apart:.0%}" if apart else "-",
            )
            for row in rows[:_SHOWN]
        ]
        yield plain_table([*columns, "value", "effect", "recovered"], cells, left=len(columns))
        if len(rows) > _SHOWN:
            yield f"\nand {len(rows) - _SHOWN:,} cells that change less"


def patch(
    loaded: Loaded,
    clean: Trace,
    corrupted: Trace,
    metric: Metric,
    *,
    site: SiteName = "residual",
    kind: Kind | None = None,
    per: Per | None = None,
    layer: Layers = None,
    method: PatchingMethod = "activation",
    batch: int | None = None,
    progress: OnProgress = None,
) -> Patching:
    """Find where a model carries the difference between two texts, by patching one cell at a time.

        "activation"   values[l, p] = metric(corrupted text, with the clean text's tensor in layer l at p)
        "attribution"  values[l, p] = metric(corrupted) + sum of (clean - corrupted) * d metric / d corrupted

    A cell is a layer and a position, a head or a neuron, or one of these at one position; by activation
    cells run together, as the rows of a batch. The first-order estimate takes two passes forward and one
    back for all cells. It is exact where the metric is a linear function of the site, such as a readout of
    the last residual; else as good as the model is linear between the two texts.

    Args:
        loaded: the model.
        clean, corrupted: traces of two texts with as many tokens; only their tokens are read.
        metric: from a `regard.models.Output` (batch 1, with logits) to one number; for "attribution" a
            differentiable tensor.
        site, kind, layer: as in `Edit`.
        per: "position" (of k and v the key's; of weights and scores the query's row) takes all heads of a
            position, "head" or "neuron" one of these at all positions, ("head", "position") one head at one
            position, and ("neuron", "position") one neuron; by default "head" where the site has heads.
        method: see above.
        batch: how many cells run in one pass; by default as many as have 2,048 tokens, and 2^26 logits.
            Give 1 where the model takes no batches.
        progress: called with (done, total) after each cell, by activation.

    Returns:
        The table: see `Patching`.

    Raises:
        InputError: texts of different length, a site, kind, layer or method that there is not, a metric that
            is no finite number (or has no gradient), scores that the two texts mask differently (by
            attribution), or a network in training mode.

    Example:
        >>> from regard.tracing import patch
        >>> import regard
        >>> model = regard.load()
        >>> river, money = model.trace(["the river bank", "the money bank"])
        >>> def size(out):
        ...     return out.last_hidden_state[0, 3, 7]
        >>> exact = patch(model.loaded, river, money, size, layer=6)
        >>> abs(float(exact.recovered.sum()) - 1.0) < 1e-4  # the last state, position by position
        True
        >>> guess = patch(model.loaded, river, money, size, method="attribution")
        >>> bool((guess.values[6] - exact.values[0]).abs().max() < 1e-6)  # a linear readout
        True

    Sources: Vig et al. 2020, arXiv 2004.12265, section 3; Nanda 2023, "Attribution patching: activation
    patching at industrial scale"; Syed et al. 2023, arXiv 2310.10348, section 3.
    """
    if method not in get_args(PatchingMethod):
        raise InputError(f'method must be "activation" or "attribution"; got {method!r}.')
    network, at = loaded.network, SITES[one_of("site", site, SITES)]
    kind = at.kind(kind, network)
    check_function("metric", metric, "from an output to one number")
    check_function("progress", progress, "of what is done and what there is", optional=True)
    check_mode(network)
    _check_lengths(encodings_of(clean), encodings_of(corrupted))
    taps = taps_of(at, kind, network, layer)
    per, names = _per(at, per), list(taps.values())
    # The axes that cells are counted along, and their places.
    positions = next(each for each in at.axes if each != "head")
    along = [positions if each == "position" else each for each in _several(per)]
    dims = [at.axes.index(axis) for axis in along]
    if at.is_matrix:
        queries, keys = (len(side.tokens) for side in clean.sides(kind))
        # The clean text's in float32; with a gradient some eight such numbers, as measured.
        entries = (8 if method == "attribution" else 1) * network.config.num_heads * queries * keys
        check_room(
            f"patching {at.name} of {queries} x {keys} tokens in {len(names)} layers",
            4.0 * entries * len(names),
            next(network.parameters()).device,
            "choose a layer=, or give shorter texts",
        )
    with torch.no_grad():
        output, kept = seen_at(names, clean, network, logits=True)
        of_clean = number_of("metric", metric(output))
    # A sink is no key, and stays.
    if at.is_matrix:
        kept = {tap: value[..., :keys] for tap, value in kept.items()}
    if method == "attribution":
        activations, moves, of_corrupted = gradients_at(corrupted, network, names, metric, called="metric")
        rows = [
            # (clean - corrupted) . d metric / d activation, on the corrupted text.
            _summed(_difference(kept[tap], activations[tap], tap) * moves[tap].double(), dims) + of_corrupted
            for tap in names
        ]
    else:
        # Each cell by itself, as a row of a batch; the corrupted text without a patch is the first row.
        sizes = [[kept[tap].shape[1 + dim] for dim in dims] for tap in names]
        cells = [
            Replace(
                at.name,
                layer=number,
                kind=kind,
                value=_cell(kept[tap][0], dims, cell),
                **dict(zip(along, cell, strict=True)),
            )
            for (number, tap), size in zip(taps.items(), sizes, strict=True)
            for cell in product(*map(range, size))
        ]
        outputs = outputs_of(network, corrupted, [None, *cells], batch=batch)
        numbers = []
        # The first is the corrupted text as it is.
        for done, output in enumerate(outputs):
            numbers.append(number_of("metric", metric(output)))
            if progress is not None and done:
                progress(done, len(cells))
        of_corrupted, values = numbers[0], torch.tensor(numbers[1:], dtype=torch.float64)
        # Layers may have different numbers of heads: rows of their own, filled up with NaN.
        parts = torch.split(values, [math.prod(size) for size in sizes])
        rows = [part.reshape(size) for part, size in zip(parts, sizes, strict=True)]
    return Patching(
        values=pad_sequence(rows, batch_first=True, padding_value=math.nan),
        clean=of_clean,
        corrupted=of_corrupted,
        layers=tuple(taps),
        site=at.name,
        kind=kind,
        per=per,
        method=method,
        tokens=tuple(clean.stack(stack_along(kind, along[-1])).shown) if "position" in _several(per) else (),
    )


def _several(per: Per) -> tuple[str, ...]:
    return per if isinstance(per, tuple) else (per,)


def _cell(value: Tensor, dims: list[int], cell: tuple[int, ...]) -> Tensor:
    """One cell of a tensor without the batch, whose axes stay."""
    for dim, place in zip(dims, cell, strict=True):
        value = value.narrow(dim, place, 1)
    return value


def _summed(values: Tensor, dims: list[int]) -> Tensor:
    """The sum over all axes but these, in their order, counted without the batch; on the CPU."""
    first = values[0].movedim(dims, list(range(len(dims))))
    return first.reshape(*first.shape[: len(dims)], -1).sum(dim=-1).cpu()


def _per(site: Site, per: Per | None) -> Per:
    parts = [each for each in ("head", "neuron") if each in site.axes]
    if per is None:
        return "head" if "head" in parts else "position"
    if per not in ("position", *parts, *((each, "position") for each in parts)):
        wanted = "".join(f', "{each}" or ("{each}", "position")' for each in parts)
        raise InputError(f'per must be "position"{wanted} at site {site.name!r}; got {per!r}.')
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
    """clean - corrupted, in float64; 0 where the mask forbids in both, and of a sink."""
    # The sink's column is the corrupted text's own, and so differs by 0.
    clean = torch.cat((clean, corrupted[..., clean.shape[-1] :]), dim=-1)
    # Equal infinities: forbidden in both texts.
    same = clean == corrupted
    apart = torch.where(same, 0.0, clean.double() - corrupted.double())
    if bool(apart.isinf().any()):
        raise InputError(
            f"the two texts are masked differently at {tap!r}: no gradient bridges a score of -inf. Patch "
            "another site, or by method='activation'."
        )
    return apart
