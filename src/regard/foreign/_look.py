"""The look at a model on creation: what it is made of, and whether what is read is what it computes."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.core.errors import InputError, RegardError
from regard.foreign import _implementations
from regard.foreign._implementations import SEEN, configs_of
from regard.foreign._points import Layout, lay_out
from regard.foreign._readers import Readers, find_readers
from regard.foreign._survey import Execution, Survey, accepted, attends, main_output, survey, unseen
from regard.models import (
    FAMILIES,
    Kind,
    Parity,
    StackKind,
    bound_of,
    is_linear,
    layer_parity,
    output_error,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LensConfig:
    """The sizes of a model that is seen through the lens, as they showed when it ran.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream.
        num_layers: attention layers; of the encoder, where there are two stacks.
        num_heads: query heads of the first layer.
        max_seq_len: `max_position_embeddings`, or None where the config has none.
        num_token_types: rows of the table of token types; 0 where the model takes none.
        architecture: the class of the transformers model.
    """

    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    max_seq_len: int | None
    num_token_types: int
    architecture: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Look:
    """What was seen."""

    config: LensConfig
    layout: Layout
    norms: dict[StackKind, nn.Module | None]  # what alone stands between a stack's last layer and its output
    readers: dict[tuple[Kind, int], Readers]  # of queries and keys, where they were seen
    head: nn.Linear | None  # the output layer, if it makes the logits of the last hidden state by itself
    has_logits: bool  # whether the model gives logits
    takes_batches: bool  # of two texts; a classifier without a padding token does not
    parity: Parity  # how exactly the records give back what the model computed


def look_at(hf_model: Any, configs: list[Any]) -> Look:
    """Run a model on a few tokens, find where its attention and its tensors are, and check them."""
    name = type(hf_model).__name__
    # In this order: what cannot be seen at all first, then the numbers.
    _check_implementations(configs, name)
    vocab_size = _vocabulary(hf_model)
    # Untouched: the model's own output, before anything listens.
    arguments, untouched = _first_run(hf_model, vocab_size, name)
    seen = survey(hf_model, configs, arguments)
    _check_seen(hf_model, seen, name)
    layout = lay_out(seen, arguments["input_ids"], arguments.get("decoder_input_ids"), name)
    # Records against what the model computed, layer by layer.
    parity = _compare(layout, seen, untouched)
    parity.check(f"lens on {name}")
    return Look(
        config=_sizes(hf_model, layout, seen, vocab_size, name),
        layout=layout,
        norms={kind: _find_norm(layout, seen, kind) for kind in layout.prefixes},
        readers=find_readers(layout, seen),
        head=_find_head(hf_model, layout, seen),
        takes_batches=len(arguments["input_ids"]) > 1,
        has_logits=isinstance(seen.result.get("logits"), Tensor),
        parity=parity,
    )


def _check_seen(hf_model: Any, found: Survey, name: str) -> None:
    # Modules that look like attention, but made no call.
    hidden = unseen(found, {id(module): each for each, module in hf_model.named_modules()})
    # Neither calls nor anything named attention: a state-space model, say.
    if not found.calls and not attends(found):
        raise InputError(f"hf_model {name} has no attention: no part of it is called so, or calls any.")
    if not found.calls:
        what = f": {', '.join(hidden[:4])}" if hidden else ""
        raise InputError(
            f"hf_model {name} makes no attention call through transformers' registry "
            f"(ALL_ATTENTION_FUNCTIONS), which the lens listens to{what}.{_way_out(hf_model)}"
        )
    if hidden:
        raise InputError(
            f"hf_model {name} attends past transformers' registry in {len(hidden)} modules, such as "
            f"{', '.join(hidden[:3])}: a trace would lack them.{_way_out(hf_model)}"
        )


def _sizes(hf_model: Any, layout: Layout, found: Survey, vocab_size: int, name: str) -> LensConfig:
    text = hf_model.config.get_text_config()
    longest = getattr(text, "max_position_embeddings", None)
    # None for models whose config has no such table.
    types = getattr(text, "type_vocab_size", None)
    last = _last_state(layout, found)
    if last is None:
        last = main_output(found.result)
    if last is None:
        raise InputError(
            f"hf_model {name} gives no last hidden state, in its output or where it runs; hand in its text "
            "model instead."
        )
    return LensConfig(
        vocab_size=vocab_size,
        d_model=int(last.shape[-1]),
        num_layers=layout.depth(next(iter(layout.prefixes))),
        num_heads=layout.sites[0].num_heads,
        max_seq_len=longest if isinstance(longest, int) and longest > 0 else None,
        # The config may name types that forward does not take.
        num_token_types=types if "token_type_ids" in accepted(hf_model) and isinstance(types, int) else 0,
        architecture=name,
    )


def _last_state(layout: Layout, found: Survey) -> Tensor | None:
    """What the outermost stack hands on."""
    point = layout.points.get(f"{list(layout.prefixes.values())[-1]}output")
    return None if point is None else found.outputs[point.execution]


def _compare(layout: Layout, found: Survey, untouched: Any) -> Parity:
    sites = {site.execution: site for site in layout.sites}
    layers = []
    for call in found.calls:
        site = sites[call.execution]
        point = layout.points.get(f"{site.name}.output")
        # By projecting the recorded context, the layer's output is checked too.
        layers.append(
            layer_parity(
                site.kind,
                site.layer,
                call.inputs,
                call.context,
                projection=layout.projection(site.name),
                output=None if point is None else found.outputs[point.execution],
            )
        )
    return Parity(
        layers=tuple(layers),
        output=output_error(_tensors(found.result), _tensors(untouched)),
        bound=bound_of(found.calls[0].inputs.q.dtype),
    )


def _find_norm(layout: Layout, found: Survey, kind: StackKind) -> nn.Module | None:
    prefix = layout.prefixes[kind]
    end = layout.points.get(f"{prefix}output")
    last = layout.points.get(f"{prefix}layers.{layout.depth(kind) - 1}.output")
    if end is None or last is None:
        return None
    before, after = (found.outputs[each.execution] for each in (last, end))
    # Equal: nothing stands between.
    if not _same(before, after):
        for execution in found.order:
            # The module whose input is the one and whose output the other, number for number.
            own_input, own_output = (each.get(execution) for each in (found.inputs, found.outputs))
            if _same(own_input, before) and _same(own_output, after):
                return execution.module
    return None


def _find_head(hf_model: Any, layout: Layout, found: Survey) -> nn.Linear | None:
    head = hf_model.get_output_embeddings()
    state = _last_state(layout, found)
    if head is None or state is None or not is_linear(head):
        return None
    # The output layer runs once, on the last hidden state itself.
    given, made = (each.get(Execution(head, 0)) for each in (found.inputs, found.outputs))
    return head if _same(given, state) and _same(made, found.result.get("logits")) else None


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and torch.equal(one, other)


def check_model(hf_model: Any) -> None:
    """Refuse what is no model of transformers that reads token ids, in evaluation mode, with its weights."""
    modeling, _ = _implementations.transformers_modules()
    # A wrapper or a compiled model has other modules than it runs.
    if not isinstance(hf_model, modeling.PreTrainedModel):
        raise InputError(
            "hf_model must be a transformers PreTrainedModel, as AutoModel.from_pretrained gives it; got "
            f"{type(hf_model).__name__}. Hand in the model itself, before torch.compile or a wrapper."
        )
    check_mode(hf_model)
    if "input_ids" not in accepted(hf_model):
        raise InputError(f"hf_model must read token ids; {type(hf_model).__name__} takes no input_ids.")
    if any(parameter.is_meta for parameter in hf_model.parameters()):
        raise InputError("hf_model must hold its weights; some of its parameters are on the meta device.")


def check_mode(hf_model: Any) -> None:
    """Refuse a model in training mode."""
    if hf_model.training:
        raise InputError(
            "hf_model must be in evaluation mode: in training mode, dropout changes every pass; "
            "call hf_model.eval()."
        )


def _check_implementations(configs: list[Any], name: str) -> None:
    others = {
        str(config._attn_implementation)
        for config in configs
        # Kernels such as flash attention hide their mask.
        if getattr(config, "_attn_implementation", None) not in (None, *SEEN)
    }
    if others:
        raise InputError(
            f"hf_model {name} attends by {', '.join(sorted(others))}, a kernel that takes no mask the lens "
            "could read; call hf_model.set_attn_implementation('sdpa') first."
        )


def _way_out(hf_model: Any) -> str:
    model_type = getattr(hf_model.config, "model_type", None)
    if model_type in FAMILIES:
        return f" regard has a {model_type} of its own: regard.load(the checkpoint's folder)."
    return f" regard has no {model_type} of its own either."


def _vocabulary(hf_model: Any) -> int:
    """Rows of the table of learned embeddings."""
    try:
        weight = getattr(hf_model.get_input_embeddings(), "weight", None)
    except NotImplementedError:
        weight = None
    # A table of one row an id; quantised ones and hashes are none.
    if isinstance(weight, Tensor) and weight.ndim == 2:
        return len(weight)
    size = getattr(hf_model.config.get_text_config(), "vocab_size", None)
    if not isinstance(size, int):
        raise InputError(
            f"hf_model must have a vocabulary; the config of {type(hf_model).__name__} names none."
        )
    return size


def _first_run(hf_model: Any, vocab_size: int, name: str) -> tuple[dict[str, Any], Any]:
    """What the model is looked at with, and what it makes of that untouched."""
    failed: Exception | None = None
    # One text by itself for those that take no batch, such as a decoder's classifier without a padding token.
    for texts in (2, 1):
        try:
            arguments, result = _within_tables(hf_model, vocab_size, texts)
        # A reason of ours is not retried with one text.
        except InputError:
            raise
        # Whatever a model of unknown make raises when it is given tokens and nothing else.
        except Exception as error:
            failed = failed or error
            continue
        # NaN compares as equal to nothing: every check below would fail without saying why.
        if any(bool(value.isnan().any()) for value in _tensors(result) if value.is_floating_point()):
            raise RegardError(
                f"hf_model {name} gives NaN on a few tokens: its weights are damaged, or overflow in their "
                "type."
            )
        return arguments, result
    assert failed is not None
    what, way_out = "token ids alone", ""
    # The likeliest reasons, with a way out.
    if "decoder_input_ids" in accepted(hf_model) and hf_model.config.is_encoder_decoder:
        what = "a text and a shorter target, by whose lengths the lens tells the encoder from the decoder"
    base = getattr(hf_model, "base_model_prefix", "")
    if base and isinstance(getattr(hf_model, base, None), nn.Module):
        way_out = f" If it is the head that wants more, hand in the model without it: hf_model.{base}."
    raise InputError(
        f"hf_model {name} does not run on {what} ({type(failed).__name__}: {str(failed)[:200]}).{way_out}"
    ) from failed


def _tensors(result: Any) -> list[Tensor]:
    """Every tensor of an output, caches aside."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        # Caches of keys and values are no results.
        return [each for name, value in result.items() if "past" not in name for each in _tensors(value)]
    if isinstance(result, tuple | list):
        return [each for value in result for each in _tensors(value)]
    return []


_LENGTH, _TARGET = 13, 7
"""Tokens of the first text, and of what a decoder reads; fewer where the model takes fewer."""


class _TooMany(Exception):
    """A row was asked for that a table does not have."""

    def __init__(self, message: str, excess: int) -> None:
        super().__init__(message)
        self.excess = excess


class _WithinTables(TorchFunctionMode):
    """Refuses to look up a row that a table does not have: on CUDA that would end the process's context."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Looked up rows are checked before the kernel is called.
        named_args = kwargs or {}
        if func is torch.nn.functional.embedding:
            named = dict(zip(("input", "weight"), args, strict=False)) | named_args
            _check_rows(named["input"], len(named["weight"]))
        elif func in _PICKING:
            named = dict(zip(("input", "dim", "index"), args, strict=False)) | named_args
            _check_rows(named["index"], named["input"].shape[named["dim"]])
        elif func is Tensor.__getitem__ and isinstance(args[1], Tensor) and args[1].dtype == torch.int64:
            _check_rows(args[1], len(args[0]))
        return func(*args, **named_args)


_PICKING = (torch.gather, Tensor.gather, torch.index_select, Tensor.index_select)


def _check_rows(ids: Tensor, rows: int) -> None:
    last = int(ids.max()) if ids.numel() else 0
    if last >= rows:
        raise _TooMany(f"row {last} of a table of {rows}", last - rows + 1)


def _within_tables(model: Any, vocab_size: int, texts: int) -> tuple[dict[str, Any], Any]:
    """Arguments that a model runs with, as long as its tables allow, and what it makes of them."""
    limits = (getattr(config, "max_position_embeddings", None) for config in configs_of(model))
    # Lengths that the config allows, up to 13 tokens.
    length = min([_LENGTH, *(limit for limit in limits if isinstance(limit, int) and limit > 1)])
    while True:
        arguments = _probe(model, vocab_size, texts, length)
        try:
            with torch.no_grad(), _WithinTables():
                return arguments, model(**arguments)
        except _TooMany as error:
            # RoBERTa's table begins after the padding's id: fewer rows are tokens' than its config says.
            # As many tokens fewer as the row was beyond the table.
            length -= error.excess
            if length < 2:
                raise InputError(
                    f"hf_model must take at least 2 tokens, and ids of its vocabulary; "
                    f"{type(model).__name__} looked up {error}."
                ) from error


def _probe(model: Any, vocab_size: int, texts: int, length: int) -> dict[str, Any]:
    """Arguments for the model's forward: one text, or two of different lengths, the shorter one padded.

    The ids are none that the config gives a meaning, such as the place of an image or the end of a text.
    """
    device = next(model.parameters()).device
    ids = _ids(model, vocab_size, (texts, length), device)
    names = accepted(model)
    arguments: dict[str, Any] = {"input_ids": ids}
    if "attention_mask" in names:
        pad = _number(model, "pad_token_id")
        # Two texts of different lengths show padding.
        lengths = torch.tensor([[length], [max(1, length - 2)]][:texts], device=device)
        real = torch.arange(length, device=device)[None] < lengths
        arguments["attention_mask"] = real.long()
        if pad is not None and 0 <= pad < vocab_size:
            # Padding's own id at the end of the shorter text.
            arguments["input_ids"] = ids.masked_fill(~real, pad)
    if "decoder_input_ids" in names and model.config.is_encoder_decoder:
        # A shorter target: lengths tell the encoder, the decoder and cross-attention apart.
        target = min(_TARGET, length - 1)
        arguments["decoder_input_ids"] = _ids(model, vocab_size, (texts, target), device)
    return arguments | quiet(names)


def quiet(names: frozenset[str]) -> dict[str, Any]:
    """Arguments that keep a model from caching, or from handing back what nobody asked for."""
    wanted = {"use_cache": False, "output_attentions": False, "return_dict": True}
    return {name: value for name, value in wanted.items() if name in names}


def _ids(model: Any, vocab_size: int, shape: tuple[int, int], device: torch.device) -> Tensor:
    taken = _special(model)
    # Only the first 2,048: a list of a whole vocabulary takes longer than the look.
    free = [each for each in range(min(vocab_size, 2048)) if each not in taken] or [0]
    # A generator of its own: looking at a model must not change anybody's random numbers.
    generator = torch.Generator().manual_seed(0)
    picked = torch.randint(len(free), shape, generator=generator)
    return torch.tensor(free, dtype=torch.int64)[picked].to(device)


def _special(model: Any) -> set[int]:
    """Every id that a config, or one inside it, gives a name."""
    special: set[int] = set()
    for config in configs_of(model):
        for name, value in vars(config).items():
            # Any field with "token" in its name: special ids, images, sounds.
            if "token" in name:
                values = value if isinstance(value, list | tuple) else [value]
                special |= {each for each in values if isinstance(each, int)}
    return special


_PLACEHOLDER = re.compile(r"(audio|image|speech|video|vision)_(token|patch)_(id|index)")


def placeholders(configs: list[Any]) -> dict[int, str]:
    """The ids that stand for an image, a video or a sound, each with its name in the config."""
    fields = [(name, value) for config in configs for name, value in vars(config).items()]
    return {each: name for name, each in fields if _PLACEHOLDER.fullmatch(name) and isinstance(each, int)}


def _number(model: Any, name: str) -> int | None:
    # The config itself, or that of its text half.
    for config in (model.config, model.config.get_text_config()):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    return None
