"""The edits: write, zero, scale, add, replace, mean and resample."""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated

import torch
from torch import Tensor

from regard.core import Causal, Mask, Padding, Window, padding_of
from regard.core.arguments import Finite, check_function, wholes
from regard.core.errors import InputError
from regard.tracing.edits._edit import Axis, Edit, Part, Positions, Site, stack_along
from regard.tracing.record import Trace


@dataclass(frozen=True, eq=False, repr=False)
class Write(Edit):
    """Replace x by function(x): a projection, a clamp, the reconstruction of a sparse autoencoder.

    Args:
        site: a site or a tap; see `Edit`.
        function: from the chosen part of the tensor, the batch first, to what stands there from now on: a
            tensor of its dtype and device, of a shape that broadcasts to its own. It gets a copy, which it
            may write into.
        layer, head, query, key, neuron, kind: see `Edit`.

    Raises:
        InputError: no function; in the forward pass, something else than such a tensor.

    Example:
        >>> import torch
        >>> import regard
        >>> model = regard.load()
        >>> clamp = regard.Write("neuron", lambda x: x.clamp(max=0.5), layer=3)
        >>> direction = torch.nn.functional.normalize(torch.ones(384), dim=0)
        >>> project = regard.Write("layers.2.output", lambda x: x - (x @ direction)[..., None] * direction)
        >>> trace = model.edited(clamp, project).trace("time flies like an arrow")
        >>> bool((trace.embeddings(3) @ direction).abs().max() < 1e-5)
        True
    """

    function: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_function("function", self.function, "from the tensor at a site to what takes its place")

    def change(self, part: Part) -> Tensor:
        # A copy, since the function may write in place.
        return part.fitting("what function returns", self.function(part.x.clone()))


@dataclass(frozen=True, eq=False, repr=False)
class Zero(Edit):
    """Replace x by 0 (zero ablation); scores by -inf.

    A weight of zero takes nothing and leaves the other weights as they are: the row then sums to less than
    one. A score of -inf removes the pair before the softmax: the row still sums to one (attention knockout,
    Geva et al. 2023, arXiv 2304.14767, section 3.2). A row without any score left has weights of zero.

    Args:
        site, layer, head, query, key, neuron, kind: where; see `Edit`.

    Example:
        >>> import regard
        >>> edited = regard.load().edited(regard.Zero("weights", layer=3, head=5, key="[SEP]"))
        >>> edited.trace("time flies like an arrow").weights(layer=3, head=5)[:, -1].tolist()
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """

    def change(self, part: Part) -> Tensor:
        return torch.full_like(part.x, -math.inf if part.target.site.name == "scores" else 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class Scale(Edit):
    """Replace x by factor * x. A score of -inf, which the mask forbids, stays.

    Args:
        site, layer, head, query, key, neuron, kind: where; see `Edit`.
        factor: any finite number.

    Raises:
        InputError: a factor that is no finite number.

    Example:
        >>> import regard
        >>> edited = regard.load().edited(regard.Scale("attention", layer=2, factor=0.5))
        >>> trace = edited.trace("time flies like an arrow")
    """

    _: KW_ONLY
    factor: Finite

    def change(self, part: Part) -> Tensor:
        # -inf times 0 would be NaN, and times a negative factor would show what the mask hides.
        return torch.where(part.x.isinf(), part.x, part.x * float(self.factor))


@dataclass(frozen=True, eq=False, repr=False)
class Add(Edit):
    """Replace x by x + value: a vector added to the residual stream steers the model.

    Args:
        site, layer, head, query, key, neuron, kind: where; see `Edit`.
        value: a tensor that broadcasts to the chosen part, such as one vector (d_model,) for all positions,
            in its dtype and on its device. It may want a gradient.

    Raises:
        InputError: a value that is no tensor of finite numbers (for scores also -inf); in the forward pass,
            one that does not fit.

    Example:
        >>> import torch
        >>> import regard
        >>> steering = torch.zeros(384, requires_grad=True)
        >>> edited = regard.load().edited(regard.Add("residual", layer=2, value=steering, query=1))
        >>> edited(torch.tensor([[101, 2051, 102]])).last_hidden_state[0, 1, 7].backward()
        >>> bool(steering.grad.abs().max() > 0)
        True

    Source: Turner et al. 2023, arXiv 2308.10248, section 3.
    """

    _: KW_ONLY
    value: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_value(self, self.value, "a tensor")

    def change(self, part: Part) -> Tensor:
        return part.x + part.fitting("value", self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Replace(Edit):
    """Replace x by a tensor, or by what another text has at the same site (activation patching).

    Of a trace, the same tap, layers, heads and neurons are taken, and its tokens `source`. What the trace
    does not hold is worked out by one more run of its model.

    Args:
        site, layer, head, query, key, neuron, kind: where; see `Edit`.
        value: a tensor as in `Add`, or a trace of a model with the same sizes.
        source: which tokens of the trace; by default those that are chosen here, by the same indexes or the
            same word of its text. As many as are chosen here.

    Raises:
        InputError: a value that is neither, or a source without a trace; in the forward pass, a value that
            does not fit.

    Example:
        >>> import torch
        >>> import regard
        >>> model = regard.load()
        >>> money = model.trace("a man withdrawing money from a bank")
        >>> patched = model.edited(regard.Replace("residual", layer=2, value=money, query="bank"))
        >>> trace = patched.trace("a man fishing on a river bank")
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
        _check_value(self, self.value, "a tensor or a regard.Trace")
        if self.source is not None:
            raise InputError("source must be None with a tensor: it chooses tokens of a trace.")

    def traces(self) -> Sequence[Trace]:
        return (self.value,) if isinstance(self.value, Trace) else ()

    def change(self, part: Part) -> Tensor:
        if isinstance(self.value, Tensor):
            return part.fitting("value", self.value)
        query, key, name = self.query, self.key, None
        if self.source is not None:
            name = "source"
            # Tokens of the other text are chosen along the axis that the site has.
            query, key = (self.source, key) if "query" in part.target.site.axes else (query, self.source)
        return part.fitting("value", part.taken(part.target.sources[0], query, key, name), exactly=True)


@dataclass(frozen=True, eq=False, repr=False)
class Mean(Edit):
    """Replace x by its mean over reference texts (mean ablation).

    Vectors (q, k, v, contexts, residuals and the rest): one mean over all tokens of all texts of the
    reference, for each head, in the place of every chosen position. Weights and scores: entry by entry, over
    texts with as many tokens.

    Args:
        site, layer, head, query, key, neuron, kind: where; see `Edit`.
        reference: traces. The mean of samples that are at hand is a value for `Replace`.

    Raises:
        InputError: a reference that is none; in the forward pass, one that does not fit.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> reference = model.trace(["a river", "some money", "an arrow"])
        >>> edited = model.edited(regard.Mean("head", layer=3, head=5, reference=reference))
        >>> context = edited.trace("time flies like an arrow").context(3, 5)
        >>> bool((context == context[0]).all())
        True

    Source: Wang et al. 2022, arXiv 2211.00593, section 2.1.
    """

    _: KW_ONLY
    reference: Trace | Sequence[Trace]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.traces()

    def traces(self) -> Sequence[Trace]:
        return _traces(self.reference)

    def lies_at_positions(self, site: Site) -> bool:
        return site.is_matrix

    def change(self, part: Part) -> Tensor:
        if part.target.site.is_matrix:
            return _matrices(self, part).mean(dim=0)
        # (heads, 1, dim): one mean for all tokens.
        return part.fitting("the mean of reference", _pool(part).mean(dim=_tokens_at(part), keepdim=True))


@dataclass(frozen=True, eq=False, repr=False)
class Resample(Edit):
    """Replace x by what a random other position, or another text, has (resample ablation).

    Vectors: each chosen position gets that of a position drawn, evenly, from all tokens of the reference, or
    without a reference from the other tokens of the same text, of which padding is none; all heads and layers
    from the same one. Weights and scores: each chosen row gets the same row of a text drawn
    from the reference, whose texts have as many tokens.

    Args:
        site, layer, head, query, key, neuron, kind: where; see `Edit`.
        reference: traces; None, for vectors, is the text itself.
        seed: of the draws; the same seed draws the same in every forward pass.

    Raises:
        InputError: a reference that is none; in the forward pass, one that does not fit, or a text of one
            position without a reference.

    Example:
        >>> import regard
        >>> edited = regard.load().edited(regard.Resample("head", layer=3, head=5, seed=7))
        >>> trace = edited.trace("time flies like an arrow")

    Source: Chan et al. 2022, "Causal scrubbing", Alignment Forum, on resampling ablations.
    """

    _: KW_ONLY
    reference: Trace | Sequence[Trace] | None = None
    seed: Annotated[int, wholes(0, 2**63 - 1)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.traces()

    def traces(self) -> Sequence[Trace]:
        return () if self.reference is None else _traces(self.reference)

    def change(self, part: Part) -> Tensor:
        site, generator = part.target.site, torch.Generator().manual_seed(int(self.seed))
        # Rows of matrices, and tensors that are no rows, cannot be exchanged within a text.
        if self.reference is None and (site.is_matrix or not site.axes):
            raise InputError(
                f"reference must be traces at {self.site!r}, where no row can take another's place."
            )
        at = part.x.ndim - 2
        count = part.x.shape[at]
        # Another text's row at the same place, drawn for each row by itself.
        if site.is_matrix:
            samples = _matrices(self, part)
            drawn = torch.randint(len(samples), (count,), generator=generator).to(part.x.device)
            rows = torch.arange(count, device=part.x.device)
            return samples[drawn, :, rows].transpose(0, 1)  # (heads, rows, columns)
        if self.reference is None:
            # Large random numbers, taken modulo the number of other tokens.
            return _of_the_same_text(part, torch.randint(2**62, (count,), generator=generator))
        pool, at = _pool(part), _tokens_at(part)
        # Any token of any reference text, drawn with replacement.
        drawn = torch.randint(pool.shape[at], (count,), generator=generator).to(part.x.device)
        return part.fitting("reference", pool.index_select(at, drawn), exactly=True)


def _of_the_same_text(part: Part, steps: Tensor) -> Tensor:
    site, whole = part.target.site, part.whole
    axis: Axis = "key" if "key" in site.axes else "query"
    real = _padding(part.texts.masks.get(stack_along(part.target.kind, axis)))
    if real is None:
        real = torch.ones(1, whole.shape[-2], dtype=torch.bool)
    real = real.expand(len(whole), -1).to(whole.device)
    others = _others(real, part.chosen[axis], steps.to(whole.device))
    # The same heads and neurons as the edited part.
    for dim, each in enumerate(site.axes, start=1):
        if each in ("head", "neuron") and (numbers := part.chosen[each]) is not None:
            whole = whole.index_select(dim, torch.tensor(numbers, device=whole.device))
    # (batch, heads, tokens, dim), or (batch, tokens, dim).
    index = others[:, None, :, None] if whole.ndim == 4 else others[:, :, None]
    return whole.take_along_dim(index, dim=-2)


def _padding(mask: Mask | None) -> Tensor | None:
    """bool (batch or 1, tokens), which are no padding; None where all are."""
    for part in () if mask is None else mask.parts():
        # A mask that is made by hand may hold several texts in one row.
        if not isinstance(part, Padding | Causal | Window):
            raise InputError(
                f"reference must be traces under a mask of {type(part).__name__}, by which a row may hold "
                "several texts; without a reference give the texts as rows of their own."
            )
    return padding_of(mask)


def _others(real: Tensor, own: Sequence[int] | None, steps: Tensor) -> Tensor:
    """int64 (batch, chosen), for each position chosen another token of its text; padding stays."""
    at = torch.tensor(range(real.shape[1]) if own is None else own, device=real.device)
    chosen, count = real[:, at], real.sum(dim=1, keepdim=True)
    if bool((chosen & (count < 2)).any()):
        raise InputError("reference must be traces for a text of one position: it has no other.")
    # A token's number among those of its text, and a step of 1 to count - 1 from there, round the end: any
    # other token, each as likely.
    number = real.cumsum(dim=1)[:, at] - 1
    others = (number + 1 + steps % (count - 1).clamp(min=1)) % count.clamp(min=1)
    # Real tokens first, in their order: their numbers index this.
    in_order = real.argsort(dim=1, descending=True, stable=True)
    return torch.where(chosen, in_order.gather(1, others), at)


def _tokens_at(part: Part) -> int:
    """The axis of the tokens, in tensors without a batch."""
    return part.x.ndim - 3


def _pool(part: Part) -> Tensor:
    """The vectors of all tokens of all texts: (heads chosen, tokens, dim), or (tokens, dim)."""
    return torch.cat([part.taken(source, None, None) for source in part.target.sources], _tokens_at(part))


def _matrices(edit: Edit, part: Part) -> Tensor:
    """What each text has at the same tap: (texts, heads, queries, keys)."""
    found = [part.taken(source, edit.query, edit.key) for source in part.target.sources]
    return torch.stack([part.fitting("reference", each, exactly=True) for each in found])


def _traces(reference: Trace | Sequence[Trace]) -> tuple[Trace, ...]:
    """The traces of a reference; InputError where it is none."""
    listed = [reference] if isinstance(reference, Trace) else reference
    if not isinstance(listed, Sequence) or not listed or not all(isinstance(each, Trace) for each in listed):
        raise InputError(f"reference must be traces (model.trace(texts)), at least one; got {listed!r:.40}.")
    return tuple(listed)


def _check_value(edit: Edit, value: object, wanted: str) -> None:
    """Refuse a change that is not a tensor or holds a NaN. A score may be -inf: that pair is not seen."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise InputError(f"value must be {wanted}, floating point; got {got}.")
    is_score = edit.site == "scores" or edit.site.endswith(".scores")
    # A score of -inf means that a pair is not seen; any other must be finite.
    fit = value.isfinite() | ((value == -math.inf) if is_score else False)
    if value.device.type != "meta" and not bool(fit.all()):
        wanted = "finite, or -inf where a pair is not to be seen" if is_score else "finite"
        raise InputError(f"value must be {wanted}; got {float(value.detach()[~fit][0])} for {edit.site!r}.")
