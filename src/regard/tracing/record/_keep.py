"""What of a forward pass a trace keeps: which tensors, of which layers, in which type.

What is not kept is not held either: not by the trace, and not during the pass. Where it is asked for, the
answer is an error that says so; it is never taken for something that the model does not have.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, get_args, overload

import torch
from torch import Tensor

from regard.core import AttentionInputs
from regard.core.arguments import index_of
from regard.core.errors import InputError
from regard.core.memory import trim_malloc
from regard.models import Network

Keep = Literal["qk", "qkv", "residual", "all"]
"""What a trace keeps: queries and keys; also values and contexts; the residual stream alone; everything."""

# The types in which a trace may be kept.
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

T = TypeVar("T")


class Partial(Sequence[T]):
    """A sequence of which a trace kept a part: as long as the whole, an error where an item is missing.

    For messages: `what` an item is, `numbers` that call the places where they are not 0, 1, ..., and `why`
    some are missing, with the way out.
    """

    def __init__(
        self,
        kept: Mapping[int, T],
        length: int,
        *,
        what: str,
        why: str,
        numbers: Sequence[int] | None = None,
    ) -> None:
        self.kept = dict(kept)
        # What is missing is named, and why, in the words of the trace that left it out.
        self.what, self.why = what, why
        self.numbers = None if numbers is None else tuple(numbers)
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...
    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        if isinstance(place, slice):
            return tuple(self[each] for each in range(*place.indices(self._length)))
        index = operator.index(place)
        if not -self._length <= index < self._length:
            raise IndexError(f"{self.what} {index} of {self._length}")
        index %= self._length
        # Layers without attention of this kind make numbers and places differ.
        if index not in self.kept:
            number = index if self.numbers is None else self.numbers[index]
            raise InputError(f"{self.what} {number} is not in this trace: {self.why}")
        return self.kept[index]

    def __repr__(self) -> str:
        return f"Partial({self.what} {', '.join(map(str, self.kept)) or 'none'} of {self._length})"


def places(items: Sequence[Any]) -> tuple[int, ...]:
    """The places of a sequence that a trace kept."""
    return tuple(sorted(items.kept)) if isinstance(items, Partial) else tuple(range(len(items)))


class ScoreInputs(AttentionInputs):
    """The record of a trace that keeps no values: scores and weights are functions of it, contexts are not.

    Reading `v` raises an InputError that says so; everything else is as in `AttentionInputs`.
    """

    def __init__(self, *, q: Tensor, k: Tensor, **others: Any) -> None:
        # Checked as core checks every record; the keys stand where values would.
        # Past the dataclass, whose fields include v.
        self.__dict__.update(AttentionInputs(q=q, k=k, v=k, **others).__dict__)
        del self.__dict__["v"]

    @property
    def v(self) -> Tensor:
        """Not kept: always an InputError."""
        raise InputError(
            'values are not in this trace, which was kept with keep="qk": that is enough for weights and '
            'scores. Trace again with keep="qkv" or keep="all".'
        )

    def __repr__(self) -> str:
        q, k = tuple(self.q.shape), tuple(self.k.shape)
        return f"ScoreInputs(q {q}, k {k}, scale {self.factor:.6g})"

    def head(self, index: int) -> "ScoreInputs":
        """The same attention with one query head only."""
        others = {name: value for name, value in self.__dict__.items() if name not in ("q", "k")}
        # `head` wants a v: the keys stand for it, and are taken out again.
        one = AttentionInputs(q=self.q, k=self.k, v=self.k, **others).head(index).__dict__
        return ScoreInputs(**{name: value for name, value in one.items() if name != "v"})


@dataclass(frozen=True, kw_only=True)
class KeepPolicy:
    """What a trace is asked to keep; `check` compares it with a network.

    Args:
        keep: see `Keep`.
        layers: which attention layers; None for all.
        dtype: what it is converted to; None leaves it as it is.

    Raises:
        InputError: an unknown `keep`, or a dtype that is none of float64, float32, bfloat16 and float16.
    """

    keep: Keep = "all"
    layers: int | Sequence[int] | None = None
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        if self.keep not in get_args(Keep):
            raise InputError(f'keep must be "qk", "qkv", "residual" or "all"; got {self.keep!r}.')
        if self.dtype not in (None, *_DTYPES):
            raise InputError(
                f"dtype must be torch.float32, float64, bfloat16 or float16, or None; got {self.dtype!r}."
            )
        if self.layers is not None:
            # A single number becomes a list of one.
            asked = [self.layers] if not isinstance(self.layers, Iterable) else list(self.layers)
            if not asked or not all(_is_whole(each) for each in asked):
                raise InputError(
                    f"layers must be a number, or a list of them, at least one; got {self.layers!r}."
                )
            # A tuple of plain numbers, so that equal ones are equal.
            object.__setattr__(self, "layers", tuple(operator.index(each) for each in asked))

    @property
    def queries(self) -> bool:
        """Whether queries and keys are kept."""
        return self.keep != "residual"

    @property
    def values(self) -> bool:
        """Whether values and contexts are kept."""
        return self.keep in ("qkv", "all")

    @property
    def hidden(self) -> bool:
        """Whether the residual stream is kept."""
        return self.keep in ("residual", "all")

    def check(self, network: Network) -> None:
        """Raise InputError if some layer asked for is in none of the network's stacks."""
        depths = [network.depth(kind) for kind in network.prefixes]
        for layer in self._asked() or ():
            index_of("layers", layer, max(depths))

    def attention(self, depth: int) -> tuple[int, ...]:
        """The attention layers that are kept of a stack; those asked for that it has."""
        asked = self._asked()
        if asked is None:
            return tuple(range(depth))
        # Negative ones count from the end of each stack; those beyond it belong to a longer one.
        return tuple(sorted({layer % depth for layer in asked if -depth <= layer < depth}))

    def states(self, depth: int) -> tuple[int, ...]:
        """The hidden states that are kept of a stack: the first, what each kept layer reads and hands on."""
        # Layer i reads hidden state i and hands on i + 1; the first one is always kept.
        return tuple(sorted({0, *(state for layer in self.attention(depth) for state in (layer, layer + 1))}))

    def why(self) -> str:
        """Why something is missing, with the way out."""
        given = str(self).removeprefix(", ")
        # Only what would have to change in the call.
        wanted = " and ".join(
            ([] if self.keep == "all" else ['keep="all"']) + ([] if self.layers is None else ["layers=None"])
        )
        return f"it was made with {given}. Trace again with {wanted}."

    def __str__(self) -> str:
        """What differs from keeping everything, as the call has it: ', keep="qk", layers=[3]'."""
        asked = self._asked()
        return (
            ("" if self.keep == "all" else f', keep="{self.keep}"')
            + ("" if asked is None else f", layers={list(asked)}")
            + ("" if self.dtype is None else f", dtype={self.dtype}")
        )

    def _asked(self) -> tuple[int, ...] | None:
        return self.layers  # type: ignore[return-value]


EVERYTHING = KeepPolicy()
"""What a trace keeps unless it is told otherwise."""


def kept_tensor(value: Tensor, keeping: KeepPolicy) -> Tensor:
    """What is kept of a tensor: converted, and copied where it is a view of something larger."""
    # With everything kept, a tensor is taken as it is.
    kept = value if keeping == EVERYTHING else _Memory([value], keeping.dtype).take(value)
    # Without queries nothing else gives memory back in between.
    if not keeping.queries:
        _give_back_after(kept)
    return kept


def kept_inputs(inputs: AttentionInputs, keeping: KeepPolicy) -> AttentionInputs:
    """What is kept of a record: q and k, v where it is wanted, and a bias that is a function of them."""
    kept = [inputs.q, inputs.k, *([inputs.v] if keeping.values else [])]
    memory = _Memory(kept, keeping.dtype)
    # Where q, k and v lie in memory: a bias over the same memory is made of them.
    of_pass = {tensor.untyped_storage().data_ptr() for tensor in kept}

    def of_bias(tensor: Tensor) -> Tensor:
        # DeBERTa's holds the queries and keys: it must neither keep them alive nor differ from them.
        return memory.take(tensor) if tensor.untyped_storage().data_ptr() in of_pass else tensor

    changed: dict[str, Any] = {
        "q": memory.take(inputs.q),
        "k": memory.take(inputs.k),
        "bias": mapped(inputs.bias, of_bias),
    }
    if keeping.values:
        record = inputs.changed(v=memory.take(inputs.v), **changed)
    else:
        others = {name: value for name, value in inputs.__dict__.items() if name != "v"}
        # Without values: a record of scores.
        record = ScoreInputs(**(others | changed))
    _give_back_after(record.q)
    return record


_GIVEN_BACK_EVERY = 2**24
"""Bytes of queries, or of a state, that are kept in between."""

_kept_since = 0


def _give_back_after(kept: Tensor) -> None:
    """Give free memory back to the system, now and then.

    Between the tensors that stay, a layer frees others, and glibc keeps those pages: it held 503 MB for a
    trace of 151 MB (GPT-2, 2,048 tokens through the lens, keep="qk"). But what is given back after a layer is
    handed out again in the next, page by page: after every layer, that took a sixth of the time of a trace.
    """
    global _kept_since
    if kept.is_cpu:
        _kept_since += kept.numel() * kept.element_size()
        if _kept_since >= _GIVEN_BACK_EVERY:
            # The C library keeps what was freed; see the docstring for what was measured.
            trim_malloc()
            _kept_since = 0


class _Memory:
    """Tensors in the type in which they are kept (None: their own); those that share memory still do."""

    def __init__(self, tensors: Sequence[Tensor], dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        self._converted: dict[int, Tensor] = {}
        self._used: dict[int, int] = {}
        for tensor in tensors:
            place = tensor.untyped_storage().data_ptr()
            # How many bytes of each storage are kept: less than all of it means that a copy saves
            # memory.
            self._used[place] = self._used.get(place, 0) + tensor.numel() * tensor.element_size()

    def take(self, tensor: Tensor) -> Tensor:
        """What is kept for a tensor."""
        storage, dtype = tensor.untyped_storage(), self._dtype or tensor.dtype
        place = storage.data_ptr()
        # Some of the storage would be kept alive for nothing.
        if self._used[place] < storage.nbytes():
            # A view of something larger, such as keys of a joint projection: a copy lets go of the rest.
            return tensor.to(dtype, copy=True)
        if dtype == tensor.dtype:
            return tensor
        if place not in self._converted:
            # The whole storage is converted once, so that views of it still share memory.
            whole = tensor.as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)
            self._converted[place] = whole.to(dtype)
        return self._converted[place].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A record with its tensors changed, also those inside its dataclasses and tuples; the rest stays."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        return tuple(mapped(each, change) for each in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    by_field = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    changed = {name: mapped(each, change) for name, each in by_field.items()}
    # Identity: nothing was changed.
    same = all(changed[name] is each for name, each in by_field.items())
    # An object that nothing changed in stays itself: layers share masks and biases.
    return value if same else replace(value, **changed)


def _is_whole(value: object) -> bool:
    try:
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return not isinstance(value, bool)
