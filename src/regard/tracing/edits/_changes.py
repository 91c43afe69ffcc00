"""The edits: zero, scale, add, replace, mean and resample."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from regard.core import Causal, Mask, Padding, Window, padding_of
from regard.core.arguments import number, whole
from regard.core.errors import InputError
from regard.tracing.edits._capture import Captured
from regard.tracing.edits._edit import Edit, Write, fitting, taken
from regard.tracing.edits._places import Place, Positions
from regard.tracing.record import Trace


@dataclass(frozen=True, eq=False)
class Zero(Edit):
    """Zero ablation: 0 takes the place; of scores, -inf.

    A weight of zero takes nothing and leaves the other weights as they are: the row then sums to less than
    one. A score of -inf removes the pair before the softmax: the row still sums to one (attention knockout,
    Geva et al. 2023, arXiv 2304.14767, section 3.2). A row without any score left has weights of zero.

    Args:
        site, layer, head, query, key, kind: where; see `Edit`.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> with model.edit(regard.Zero("weights", layer=3, head=5, key="[SEP]")) as edited:
        ...     trace = edited.trace("time flies like an arrow")
        >>> trace.weights(layer=3, head=5)[:, -1].tolist()
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """

    def writer(self, place: Place, sources: Sequence[Captured]) -> Write:
        """See `Edit.writer`."""
        value = -math.inf if place.site.name == "scores" else 0.0
        return lambda _, part: torch.full_like(part, value)


@dataclass(frozen=True, eq=False)
class Scale(Edit):
    """x becomes factor * x. A score of -inf, which the mask forbids, stays.

    Args:
        site, layer, head, query, key, kind: where; see `Edit`.
        factor: any finite number.

    Raises:
        InputError: a factor that is no finite number.

    Example:
        >>> import regard
        >>> with regard.load().edit(regard.Scale("attention", layer=2, factor=0.5)) as edited:
        ...     trace = edited.trace("time flies like an arrow")
    """

    _: KW_ONLY
    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        number("factor", self.factor)

    def writer(self, place: Place, sources: Sequence[Captured]) -> Write:
        """See `Edit.writer`."""
        factor = float(self.factor)
        return lambda _, part: torch.where(part.isinf(), part, part * factor)


@dataclass(frozen=True, eq=False)
class Add(Edit):
    """x becomes x + value: a vector added to the residual stream steers the model.

    Args:
        site, layer, head, query, key, kind: where; see `Edit`.
        value: a tensor of the shape of the chosen part, or of its last axes, such as one vector (d_model,)
            for all positions, in its dtype and on its device.

    Raises:
        InputError: a value that is no tensor; in the forward pass, one that does not fit.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> with model.edit(regard.Add("residual", layer=2, value=torch.ones(384), query="flies")) as edited:
        ...     trace = edited.trace("time flies like an arrow")

    Source: Turner et al. 2023, arXiv 2308.10248, section 3.
    """

    _: KW_ONLY
    value: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_tensor("value", self.value)

    def writer(self, place: Place, sources: Sequence[Captured]) -> Write:
        """See `Edit.writer`."""
        value = fitting("value", self.value, place)
        return lambda _, part: part + value


@dataclass(frozen=True, eq=False)
class Replace(Edit):
    """x becomes value: a tensor, or what another text had at the same site (activation patching).

    From a trace, the tensor at the same tap, layers and heads is taken, of its tokens `source`: the trace's
    model is run on its text once more.

    Args:
        site, layer, head, query, key, kind: where; see `Edit`.
        value: a tensor as in `Add`, or a trace of a model with the same sizes.
        source: which tokens of the trace; by default those that are chosen here, by the same indexes or the
            same word of its text. As many as are chosen here.

    Raises:
        InputError: a value that is neither, or a source without a trace; in the forward pass, a value that
            does not fit.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> money = model.trace("a man withdrawing money from a bank")
        >>> patch = regard.Replace("residual", layer=2, value=money, query="bank")
        >>> with model.edit(patch) as edited:
        ...     trace = edited.trace("a man fishing on a river bank")
        >>> torch.equal(trace.embedding("bank", 2), money.embedding("bank", 2))
        True

    Source: Vig et al. 2020, arXiv 2004.12265, section 3; Meng et al. 2022, arXiv 2202.05262, section 2.1.
    """

    _: KW_ONLY
    value: Tensor | Trace
    source: Positions = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.value, Trace):
            return
        _check_tensor("value", self.value, "or a regard.Trace")
        if self.source is not None:
            raise InputError("source must be None with a tensor: it chooses tokens of a trace.")

    def traces(self) -> Sequence[Trace]:
        """See `Edit.traces`."""
        return (self.value,) if isinstance(self.value, Trace) else ()

    def writer(self, place: Place, sources: Sequence[Captured]) -> Write:
        """See `Edit.writer`."""
        if isinstance(self.value, Tensor):
            value = fitting("value", self.value, place)
        else:
            chosen, name = _tokens(self), None
            if self.source is not None:
                chosen["key" if "query" not in place.site.axes else "query"], name = self.source, "source"
            value = fitting("value", taken(sources[0], place, chosen, name), place)
        return lambda _, part: value.expand_as(part)


@dataclass(frozen=True, eq=False)
class Mean(Edit):
    """Mean ablation: the mean over a reference takes the place.

    Vectors (q, k, v, contexts, residuals and the rest): one mean over all tokens of all texts of the
    reference, for each head, in the place of every chosen position. Weights and scores: entry by entry, over
    texts with as many tokens.

    Args:
        site, layer, head, query, key, kind: where; see `Edit`.
        reference: traces; or a tensor of samples (samples, ...), each as a value of `Add`, of which the mean
            is taken.

    Raises:
        InputError: a reference that is neither; in the forward pass, one that does not fit.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> reference = model.trace(["a river", "some money", "an arrow"])
        >>> with model.edit(regard.Mean("head", layer=3, head=5, reference=reference)) as edited:
        ...     trace = edited.trace("time flies like an arrow")
        >>> bool((trace.context(3, 5) == trace.context(3, 5)[0]).all())
        True

    Source: Wang et al. 2022, arXiv 2211.00593, section 2.1.
    """

    _: KW_ONLY
    reference: Tensor | Trace | Sequence[Trace]

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_reference(self.reference)

    def traces(self) -> Sequence[Trace]:
        """See `Edit.traces`."""
        return _traces(self.reference)

    def writer(self, place: Place, sources: Sequence[Captured]) -> Write:
        """See `Edit.writer`."""
        if isinstance(self.reference, Tensor):
            value = fitting("the mean of reference", self.reference.mean(dim=0), place)
        elif place.site.is_matrix:
            value = _matrices(self, place, sources).mean(dim=0)
        else:
            value = _pool(place, sources).mean(dim=-2, keepdim=True)
            value = value.expand(*value.shape[:-2], place.shape[-2], -1)
            value = fitting("the mean of reference", value, place)
        return lambda _, part: value.expand_as(part)


@dataclass(frozen=True, eq=False)
class Resample(Edit):
    """Resample ablation: what another position, or another text, has takes the place; drawn with a seed.

    Vectors: each chosen position gets that of a position drawn, evenly, from all tokens of the reference, or
    without a reference from the other tokens of the same text, of which padding is none; all heads and layers
    from the same one. Weights and scores: each chosen row gets the same row of a text drawn
    from the reference, whose texts have as many tokens.

    Args:
        site, layer, head, query, key, kind: where; see `Edit`.
        reference: traces; None, for vectors, is the text itself.
        seed: of the draws; the same seed draws the same in every forward pass.

    Raises:
        InputError: a reference that is none; in the forward pass, one that does not fit, or a text of one
            position without a reference.

    Example:
        >>> import regard
        >>> with regard.load().edit(regard.Resample("head", layer=3, head=5, seed=7)) as edited:
        ...     trace = edited.trace("time flies like an arrow")

    Source: Chan et al. 2022, "Causal scrubbing", Alignment Forum, on resampling ablations.
    """

    _: KW_ONLY
    reference: Trace | Sequence[Trace] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reference is not None:
            _check_reference(self.reference, tensors=False)
        elif self.where.is_matrix:
            raise InputError(
                f"reference must be traces at site {self.site!r}: the mask lets no row take another's place."
            )
        whole("seed", self.seed, least=0, most=2**63 - 1)

    def traces(self) -> Sequence[Trace]:
        """See `Edit.traces`."""
        return () if self.reference is None else _traces(self.reference)

    def writer(self, place: Place, sources: Sequence[Captured]) -> Write:
        """See `Edit.writer`."""
        generator = torch.Generator().manual_seed(int(self.seed))
        device = place.device
        if place.site.is_matrix:
            samples = _matrices(self, place, sources)
            rows = place.shape[2]
            drawn = torch.randint(len(samples), (rows,), generator=generator).to(device)
            row = torch.arange(rows, device=device)
            mixed = samples[drawn, :, row].transpose(0, 1)  # (heads, rows, columns)
            return lambda _, part: mixed.expand_as(part)
        count = place.shape[-2]
        if sources:
            pool = _pool(place, sources)
            drawn = torch.randint(pool.shape[-2], (count,), generator=generator).to(device)
            value = fitting("reference", pool.index_select(-2, drawn), place)
            return lambda _, part: value.expand_as(part)
        return self._of_the_same_text(place, count, generator)

    def _of_the_same_text(self, place: Place, count: int, generator: torch.Generator) -> Write:
        own = place.chosen[place.site.axes[-1]]
        steps = torch.randint(2**62, (count,), generator=generator).to(place.device)
        padded = _padding(place.mask)

        def write(value: Tensor, part: Tensor) -> Tensor:
            length = value.shape[-2]
            real = torch.ones(1, length, dtype=torch.bool) if padded is None else padded
            others = _others(real.expand(len(value), -1).to(value.device), own, steps)
            heads = place.chosen["head"] if place.site.axes[0] == "head" else None
            if heads is not None:
                value = value.index_select(1, torch.tensor(heads, device=value.device))
            index = others[:, None, :, None] if value.ndim == 4 else others[:, :, None]
            return value.take_along_dim(index, dim=-2)

        return write


def _padding(mask: Mask | None) -> Tensor | None:
    """bool (batch or 1, tokens), which are no padding; None where all are.

    Raises:
        InputError: a mask that may hold several texts in a row, of which none may be drawn from another.
    """
    for part in () if mask is None else mask.parts():
        if not isinstance(part, Padding | Causal | Window):
            raise InputError(
                f"reference must be traces under a mask of {type(part).__name__}, by which a row may hold "
                "several texts; without a reference give the texts as rows of their own."
            )
    return padding_of(mask)


def _others(real: Tensor, own: Sequence[int] | None, steps: Tensor) -> Tensor:
    """int64 (batch, chosen), for each position chosen another token of its text; padding stays.

    Args:
        real: bool (batch, tokens), which are no padding.
        own: the positions chosen; None for all.
        steps: (chosen,), how many tokens further on, round and round.
    """
    at = torch.tensor(range(real.shape[1]) if own is None else own, device=real.device)
    chosen, count = real[:, at], real.sum(dim=1, keepdim=True)
    if bool((chosen & (count < 2)).any()):
        raise InputError("reference must be traces for a text of one position: it has no other.")
    number = real.cumsum(dim=1)[:, at] - 1
    others = (number + 1 + steps % (count - 1).clamp(min=1)) % count.clamp(min=1)
    in_order = real.argsort(dim=1, descending=True, stable=True)
    return torch.where(chosen, in_order.gather(1, others), at)


def _tokens(edit: Edit) -> dict[str, Positions]:
    return {"query": edit.query, "key": edit.key}


def _pool(place: Place, sources: Sequence[Captured]) -> Tensor:
    """The vectors of all tokens of all texts: (heads chosen, tokens, dim), or (tokens, dim)."""
    everything: Mapping[str, Positions] = {"query": None, "key": None}
    return torch.cat([taken(source, place, everything) for source in sources], dim=-2)


def _matrices(edit: Edit, place: Place, sources: Sequence[Captured]) -> Tensor:
    """What each text has at the same place: (texts, heads, queries, keys)."""
    found = [fitting("reference", taken(source, place, _tokens(edit)), place) for source in sources]
    return torch.stack(found)


def _traces(reference: Tensor | Trace | Sequence[Trace]) -> Sequence[Trace]:
    if isinstance(reference, Tensor):
        return ()
    return (reference,) if isinstance(reference, Trace) else tuple(reference)


def _check_tensor(name: str, value: object, otherwise: str = "") -> None:
    if not isinstance(value, Tensor):
        wanted = " ".join(["a tensor", otherwise]).rstrip()
        raise InputError(f"{name} must be {wanted}; got {type(value).__name__}.")


def _check_reference(reference: object, *, tensors: bool = True) -> None:
    if isinstance(reference, Trace):
        return
    if tensors and isinstance(reference, Tensor):
        if reference.ndim < 2 or not len(reference) or not reference.is_floating_point():
            raise InputError(
                "reference must be traces, or floating point samples (samples, ...), at least one; got "
                f"{reference.dtype} of shape {tuple(reference.shape)}."
            )
        return
    if (
        isinstance(reference, Tensor)
        or not isinstance(reference, Sequence)
        or not reference
        or not all(isinstance(each, Trace) for each in reference)
    ):
        raise InputError(f"reference must be traces, at least one; got {type(reference).__name__}.")
