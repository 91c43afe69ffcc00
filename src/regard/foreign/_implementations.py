"""The names under which transformers finds our attention, each standing for one of its own.

A model's config holds the name of an attention implementation, and each call looks the function up in one
registry and the function that makes the mask in another. While a lens runs, the name is a `StandIn`: both
registries know it, and it says that it equals the name it stands for, since some models ask
`config._attn_implementation == "sdpa"` and must go on the way that they go without a lens.
"""

import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.core import Causal, Mask, Padding, Predicate, TensorMask, Window
from regard.core.errors import InputError
from regard.core.extras import optional

AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]

SEEN = ("sdpa", "eager")
"""Implementations whose arithmetic is that of `regard.core.AttentionInputs`, mask and all."""


class StandIn(str):
    """A key of its own in a registry that compares equal to the implementation it stands for.

    >>> key = StandIn("sdpa")
    >>> key == "sdpa", key in ("eager", "sdpa"), {"sdpa": 1}.get(key), f"{key}"
    (True, True, None, 'regard:sdpa')
    """

    name: str

    def __new__(cls, name: str) -> "StandIn":
        key = super().__new__(cls, f"regard:{name}")
        key.name = name
        return key

    # Equal to itself, and to the name that it stands for.
    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or self.name == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    # The hash is that of the full name: in a dictionary the two are different keys.
    __hash__ = str.__hash__

    def __getnewargs__(self) -> tuple[str]:
        # A config that is copied while a lens runs keeps the key, which then goes through to the original.
        return (self.name,)


# One for each implementation, for as long as the process lives.
_KEYS = {name: StandIn(name) for name in SEEN}


class Listener(Protocol):
    """One forward pass with listeners."""

    def attention(self, call: "Call") -> tuple[Tensor, Tensor | None]:
        """Take the place of an attention call: (context (batch, queries, heads, v_dim), weights or None)."""
        ...

    def mask_made(self, values: Tensor, mask: Mask | None) -> None:
        """The model made this tensor of a mask; the object, where it is known, means the same."""
        ...


# Each thread, or task, that runs a forward pass has its own: two of them share a model without a lock.
_LISTENER: ContextVar[Listener | None] = ContextVar("regard.lens", default=None)


@dataclass(frozen=True, eq=False)
class Call:
    """One attention call: what a module hands the attention that a name stands for."""

    name: str
    module: nn.Module
    q: Tensor
    k: Tensor
    v: Tensor
    arguments: dict[str, Any]

    def original(self) -> tuple[Tensor, Tensor | None]:
        """What it gives without a lens."""
        return _original_of(self.name, self.module)(self.module, self.q, self.k, self.v, **self.arguments)

    @property
    def is_causal(self) -> bool:
        """Whether the call is causal although it has no mask: transformers' rule for sdpa; eager has none."""
        if self.name != "sdpa" or self.arguments.get("attention_mask") is not None or self.q.shape[2] <= 1:
            # A call with a mask, or with one query, is not causal by itself.
            return False
        # None asks the module, which is causal unless it says otherwise.
        asked = self.arguments.get("is_causal")
        return bool(getattr(self.module, "is_causal", True) if asked is None else asked)


def register() -> None:
    """Make both registries know our keys."""
    modeling, masking = transformers_modules()
    for name, key in _KEYS.items():
        modeling.AttentionInterface.register(key, _attention_for(name))
        masking.AttentionMaskInterface.register(key, _mask_for(name))


def transformers_modules() -> tuple[Any, Any]:
    """transformers' modeling_utils and masking_utils, imported when they are first needed."""
    library("regard.lens needs")
    from transformers import masking_utils, modeling_utils

    return modeling_utils, masking_utils


def library(needs: str) -> Any:
    """transformers itself; where it is not installed a MissingExtraError says what needs it."""
    return optional(needs, "transformers", "transformers")[0]


@contextmanager
def silent() -> Iterator[None]:
    """Without transformers' bars, reports and warnings on stderr; its settings are put back."""
    logging: Any = library("").utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _attention_for(name: str) -> AttentionFunction:
    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        **arguments: Any,
    ) -> tuple[Tensor, Tensor | None]:
        arguments["attention_mask"] = attention_mask
        call = Call(name, module, query, key, value, arguments)
        # Without a listener in this thread the call goes through.
        listener = _LISTENER.get()
        return call.original() if listener is None else listener.attention(call)

    return attention


def _mask_for(name: str) -> Callable[..., Tensor | None]:
    def make_mask(*args: Any, **kwargs: Any) -> Tensor | None:
        _, masking = transformers_modules()
        values: Tensor | None = masking.ALL_MASK_ATTENTION_FUNCTIONS[name](*args, **kwargs)
        listener = _LISTENER.get()
        if listener is not None and values is not None:
            # Positional arguments are older transformers: then the rule is not read.
            listener.mask_made(values, None if args else read_rule(masking, values, kwargs))
        return values

    return make_mask


def _original_of(name: str, module: nn.Module) -> AttentionFunction:
    # The names in the file of the module's class, as they are now.
    home = _home_of(type(module).forward)
    # A file of models may keep a registry of its own, in which a name means something else.
    registry = home.get("ALL_ATTENTION_FUNCTIONS")
    if registry is None:
        modeling, _ = transformers_modules()
        registry = modeling.ALL_ATTENTION_FUNCTIONS
    if name in registry:
        original: AttentionFunction = registry[name]
        return original
    return _eager_of(type(module))


@cache
def _home_of(forward: Callable[..., Any]) -> dict[str, Any]:
    """What the names in a function's file mean, at any time; kept, since every call asks."""
    found: dict[str, Any] = getattr(inspect.unwrap(forward), "__globals__", {})
    return found


_EAGER: dict[type, AttentionFunction] = {}


def _eager_of(kind: type) -> AttentionFunction:
    """The eager attention that a module's code names: it is a function of its file, and in no registry."""
    if kind in _EAGER:
        return _EAGER[kind]
    # A dict as an ordered set: functions by their identity.
    functions: dict[Any, None] = {}
    for cls in kind.__mro__:
        for member in vars(cls).values():
            function: Any = inspect.unwrap(member) if callable(member) else None
            code = getattr(function, "__code__", None)
            if code is None:
                continue
            # Names that the code refers to; eager functions end so by convention.
            for global_name in code.co_names:
                if global_name.endswith("eager_attention_forward"):
                    functions[function.__globals__.get(global_name)] = None
        # The nearest class in the order of inheritance counts.
        if functions:
            break
    # A name that the file does not have (any more).
    functions.pop(None, None)
    if len(functions) != 1:
        raise InputError(
            f"hf_model runs eager attention in {kind.__name__}, whose eager function is unknown; "
            "call hf_model.set_attn_implementation('sdpa') first."
        )
    _EAGER[kind] = next(iter(functions))
    return _EAGER[kind]


def configs_of(model: nn.Module) -> list[Any]:
    """Every config that a module of the model, or another config, holds, once each.

    Encoder and decoder often have copies of their own, and so have the text and vision halves.
    """
    base = sys.modules["transformers"].PreTrainedConfig
    configs: dict[int, Any] = {}

    def visit(value: Any) -> None:
        # By identity: a config compares by content, and copies are separate objects.
        if isinstance(value, base) and id(value) not in configs:
            configs[id(value)] = value
            for inner in vars(value).values():
                visit(inner)

    for module in model.modules():
        for value in vars(module).values():
            visit(value)
    return list(configs.values())


class _Placed:
    """Configs that hold a stand-in at the moment: how many runs need it, and what stood there before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs: dict[int, tuple[int, str, Any]] = {}  # of the config: runs, its own name, itself

    def put(self, config: Any) -> None:
        with self.lock:
            # How many runs use the config now, and the name it had before the first.
            runs, before, _ = self.runs.get(id(config), (0, _fields(config).get(_FIELD), None))
            if before in SEEN:
                assert before is not None
                _fields(config)[_FIELD] = _KEYS[str(before)]
                self.runs[id(config)] = (runs + 1, before, config)

    def take_back(self, config: Any) -> None:
        with self.lock:
            if id(config) not in self.runs:
                return
            runs, before, _ = self.runs.pop(id(config))
            if runs > 1:
                # Another run still needs the stand-in.
                self.runs[id(config)] = (runs - 1, before, config)
            # Unless somebody chose another implementation meanwhile.
            elif isinstance(_fields(config).get(_FIELD), StandIn):
                _fields(config)[_FIELD] = before


# Where transformers keeps the name: written past its property, which would go through all inner configs.
_FIELD = "_attn_implementation_internal"
_PLACED = _Placed()


def _fields(config: Any) -> dict[str, Any]:
    # Past the config's own __getattribute__, which costs more than all else that a run does with it.
    fields: dict[str, Any] = object.__getattribute__(config, "__dict__")
    return fields


def listens(listener: Listener) -> bool:
    """Whether this thread is in a forward pass of that listener's."""
    return _LISTENER.get() is listener


@contextmanager
def listening(configs: list[Any], listener: Listener) -> Iterator[None]:
    """Have the listener called for attention and masks of the models with these configs.

    What the configs held is put back at the end, also after an exception. Other threads that run the same
    model meanwhile reach the originals, or their own listener.
    """
    placed = []
    token = _LISTENER.set(listener)
    try:
        # One after the other: if one fails, only those placed before are put back.
        for config in configs:
            _PLACED.put(config)
            placed.append(config)
        yield
    finally:
        _LISTENER.reset(token)
        for config in placed:
            _PLACED.take_back(config)


def read_rule(masking: Any, values: Tensor, arguments: dict[str, Any]) -> Mask | None:
    """The object that means the same as a mask (batch, 1, queries, keys) made with these arguments of
    `transformers.masking_utils`; None where that cannot be told.
    """
    q_offset, kv_offset = arguments.get("q_offset", 0), arguments.get("kv_offset", 0)
    # Offsets that are tensors, and rules that only vmap evaluates, cannot be read as a mask.
    if arguments.get("use_vmap") or not (isinstance(q_offset, int) and isinstance(kv_offset, int)):
        return None
    # Rules joined by "and" become masks joined by &.
    rule = arguments.get("mask_function", masking.causal_mask_function)
    parts: list[Mask] = []
    for part in _conjuncts(masking, rule):
        if part is not masking.bidirectional_mask_function:
            parts.append(
                # A rule of a known kind as the mask of that kind; any other is asked.
                _plain(masking, part, q_offset - kv_offset) or _asked(part, values, q_offset, kv_offset)
            )
    padding = arguments.get("attention_mask")
    if padding is not None:
        # transformers pads what is missing with False, and leaves out what is before kv_offset.
        real = padding[:, kv_offset : kv_offset + values.shape[3]].bool()
        real = torch.nn.functional.pad(real, (0, values.shape[3] - real.shape[1]))
        # Padding that hides nothing would only make another mask.
        if not bool(real.all()):
            parts.append(Padding(real))
    if not parts:
        return None
    mask = parts[0]
    for other in parts[1:]:
        mask = mask & other
    # Whatever was read must be the tensor that the model got.
    return mask if _agrees(mask, values) else None


def _agrees(mask: Mask, values: Tensor) -> bool:
    """Whether a mask is the tensor in some rows: a newer transformers may mean something else by a rule."""
    # First, middle and last row.
    rows = torch.tensor([0, values.shape[2] // 2, values.shape[2] - 1], device=values.device)
    keys = torch.arange(values.shape[3], device=values.device)
    theirs = TensorMask(values).block(rows, keys)
    # A tensor of one row gives a block of one row, however many are asked for.
    return bool((mask.block(rows, keys) == theirs).all())


_Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _conjuncts(masking: Any, rule: _Rule) -> list[_Rule]:
    # `and_masks` returns a closure over the rules.
    if _is_made_by(masking.and_masks, rule):
        return [inner for part in _held(rule)["mask_functions"] for inner in _conjuncts(masking, part)]
    return [rule]


def _plain(masking: Any, rule: _Rule, offset: int) -> Mask | None:
    if rule is masking.causal_mask_function:
        return Causal(offset)
    # A causal window counts the query itself, a symmetric one does not.
    one_way = _is_made_by(masking.sliding_window_overlay, rule)
    if not one_way and not _is_made_by(masking.sliding_window_bidirectional_overlay, rule):
        return None
    width = _held(rule)["sliding_window"]
    # A window of width 0 or of a tensor is nothing that `Window` can say.
    if not isinstance(width, int) or width < one_way:
        return None
    return Window(left=width - one_way, right=None if one_way else width, offset=offset)


def _asked(rule: _Rule, values: Tensor, q_offset: int, kv_offset: int) -> Mask:
    """The rule itself, asked as transformers asks it."""
    # vmap would hand over single numbers; broadcasting axes give the same for whole blocks.
    batch = torch.arange(values.shape[0], device=values.device)[:, None, None, None]
    head = torch.zeros(1, 1, 1, 1, dtype=torch.int64, device=values.device)

    def allowed(queries: Tensor, keys: Tensor) -> Tensor:
        return rule(batch, head, queries[None, None] + q_offset, keys[None, None] + kv_offset)

    return Predicate(allowed)


def _is_made_by(maker: Any, rule: Any) -> bool:
    """Whether a rule is the closure that this function returns, told by its code."""
    # Closures of one function share the code object that is among its constants.
    return getattr(rule, "__code__", None) in maker.__code__.co_consts


def _held(rule: Any) -> dict[str, Any]:
    return {
        name: cell.cell_contents
        for name, cell in zip(rule.__code__.co_freevars, rule.__closure__, strict=True)
    }
