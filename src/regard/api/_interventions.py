"""Changing what a model computes, asking what each part is worth, and leaving heads out for good."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

from regard import tracing
from regard.api._tracing import Tracing
from regard.core.arguments import check_function
from regard.core.errors import InputError
from regard.core.progress import Bar, OnProgress
from regard.models import Heads, OfLayers, Part, save_checkpoint
from regard.pruning import Importance, PruningCurve, loads_in, prune, pruning_curve, weakest_heads

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
        SiteName,
        TextOrIds,
    )
    from regard.tracing.record import Trace


class Interventions(Tracing):
    """Edits, patching between texts, the importance of heads, and models that are left without some."""

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
        progress: OnProgress = None,
    ) -> Patching:
        """Find where a model carries the difference between two texts: see `regard.tracing.patch`.

        Args:
            clean, corrupted: two texts with equally many tokens, or their token ids; or traces, for pairs and
                targets.
            metric, site, kind, per, layer, method, batch: see `regard.tracing.patch`.
            progress: called with (done, total) after each cell, by activation; by default a bar, which
                appears after three seconds on a terminal and in a notebook.

        Example:
            >>> import regard
            >>> model = regard.load()
            >>> def size(output):
            ...     return output.last_hidden_state[0, 4, 0]
            >>> model.patch("sitting on the river bank", "sitting on the money bank", size).values.shape
            torch.Size([7, 7])
        """
        with Bar("cells", patience=3.0) as bar:
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
                progress=bar if progress is None else progress,
            )

    def head_importance(
        self,
        examples: Sequence[TextOrIds | Trace],
        metric: ExampleMetric,
        *,
        method: ImportanceMethod = "gradient",
        kind: Kind | None = None,
        batch: int | None = None,
        progress: OnProgress = None,
    ) -> Tensor:
        """Measure how much each head matters to a metric: see `regard.tracing.head_importance`.

        Args:
            examples: texts, or their token ids; or traces, for pairs and targets.
            metric, method, kind, batch: see `regard.tracing.head_importance`.
            progress: called with (done, total) after each example, or each head of one; by default a bar, as
                in `patch`.

        Example:
            >>> import regard
            >>> model = regard.load()
            >>> model.head_importance(["a river bank"], lambda out, i: out.last_hidden_state.norm()).shape
            torch.Size([6, 12])
        """
        if not isinstance(examples, Sequence) or isinstance(examples, str):
            raise InputError(f"examples must be a list of texts or traces; got {type(examples).__name__}.")
        traces = [self._traced(f"examples[{number}]", each) for number, each in enumerate(examples)]
        with Bar("examples" if method == "gradient" else "heads", patience=3.0) as bar:
            told = bar if progress is None else progress
            return tracing.head_importance(
                self.loaded, traces, metric, method=method, kind=kind, batch=batch, progress=told
            )

    def prune(self, heads: OfLayers | Mapping[Part, OfLayers]) -> Self:
        """A smaller model without these heads, with weights of its own: see `regard.pruning.prune`.

        Args:
            heads: {layer: [heads]}; by kind of attention where there are several, {"cross": {0: [3]}}.

        Example:
            >>> import regard
            >>> regard.load().prune({0: [3, 5], -1: [11]}).loads_in
            ('regard', 'transformers 5 with trust_remote_code=True', 'transformers 4')
        """
        return type(self)(prune(self.loaded, heads))

    def weakest_heads(self, importance: Importance, number: int, *, evenly: bool | None = None) -> Heads:
        """The heads to prune first by an importance: see `regard.pruning.weakest_heads`."""
        return weakest_heads(self.network, importance, number, evenly=evenly)

    def pruning_curve(
        self,
        importance: Importance,
        metric: Callable[[Self], float],
        *,
        evenly: bool | None = None,
        every: int = 1,
        progress: OnProgress = None,
    ) -> PruningCurve:
        """What the model is worth with fewer and fewer heads: see `regard.pruning.pruning_curve`."""
        check_function("metric", metric, "from a model to one number")
        return pruning_curve(
            self.loaded,
            importance,
            lambda loaded: metric(type(self)(loaded)),
            evenly=evenly,
            every=every,
            progress=progress,
        )

    @property
    def loads_in(self) -> tuple[str, ...]:
        """Where what `save` writes can be loaded: see `regard.pruning.loads_in`."""
        return loads_in(self.loaded)

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write config.json, the weights and the tokenizer to a new folder: see `regard.models`.

        Raises:
            OutputError: the folder exists, or cannot be written; nothing is left behind.
        """
        return save_checkpoint(self.loaded, folder)
