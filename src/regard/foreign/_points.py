"""What the calls and tensors of a survey are called: taps, and where in the model each is."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, TypeGuard

import torch
from torch import Tensor, nn

from regard.core.errors import InputError
from regard.foreign._survey import Execution, SeenCall, Survey
from regard.models import Kind, Projection, StackKind, attention_name, is_linear, read_projection


@dataclass(frozen=True)
class Site:
    """An attention layer: the call that computes it, and what it is called."""

    kind: Kind
    layer: int
    name: str
    execution: Execution
    num_heads: int


@dataclass(frozen=True)
class Point:
    """A tap outside attention: the input or output of one execution of a module."""

    name: str
    execution: Execution
    side: Literal["input", "output"]
    is_flat: bool = False  # whether it comes as (batch x positions, size)


@dataclass(frozen=True)
class Layout:
    """Where everything is."""

    prefixes: Mapping[StackKind, str]  # as in `regard.models.Network`
    sites: tuple[Site, ...]  # in the order of the forward pass
    points: Mapping[str, Point]  # the other taps, by name
    limits: Mapping[StackKind, int | None] = field(default_factory=dict)  # positions that each stack can take

    def depth(self, kind: Kind) -> int:
        """Attention layers of a kind."""
        return sum(site.kind == kind for site in self.sites)

    def projection(self, name: str) -> Projection | None:
        """From the heads of a site to its output, where a module was given the joined heads, bit for bit."""
        point = self.points.get(f"{name}.output")
        if point is None:
            return None
        site = next(site for site in self.sites if site.name == name)
        return read_projection(point.execution.module, site.num_heads)

    def tap_names(self) -> list[str]:
        """In the order of the forward pass, logits aside."""
        names: list[str] = []
        for prefix in self.prefixes.values():
            # The sites of this stack, cross-attention among the decoder's.
            own = [site for site in self.sites if site.name.startswith(f"{prefix}layers.")]
            names.append(f"{prefix}embeddings.tokens")
            for layer in range(1 + max(site.layer for site in own)):
                names.append(f"{prefix}layers.{layer}.input")
                for site in (each for each in own if each.layer == layer):
                    names += [f"{site.name}.{name}" for name in OF_ATTENTION] + [f"{site.name}.output"]
                names += [f"{prefix}layers.{layer}.{name}" for name in ("ffn.hidden", "ffn.output", "output")]
            names.append(f"{prefix}output")
        # Only what was found: a tap may exist in theory and not in this model.
        inside = {f"{site.name}.{name}" for site in self.sites for name in OF_ATTENTION}
        return [name for name in names if name in inside or name in self.points]


OF_ATTENTION = ("q", "k", "v", "inputs", "scores", "weights", "context")


def lay_out(found: Survey, token_ids: Tensor, decoder_token_ids: Tensor | None, name: str) -> Layout:
    """Name what a survey of these tokens saw; `name` is the model's, for messages."""
    kinds = [_kind(call, token_ids, decoder_token_ids, name) for call in found.calls]
    # One stack is a decoder where every call is causal.
    if decoder_token_ids is None:
        kind: StackKind = "decoder" if all(_is_causal(call) for call in found.calls) else "encoder"
        kinds = [kind] * len(kinds)
        prefixes: dict[StackKind, str] = {kind: ""}
    else:
        prefixes = {"encoder": "encoder.", "decoder": "decoder."}
    sites: list[Site] = []
    points: list[Point] = []
    limits: dict[StackKind, int | None] = {}
    for stack, prefix in prefixes.items():
        ids = token_ids if stack == "encoder" or decoder_token_ids is None else decoder_token_ids
        own = [call for call, each in zip(found.calls, kinds, strict=True) if each == stack]
        # Cross-attention belongs to the decoder's layers.
        cross = [call for call, each in zip(found.calls, kinds, strict=True) if each == "cross"]
        # The last attention of each layer: the feed-forward follows it.
        last = dict(enumerate(own))
        placed: list[tuple[Kind, int, SeenCall]] = [(stack, layer, call) for layer, call in last.items()]
        if stack == "decoder" and cross:
            layers = _layers_of(found, cross, own)
            last |= dict(zip(layers, cross, strict=True))
            placed += [("cross", layer, call) for layer, call in zip(layers, cross, strict=True)]
        for call_kind, layer, call in placed:
            at = f"{prefix}layers.{layer}.{attention_name(call_kind)}"
            sites.append(Site(call_kind, layer, at, call.execution, call.inputs.num_heads))
            # The output projection's output, where it is a state of the residual stream.
            projected = None if call.projection is None else found.outputs.get(call.projection)
            if call.projection is not None and _is_state(projected, ids):
                points.append(Point(f"{at}.output", call.projection, "output"))
        points += _around(found, prefix, own, ids)
        for layer, call in last.items():
            block = block_of(found, call)
            # The feed-forward that follows the layer's last attention, within its block.
            down = None if block is None else _find_ffn(found, call, block, ids.shape)
            if down is not None:
                at = f"{prefix}layers.{layer}.ffn"
                is_flat = found.inputs[down].ndim == 2
                points.append(Point(f"{at}.hidden", down, "input", is_flat))
                points.append(Point(f"{at}.output", down, "output", is_flat))
        limits[stack] = _limit(found, own)
    order = {call.execution: index for index, call in enumerate(found.calls)}
    # Sorted into the order of the forward pass, since stacks were gone through one by one.
    sites.sort(key=lambda site: order[site.execution])
    return Layout(prefixes, tuple(sites), {point.name: point for point in points}, limits)


def _kind(call: SeenCall, ids: Tensor, target: Tensor | None, name: str) -> Kind:
    # Batch, queries and keys; the probe has three different lengths.
    shape = (call.inputs.q.shape[0], call.inputs.q_len, call.inputs.k_len)
    wanted: dict[tuple[int, int, int], Kind] = {(len(ids), ids.shape[1], ids.shape[1]): "encoder"}
    if target is not None:
        wanted[len(ids), target.shape[1], target.shape[1]] = "decoder"
        wanted[len(ids), target.shape[1], ids.shape[1]] = "cross"
    if shape not in wanted:
        raise InputError(
            f"hf_model {name} attends in {type(call.execution.module).__name__} with {shape[1]} queries and "
            f"{shape[2]} keys in a batch of {shape[0]}, given {len(ids)} texts of {ids.shape[1]} tokens"
            f"{'' if target is None else f' and {target.shape[1]} target tokens'}: its positions are not the "
            "tokens, so their weights cannot be told apart by token."
        )
    return wanted[shape]


def _is_causal(call: SeenCall) -> bool:
    mask = call.inputs.mask
    # Only a bias: causal where it forbids the future.
    if mask is None:
        bias = call.inputs.bias
        if bias is None:
            return False
        positions = torch.arange(call.inputs.k_len, device=call.inputs.q.device)
        values = bias.block(positions, positions)  # type: ignore[union-attr]
        # Biases forbid by the lowest number of their type, or half of it where two are added.
        allowed = values > torch.finfo(values.dtype).min / 2
    else:
        allowed = mask.dense(call.inputs.q_len, call.inputs.k_len, call.inputs.q.device)
    # True above the diagonal: keys after the query.
    future = torch.ones(call.inputs.q_len, call.inputs.k_len, dtype=torch.bool, device=allowed.device).triu(1)
    # In the row without padding: the first.
    return not bool((allowed[0] & future).any())


def _layers_of(found: Survey, cross: list[SeenCall], own: list[SeenCall]) -> list[int]:
    """The decoder layer of each cross-attention: its block's self-attention's, or by order."""
    blocks = {block_of(found, call): layer for layer, call in enumerate(own)}
    layers = [blocks.get(block_of(found, call), -1) for call in cross]
    # Blocks that cannot be told apart: by the order of calls.
    if -1 in layers or len(set(layers)) < len(layers) or len(blocks) < len(own):
        return list(range(len(cross)))
    return layers


def block_of(found: Survey, call: SeenCall) -> Execution | None:
    """The outermost module around the call that stands in a list of modules: its layer."""
    return next((each for each in call.around if id(each.module) in found.listed), None)


def _around(found: Survey, prefix: str, own: list[SeenCall], ids: Tensor) -> Iterator[Point]:
    """The points of the residual stream and the embeddings, where they can be told."""
    for execution in found.order:
        indices = found.inputs.get(execution)
        if isinstance(execution.module, nn.Embedding) and indices is not None and indices.shape == ids.shape:
            output = found.outputs.get(execution)
            # A decoder's ids are fewer than its encoder's, so that they cannot be mixed up.
            if torch.equal(indices, ids) and output is not None and output.ndim == 3:
                yield Point(f"{prefix}embeddings.tokens", execution, "output")
                break
    blocks = [block_of(found, call) for call in own]
    # Layers without blocks of their own have no inputs and outputs that could be named.
    if None in blocks or len(set(blocks)) < len(blocks):
        blocks = []
    for layer, block in enumerate(blocks):
        assert block is not None
        if _is_state(found.inputs.get(block), ids):
            yield Point(f"{prefix}layers.{layer}.input", block, "input")
        if _is_state(found.outputs.get(block), ids):
            yield Point(f"{prefix}layers.{layer}.output", block, "output")
    # What the modules around all calls hand on, from the outermost.
    states = [
        (execution, value)
        for execution in _common(found, own)
        if _is_state(value := found.outputs.get(execution), ids)
    ]
    if states:
        # What the outermost module hands on is the last hidden state; the innermost that has it makes it, so
        # that what is written there goes through all that follows, such as a pooler.
        last = states[0][1]
        execution = next(
            each for each, value in reversed(states) if value.shape == last.shape and torch.equal(value, last)
        )
        yield Point(f"{prefix}output", execution, "output")


def _is_state(value: Tensor | None, ids: Tensor) -> TypeGuard[Tensor]:
    # (batch, positions, d_model), for these ids.
    return (
        value is not None and value.ndim == 3 and value.shape[:2] == ids.shape and value.is_floating_point()
    )


def _common(found: Survey, own: list[SeenCall]) -> list[Execution]:
    """The executions around all the calls of a stack, from the outside in."""
    common: list[Execution] = []
    # Level by level, while all calls are within the same execution.
    for level in zip(*(call.around for call in own), strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    # A stack of one layer has the layer, and more, around all its calls.
    block = block_of(found, own[0]) if len(own) == 1 else None
    # Up to the layer itself, which is no longer common.
    return list(takewhile(lambda execution: execution != block, common))


def _limit(found: Survey, own: list[SeenCall]) -> int | None:
    """The rows of the table of positions that the stack looks its positions up in."""
    # A stack looks its positions up before its first attention, and after that of the stack before it.
    at = {execution: index for index, execution in enumerate(found.order)}
    stop = at[own[0].around[-1]]
    before = [at[call.around[-1]] for call in found.calls if call not in own]
    start = max((index for index in before if index < stop), default=0)
    # The first table that consecutive numbers are looked up in.
    for execution in found.order[start:stop]:
        module = execution.module
        if not isinstance(module, nn.Embedding):
            continue
        first = _first_position(found.inputs.get(execution), own[0].inputs.q_len)
        # OPT's and BART's tables begin with rows for padding: `offset` says how many.
        if "position" in type(module).__name__.lower():
            first = int(getattr(module, "offset", 0) or 0)
        if first is not None:
            return module.num_embeddings - first
    return None


def _first_position(ids: Tensor | None, length: int) -> int | None:
    """Where consecutive numbers, one for each token, begin."""
    if ids is None or ids.is_floating_point() or ids.ndim not in (1, 2) or ids.shape[-1] != length:
        return None
    if length == 1:  # any single number is "consecutive"
        return None
    row = ids.reshape(-1, length)[0]
    return int(row[0]) if bool((row[1:] - row[:-1] == 1).all()) else None


def _find_ffn(found: Survey, last: SeenCall, block: Execution, shape: tuple[int, ...]) -> Execution | None:
    """The linear layer from the neurons of a layer to the residual stream; None where there is no such one.

    Its input are the neurons, its output is the network's. After the last attention of a layer nothing with
    parameters may run in it but norms and, on all tokens, two linear layers (up, down) or three (gate, up,
    down), the earlier ones of one input. So a mixture of experts, an adapter or a convolution is none.
    """
    if last.projection is None:
        return None
    # What runs after the output projection.
    start = found.order.index(last.projection) + 1
    linear: list[Execution] = []
    for execution in found.order[start:]:
        # Within the block, and with parameters of its own.
        own = list(execution.module.parameters(recurse=False))
        if block not in found.around[execution] or not own:
            continue
        if is_linear(execution.module):
            linear.append(execution)
        # A matrix that is no linear layer: an expert, a convolution.
        elif any(parameter.ndim > 1 for parameter in own):
            return None
    if len(linear) not in (2, 3):
        return None
    *ups, down = linear
    inputs = [found.inputs.get(each) for each in linear]
    outputs = [found.outputs.get(each) for each in linear]
    tokens = (shape, (math.prod(shape),))  # OPT puts the batch's tokens in one row
    states = [value for value in (*inputs, *outputs) if value is not None and value.shape[:-1] in tokens]
    # Up and gate must read the very same tensor.
    if len(states) < 2 * len(linear) or any(value is not inputs[0] for value in inputs[: len(ups)]):
        return None
    wide = [value.shape[-1] for value in states]
    d_model, neurons, made_of = wide[0], wide[len(ups)], set(wide[len(linear) : -1])
    # A fused gate makes two numbers of each neuron.
    return down if wide[-1] == d_model and made_of in ({neurons}, {2 * neurons}) else None
