"""Watching one run of a model on a few random tokens: which call is which, and where its tensors pass by.

Nothing is read from names that a model's author was free to choose: an attention call belongs to the encoder
or the decoder by the lengths of its queries and keys, to a layer by the order of calls, and a module's output
is "the stack's output" because it is that tensor.
"""

import inspect
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import AttentionInputs, Bias, Causal, DenseBias, Mask, TensorMask
from regard.core.errors import InputError
from regard.foreign._implementations import Call, listening

# Arguments that enter the record.
_READ = {"attention_mask", "scaling", "dropout", "is_causal", "softcap", "position_bias", "s_aux"}

IGNORED_FIELDS = {
    "sliding_window": "the mask has it; only flash kernels, which get no mask, read the number",
    "cache_position": "where in a cache the tokens go, which no cache holds here",
    "position_ids": "read before, by the rotation and the mask; flash kernels find packed texts by it",
    "position_embeddings": "the rotation, done before",
    "token_type_ids": "read before, by the embeddings",
    "cu_seq_lens_q": "bounds of packed texts for flash kernels; the mask has them",
    "cu_seq_lens_k": "the same",
    "max_length_q": "the same",
    "max_length_k": "the same",
    "cu_seqlens": "the same",
    "max_seqlen": "the same",
    "seq_idx": "the same, for state-space layers",
    "indices": "the keys that a sparse flash kernel picks; the mask has them",
    "block_indices": "the same by blocks",
    "deterministic": "which flash kernel runs backward",
    "layer_idx": "the place in a cache",
    "layer_head_mask": "named, and not read by any attention function",
    "num_items_in_batch": "the divisor of a loss",
    "use_cache": "nothing is cached",
    "output_attentions": "whether the weights are handed back, which alters no number",
    "output_hidden_states": "the same for hidden states",
    "output_router_logits": "the same for routers",
    "return_dict": "how the model packs its output",
    "logits_to_keep": "for which positions the head runs",
    "input_ids": "read before, by the embeddings",
    "inputs_embeds": "the same",
}
"""Arguments that change no number in attention written as a mask and a softmax, with the reason."""


def read_inputs(call: Call, masks: "Masks") -> AttentionInputs:
    """The record of one attention call."""
    where, arguments = type(call.module).__name__, call.arguments
    q, k, v = call.q, call.k, call.v
    # An argument that is neither read nor known to be harmless is refused: it might change the weights.
    for name, value in arguments.items():
        if name not in _READ and name not in IGNORED_FIELDS and not _is_empty(value):
            raise InputError(
                f"hf_model hands {name}={_short(value)} to the attention of {where}, which regard does not "
                "know: what it does to the weights would be missing from the trace. Ask for it in an issue."
            )
    if arguments.get("dropout"):
        raise InputError(
            f"hf_model drops attention weights (dropout={arguments['dropout']}) in {where}; "
            "call hf_model.eval()."
        )
    if torch.is_autocast_enabled(q.device.type):
        # It rounds what enters a product; rotated and normed q and k come in float32.
        q, k, v = (each.to(torch.get_autocast_dtype(q.device.type)) for each in (q, k, v))
    bias = arguments.get("position_bias")
    causal = call.is_causal
    # A causal call without a mask: transformers' rule for sdpa.
    mask: Mask | None = Causal() if causal else None
    added: Bias | None = None
    values = arguments.get("attention_mask")
    if causal and k.shape[2] > q.shape[2]:
        # As transformers does: keys after the last query are room that a cache keeps.
        k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]
        bias = None if bias is None else bias[..., : q.shape[2]]
    if values is not None:
        _check_mask(values, where)
        mask, added = masks.read(values, zero_rows=call.name == "sdpa" and bias is None)
    if bias is not None:
        # Two biases are one: their sum.
        summed = bias if added is None else bias + added.learned()[0]
        added = DenseBias(summed)
    sinks = arguments.get("s_aux")
    if sinks is not None and not torch.is_grad_enabled():
        sinks = sinks.detach()  # a parameter: what is computed from the record later wants no gradient either
    return AttentionInputs(
        # One text's queries for several texts' keys.
        q=q if q.shape[0] == k.shape[0] else q.expand(k.shape[0], -1, -1, -1),
        k=k,
        v=v,
        mask=mask,
        bias=added,
        scale=_number(arguments.get("scaling")),
        softcap=_number(arguments.get("softcap")),
        sinks=None if sinks is None else sinks.reshape(-1),
    )


@dataclass(eq=False)
class Masks:
    """The masks of one forward pass: most layers get the same tensor, which is read once."""

    known: list[tuple[Tensor, int, Mask | None]] = field(default_factory=list)
    _read: list[tuple[Tensor, int, bool, tuple[Mask | None, Bias | None]]] = field(default_factory=list)

    def mask_made(self, values: Tensor, mask: Mask | None) -> None:
        """The model made this tensor; the mask, where it is known, means the same."""
        self.known.append((values, _version(values), mask))

    def read(self, values: Tensor, *, zero_rows: bool) -> tuple[Mask | None, Bias | None]:
        """See `read_tensor`."""
        # Layers share one tensor: the first reading serves all.
        for seen, version, zero, result in self._read:
            if zero == zero_rows and _same(seen, version, values):
                return result
        # A tensor that was made of a known rule is that rule.
        mask = next((mask for seen, version, mask in self.known if _same(seen, version, values)), None)
        result = read_tensor(values, mask, zero_rows=zero_rows)
        self._read.append((values, _version(values), zero_rows, result))
        return result


def _same(seen: Tensor, version: int, values: Tensor) -> bool:
    """Whether two are the same numbers at the same place, not written to since."""
    return version == _version(values) and (
        seen is values
        # Another view of the same numbers.
        or (seen.data_ptr(), seen.shape, seen.stride(), seen.dtype)
        == (values.data_ptr(), values.shape, values.stride(), values.dtype)
    )


def _version(values: Tensor) -> int:
    """How often a tensor was written to; inference mode does not count."""
    return 0 if values.is_inference() else values._version


def _check_mask(values: Any, where: str) -> None:
    if not isinstance(values, Tensor) or values.ndim != 4:
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(
            f"hf_model masks the attention of {where} by something other than a tensor (batch, heads, "
            f"queries, keys): {shape}."
        )
    if values.dtype != torch.bool and not values.is_floating_point():
        raise InputError(
            f"hf_model masks the attention of {where} by {values.dtype}, not bool or floating point."
        )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, bool | int | float | str | tuple | list | dict) and not value)


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def read_tensor(values: Tensor, known: Mask | None, *, zero_rows: bool) -> tuple[Mask | None, Bias | None]:
    """The mask, or else the bias, that a tensor broadcastable to (batch, heads, queries, keys) amounts to.

    A model that adds its mask attends to everything alike where a row allows nothing: the lowest number
    swallows every score. No mask says that; the tensor as a bias does. With `zero_rows` such a row gives
    zeros, as only a bool mask can. `known` is the object that means the same, if there is one.
    """
    if values.dtype == torch.bool:
        # Rows that allow nothing: the lowest number, which softmax turns into equal weights.
        if not zero_rows and bool((~values.any(dim=-1)).any()):
            lowest = torch.zeros(values.shape, device=values.device)
            return None, DenseBias(lowest.masked_fill(~values, torch.finfo(torch.float32).min))
        return known or TensorMask(values), None
    forbids = TensorMask.forbids(values)
    # Numbers other than 0 and "forbidden", or whole forbidden rows, make it a bias.
    if bool(forbids.all(dim=-1).any()) or bool(((values != 0) & ~forbids).any()):
        return None, DenseBias(values)
    return known or TensorMask(values), None


@dataclass(frozen=True)
class Execution:
    """One call of a module: which module, and which of its calls."""

    module: nn.Module = field(repr=False)
    occurrence: int


@dataclass(eq=False)
class SeenCall:
    """One attention call."""

    execution: Execution
    around: tuple[Execution, ...]
    inputs: AttentionInputs
    context: Tensor
    projection: Execution | None = None


@dataclass(eq=False)
class Survey:
    """What was seen."""

    calls: list[SeenCall] = field(default_factory=list)  # the attention calls, in order
    inputs: dict[Execution, Tensor] = field(default_factory=dict)  # the main tensor that each took
    outputs: dict[Execution, Tensor] = field(default_factory=dict)  # the main tensor that each returned
    order: list[Execution] = field(default_factory=list)  # the executions as they began
    around: dict[Execution, frozenset[Execution]] = field(default_factory=dict)  # those it ran within
    listed: frozenset[int] = frozenset()  # the modules (by id) that stand in a list of modules: layers do
    result: Any = None  # what the model returned


class _Watcher:
    """Listens to attention and to every module of one run."""

    def __init__(self) -> None:
        self.survey = Survey()
        self.masks = Masks()
        # The executions that run now, from the outside in.
        self._running: list[Execution] = []
        self._counts: dict[nn.Module, int] = defaultdict(int)
        self._attention_counts: dict[nn.Module, int] = defaultdict(int)
        # Hooks stand on the model, whoever runs it.
        self._thread = threading.get_ident()

    def mask_made(self, values: Tensor, mask: Mask | None) -> None:
        self.masks.mask_made(values, mask)

    def attention(self, call: Call) -> tuple[Tensor, Tensor | None]:
        inputs = read_inputs(call, self.masks)
        context, weights = call.original()
        execution = Execution(call.module, self._attention_counts[call.module])
        self._attention_counts[call.module] += 1
        self.survey.calls.append(SeenCall(execution, tuple(self._running), inputs, context.transpose(1, 2)))
        return context, weights

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        # Somebody else's pass through the same model. It may meet the hook while torch registers it, before
        # torch knows that it takes keyword arguments, and then comes without.
        if threading.get_ident() != self._thread or kwargs is None:
            return
        execution = Execution(module, self._counts[module])
        self._counts[module] += 1
        # What it runs within, before it is added itself.
        self.survey.around[execution] = frozenset(self._running)
        self._running.append(execution)
        self.survey.order.append(execution)
        taken = main_input(args, kwargs)
        if taken is None:
            return
        self.survey.inputs[execution] = taken
        # Only the last attention call still looks for its projection.
        last = self.survey.calls[-1] if self.survey.calls else None
        if last is None or last.projection is not None:
            return
        # The output projection is the first module with a weight that is given the joined heads, bit for bit.
        if isinstance(getattr(module, "weight", None), Tensor):
            joined = last.context.transpose(1, 2)
            if taken.shape[:2] == joined.shape[:2] and torch.equal(taken.flatten(2), joined.flatten(2)):
                last.projection = execution

    def leave(self, module: nn.Module, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        execution = self._running.pop()
        # Modules end in the order in which they began.
        assert execution.module is module
        given = main_output(output)
        if given is not None:
            self.survey.outputs[execution] = given


def survey(model: nn.Module, configs: list[Any], arguments: dict[str, Any]) -> Survey:
    """Run a transformers model once, and watch."""
    watcher = _Watcher()
    with torch.no_grad(), listening(configs, watcher), _watched(model, watcher):
        watcher.survey.result = model(**arguments)
    # Layers stand in lists, whatever they are called.
    watcher.survey.listed = frozenset(
        id(child)
        for container in model.modules()
        if isinstance(container, nn.ModuleList | nn.Sequential | nn.ModuleDict)
        for child in container.children()
    )
    return watcher.survey


@contextmanager
def _watched(model: nn.Module, watcher: _Watcher) -> Iterator[None]:
    handles = []
    try:
        for module in model.modules():
            handles.append(module.register_forward_pre_hook(watcher.enter, with_kwargs=True))
            handles.append(module.register_forward_hook(lambda each, _, output: watcher.leave(each, output)))
        yield
    finally:
        for handle in handles:
            handle.remove()


_LOOKS_LIKE_ATTENTION = re.compile(r"attention|attn|mha", re.IGNORECASE)
_WITHOUT_WEIGHTS = re.compile(
    # Recurrences and sums that have no softmax over keys, and so no weights to see.
    r"lightning|linear|exclusive|delta|mamba|recurrent|retention|rwkv|output|norm|pool|intermediate|dense|rotary|embedding|bias|mask|mlp",
    re.IGNORECASE,
)


def unseen(found: Survey, names: dict[int, str]) -> list[str]:
    """Modules that ran, look like attention, and made no call that was seen: 'name (class)', innermost."""
    seen = {execution for call in found.calls for execution in call.around}
    hidden: dict[str, str] = {}
    for execution in found.order:
        kind = type(execution.module).__name__
        if (
            execution not in seen
            and _LOOKS_LIKE_ATTENTION.search(kind)
            and not _WITHOUT_WEIGHTS.search(kind)
            and any(True for _ in execution.module.parameters())
        ):
            # By name, so that a module that runs twice is named once.
            hidden[names.get(id(execution.module), "?")] = kind
    return [
        f"{name} ({kind})"
        for name, kind in hidden.items()
        # The innermost of nested ones: the others only hold it.
        if not any(other.startswith(f"{name}.") for other in hidden)
    ]


def attends(found: Survey) -> bool:
    """Whether a module that ran is called attention, of whatever kind."""
    return any(_LOOKS_LIKE_ATTENTION.search(type(execution.module).__name__) for execution in found.order)


def accepted(model: nn.Module) -> frozenset[str]:
    """The names of what a model's forward takes."""
    return frozenset(inspect.signature(model.forward).parameters)


_NAMES = ("hidden_states", "input", "x", "inputs_embeds", "input_ids")


def main_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The first positional tensor, or the keyword argument that stands for it."""
    if args:
        return args[0] if isinstance(args[0], Tensor) else None
    return next((kwargs[name] for name in _NAMES if isinstance(kwargs.get(name), Tensor)), None)


def with_main_input(
    args: tuple[Any, ...], kwargs: dict[str, Any], value: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments with another main input."""
    if args:
        return (value, *args[1:]), kwargs
    name = next(name for name in _NAMES if isinstance(kwargs.get(name), Tensor))
    return args, {**kwargs, name: value}


def main_output(output: Any) -> Tensor | None:
    """The tensor itself, the first of a tuple, or `last_hidden_state`."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, dict):
        value = output.get("last_hidden_state")
        return value if isinstance(value, Tensor) else None
    if isinstance(output, tuple | list) and output and isinstance(output[0], Tensor):
        return output[0]
    return None


def with_main_output(output: Any, value: Tensor) -> Any:
    """The same output with another main tensor."""
    if isinstance(output, Tensor):
        return value
    if isinstance(output, dict):
        return type(output)(**{**output, "last_hidden_state": value})
    return type(output)((value, *output[1:]))
