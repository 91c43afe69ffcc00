"""What a model is worth with fewer and fewer heads: the curve, and its file."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from regard.core.arguments import check_function, whole
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError
from regard.core.progress import OnProgress
from regard.models import Heads, Loaded, head_words
from regard.pruning._prune import Importance, joined_steps, loads_in, prune, removal_order

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A model with some heads removed.

    Attributes:
        heads_removed: query heads that are gone.
        parameters: numbers that are left.
        bytes: what they take.
        metric: what the model is worth.
        loads_in: where its checkpoint loads.
        removed: which heads are gone, by kind of attention and layer.
    """

    heads_removed: int
    parameters: int
    bytes: int
    metric: float
    loads_in: tuple[str, ...]
    removed: Heads


@dataclass(frozen=True)
class PruningCurve(Displayable):
    """The points, the full model first.

    Args:
        points: with rising `heads_removed`.
    """

    points: tuple[CurvePoint, ...]

    def _parts(self) -> "Iterator[RenderableType]":
        yield plain_table(
            ["heads removed", "parameters", "weights", "metric"],
            [
                (
                    str(point.heads_removed),
                    f"{point.parameters / 1e6:.2f} M",
                    f"{point.bytes / 1e6:.1f} MB",
                    f"{point.metric:.4g}",
                )
                for point in self.points
            ],
            left=0,
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """The points as plain values, as JSON has them."""
        return [
            asdict(point)
            | {
                "loads_in": list(point.loads_in),
                "removed": {
                    part: {str(layer): list(heads) for layer, heads in layers.items()}
                    for part, layers in point.removed.items()
                },
            }
            for point in self.points
        ]

    def _cells(self) -> list[dict[str, Any]]:
        """Heads as words such as `3.5`, layer and head, or `cross.3.5` where there are several kinds."""
        # The last point has lost most, and so shows every kind that there is.
        several = len(self.points[-1].removed) > 1
        return [
            row
            | {
                "loads_in": "; ".join(point.loads_in),
                "removed": " ".join(head_words(point.removed, several=several)),
            }
            for row, point in zip(self.to_rows(), self.points, strict=True)
        ]


def pruning_curve(
    loaded: Loaded,
    importance: Importance,
    metric: Callable[[Loaded], float],
    *,
    evenly: bool | None = None,
    every: int = 1,
    progress: OnProgress = None,
) -> PruningCurve:
    """Remove heads step by step, the least important first, and measure what is left each time.

    The order is that of `removal_order`, fixed before the first step: importances of the full model.

    Args:
        loaded: the full model, which stays as it is.
        importance: (layers, heads), or by kind of attention, such as `head_importance` measures.
        metric: what a model is worth; called with the full model first, and with each smaller one.
        evenly: as in `removal_order`.
        every: measure after every so many steps; the last one is always measured.
        progress: called with (measured, to measure) after each.

    Raises:
        InputError: as in `removal_order`, `every` below 1, or a metric that is no finite number.

    Example:
        >>> from regard.pruning import pruning_curve
        >>> import torch
        >>> from regard.models import load_checkpoint
        >>> def heads(loaded):
        ...     return sum(layer.attention.num_heads for layer in loaded.network.encoder.layers)
        >>> curve = pruning_curve(load_checkpoint(), torch.rand(6, 12), heads, every=33)
        >>> [(point.heads_removed, point.metric) for point in curve.points]
        [(0, 72.0), (33, 39.0), (66, 6.0)]

    Source: Michel et al. 2019, arXiv 1905.10650, section 4.
    """
    every = whole("every", every, least=1)
    check_function("metric", metric, "from a model to one number")
    check_function("progress", progress, "of what is done and what there is", optional=True)
    # The whole order first: importances are those of the full model.
    steps = removal_order(loaded.network, importance, evenly=evenly)
    # The full model, every so many steps, and the last.
    ends = sorted({0, *range(0, len(steps) + 1, every), len(steps)})
    points = []
    for done, end in enumerate(ends, 1):
        # Always from the full model: cut after cut would number heads anew.
        removed = joined_steps(steps[:end])
        smaller = prune(loaded, removed) if end else loaded
        parameters = list(smaller.network.parameters())
        points.append(
            CurvePoint(
                heads_removed=sum(len(heads) for layers in removed.values() for heads in layers.values()),
                parameters=sum(each.numel() for each in parameters),
                bytes=sum(each.numel() * each.element_size() for each in parameters),
                metric=_finite(metric(smaller)),
                loads_in=loads_in(smaller),
                removed=removed,
            )
        )
        if progress is not None:
            progress(done, len(ends))
    return PruningCurve(tuple(points))


def _finite(value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InputError(f"metric must return a number; got {value!r}.") from error
    if not math.isfinite(number):
        raise InputError(f"metric must return a finite number; got {number}.")
    return number
