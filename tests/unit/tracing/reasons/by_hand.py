"""What wrote every token's vector, worked forward through a tiny network with NumPy, one part at a time."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from regard.blocks import PostNorm, SandwichNorm
from regard.tracing import Trace
from unit.tracing import measured

Array = npt.NDArray[np.float64]

Parts = dict[Any, Array]
"""For each writer, as (name, layer, head), what it gave to every token; heads by source token too."""


def numbers(tensor: Any) -> Array:
    found: Array = tensor.detach().double().numpy()
    return found


def scale_of(norm: Any, x: Array) -> Array:
    """1 / the norm's own divisor, (tokens, 1)."""
    if isinstance(norm, nn.LayerNorm):
        return np.asarray(1 / np.sqrt(x.var(axis=-1, keepdims=True) + norm.eps))
    return np.asarray(1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + norm.eps))


def normed(norm: Any, parts: Parts) -> Parts:
    """The parts after a norm, whose scale is that of their sum; its bias is one of the biases."""
    if norm is None or isinstance(norm, nn.Identity):
        return parts
    scale = scale_of(norm, sum(parts.values()))  # type: ignore[arg-type]
    gain = numbers(norm.weight) + getattr(norm, "offset", 0.0)
    is_centred = isinstance(norm, nn.LayerNorm)
    found = {
        name: (x - x.mean(axis=-1, keepdims=True) if is_centred else x) * scale * gain
        for name, x in parts.items()
    }
    return with_bias(found, numbers(norm.bias)) if getattr(norm, "bias", None) is not None else found


def with_bias(parts: Parts, bias: Array) -> Parts:
    some = next(iter(parts.values()))
    return parts | {"biases": parts.get("biases", np.zeros_like(some)) + bias}


def mapped(linear: Any, parts: Parts, rows: slice = slice(None)) -> Parts:
    """The parts after some rows of a linear map."""
    found = {name: x @ numbers(linear.weight)[rows].T for name, x in parts.items()}
    return found if linear.bias is None else with_bias(found, numbers(linear.bias)[rows])


def embedded(trace: Trace, kind: Any) -> Parts:
    stack: Any = trace.require_model().network.stack(kind)
    embeddings, ids = stack.embeddings, list(trace.stack(kind).encoding.token_ids)
    parts: Parts = {"word": numbers(embeddings.tokens.weight)[ids] * embeddings.scale}
    if embeddings.positions is not None:
        places = stack.numbering(torch.tensor([ids]))[0].tolist()
        parts["position"] = numbers(embeddings.positions.weight)[places]
    if embeddings.token_types is not None:
        parts["token_type"] = np.repeat(numbers(embeddings.token_types.weight)[:1], len(ids), axis=0)
    parts = normed(embeddings.norm, parts)
    return parts if embeddings.projection is None else mapped(embeddings.projection, parts)


def attended(trace: Trace, kind: Any, layer: int) -> Parts:
    """What each head took from each token, and the bias of the projection."""
    weights = measured.weights(trace, kind, layer)
    module = getattr(
        measured.module(trace, kind, layer), "cross_attention" if kind == "cross" else "attention"
    )
    v = numbers(trace.attention_of(layer, kind).inputs.v)[0]
    out = numbers(module.output.weight)
    parts: Parts = {}
    for head in range(len(weights)):
        values, size = v[head // (len(weights) // len(v))], v.shape[2]
        matrix = out[:, head * size : (head + 1) * size].T
        for source in range(v.shape[1]):
            parts["head", layer, head, kind, source] = (
                np.outer(weights[head, :, source], values[source]) @ matrix
            )
    return parts if module.output.bias is None else with_bias(parts, numbers(module.output.bias))


def passed(residual: Any, x: Parts, output: Parts) -> Parts:
    """What a sublayer hands on."""
    if isinstance(residual, SandwichNorm):
        output = normed(residual.after, output)
    both = {
        name: x.get(name, 0.0) + output.get(name, 0.0)  # biases are in both
        for name in {**x, **output}
    }
    return normed(residual.norm, both) if isinstance(residual, PostNorm) else both


def written(trace: Trace, kind: Any, layer: int, *, has_attended: bool = False) -> Parts:
    """What every token's vector is made of before a layer; or behind that layer's own attention."""
    prefix = measured.prefix(trace, kind)
    parts = embedded(trace, kind)
    for index in range(layer + has_attended):
        module = measured.module(trace, kind, index)
        parts = passed(module.attention_residual, parts, attended(trace, kind, index))
        if index == layer:
            break
        if hasattr(module, "cross_attention"):
            parts = passed(module.cross_attention_residual, parts, attended(trace, "cross", index))
        tap = f"{prefix}layers.{index}.ffn.output"
        output = numbers(measured.seen(trace, [tap])[tap])[0]
        parts = passed(module.ffn_residual, parts, {("ffn", index): output})
    return parts


def turned(rotation: Any, x: Array) -> Array:
    """Every pair of entries turned by the angle of its position."""
    if rotation is None:
        return x
    found = x.copy()
    cos, sin = numbers(rotation.cos)[0, 0], numbers(rotation.sin)[0, 0]
    pairs = sin.shape[1]
    for position in range(len(x)):
        for pair in range(pairs):
            a, b = x[position, pair], x[position, pair + pairs]
            c, s = cos[position, pair], sin[position, pair]
            found[position, pair], found[position, pair + pairs] = c * a - s * b, s * a + c * b
    return found


def side(trace: Trace, kind: Any, layer: int, head: int, name: str, *, is_turned: bool = True) -> Parts:
    """What the queries ("q") or keys ("k") of a head are made of, as they enter the product."""
    stack_kind: Any = ("decoder" if name == "q" else "encoder") if kind == "cross" else kind
    network: Any = trace.require_model().network
    module = measured.module(trace, kind, layer)
    attention_name = "cross_attention" if kind == "cross" else "attention"
    attention, residual = getattr(module, attention_name), getattr(module, f"{attention_name}_residual")
    if kind == "cross" and name == "k":
        parts = normed(network.final_norm("encoder"), written(trace, "encoder", network.depth("encoder")))
    else:
        parts = written(trace, stack_kind, layer, has_attended=kind == "cross")
        if isinstance(residual, SandwichNorm):
            parts = normed(residual.before, parts)
        elif not isinstance(residual, PostNorm):
            parts = normed(residual.norm, parts)
    heads = attention.num_heads if name == "q" else attention.num_kv_heads
    number = head // (attention.num_heads // heads)
    linear = getattr(attention, name)
    size = len(linear.weight) // heads
    parts = mapped(linear, parts, slice(number * size, (number + 1) * size))
    parts = normed(getattr(attention, f"{name}_norm"), parts)
    rotation = rotation_of(trace, network, kind, layer) if is_turned and kind != "cross" else None
    return {each: turned(rotation, x) for each, x in parts.items()}


def rotation_of(trace: Trace, network: Any, kind: Any, layer: int) -> Any:
    """How positions turn queries and keys in a layer; None where they do not."""
    stack = network.stack(kind)
    rotary = stack.patterns[layer].rotary
    if rotary is None:
        return None
    ids = torch.tensor([trace.stack(kind).encoding.token_ids])
    return rotary.rotation(stack.numbering(ids), dtype=torch.float64)
