"""Changing what a model computes, and asking what each part is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from regard import tracing
from regard.core.errors import InputError
from regard.model._tracing import Tracing

if TYPE_CHECKING:
    from torch import Tensor

    from regard.models import Kind
    from regard.tracing import (
        Edit,
        ExampleMetric,
        ImportanceMethod,
        Layers,
        Metric,
        Patching,
        PatchingMethod,
        Per,
        Progress,
        SiteName,
        TextOrIds,
    )
    from regard.tracing.record import Trace


class Interventions(Tracing):
    """Edits, patching between texts, and the importance of heads."""

    def edited(self, *edits: Edit) -> Self:
        """A second `Model` with the same parameters, which changes the numbers at chosen places.

        This model stays as it is, so threads can use both; no parameter is copied. The edits apply to every
        call and trace of the edited model, in the order given if they meet at one place;
        `model.edited(a).edited(b)` is `model.edited(a, b)`. Its traces hold the edited contexts and residuals
        and, if weights or scores were written, those weights; `trace.edits` says what each edit changed. The
        `transformers` model under a lens has no edits when you call it, or its `generate`, yourself.

        Args:
            edits: `regard.Write`, `Zero`, `Scale`, `Add`, `Replace`, `Mean`, `Resample`; see
                `regard.tracing.Edit` for what can be edited, and where.

        Returns:
            The edited model.

        Raises:
            InputError: the model lacks an edit's site, tap, layer or kind, or the network is in training
                mode. When the edited model runs: a head, position or word does not exist, or a value has
                another shape, dtype or device.

        Example:
            >>> import regard
            >>> model = regard.load()
            >>> text = "time flies like an arrow"
            >>> after = model.edited(regard.Zero("head", layer=3, head=5)).trace(text)
            >>> float(after.context(3, 5).abs().max())
            0.0
            >>> model.trace(text).embedding("flies").equal(after.embedding("flies"))
            False
        """
        return type(self)(tracing.edited(self.loaded, edits))

    def patch(
        self,
        clean: TextOrIds | Trace,
        corrupted: TextOrIds | Trace,
        metric: Metric,
        *,
        site: SiteName = "residual",
        kind: Kind | None = None,
        per: Per | None = None,
        layer: Layers = None,
        method: PatchingMethod = "activation",
        batch: int | None = None,
        progress: Progress | None = None,
    ) -> Patching:
        """Find where a model carries the difference between two texts: see `regard.tracing.patch`.

        Args:
            clean, corrupted: two texts with equally many tokens, or their token ids; or traces, for pairs and
                targets.
            metric, site, kind, per, layer, method, batch, progress: see `regard.tracing.patch`.

        Example:
            >>> import regard
            >>> model = regard.load()
            >>> def size(output):
            ...     return output.last_hidden_state[0, 4, 0]
            >>> model.patch("sitting on the river bank", "sitting on the money bank", size).values.shape
            torch.Size([7, 7])
        """
        return tracing.patch(
            self.loaded,
            self._traced("clean", clean),
            self._traced("corrupted", corrupted),
            metric,
            site=site,
            kind=kind,
            per=per,
            layer=layer,
            method=method,
            batch=batch,
            progress=progress,
        )

    def head_importance(
        self,
        examples: Sequence[TextOrIds | Trace],
        metric: ExampleMetric,
        *,
        method: ImportanceMethod = "gradient",
        kind: Kind | None = None,
        batch: int | None = None,
        progress: Progress | None = None,
    ) -> Tensor:
        """Measure how much each head matters to a metric: see `regard.tracing.head_importance`.

        Args:
            examples: texts, or their token ids; or traces, for pairs and targets.
            metric, method, kind, batch, progress: see `regard.tracing.head_importance`.

        Example:
            >>> import regard
            >>> model = regard.load()
            >>> model.head_importance(["a river bank"], lambda out, i: out.last_hidden_state.norm()).shape
            torch.Size([6, 12])
        """
        if not isinstance(examples, Sequence) or isinstance(examples, str):
            raise InputError(f"examples must be a list of texts or traces; got {type(examples).__name__}.")
        traces = [self._traced(f"examples[{number}]", each) for number, each in enumerate(examples)]
        return tracing.head_importance(
            self.loaded, traces, metric, method=method, kind=kind, batch=batch, progress=progress
        )
