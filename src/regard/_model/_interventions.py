"""Changing what a model computes, and asking what each part is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Self

from regard import tracing
from regard._model._tracing import Tracing
from regard.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.models import Kind
    from regard.tracing import (
        Edit,
        ExampleMetric,
        ImportanceMethod,
        Metric,
        Numbers,
        Patching,
        Per,
        Progress,
        SiteName,
    )
    from regard.tracing.record import Trace


class Interventions(Tracing):
    """Edits, patching between texts, and the importance of heads."""

    @contextmanager
    def edit(self, *edits: Edit) -> Iterator[Self]:
        """The model with edits, for the time of a block: another `Model`, on the same parameters.

        Only what the context manager gives is changed; this model is not, so that threads can use both.
        Nothing is copied, and nothing stays in the model, also after an exception. The edits are made in
        every call and trace of the edited model, in the order given where they meet. Its traces hold what was
        used: the edited contexts and residuals, and where weights or scores were written, these weights.

        Args:
            edits: `regard.Zero`, `Scale`, `Add`, `Replace`, `Mean`, `Resample`; see `regard.tracing.Edit` for
                what can be edited, and where.

        Returns:
            A context manager that gives the edited model.

        Raises:
            InputError: at the start, an edit that the model has no place for (site, layer, head, kind), or a
                network in training mode; when the edited model is run, before anything is computed, a
                position or word that is not in the text, or a value of another shape, dtype or device, or
                with NaN or infinity (but -inf for scores); as it runs, an edit that makes such a number;
                afterwards, an edit that wrote nothing but what was there; at the end of the block, edited
                models that were never run.

        Example:
            >>> import regard
            >>> model = regard.load()
            >>> text = "time flies like an arrow"
            >>> with model.edit(regard.Zero("head", layer=3, head=5)) as edited:
            ...     after = edited.trace(text)
            >>> float(after.context(3, 5).abs().max())
            0.0
            >>> before = model.trace(text)
            >>> before.embedding("flies").equal(after.embedding("flies"))
            False
        """
        with tracing.edited(self.loaded, edits) as loaded:
            yield type(self)(loaded)

    def patch(
        self,
        clean: str | Trace,
        corrupted: str | Trace,
        metric: Metric,
        *,
        site: SiteName = "residual",
        kind: Kind | None = None,
        per: Per | None = None,
        layer: Numbers = None,
        method: Literal["activation", "attribution"] = "activation",
        progress: Progress | None = None,
    ) -> Patching:
        """Where the difference between two texts is carried: see `regard.tracing.activation_patching`.

        Args:
            clean, corrupted: two texts of as many tokens; or traces of a pair, of token ids, with a target.
            metric, site, kind, per, layer, progress: see there.
            method: "activation" runs the model once for each place; "attribution" estimates all of them from
                one gradient: see `regard.tracing.attribution_patching`.

        Raises:
            InputError: see there.

        Example:
            >>> import regard
            >>> model = regard.load()
            >>> def size(output):
            ...     return output.last_hidden_state[0, 4, 0]
            >>> model.patch("sitting on the river bank", "sitting on the money bank", size).values.shape
            torch.Size([7, 7])
        """
        texts = self._traced("clean", clean), self._traced("corrupted", corrupted)
        if method == "activation":
            return tracing.activation_patching(
                self.loaded, *texts, metric, site=site, kind=kind, per=per, layer=layer, progress=progress
            )
        if method != "attribution":
            raise InputError(f'method must be "activation" or "attribution"; got {method!r}.')
        return tracing.attribution_patching(
            self.loaded, *texts, metric, site=site, kind=kind, per=per, layer=layer
        )

    def head_importance(
        self,
        examples: Sequence[str | Trace],
        metric: ExampleMetric,
        *,
        method: ImportanceMethod = "gradient",
        kind: Kind | None = None,
        progress: Progress | None = None,
    ) -> Tensor:
        """What each head is worth to a metric over examples: see `regard.tracing.head_importance`.

        Args:
            examples: texts; or traces of pairs, of token ids, or with a target.
            metric, method, kind, progress: see there.

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
            self.loaded, traces, metric, method=method, kind=kind, progress=progress
        )
